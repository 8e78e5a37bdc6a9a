"""The first large message of a connection waited for an ACK because a new connection may send only ten segments.

What it finds
-------------
The first call with a large message on a new connection takes an extra round trip or more. A sender without an ACK
may have 10 segments in flight (RFC 6928), some 14 kB, and the rest of the message waits one round trip for the first
ACK.

What exceeds 20 more segments waits a second round trip. Every TCP connection begins so. It matters where connections
are short-lived, because most RPCs are then first ones.

How it is decided
-----------------
A blocked interval counts when all of this holds:

- The capture has the connection's opening.
- The flight is one of the direction's first.
- The congestion window, followed from the opening, had never been above the initial one. The ACKs of one or two short
  packets right before may have enlarged it.
- The sender stopped inside a message, or before the frame that ends the stream, with that window full. HTTP/2 and TCP
  receive windows were open.
- The sender resumed right after an ACK, which took no longer than two round trips.
- Nothing had been retransmitted before.
- The sender's packets kept no queue on the path meanwhile: the link was not busy.

The time lost is that of the intervals, times the streams that they interrupted. It is a warning only when several
connections of a capture were closed after few RPCs, so that a fifth of all RPCs paid for it. Otherwise it is `info`.

When it cannot tell
-------------------
When the capture lacks the opening. How many round trips a larger initial window would have saved depends on what the
path can take. A pacing sender such as BBR sends the rest before the first ACK.

What would refute it
--------------------
`ip route show` on the sender has an `initcwnd` above 10 for this peer, or `ss -ti` shows a congestion window above
10 before the message. Or a second message of the same size right after the first one needs two round trips as well.

What to do
----------
Keep connections: reuse one channel for many calls, and make a small call or two before the first large one. On the
sending host `ip route change ... initcwnd 32` allows 32 segments. Messages of less than 10 segments fit anyway. No
gRPC option changes it.

References
----------
- RFC 6928: Increasing TCP's initial window
- Linux include/net/tcp.h, TCP_INIT_CWND; ip-route(8), initcwnd
"""

import operator
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..facts import congestion, contradictions, hosts, methods, stalls
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Severity, Skipped
from ..model.text import count, duration
from ..model.thresholds import NOTABLE_SHARE
from ..software import intents, settings
from ..summary.figures import HTTP2
from ..tables import Ints, Tables
from ..tables.durations import clip_ns
from ..tables.grouping import distinct, group_rows

ID = "initial-congestion-window"
ABOUT = About(
    example="recorded/wild/etcd-bigrange.pcap.zst",
    figure=contradictions.blocked_time("congestion_window"),
    caused_by=("connection-churn",),
    picture="flight",
    explains=("congestion_window",),
)

_CONGESTION_WINDOW = CAUSES.index("congestion_window")


class Limits(Struct, frozen=True, eq=False):
    first_flights: int = 8
    """Flights that count as a direction's beginning (heuristic: preface, SETTINGS, PINGs, the first messages)."""
    grown_segments: int = 2
    """Segments by which the window may have grown before the first blocked interval; Linux adds one for each packet
    acknowledged (heuristic: preface and SETTINGS ACK are two)."""
    longest_round_trips: float = congestion.LATE_ACK
    """Round trips after which the ACK itself was late (heuristic: it takes one, and may be a delayed ACK)."""
    paying_share: float = 0.20
    """A warning when this share of all RPCs waited (heuristic: a pattern, not a single beginning)."""
    short_lived: int = 3
    """Fewest closed connections between two hosts that waited, for a warning (heuristic: fewer show no pattern)."""
    warning_share: float = NOTABLE_SHARE
    """Share of RPC time that must be lost for a warning (heuristic: above the variation between equal runs)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all connections, or why some could not be judged."""
    waits = tables.waits
    rows = np.flatnonzero(waits.cause == _CONGESTION_WINDOW)
    if not len(rows):
        return
    late = tables.connections.complete[waits.connection[rows]] == 0
    if late.any():
        yield Skipped(ID, f"{int(late.sum())} blocked intervals are on connections whose opening is not in the capture")
    rows = _find_beginnings(tables, rows[~late], limits)
    if len(rows):
        yield _make_finding(tables, rows, limits)


