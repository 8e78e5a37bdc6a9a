"""Three captures and more: how the rate follows the callers, against the ideal of the first capture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from .because import CAUSE_WORDS, text
from .figures import unit, units, weight
from .run import Run, over

FLAT = 0.8
"""Share of the ideal up to which a curve bends at all (own choice: a fifth is more than runs differ by)."""
BEND = 0.1
"""Distance of the knee from the straight line between both ends, as a share of the curve's box (own choice)."""


class Point(Struct, frozen=True):
    """One capture of the sweep."""

    run: str
    """Its label."""
    load: int
    """Callers, or connections where callers do not differ."""
    callers: int
    connections: int
    at_once: float | None
    """RPCs open at once, on average."""
    per_s: float
    """RPCs per second, messages where RPCs are streams."""
    ideal_per_s: float
    """The first capture's rate for each of its load, times this one's load."""
    shares: dict[str, float]
    """Of the RPC time by cause."""

    @property
    def of_ideal(self) -> float:
        """The rate as a share of the ideal."""
        return self.per_s / self.ideal_per_s


class Scaling(Struct, frozen=True):
    """How captures scale."""

    unit: str
    """`RPC` or `message`."""
    by: Literal["callers", "connections"]
    """What the load is."""
    points: tuple[Point, ...]
    """The smallest load first."""
    knee: str | None
    """Label of the capture from which on more load brings little; None without one."""
    text: str
    """What the curve shows, in sentences."""


def scaling(runs: Sequence[Run]) -> Scaling | None:
    """How captures scale against the first; None with fewer than three, or where nothing in them grows."""
    if len(runs) < 3:
        return None
    loads = {"callers": [run.callers for run in runs], "connections": [run.connections for run in runs]}
    by: Literal["callers", "connections"] = "callers" if len(set(loads["callers"])) > 1 else "connections"
    kind = unit(runs)
    rates = [over(units(run, kind) * 1e9, run.span_ns) for run in runs]
    if len(set(loads[by])) < 2 or not all(loads[by]) or not all(rates):
        return None
    first = (rates[0] or 0.0) / loads[by][0]
    points = [
        Point(
            run=run.label,
            load=load,
            callers=run.callers,
            connections=run.connections,
            at_once=run.at_once,
            per_s=rate or 0.0,
            ideal_per_s=first * load,
            shares={
                cause: run.analysis.budget[cause] / run.rpc_time_ns
                for cause in CAUSES
                if run.analysis.budget.get(cause)
            },
        )
        for run, load, rate in zip(runs, loads[by], rates, strict=True)
    ]
    ordered = tuple(sorted(points, key=lambda point: point.load))
    knee = _knee(ordered)
    return Scaling(kind, by, ordered, knee.run if knee else None, _text(ordered, knee, runs, kind, by))


def _knee(points: Sequence[Point]) -> Point | None:
    """The point farthest above the straight line between both ends (Satopää and others, "Finding a Kneedle in a
    Haystack", ICDCS 2011), if the curve bends; none where two captures have the same load: that is no curve.
    """
    first, last = points[0], points[-1]
    if len({point.load for point in points}) < len(points) or last.of_ideal >= FLAT * first.of_ideal:
        return None
    low, high = min(point.per_s for point in points), max(point.per_s for point in points)
    if high <= low:
        return None

    def above(point: Point) -> float:
        along = (point.load - first.load) / (last.load - first.load)
        return (point.per_s - first.per_s - along * (last.per_s - first.per_s)) / (high - low)

    best = max(points[1:-1], key=above)
    return best if above(best) >= BEND else None


def _text(points: Sequence[Point], knee: Point | None, runs: Sequence[Run], kind: str, by: str) -> str:
    first, last = points[0], points[-1]
    said = (
        f"From {first.load:,} to {last.load:,} {by} the {kind}s per second go from {first.per_s:,.0f} to "
        f"{last.per_s:,.0f}, {last.of_ideal:.0%} of the ideal."
    )
    if knee:
        after = last.per_s / knee.per_s
        said += (
            f" The knee is at {knee.load:,} {by} ({knee.run}, {knee.per_s:,.0f} per second, {knee.of_ideal:.0%} of the "
            f"ideal): {last.load / knee.load:.1f} times the {by} from there bring {after:.2f} times the rate."
        )
    of = {run.label: run for run in runs}
    lowest = min(points, key=lambda point: point.of_ideal)
    if lowest.of_ideal < FLAT and lowest is not first:
        said += _what_flattens(of[first.run], of[lowest.run])
    for one, other in pairwise(points):
        if one.load == other.load:
            said += f" At {one.load:,} {by} each: {text(of[one.run], of[other.run])}"
    return said


def _what_flattens(first: Run, last: Run) -> str:
    """Whose time grows from one end of the curve to the other, and what is found at the far end alone."""
    kind = unit((first, last))
    grown = {
        cause: last.analysis.budget.get(cause, 0) / max(units(last, kind), 1)
        - first.analysis.budget.get(cause, 0) / max(units(first, kind), 1)
        for cause in CAUSES
    }
    whole = sum(ns for ns in grown.values() if ns > 0)
    most = max(grown, key=lambda cause: grown[cause])
    said = ""
    if whole > 0 and grown[most] >= 0.5 * whole:
        said = (
            f" Of the time that each {kind} takes longer in {last.label} than in {first.label}, "
            f"{grown[most] / whole:.0%} is {CAUSE_WORDS.get(most, most)}."
        )
    new = [f for f in last.analysis.findings if weight(f) > weight(first.finding(f.id)) and f.id != "server-latency"]
    if new:
        gravest = max(new, key=lambda finding: (weight(finding), finding.lost_ns or 0))
        said += f" {last.label} has {gravest.id}, {first.label} does not: {gravest.title}."
    return said or " Why: not told by the packets."
