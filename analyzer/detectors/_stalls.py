"""What the detectors of stalls have in common: the waits of one cause, whom they blocked, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..tables import Counts, Ints, Tables
from ..tables.durations import total_ns
from . import _shared

INITIAL_SEGMENTS = 10
"""Segments that a new connection may send before the first ACK (RFC 6928; TCP_INIT_CWND of Linux)."""

_MANY = 10_000
"""Waits from which on methods are named by connection and no longer by stream."""


class Thresholds(Protocol):
    """The limits that every detector of stalls has."""

    @property
    def warning_share(self) -> float:
        """Share of RPC time from which it is a warning."""

    @property
    def critical_share(self) -> float:
        """Share of RPC time from which it is critical."""

    @property
    def examples(self) -> int:
        """Waits shown as evidence."""


class ReaderThresholds(Thresholds, Protocol):
    """The limits of detectors that tell a small window from a slow reader."""

    @property
    def late_round_trips(self) -> float:
        """Round trips from which credit is late."""

    @property
    def late_least_ns(self) -> int:
        """Delay beyond them that a host is given."""


class Stalls(Struct, frozen=True, eq=False):
    """The waits of one cause."""

    rows: Ints
    """Rows of the waits table."""
    lost_ns: int
    """RPC time they took, each RPC that waited counted."""
    share: float
    """As a share of all RPC time."""
    ends: tuple[tuple[int, int, int, int], ...]
    """(connection, direction, waits, nanoseconds) of each end that stood still, the one that waited longest first."""

    @property
    def first(self) -> tuple[int, int]:
        """Connection and direction that waited longest."""
        return self.ends[0][:2]


def find(tables: Tables, cause: str) -> Stalls | None:
    """All waits of a cause; None when there are none, or when they cost no RPC any time."""
    number = CAUSES.index(cause)
    rows = np.flatnonzero(tables.waits.cause == number)
    if not len(rows):
        return None
    ends = _ends(tables, rows)
    connections = sorted({connection for connection, *_ in ends})
    lost = min(total_ns(tables.connection_budgets[connections, number]), _shared.rpc_time(tables))
    return Stalls(rows, lost, _shared.share_of_time(tables, lost), ends) if lost > 0 else None


def _ends(tables: Tables, rows: Ints) -> tuple[tuple[int, int, int, int], ...]:
    waits = tables.waits
    keys, place, counts = np.unique(
        waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows], return_inverse=True, return_counts=True
    )
    time = np.zeros(len(keys), dtype=np.int64)
    np.add.at(time, place, waits.duration_ns[rows])
    order = np.argsort(-time, kind="stable")
    return tuple((int(keys[i]) // 2, int(keys[i]) % 2, int(counts[i]), int(time[i])) for i in order)


def confidence(tables: Tables, rows: Ints) -> Confidence:
    """High where the capture was taken at those who stood still and lacks nothing."""
    waits = tables.waits
    directions = waits.direction[rows].astype(np.int64)
    near = _shared.senders_are_near(tables, waits.connection[rows], directions, waits.rtt_ns[rows])
    return _shared.lower(_shared.quality_allows(tables), "high" if near else "medium")


def scope(tables: Tables, rows: Ints) -> Scope:
    """The connections of some waits and the methods of the RPCs that waited."""
    waits = tables.waits
    return scope_of(tables, waits.connection[rows], waits.method[rows])


def scope_of(tables: Tables, connections: Counts, methods: Counts) -> Scope:
    """Some connections and methods by number, each once."""
    methods_of = _shared.names(tables, _shared.distinct(methods).tolist())
    return Scope(tuple(_shared.distinct(connections).tolist()), methods_of)


def metrics(tables: Tables, stalls: Stalls) -> dict[str, int | float | str]:
    """How often, how long, and what was on its way."""
    waits, rows = tables.waits, stalls.rows
    known = waits.rtt_ns[rows] >= 0
    return {
        "waits": len(rows),
        "wait_ns": total_ns(waits.duration_ns[rows]),
        "median_wait_ns": int(np.median(waits.duration_ns[rows])),
        "longest_wait_ns": int(waits.duration_ns[rows].max()),
        "round_trip_ns": int(np.median(waits.rtt_ns[rows][known])) if known.any() else -1,
        "bytes_in_flight_at_stop": int(np.median(waits.in_flight_bytes[rows])),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[rows].astype(np.int64))),
        "waits_of_clients": int((waits.direction[rows] == 0).sum()),
        "waits_of_servers": int((waits.direction[rows] == 1).sum()),
    }


def longest(tables: Tables, rows: Ints, count: int) -> list[int]:
    """The rows of the longest waits, in the order of time."""
    order = np.argsort(-tables.waits.duration_ns[rows], kind="stable")[: max(1, count)]
    return sorted(rows[order].tolist(), key=lambda row: int(tables.waits.start_time_ns[row]))


def evidence(tables: Tables, row: int, stopped: str, released: str, resumed: str) -> Iterator[Evidence]:
    """The packets of one wait with what each shows; what released it only where that was captured."""
    waits = tables.waits
    start, duration = int(waits.start_time_ns[row]), int(waits.duration_ns[row])
    yield Evidence(int(waits.stopped_at_packet[row]), start, stopped)
    if waits.released_by_packet[row] and int(waits.released_time_ns[row]) >= start:
        yield Evidence(int(waits.released_by_packet[row]), int(waits.released_time_ns[row]), released)
    yield Evidence(int(waits.resumed_at_packet[row]), start + duration, resumed)


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun: `1 wait`, `1,000 waits`."""
    return f"{number:,} {one if number == 1 else many}"


