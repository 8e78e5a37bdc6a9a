"""Senders were blocked by flow control: the HTTP/2 window of the whole connection was used up.

What it finds
-------------
Messages pause half-way, often on all streams of a connection at once. The sender stopped because the receiver had
granted no more bytes on the connection (RFC 9113 section 5.2), and waited for a WINDOW_UPDATE on stream 0.

All streams share that window. One stream that fills it, or one reader that leaves its bytes unread, blocks every
other stream in the same direction.

How it is decided
-----------------
A blocked interval counts when all of this holds:

- The sender stopped inside a message. gRPC's length prefix says how many bytes were still to come.
- The connection's window had less left than a segment, and less than the bytes still to come. The window is counted
  from WINDOW_UPDATE and DATA.
- Nothing was retransmitted during the interval, or all of it was acknowledged long before the sender resumed.
- The sender resumed right after a WINDOW_UPDATE reached it, or the WINDOW_UPDATE arrived when most of the interval
  was over.

Where the sender is far from the capture, a WINDOW_UPDATE counts from the time at which it can have reached the
sender. Where the windows of stream and connection are both at zero, the one that opened last is named, or the
connection's if both opened at once. The time lost is the RPC time in these intervals, summed over all RPCs that waited.

Frames that are none of the message, such as the acknowledgement of a PING, do not end an interval.

A WINDOW_UPDATE within about a round trip means that the window is too small for this path. A later one means that the
reader is slow. The report names the reason with more of the blocked time. The reader is slow as well if it had
acknowledged and not read more than half of the window at the stops, and the messages came at less than half of the
rate that one window per round trip carries. Some libraries give back the connection's window at once, whatever the
application has read: then the stream windows tell, if they blocked the sender for at least as long.

When it cannot tell
-------------------
When the capture begins after the connection: earlier WINDOW_UPDATEs are not in it. There is one exception. Four
stops of the sender prove where the window ends if each is inside a message, behind a whole DATA frame, and ended by
a WINDOW_UPDATE. The bytes granted less the bytes sent must then be the same at all four, to the byte, while the
stream's value differs each time. The first of these stops are not counted, and the confidence is medium at most.

A queue in the network delays WINDOW_UPDATEs as a slow reader does: where one stood in half of the late intervals, no
reader is blamed. RPCs that had not begun a message when the window
was used up wait too. No byte of theirs is on the wire yet, so their time is not counted: it is unexplained.

What would refute it
--------------------
The sender's log shows no write blocked by flow control (grpc-go: GODEBUG=http2debug=2; Java: netty's frame log). Or
a connection window twice as large leaves the blocked intervals as they are.

What to do
----------
If the window is too small: enlarge the connection window on the receiving end to at least bandwidth times round
trip, or leave it unset where the implementation adapts it. It begins at 65,535 bytes, and no SETTINGS value changes
it, only WINDOW_UPDATE. grpc-go adapts it up to 16 MiB unless a size is set. grpc-java begins with 1 MiB and adapts.
tonic has 1 MiB on servers and 5 MiB on clients.

If the reader is slow: make the application read sooner, or give its streams a channel of their own so that others do
not wait for it.

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

ID = "connection-window-stall"
ABOUT = About(
    example="recorded/lab/connection-window-stall.pcap.gz",
    figure=contradictions.blocked_time("connection_window"),
    caused_by=("message-too-large",),
    picture="connection_window",
    explains=("connection_window",),
)
Limits = windows.ReaderLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders blocked by a connection window."""
    yield from windows.detect_window(tables, limits, _WINDOW)


_WINDOW = windows.Window(
    id=ID,
    cause="connection_window",
    name="the HTTP/2 connection window",
    opened_by="WINDOW_UPDATE of the connection",
    enlarge="enlarge the window on {reader}, or leave it unset where it adapts",
    remedies=partial(settings.list_windows, intents.CONNECTION_WINDOW),
    references=("RFC 9113 section 5.2", "RFC 9113 section 6.9", "grpc-go internal/transport/bdp_estimator.go"),
)
