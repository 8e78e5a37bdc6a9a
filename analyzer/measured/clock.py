"""How far the capture's clock is from that of a client: a call begins before its RPC and ends after it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints

_QUARTER_HOUR = 900 * 1_000_000_000
"""Time zones differ by multiples of it."""


class Bounds(Struct, frozen=True):
    """What the capture's clock less the client's is between."""

    least: int
    most: int

    def choose(self) -> int:
        """Choose none where that is possible, else the middle."""
        return 0 if self.least <= 0 <= self.most else self.choose_middle()

    def choose_middle(self) -> int:
        """Choose the middle."""
        return (self.least + self.most) // 2


def bound(call_start: Ints, call_end: Ints, start: Ints, end: Ints, answered: npt.NDArray[np.bool_]) -> Bounds | None:
    """Bound the difference by pairs of calls and RPCs; ends count where an answer ended the RPC."""
    if not len(start) or not answered.any():
        return None
    return Bounds(int((end - call_end)[answered].max()), int((start - call_start).min()))


def bound_without_pairs(call_start: Ints, call_end: Ints, start: Ints, end: Ints) -> Bounds | None:
    """Bound it where the calls are as many as the RPCs, and the same ones: whoever belongs to whom, the n-th begin of a
    call is before the n-th begin of an RPC, and so are the ends."""
    if not len(start) or len(start) != len(call_start):
        return None
    least, most = int((np.sort(end) - np.sort(call_end)).max()), int((np.sort(start) - np.sort(call_start)).min())
    return Bounds(least, most) if least <= most else None


def choose_zone(call_start: Ints, call_end: Ints, first: int, last: int) -> int:
    """Choose the time zone, in nanoseconds, of times without one: the quarter of an hour nearest to the capture."""
    apart = (first + last) // 2 - (int(call_start.min()) + int(call_end.max())) // 2
    return round(apart / _QUARTER_HOUR) * _QUARTER_HOUR
