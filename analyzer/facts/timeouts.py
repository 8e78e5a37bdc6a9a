"""Whether one timer ended RPCs: they lasted equally long."""

import numpy as np
from msgspec import Struct

from ..tables import Counts, Tables

SAME_TIME = 0.05
"""Spread of times, by their median, up to which one timer made them (heuristic: 5 %)."""
APART = 3.0
"""How many times wider the ends must spread (heuristic: not one common stop)."""


class OneTimer(Struct, frozen=True, eq=False):
    """When RPCs that somebody gave up were ended by one timer."""

    same_time: float = SAME_TIME
    """A timer is assumed up to this spread of the middle four fifths of durations, by their median (heuristic: 5 %)."""
    timer_ns: int = 10_000_000
    """Shortest median duration for which a timer is reported (heuristic: shorter ones are alike by chance)."""
    timer_rpcs: int = 5
    """Fewest RPCs for which a timer is reported (heuristic: fewer may be alike by chance)."""
    apart: float = APART
    """The ends must spread this many times wider than the durations (heuristic: not one common stop)."""


def is_one_timer(tables: Tables, rpc: Counts, limits: OneTimer) -> bool:
    """Check whether RPCs lasted equally long but ended apart; calls begun and stopped together do not count.

    The first calls of a connection may have waited for it: their timers began before their first packet.
    """
    first = np.full(len(tables.connections.rpcs), np.iinfo(np.int64).max)
    np.minimum.at(first, tables.rpcs.connection, tables.rpcs.start_time_ns)
    later = rpc[tables.rpcs.start_time_ns[rpc] > first[tables.rpcs.connection[rpc]]]
    rpc = later if len(later) >= limits.timer_rpcs else rpc
    if len(rpc) < limits.timer_rpcs:
        return False
    durations = tables.rpcs.duration_ns[rpc]
    low, median, high = (float(value) for value in np.quantile(durations, (0.1, 0.5, 0.9)))
    first, last = np.quantile(tables.rpcs.start_time_ns[rpc] + durations, (0.1, 0.9))
    alike = median >= limits.timer_ns and high - low <= limits.same_time * median
    return bool(alike and last - first >= limits.apart * max(high - low, limits.timer_ns))
