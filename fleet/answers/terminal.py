"""The report of a fleet for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.text import count, duration, safe, size
from ...reports.terminal import CAUSE_STYLES, SEVERITY_STYLES, draw
from .against import Against, noted
from .changes import Change
from .report import Case, Cause, Loser, Report, Slot
from .text import faster, moment, mostly, total

_BAR = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_CAUSES = 8
_MOST_CHANGES = 10
_NAME = 48
"""Characters of a name; the rest is in the JSON."""

TITLES = {"services": "service", "methods": "method", "pairs": "client -> server", "implementations": "client"}
"""Headings of the tables of who is slow."""


def render(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Who is slow, why, since when; escape sequences only when `colour` is set."""
    # commands are copied: they stay on one line
    return "".join(
        draw([part], width=max(60, width), colour=colour, wrap=not (isinstance(part, Text) and part.no_wrap))
        for part in _parts(report, max(60, width))
    )


def _parts(report: Report, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [*_head(report), Text(), *_answers(report), *_budget(report)]
    for name, title in TITLES.items():
        losers: Sequence[Loser] = getattr(report, name)
        if losers:
            parts += [Text(), _losers(title, losers, report, width)]
    if len(report.slots) > 1:
        parts += [Text(), *_slots(report.slots)]
    grave = [cause for cause in report.causes if cause.severity != "info"]
    if grave:
        parts += [Text(), Text("findings by cause", style="bold")]
    for number, cause in enumerate(grave[:_MOST_CAUSES], start=1):
        parts += [Text(), *_cause(number, cause, report)]
    if less := [*grave[_MOST_CAUSES:], *(cause for cause in report.causes if cause.severity == "info")]:
        names = ", ".join(f"{cause.id} ({cause.findings:,})" for cause in less)
        parts += [Text(), Text(f"also seen: {names}", style="dim")]
    if report.ways:
        parts += [Text(), _ways(report)]
    return parts


def render_against(changes: Against, *, width: int = 100, colour: bool = False) -> str:
    """What changed."""
    width = max(60, width)
    parts: list[RenderableType] = [
        Text(f"{safe(changes.dataset)} against {safe(changes.against)}", style="bold"),
        *_together(changes.every),
    ]
    headings = len(parts)
    for name, title in TITLES.items():
        rows = [change for change in getattr(changes, name) if noted(change)]
        if rows:
            parts += [Text(), _changes(title, rows[:_MOST_CHANGES], width)]
            if len(rows) > _MOST_CHANGES:
                parts.append(Text(f"{len(rows) - _MOST_CHANGES:,} more: --json has all", style="dim"))
    if len(parts) == headings:
        parts.append(Text("no mean time per RPC differs by more than 10 %"))
    table = _table("finding", "before", "now", "lost before", "lost now")
    for change in changes.findings:
        table.add_row(
            Text(change.id),
            f"{change.findings_before:,}",
            f"{change.findings:,}",
            _lost(change.lost_before_ns),
            _lost(change.lost_ns),
        )
    if changes.findings:
        parts += [Text(), table]
    return draw(parts, width=width, colour=colour)


def _head(report: Report) -> Iterator[RenderableType]:
    recorded = f"{count(report.recordings, 'recording')} of {count(report.hosts, 'host')}, {size(report.bytes)}"
    times = ""
    if report.first_time_ns is not None and report.last_time_ns is not None:
        times = f", {_moment(report.first_time_ns)} to {_moment(report.last_time_ns)} UTC"
    failed = f", {report.failed_rpcs:,} failed" if report.failed_rpcs else ""
    yield Text.assemble((safe(report.dataset), "bold"), f"  {recorded}{times}; {count(report.rpcs, 'RPC')}{failed}")
    if report.left_out or report.without_grpc:
        notes = [
            count(report.left_out, "file") + " could not be read" if report.left_out else "",
            count(report.without_grpc, "recording") + " without gRPC" if report.without_grpc else "",
        ]
        yield Text("; ".join(note for note in notes if note), style="dim")


def _answers(report: Report) -> Iterator[RenderableType]:
    """The three questions; a sentence goes on below itself."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    told = report.answers
    for question, answer in (("who is slow", told.who), ("why", told.why), ("since when", told.since)):
        table.add_row(question, Text(safe(answer or TOO_SHORT)))
    yield table


TOO_SHORT = "The RPCs are of less than two intervals of five minutes: too short to tell."


def _budget(report: Report) -> Iterator[RenderableType]:
    if not report.rpcs:
        return
    yield Text()
    yield Text(f"where {total(report.duration_ns)} of RPC time went", style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    for cause, ns in sorted(report.budget.items(), key=lambda item: -item[1]):
        share = ns / max(report.duration_ns, 1)
        bar = Text("█" * round(share * _BAR) or "▏", style=CAUSE_STYLES.get(cause, ""))
        table.add_row(Text(cause), total(ns), f"{share:.1%}", bar)
    yield table


def _table(*columns: str) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    return table


_LEFT_OUT = ((110, "failed"), (110, "p50"), (85, "p99"), (75, "waits"), (65, "RPCs"))
"""Columns that a terminal narrower than that has no place for."""
_NARROW = 16
"""Characters that names have at least."""


def _losers(title: str, losers: Sequence[Loser], report: Report, width: int) -> Table:
    names = ["RPCs", "failed", "time", "p50", "p99", "waits", "most of it"]
    without = {name for least, name in _LEFT_OUT if width < least}
    if not any(loser.failed_rpcs for loser in losers):
        without.add("failed")
    names = [name for name in names if name not in without]
    table = _table(title, *names)
    table.columns[0].min_width, table.columns[-1].justify = _NARROW, "left"
    for loser in losers:
        cause, share = mostly(loser.budget)
        name = Text(_short(loser.name))
        for more in _more(loser, cause, report):
            name.append(f"\n  {more}", style="dim")
        cells: dict[str, RenderableType] = {
            "RPCs": f"{loser.rpcs:,}",
            "failed": f"{loser.failed_rpcs:,}",
            "time": total(loser.duration_ns),
            "p50": duration(loser.p50_ns),
            "p99": duration(loser.p99_ns),
            "waits": _share(loser.lost_ns / max(loser.duration_ns, 1)) if loser.lost_ns else "",
            "most of it": Text(f"{share:.0%} {cause}", style=CAUSE_STYLES.get(cause, "")),
        }
        table.add_row(name, *(cells[column] for column in names))
    return table


def _more(loser: Loser, cause: str, report: Report) -> Iterator[str]:
    """What it waits for, where that is not most of its time already, and since when."""
    if loser.cause and loser.cause != cause:
        yield f"waits for {loser.cause}"
    if loser.since:
        why = f" ({loser.since.cause})" if loser.since.cause != cause else ""
        yield f"since {_moment(loser.since.time_ns, report)} {faster(loser.since)}{why}"


def _share(share: float) -> str:
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _slots(slots: Sequence[Slot]) -> Iterator[RenderableType]:
    """Time per RPC against time, as blocks."""
    yield Text("mean time per RPC, and what of it was waiting", style="bold")
    means = [slot.duration_ns / max(slot.rpcs, 1) for slot in slots]
    lost = [slot.lost_ns / max(slot.rpcs, 1) for slot in slots]
    most = max(means)
    for name, values in (("all", means), ("waiting", lost)):
        yield Text(f"  {name:<8}{_blocks(values, most)}  {duration(min(values))} to {duration(max(values))}")
    yield Text(f"  {'':<8}{_moment(slots[0].time_ns)} to {_moment(slots[-1].time_ns)} UTC", style="dim")


def _blocks(values: Sequence[float], most: float, columns: int = 60) -> str:
    """As many blocks as there is room for, of the largest value each."""
    step = -(-len(values) // columns)
    tops = [max(values[at : at + step]) for at in range(0, len(values), step)]
    return "".join(_BLOCKS[min(int(value / max(most, 1) * len(_BLOCKS)), len(_BLOCKS) - 1)] for value in tops)


def _cause(number: int, cause: Cause, report: Report) -> Iterator[RenderableType]:
    where = (
        f"{count(cause.findings, 'finding')} in {count(cause.recordings, 'recording')} of {count(cause.hosts, 'host')}"
    )
    lost = f", lost {total(cause.lost_ns)}" if cause.lost_ns else ""
    first, last = _moment(cause.first_time_ns, report), _moment(cause.last_time_ns, report)
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
        yield from _case(name, case)


def _case(name: str, case: Case) -> Iterator[RenderableType]:
    lost = f" (lost {duration(case.lost_ns)})" if case.lost_ns else ""
    yield Text(f"   {name:<8} {safe(case.host)}: {safe(case.title)}{lost}")
    for command in case.commands:
        yield Text(f"            {safe(command)}", style="dim", no_wrap=True, overflow="ignore")


def _ways(report: Report) -> Table:
    table = _table("both ends recorded", "RPCs", "up p50", "down p50", "clocks within")
    for way in report.ways:
        name = _short(f"{way.client_host} -> {way.server_host}")
        clocks = f"±{duration(way.clock_uncertainty_ns)}"
        table.add_row(Text(name), f"{way.rpcs:,}", duration(way.up_p50_ns), duration(way.down_p50_ns), clocks)
    return table


def _together(every: Change) -> Iterator[RenderableType]:
    if every.before_ns is None or every.after_ns is None:
        return
    text = f"{count(every.rpcs, 'RPC')}, {every.rpcs_before:,} before: {duration(every.after_ns)} each, "
    text += f"{duration(every.before_ns)} before ({_factor(every)})"
    if every.cause and every.cause_ns:
        text += f"; what changed most is {every.cause}, {_signed(every.cause_ns)}"
    yield Text(text)


def _factor(change: Change) -> str:
    if change.before_ns is None or change.after_ns is None:
        return "new" if change.before_ns is None else "gone"
    return f"{change.after_ns / change.before_ns - 1:+.0%}" if change.before_ns else ""


def _signed(ns: int) -> str:
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


_CHANGES_LEFT_OUT = ((120, "p99 before"), (120, "p99 now"), (85, "RPCs"), (75, "change"))
"""Columns that a terminal narrower than that has no place for."""


def _changes(title: str, changes: Sequence[Change], width: int) -> Table:
    names = ["RPCs", "before", "now", "change", "p99 before", "p99 now", "most of it"]
    names = [name for name in names if name not in {left for least, left in _CHANGES_LEFT_OUT if width < least}]
    table = _table(title, *names)
    table.columns[0].min_width, table.columns[-1].justify = _NARROW, "left"
    for change in changes:
        cells: dict[str, RenderableType] = {
            "RPCs": f"{change.rpcs:,}",
            "before": duration(change.before_ns),
            "now": duration(change.after_ns),
            "change": _factor(change),
            "p99 before": duration(change.p99_before_ns),
            "p99 now": duration(change.p99_ns),
            "most of it": Text(f"{change.cause} {_signed(change.cause_ns)}" if change.cause_ns else ""),
        }
        table.add_row(Text(_short(change.name)), *(cells[name] for name in names))
    return table


def _short(name: str) -> str:
    name = safe(name)
    return name if len(name) <= _NAME else f"…{name[-_NAME + 1 :]}"


def _lost(ns: int) -> str:
    return total(ns) if ns else "-"


def _moment(time_ns: int, report: Report | None = None) -> str:
    """A time of UTC; without the date where all of the report is of one day."""
    return moment(time_ns, (report.first_time_ns, report.last_time_ns) if report else None)
