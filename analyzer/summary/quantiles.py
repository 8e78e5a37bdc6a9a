"""Quantiles of durations, as the core counts them: nearest ranks, and ranks between which a quantile lies."""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..model.quantiles import Quantiles
from ..tables.durations import Interval, total_ns

Durations = npt.NDArray[np.int64]

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
"""The quantiles that reports give."""

_TAIL = 0.025
"""The chance that is left to each end."""


def quantiles_of(durations: Durations, *, reached: bool = False) -> dict[str, int] | None:
    """Exact quantiles by nearest rank with count, min, max and mean, nanoseconds; None without any.

    If `reached`, a quantile is what the longest of them reach: p99 is the shortest of the longest 1 %. Both differ by
    one rank where the share of the count is a whole number.
    """
    count = len(durations)
    if not count:
        return None
    ordered = np.sort(durations)
    ranks = {name: share * count for name, share in QUANTILES.items()}
    found = {name: int(ordered[math.floor(rank) if reached else math.ceil(rank) - 1]) for name, rank in ranks.items()}
    mean = total_ns(durations) // count
    return {"count": count, "min": int(ordered[0]), **found, "max": int(ordered[-1]), "mean": mean}


def make_quantiles(found: Mapping[str, int] | None) -> Quantiles | None:
    """Take the quantiles that reports show from those found."""
    return Quantiles(**{name: found[name] for name in Quantiles.__struct_fields__}) if found else None


def interval_of(durations: Durations) -> dict[str, Interval] | None:
    """Give the bounds between which each quantile lies with 95 % confidence, nanoseconds; None for an open end.

    As many values lie below a quantile as a binomial distribution says (David and Nagaraja, Order Statistics, section
    7.1).
    """
    count = len(durations)
    if not count:
        return None
    ordered = np.sort(durations)

    def value(rank: int | None) -> int | None:
        return None if rank is None else int(ordered[rank - 1])

    found: dict[str, Interval] = {}
    for name, share in QUANTILES.items():
        high = _lower_rank(1 - share, count)
        found[name] = (value(_lower_rank(share, count)), value(None if high is None else count + 1 - high))
    return found


@lru_cache(maxsize=4_096)
def _lower_rank(share: float, count: int) -> int | None:
    """Find the largest rank for which the chance that fewer values lie below the quantile is at most `_TAIL`."""
    below = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((count - below[:-1]) / below[1:] * (share / (1 - share))))])
    chances = np.exp(logs - logs.max())
    at_most = np.cumsum(chances / chances.sum())  # the chance that so many or fewer lie below
    rank = int(np.searchsorted(at_most, _TAIL, side="right"))
    return rank if rank > 0 else None
