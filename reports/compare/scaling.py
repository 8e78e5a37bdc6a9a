"""Show how three or more captures scale: the rate by number of callers, compared with the best rate per caller."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ..shared.causes import name_cause
from .because import text
from .difference import explains
from .figures import rates, unit, units, weight
from .run import Run

FLAT = 0.8
"""Share of the ideal below which a curve can have a knee (heuristic: repeated runs differ by less than a fifth)."""
BEND = 0.1
"""Least distance of the knee from the line between both ends, as a share of the curve's box (heuristic without a
source)."""


class Point(Struct, frozen=True):
    """One capture of the sweep."""

    run: str
    """Label of the capture."""
    load: int
    """Callers, or connections where callers do not differ."""
    callers: int
    connections: int
    at_once: float | None
    """Mean number of concurrent RPCs."""
    per_s: float
    """RPCs per second; messages per second where RPCs are streams."""
    ideal_per_s: float
    """The best rate per caller of any capture, times this one's load."""
    shares: dict[str, float]
    """Shares of the RPC time by cause."""

    @property
    def of_ideal(self) -> float:
        """Divide the rate by the ideal rate."""
        return self.per_s / self.ideal_per_s


class Scaling(Struct, frozen=True):
    """How captures scale."""

    unit: str
    """`RPC` or `message`."""
    by: Literal["callers", "connections"]
    """The unit of the load."""
    points: tuple[Point, ...]
    """Points by load, smallest first."""
    knee: str | None
    """Label of the capture after which more load adds little throughput; None without a knee."""
    text: str
    """What the curve shows, in sentences."""


def scaling(runs: Sequence[Run]) -> Scaling | None:
    """Compute how captures scale; None with fewer than three, or where neither callers nor connections grow."""
    if len(runs) < 3:
        return None
    loads = {"callers": [run.callers for run in runs], "connections": [run.connections for run in runs]}
    by: Literal["callers", "connections"] = "callers" if len(set(loads["callers"])) > 1 else "connections"
    kind = unit(runs)
    per_s = rates(runs, kind)
    if len(set(loads[by])) < 2 or not all(loads[by]) or not all(per_s):
        return None
    best = max((rate or 0.0) / load for rate, load in zip(per_s, loads[by], strict=True))
    points = [
        Point(
            run=run.label,
            load=load,
            callers=run.callers,
            connections=run.connections,
            at_once=run.at_once,
            per_s=rate or 0.0,
            ideal_per_s=best * load,
            shares={
                cause: run.analysis.budget[cause] / run.rpc_time_ns
                for cause in CAUSES
                if run.analysis.budget.get(cause)
            },
        )
        for run, load, rate in zip(runs, loads[by], per_s, strict=True)
    ]
    ordered = tuple(sorted(points, key=lambda point: point.load))
    knee = _find_knee(ordered)
    return Scaling(kind, by, ordered, knee.run if knee else None, _describe(ordered, knee, runs, kind, by))


def _find_knee(points: Sequence[Point]) -> Point | None:
    """Find the point farthest above the straight line between both ends, if the curve bends.

    See Satopää and others, "Finding a Kneedle in a Haystack", ICDCS 2011. There is no curve, and so no knee, where two
    captures have the same load.
    """
    first, last = points[0], points[-1]
    if len({point.load for point in points}) < len(points) or last.of_ideal >= FLAT:
        return None
    low, high = min(point.per_s for point in points), max(point.per_s for point in points)
    if high <= low:
        return None

    def measure_height(point: Point) -> float:
        along = (point.load - first.load) / (last.load - first.load)
        return (point.per_s - first.per_s - along * (last.per_s - first.per_s)) / (high - low)

    best = max(points[1:-1], key=measure_height)
    return best if measure_height(best) >= BEND else None


def _describe(points: Sequence[Point], knee: Point | None, runs: Sequence[Run], kind: str, by: str) -> str:
    first, last = points[0], points[-1]
    said = (
        f"From {first.load:,} to {last.load:,} {by}, the rate changes from {first.per_s:,.0f} to {last.per_s:,.0f} "
        f"{kind}s per second: {last.of_ideal:.0%} of the ideal."
    )
    if knee:
        after = last.per_s / knee.per_s
        said += (
            f" The knee is at {knee.load:,} {by} ({knee.run}, {knee.per_s:,.0f} per second, {knee.of_ideal:.0%} of the "
            f"ideal): {last.load / knee.load:.1f} times as many {by} give {after:.2f} times the rate."
        )
    of = {run.label: run for run in runs}
    best, lowest = (of_all(points, key=lambda point: point.of_ideal) for of_all in (max, min))
    if first.of_ideal < FLAT:
        said += f" The best rate per {by.removesuffix('s')}, which is the ideal, is {best.run}'s: {first.run} has "
        said += f"{first.of_ideal:.0%} of it."
    if lowest.of_ideal < FLAT and lowest is not best:
        said += _explain_flattening(of[best.run], of[lowest.run])
    for one, other in pairwise(points):
        if one.load == other.load:
            said += f" At {one.load:,} {by} each, {text(of[one.run], of[other.run])}"
    return said


def _explain_flattening(first: Run, last: Run) -> str:
    """Name the cause whose time grows most along the curve, and the finding that only the far end has."""
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
            f" Each {kind} takes longer in {last.label} than in {first.label}: {grown[most] / whole:.0%} of the "
            f"additional time is {name_cause(most)}."
        )
    # a finding about the server's time says no more than the cause
    new = [f for f in last.analysis.findings if not first.finding(f.id) and "server" not in explains(f)]
    if new:
        gravest = max(new, key=lambda finding: (weight(finding), finding.lost_ns or 0))
        said += f" {last.label} has {gravest.id}, {first.label} does not: {gravest.title}."
    return said or " The cause is not visible in these captures."
