"""Place the figures of a comparison in charts: what a template needs to draw them as SVG."""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from ....analyzer.model.analysis import MethodFacts
from ....analyzer.model.text import duration, format_number
from ...html import said
from ..comparison import Comparison
from ..figures import part, rates
from ..run import Run, answered
from ..scaling import Scaling
from ..words import KINDS

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 74, 620, 14, 226
"""The area of the plot in the drawing."""
MOST_LINES = 6
"""Captures drawn in one chart, as many as there are colours."""
MOST_METHODS = 8
"""Methods with a chart."""
QUANTILES = ("min", "p50", "p90", "p99", "p999", "max")
_NAMES = {"p999": "p99.9"}
PACKETS = {"data": "with messages or headers", "control": "only control frames", "other": "empty, or retransmitted"}


class Tick(Struct, frozen=True):
    """A mark of an axis."""

    at: float
    text: str


class Mark(Struct, frozen=True):
    """A point of a line, with its interval."""

    x: float
    y: float
    low: float | None
    """Where the interval ends, or None."""
    high: float | None
    text: str


class Line(Struct, frozen=True):
    """The line of a capture."""

    colour: int
    label: str
    marks: tuple[Mark, ...]
    joined: bool = True
    """Whether a line joins the points."""

    @property
    def points(self) -> str:
        """Give the points as SVG wants them."""
        return " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in self.marks)


class Chart(Struct, frozen=True):
    """Lines between two axes."""

    title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    ideal: str = ""
    """Points of the ideal line."""


class Bar(Struct, frozen=True):
    """A horizontal bar of a capture; widths are percent of the longest."""

    label: str
    text: str
    parts: tuple[tuple[str, float, float, str], ...]
    """Class, begin, width and text of each part."""
    low: float | None = None
    high: float | None = None


def list_latencies(c: Comparison) -> Iterator[Chart]:
    """Draw the quantiles of each method that captures share with the first, one over the other."""
    shared = [name for name in c.runs[0].named_methods if any(name in run.named_methods for run in c.runs[1:])]
    for name in shared[:MOST_METHODS]:
        kind = answered(c.runs[0].named_methods[name])[0]
        drawn = [
            (place, run, run.named_methods[name])
            for place, run in enumerate(c.runs[:MOST_LINES])
            if name in run.named_methods and answered(run.named_methods[name])[0] == kind
        ]
        found = [value for _, _, method in drawn for value in _list_values(method)]
        if not found:
            continue
        place_y, y_ticks = _scale_durations(min(found), max(found))
        lines = tuple(_draw_quantiles(place, run, method, place_y) for place, run, method in drawn)
        x_ticks = tuple(Tick(_place_quantile(at), _NAMES.get(q, q)) for at, q in enumerate(QUANTILES))
        yield Chart(f"{said.method_name(name, None)}: {KINDS[kind]}", lines, x_ticks, y_ticks)


def _list_values(method: MethodFacts) -> Iterator[int]:
    _, quantiles, intervals = answered(method)
    if quantiles:
        yield from (getattr(quantiles, name) for name in QUANTILES)
        yield from (end for ends in (intervals or {}).values() for end in ends if end is not None)


def _place_quantile(place: int) -> float:
    return LEFT + (RIGHT - LEFT) * (place + 0.5) / len(QUANTILES)


def _draw_quantiles(place: int, run: Run, method: MethodFacts, place_y: Callable[[float], float]) -> Line:
    _, quantiles, intervals = answered(method)
    marks = []
    for at, name in enumerate(QUANTILES) if quantiles else ():
        value = getattr(quantiles, name)
        low, high = (intervals or {}).get(name, (None, None))
        between = f", 95% interval {duration(low)} to {duration(high)}" if low is not None and high is not None else ""
        text = f"{run.label} {_NAMES.get(name, name)}: {duration(value)}{between}"
        ends = [None if end is None else place_y(end) for end in (low, high)]
        marks.append(Mark(_place_quantile(at), place_y(value), ends[0], ends[1], text))
    return Line(place, run.label, tuple(marks))


_STEPS = ((1, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 5), (1,))
"""Steps of an axis in a decade, from fine to coarse."""
_MOST_TICKS = 8
LONGEST_NS = 10**18
"""Longest duration with a place of its own: thirty years."""


