"""Shared by the detectors of stalls: the blocked intervals of one cause, whom they blocked, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import size
from ..tables import WINDOW_NOT_KNOWN, Counts, Ints, Tables
from ..tables.durations import total_ns
from . import _shared

INITIAL_SEGMENTS = 10
"""Segments that a new connection may send before the first ACK (RFC 6928; TCP_INIT_CWND of Linux)."""

_MANY = 10_000
"""Blocked intervals from which methods are named by connection and no longer by stream."""

_UNREAD = 0.5
"""Share of a window that a prompt reader may have received and not given back (nghttp2 sends a WINDOW_UPDATE when half
of the window was read, nghttp2_should_send_window_update; other libraries sooner)."""


class Thresholds(Protocol):
    """The limits that every detector of stalls has."""

    @property
    def warning_share(self) -> float:
        """A warning from this share of RPC time."""

    @property
    def critical_share(self) -> float:
        """Critical from this share of RPC time."""

    @property
    def examples(self) -> int:
        """Blocked intervals shown as evidence."""


class ReaderThresholds(Thresholds, Protocol):
    """The limits of detectors that distinguish a small window from a slow reader."""

    @property
    def late_round_trips(self) -> float:
        """Round trips after which a WINDOW_UPDATE or ACK is late."""

    @property
    def late_least_ns(self) -> int:
        """Extra time that a prompt reader may take."""


class Stalls(Struct, frozen=True, eq=False):
    """The blocked intervals of one cause."""

    rows: Ints
    """Rows of the waits table."""
    lost_ns: int
    """RPC time they took, summed over the RPCs that waited."""
    share: float
    """`lost_ns` as a share of all RPC time."""
    ends: tuple[tuple[int, int, int, int], ...]
    """(connection, direction, intervals, nanoseconds) of each blocked sender, the one blocked longest first."""

    @property
    def first(self) -> tuple[int, int]:
        """Return the connection and direction that were blocked longest."""
        return self.ends[0][:2]


def find_stalls(tables: Tables, cause: str) -> Stalls | None:
    """Find the blocked intervals of a cause; None when there are none, or when they cost no RPC any time."""
    number = CAUSES.index(cause)
    rows = np.flatnonzero(tables.waits.cause == number)
    if not len(rows):
        return None
    ends = sum_by_end(tables, rows)
    connections = sorted({connection for connection, *_ in ends})
    lost = min(total_ns(tables.connection_budgets[connections, number]), _shared.rpc_time(tables))
    return Stalls(rows, lost, _shared.share_of_time(tables, lost), ends) if lost > 0 else None


def sum_by_end(tables: Tables, rows: Ints) -> tuple[tuple[int, int, int, int], ...]:
    waits = tables.waits
    keys, place, counts = np.unique(
        waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows], return_inverse=True, return_counts=True
    )
    time = np.zeros(len(keys), dtype=np.int64)
    np.add.at(time, place, waits.duration_ns[rows])
    order = np.argsort(-time, kind="stable")
    return tuple((int(keys[i]) // 2, int(keys[i]) % 2, int(counts[i]), int(time[i])) for i in order)


def rate_confidence(tables: Tables, rows: Ints) -> Confidence:
    """Rate the confidence: high where the capture was taken at the blocked senders and lacks nothing."""
    waits = tables.waits
    directions = waits.direction[rows].astype(np.int64)
    near = _shared.senders_are_near(tables, waits.connection[rows], directions, waits.rtt_ns[rows])
    return _shared.lower(_shared.quality_allows(tables), "high" if near else "medium")


def find_scope(tables: Tables, rows: Ints) -> Scope:
    """Name the connections of some blocked intervals and the methods of the RPCs that waited."""
    waits = tables.waits
    return make_scope(tables, waits.connection[rows], waits.method[rows])


def make_scope(tables: Tables, connections: Counts, methods: Counts) -> Scope:
    """Make a scope of connections and methods by number, each once."""
    methods_of = _shared.names(tables, _shared.distinct(methods).tolist())
    return Scope(tuple(_shared.distinct(connections).tolist()), methods_of)


def measure(tables: Tables, stalls: Stalls) -> dict[str, int | float | str]:
    """Give number and length of the blocked intervals, and the bytes in flight."""
    waits, rows = tables.waits, stalls.rows
    known = waits.rtt_ns[rows] >= 0
    in_flight = waits.in_flight_bytes[rows][waits.in_flight_bytes[rows] >= 0]
    return {
        "waits": len(rows),
        "wait_ns": total_ns(waits.duration_ns[rows]),
        "median_wait_ns": int(np.median(waits.duration_ns[rows])),
        "longest_wait_ns": int(waits.duration_ns[rows].max()),
        "round_trip_ns": int(np.median(waits.rtt_ns[rows][known])) if known.any() else -1,
        **({"bytes_in_flight_at_stop": int(np.median(in_flight))} if len(in_flight) else {}),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[rows].astype(np.int64))),
        "waits_of_clients": int((waits.direction[rows] == 0).sum()),
        "waits_of_servers": int((waits.direction[rows] == 1).sum()),
    }


def sort_longest(tables: Tables, rows: Ints, count: int) -> list[int]:
    """Return the rows of the longest blocked intervals, in the order of time."""
    order = np.argsort(-tables.waits.duration_ns[rows], kind="stable")[: max(1, count)]
    return sorted(rows[order].tolist(), key=lambda row: int(tables.waits.start_time_ns[row]))


def show_interval(tables: Tables, row: int, stopped: str, released: str, resumed: str) -> Iterator[Evidence]:
    """Yield the packets of one blocked interval; the one that ended it only where it was captured."""
    waits = tables.waits
    start, duration = int(waits.start_time_ns[row]), int(waits.duration_ns[row])
    yield Evidence(int(waits.stopped_at_packet[row]), start, stopped)
    if waits.released_by_packet[row] and int(waits.released_time_ns[row]) >= start:
        yield Evidence(int(waits.released_by_packet[row]), int(waits.released_time_ns[row]), released)
    yield Evidence(int(waits.resumed_at_packet[row]), start + duration, resumed)


def format_count(number: int, one: str, many: str) -> str:
    """Format a number with its noun: `1 message`, `1,000 messages`."""
    return f"{number:,} {one if number == 1 else many}"


def describe_owed(tables: Tables, row: int) -> str:
    """Say what was still to come when the sender stopped."""
    left = int(tables.waits.owed_bytes[row])
    return f"{left:,} bytes of the message" if left else "the frame that ends the stream"


def format_times(number: int) -> str:
    """Format a number of times: `once`, `12 times`."""
    return "once" if number == 1 else f"{number:,} times"


def list_blocked(tables: Tables, stalls: Stalls, shown: int = 3) -> str:
    """Say who was blocked, how often and how long, connection by connection."""
    parts = [
        f"{_shared.host(tables, connection, direction)} on connection {connection}: {format_times(count)}, "
        f"{_shared.milliseconds(time)}"
        for connection, direction, count, time in stalls.ends[:shown]
    ]
    rest = len(stalls.ends) - shown
    return "; ".join(parts) + (f"; and {rest:,} more" if rest > 0 else "")


def mark_initial_window(tables: Tables, rows: Ints) -> npt.NDArray[np.bool_]:
    """Mark blocked intervals in flights whose congestion window had never been above the initial one."""
    waits = tables.waits
    return (waits.mss[rows] > 0) & (
        waits.window_before_idle_bytes[rows] <= INITIAL_SEGMENTS * waits.mss[rows].astype(np.int64)
    )


# Congestion windows after idle time


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
        every = find_restarts(tables.before.tables)
        return Restarts(**{name: getattr(every, name)[tables.before.waits] for name in every.__struct_fields__})
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


# Windows that a receiver opens: the two of HTTP/2 and TCP's


class Window(Struct, frozen=True, eq=False):
    """A flow-control or TCP window, and the words for it."""

    id: str
    """The finding's id."""
    cause: str
    """The cause of its blocked intervals."""
    name: str
    """Such as `the HTTP/2 stream window`."""
    opened_by: str
    """What opens it."""
    enlarge: str
    """The imperative to use when it is too small; {reader} is replaced by the host."""
    remedies: Callable[[str | None, int], tuple[Remedy, ...]]
    """Returns the settings of the end that sends in a direction, by its implementation."""
    references: tuple[str, ...]


