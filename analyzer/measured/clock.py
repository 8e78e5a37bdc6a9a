"""Bound the offset between a client's clock and the capture's: a call begins before its RPC and ends after it."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints

_QUARTER_HOUR = 900 * 1_000_000_000
"""Nanoseconds; time zones differ by multiples of it."""


class Bounds(Struct, frozen=True):
    """Bounds of the capture's clock less the client's, in nanoseconds."""

    least: int
    most: int

    def choose(self) -> int:
        """Choose no offset if the bounds allow it, otherwise their middle."""
        return 0 if self.least <= 0 <= self.most else self.choose_middle()

    def choose_middle(self) -> int:
        """Choose the middle of the bounds."""
        return (self.least + self.most) // 2


def bound(call_start: Ints, call_end: Ints, start: Ints, end: Ints, answered: npt.NDArray[np.bool_]) -> Bounds | None:
    """Bound the offset by pairs of calls and RPCs, by ends only where a response ended the RPC; None without any."""
    if not len(start) or not answered.any():
        return None
    return Bounds(int((end - call_end)[answered].max()), int((start - call_start).min()))


def bound_without_pairs(call_start: Ints, call_end: Ints, start: Ints, end: Ints) -> Bounds | None:
    """Bound the offset by calls and RPCs that are the same ones; None if their numbers differ.

    In any pairing, the n-th start of a call is before the n-th start of an RPC, and the n-th end after the n-th end.
    """
    if not len(start) or len(start) != len(call_start):
        return None
    least, most = int((np.sort(end) - np.sort(call_end)).max()), int((np.sort(start) - np.sort(call_start)).min())
    return Bounds(least, most) if least <= most else None


def choose_zone(call_start: Ints, call_end: Ints, first: int, last: int) -> int:
    """Choose an offset, in nanoseconds, for times without a zone: whole quarters of an hour, nearest to the capture."""
    apart = (first + last) // 2 - (int(call_start.min()) + int(call_end.max())) // 2
    return round(apart / _QUARTER_HOUR) * _QUARTER_HOUR
