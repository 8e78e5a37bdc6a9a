"""Shared by the detectors of stalls: the blocked intervals of one cause, whom they blocked, what they cost."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.finding import Confidence, Evidence, Scope
from ..model.text import duration, format_times
from ..model.thresholds import CRITICAL_SHARE, NOTABLE_SHARE
from ..tables import Counts, Ints, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct, group_rows
from . import hosts, ratings, vantage
from .methods import names, rpc_time, share_of_time


class TimeLimits(Struct, frozen=True, eq=False):
    """From which share of RPC time a finding matters."""

    warning_share: float = NOTABLE_SHARE
    """A warning from this share of RPC time lost (heuristic: above the variation between equal runs)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time lost (heuristic: a fifth of all RPC time)."""


class Stalls(Struct, frozen=True, eq=False):
    """The blocked intervals of one cause."""

    rows: Ints
    """Rows of the waits table."""
    lost_ns: int
    """RPC time they took, summed over the RPCs that waited."""
    share: float
    """`lost_ns` as a share of all RPC time."""
    ends: tuple[tuple[int, int, int, int], ...]
    """(connection, direction, intervals, nanoseconds) of each blocked sender, the one blocked longest first: those of
    the side that was blocked longer before those of the other one."""

    @property
    def first(self) -> tuple[int, int]:
        """Return the connection that was blocked longest, of the direction that was."""
        return self.ends[0][:2]


def find_stalls(tables: Tables, cause: str) -> Stalls | None:
    """Find the blocked intervals of a cause; None when there are none, or when they cost no RPC any time."""
    return sum_up_stalls(tables, np.flatnonzero(tables.waits.cause == CAUSES.index(cause)), cause)


def split_by_hosts(tables: Tables, cause: str) -> list[Stalls]:
    """Find the blocked intervals of a cause between each two hosts, in both directions."""
    c, rows = tables.connections, np.flatnonzero(tables.waits.cause == CAUSES.index(cause))
    on = tables.waits.connection[rows]
    groups = group_rows(c.client_ip[on].astype(np.int64) << 32 | c.server_ip[on]).values()
    return [stalls for group in groups if (stalls := sum_up_stalls(tables, rows[group], cause))]


def sum_up_stalls(tables: Tables, rows: Ints, cause: str) -> Stalls | None:
    """Sum up blocked intervals of a cause; None when there are none, or when they cost no RPC any time."""
    number = CAUSES.index(cause)
    if not len(rows):
        return None
    ends = sum_by_end(tables, rows)
    connections = sorted({connection for connection, *_ in ends})
    lost = min(total_ns(tables.connection_budgets[connections, number]), rpc_time(tables))
    return Stalls(rows, lost, share_of_time(tables, lost), ends) if lost > 0 else None


def join_intervals(tables: Tables, rows: Ints) -> tuple[Ints, Ints]:
    """Join intervals between which a sender sent none of its message, as when it acknowledged a PING.

    Returns the row of each joined interval's first part, and its length in nanoseconds.
    """
    waits = tables.waits
    rows = rows[np.lexsort((waits.start_time_ns[rows], waits.direction[rows], waits.connection[rows]))]
    ends = waits.start_time_ns[rows] + waits.duration_ns[rows]
    goes_on = waits.start_time_ns[rows[1:]] == ends[:-1]
    for column in (waits.connection, waits.direction, waits.stream, waits.owed_bytes):
        goes_on &= column[rows[1:]] == column[rows[:-1]]
    first = np.flatnonzero(np.concatenate(([True], ~goes_on))[: len(rows)])
    return rows[first], np.add.reduceat(waits.duration_ns[rows], first) if len(rows) else rows


def sum_by_end(tables: Tables, rows: Ints) -> tuple[tuple[int, int, int, int], ...]:
    """Sum up blocked intervals by sender, as `Stalls.ends`."""
    waits = tables.waits
    rows, durations = join_intervals(tables, rows)
    keys, place, counts = np.unique(
        waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows], return_inverse=True, return_counts=True
    )
    time = np.zeros(len(keys), dtype=np.int64)
    np.add.at(time, place, durations)
    of_side = np.array([time[keys % 2 == side].sum() for side in (0, 1)])
    order = np.lexsort((-time, -of_side[keys % 2]))
    return tuple((int(keys[i]) // 2, int(keys[i]) % 2, int(counts[i]), int(time[i])) for i in order)


def rate_confidence(tables: Tables, rows: Ints) -> Confidence:
    """Rate the confidence: high where the capture was taken at the blocked senders and lacks nothing."""
    waits = tables.waits
    directions = waits.direction[rows].astype(np.int64)
    near = vantage.senders_are_near(tables, waits.connection[rows], directions, waits.rtt_ns[rows])
    return ratings.lower(ratings.quality_allows(tables), "high" if near else "medium")


def find_scope(tables: Tables, rows: Ints) -> Scope:
    """Name the connections of some blocked intervals and the methods of the RPCs that waited."""
    waits = tables.waits
    return make_scope(tables, waits.connection[rows], waits.method[rows])


def make_scope(tables: Tables, connections: Counts, methods: Counts) -> Scope:
    """Make a scope of connections and methods by number, each once."""
    methods_of = names(tables, distinct(methods).tolist())
    return Scope(tuple(distinct(connections).tolist()), methods_of)


def measure(tables: Tables, stalls: Stalls) -> dict[str, int | float | str]:
    """Give number and length of the blocked intervals, and the bytes in flight."""
    waits, (rows, durations) = tables.waits, join_intervals(tables, stalls.rows)
    known = waits.rtt_ns[rows] >= 0
    in_flight = waits.in_flight_bytes[rows][waits.in_flight_bytes[rows] >= 0]
    return {
        "waits": len(rows),
        "wait_ns": total_ns(durations),
        "median_wait_ns": int(np.median(durations)),
        "longest_wait_ns": int(durations.max()),
        "round_trip_ns": int(np.median(waits.rtt_ns[rows][known])) if known.any() else -1,
        **({"bytes_in_flight_at_stop": int(np.median(in_flight))} if len(in_flight) else {}),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[rows].astype(np.int64))),
        "waits_of_clients": int((waits.direction[rows] == 0).sum()),
        "waits_of_servers": int((waits.direction[rows] == 1).sum()),
    }


def sort_longest(tables: Tables, rows: Ints) -> list[int]:
    """Return the rows of the longest blocked intervals, of different hosts if there are, in the order of time."""
    waits, longest = tables.waits, rows[np.argsort(-tables.waits.duration_ns[rows], kind="stable")]
    shown = longest[hosts.pick_apart(tables, waits.connection[longest])]
    return sorted(shown.tolist(), key=lambda row: int(waits.start_time_ns[row]))


def is_release_shown(tables: Tables, row: int) -> bool:
    """Tell whether the packet that ended an interval was captured in it; elsewhere it may precede the stop."""
    waits = tables.waits
    return bool(waits.released_by_packet[row]) and int(waits.released_time_ns[row]) >= int(waits.start_time_ns[row])


def show_interval(tables: Tables, row: int, stopped: str, released: str, resumed: str) -> Iterator[Evidence]:
    """Yield the packets of one blocked interval; the one that ended it only where it was captured."""
    waits = tables.waits
    start, duration = int(waits.start_time_ns[row]), int(waits.duration_ns[row])
    yield Evidence(int(waits.stopped_at_packet[row]), int(waits.stopped_time_ns[row]), stopped)
    if is_release_shown(tables, row):
        yield Evidence(int(waits.released_by_packet[row]), int(waits.released_time_ns[row]), released)
    yield Evidence(int(waits.resumed_at_packet[row]), start + duration, resumed)


def describe_owed(tables: Tables, row: int) -> str:
    """Say what was still to come when the sender stopped."""
    left = int(tables.waits.owed_bytes[row])
    return f"{left:,} bytes of the message" if left else "the frame that ends the stream"


def name_ends(tables: Tables, stalls: Stalls) -> tuple[str, str]:
    """Name the hosts of the side that was blocked longer, and those at the other end."""
    _, direction = stalls.first
    on = [end[0] for end in stalls.ends if end[1] == direction]
    return hosts.name_hosts(tables, on, direction), hosts.name_hosts(tables, on, 1 - direction)


def count_times(tables: Tables, stalls: Stalls) -> str:
    """Say how often the side was blocked that was blocked longer, and how often the other one."""
    mine = sum(count for _, direction, count, _ in stalls.ends if direction == stalls.first[1])
    others = [end for end in stalls.ends if end[1] != stalls.first[1]]
    if not others:
        return format_times(mine)
    theirs = sum(count for _, _, count, _ in others)
    other = f"{hosts.name_hosts(tables, [end[0] for end in others], others[0][1])} {format_times(theirs)}"
    return f"{format_times(mine)} (and {other})"


def list_blocked(tables: Tables, stalls: Stalls, shown: int = 3) -> str:
    """Say who was blocked, how often and how long, connection by connection."""
    parts = [
        f"{hosts.host(tables, connection, direction)} on connection {connection}: {format_times(count)}, "
        f"{duration(time)}"
        for connection, direction, count, time in stalls.ends[:shown]
    ]
    rest = len(stalls.ends) - shown
    return "; ".join(parts) + (f"; and {rest:,} more" if rest > 0 else "")