def detect_window(tables: Tables, limits: ReaderThresholds, window: Window) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders blocked by a window, or why some could not be judged."""
    waits = tables.waits
    if not len(waits.cause):
        return
    stalls = find_stalls(tables, window.cause)
    if stalls:
        yield _make_finding(tables, limits, window, stalls)
    unexplained = waits.cause == CAUSES.index("unexplained")
    late = unexplained & (tables.connections.complete[waits.connection] == 0)
    if late.any():
        yield Skipped(
            window.id,
            f"{format_count(int(late.sum()), 'blocked interval is', 'blocked intervals are')} on connections that "
            f"began before the capture, so {window.name} is unknown",
        )


class _Reading(Struct, frozen=True, eq=False):
    """How fast a window was given back, and how fast it could have been."""

    size_bytes: int
    """Size of the window at the stops, the smallest: a receiver may enlarge it."""
    unread_bytes: int | None
    """Bytes that the reader had acknowledged and not given back at a stop, median; None where not known."""
    carries: float
    """Bytes per second that one window per round trip carries."""
    rate: float
    """Bytes per second of the messages that were sent."""

    @property
    def is_slow(self) -> bool:
        """Say whether the reader left most of the window unread, and the window would have carried more."""
        unread = self.unread_bytes or 0
        return unread > _UNREAD * self.size_bytes and 0 < self.rate < _UNREAD * self.carries


class _Words(Struct, frozen=True, eq=False):
    """Words that several texts of a window's finding share."""

    blocked: str
    reader: str
    slow_reader: bool | None
    why: str
    first_step: str
    reading: _Reading | None = None


