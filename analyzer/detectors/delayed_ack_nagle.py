"""Nagle's algorithm held back the end of a message until a delayed ACK came.

What it finds
-------------
Messages written in several small pieces whose last piece waited, typically 40 ms, for an ACK that the receiver had put
off. Nagle's algorithm lets one segment that is not full be in flight; the receiver's delayed ACK waits for more data
before it acknowledges that one. Each side waits for the other. It is switched off by TCP_NODELAY, which gRPC
implementations set; it returns with custom dialers, proxies and tunnels that do not.

How it is decided
-----------------
A wait counts when the sender stopped inside a message or between the frames of a call with a segment in flight that was
not full, held the next one back although every window was open, and sent it right after an ACK without data that came
as late as the delayed-ACK timer of the receiver makes it. A delayed ACK for which nobody waited costs nothing and is
not counted. The time lost is the RPC time that passed in such waits.

When it cannot tell
-------------------
On links whose round trip is as long as the timer, where an ordinary ACK looks the same. An application that writes
every 40 ms by itself may look like it once, but not right after an ACK each time.

What would refute it
--------------------
`strace -e setsockopt` shows TCP_NODELAY set on the sender's socket, or the waits stay when it is.

What to do
----------
Set TCP_NODELAY on the sending end, or write header and message at once. On the receiving end the route option
`quickack` shortens the wait, for all that use the route.

References
----------
- RFC 9293 section 3.7.4 (Nagle), RFC 1122 section 4.2.3.2 (delayed ACK)
- Linux include/net/tcp.h, TCP_DELACK_MIN 40 ms; tcp(7), TCP_NODELAY and TCP_QUICKACK
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..tables import Tables
from . import _figures, _shared, _stalls

ID = "delayed-ack-nagle"
ABOUT = About(
    example="recorded/lab/delayed-ack-nagle.pcap",
    figure=_figures.blocked_time("delayed_ack"),
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.02
    """Share of RPC time lost from which it is a warning (own choice: above what runs differ by)."""
    critical_share: float = 0.20
    """Share of RPC time lost from which it is critical (own choice: a fifth of all waiting)."""
    examples: int = 3
    """Waits shown as evidence, the longest ones (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all waits for delayed ACKs."""
    stalls = _stalls.find(tables, "delayed_ack")
    if stalls:
        yield _finding(tables, stalls, limits)


def _finding(tables: Tables, stalls: _stalls.Stalls, limits: Limits) -> Finding:
    connection, direction = stalls.first
    sender, receiver = _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)
    metrics = _stalls.metrics(tables, stalls)
    each, total = _shared.milliseconds(float(metrics["median_wait_ns"])), _shared.milliseconds(stalls.lost_ns)
    return Finding(
        id=ID,
        title=f"{sender} held back a small segment {_stalls.times(len(stalls.rows))} until a delayed ACK came",
        severity=_shared.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=_stalls.confidence(tables, stalls.rows),
        scope=_stalls.scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=metrics,
        evidence=tuple(
            item for row in _stalls.longest(tables, stalls.rows, limits.examples) for item in _evidence(tables, row)
        ),
        explanation=(
            f"{sender} had a segment in flight that was not full and sent nothing more until {receiver} acknowledged "
            f"it, {each} later in the median ({_stalls.where(tables, stalls)}). All windows were open: that is Nagle's "
            f"algorithm on {sender} against the delayed ACK on {receiver}. The RPCs lost {total} in all."
        ),
        remedies=_remedies(tables, connection, direction, sender, receiver),
        references=("RFC 9293 section 3.7.4", "RFC 1122 section 4.2.3.2", "Linux include/net/tcp.h TCP_DELACK_MIN"),
        verdict=(
            f"{sender} lost {total} of RPC time ({stalls.share:.0%} of all) to Nagle's algorithm waiting for delayed "
            f"ACKs of {receiver}: set TCP_NODELAY on {sender}'s sockets."
        ),
    )


def _evidence(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    connection, direction = int(waits.connection[row]), int(waits.direction[row])
    sender, receiver = _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)
    owed = int(waits.owed_bytes[row])
    late = _shared.milliseconds(int(waits.released_time_ns[row] - waits.start_time_ns[row]))
    yield from _stalls.evidence(
        tables,
        row,
        f"{sender} stops with {int(waits.in_flight_bytes[row]):,} bytes in flight, segments hold "
        f"{int(waits.mss[row]):,}; "
        + (f"{owed:,} bytes are owed" if owed else "the call's next frame is still to come"),
        f"the ACK of {receiver}, {late} after the stop",
        f"{sender} goes on, {_shared.milliseconds(int(waits.duration_ns[row]))} after the stop",
    )


_NODELAY = (
    ("tonic", "tcp_nodelay(true)", "on Endpoint or Server; true by default, it is lost with a custom connector"),
    ("grpc-java", "ChannelOption.TCP_NODELAY, true", "withOption or withChildOption of the Netty builders"),
    ("grpc-go", "(*net.TCPConn).SetNoDelay(true)", "Go's default; for connections of grpc.WithContextDialer"),
    ("grpc-node", "socket.setNoDelay(true)", "for sockets that the application or a tunnel creates"),
    ("grpc-dotnet", "Socket.NoDelay = true", "in SocketsHttpHandler.ConnectCallback, if one is set"),
    ("nginx", "tcp_nodelay on", "where nginx stands between"),
)


def _remedies(tables: Tables, connection: int, direction: int, sender: str, receiver: str) -> tuple[Remedy, ...]:
    seen = _shared.implementation(tables, connection, direction) or ""
    options = sorted(_NODELAY, key=lambda option: not seen.startswith(option[0]))
    return (
        *(Remedy(name, knob, f"on {sender}: {note}") for name, knob, note in options),
        Remedy(
            "linux",
            "ip route change ROUTE quickack 1",
            f"on {receiver}: acknowledges at once, at the price of more ACK packets",
        ),
    )
