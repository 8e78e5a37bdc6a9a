"""Show findings on a terminal: what each costs, the packets that show it, what to do."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.finding import Evidence, Finding, Remedy, rank_cost
from ...analyzer.model.text import count, duration, list_first, packet_filter, safe, utc
from ..shared.drawing import NARROW, SEVERITY_STYLES, more, pair
from ..shared.quality import find_main
from ..shared.sentences import describe_cost

MOST_EVIDENCE = 4
"""Packets shown for a finding; the rest are in the JSON report."""
_PROOF = 3
"""Packets shown for a finding in a report without details."""
MOST_REMEDIES = 2
"""Remedies shown for a finding; the rest are in the JSON report."""
MOST_NAMES = 8
"""Connections or methods named for a finding; the rest are counted."""
MOST_FILTERED = 24
"""Most packets that a display filter names; a finding with more gets a filter for the packets shown."""

_INDENT = 3


def list_findings(analysis: Analysis, width: int, top: int | None) -> Iterator[RenderableType]:
    """Show findings above `info` and the verdict's in full, and the others in a line each; at most `top` of either."""
    main = find_main(analysis)
    costly = sorted((one for one in analysis.findings if one.severity != "info" or one is main), key=rank_cost)
    for number, finding in enumerate(costly[:top], start=1):
        yield Text()
        yield from show_finding(number, finding, analysis, width)
    left = costly[top:] if top else []
    if left:
        yield Text()
        yield from more(len(left), "finding")
        yield _show_in_lines(left, [finding.severity for finding in left], width)
    remarks = [finding for finding in analysis.findings if finding.severity == "info" and finding is not main]
    if remarks:
        yield Text()
        yield Text("also seen", style=f"bold {SEVERITY_STYLES['info']}")
        yield _show_in_lines(remarks[:top], [""] * len(remarks[:top]), width)
        yield from more(len(remarks) - len(remarks[:top]), "finding")


def list_grave_findings(analysis: Analysis) -> list[Finding]:
    """List the findings that a report without details may show with their proof, the worst first."""
    main = find_main(analysis)
    grave = [finding for finding in analysis.findings if finding.severity != "info" and finding.part_of is None]
    grave = sorted((finding for finding in grave if finding is not main), key=rank_cost)
    return [main, *grave] if main else grave


def show_proof(analysis: Analysis, width: int, number: int) -> Iterator[RenderableType]:
    """Show the grave finding with that number, from 1, with its proof and one remedy."""
    finding = list_grave_findings(analysis)[number - 1]
    yield Text()
    yield _show_head(number, finding)
    parts: list[RenderableType] = [_show_cost(finding, bool(analysis.totals.rpcs))]
    parts += [_show_evidence(finding.evidence[:_PROOF], analysis.capture.first_time_ns or 0, width - _INDENT)]
    parts += [_show_remedies(finding.remedies[:1], width - _INDENT)] if finding.remedies else []
    yield from (Padding(part, (0, 0, 0, _INDENT)) for part in parts)


def list_other_findings(analysis: Analysis, width: int, shown: int, others: int) -> Iterator[RenderableType]:
    """Show findings behind the `shown` grave ones: `others` in a line each."""
    grave = list_grave_findings(analysis)
    ranked = sorted(analysis.findings, key=rank_cost)
    left = grave[shown:] + [finding for finding in ranked if finding not in grave]
    if left and not others:
        yield from more(len(left), "finding")
    elif left:
        yield Text()
        yield Text("also seen", style=f"bold {SEVERITY_STYLES['info']}")
        severities = ["" if finding.severity == "info" else finding.severity for finding in left]
        yield _show_in_lines(left[:others], severities[:others], width)
        yield from more(len(left) - others, "finding")


def _show_head(number: int, finding: Finding) -> RenderableType:
    style = SEVERITY_STYLES[finding.severity]
    head = Text.assemble((finding.severity, style), (f" {finding.id}", "bold"), f"  {safe(finding.title)}")
    return pair([(Text(f"{number}.", style="bold"), head)], gap=1)


def show_finding(number: int, finding: Finding, analysis: Analysis, width: int) -> Iterator[RenderableType]:
    """Show one finding with its evidence and its remedies."""
    yield _show_head(number, finding)
    room = width - _INDENT
    start = analysis.capture.first_time_ns or 0
    parts: list[RenderableType] = [_show_cost(finding, bool(analysis.totals.rpcs)), Text(safe(finding.explanation))]
    parts += [Text("packets that show it", style="bold"), _show_evidence(finding.evidence[:MOST_EVIDENCE], start, room)]
    parts += [_show_filter(finding)]
    parts += (
        [Text("what to do", style="bold"), _show_remedies(finding.remedies[:MOST_REMEDIES], room)]
        if finding.remedies
        else []
    )
    parts += [_show_commands(finding, analysis)]
    yield from (Padding(part, (0, 0, 0, _INDENT)) for part in parts)


