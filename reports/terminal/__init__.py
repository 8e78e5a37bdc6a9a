"""The report of `analyze` for a terminal: what happened, the packets that show it, and what to do."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis, Narrowed
from ...analyzer.model.finding import Finding
from ...analyzer.model.recorded import HostClock, ProcessFacts, RecordingFacts
from ...analyzer.model.text import count, duration, list_first, safe, size, utc
from ..shared import client, hops, two_captures
from ..shared.causes import describe_setup, explain_causes
from ..shared.drawing import CAUSE_STYLES, CAUTION, GOOD, LEAST_WIDTH, NARROW, SEVERITY_STYLES, draw
from ..shared.quality import format_span, judge_verdict, list_flaws, list_not_judged, list_vantages
from ..shared.sentences import MOST_PATHS, THREADS, describe_content, describe_processes, describe_selection
from . import overviews, tls
from .findings import list_findings, list_grave_findings, list_other_findings, show_finding, show_proof

__all__ = ["CAUSE_STYLES", "LEAST_WIDTH", "SEVERITY_STYLES", "draw", "render", "render_finding", "render_screen"]

_BAR = 12
"""Columns of the longest bar beside the meanings of causes."""
_NARROW_BAR = 40
"""Columns of the longest bar without meanings, as a percentage of the report's width."""
_LEAST_BAR = 6
"""Columns of the longest bar below which no bars are drawn: shorter ones cannot be compared."""
_FIGURES = 25
"""Columns that a cause's duration, its share and the space between them take."""
SCREEN = 40
"""Lines of a report without details: a screen."""
_SMALL_CAUSE = 0.01
"""Share of RPC time below which a report without details leaves a cause out."""
_LAYOUTS = ((3, 3, 3), (2, 3, 3), (2, 2, 2), (1, 2, 2), (1, 1, 1), (1, 3, 0), (1, 1, 0), (1, 0, 0), (0, 1, 1))
"""Reports without details, the fullest first: findings with their proof, others in a line each, rows of tables."""


def render(analysis: Analysis, *, width: int = 100, colour: bool = False, top: int | None = None) -> str:
    """Render the report as text, with escape sequences only when `colour` is set.

    `top` limits the findings, methods and connections that are shown.
    """
    width = max(LEAST_WIDTH, width)
    parts = _list_parts(analysis, width, top)
    if analysis.apart:
        parts = [*two_captures.apart(analysis.apart), Text(), *parts]
        for other in analysis.apart.analyses:
            parts += [Text(), Rule(style="dim"), Text(), *_list_parts(other, width, top)]
    return draw(parts, width=width, colour=colour)


def render_screen(analysis: Analysis, *, width: int = 100, colour: bool = False) -> str:
    """Render what fits one screen: verdict, time by cause, and for the worst findings the proof and one remedy."""
    width = max(LEAST_WIDTH, width)

    @functools.cache  # layouts share parts, and drawing takes longer than an analysis
    def show(list_parts: Callable[..., Iterable[RenderableType]], *numbers: int) -> str:
        parts = list(list_parts(analysis, width, *numbers))
        return draw(parts, width=width, colour=colour) if parts else ""

    grave = len(list_grave_findings(analysis))
    for most, others, rows in _LAYOUTS:
        proved = min(most, grave)
        text = show(_begin_brief) + "".join(show(show_proof, number + 1) for number in range(proved))
        text += show(list_other_findings, proved, min(others, len(analysis.findings) - proved))
        if text.count("\n") <= SCREEN or (most, others, rows) == _LAYOUTS[-1]:
            text += show(_end_brief, rows)
            if text.count("\n") <= SCREEN:
                break
    return text


def _begin_brief(analysis: Analysis, width: int) -> list[RenderableType]:
    """List the parts above the findings of a report without details."""
    parts = _begin(analysis)
    if analysis.totals.rpcs:
        budget = (analysis.ends or analysis).budget
        least = _SMALL_CAUSE * sum(budget.values())
        large = {cause: ns for cause, ns in budget.items() if ns >= least}
        parts += [Text(), _show_budget(large, explain_causes(analysis.ends), width, sum(budget.values()))]
        parts += _show_setup(analysis)
    else:
        parts += tls.parts(analysis, most=1, ways=False)
    parts += _list_measured(analysis, width)
    return parts


