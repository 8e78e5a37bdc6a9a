"""The report of `compare` for a terminal: the difference in a sentence, then the figures side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..terminal import CAUSE_STYLES, SEVERITY_STYLES, draw
from ..text import count, duration, safe, size
from .comparison import Comparison
from .figures import Changed, Figure, Shift
from .run import Run
from .saved import Finding
from .scaling import Point, Scaling

MOST_METHODS = 10
"""Methods shown; the rest are in the JSON report."""
SIDE_BY_SIDE = 6
"""Captures in the tables beside each other; all are in the JSON report and in the scaling table."""
_SECTIONS = {"work": "work", "rates": "rates", "packets": "packets, both directions"}
_CHANGES = {
    "appears": ("appears", "red"),
    "grows": ("grows", "red"),
    "vanishes": ("vanishes", "green"),
    "shrinks": ("shrinks", "green"),
    "stays": ("stays", "dim"),
}
_ALIKE = 0.005
"""Difference of a ratio from 1 that is not shown."""


def render(comparison: Comparison, *, width: int = 100, colour: bool = False) -> str:
    """The report as text, with escape sequences only when `colour` is set."""
    return draw(_parts(comparison), width=max(60, width), colour=colour)


def _parts(c: Comparison) -> Iterator[RenderableType]:
    yield _captures(c.runs)
    yield Text()
    yield Panel(Text(safe(c.verdict)), title="difference" if c.scaling is None else "scaling", title_align="left")
    rest = [d for d in c.differences if d.sentence != c.verdict]
    if rest:
        yield Text("also", style="bold")
        yield _listed([Text(safe(d.sentence)) for d in rest])
    if c.notes:
        yield _listed([Text(f"note: {safe(note)}", style="dim") for note in c.notes])
    if c.scaling:
        yield from (Text(), _scaling_table(c.scaling), Text(), _curve(c.scaling))
    yield from (Text(), _figures(c))
    if c.shifts:
        yield from (Text(), _latencies(c.shifts))
    yield from (Text(), _budgets(c))
    if c.changes:
        yield from (Text(), _findings(c.changes))
    if c.outcomes:
        yield from (Text(), _outcomes(c))


def _listed(lines: Sequence[Text]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row(" -", line)
    return table


def _captures(runs: Sequence[Run]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for run in runs:
        files = run.saved.files
        named = Text(safe(files[0]) + (f" and {len(files) - 1} more" if len(files) > 1 else ""), style="bold")
        named.append(
            f"  {count(run.rpcs, 'RPC')}, {count(run.messages, 'message')}, "
            f"{count(run.connections, 'connection')} in {duration(run.span_ns)}",
            style="not bold",
        )
        table.add_row(Text(run.label, style="bold"), named)
    return table


def _plain() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))


def _figures(c: Comparison) -> RenderableType:
    shown = c.runs[:SIDE_BY_SIDE]
    table = _plain()
    table.add_column("", overflow="fold")
    for run in shown:
        table.add_column(run.label, justify="right", no_wrap=True)
        if run is not c.runs[0] and len(shown) == 2:
            table.add_column(f"{run.label} / {c.runs[0].label}", justify="right", no_wrap=True)
    section = ""
    for figure in c.figures:
        if figure.section != section:
            section = figure.section
            table.add_row(Text(_SECTIONS[section], style="bold"))
        table.add_row(*_figure_row(figure, len(shown)))
    more = len(c.runs) - len(shown)
    left = [Text(f"... and {count(more, 'more capture')}: --json has all", style="dim")] if more > 0 else []
    return Group(table, *left)


_INNER = ("data_packets_per_message", "control_packets_per_message", "other_packets_per_message")


def _figure_row(figure: Figure, shown: int) -> list[str]:
    indent = "    " if figure.name in _INNER else "  "
    cells = [_value(figure, value) for value in figure.values[:shown]]
    if shown == 2:
        cells.append(_times(figure.ratio(1)))
    return [indent + figure.title, *cells]


def _value(figure: Figure, value: float | None) -> str:
    if value is None:
        return "-"
    if figure.unit == "ns":
        return duration(value)
    if figure.name.endswith("share"):
        return f"{value:.1%}"
    if figure.unit == "B" or figure.name == "message_bytes_per_s":
        return size(value)
    return number(value)


def number(value: float) -> str:
    """Three significant digits, or all before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.4f}"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return "=" if abs(ratio - 1) < _ALIKE else f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2f}x"


def _latencies(shifts: Sequence[Shift]) -> RenderableType:
    """One block per method: quantiles with their shift and its interval."""
    parts: list[RenderableType] = []
    methods = list(dict.fromkeys((shift.method, shift.kind) for shift in shifts))
    several = len({shift.run for shift in shifts}) > 1
    for method, kind in methods[:MOST_METHODS]:
        parts.append(Text(f"{safe(method)}  {kind}", style="bold"))
        table = _plain()
        for name in ("", "from", "to", "shift", "95% interval", "times"):
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for shift in shifts:
            if shift.method == method:
                table.add_row(*_shift_row(shift, several=several))
        parts.append(table)
    if len(methods) > MOST_METHODS:
        parts.append(Text(f"... and {count(len(methods) - MOST_METHODS, 'more method')}: --json has all", style="dim"))
    return Group(*parts)