def _make_finding(tables: Tables, limits: ReaderThresholds, window: Window, stalls: Stalls) -> Finding:
    words = _choose_words(tables, limits, window, stalls)
    connection, direction = stalls.first
    total = _shared.milliseconds(stalls.lost_ns)
    late = bool((tables.connections.complete[tables.waits.connection[stalls.rows]] == 0).any())
    return Finding(
        id=window.id,
        title=f"{words.blocked} was blocked {format_times(len(stalls.rows))} by {window.name}",
        severity=_shared.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=_shared.lower(rate_confidence(tables, stalls.rows), "medium" if late else "high"),
        scope=find_scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=measure(tables, stalls)
        | {"late_credit_share": round(_measure_late_share(tables, limits, stalls.rows), 3)}
        | _list_figures(words.reading),
        evidence=tuple(
            item
            for row in sort_longest(tables, stalls.rows, limits.examples)
            for item in _show_interval(tables, window, row)
        ),
        explanation=(
            f"{words.blocked} stopped inside messages because {window.name} of {words.reader} was used up. It resumed "
            f"with the next {window.opened_by} ({list_blocked(tables, stalls)}). {words.why} "
            f"The RPCs that waited lost {total} in total.{_PROVED if late else ''}"
        ),
        remedies=_list_remedies(tables, window, words, connection, direction),
        references=window.references,
        verdict=(
            f"{words.blocked} was blocked by {window.name} for {total} ({stalls.share:.0%} of RPC time): "
            f"{words.first_step}."
        ),
    )


_PROVED = (
    " WINDOW_UPDATEs before the capture are not in it. The sender proves that the window was used up: it stops each "
    "time at the same number of bytes granted less bytes sent, to the byte, while the stream window differs."
)


def _measure_late_share(tables: Tables, limits: ReaderThresholds, rows: Ints) -> float:
    """Return the share of the blocked time in intervals that are longer than a prompt reader needs."""
    waits = tables.waits
    duration, rtt = waits.duration_ns[rows], waits.rtt_ns[rows]
    late = (rtt >= 0) & (duration > limits.late_round_trips * rtt + limits.late_least_ns)
    return float(duration[late].sum() / max(1, int(duration.sum())))


def _measure_reading(tables: Tables, window: Window, stalls: Stalls, round_trip_ns: int) -> _Reading | None:
    """Measure how a reader gives back the window that blocked longest; None where the window's size is not known."""
    waits, directions = tables.waits, tables.directions
    connection, direction = stalls.first
    rows = stalls.rows[(waits.connection[stalls.rows] == connection) & (waits.direction[stalls.rows] == direction)]
    sizes = getattr(waits, f"{window.cause}_size_bytes", None)
    if sizes is None or round_trip_ns <= 0 or not len(rows := rows[sizes[rows] >= 0]):
        return None
    of_window = int(sizes[rows].min())
    known = rows[waits.in_flight_bytes[rows] >= 0]
    unread = of_window - np.maximum(getattr(waits, f"{window.cause}_bytes")[known], 0) - waits.in_flight_bytes[known]
    end = 2 * connection + direction
    span = int(directions.last_message_time_ns[end] - directions.first_message_time_ns[end])
    return _Reading(
        size_bytes=of_window,
        unread_bytes=max(0, int(np.median(unread))) if len(known) else None,
        carries=of_window * 1e9 / round_trip_ns,
        rate=int(directions.message_bytes[end]) * 1e9 / span if span > 0 else 0.0,
    )


def _list_figures(reading: _Reading | None) -> dict[str, int]:
    if reading is None:
        return {}
    unread = {} if reading.unread_bytes is None else {"unread_bytes_at_stop": reading.unread_bytes}
    return {"window_size_bytes": reading.size_bytes, "window_carries_bytes_per_s": round(reading.carries)} | unread


def _are_both_shut(tables: Tables, window: Window, rows: Ints) -> bool:
    """Check whether stream and connection window both had no room for more than half of the blocked time."""
    waits = tables.waits
    if window.cause not in ("stream_window", "connection_window"):
        return False
    least = np.maximum(1, np.minimum(waits.owed_bytes[rows].astype(np.int64), waits.mss[rows]))
    left = (waits.stream_window_bytes[rows], waits.connection_window_bytes[rows])
    both = np.logical_and(*((window < least) & (window != WINDOW_NOT_KNOWN) for window in left))
    return bool(2 * waits.duration_ns[rows][both].sum() > waits.duration_ns[rows].sum())