def _scale_durations(least: int, most: int) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    """Scale durations logarithmically, between the finest steps that leave room for their text."""
    least, most = min(least, LONGEST_NS), min(most, LONGEST_NS)
    for factors in _STEPS:
        steps = [factor * 10**power for power in range(20) for factor in factors]
        low = max((step for step in steps if step <= least), default=1)
        high = next((step for step in steps if step >= max(most, 1.2 * low)), steps[-1])
        inside = [step for step in steps if low <= step <= high]
        if len(inside) <= _MOST_TICKS:
            break

    def place(value: float) -> float:
        share = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return BOTTOM - (BOTTOM - TOP) * share

    return place, tuple(Tick(place(step), duration(step)) for step in inside[:: -(-len(inside) // _MOST_TICKS)])


def list_rates(c: Comparison) -> list[Bar]:
    """Draw the rate of each capture, and what rates the baselines have."""
    found = [rate or 0.0 for rate in rates(c.runs, c.unit)]
    noise = [rate for rate in (found[0], *rates(c.baselines, c.unit)) if rate]
    most = max([*found, *noise, 1e-9])

    def draw(place: int, run: Run, rate: float) -> Bar:
        text = f"{format_number(rate)} {c.unit}s per second"
        if place or len(noise) < 2:
            return Bar(run.label, text, ((f"run-{place % MOST_LINES}", 0.0, 100 * rate / most, text),))
        text += f", {format_number(min(noise))} to {format_number(max(noise))} in {len(noise)} baselines"
        ends = (100 * min(noise) / most, 100 * max(noise) / most)
        return Bar(run.label, text, (("run-0", 0.0, 100 * rate / most, text),), *ends)

    return [draw(place, run, rate) for place, (run, rate) in enumerate(zip(c.runs, found, strict=True))]


def list_packets(c: Comparison) -> list[Bar]:
    """Draw the packets per message of each capture by kind."""
    every = [{kind: part(run, kind) or 0.0 for kind in PACKETS} for run in c.runs]
    most = max([*(sum(kinds.values()) for kinds in every), 1e-9])
    bars = []
    for run, kinds in zip(c.runs, every, strict=True):
        parts, begin = [], 0.0
        for kind, each in kinds.items():
            width = 100 * each / most
            parts.append((f"packets-{kind}", begin, width, f"{PACKETS[kind]}: {format_number(each)}"))
            begin += width
        bars.append(Bar(run.label, f"{format_number(sum(kinds.values()))} packets per message", tuple(parts)))
    return bars


def draw_scaling(s: Scaling) -> Chart:
    """Draw the rate by load, with the line of the ideal."""
    loads = sorted({point.load for point in s.points}, reverse=True)
    far = loads[0]
    step = _choose_step(max(point.per_s for point in s.points))
    top = step * (math.floor(max(point.per_s for point in s.points) / step) + 1)

    def place(load: float, rate: float) -> tuple[float, float]:
        return LEFT + (RIGHT - LEFT) * load / far, BOTTOM - (BOTTOM - TOP) * rate / top

    def mark(at: int) -> Mark:
        point = s.points[at]
        x, y = place(point.load, point.per_s)
        knee = ", the knee" if point.run == s.knee else ""
        rate = f"{format_number(point.per_s)} {s.unit}s per second at {point.load:,} {s.by}"
        return Mark(x, y, None, None, f"{point.run}: {rate}, {point.of_ideal:.0%} of the ideal{knee}")

    slope = s.points[0].ideal_per_s / s.points[0].load
    end = place(*((far, slope * far) if slope * far <= top else (top / slope, top)))
    return Chart(
        f"{s.unit}s per second by {s.by}",
        (Line(0, "rate", tuple(map(mark, range(len(s.points)))), joined=len(loads) == len(s.points)),),
        tuple(Tick(place(load, 0)[0], f"{load:,}") for load in _list_ends(loads)),
        tuple(Tick(place(0, step * at)[1], format_number(step * at)) for at in range(round(top / step) + 1)),
        f"{place(0, 0)[0]:.1f},{place(0, 0)[1]:.1f} {end[0]:.1f},{end[1]:.1f}",
    )


def _choose_step(most: float) -> float:
    """Choose the step of a linear axis: 1, 2 or 5 times a power of ten, with up to six steps below `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(step for step in (power / 5, power / 2, power, 2 * power) if most / step <= 6)


def _list_ends(loads: Sequence[int]) -> list[int]:
    """List the loads that are labelled, from the largest: those with room for their text."""
    kept: list[int] = []
    for load in loads:
        if not kept or kept[-1] - load >= loads[0] / 12:
            kept.append(load)
    return kept