def _end_brief(analysis: Analysis, width: int, rows: int) -> list[RenderableType]:
    """List the parts below the findings of a report without details, with so many methods, connections and notes."""
    parts: list[RenderableType] = []
    if rows:
        parts += [Text(), *overviews.methods(analysis.methods, width, rows)] if analysis.totals.rpcs else []
        parts += [] if analysis.totals.rpcs else overviews.show_other_requests(analysis, rows)
        ends = overviews.connections(analysis.connections, LEAST_WIDTH, rows, hops.find_behind(analysis))
        parts += [Text(), *ends]
        warnings = [Text(f"note: {safe(warning)}", style="dim") for warning in analysis.quality.warnings[:rows]]
        parts += [Text(), *warnings] if warnings else []
    notes = max(len(analysis.quality.warnings) - rows, 0) + len(list(list_not_judged(analysis)))
    more = [
        *(["packets and remedies"] if analysis.findings else []),
        *(["methods"] if analysis.totals.rpcs and not rows else []),
        *([] if rows else ["connections"]),
        *([count(notes, "note")] if notes else []),
        *_name_sections(analysis),
    ]
    return [*parts, Text(), Text(f"more ({', '.join(more)}): add --details", style="dim")] if more else parts


def _name_sections(analysis: Analysis) -> Iterator[str]:
    """Name the sections that only the whole report has."""
    if analysis.hops:
        yield "proxies"
    if analysis.other_requests:
        yield "other requests"
    if analysis.tls and not analysis.totals.rpcs:
        yield "how to get the secrets"


def render_finding(analysis: Analysis, finding: Finding, *, width: int = 100) -> str:
    """Render one finding in full, with number 1."""
    return draw(show_finding(1, finding, analysis, width), width=width, colour=False)


def _list_parts(analysis: Analysis, width: int, top: int | None) -> list[RenderableType]:
    parts = _begin(analysis)
    budget = (analysis.ends or analysis).budget
    # a capture without readable RPCs is reported only when it has TLS connections without secrets
    parts += (
        [Text(), _show_budget(budget, explain_causes(analysis.ends), width), *_show_setup(analysis)]
        if analysis.totals.rpcs
        else tls.parts(analysis)
    )
    parts += _list_measured(analysis, width)
    for hop in analysis.hops:
        lines = [Text(safe(line)) for line in hops.list_lines(analysis, hop)]
        parts += [Text(), Text(hops.name_hop(hop), style="bold"), Padding(Group(*lines), (0, 0, 0, 2))]
    parts += list_findings(analysis, width, top)
    most = top or overviews.MOST
    parts += [Text(), *overviews.methods(analysis.methods, width, most)] if analysis.totals.rpcs else []
    parts += overviews.show_other_requests(analysis, top or MOST_PATHS)
    parts += [Text(), *overviews.connections(analysis.connections, width, most, hops.find_behind(analysis))]
    parts += tls.parts(analysis) if analysis.totals.rpcs else []
    notes = [f"not judged: {', '.join(ids)}: {safe(reason)}" for ids, reason in list_not_judged(analysis)]
    notes += [f"note: {safe(warning)}" for warning in analysis.quality.warnings]
    return parts + ([Text(), *(Text(note, style="dim") for note in notes)] if notes else [])


def _list_measured(analysis: Analysis, width: int) -> Iterator[RenderableType]:
    """List what is known beside the capture's packets: of threads, of the client, and of the other end."""
    if analysis.processes:
        yield from (Text(), *_show_processes(analysis.processes, analysis.recording))
    if analysis.client:
        yield from (Text(), *client.parts(analysis.client, width))
    if analysis.ends:
        yield from (Text(), *two_captures.parts(analysis.ends, width))


def _begin(analysis: Analysis) -> list[RenderableType]:
    parts: list[RenderableType] = [_show_capture(analysis), _show_quality(analysis)]
    parts += [_show_sidecar(analysis.recording)] if analysis.recording else []
    parts += [_show_selection(analysis.narrowed)] if analysis.narrowed else []
    return [*parts, Text(), _show_verdict(analysis)]


