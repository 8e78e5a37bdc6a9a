"""A sender stood still because the receiver's TCP window was full.

What it finds
-------------
Messages that stopped half-way because the bytes in flight filled the TCP receive window that the peer announced: its
kernel had no room for more. Either its socket buffer is too small for this round trip, or nobody reads the socket. In
gRPC this is rare, because HTTP/2 windows are mostly smaller and its libraries read the socket all the time.

How it is decided
-----------------
A wait counts when the sender stopped inside a message (gRPC's length prefix says how much it still owed), the window
announced last, scaled, had no room for a segment beyond the bytes in flight, HTTP/2 credit was not what released it,
nothing was sent again in between, and the sender resumed right after an ACK. The time lost is the RPC time that passed
in such waits. Waits of about a round trip mean a buffer too small for this path; longer ones mean that the peer did
not read its socket. The half of the waiting that is larger decides which is said.

When it cannot tell
-------------------
When the capture lacks the connection's opening, because the scale of the announced windows is in the SYN packets only.
A queue in the network delays ACKs like a reader that is slow.

What would refute it
--------------------
`ss -tim` on the sender shows no time in `rwnd_limited`, or on the receiver a receive queue that stays empty and a
window (`rcv_space`) well above the bytes in flight.

What to do
----------
Too small a buffer: on the receiving host raise the third value of `net.ipv4.tcp_rmem` and leave
`net.ipv4.tcp_moderate_rcvbuf` at 1; remove a fixed SO_RCVBUF, which switches off the kernel's own growth. A reader that
is slow: the process on the receiving end is starved of CPU, blocked or stopped; profile it.

References
----------
- RFC 9293 section 3.8.6, RFC 7323 section 2
- Linux Documentation/networking/ip-sysctl.rst, tcp_rmem and tcp_moderate_rcvbuf
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Skipped
from ..tables import DIRECTIONS, Tables
from . import _figures, _stalls

ID = "receive-window-stall"
ABOUT = About(
    example="recorded/lab/receive-window-stall.pcap",
    figure=_figures.blocked_time("receive_window"),
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.02
    """Share of RPC time lost from which it is a warning (own choice: above what runs differ by)."""
    critical_share: float = 0.20
    """Share of RPC time lost from which it is critical (own choice: a fifth of all waiting)."""
    late_round_trips: float = 1.5
    """Round trips after which room for more is late (own choice: the ACK takes one, and queues add to it)."""
    late_least_ns: int = 1_000_000
    """Time beyond that which a prompt reader may take (own choice: a scheduler's delay on a busy host)."""
    examples: int = 3
    """Waits shown as evidence, the longest ones (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all waits for TCP receive windows."""
    yield from _stalls.detect_window(tables, limits, _WINDOW)


def _remedies(implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    host = f"on the host of the {DIRECTIONS[direction]}"
    return (
        Remedy(
            "linux",
            'sysctl -w net.ipv4.tcp_rmem="4096 131072 33554432"',
            f"{host}: the second value is where buffers begin, the third how far they grow; for new connections",
        ),
        Remedy("linux", "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1", f"{host}: the kernel enlarges buffers by itself"),
        Remedy(
            implementation or "any gRPC implementation",
            "no SO_RCVBUF",
            f"{host}: a size set on the socket switches that growth off; gRPC sets none by itself",
        ),
    )


_WINDOW = _stalls.Window(
    id=ID,
    cause="receive_window",
    name="the TCP receive window",
    credit="ACK",
    enlarge=(
        "raise net.ipv4.tcp_rmem on {reader} (the window begins at half of its second value and may grow to half of "
        "its third), and let no SO_RCVBUF fix the buffer"
    ),
    remedies=_remedies,
    references=("RFC 9293 section 3.8.6", "RFC 7323 section 2", "Linux Documentation/networking/ip-sysctl.rst"),
)