def owed(tables: Tables, row: int) -> str:
    """What was still to come when the sender of a wait stopped."""
    left = int(tables.waits.owed_bytes[row])
    return f"{left:,} bytes of the message" if left else "the frame that ends the stream"


def times(number: int) -> str:
    """How often: `once`, `12 times`."""
    return "once" if number == 1 else f"{number:,} times"


def where(tables: Tables, stalls: Stalls, shown: int = 3) -> str:
    """Who stood still, how often and how long, connection by connection."""
    said = [
        f"{_shared.host(tables, connection, direction)} on connection {connection}: {times(count)}, "
        f"{_shared.milliseconds(time)}"
        for connection, direction, count, time in stalls.ends[:shown]
    ]
    rest = len(stalls.ends) - shown
    return "; ".join(said) + (f"; and {rest:,} more" if rest > 0 else "")


def from_initial_window(tables: Tables, rows: Ints) -> npt.NDArray[np.bool_]:
    """Which waits interrupted a flight whose congestion window had never been above the initial one."""
    waits = tables.waits
    return (waits.mss[rows] > 0) & (
        waits.window_before_idle_bytes[rows] <= INITIAL_SEGMENTS * waits.mss[rows].astype(np.int64)
    )


# Congestion windows after idle time


class Restarts(Struct, frozen=True, eq=False):
    """What each wait knows of an idle time before its burst; all columns as long as the waits table."""

    idle_ns: Ints
    """Time without data that filled a window, before the burst."""
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
"""Bytes in flight at a stop, in restarted windows, up to which it is one (own choice: small frames go ahead)."""
_FIRST_ACK = 0.9
"""Part of a round trip from a burst's begin before which no ACK of it comes (own choice: clocks jitter)."""
_LEAST_WAIT = 0.25
"""Part of a round trip that a wait for the first ACK lasts (own choice: a paced first burst takes half of one)."""


