"""Find the moment at which the time per RPC changed most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ...analyzer.model.budget import CAUSES

FACTOR = 1.5
"""Smallest change reported, as a factor (heuristic: users ask about changes of this size)."""
LEAST_RPCS = 20
"""Fewest RPCs on each side of a change."""
_LEAST_EXPLAINED = 0.5
"""Least share of the variation between intervals that one change must explain; otherwise the time only fluctuates."""


class Since(Struct, frozen=True):
    """A change of the mean time per RPC."""

    time_ns: int
    """Start of the first interval after the change."""
    before_ns: int
    """Per RPC."""
    after_ns: int
    cause: str
    """The cause that changed most."""


def since(history: Sequence[tuple[int, int, Mapping[str, int]]]) -> Since | None:
    """Find the change in a history of intervals (start, RPCs, budget); None if no single change explains it."""
    if len(history) < 2:
        return None
    rpcs = np.array([row[1] for row in history], dtype=float)
    causes = np.array([[row[2].get(cause) or 0 for cause in CAUSES] for row in history], dtype=float)
    times = causes.sum(axis=1)
    mean = times.sum() / rpcs.sum()
    variation = float((rpcs * (times / rpcs - mean) ** 2).sum())
    before = np.cumsum(rpcs)[:-1]
    after = rpcs.sum() - before
    first, second = np.cumsum(times)[:-1] / before, (times.sum() - np.cumsum(times)[:-1]) / after
    explained = before * (first - mean) ** 2 + after * (second - mean) ** 2
    explained[(before < LEAST_RPCS) | (after < LEAST_RPCS)] = -1
    at = int(explained.argmax())
    low, high = sorted((first[at], second[at]))
    if explained[at] < 0 or explained[at] < _LEAST_EXPLAINED * variation or high < FACTOR * max(low, 1):
        return None
    changed = causes[at + 1 :].sum(axis=0) / after[at] - causes[: at + 1].sum(axis=0) / before[at]
    cause = CAUSES[int(np.argmax(changed if second[at] > first[at] else -changed))]
    return Since(int(history[at + 1][0]), round(first[at]), round(second[at]), cause)


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