def _show_capture(analysis: Analysis) -> Text:
    capture = analysis.capture
    line = Text(safe(list_first(analysis.files, 1)), style="bold")
    line.append(
        f"  {count(capture.packets, 'packet')}, {size(capture.bytes)} in {format_span(analysis)}, "
        f"{'/'.join(capture.link_types)}; {describe_content(analysis)}",
        style="not bold",
    )
    return line


def _show_quality(analysis: Analysis) -> Text:
    found = list_flaws(analysis)
    begin = analysis.capture.first_time_ns
    line = Text("" if begin is None else f"from {utc(begin)} UTC; ", style="dim")
    line.append("quality: ", style="dim")
    line.append(", ".join(found) or "nothing missing", style=CAUTION if found else GOOD)
    line.append(f"; capture point: {list_vantages(analysis)}", style="dim")
    if analysis.quality.warnings:
        line.append(f"; {count(len(analysis.quality.warnings), 'note')}", style="dim")
    if len(analysis.files) > 1 and not analysis.ends:
        line.append("; packet numbers continue from file to file, as after mergecap", style="dim")
    return line


def _show_sidecar(recording: RecordingFacts) -> Text:
    line = Text("sidecar: ", style="dim")
    line.append(safe(f"settings of {recording.host}, {recording.kernel.split(' #')[0]} ({recording.file})"))
    waits = recording.waits_measured
    measured = f"; its kernel reported the congestion window for {count(waits, 'blocked interval')}"
    line.append(measured if waits else "")
    line.append(_describe_clock(recording.clock) if recording.clock else "")
    return line


def _describe_clock(clock: HostClock) -> str:
    by = "chrony" if clock.source == "chrony" else "its kernel"
    if clock.max_error_ns is None:
        return f"; its clock was not synchronised ({by})"
    return f"; its clock was synchronised, wrong by at most {duration(clock.max_error_ns)} ({by})"


def _show_processes(processes: Sequence[ProcessFacts], recording: RecordingFacts | None) -> Iterator[RenderableType]:
    yield Text(f"threads: {THREADS}", style="bold")
    if recording and recording.record_cost_ns:
        yield Text(f"  recording them took {duration(recording.record_cost_ns)} of processor time")
    for line in describe_processes(processes):
        yield Padding(Text(safe(line)), (0, 0, 0, 2))


def _show_selection(narrowed: Narrowed) -> Text:
    line = Text("selected: ", style="bold yellow")
    line.append(safe(describe_selection(narrowed)), style="not bold default")
    line.append("; packets, bytes and notes are of the whole capture", style="not bold dim default")
    return line


def _show_verdict(analysis: Analysis) -> Panel:
    severity = judge_verdict(analysis)
    style = SEVERITY_STYLES[severity] if severity else GOOD
    text = Text(safe(analysis.verdict.text))
    return Panel(text, box=box.ROUNDED, title="verdict", title_align="left", border_style=style)


def _show_setup(analysis: Analysis) -> list[RenderableType]:
    setup = describe_setup(analysis)
    return [Text(f"  {setup}", style="dim")] if setup else []


def _show_budget(
    budget: Mapping[str, int], meanings: Mapping[str, str], width: int, whole: int | None = None
) -> RenderableType:
    """Show causes with their shares of `whole`, by default their sum."""
    total = whole or sum(budget.values())
    with_meanings = width >= NARROW
    longest = _BAR if with_meanings else _NARROW_BAR * width // 100
    room = min(longest, width - max(map(len, budget), default=0) - _FIGURES)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    if with_meanings:
        table.add_column(style="dim")
    for cause, ns in sorted(budget.items(), key=lambda item: -item[1]):
        share = ns / total
        bar = "" if room < _LEAST_BAR else "█" * round(share * room) or "▏"
        row = (f"  {cause}", duration(ns), f"{share:.1%}", Text(bar, style=CAUSE_STYLES.get(cause, "")))
        table.add_row(*row, *([Text(meanings.get(cause, ""))] if with_meanings else []))
    return Group(Text(f"time by cause: {duration(total)} of RPC time", style="bold"), table)
