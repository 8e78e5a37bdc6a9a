"""A sender was blocked because the receiver's TCP receive window was full.

What it finds
-------------
Messages pause half-way although HTTP/2 flow control would let them go on. The bytes in flight filled the TCP receive
window that the peer announced, so its kernel had no room for more.

Either the receiver's socket buffer is too small for this round trip, or no process reads the socket. This is rare in
gRPC: HTTP/2 windows are mostly smaller, and gRPC libraries read the socket all the time.

How it is decided
-----------------
A blocked interval counts when all of this holds:

- The sender stopped inside a message. gRPC's length prefix says how many bytes were still to come.
- The last window that the peer announced, after scaling, had no room for a segment beyond the bytes in flight.
- The sender did not resume because of an HTTP/2 WINDOW_UPDATE.
- Nothing was retransmitted during the interval, or all of it was acknowledged long before the sender resumed.
- The sender resumed right after an ACK, or after a packet that announced a larger window. Or it sent less than a
  segment while the window still had no room for one.

An interval that the capture's end, or the call's, cuts counts as well, if the receiver acknowledged all bytes and
announced a window of 0, and the sender probed it. The first probe proves that it has more to send; it comes within 1 s,
keep-alives come later. The interval lasts until a packet announces a larger window, or until a probe is overdue or gets
no answer: the time after that is `unexplained`. A finding about such intervals names the process that does not read.

The time lost is the RPC time in these intervals. Intervals of about a round trip mean that the buffer is too small
for this path. Longer ones mean that the peer did not read its socket. The report names the reason with more of the
blocked time.

When it cannot tell
-------------------
When the capture lacks the connection's opening: only the SYN packets carry the scale of the announced windows. A
queue in the network delays ACKs as a slow reader does: where one stood in half of the late intervals, no reader is
blamed.

A sender that does not probe, as when the block is shorter than a retransmission timeout. Some systems probe with a byte
of data: with these the last interval is `unexplained`.

What would refute it
--------------------
`ss -tim` on the sender shows no time in `rwnd_limited`. Or the receiver shows a receive queue that stays empty and a
window (`rcv_space`) well above the bytes in flight.

What to do
----------
If the buffer is too small: on the receiving host raise the third value of `net.ipv4.tcp_rmem` and leave
`net.ipv4.tcp_moderate_rcvbuf` at 1. Remove a fixed SO_RCVBUF, which switches off the kernel's automatic growth.

If the reader is slow: the process on the receiving end is starved of CPU, blocked or stopped. Profile it.

References
----------
- RFC 9293 section 3.8.6, RFC 7323 section 2
- Linux Documentation/networking/ip-sysctl.rst, tcp_rmem and tcp_moderate_rcvbuf
"""

from collections.abc import Iterator

from ..facts import contradictions
from ..families import closed_windows, windows
from ..model.detector import About
from ..model.finding import Finding, Remedy, Skipped
from ..software import intents, settings
from ..tables import DIRECTIONS, Tables

ID = "receive-window-stall"
ABOUT = About(
    example="recorded/lab/receive-window-stall.pcap",
    figure=contradictions.blocked_time("receive_window"),
    caused_by=("message-too-large",),
    picture="receive_window",
    explains=("receive_window",),
)


class Limits(windows.ReaderLimits, frozen=True, eq=False):
    late_round_trips: float = windows.LATE
    """Round trips after which an ACK that opens the window is late (heuristic: it takes one, and queues add to it)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders blocked by a TCP receive window."""
    if len(shut := closed_windows.find_shut(tables)):
        yield closed_windows.make_finding(tables, limits, shut, ID)
    else:
        yield from windows.detect_window(tables, limits, _WINDOW)


_SIZES = (
    "the second value is the first buffer size, the third the largest; windows begin at half of the second and may "
    "grow to half of the third; for new connections"
)


def _remedies(implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    host = f"on the host of the {DIRECTIONS[direction]}"
    return (
        *settings.list_own(intents.RECEIVE_BUFFER, "linux", _SIZES, where=host),
        *settings.list_own(intents.GROWING_BUFFER, "linux", "the kernel enlarges buffers automatically", where=host),
        Remedy(
            implementation or "any gRPC implementation",
            "no SO_RCVBUF",
            f"{host}: a size set on the socket switches that growth off; gRPC sets none by default",
        ),
    )


_WINDOW = windows.Window(
    id=ID,
    cause="receive_window",
    name="the TCP receive window",
    opened_by="ACK",
    enlarge="raise net.ipv4.tcp_rmem on {reader}, and set no SO_RCVBUF",
    remedies=_remedies,
    references=("RFC 9293 section 3.8.6", "RFC 7323 section 2", "Linux Documentation/networking/ip-sysctl.rst"),
)
