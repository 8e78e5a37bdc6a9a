"""The first large message of a connection waited for an ACK because a new connection may send ten segments only.

What it finds
-------------
Calls at the beginning of a connection that needed more than one round trip: a sender that has no ACK yet may have 10
segments in flight (RFC 6928), some 14 kB; the rest of a larger message waits one round trip for the first ACK, and
what exceeds 20 more segments a second one. Every TCP connection begins so. It matters where connections are
short-lived, because then most RPCs are first ones.

How it is decided
-----------------
A wait counts when all of this holds: the capture has the connection's opening; the flight is one of the direction's
first; its congestion window, followed from the opening, had never been above the initial one, but for what the ACKs of
one or two short packets right before let it grow; the sender stopped inside a message, or before the frame that ends
the stream, with that window full and HTTP/2 and TCP receive windows open; it resumed right after an ACK that took no
longer than two round trips; nothing had been sent again before. The time lost is that of the waits, times the streams
that they interrupted. It is a warning only when several connections of a capture were closed after few RPCs, so that a
fifth of all RPCs paid for it; otherwise it is told once per connection, as information.

When it cannot tell
-------------------
When the capture lacks the opening. How many rounds a larger initial window would have saved depends on what the path
can take. A pacing sender such as BBR sends the rest before the first ACK.

What would refute it
--------------------
`ip route show` on the sender has an `initcwnd` above 10 for this peer, or `ss -ti` shows a congestion window above 10
before the message; or a second message of the same size right after the first one needs two round trips as well.

What to do
----------
Keep connections: reuse one channel for many calls, and make a small call or two before the first large one. On the
sending host `ip route change ... initcwnd 32` allows 32 segments. Messages of less than 10 segments fit anyway. No gRPC
option changes it.

References
----------
- RFC 6928: Increasing TCP's initial window
- Linux include/net/tcp.h, TCP_INIT_CWND; ip-route(8), initcwnd
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Severity, Skipped
from ..tables import Ints, Tables
from . import _figures, _shared, _stalls

ID = "initial-congestion-window"
ABOUT = About(
    example="recorded/rtt205-go-14000.pcap",
    figure=_figures.blocked_time("congestion_window"),
)

_CONGESTION_WINDOW = CAUSES.index("congestion_window")


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    first_flights: int = 8
    """Flights of a direction that are its beginning (own choice: preface, SETTINGS, PINGs, the first messages)."""
    grown_segments: int = 2
    """Segments by which the window may have grown before the first wait, for Linux adds one for each packet that is
    acknowledged (own choice: preface and SETTINGS ACK are two)."""
    longest_round_trips: float = 2.0
    """Round trips after which the ACK itself was late (own choice: the window frees after one, a delayed ACK apart)."""
    paying_share: float = 0.20
    """Share of all RPCs that paid from which it is a warning (own choice: a habit, no beginning)."""
    short_lived: int = 3
    """Closed connections that must have paid for a warning (own choice: fewer are no habit)."""
    warning_share: float = 0.02
    """Share of RPC time that must be lost for a warning (own choice: above what runs differ by)."""
    examples: int = 3
    """Calls shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all connections, or why some could not be judged."""
    waits = tables.waits
    rows = np.flatnonzero(waits.cause == _CONGESTION_WINDOW)
    if not len(rows):
        return
    late = tables.connections.complete[waits.connection[rows]] == 0
    if late.any():
        yield Skipped(ID, f"{int(late.sum())} waits are on connections whose opening is not in the capture")
    rows = _beginnings(tables, rows[~late], limits)
    if len(rows):
        yield _finding(tables, rows, limits)


def _beginnings(tables: Tables, rows: Ints, limits: Limits) -> Ints:
    """The waits for the initial window, in the order of time."""
    waits = tables.waits
    duration, rtt = waits.duration_ns[rows], waits.rtt_ns[rows]
    rows = rows[
        _stalls.from_initial_window(tables, rows)
        & ~_stalls.restarts(tables).small[rows]
        & (waits.flight[rows] <= limits.first_flights)
        & (rtt > 0)
        & (duration <= limits.longest_round_trips * rtt)
        & (waits.in_flight_bytes[rows] > 0)
        & (waits.after_loss[rows] == 0)
    ]
    rows = rows[waits.start_time_ns[rows] < _first_loss(tables)[_ends(tables, rows)]]
    rows = rows[np.argsort(waits.start_time_ns[rows], kind="stable")]
    return rows[_begun_without_ack(tables, rows, limits)]


def _begun_without_ack(tables: Tables, rows: Ints, limits: Limits) -> npt.NDArray[np.bool_]:
    """Which of the sorted waits are of ends whose first one came before the ACK of a message let the window grow."""
    waits = tables.waits
    into_flight = waits.start_time_ns[rows] - waits.flight_start_time_ns[rows]
    grown = waits.congestion_window_bytes[rows] - waits.window_before_idle_bytes[rows]
    still = grown < (limits.grown_segments + 1) * waits.mss[rows]
    begun = still | (into_flight < waits.rtt_ns[rows] // 2)
    _, first, end = np.unique(_ends(tables, rows), return_index=True, return_inverse=True)
    return np.asarray(begun[first][end])


def _ends(tables: Tables, rows: Ints) -> Ints:
    waits = tables.waits
    return waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows]


def _first_loss(tables: Tables) -> Ints:
    """By connection and direction the first wait with a retransmission; far away without one."""
    tables = tables.before.tables if tables.before else tables
    waits = tables.waits
    first = np.full(2 * len(tables.connections.rpcs), np.iinfo(np.int64).max)
    lost = np.flatnonzero(waits.retransmissions > 0)
    np.minimum.at(first, _ends(tables, lost), waits.start_time_ns[lost])
    return first


def _finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    waits = tables.waits
    _, begins = np.unique(_ends(tables, rows), return_index=True)
    firsts = rows[np.sort(begins)]
    streams = np.maximum(waits.streams[rows].astype(np.int64), 1)
    lost = min(int((waits.duration_ns[rows] * streams).sum()), _shared.rpc_time(tables))
    paying = len(set(zip(waits.connection[rows].tolist(), waits.stream[rows].tolist(), strict=True)))
    share = _shared.share_of_time(tables, lost)
    row = int(firsts[0])
    host = _shared.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    each = _shared.milliseconds(lost / paying)
    in_flight, mss = int(waits.in_flight_bytes[row]), int(waits.mss[row])
    metrics = _metrics(tables, rows, firsts) | {"rpcs_waiting": paying}
    return Finding(
        id=ID,
        title=(
            f"{_stalls.counted(paying, 'RPC', 'RPCs')} waited at the beginning of a connection for the initial "
            "congestion window"
        ),
        severity=_severity(tables, firsts, paying, share, limits),
        confidence=_stalls.confidence(tables, rows),
        scope=_stalls.scope(tables, rows),
        lost_ns=lost,
        share=share,
        metrics=metrics,
        evidence=tuple(item for row in firsts[: limits.examples].tolist() for item in _evidence(tables, row)),
        explanation=(
            f"On a new connection {host} stopped with {in_flight:,} bytes in flight ({in_flight / mss:.1f} segments of "
            f"{mss:,} bytes; TCP allows about {_stalls.INITIAL_SEGMENTS} packets, short ones included, before ACKs "
            f"come) and {_stalls.owed(tables, row)} still owed; it went on "
            f"{_shared.milliseconds(int(waits.duration_ns[row]))} later, when an ACK was there. HTTP/2 and TCP receive "
            f"windows had room. {metrics['connections']:,} of {len(tables.connections.rpcs):,} connections began like "
            f"this; {paying:,} of {tables.rpc_count:,} RPCs waited. It happens once per connection and "
            "direction, so what counts is how many calls a connection serves."
        ),
        remedies=_remedies(host),
        references=("RFC 6928", "Linux include/net/tcp.h TCP_INIT_CWND", "ip-route(8) initcwnd"),
        verdict=(
            f"{paying:,} of {tables.rpc_count:,} RPCs waited {each} more on average at the beginning of their "
            f"connection, where TCP allows {_stalls.INITIAL_SEGMENTS} segments ({share:.0%} of all RPC time): keep "
            f"connections for many calls, or set initcwnd on the route of {host}."
        ),
    )


def _severity(tables: Tables, firsts: Ints, paying: int, share: float, limits: Limits) -> Severity:
    """A warning where short-lived connections make many RPCs pay; a capture's single beginning is no habit."""
    connections = _shared.distinct(tables.waits.connection[firsts])
    closed = int((tables.connections.closed_time_ns[connections] >= 0).sum())
    many = paying >= limits.paying_share * tables.rpc_count
    return "warning" if many and closed >= limits.short_lived and share >= limits.warning_share else "info"


