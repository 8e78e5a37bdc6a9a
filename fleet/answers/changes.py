"""Find the moment at which the time per RPC changed most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ..dataset.sums import SLOT_NS

FACTOR = 1.5
"""Smallest change reported, as a factor (heuristic: users ask about changes of this size)."""
LEAST_RPCS = 20
"""Fewest RPCs on each side of a change."""
_LEAST_EXPLAINED = 0.5
"""Least share of the variation between intervals that one change must explain; otherwise the time only fluctuates."""


_NEAR = 3
"""Intervals on each side in which most of a change must happen."""
_SUDDEN = 0.6
"""Least share of the change that must happen there (heuristic: of a steady rise it is half or less)."""
_MOST_CHANCE = 0.05
"""Largest share of random orders of the intervals with a change as clear, with which a change is reported."""
_DRAWS = 999
"""Random orders, and histories: the same ones every time."""
_MOST_CELLS = 1_000_000
"""Most intervals of orders that are in memory at once."""
_ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by less."""

Floats = npt.NDArray[np.float64]


class Since(Struct, frozen=True, kw_only=True):
    """A change of the mean time per RPC."""

    time_ns: int
    """Start of the first interval after the change."""
    earliest_ns: int
    """The change was between this and `latest_ns` with a confidence of 95 %."""
    latest_ns: int
    chance: float
    """Share of random orders of the intervals that have a change as clear as this one, at least 0.001."""
    before_ns: int
    """Per RPC."""
    after_ns: int
    cause: str
    """The cause that changed most."""


def since(history: Sequence[tuple[int, int, Mapping[str, int]]], width_ns: int = SLOT_NS) -> Since | None:
    """Find the change in a history of intervals (start, RPCs, budget); None if no single change explains it."""
    if len(history) < 2:
        return None
    rpcs = np.array([row[1] for row in history], dtype=float)
    causes = np.array([[row[2].get(cause) or 0 for cause in CAUSES] for row in history], dtype=float)
    times = causes.sum(axis=1)
    variation = float((rpcs * (times / rpcs - times.sum() / rpcs.sum()) ** 2).sum())
    explained = _explain(rpcs, times)
    at = int(explained.argmax())
    before, after = slice(at + 1), slice(at + 1, None)
    first, second = (times[part].sum() / rpcs[part].sum() for part in (before, after))
    low, high = sorted((first, second))
    if explained[at] < 0 or explained[at] < _LEAST_EXPLAINED * variation or high < FACTOR * max(low, 1):
        return None
    if _explain(rpcs, times, 0).argmax() != at:  # it was where too few RPCs are on a side
        return None
    if not _is_sudden(rpcs, times, at, first, second):
        return None
    chance = _measure_chance(rpcs, times, explained[at])
    if chance > _MOST_CHANCE:
        return None
    changed = causes[after].sum(axis=0) / rpcs[after].sum() - causes[before].sum(axis=0) / rpcs[before].sum()
    least, most = _find_range(rpcs, times, at)
    return Since(
        time_ns=int(history[at + 1][0]),
        earliest_ns=int(history[least][0]),
        latest_ns=int(history[most + 1][0]) + width_ns,
        chance=chance,
        before_ns=round(first),
        after_ns=round(second),
        cause=CAUSES[int(np.argmax(changed if second > first else -changed))],
    )


def _explain(rpcs: Floats, times: Floats, least_rpcs: int = LEAST_RPCS) -> Floats:
    """Compute how much variation a change after each interval but the last explains; -1 with too few RPCs on a side.

    The last axis has the intervals; others may have several orders of them.
    """
    before, sums = np.cumsum(rpcs, axis=-1), np.cumsum(times, axis=-1)
    every, total = before[..., -1:], sums[..., -1:]
    before, sums = before[..., :-1], sums[..., :-1]
    after, mean = every - before, total / every
    explained = before * (sums / before - mean) ** 2 + after * ((total - sums) / after - mean) ** 2
    return np.where((before < least_rpcs) | (after < least_rpcs), -1.0, explained)


def _is_sudden(rpcs: Floats, times: Floats, at: int, first: float, second: float) -> bool:
    """Check whether the few intervals next to a change differ as all do: otherwise the time rises or falls slowly."""
    near = min(_NEAR, max(len(rpcs) // 4, 1))
    before, after = slice(max(at + 1 - near, 0), at + 1), slice(at + 1, at + 1 + near)
    step = times[after].sum() / rpcs[after].sum() - times[before].sum() / rpcs[before].sum()
    return bool(step / (second - first) >= _SUDDEN)


def _measure_chance(rpcs: Floats, times: Floats, explained: float) -> float:
    """Measure in which share of random orders of the intervals the best change explains at least as much."""
    random, found = np.random.default_rng(0), 0
    for number in _share_out(len(rpcs)):
        orders = random.permuted(np.tile(np.arange(len(rpcs)), (number, 1)), axis=1)
        best = _explain(rpcs[orders], times[orders]).max(axis=1)
        found += int((best >= explained * (1 - _ROUNDING)).sum())
    return (1 + found) / (1 + _DRAWS)


def _find_range(rpcs: Floats, times: Floats, at: int) -> tuple[int, int]:
    """Find after which intervals the change is in 95 % of histories drawn from the intervals on both sides of it."""
    random, places = np.random.default_rng(0), []
    for number in _share_out(len(rpcs)):
        before = random.integers(0, at + 1, (number, at + 1))
        after = random.integers(at + 1, len(rpcs), (number, len(rpcs) - at - 1))
        drawn = np.concatenate((before, after), axis=1)
        places.append(_explain(rpcs[drawn], times[drawn]).argmax(axis=1))
    least, most = np.quantile(np.concatenate(places), (0.025, 0.975), method="closest_observation")
    return min(int(least), at), max(int(most), at)


def _share_out(intervals: int) -> Iterator[int]:
    """Divide all draws into pieces that need little memory."""
    piece = max(1, _MOST_CELLS // intervals)
    yield from (min(piece, _DRAWS - begin) for begin in range(0, _DRAWS, piece))


class Change(Struct, frozen=True, kw_only=True):
    """How one row differs between two datasets."""

    name: str
    rpcs_before: int
    rpcs: int
    before_ns: int | None
    """Mean time per RPC; None without RPCs."""
    after_ns: int | None
    p99_before_ns: int | None
    p99_ns: int | None
    cause: str | None
    """The cause whose time per RPC changed most."""
    cause_ns: int | None
    """Change of that cause's time per RPC."""


class FindingChange(Struct, frozen=True, kw_only=True):
    """How the findings of one id differ between two datasets."""

    id: str
    findings_before: int
    findings: int
    lost_before_ns: int
    lost_ns: int