def restarts(tables: Tables) -> Restarts:
    """Judge all waits. Linux halves the window once per timeout of idle time, down to the initial one.

    A sender that paces (BBR, which keeps its window) stops for less than a round trip, and with more in flight.
    """
    if tables.before:  # waits of RPCs that are not looked at came before some of these
        every = restarts(tables.before.tables)
        return Restarts(**{name: getattr(every, name)[tables.before.waits] for name in every.__struct_fields__})
    waits = tables.waits
    order, first, same_end = _by_burst(tables)
    initial = INITIAL_SEGMENTS * waits.mss.astype(np.int64)
    grown, gap = _burst_before(tables, order, first, same_end)
    small = (waits.window_before_idle_bytes <= initial) & (waits.rto_ns > 0) & (gap > waits.rto_ns) & (grown > initial)
    if tables.measured is not None:  # where no small frame came late enough to restart the window, it is as told
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


def _by_burst(tables: Tables) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """The waits by end, burst and time; for each place the first of its burst, and whether its end waited before."""
    waits = tables.waits
    ends = waits.connection.astype(np.int64) * 2 + waits.direction
    order = np.lexsort((waits.start_time_ns, waits.flight, ends))
    if not len(order):
        return order, order, np.zeros(0, dtype=bool)
    same_end = np.r_[False, ends[order][1:] == ends[order][:-1]]
    begins = ~same_end | np.r_[True, np.diff(waits.flight[order].astype(np.int64)) != 0]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    return order, first, same_end[first]


def _burst_before(tables: Tables, order: Ints, first: Ints, same_end: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """What the last wait of the same end's burst before let its window grow to, and the time from there; 0 without.

    In slow start each byte that is acknowledged adds one, up to twice what was in flight (tcp_is_cwnd_limited).
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
    """A window as a detector tells of it."""

    id: str
    """The finding."""
    cause: str
    """The cause of its waits."""
    name: str
    """`the stream's HTTP/2 window`."""
    credit: str
    """What opens it."""
    enlarge: str
    """What to do when it is too small, as an imperative that fits behind a colon; {reader} is the host."""
    remedies: Callable[[str | None, int], tuple[Remedy, ...]]
    """Knobs for an implementation that receives in a direction's opposite, seen one first."""
    references: tuple[str, ...]


def detect_window(tables: Tables, limits: ReaderThresholds, window: Window) -> Iterator[Finding | Skipped]:
    """Yield one finding over all waits for a window, or what could not be judged."""
    waits = tables.waits
    if not len(waits.cause):
        return
    stalls = find(tables, window.cause)
    if stalls:
        yield _window_finding(tables, limits, window, stalls)
    unexplained = waits.cause == CAUSES.index("unexplained")
    late = unexplained & (tables.connections.complete[waits.connection] == 0)
    if late.any():
        yield Skipped(
            window.id,
            f"{counted(int(late.sum()), 'wait is', 'waits are')} on connections that began before the capture, where "
            f"{window.name} is not known",
        )


class _Words(Struct, frozen=True, eq=False):
    """What is said of a window's stalls in several places."""

    blocked: str
    reader: str
    slow_reader: bool | None
    why: str
    first_step: str


def _window_finding(tables: Tables, limits: ReaderThresholds, window: Window, stalls: Stalls) -> Finding:
    words = _words(tables, limits, window, stalls)
    connection, direction = stalls.first
    total = _shared.milliseconds(stalls.lost_ns)
    late = bool((tables.connections.complete[tables.waits.connection[stalls.rows]] == 0).any())
    return Finding(
        id=window.id,
        title=f"{words.blocked} stood still {times(len(stalls.rows))} with {window.name} at its end",
        severity=_shared.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=_shared.lower(confidence(tables, stalls.rows), "medium" if late else "high"),
        scope=scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=metrics(tables, stalls) | {"late_credit_share": round(_late_share(tables, limits, stalls.rows), 3)},
        evidence=tuple(
            item for row in longest(tables, stalls.rows, limits.examples) for item in _evidence(tables, window, row)
        ),
        explanation=(
            f"{words.blocked} stopped inside messages because {words.reader} had not yet given more of {window.name}, "
            f"and went on with the next {window.credit} ({where(tables, stalls)}). {words.why} "
            f"The RPCs that waited lost {total} in all.{_PROVED if late else ''}"
        ),
        remedies=_window_remedies(tables, window, words, connection, direction),
        references=window.references,
        verdict=(
            f"{words.blocked} stood still for {total} of RPC time ({stalls.share:.0%} of all) because {words.reader} "
            f"left {window.name} exhausted: {words.first_step}."
        ),
    )


_PROVED = (
    " What was granted before the capture is not in it. That the window was at its end follows from the sender, which "
    "stops at one count of credit less bytes sent, to the byte, with the stream's window at another each time."
)


def _late_share(tables: Tables, limits: ReaderThresholds, rows: Ints) -> float:
    """The share of the waiting in waits longer than a prompt reader's credit takes to arrive."""
    waits = tables.waits
    duration, rtt = waits.duration_ns[rows], waits.rtt_ns[rows]
    late = (rtt >= 0) & (duration > limits.late_round_trips * rtt + limits.late_least_ns)
    return float(duration[late].sum() / max(1, int(duration.sum())))


def _words(tables: Tables, limits: ReaderThresholds, window: Window, stalls: Stalls) -> _Words:
    connection, direction = stalls.first
    blocked, reader = _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)
    figures = metrics(tables, stalls)
    each, rtt = _shared.milliseconds(float(figures["median_wait_ns"])), int(figures["round_trip_ns"])
    if rtt < 0:
        why = "No round trip was measured, so that a small window cannot be told from a slow reader."
        return _Words(blocked, reader, None, why, window.enlarge.format(reader=reader))
    if _late_share(tables, limits, stalls.rows) >= 0.5:
        why = (
            f"Credit came {each} after the stop in the median, later than the round trip of {_shared.milliseconds(rtt)}"
            f": {reader} was slow to read, or the network queued. A larger window only moves the waiting there."
        )
        return _Words(blocked, reader, True, why, f"find out why the application on {reader} reads late")
    why = (
        f"Credit came {each} after the stop in the median, within the round trip of {_shared.milliseconds(rtt)}: "
        f"{reader} gave it promptly, and the window is too small for this round trip "
        f"({int(figures['bytes_in_flight_at_stop']):,} bytes were on their way at a stop)."
    )
    return _Words(blocked, reader, False, why, window.enlarge.format(reader=reader))