_BOTH = " The stream window and the connection window were both used up: to enlarge one alone will not help."


def _choose_words(tables: Tables, limits: ReaderThresholds, window: Window, stalls: Stalls) -> _Words:
    connection, direction = stalls.first
    blocked, reader = _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)
    figures = measure(tables, stalls)
    each, rtt = _shared.milliseconds(float(figures["median_wait_ns"])), int(figures["round_trip_ns"])
    if rtt < 0:
        why = "No round trip was measured, so the cause may be a small window or a slow reader."
        return _Words(blocked, reader, None, why, window.enlarge.format(reader=reader))
    trip = _shared.milliseconds(rtt)
    reading = _measure_reading(tables, window, stalls, rtt)
    if reading and reading.is_slow:
        longest = int(figures["longest_wait_ns"])
        if 2 * longest > int(figures["wait_ns"]):
            why = (
                f"{reader} had received {reading.unread_bytes:,} bytes of the window of {reading.size_bytes:,} and not "
                f"read them when {blocked} stopped (median). It read nothing for {_shared.milliseconds(longest)}, at a "
                f"round trip of {trip}. A larger window only buffers more."
            )
            step = f"the application on {reader} did not read for {_shared.milliseconds(longest)}; find out why"
            return _Words(blocked, reader, True, why, step, reading)
        rate, carries = f"{size(reading.rate)}/s", f"{size(reading.carries)}/s"
        why = (
            f"{reader} had received {reading.unread_bytes:,} bytes of the window of {reading.size_bytes:,} and not "
            f"read them when {blocked} stopped (median). The application there reads slowly: {rate}; this window "
            f"carries {carries} at a round trip of {trip}. A larger window only buffers more."
        )
        step = f"the application on {reader} reads slowly, {rate} where the window carries {carries}"
        return _Words(blocked, reader, True, why, step, reading)
    if _measure_late_share(tables, limits, stalls.rows) >= 0.5:
        why = (
            f"The median wait for the {window.opened_by} was {each}, longer than the round trip of {trip}: {reader} "
            "was slow to read, or the network queued packets. A larger window only buffers more."
        )
        step = f"the application on {reader} reads slowly; make it read sooner"
        return _Words(blocked, reader, True, why, step, reading)
    both = _are_both_shut(tables, window, stalls.rows)
    known = f"The window of {reading.size_bytes:,} bytes" if reading else "The window"
    in_flight = figures.get("bytes_in_flight_at_stop")
    seen = "" if in_flight is None else f" ({in_flight:,} bytes were in flight at a stop)"
    why = (
        f"The median wait for the {window.opened_by} was {each}, at a round trip of {trip}: {reader} sent it promptly. "
        f"{known} is too small for this round trip{seen}.{_BOTH if both else ''}"
    )
    enlarge = _ENLARGE_BOTH if both else window.enlarge
    return _Words(blocked, reader, False, why, enlarge.format(reader=reader), reading)


_ENLARGE_BOTH = "enlarge stream and connection window on {reader}, or leave both unset where they adapt"


def _show_interval(tables: Tables, window: Window, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    blocked = _shared.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    waited = _shared.milliseconds(int(waits.duration_ns[row]))
    after = _shared.milliseconds(int(waits.start_time_ns[row] + waits.duration_ns[row] - waits.released_time_ns[row]))
    yield from show_interval(
        tables,
        row,
        f"{blocked} stops with {describe_owed(tables, row)} still to send{_describe_in_flight(tables, row)}: "
        f"{_describe_window(tables, window, row)}",
        f"the last packet that {blocked} received before it resumed; the {window.opened_by} has arrived by then",
        f"{blocked} resumes {after} after that packet, {waited} after the stop"
        if waits.released_by_packet[row]
        else f"{blocked} resumes {waited} after the stop",
    )


def _describe_in_flight(tables: Tables, row: int) -> str:
    in_flight = int(tables.waits.in_flight_bytes[row])
    return f" and {in_flight:,} bytes in flight" if in_flight >= 0 else ""


def _describe_window(tables: Tables, window: Window, row: int) -> str:
    value = int(getattr(tables.waits, f"{window.cause}_bytes")[row])
    return f"{window.name} is {value:,} bytes"


def _list_remedies(
    tables: Tables, window: Window, words: _Words, connection: int, direction: int
) -> tuple[Remedy, ...]:
    reading = Remedy(
        "application",
        "read messages as they come",
        f"on {words.reader}: the window opens when the application has read; hand slow work to other threads",
    )
    seen = _shared.implementation(tables, connection, 1 - direction)
    settings = window.remedies(seen, 1 - direction)
    return (reading, *settings) if words.slow_reader else (*settings, reading)
