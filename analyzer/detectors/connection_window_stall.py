"""Senders stood still because the HTTP/2 window of the whole connection was used up.

What it finds
-------------
Messages that stopped half-way because the receiver had granted no more bytes on the connection (RFC 9113 section 5.2).
All streams share that window: one stream that fills it, or one reader that leaves its bytes unread, stops every other
stream in the same direction. The sender waits for a WINDOW_UPDATE on stream 0.

How it is decided
-----------------
A wait counts when the sender stopped inside a message (gRPC's length prefix says how much it still owed), the window
of the connection as counted from WINDOW_UPDATE and DATA had less left than a segment and than what was owed, nothing
was sent again in between, and the sender resumed right after credit reached it, or when most of the wait was over by
then. Credit counts from when a sender far from the capture can have it. Where the windows of stream and connection
are both at zero, the connection's is named. The time lost is the RPC time that passed in such waits, each RPC that
waited counted. Credit within about a round trip means a window too small for this path; credit that came later means
a slow reader. The half of the waiting that is larger decides which is said.

When it cannot tell
-------------------
When the capture begins after the connection, because earlier credit is not in it, unless the sender's stops prove where
the window ends: four of them, each inside a message and behind a whole DATA frame, released by credit, with the same
count of credit less bytes sent, to the byte, and the stream's count at another value each time. The first of them are
not counted then, and the confidence is medium at the most. A reader that gives small pieces of
credit more often than once per round trip looks like a small window: compare the bytes in flight at a stop with the
configured window. A queue in the network delays credit like a slow reader. RPCs that had not begun a message when the
window was used up wait too, but owe nothing yet on the wire: their time is not counted.

What would refute it
--------------------
The sender's log shows no write blocked by flow control (grpc-go: GODEBUG=http2debug=2; Java: netty's frame log), or a
connection window twice as large leaves the waits as they are.

What to do
----------
Too small a window: enlarge the connection window on the receiving end to at least bandwidth times round trip, or
leave it unset where the implementation adapts it. It begins at 65,535 bytes, and no SETTINGS value changes it, only
WINDOW_UPDATE: grpc-go adapts it up to 16 MiB unless a size is set, grpc-java begins with 1 MiB and adapts, tonic has
1 MiB on servers and 5 MiB on clients. A slow reader: make the application read sooner, or give its streams a channel of
their own so that others do not wait for it.

References
----------
- RFC 9113 sections 5.2 and 6.9
- grpc-go internal/transport/bdp_estimator.go; grpc-java FlowControlWindow; Envoy http2_protocol_options
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Skipped
from ..tables import Tables
from . import _figures, _stalls, _window_knobs

ID = "connection-window-stall"
ABOUT = About(
    example="recorded/lab/connection-window-stall.pcap.gz",
    figure=_figures.blocked_time("connection_window"),
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.02
    """Share of RPC time lost from which it is a warning (own choice: above what runs differ by)."""
    critical_share: float = 0.20
    """Share of RPC time lost from which it is critical (own choice: a fifth of all waiting)."""
    late_round_trips: float = 1.5
    """Round trips after which credit for a full window is late (own choice: it takes one, and queues add to it)."""
    late_least_ns: int = 1_000_000
    """Time beyond that which a prompt reader may take (own choice: a scheduler's delay on a busy host)."""
    examples: int = 3
    """Waits shown as evidence, the longest ones (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all waits for connection windows."""
    yield from _stalls.detect_window(tables, limits, _WINDOW)


def _remedies(implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    return _window_knobs.knobs(implementation, direction, connection_window=True)


_WINDOW = _stalls.Window(
    id=ID,
    cause="connection_window",
    name="the connection's HTTP/2 window",
    credit="WINDOW_UPDATE of the connection",
    enlarge="enlarge the HTTP/2 connection window that {reader} gives, or leave it unset where it adapts by itself",
    remedies=_remedies,
    references=("RFC 9113 section 5.2", "RFC 9113 section 6.9", "grpc-go internal/transport/bdp_estimator.go"),
)