def _shift_row(s: Shift, *, several: bool) -> list[str]:
    name = f"  {s.quantile}" + (f" {s.run}" if several else "")
    if s.low_ns is None and s.high_ns is None:
        between = "too few RPCs" if s.kind == "latency" else "too few messages"
    else:
        between = f"{_signed(s.low_ns)} to {_signed(s.high_ns)}"
    alike = " (chance)" if s.certain is False else ""
    return [name, duration(s.from_ns), duration(s.to_ns), _signed(s.shift_ns), between + alike, _times(s.ratio)]


def _signed(ns: int | None) -> str:
    return "?" if ns is None else ("+" if ns > 0 else "") + duration(ns)


def _budgets(c: Comparison) -> RenderableType:
    shown = c.runs[:SIDE_BY_SIDE]
    table = _plain()
    table.add_column(f"RPC time per {c.unit}", no_wrap=True)
    for run in shown:
        table.add_column(run.label, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    if len(shown) == 2:
        table.add_column("shift", justify="right", no_wrap=True)
    for spent in c.budgets:
        cells = [
            cell
            for ns, share in zip(spent.each_ns[: len(shown)], spent.shares[: len(shown)], strict=True)
            for cell in (duration(ns), f"{share:.1%}")
        ]
        if len(shown) == 2:
            cells.append(_signed(round(spent.each_ns[1] - spent.each_ns[0])))
        table.add_row(Text(f"  {spent.cause}", style=CAUSE_STYLES.get(spent.cause, "")), *cells)
    return table


def _findings(changes: Sequence[Changed]) -> Table:
    table = _plain()
    several = len({changed.run for changed in changes}) > 1
    for name in ("findings", *(["in"] if several else []), "", ""):
        table.add_column(name, no_wrap=name in ("findings", "in"), overflow="fold")
    for changed in changes:
        word, style = _CHANGES[changed.change]
        seen = changed.after or changed.before
        what = Text(_severity(changed), style=SEVERITY_STYLES[seen.severity] if seen else "")
        row = [Text(f"  {safe(changed.id)}"), *([Text(changed.run)] if several else []), Text(word, style=style)]
        table.add_row(*row, what.append(f"  {safe(seen.title) if seen else ''}", style="default"))
    return table


def _severity(changed: Changed) -> str:
    before, after = (f"{f.severity}{_lost(f)}" if f else None for f in (changed.before, changed.after))
    if before == after or before is None or after is None:
        return before or after or ""
    if changed.before and changed.after and changed.before.severity == changed.after.severity:
        return f"{before.removesuffix(' lost')} -> {after.split(', ')[-1]}"
    return f"{before} -> {after}"


def _lost(finding: Finding) -> str:
    return "" if finding.lost_ns is None else f", {duration(finding.lost_ns)} lost"


def _outcomes(c: Comparison) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for no_wrap in (True, True, False):
        table.add_column(no_wrap=no_wrap, overflow="fold")
    table.add_row(Text("--fail-on", style="bold"))
    for outcome in c.outcomes:
        word = Text("met", style="bold red") if outcome.met else Text("not met", style="green")
        table.add_row(f"  {safe(outcome.rule)}", word, f"{outcome.run}: {safe(outcome.text)}")
    return table


def _scaling_table(s: Scaling) -> Table:
    table = _plain()
    for name in ("", "callers", "connections", "at once", f"{s.unit}s/s", "ideal", "of ideal", "RPC time, mostly", ""):
        table.add_column(name, justify="left" if name in ("", "RPC time, mostly") else "right", no_wrap=name == "")
    for point in s.points:
        table.add_row(*_point_row(point, s))
    return table


def _point_row(p: Point, s: Scaling) -> list[str]:
    most = max(p.shares.items(), key=lambda item: item[1], default=("-", 0.0))
    return [
        p.run,
        f"{p.callers:,}",
        f"{p.connections:,}",
        "-" if p.at_once is None else number(p.at_once),
        number(p.per_s),
        number(p.ideal_per_s),
        f"{p.of_ideal:.0%}",
        f"{most[0]} {most[1]:.0%}",
        "<- knee" if p.run == s.knee else "",
    ]


_ROWS, _COLUMNS = 12, 56


def _curve(s: Scaling) -> Text:
    """The curve as text: letters are captures, dots the ideal line, both axes from 0."""
    top = max(point.per_s for point in s.points) * 1.15
    far = max(point.load for point in s.points)
    grid = [[" "] * (_COLUMNS + 1) for _ in range(_ROWS + 1)]

    def place(load: float, rate: float, mark: str) -> None:
        row = _ROWS - round(rate / top * _ROWS)
        if 0 <= row <= _ROWS:
            column = round(load / far * _COLUMNS)
            grid[row][column : column + len(mark)] = mark

    slope = s.points[0].ideal_per_s / s.points[0].load
    for column in range(_COLUMNS + 1):
        place(far * column / _COLUMNS, slope * far * column / _COLUMNS, ".")
    for point in s.points:
        place(point.load, point.per_s, point.run)
    label = [f"{top:,.0f}", f"{top / 2:,.0f}", "0"]
    width = max(map(len, label))
    sides = {0: label[0], _ROWS // 2: label[1], _ROWS: label[2]}
    lines = [f"  {sides.get(number, ''):>{width}} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    axis = f"  {'':>{width}} +{'-' * (_COLUMNS + 1)}"
    ends = f"  {'':>{width}}  0{f'{far:,} {s.by}':>{_COLUMNS}}"
    said = f"{s.unit}s per second; . is the ideal: the rate of {_base(s)} for each of its {s.by}"
    return Text("\n".join([said, *lines, axis, ends]))


def _base(s: Scaling) -> str:
    return next(point.run for point in s.points if abs(point.of_ideal - 1) < 1e-9)
