"""A sender stood still because the HTTP/2 window of its stream was used up.

What it finds
-------------
Messages that stopped half-way because the receiver had not granted more bytes on that stream (RFC 9113 section 5.2).
The sender waits for a WINDOW_UPDATE. A window smaller than bandwidth times round trip makes it wait once per window;
a reader that takes its time makes it wait as long as the reader likes.

How it is decided
-----------------
A wait counts when the sender stopped inside a message (gRPC's length prefix says how much it still owed), the window
of the stream as counted from SETTINGS, WINDOW_UPDATE and DATA had less left than a segment and than what was owed
while that of the connection was open, nothing was sent again in between, and the sender resumed right after credit
reached it, or when most of the wait was over by then. Credit counts from when a sender far from the capture can have
it. The time lost is the RPC time that passed in such waits. Credit within about a round trip means a window too small
for this path; credit that came later means a slow reader. The half of the waiting that is larger decides which is
said.

When it cannot tell
-------------------
When the capture begins after the connection, because SETTINGS and earlier credit are not in it. A reader that gives
small pieces of credit more often than once per round trip looks like a small window: compare the bytes in flight at a
stop with the configured window. A queue in the network delays credit like a slow reader.

What would refute it
--------------------
The sender's log shows no write blocked by flow control (grpc-go: GODEBUG=http2debug=2; Java: netty's frame log), or a
window twice as large leaves the waits as they are.

What to do
----------
Too small a window: enlarge it on the receiving end to at least bandwidth times round trip, or leave it unset where the
implementation adapts it. 65,535 bytes is HTTP/2's own default: grpc-go begins there and adapts up to 16 MiB unless a
size is set; grpc-java has 1 MiB and adapts; tonic has 1 MiB on servers and 2 MiB on clients, fixed; grpc-js stays at
65,535 unless told. A slow reader: make the application read sooner; flow control does its duty there, and a larger
window only buffers more.

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

ID = "stream-window-stall"
ABOUT = About(
    example="recorded/lab/stream-window-stall.pcap",
    figure=_figures.blocked_time("stream_window"),
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
    """Yield one finding over all waits for stream windows."""
    yield from _stalls.detect_window(tables, limits, _WINDOW)


def _remedies(implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    return _window_knobs.knobs(implementation, direction, connection_window=False)


_WINDOW = _stalls.Window(
    id=ID,
    cause="stream_window",
    name="the stream's HTTP/2 window",
    credit="WINDOW_UPDATE",
    enlarge="enlarge the HTTP/2 stream window that {reader} gives, or leave it unset where it adapts by itself",
    remedies=_remedies,
    references=("RFC 9113 section 5.2", "RFC 9113 section 6.9", "grpc-go internal/transport/bdp_estimator.go"),
)
