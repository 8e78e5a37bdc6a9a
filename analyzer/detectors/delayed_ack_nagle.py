"""Nagle's algorithm held back a small segment until a delayed ACK arrived.

What it finds
-------------
Calls take some 40 ms more than expected, again and again. A message was written in several small pieces, and the
last piece waited for an ACK that the receiver had delayed. Or a response waited behind a small segment of something
else, such as the acknowledgement of a PING.

Nagle's algorithm allows one segment in flight that is not full. The receiver's delayed ACK waits for more data
before it acknowledges that segment. Each side waits for the other. TCP_NODELAY switches Nagle's algorithm off, and
gRPC implementations set it. It returns with custom dialers, proxies and tunnels that do not.

How it is decided
-----------------
A blocked interval counts when all of this holds:

- The sender stopped inside a message or between the frames of a call, with a segment in flight that was not full. Or
  a server stopped behind such a segment while its client waited for a response.
- It held the next segment back although every window was open.
- It sent that segment right after an ACK without data. The ACK came as late as the receiver's delayed-ACK timer makes
  it.
- It has not sent a small segment before while another was not acknowledged: with TCP_NODELAY it would.

Packets do not show when a server wrote a response that it held back behind something else. It is taken to have been
ready after as long as the slowest of the four responses before took that nothing held back, and without such a response
the time remains the server's.

A delayed ACK for which no sender waited costs nothing and is not counted. The time lost is the RPC time in these
intervals.

When it cannot tell
-------------------
On links whose round trip is as long as the timer, where an ordinary ACK looks the same. An application that writes
every 40 ms by itself may look like it once, but not right after an ACK each time. Where each call has a connection of
its own, no response before tells how long the server takes.

What would refute it
--------------------
`strace -e setsockopt` shows TCP_NODELAY set on the sender's socket, or the blocked intervals stay when it is set.

What to do
----------
Set TCP_NODELAY on the sending end, or write header and message at once. On the receiving end the route option
`quickack` shortens the wait, for every connection that uses the route.

References
----------
- RFC 9293 section 3.7.4 (Nagle), RFC 1122 section 4.2.3.2 (delayed ACK)
- Linux include/net/tcp.h, TCP_DELACK_MIN 40 ms; tcp(7), TCP_NODELAY and TCP_QUICKACK
"""

from collections.abc import Iterator

from ..facts import contradictions, hosts, ratings
from ..facts.stalls import (
    Stalls,
    TimeLimits,
    count_times,
    find_scope,
    find_stalls,
    list_blocked,
    measure,
    name_ends,
    rate_confidence,
    show_interval,
    sort_longest,
)
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import Tables

ID = "delayed-ack-nagle"
ABOUT = About(
    example="recorded/lab/delayed-ack-nagle.pcap",
    figure=contradictions.blocked_time("delayed_ack"),
    picture="delayed_acks",
    explains=("delayed_ack",),
)
Limits = TimeLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders that waited for a delayed ACK."""
    stalls = find_stalls(tables, "delayed_ack")
    if stalls:
        yield _make_finding(tables, stalls, limits)


def _make_finding(tables: Tables, stalls: Stalls, limits: Limits) -> Finding:
    connection, direction = stalls.first
    sender, receiver = name_ends(tables, stalls)
    sockets = f"the sockets of {sender}" if hosts.are_many(sender) else f"{sender}'s sockets"
    metrics = measure(tables, stalls)
    each, total = duration(float(metrics["median_wait_ns"])), duration(stalls.lost_ns)
    return Finding(
        id=ID,
        title=f"{sender} held back a small segment {count_times(tables, stalls)} for a delayed ACK",
        severity=ratings.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=rate_confidence(tables, stalls.rows),
        scope=find_scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=metrics,
        evidence=tuple(item for row in sort_longest(tables, stalls.rows) for item in _show_interval(tables, row)),
        explanation=(
            f"{sender} had a segment in flight that was not full, and sent nothing more until {receiver} acknowledged "
            f"it. The median wait was {each} ({list_blocked(tables, stalls)}). All windows were open, so "
            f"Nagle's algorithm on {sender} waited for the delayed ACK of {receiver}. "
            f"{_describe_estimate(tables, stalls)}The RPCs lost {total} in total."
        ),
        remedies=_list_remedies(tables, connection, direction, sender, receiver),
        references=("RFC 9293 section 3.7.4", "RFC 1122 section 4.2.3.2", "Linux include/net/tcp.h TCP_DELACK_MIN"),
        verdict=(
            f"RPCs lost {total} ({stalls.share:.0%} of all RPC time) because Nagle's algorithm waited for delayed "
            f"ACKs: set TCP_NODELAY on {sockets}."
        ),
    )


def _describe_estimate(tables: Tables, stalls: Stalls) -> str:
    """Say how many waits begin when a response is taken to have been ready."""
    waits, rows = tables.waits, stalls.rows
    estimated = int((waits.start_time_ns[rows] > waits.stopped_time_ns[rows]).sum())
    if not estimated:
        return ""
    return (
        f"{count(estimated, 'response')} waited behind a segment of other data. Packets do not show when the "
        "server wrote a response: it is assumed to have taken as long as the slowest of the last four responses that "
        "nothing held back. "
    )


def _show_interval(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    connection, direction = int(waits.connection[row]), int(waits.direction[row])
    sender, receiver = hosts.host(tables, connection, direction), hosts.host(tables, connection, 1 - direction)
    owed = int(waits.owed_bytes[row])
    since = int(waits.stopped_time_ns[row])
    resumed = int(waits.start_time_ns[row]) + int(waits.duration_ns[row])
    yield from show_interval(
        tables,
        row,
        f"{sender} stops with {int(waits.in_flight_bytes[row]):,} bytes in flight; a full segment holds "
        f"{int(waits.mss[row]):,}; "
        + (f"{owed:,} bytes are still to send" if owed else "the call's next frame is still to come"),
        f"the ACK of {receiver}, {duration(int(waits.released_time_ns[row]) - since)} after the stop",
        f"{sender} resumes, {duration(resumed - since)} after the stop",
    )


def _list_remedies(tables: Tables, connection: int, direction: int, sender: str, receiver: str) -> tuple[Remedy, ...]:
    any_library = Remedy("any gRPC implementation", "TCP_NODELAY", f"on {sender}: {_BY_OPTION}")
    seen = recognise(hosts.implementation(tables, connection, direction))
    acknowledge = "acknowledges at once, at the price of more ACK packets"
    return (
        *settings.list_settings(intents.NO_DELAY, seen, where=f"on {sender}", general=(any_library,)),
        *settings.list_own(intents.QUICK_ACKS, "linux", acknowledge, where=f"on {receiver}"),
    )


_BY_OPTION = "set it with setsockopt(2) on each socket, or by an option of the library"