def _metrics(tables: Tables, rows: Ints, firsts: Ints) -> dict[str, int | float | str]:
    waits = tables.waits
    return {
        "connections": len(_shared.distinct(waits.connection[rows])),
        "waits": len(rows),
        "median_wait_ns": int(np.median(waits.duration_ns[rows])),
        "round_trip_ns": int(np.median(waits.rtt_ns[firsts])),
        "segments_in_first_burst": int(np.median(waits.in_flight_bytes[firsts] // waits.mss[firsts].astype(np.int64))),
        "bytes_in_first_burst": int(np.median(waits.in_flight_bytes[firsts])),
        "segment_bytes": int(np.median(waits.mss[firsts])),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[firsts].astype(np.int64))),
    }


def _evidence(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    host = _shared.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    in_flight, mss = int(waits.in_flight_bytes[row]), int(waits.mss[row])
    yield from _stalls.evidence(
        tables,
        row,
        f"{host} stops with {in_flight:,} bytes in flight ({in_flight / mss:.1f} segments of {mss:,}) on a new "
        f"connection; {_stalls.owed(tables, row)} still owed",
        "the ACK that frees the congestion window",
        f"{host} goes on, {_shared.milliseconds(int(waits.duration_ns[row]))} after the stop",
    )


def _remedies(host: str) -> tuple[Remedy, ...]:
    return (
        Remedy("application", "keep one channel for many calls", "only a connection's first calls pay"),
        Remedy(
            "linux",
            "ip route change ROUTE initcwnd 32",
            f"on {host}: a larger window to begin with; too large a one loses packets on slow links",
        ),
        Remedy("any gRPC implementation", "none", "no gRPC or HTTP/2 window or buffer option changes this"),
    )
