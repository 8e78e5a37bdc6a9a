"""Relate the clocks of two captures by packets that both recorded.

For a packet from A to B, B's timestamp less A's is the clock offset plus the one-way delay. For a packet from B to A,
it is the offset less the delay. Delays are not negative, so each packet bounds the offset from one side, and the
fastest packet of each direction bounds it best. The uncertainty is half of the sum of these two delays (RFC 5905
section 8). The drift is the one with the largest smallest round trip (the sum of both directions' fastest packets): a
wrong drift makes some packets seem too fast (Paxson 1998; Moon, Skelly and Towsley 1999).
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from ..model.text import duration
from ..tables import Ints

_BINS = 1_024
"""Time intervals whose fastest packet is kept (heuristic: enough to find a drift)."""
_STEEPEST_PPB = 1_000_000
"""Largest drift, parts per billion (heuristic: ten times that of any crystal; a larger one means a broken clock)."""
_JITTER_NS = 10_000
"""Most by which timestamps of two processors or tools may disagree (heuristic: the error of software timestamps)."""
_FEWEST = 3
"""Fewest packets in each direction (heuristic: fewer prove no relation)."""
_LONGEST_NS = 30 * 86_400 * 1_000_000_000
"""Longest time between shared packets: beyond it, products with the drift need more than 64 bits."""
_FARTHEST_NS = 1 << 61
"""Largest difference of the clocks, 73 years: a round trip, the sum of two differences, must fit into 64 bits."""
_RESOLUTION_NS = 2_000
"""Error of a difference of two timestamps, each in whole microseconds."""


class Clock(Struct, frozen=True):
    """B's clock less A's: `offset_ns` at A's time `since_ns`; it grows by `drift_ppb` billionths of a time."""

    since_ns: int
    offset_ns: int
    """The middle of its bounds; 0 if the clocks are taken as equal."""
    uncertainty_ns: int
    """Distance to the farther bound; the true offset is within it."""
    fastest_ns: tuple[int, int]
    """Delays of the fastest packets from A to B and from B to A."""
    drift_ppb: int
    """Parts per billion; 0 when unknown."""
    drift_known: bool
    """Whether the packets show a drift."""
    drift_low_ppb: int
    drift_high_ppb: int
    """Bounds of the drift."""

    def ahead(self, time_ns: Ints) -> Ints:
        """Compute how far B's clock is ahead at instants of A's clock, in whole nanoseconds."""
        return self.offset_ns + tilt(time_ns - self.since_ns, self.drift_ppb)


class NoClock(Exception):
    """The clocks cannot be related; the message says why."""


def tilt(elapsed_ns: Ints, ppb: int) -> Ints:
    """Compute `ppb` billionths of a time, in integers that do not overflow for thirty days."""
    return elapsed_ns // 1_000 * ppb // 1_000_000


def fit(outward: tuple[Ints, Ints], back: tuple[Ints, Ints], *, as_they_are: bool = False) -> Clock:
    """Estimate B's clock from packets from A to B (`outward`) and from B to A (`back`).

    Both are pairs of A's times and of B's times less A's. With `as_they_are` both clocks are taken as equal. Raises
    NoClock.
    """
    for (_, differences), way in ((outward, "from the first to the second"), (back, "from the second to the first")):
        if len(differences) < _FEWEST:
            raise NoClock(f"only {len(differences)} packets {way} capture point are in both captures")
    if max(abs(int(edge)) for _, apart in (outward, back) for edge in (apart.min(), apart.max())) > _FARTHEST_NS:
        raise NoClock("the clocks are more than 73 years apart")
    since = int(min(outward[0].min(), back[0].min()))
    span = int(max(outward[0].max(), back[0].max())) - since
    if span > _LONGEST_NS:
        raise NoClock("their common packets are more than thirty days apart")
    above, below = _fastest(outward, since, span, 1), _fastest(back, since, span, -1)
    best = _widest(above, below)
    low, high = _as_wide(above, below, best)
    known = not as_they_are and not low <= 0 <= high
    drift = best if known else 0
    upper = int((outward[1] - tilt(outward[0] - since, drift)).min())
    lower = int((back[1] - tilt(back[0] - since, drift)).max())
    if upper - lower < -_JITTER_NS:
        raise NoClock(
            f"whatever the offset, some packets would arrive {duration(lower - upper)} before they were sent: a "
            "clock was set while they were recorded, or they do not show the same connections"
        )
    if not as_they_are:
        half = max(0, upper - lower) // 2
        return Clock(since, (upper + lower) // 2, half, (half, half), drift, known, low, high)
    apart = max(lower, -upper)
    if apart > _JITTER_NS:
        raise NoClock(
            f"with both clocks taken as they are, some packets would arrive {duration(apart)} before they were "
            "sent: the clocks are not synchronised"
        )
    return Clock(since, 0, max(0, upper, -lower), (max(0, upper), max(0, -lower)), 0, False, low, high)


_Points = tuple[Ints, Ints]


def _fastest(points: _Points, since: int, span: int, sign: int) -> _Points:
    """Find the smallest difference, times `sign`, of each time interval; return elapsed times and differences."""
    elapsed, values = points[0] - since, points[1] * sign
    interval = elapsed * (_BINS - 1) // max(span, 1) if span < 2**53 else elapsed // (span // _BINS)
    order = np.lexsort((values, interval))
    first = np.flatnonzero(np.diff(interval[order], prepend=-1))
    return elapsed[order][first], values[order][first]


def _width(above: _Points, below: _Points, ppb: int) -> int:
    """Compute the smallest round trip between the capture points for a drift."""
    out = (above[1] - tilt(above[0], ppb)).min()
    return int(out + (below[1] + tilt(below[0], ppb)).min())


def _hull_slopes(points: _Points, sign: int) -> Iterator[int]:
    """Yield the slopes of the lower convex hull, in parts per billion, times `sign`."""
    hull: list[tuple[int, int]] = []
    for x, y in zip(points[0].tolist(), points[1].tolist(), strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    for (x, y), (next_x, next_y) in pairwise(hull):
        if next_x > x:
            yield sign * (next_y - y) * 1_000_000_000 // (next_x - x)


def _widest(above: _Points, below: _Points) -> int:
    """Find the drift with the largest smallest round trip: that is concave in the drift, so a hull has this slope."""
    slopes = {0, *_hull_slopes(above, 1), *_hull_slopes(below, -1)}
    allowed = sorted(slope for slope in slopes if abs(slope) <= _STEEPEST_PPB)
    return max(allowed, key=lambda ppb: (_width(above, below, ppb), -abs(ppb)))


def _as_wide(above: _Points, below: _Points, best: int) -> tuple[int, int]:
    """Find the range of drifts that the packets cannot distinguish from the best one."""
    out = above[1] - tilt(above[0], best)
    back = below[1] + tilt(below[0], best)
    noise = int(np.median(out) - out.min() + np.median(back) - back.min())
    least = _width(above, below, best) - max(noise, _RESOLUTION_NS)
    edges = []
    for sign in (-1, 1):
        inside, outside = 0, 2 * _STEEPEST_PPB
        while outside - inside > 1:
            middle = (inside + outside) // 2
            fits = _width(above, below, best + sign * middle) >= least
            inside, outside = (middle, outside) if fits else (inside, middle)
        edges.append(best + sign * inside)
    return edges[0], edges[1]
