"""The report of `compare` for a terminal: the difference in one sentence, then the figures side by side."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...analyzer.model.text import count, duration, format_number, list_first, safe
from ..shared.drawing import BAD, CAUSE_STYLES, GOOD, SEVERITY_STYLES, draw, pair
from .comparison import Comparison
from .figures import Changed, Figure, Shift, weight
from .run import Run
from .scaling import Point, Scaling
from .words import (
    KINDS,
    SECTIONS,
    describe_interval,
    describe_work,
    format_ratio,
    format_severity,
    format_signed,
    format_value,
)

MOST_METHODS = 10
"""Most methods shown; the rest are in the JSON report."""
MOST_DIFFERENCES = 8
"""Most further sentences shown."""
TITLE_COLUMNS, CELL_COLUMNS = 34, 11
"""Columns for the titles of figures, and for the values of each capture."""
_CHANGES = {
    "appears": ("appears", BAD),
    "grows": ("grows", BAD),
    "vanishes": ("vanishes", GOOD),
    "shrinks": ("shrinks", GOOD),
    "stays": ("stays", "dim"),
}


def render(comparison: Comparison, *, width: int = 100, colour: bool = False) -> str:
    """Render the report as text, with escape sequences only when `colour` is set."""
    width = max(60, width)
    return draw(_list_parts(comparison, max(2, (width - TITLE_COLUMNS) // CELL_COLUMNS)), width=width, colour=colour)


def _list_parts(c: Comparison, fitting: int) -> Iterator[RenderableType]:
    """List the parts of the report; `fitting` captures fit side by side."""
    yield _show_captures(c.runs)
    yield Text()
    yield Panel(Text(safe(c.verdict)), title="difference" if c.scaling is None else "scaling", title_align="left")
    rest = c.others
    if rest:
        yield Text("other differences", style="bold")
        yield pair(((" -", Text(safe(d.sentence))) for d in rest[:MOST_DIFFERENCES]), gap=1)
        yield from _count_rest(len(rest) - MOST_DIFFERENCES, "more difference")
    if c.notes:
        yield pair(((" -", Text(f"note: {safe(note)}", style="dim")) for note in c.notes), gap=1)
    if c.scaling:
        yield from (Text(), _show_scaling(c.scaling), Text(), _draw_curve(c.scaling))
    shown = c.runs[:fitting]
    yield from (Text(), _show_figures(c, shown))
    labels = {run.label for run in shown}
    if c.shifts:
        yield from (Text(), _show_latencies([shift for shift in c.shifts if shift.run in labels]))
    yield from (Text(), _show_budgets(c, shown))
    yield from _count_rest(len(c.runs) - len(shown), "more capture")
    if c.changes:
        yield from (Text(), _show_findings(c.changes, several=len(c.runs) > 2))
    if c.outcomes:
        yield from (Text(), _show_outcomes(c))


def _show_captures(runs: Sequence[Run]) -> Table:
    rows: list[tuple[Text, Text]] = []
    for run in runs:
        named = Text(safe(list_first(run.analysis.files, 1)), style="bold")
        named.append(f"  {describe_work(run)}", style="not bold")
        rows.append((Text(run.label, style="bold"), named))
    return pair(rows)


def _make_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))


def _count_rest(number: int, noun: str) -> Iterator[Text]:
    if number > 0:
        yield Text(f"... and {count(number, noun)}: --json lists all", style="dim")


def _show_figures(c: Comparison, shown: Sequence[Run]) -> Table:
    table = _make_table()
    table.add_column("", overflow="fold")
    for run in shown:
        table.add_column(run.label, justify="right", no_wrap=True)
        if run is not c.runs[0] and len(shown) == 2:
            table.add_column(f"{run.label} / {c.runs[0].label}", justify="right", no_wrap=True)
    section = ""
    for figure in c.figures:
        if figure.section != section:
            section = figure.section
            table.add_row(Text(SECTIONS[section], style="bold"))
        table.add_row(*_format_figure(figure, len(shown)))
    return table


_INNER = ("data_packets_per_message", "control_packets_per_message", "other_packets_per_message")


def _format_figure(figure: Figure, shown: int) -> list[str]:
    indent = "    " if figure.name in _INNER else "  "
    cells = [format_value(figure, value) for value in figure.values[:shown]]
    if shown == 2:
        cells.append(format_ratio(figure.ratio(1)))
    return [indent + figure.title, *cells]


def _show_latencies(shifts: Sequence[Shift]) -> RenderableType:
    """Show a block for each method: quantiles with their shift and its confidence interval."""
    parts: list[RenderableType] = []
    methods = list(dict.fromkeys((shift.method, shift.kind) for shift in shifts))
    several = len({shift.run for shift in shifts}) > 1
    for method, kind in methods[:MOST_METHODS]:
        parts.append(Text(f"{safe(method)}  {KINDS[kind]}", style="bold"))
        table = _make_table()
        for name in ("", "before", "after", "shift", "95% interval", "ratio"):
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for shift in shifts:
            if shift.method == method:
                table.add_row(*_format_shift(shift, several=several))
        parts.append(table)
    return Group(*parts, *_count_rest(len(methods) - MOST_METHODS, "more method"))


def _format_shift(s: Shift, *, several: bool) -> list[str]:
    name = f"  {s.quantile}" + (f" {s.run}" if several else "")
    times = [duration(s.from_ns), duration(s.to_ns), format_signed(s.shift_ns)]
    return [name, *times, describe_interval(s), format_ratio(s.ratio)]


def _show_budgets(c: Comparison, shown: Sequence[Run]) -> Table:
    """Show RPC time by cause; with two captures also its shares and their difference."""
    table = _make_table()
    table.add_column(f"RPC time per {c.unit}", no_wrap=True)
    for run in shown:
        table.add_column(run.label, justify="right", no_wrap=True)
        if len(shown) == 2:
            table.add_column("", justify="right", no_wrap=True)
    if len(shown) == 2:
        table.add_column("shift", justify="right", no_wrap=True)
    for spent in c.budgets:
        cells = []
        for ns, share in zip(spent.each_ns[: len(shown)], spent.shares[: len(shown)], strict=True):
            cells += [duration(ns), f"{share:.1%}"][: 2 if len(shown) == 2 else 1]
        if len(shown) == 2:
            cells.append(format_signed(round(spent.each_ns[1] - spent.each_ns[0])))
        table.add_row(Text(f"  {spent.cause}", style=CAUSE_STYLES.get(spent.cause, "")), *cells)
    return table


def _show_findings(changes: Sequence[Changed], *, several: bool) -> Table:
    """Show how findings changed; captures in which a finding changed alike share a line."""
    table = _make_table()
    for name in ("findings", *(["in"] if several else []), "", ""):
        table.add_column(name, no_wrap=name == "findings", overflow="fold")
    alike: dict[tuple[str, str], list[Changed]] = {}
    for changed in changes:
        alike.setdefault((changed.id, changed.change), []).append(changed)
    for group in alike.values():
        worst = max(group, key=lambda changed: weight(changed.after))
        word, style = _CHANGES[worst.change]
        seen = worst.after or worst.before
        what = Text().append(format_severity(worst), style=SEVERITY_STYLES[seen.severity] if seen else "")
        where = [Text(" ".join(changed.run for changed in group))] if several else []
        row = [Text(f"  {safe(worst.id)}"), *where, Text(word, style=style)]
        table.add_row(*row, what.append(f"  {safe(seen.title) if seen else ''}"))
    return table


def _show_outcomes(c: Comparison) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for no_wrap in (True, True, False):
        table.add_column(no_wrap=no_wrap, overflow="fold")
    table.add_row(Text("--fail-on", style="bold"))
    for outcome in c.outcomes:
        word = Text("met", style=BAD) if outcome.met else Text("not met", style=GOOD)
        table.add_row(f"  {safe(outcome.rule)}", word, f"{outcome.run}: {safe(outcome.text)}")
    return table


def _show_scaling(s: Scaling) -> Table:
    table = _make_table()
    table.add_column("", no_wrap=True)
    for name in ("callers", "connec-\ntions", "concur-\nrent", f"{s.unit}s/s", "ideal", "of\nideal"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("main cause\nof RPC time", overflow="fold")
    for point in s.points:
        table.add_row(*_format_point(point, s))
    return table


def _format_point(p: Point, s: Scaling) -> list[str]:
    cause, share = max(p.shares.items(), key=lambda item: item[1], default=("-", 0.0))
    return [
        p.run + (" knee" if p.run == s.knee else ""),
        f"{p.callers:,}",
        f"{p.connections:,}",
        "-" if p.at_once is None else format_number(p.at_once),
        format_number(p.per_s),
        format_number(p.ideal_per_s),
        f"{p.of_ideal:.0%}",
        f"{cause} {share:.0%}",
    ]


_ROWS, _COLUMNS = 12, 56


def _draw_curve(s: Scaling) -> Text:
    """Draw the curve as text: letters are captures, dots are the ideal line, both axes begin at 0."""
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
    base = next(point.run for point in s.points if abs(point.of_ideal - 1) < 1e-9)
    title = f"{s.unit}s per second; . is the ideal: the rate per {s.by.removesuffix('s')} of {base}"
    return Text("\n".join([title, *lines, axis, ends]))