def _find_beginnings(tables: Tables, rows: Ints, limits: Limits) -> Ints:
    """Find the blocked intervals of the initial window, in the order of time."""
    waits = tables.waits
    duration, rtt = waits.duration_ns[rows], waits.rtt_ns[rows]
    rows = rows[
        congestion.mark_initial_window(tables, rows)
        & ~congestion.find_restarts(tables).small[rows]
        & ~congestion.mark_in_queues(tables)[rows]
        & (waits.flight[rows] <= limits.first_flights)
        & (rtt > 0)
        & (duration <= limits.longest_round_trips * rtt)
        & (waits.in_flight_bytes[rows] > 0)
        & (waits.after_loss[rows] == 0)
    ]
    rows = rows[waits.start_time_ns[rows] < _find_first_losses(tables)[_number_ends(tables, rows)]]
    rows = rows[np.argsort(waits.start_time_ns[rows], kind="stable")]
    return rows[_mark_before_first_ack(tables, rows, limits)]


def _mark_before_first_ack(tables: Tables, rows: Ints, limits: Limits) -> npt.NDArray[np.bool_]:
    """Mark the sorted intervals of ends whose first one came before the ACK of a message enlarged the window."""
    waits = tables.waits
    into_flight = waits.start_time_ns[rows] - waits.flight_start_time_ns[rows]
    grown = waits.congestion_window_bytes[rows] - waits.window_before_idle_bytes[rows]
    still = grown < (limits.grown_segments + 1) * waits.mss[rows]
    begun = still | (into_flight < waits.rtt_ns[rows] // 2)
    _, first, end = np.unique(_number_ends(tables, rows), return_index=True, return_inverse=True)
    return np.asarray(begun[first][end])


def _number_ends(tables: Tables, rows: Ints) -> Ints:
    waits = tables.waits
    return waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows]


def _find_first_losses(tables: Tables) -> Ints:
    """Find the start of the first interval with a retransmission by connection and direction; the maximum for none."""
    tables = tables.before.tables if tables.before else tables
    waits = tables.waits
    first = np.full(2 * len(tables.connections.rpcs), np.iinfo(np.int64).max)
    lost = np.flatnonzero(waits.retransmissions > 0)
    np.minimum.at(first, _number_ends(tables, lost), waits.start_time_ns[lost])
    return first


