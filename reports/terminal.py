"""The report for a terminal: what happened, the proof, and what to do, in one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..analyzer.result import SEVERITIES, Analysis, ConnectionFacts, Finding, MethodFacts, RecordingFacts, Remedy
from . import ends, tls
from .text import count, duration, safe, size

CAUSE_STYLES = {
    "client": "cyan",
    "server": "blue",
    "network": "white",
    "network_up": "white",
    "network_down": "white",
    "transmission": "green",
    "congestion_window": "red",
    "receive_window": "magenta",
    "stream_window": "yellow",
    "connection_window": "bright_yellow",
    "loss_recovery": "bright_red",
    "delayed_ack": "bright_magenta",
    "head_of_line": "bright_cyan",
    "capture_gap": "bright_black",
    "unexplained": "bright_black",
}
"""Colours of causes in bars; the words beside them carry the meaning."""

SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
"""Colours of severities."""

MOST_METHODS = 20
"""Methods shown; the rest are counted."""
MOST_CONNECTIONS = 20
"""Connections shown; the rest are counted."""


MOST_EVIDENCE = 4
"""Packets shown for a finding; the rest are in the JSON report."""
MOST_REMEDIES = 2
"""Remedies shown for a finding; the rest are in the JSON report."""
MOST_NAMES = 8
"""Connections or methods named for a finding; the rest are counted."""


def render(analysis: Analysis, *, width: int = 100, colour: bool = False) -> str:
    """The report as text, with escape sequences only when `colour` is set."""
    parts = _parts(analysis)
    if analysis.apart:
        parts = [*ends.apart(analysis.apart), Text(), *parts]
        for other in analysis.apart.others:
            parts += [Text(), Rule(style="dim"), Text(), *_parts(other)]
    return draw(parts, width=max(60, width), colour=colour)


def one(analysis: Analysis, finding: Finding, *, width: int = 100) -> str:
    """One finding as the report shows it when it is no remark, numbered as the first."""
    return draw([_finding(1, finding, analysis)], width=width, colour=False)


def draw(parts: Iterable[RenderableType], *, width: int, colour: bool, wrap: bool = True) -> str:
    """Parts one below the other as text, with escape sequences only when `colour` is set."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=not wrap,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(analysis: Analysis) -> list[RenderableType]:
    parts: list[RenderableType] = [_capture_line(analysis), _quality_line(analysis)]
    parts += [_recording_line(analysis.recording)] if analysis.recording else []
    budget = analysis.ends.budget if analysis.ends else analysis.budget
    parts += [Text(), _verdict(analysis)]
    parts += [Text(), _budget(budget)] if analysis.totals.rpcs else tls.parts(analysis)
    if analysis.ends:
        parts += [Text(), *ends.parts(analysis.ends)]
    costly = [finding for finding in analysis.findings if finding.severity != "info"]
    for number, finding in enumerate(sorted(costly, key=_rank), start=1):
        parts += [Text(), _finding(number, finding, analysis)]
    if len(costly) < len(analysis.findings):
        parts += [Text(), _remarks([finding for finding in analysis.findings if finding.severity == "info"])]
    parts += [Text(), _methods(analysis)] if analysis.totals.rpcs else []
    parts += [Text(), _connections(analysis)]
    parts += tls.parts(analysis) if analysis.totals.rpcs else []
    parts += [Text(f"\nnot judged: {line}", style="dim") for line in _not_judged(analysis)]
    for warning in analysis.quality.warnings:
        parts.append(Text(f"\nnote: {safe(warning)}", style="dim"))
    return parts


def _capture_line(analysis: Analysis) -> Text:
    capture, totals = analysis.capture, analysis.totals
    first, last = capture.first_time_ns, capture.last_time_ns
    span = duration(last - first) if first is not None and last is not None else "-"
    names = safe(analysis.files[0]) + (f" and {len(analysis.files) - 1} more" if len(analysis.files) > 1 else "")
    line = Text(names, style="bold")
    line.append(
        f"  {count(capture.packets, 'packet')}, {size(capture.bytes)} in {span}, {'/'.join(capture.link_types)}; "
        f"{count(totals.connections, 'connection')}, {count(totals.rpcs, 'RPC')}, {count(totals.messages, 'message')}",
        style="not bold",
    )
    return line