def _show_cost(finding: Finding, read: bool) -> Text:
    """Say what a finding costs, with its confidence and scope; `read` says whether the RPCs could be read."""
    cost = f"{describe_cost(finding, read=read)}; confidence {finding.confidence}"
    if finding.scope.connections:
        cost += f"; {_list_names('connection', list(map(str, finding.scope.connections)))}"
    if finding.scope.methods:
        cost += f"; {_list_names('', [safe(method) for method in finding.scope.methods])}"
    return Text(cost, style="dim")


def _list_names(noun: str, names: Sequence[str]) -> str:
    return f"{noun}{'s' * (noun != '' and len(names) != 1)} {list_first(names, MOST_NAMES)}".strip()


def _show_evidence(evidence: Sequence[Evidence], start: int, width: int) -> RenderableType:
    shown = sorted(evidence, key=lambda item: (item.time_ns, item.packet))
    if width < NARROW - _INDENT:
        lines = [
            Text(f" #{item.packet}  {_format_time(item, start)}  {utc(item.time_ns, start)}  {safe(item.what)}")
            for item in shown
        ]
        return Group(*lines)
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for item in shown:
        table.add_row(f" #{item.packet}", _format_time(item, start), utc(item.time_ns, start), Text(safe(item.what)))
    return table


def _format_time(item: Evidence, start: int) -> str:
    return f"{(item.time_ns - start) / 1e9:.6f} s"


def _show_filter(finding: Finding) -> Text:
    """Show the Wireshark filter for all packets of a finding, or for those shown where there are many."""
    every = [item.packet for item in finding.evidence]
    packets = every if len(every) <= MOST_FILTERED else every[:MOST_EVIDENCE]
    return Text.assemble((" Wireshark  ", "dim"), packet_filter(packets))


def _show_remedies(remedies: Sequence[Remedy], width: int) -> RenderableType:
    shown = []
    for remedy in remedies:
        present = "" if remedy.present is None else f" (is {remedy.present} here)"
        shown.append((safe(remedy.implementation), safe(f"{remedy.knob}{present}: {remedy.note}")))
    if width < NARROW - _INDENT:
        return Group(*(Text.assemble(" ", (whose, "bold"), f"  {text}") for whose, text in shown))
    return pair((Text(f" {whose}", style="bold"), Text(text)) for whose, text in shown)


def _show_commands(finding: Finding, analysis: Analysis) -> RenderableType:
    """Show the commands that explain a finding, draw its packets on a timeline, and list the rest of it."""
    lines = [f"grpcdiag explain {finding.id}"]
    if len(finding.scope.connections) == 1:
        times = [item.time_ns - (analysis.capture.first_time_ns or 0) for item in finding.evidence[:MOST_EVIDENCE]]
        begin, end = max(min(times), 0) // 1_000_000, max(times) // 1_000_000 + 1  # rounded outwards
        span = f"--from {begin / 1e3:.3f} --to {end / 1e3:.3f}"
        lines.append(f"grpcdiag timeline FILE --connection {finding.scope.connections[0]} {span}")
    left = [
        count(number, noun, nouns)
        for number, noun, nouns in (
            (len(finding.evidence) - MOST_EVIDENCE, "more packet", "more packets"),
            (len(finding.remedies) - MOST_REMEDIES, "more remedy", "more remedies"),
        )
        if number > 0
    ]
    if left:
        lines.append(f"grpcdiag analyze --json has {' and '.join(left)}")
    return pair([(Text("more:", style="dim"), Group(*(Text(line, style="dim") for line in lines)))], gap=1)


def _show_in_lines(shown: Sequence[Finding], before: Sequence[str], width: int) -> RenderableType:
    """Show each finding in one line, with the severity from `before` in front."""
    rows = []
    for finding, severity in zip(shown, before, strict=True):
        cost = f" (part of {finding.part_of})" if finding.part_of else ""
        cost = cost if finding.lost_ns is None else f" ({duration(finding.lost_ns)} lost)"
        named = Text.assemble("  ", (f"{severity} " if severity else "", SEVERITY_STYLES.get(severity, "")), finding.id)
        rows.append((named, safe(finding.title) + cost))
    if width < NARROW:
        return Group(*(Text.assemble(name, f"  {text}") for name, text in rows))
    return pair((name, Text(text)) for name, text in rows)