def _make_finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    waits = tables.waits
    _, begins = np.unique(_number_ends(tables, rows), return_index=True)
    firsts = rows[np.sort(begins)]
    streams = np.maximum(waits.streams[rows].astype(np.int64), 1)
    # an interval may last 292 years and block many streams, so that their product exceeds 64 bits
    waited = sum(map(operator.mul, waits.duration_ns[rows].tolist(), streams.tolist()))
    lost = min(clip_ns(waited), methods.rpc_time(tables))
    paying = len(set(zip(waits.connection[rows].tolist(), waits.stream[rows].tolist(), strict=True)))
    share = methods.share_of_time(tables, lost)
    row = int(firsts[0])
    host = hosts.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    each = duration(lost / paying)
    in_flight, mss = int(waits.in_flight_bytes[row]), int(waits.mss[row])
    metrics = _measure(tables, rows, firsts) | {"rpcs_waiting": paying}
    http2 = int((tables.connections.protocol == HTTP2).sum())
    of_all = f" of {tables.rpc_count:,}" if paying < tables.rpc_count else ""
    began = "The only connection began"
    if http2 > 1:
        began = f"{metrics['connections']:,} of {http2:,} connections began"
    who = f"{paying:,}{of_all} RPC{'s' if tables.rpc_count > 1 else ''}"
    return Finding(
        id=ID,
        title=(f"{count(paying, 'RPC')} waited at the beginning of a connection for the initial congestion window"),
        severity=_rate_severity(tables, firsts, paying, share, limits),
        confidence=stalls.rate_confidence(tables, rows),
        scope=stalls.find_scope(tables, rows),
        lost_ns=lost,
        share=share,
        metrics=metrics,
        evidence=tuple(
            item
            for row in firsts[hosts.pick_apart(tables, waits.connection[firsts])].tolist()
            for item in _show_interval(tables, row)
        ),
        explanation=(
            f"On a new connection {host} stopped with {in_flight:,} bytes in flight ({in_flight / mss:.1f} segments of "
            f"{mss:,} bytes; TCP allows about {congestion.INITIAL_SEGMENTS} packets, short ones included, before the "
            f"first ACKs) and {stalls.describe_owed(tables, row)} still to send. It resumed "
            f"{duration(int(waits.duration_ns[row]))} later, when an ACK had arrived. HTTP/2 and TCP "
            f"receive windows had room. {began} like this; "
            f"{who} waited. It happens once per connection and "
            "direction, so it matters how many calls a connection serves."
        ),
        remedies=_list_remedies(host),
        references=("RFC 6928", "Linux include/net/tcp.h TCP_INIT_CWND", "ip-route(8) initcwnd"),
        verdict=(
            f"{who} waited {each}{' on average' if paying > 1 else ''} ({share:.0%} of RPC time) because a new "
            f"connection may send only {congestion.INITIAL_SEGMENTS} segments: keep connections for many calls."
        ),
    )


def _rate_severity(tables: Tables, firsts: Ints, paying: int, share: float, limits: Limits) -> Severity:
    """Return a warning where short-lived connections delay many RPCs; one connection's beginning is `info`."""
    c, connections = tables.connections, distinct(tables.waits.connection[firsts])
    closed = connections[c.closed_time_ns[connections] >= 0]
    pairs = group_rows(c.client_ip[closed].astype(np.int64) << 32 | c.server_ip[closed]).values()
    again = max(map(len, pairs), default=0) >= limits.short_lived
    many = paying >= limits.paying_share * tables.rpc_count
    return "warning" if many and again and share >= limits.warning_share else "info"


def _measure(tables: Tables, rows: Ints, firsts: Ints) -> dict[str, int | float | str]:
    waits = tables.waits
    return {
        "connections": len(distinct(waits.connection[rows])),
        "waits": len(rows),
        "median_wait_ns": int(np.median(waits.duration_ns[rows])),
        "round_trip_ns": int(np.median(waits.rtt_ns[firsts])),
        "segments_in_first_burst": int(np.median(waits.in_flight_bytes[firsts] // waits.mss[firsts].astype(np.int64))),
        "bytes_in_first_burst": int(np.median(waits.in_flight_bytes[firsts])),
        "segment_bytes": int(np.median(waits.mss[firsts])),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[firsts].astype(np.int64))),
    }


def _show_interval(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    host = hosts.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    in_flight, mss = int(waits.in_flight_bytes[row]), int(waits.mss[row])
    yield from stalls.show_interval(
        tables,
        row,
        f"{host} stops with {in_flight:,} bytes in flight ({in_flight / mss:.1f} segments of {mss:,}) on a new "
        f"connection; {stalls.describe_owed(tables, row)} still to send",
        "the ACK that opens the congestion window",
        f"{host} resumes, {duration(int(waits.duration_ns[row]))} after the stop",
    )


def _list_remedies(host: str) -> tuple[Remedy, ...]:
    larger = "a larger initial window; too large a window loses packets on slow links"
    return (
        Remedy("application", "keep one channel for many calls", "only a connection's first calls wait"),
        *settings.list_own(intents.INITIAL_WINDOW, "linux", larger, where=f"on {host}"),
        Remedy("any gRPC implementation", "none", "no gRPC or HTTP/2 window or buffer option changes this"),
    )