def _quality_line(analysis: Analysis) -> Text:
    quality, capture = analysis.quality, analysis.capture
    flaws = [
        (capture.dropped_packets or 0, "packets dropped while capturing"),
        (quality.truncated_packets, "packets cut"),
        (quality.missing_bytes, "bytes missing"),
        (quality.undecoded_bytes, "bytes not decoded"),
    ]
    said = [f"{n:,} {what}" for n, what in flaws if n]
    vantages = sorted({connection.vantage for connection in analysis.connections})
    line = Text("quality ", style="dim")
    line.append("nothing missing" if not said else ", ".join(said), style="yellow" if said else "green")
    line.append(f"; captured at: {', '.join(vantages)}", style="dim")
    if quality.warnings:
        line.append(f"; {count(len(quality.warnings), 'note')} below", style="dim")
    return line


def _recording_line(recording: RecordingFacts) -> Text:
    line = Text("beside ", style="dim")
    line.append(safe(f"settings of {recording.host}, {recording.kernel.split(' #')[0]} ({recording.file})"))
    waits = recording.waits_measured
    line.append(f"; its kernel told the congestion window in {count(waits, 'wait')}" if waits else "")
    return line


def _verdict(analysis: Analysis) -> Panel:
    finding = next((f for f in analysis.findings if f.id == analysis.verdict.finding), None)
    style = SEVERITY_STYLES[finding.severity] if finding else "green"
    return Panel(Text(safe(analysis.verdict.text)), title="verdict", title_align="left", border_style=style)