def _evidence(tables: Tables, window: Window, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    blocked = _shared.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    waited = _shared.milliseconds(int(waits.duration_ns[row]))
    after = _shared.milliseconds(int(waits.start_time_ns[row] + waits.duration_ns[row] - waits.released_time_ns[row]))
    yield from evidence(
        tables,
        row,
        f"{blocked} stops with {int(waits.owed_bytes[row]):,} bytes of the message owed and "
        f"{int(waits.in_flight_bytes[row]):,} bytes in flight: {_state(tables, window, row)}",
        f"the newest packet at {blocked} when it goes on; by then the {window.credit} is there",
        f"{blocked} goes on {after} after that packet, {waited} after the stop"
        if waits.released_by_packet[row]
        else f"{blocked} goes on {waited} after the stop",
    )


def _state(tables: Tables, window: Window, row: int) -> str:
    value = int(getattr(tables.waits, f"{window.cause}_bytes")[row])
    return f"{window.name} stands at {value:,} bytes"


def _window_remedies(
    tables: Tables, window: Window, words: _Words, connection: int, direction: int
) -> tuple[Remedy, ...]:
    reading = Remedy(
        "application",
        "read messages as they come",
        f"on {words.reader}: credit is given when the application has read; hand slow work to other threads",
    )
    seen = _shared.implementation(tables, connection, 1 - direction)
    knobs = window.remedies(seen, 1 - direction)
    return (reading, *knobs) if words.slow_reader else (*knobs, reading)
