"""Show the report of a fleet on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.text import count, duration, safe, size
from ...reports.shared.causes import MEANINGS
from ...reports.terminal import CAUSE_STYLES, SEVERITY_STYLES, draw
from ..dataset.sums import SLOT_NS
from .against import Against, noted
from .changes import Change
from .edges import Edge, ServiceMap
from .losses import Case, Cause, Loser
from .report import Report, Slot
from .text import (
    count_hosts,
    describe_total,
    faster,
    format_change,
    format_signed,
    margin,
    moment,
    mostly,
    notes_of_map,
    rate,
    shorten,
    total,
)

_BAR = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_CAUSES = 8
MOST_CHANGES = 10
_NAME = 48
"""Most characters of a name; the JSON has full names."""

TITLES = {"services": "service", "methods": "method", "pairs": "client -> server", "implementations": "client"}
"""Headings of the tables."""


def render(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Render the report; escape sequences are used only if `colour` is set."""
    # commands stay on one line so that users can copy them
    return "".join(
        draw([part], width=max(60, width), colour=colour, wrap=not (isinstance(part, Text) and part.no_wrap))
        for part in _list_parts(report, max(60, width))
    )


def _list_parts(report: Report, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [*_show_head(report), Text(), *_show_answers(report), *_show_budget(report)]
    if report.service_map.edges:
        parts += [Text(), *_show_map(report.service_map, width)]
    for name, title in TITLES.items():
        losers: Sequence[Loser] = getattr(report, name)
        if losers:
            parts += [Text(), _show_losers(title, losers, report, width)]
    if len(report.slots) > 1:
        parts += [Text(), *_show_slots(report.slots)]
    grave = [cause for cause in report.causes if cause.severity != "info"]
    if grave:
        parts += [Text(), Text("findings by cause", style="bold")]
    for number, cause in enumerate(grave[:_MOST_CAUSES], start=1):
        parts += [Text(), *_show_cause(number, cause, report)]
    if less := [*grave[_MOST_CAUSES:], *(cause for cause in report.causes if cause.severity == "info")]:
        names = ", ".join(f"{cause.id} ({cause.findings:,})" for cause in less)
        parts += [Text(), Text(f"also seen: {names}", style="dim")]
    if report.ways:
        parts += [Text(), _show_delays(report)]
    return parts


def render_against(changes: Against, *, width: int = 100, colour: bool = False) -> str:
    """Render what changed since another dataset."""
    width = max(60, width)
    parts: list[RenderableType] = [
        Text(f"{safe(changes.dataset)} compared with {safe(changes.against)}", style="bold"),
        Text(describe_total(changes.every)),
    ]
    tables = list_noted(changes)
    for name, rows in tables.items():
        parts += [Text(), _show_changes(TITLES[name], rows[:MOST_CHANGES], width)]
        if len(rows) > MOST_CHANGES:
            parts.append(Text(f"{len(rows) - MOST_CHANGES:,} more: --json lists all", style="dim"))
    if not tables:
        parts.append(Text(UNCHANGED))
    table = _make_table("finding", "before", "now", "lost before", "lost now")
    for change in changes.findings:
        table.add_row(
            Text(change.id),
            f"{change.findings_before:,}",
            f"{change.findings:,}",
            _format_lost(change.lost_before_ns),
            _format_lost(change.lost_ns),
        )
    if changes.findings:
        parts += [Text(), table]
    return draw(parts, width=width, colour=colour)


def _show_head(report: Report) -> Iterator[RenderableType]:
    recorded = f"{count(report.recordings, 'recording')} of {count(report.hosts, 'host')}, {size(report.bytes)}"
    times = ""
    if report.first_time_ns is not None and report.last_time_ns is not None:
        times = f", {_format_time(report.first_time_ns)} to {_format_time(report.last_time_ns)} UTC"
    failed = f", {report.failed_rpcs:,} failed" if report.failed_rpcs else ""
    yield Text.assemble((safe(report.dataset), "bold"), f"  {recorded}{times}; {count(report.rpcs, 'RPC')}{failed}")
    if report.left_out or report.without_grpc:
        notes = [
            count(report.left_out, "file") + " could not be read" if report.left_out else "",
            count(report.without_grpc, "recording") + " without gRPC" if report.without_grpc else "",
        ]
        yield Text("; ".join(note for note in notes if note), style="dim")


def _show_answers(report: Report) -> Iterator[RenderableType]:
    """Show the questions with their answers; failures first."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    found = report.answers
    if found.fails:
        table.add_row("what fails", Text(safe(found.fails)))
    if found.slower:
        table.add_row("slower than a day before", Text(safe(found.slower)))
    for question, answer in (("what is slow", found.who), ("why", found.why), ("since when", found.since)):
        table.add_row(question, Text(safe(answer or TOO_SHORT)))
    yield table


TOO_SHORT = "Unknown: the RPCs cover fewer than two intervals of five minutes."


def _show_budget(report: Report) -> Iterator[RenderableType]:
    if not report.rpcs:
        return
    yield Text()
    yield Text(f"time by cause: {total(report.duration_ns)} of RPC time", style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    table.add_column(style="dim")
    for cause, ns in sorted(report.budget.items(), key=lambda item: -item[1]):
        share = ns / max(report.duration_ns, 1)
        bar = Text("█" * round(share * _BAR) or "▏", style=CAUSE_STYLES.get(cause, ""))
        table.add_row(Text(cause), total(ns), f"{share:.1%}", bar, Text(MEANINGS.get(cause, "")))
    yield table


def _make_table(*columns: str) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    return table


_LEFT_OUT = ((110, "failed"), (110, "p50"), (85, "p99"), (75, "blocked"), (65, "RPCs"))
"""Columns to omit on terminals narrower than the given width."""
_NARROW = 16
"""Least width of names."""


def _show_map(found: ServiceMap, width: int) -> Iterator[RenderableType]:
    """Show who calls whom; edges behind a proxy are indented."""
    names = ["RPCs/s", "failed", "p50", "p99", "blocked", "main cause"]
    table, names = _make_figures("who calls whom", names, found.edges, width)
    for edge in found.edges:
        name = Text(("└ " if edge.proxy else "") + _shorten(f"{edge.client} -> {edge.server}"))
        details = ", ".join(filter(None, (edge.service, count_hosts(edge))))
        name.append(f"\n  {_shorten(details)}", style="dim")
        cells = {**_format_figures(edge), "RPCs/s": rate(edge.rpcs_per_s)}
        table.add_row(name, *(cells[column] for column in names))
    yield table
    for note in notes_of_map(found):
        yield Text(safe(note), style="dim")


def _show_losers(title: str, losers: Sequence[Loser], report: Report, width: int) -> Table:
    names = ["RPCs", "failed", "time", "p50", "p99", "blocked", "main cause"]
    table, names = _make_figures(title, names, losers, width)
    for loser in losers:
        cause, _ = mostly(loser.budget)
        name = Text(_shorten(loser.name))
        for line in _list_details(loser, cause, report):
            name.append(f"\n  {line}", style="dim")
        cells = _format_figures(loser)
        table.add_row(name, *(cells[column] for column in names))
    return table


def _make_figures(
    title: str, names: Sequence[str], rows: Sequence[Loser | Edge], width: int
) -> tuple[Table, list[str]]:
    """Make a table with the columns that fit into the width; return it, and their names."""
    without = {name for least, name in _LEFT_OUT if width < least}
    if not any(row.failed_rpcs for row in rows):
        without.add("failed")
    names = [name for name in names if name not in without]
    table = _make_table(title, *names)
    table.columns[0].min_width, table.columns[-1].justify = _NARROW, "left"
    return table, names


def _format_figures(row: Loser | Edge) -> dict[str, RenderableType]:
    (cause, share), blocked = mostly(row.budget), row.lost_ns / max(row.duration_ns, 1)
    return {
        "RPCs": f"{row.rpcs:,}",
        "failed": f"{row.failed_rpcs:,}",
        "time": total(row.duration_ns),
        "p50": duration(row.p50_ns),
        "p99": duration(row.p99_ns),
        "blocked": "" if not row.lost_ns else "<1%" if blocked < 0.005 else f"{blocked:.0%}",
        "main cause": Text(f"{share:.0%} {cause}", style=CAUSE_STYLES.get(cause, "")),
    }


def _list_details(loser: Loser, cause: str, report: Report) -> Iterator[str]:
    """Say what blocked it, unless that is the main cause, and when its time per RPC changed."""
    if loser.cause and loser.cause != cause:
        yield f"blocked by {loser.cause}"
    if loser.since:
        why = f" ({loser.since.cause})" if loser.since.cause != cause else ""
        times = (report.first_time_ns, report.last_time_ns)
        yield f"since {moment(loser.since.time_ns, times)} ({margin(loser.since, times)}) {faster(loser.since)}{why}"


def _show_slots(slots: Sequence[Slot]) -> Iterator[RenderableType]:
    """Draw the time per RPC over time as blocks."""
    yield Text("mean time per RPC, and its blocked part", style="bold")
    means = [slot.duration_ns / max(slot.rpcs, 1) for slot in slots]
    lost = [slot.lost_ns / max(slot.rpcs, 1) for slot in slots]
    most = max(means)
    times = [slot.time_ns for slot in slots]
    for name, values in (("all", means), ("blocked", lost)):
        yield Text(
            f"  {name:<8}{_draw_blocks(times, values, most)}  {duration(min(values))} to {duration(max(values))}"
        )
    yield Text(f"  {'':<8}{_format_time(slots[0].time_ns)} to {_format_time(slots[-1].time_ns)} UTC", style="dim")


def _draw_blocks(times: Sequence[int], values: Sequence[float], most: float, columns: int = 60) -> str:
    """Draw at most `columns` blocks, each with the largest of its values; a blank where no RPC began."""
    step = -(-((times[-1] - times[0]) // SLOT_NS + 1) // columns) * SLOT_NS
    tops = [-1.0] * ((times[-1] - times[0]) // step + 1)
    for time, value in zip(times, values, strict=True):
        place = (time - times[0]) // step
        tops[place] = max(tops[place], value)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(int(top / max(most, 1) * len(_BLOCKS)), last)] if top >= 0 else " " for top in tops)


def _show_cause(number: int, cause: Cause, report: Report) -> Iterator[RenderableType]:
    where = (
        f"{count(cause.findings, 'finding')} in {count(cause.recordings, 'recording')} of {count(cause.hosts, 'host')}"
    )
    lost = f", lost {total(cause.lost_ns)}" if cause.lost_ns else ""
    first, last = _format_time(cause.first_time_ns, report), _format_time(cause.last_time_ns, report)
    when = f", {first} to {last}" if first != last else f", at {first}"
    yield Text.assemble(
        f"{number}. ",
        (cause.severity, SEVERITY_STYLES[cause.severity]),
        " ",
        (cause.id, "bold"),
        f"  {where}{lost}{when}",
    )
    if cause.remedy:
        yield Text(f"   what to do  {safe(cause.remedy)}")
    cases = [("worst", cause.worst)]
    if cause.typical != cause.worst:
        cases.append(("typical", cause.typical))
    for name, case in cases:
        yield from _show_case(name, case)


def _show_case(name: str, case: Case) -> Iterator[RenderableType]:
    lost = f" (lost {duration(case.lost_ns)})" if case.lost_ns else ""
    yield Text(f"   {name:<8} {safe(case.host)}: {safe(case.title)}{lost}")
    for command in case.commands:
        yield Text(f"            {safe(command)}", style="dim", no_wrap=True, overflow="ignore")


def _show_delays(report: Report) -> Table:
    table = _make_table("one-way (if symmetric)", "RPCs", "to server p50", "to client p50", "clock error")
    for way in report.ways:
        name = _shorten(f"{way.client_host} -> {way.server_host}")
        clocks = f"±{duration(way.clock_uncertainty_ns)}"
        table.add_row(Text(name), f"{way.rpcs:,}", duration(way.up_p50_ns), duration(way.down_p50_ns), clocks)
    return table


UNCHANGED = "no mean time per RPC differs by more than 10 %"


def list_noted(changes: Against) -> dict[str, list[Change]]:
    """List the changes of each table that are large enough, without empty tables."""
    found = {name: [change for change in getattr(changes, name) if noted(change)] for name in TITLES}
    return {name: rows for name, rows in found.items() if rows}


_CHANGES_LEFT_OUT = ((120, "p99 before"), (120, "p99 now"), (85, "RPCs"), (75, "change"))
"""Columns to omit on terminals narrower than the given width."""


def _show_changes(title: str, changes: Sequence[Change], width: int) -> Table:
    names = ["RPCs", "before", "now", "change", "p99 before", "p99 now", "main cause"]
    names = [name for name in names if name not in {left for least, left in _CHANGES_LEFT_OUT if width < least}]
    table = _make_table(title, *names)
    table.columns[0].min_width, table.columns[-1].justify = _NARROW, "left"
    for change in changes:
        cells: dict[str, RenderableType] = {
            "RPCs": f"{change.rpcs:,}",
            "before": duration(change.before_ns),
            "now": duration(change.after_ns),
            "change": format_change(change),
            "p99 before": duration(change.p99_before_ns),
            "p99 now": duration(change.p99_ns),
            "main cause": Text(f"{change.cause} {format_signed(change.cause_ns)}" if change.cause_ns else ""),
        }
        table.add_row(Text(_shorten(change.name)), *(cells[name] for name in names))
    return table


def _shorten(name: str) -> str:
    return shorten(safe(name), _NAME)


def _format_lost(ns: int) -> str:
    return total(ns) if ns else "-"


def _format_time(time_ns: int, report: Report | None = None) -> str:
    """Format a time in UTC; without the date if the whole report is on one day."""
    return moment(time_ns, (report.first_time_ns, report.last_time_ns) if report else None)