def _budget(budget: Mapping[str, int]) -> RenderableType:
    total = sum(budget.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for cause, ns in sorted(budget.items(), key=lambda item: -item[1]):
        share = ns / total
        bar = "█" * max(round(share * 40), 0) or "▏"
        table.add_row(f"  {cause}", duration(ns), f"{share:.1%}", Text(bar, style=CAUSE_STYLES.get(cause, "")))
    return Group(Text(f"where {duration(total)} of RPC time went", style="bold"), table)


def _rank(finding: Finding) -> tuple[int, int, bool]:
    """The costliest first; those without a time by severity, and what is a part of another one after it."""
    return -(finding.lost_ns or 0), -SEVERITIES.index(finding.severity), finding.part_of is not None


def _finding(number: int, finding: Finding, analysis: Analysis) -> RenderableType:
    head = Text(finding.severity, style=SEVERITY_STYLES[finding.severity])
    head.append(f" {finding.id}", style="bold")
    head.append(f"  {safe(finding.title)}", style="not bold")
    body = Group(
        head,
        _cost(finding),
        Text(safe(finding.explanation)),
        Text("packets that show it", style="bold"),
        _evidence(finding, analysis.capture.first_time_ns or 0),
        *((Text("what to do", style="bold"), _knobs(finding)) if finding.remedies else ()),
        Text(_more_of(finding, analysis), style="dim"),
    )
    numbered = Table.grid(padding=(0, 1, 0, 0))
    numbered.add_column(no_wrap=True)
    numbered.add_row(Text(f"{number}.", style="bold"), body)
    return numbered


def _cost(finding: Finding) -> Text:
    """What it costs, how sure that is, and whom it concerns."""
    if finding.lost_ns is not None and finding.share is not None:
        cost = f"lost {duration(finding.lost_ns)}, {finding.share:.1%} of RPC time"
    elif finding.part_of:
        cost = f"part of {finding.part_of}"
    else:
        cost = "costs packets or risk, not time"
    cost += f"; confidence {finding.confidence}; {_listed('connection', list(map(str, finding.scope.connections)))}"
    if finding.scope.methods:
        cost += f"; {_listed('', [safe(method) for method in finding.scope.methods])}"
    return Text(cost, style="dim")


def _listed(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{noun}{'s' * (noun != '' and len(names) != 1)} {shown}{more}".strip()


def _evidence(finding: Finding, start: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for item in finding.evidence[:MOST_EVIDENCE]:
        table.add_row(f" #{item.packet}", f"{(item.time_ns - start) / 1e9:.6f} s", safe(item.what))
    return table


def _knobs(finding: Finding) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for remedy in finding.remedies[:MOST_REMEDIES]:
        table.add_row(
            Text(safe(remedy.implementation), style="bold"),
            Text(safe(f"{remedy.knob}{_present(remedy)}: {remedy.note}")),
        )
    return table


def _present(remedy: Remedy) -> str:
    """The setting's value on the host that recorded."""
    return "" if remedy.present is None else f" (is {remedy.present} here)"


def _more_of(finding: Finding, analysis: Analysis) -> str:
    """Where the rest of a finding is: its page, its packets in their place, and what is not shown here."""
    lines = [f"more: grpcdiag explain {finding.id}"]
    if len(finding.scope.connections) == 1:
        times = [item.time_ns - (analysis.capture.first_time_ns or 0) for item in finding.evidence[:MOST_EVIDENCE]]
        begin, end = min(times) // 1_000_000, max(times) // 1_000_000 + 1  # rounded outwards
        span = f"--from {begin / 1e3:.3f} --to {end / 1e3:.3f}"
        lines.append(f"      grpcdiag timeline FILE --connection {finding.scope.connections[0]} {span}")
    left = [
        count(number, noun, nouns)
        for number, noun, nouns in (
            (len(finding.evidence) - MOST_EVIDENCE, "more packet", "more packets"),
            (len(finding.remedies) - MOST_REMEDIES, "more remedy", "more remedies"),
        )
        if number > 0
    ]
    return "\n".join([*lines, *([f"      grpcdiag analyze --json has {' and '.join(left)}"] if left else [])])


def _remarks(findings: Sequence[Finding]) -> RenderableType:
    """What is worth knowing and costs next to nothing: a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        cost = f" (part of {finding.part_of})" if finding.part_of else ""
        cost = cost if finding.lost_ns is None else f" ({duration(finding.lost_ns)} lost)"
        table.add_row(f"  {finding.id}", safe(finding.title) + cost)
    return Group(Text("also seen", style=f"bold {SEVERITY_STYLES['info']}"), table)


def _not_judged(analysis: Analysis) -> list[str]:
    """Findings that could not be told, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for skipped in analysis.skipped:
        ids = reasons.setdefault(skipped.reason, [])
        if skipped.id not in ids:
            ids.append(skipped.id)
    return [f"{', '.join(ids)}: {safe(reason)}" for reason, ids in reasons.items()]


def _methods(analysis: Analysis) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("method", overflow="fold")
    table.add_column("RPCs", justify="right")
    table.add_column("statuses")
    for name in ("p50", "p90", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for method in analysis.methods[:MOST_METHODS]:
        table.add_row(*_method_row(method))
    streams = [_stream(m) for m in analysis.methods[:MOST_METHODS] if m.messages > 2 * m.rpcs and m.messages_per_s]
    return Group(table, *streams, *_more(len(analysis.methods) - MOST_METHODS, "method"))


def _name(method: MethodFacts) -> str:
    return method.method or method.label or "(not in the capture)"


def _stream(method: MethodFacts) -> Text:
    """What long RPCs do: their own duration says little."""
    said = f"{safe(_name(method))}: {method.messages:,} messages, "
    said += f"{method.messages_per_s or 0:,.0f} a second, both directions"
    if method.turnaround_ns:
        said += (
            f"; answered after {duration(method.turnaround_ns.p50)} (p50), {duration(method.turnaround_ns.p99)} (p99)"
        )
    return Text(said, style="dim")


def _method_row(method: MethodFacts) -> list[str]:
    q = method.latency_ns
    statuses = ", ".join(f"{name} {n:,}" if len(method.statuses) > 1 else name for name, n in method.statuses.items())
    latencies = [duration(v) for v in (q.p50, q.p90, q.p99, q.max)] if q else ["-"] * 4
    return [safe(_name(method)), f"{method.rpcs:,}", statuses, *latencies]


def _connections(analysis: Analysis) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right")
    table.add_column("client -> server", overflow="fold")
    table.add_column("RPCs", justify="right")
    table.add_column("at once", justify="right")
    table.add_column("min RTT", justify="right", no_wrap=True)
    table.add_column("packets", justify="right", no_wrap=True)
    table.add_column("runs", overflow="fold")
    for connection in analysis.connections[:MOST_CONNECTIONS]:
        table.add_row(*_connection_row(connection))
    return Group(table, *_more(len(analysis.connections) - MOST_CONNECTIONS, "connection"))


def _connection_row(c: ConnectionFacts) -> list[str]:
    packets = f"{c.packets_client + c.packets_server:,}"
    if c.retransmitted_packets:
        packets += f" ({c.retransmitted_packets:,} again)"
    ends = f"{c.client} -> {c.server}" + (" TLS" if c.tls else "") + ("" if c.complete else " (begun before)")
    runs = f"{_runs(c.client_implementation, c.client_implementation_inferred)} -> "
    runs += _runs(c.server_implementation, c.server_implementation_inferred)
    return [
        str(c.connection),
        ends,
        f"{c.rpcs:,}",
        f"{c.max_concurrent_rpcs:,}",
        duration(c.min_rtt_ns),
        packets,
        runs,
    ]


def _runs(implementation: str | None, inferred: bool) -> str:
    return safe(implementation) + (" (inferred)" if inferred else "") if implementation else "?"


def _more(number: int, noun: str) -> list[Text]:
    return [Text(f"... and {count(number, 'more ' + noun)}", style="dim")] if number > 0 else []
