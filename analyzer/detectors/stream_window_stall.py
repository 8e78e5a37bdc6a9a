"""A sender was blocked by flow control: the HTTP/2 window of a stream was used up.

What it finds
-------------
Large messages pause half-way, and their RPCs take longer than the link needs. The sender stopped inside a message
because the receiver had granted no more bytes on that stream (RFC 9113 section 5.2), and waited for a WINDOW_UPDATE.

There are two reasons. A window smaller than bandwidth times round trip blocks the sender once per window. A receiver
that reads slowly blocks it until the receiver reads.

How it is decided
-----------------
A blocked interval counts when all of this holds:

- The sender stopped inside a message. gRPC's length prefix says how many bytes were still to come.
- The stream's window had less left than a segment, and less than the bytes still to come. The window is counted from
  SETTINGS, WINDOW_UPDATE and DATA.
- The connection's window was open, or opened earlier than the stream's.
- Nothing was retransmitted during the interval, or all of it was acknowledged long before the sender resumed.
- The sender resumed right after a WINDOW_UPDATE reached it, or the WINDOW_UPDATE arrived when most of the interval
  was over.

Where the sender is far from the capture, a WINDOW_UPDATE counts from the time at which it can have reached the
sender. The time lost is the RPC time in these intervals.

Frames that are none of the message, such as the acknowledgement of a PING, do not end an interval.

A WINDOW_UPDATE within about a round trip means that the window is too small for this path. A later one means that the
reader is slow. The report names the reason with more of the blocked time. The reader is slow as well if it had
acknowledged and not read more than half of the window at the stops, and the messages came at less than half of the
rate that one window per round trip carries.

When it cannot tell
-------------------
When the capture begins after the connection: SETTINGS and earlier WINDOW_UPDATEs are not in it. A queue in the network
delays WINDOW_UPDATEs as a slow reader does. Where one stood in half of the late intervals, no reader is blamed.

What would refute it
--------------------
The sender's log shows no write blocked by flow control (grpc-go: GODEBUG=http2debug=2; Java: netty's frame log). Or
a window twice as large leaves the blocked intervals as they are.

What to do
----------
If the window is too small: enlarge it on the receiving end to at least bandwidth times round trip, or leave it unset
where the implementation adapts it. HTTP/2's default is 65,535 bytes. grpc-go begins there and adapts up to 16 MiB
unless a size is set. grpc-java has 1 MiB and adapts. tonic has 1 MiB on servers and 2 MiB on clients, fixed. grpc-js
stays at 65,535 unless configured.

If the reader is slow: make the application read sooner. Flow control works as intended there, and a larger window
only buffers more.

References
----------
- RFC 9113 sections 5.2 and 6.9
- grpc-go internal/transport/bdp_estimator.go; grpc-java FlowControlWindow; Envoy http2_protocol_options
"""

from collections.abc import Iterator
from functools import partial

from ..facts import contradictions
from ..families import windows
from ..model.detector import About
from ..model.finding import Finding, Skipped
from ..software import intents, settings
from ..tables import Tables

ID = "stream-window-stall"
ABOUT = About(
    example="recorded/lab/stream-window-stall.pcap",
    figure=contradictions.blocked_time("stream_window"),
    caused_by=("message-too-large",),
    picture="stream_window",
    explains=("stream_window",),
)
Limits = windows.ReaderLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders blocked by a stream window."""
    yield from windows.detect_window(tables, limits, _WINDOW)


_WINDOW = windows.Window(
    id=ID,
    cause="stream_window",
    name="the HTTP/2 stream window",
    opened_by="WINDOW_UPDATE",
    enlarge="enlarge the window on {reader}, or leave it unset where it adapts",
    remedies=partial(settings.list_windows, intents.STREAM_WINDOW),
    references=("RFC 9113 section 5.2", "RFC 9113 section 6.9", "grpc-go internal/transport/bdp_estimator.go"),
)
