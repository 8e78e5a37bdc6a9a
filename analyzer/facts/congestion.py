"""Congestion windows of senders: the initial one, and what idle time leaves of a larger one."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.budget import CAUSES
from ..tables import Ints, Tables
from ..tables.grouping import take_rows

INITIAL_SEGMENTS = 10
"""Segments that a new connection may send before the first ACK (RFC 6928; TCP_INIT_CWND of Linux)."""


def mark_initial_window(tables: Tables, rows: Ints) -> npt.NDArray[np.bool_]:
    """Mark blocked intervals in flights whose congestion window had never been above the initial one."""
    waits = tables.waits
    return (waits.mss[rows] > 0) & (
        waits.window_before_idle_bytes[rows] <= INITIAL_SEGMENTS * waits.mss[rows].astype(np.int64)
    )


def mark_in_queues(tables: Tables) -> npt.NDArray[np.bool_]:
    """Mark blocked intervals in which the packets of the sender kept a queue behind the capture point."""
    waits, queues = tables.waits, tables.queues
    behind = np.flatnonzero(queues.behind == 1)
    ends = [
        table.connection[rows].astype(np.int64) * 2 + table.direction[rows]
        for table, rows in ((queues, behind), (waits, slice(None)))
    ]
    starts = np.r_[queues.start_time_ns[behind], waits.start_time_ns]
    is_wait = np.repeat([False, True], [len(behind), len(waits.cause)])
    end = np.concatenate(ends)
    order = np.lexsort((is_wait, starts, end))
    until = np.r_[queues.start_time_ns[behind] + queues.duration_ns[behind], waits.start_time_ns + waits.duration_ns]
    last = np.maximum.accumulate(np.where(is_wait[order], -1, np.arange(len(order))))  # the queue that began last
    queue = order[np.maximum(last, 0)]
    inside = (last >= 0) & (end[queue] == end[order]) & (until[queue] >= until[order])
    marks = np.zeros(len(order), dtype=bool)
    marks[order] = inside & is_wait[order]
    return marks[len(behind) :]


class Restarts(Struct, frozen=True, eq=False):
    """The idle time before the burst of each blocked interval; all columns are as long as the waits table."""

    idle_ns: Ints
    """Time before the burst in which the sender sent no data that filled a window."""
    window_bytes: Ints
    """The congestion window before that time."""
    small: npt.NDArray[np.bool_]
    """Whether small frames were sent in that time; they do not let a restarted window grow."""
    after_idle: npt.NDArray[np.bool_]
    """Whether the idle time was longer than the retransmission timeout and the window before above the initial one."""
    stops: npt.NDArray[np.bool_]
    """Whether the sender stopped, here or before in this burst, at what the restarted window allows, until the burst's
    first ACK could be there."""


LATE_ACK = 2.0
"""Round trips after which an ACK itself is late (heuristic: a congestion window frees after one)."""
_OF_WINDOW = 1.5
"""Most bytes in flight at a stop, in restarted windows (heuristic: small frames are sent in front)."""
_FIRST_ACK = 0.9
"""Share of a round trip after a burst's begin in which no ACK of it arrives (heuristic: clocks jitter)."""
_LEAST_WAIT = 0.25
"""Shortest wait for the first ACK, in round trips (heuristic: a paced first burst takes half of one)."""


def find_restarts(tables: Tables) -> Restarts:
    """Judge all blocked intervals. Linux halves the window once per timeout of idle time, down to the initial one.

    A sender that paces (BBR, which keeps its window) stops for less than a round trip, and with more in flight.
    """
    if tables.before:  # intervals of RPCs that are not selected came before some of these
        return take_rows(find_restarts(tables.before.tables), tables.before.waits)
    waits = tables.waits
    order, first, same_end = _sort_by_burst(tables)
    initial = INITIAL_SEGMENTS * waits.mss.astype(np.int64)
    grown, gap = _estimate_burst_before(tables, order, first, same_end)
    small = (waits.window_before_idle_bytes <= initial) & (waits.rto_ns > 0) & (gap > waits.rto_ns) & (grown > initial)
    if (
        tables.measured is not None
    ):  # where no small frame was late enough to restart the window, the kernel's value holds
        small &= ~(tables.measured.before_idle & (gap - waits.idle_before_ns <= waits.rto_ns))
    idle = np.where(small, gap, waits.idle_before_ns)
    window = np.where(small, grown, waits.window_before_idle_bytes)
    halvings = np.clip(idle // np.maximum(waits.rto_ns, 1), 0, 62)
    left = np.maximum(initial, window >> halvings)
    resumed = waits.start_time_ns + waits.duration_ns
    stop = (
        (waits.cause == CAUSES.index("congestion_window"))
        & (waits.in_flight_bytes <= _OF_WINDOW * left)
        & (resumed - waits.flight_start_time_ns >= _FIRST_ACK * waits.rtt_ns)
        & (waits.duration_ns >= _LEAST_WAIT * waits.rtt_ns)
    )
    stops = np.zeros(len(order), dtype=bool)
    stops[order] = np.maximum.accumulate(np.where(stop[order], np.arange(len(order)), -1)) >= first
    after_idle = (waits.mss > 0) & (waits.rto_ns > 0) & (idle > waits.rto_ns) & (window > initial)
    return Restarts(idle, window, small, after_idle, stops)


def _sort_by_burst(tables: Tables) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Sort the intervals by end, burst and time.

    Returns the order, for each place the first of its burst, and whether the same end had an interval before that.
    """
    waits = tables.waits
    ends = waits.connection.astype(np.int64) * 2 + waits.direction
    order = np.lexsort((waits.start_time_ns, waits.flight, ends))
    if not len(order):
        return order, order, np.zeros(0, dtype=bool)
    same_end = np.r_[False, ends[order][1:] == ends[order][:-1]]
    begins = ~same_end | np.r_[True, np.diff(waits.flight[order].astype(np.int64)) != 0]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    return order, first, same_end[first]


def _estimate_burst_before(
    tables: Tables, order: Ints, first: Ints, same_end: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Estimate the window that the same end had after its burst before, and the time since then; 0 without one.

    In slow start each acknowledged byte adds one byte, up to twice the bytes in flight (tcp_is_cwnd_limited).
    """
    waits = tables.waits
    last = order[np.maximum(first - 1, 0)]
    window, in_flight = waits.congestion_window_bytes[last], waits.in_flight_bytes[last]
    owed = np.minimum(waits.owed_bytes[last].astype(np.int64), 2 * window)
    slow_start = np.minimum(window + in_flight + owed, 2 * np.maximum(in_flight, owed))
    after = np.where(waits.cause[last] == CAUSES.index("congestion_window"), slow_start, window)
    known = same_end & (waits.cause[last] != CAUSES.index("loss_recovery"))
    grown, gap = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    grown[order] = np.where(known, after, 0)
    resumed = waits.start_time_ns[last] + waits.duration_ns[last]
    gap[order] = np.where(same_end, waits.flight_start_time_ns[order] - resumed, 0)
    return grown, gap
