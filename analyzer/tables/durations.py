"""Sum nanoseconds without overflow: a sum beyond signed 64 bits (292 years) becomes the largest value.

A damaged clock can put times of a capture centuries apart, and every RPC counts the time between. Tables, Parquet and
traces have 64 bits: a sum that wraps around would be wrong, even negative.
"""

from typing import Annotated, Any

import numpy.typing as npt
from msgspec import Meta

MOST_NS = (1 << 63) - 1
"""The longest time that is reported."""

Count = Annotated[int, Meta(ge=0)]
"""A number of things, bytes or nanoseconds."""

Interval = tuple[Count | None, Count | None]
"""Two durations between which a quantile lies, nanoseconds; None for an end that the samples do not bound."""


def clip_ns(nanoseconds: int) -> int:
    """Limit a sum of Python integers, which have no size limit."""
    return max(-MOST_NS, min(nanoseconds, MOST_NS))


def total_ns(durations: npt.NDArray[Any]) -> int:
    """Add up one or several columns of durations."""
    if not durations.size:
        return 0
    farthest = max(abs(int(durations.max())), abs(int(durations.min())))
    if farthest * durations.size <= MOST_NS:  # then no partial sum exceeds 64 bits
        return int(durations.sum())
    return clip_ns(sum(durations.reshape(-1).tolist()))


def totals_ns(rows: npt.NDArray[Any]) -> tuple[int, ...]:
    """Add up each column of a table of durations."""
    if not rows.size or max(abs(int(rows.max())), abs(int(rows.min()))) * len(rows) <= MOST_NS:
        return tuple(rows.sum(axis=0).tolist())
    return tuple(total_ns(rows[:, column]) for column in range(rows.shape[1]))
