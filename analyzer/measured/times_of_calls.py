"""Divide the time of each call: before its first byte, on the wire, between attempts, after its last byte."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints, Tables
from .join import Joined


class CallTimes(Struct, eq=False):
    """Times of the calls that have an RPC, in nanoseconds; a row per call."""

    number: Ints
    """Number of the call."""
    first: Ints
    """Row of the first RPC."""
    before: Ints
    on_wire: Ints
    between: Ints
    after: Ints
    ended: npt.NDArray[np.bool_]
    """Whether the ends of all its RPCs were seen; otherwise only `before` is known."""
    attempts: Ints


def divide(joined: Joined) -> CallTimes:
    """Divide the time of calls. No part is negative, though RPCs may exceed calls that are cancelled or rounded."""
    wire = joined.wire
    number = np.flatnonzero(joined.how)
    rows = [joined.rows[one] for one in number.tolist()]
    attempts = np.array([len(some) for some in rows], dtype=np.int64)
    first = np.array([some[0] for some in rows], dtype=np.int64)
    start, end = joined.start[number], joined.end[number]
    last_end, ended, between = wire.end[first], wire.ended[first] == 1, np.zeros(len(number), dtype=np.int64)
    for one in np.flatnonzero(attempts > 1).tolist():
        last_end[one] = wire.end[rows[one]].max()
        ended[one] = wire.ended[rows[one]].all()
        done = np.maximum.accumulate(wire.end[rows[one]])[:-1]
        between[one] = int(np.maximum(wire.start[rows[one]][1:] - done, 0).sum())
    begun = np.maximum(wire.start[first], start)
    until = np.maximum(np.minimum(last_end, end), begun)
    return CallTimes(
        number=number,
        first=first,
        before=begun - start,
        on_wire=np.maximum(until - begun - between, 0),
        between=between,
        after=np.maximum(end - until, 0),
        ended=ended,
        attempts=attempts,
    )


class Opening(Struct, eq=False):
    """Cumulated time for which a connection had as many streams open as its server allows, by time `at`."""

    at: Ints
    full: Ints

    def measure(self, since: Ints, until: Ints) -> Ints:
        """Measure this time in each interval, in nanoseconds."""
        times = self.at - self.at[0]
        before, after = (np.interp(ends - self.at[0], times, self.full) for ends in (since, until))
        return np.asarray(np.maximum(np.rint(after - before), 0).astype(np.int64))


def measure_full(tables: Tables, joined: Joined, connection: int, limit: int) -> Opening | None:
    """Find when a connection had `limit` RPCs open; None without RPCs or limit."""
    rows = np.flatnonzero(tables.rpcs.connection == connection)
    if not len(rows) or limit <= 0:
        return None
    at = np.concatenate([joined.wire.start[rows], joined.wire.end[rows]])
    step = np.repeat([1, -1], len(rows))
    order = np.lexsort((step, at))  # an end before a begin at the same time
    at, is_open = at[order], np.cumsum(step[order])
    full = np.append(0, np.cumsum(np.diff(at) * (is_open[:-1] >= limit)))
    return Opening(at, full)
