"""Messages waited on their connection while it sent bytes of other streams.

What it finds
-------------
Small calls become slow while large messages use the same connection. One TCP connection sends one byte after the
other, so a small message waits until the bytes in front of it have left.

HTTP/2 interleaves frames of different streams. Bytes that a library has handed to TCP already, and bytes that TCP
holds back, are in front all the same.

How it is decided
-----------------
A blocked interval counts when a stream had begun a message and owed the rest of it, while its connection kept
sending bytes of other streams in the same direction. The time lost is the RPC time in these intervals. It is an
upper bound of what a connection of its own would save: where the link itself is full, the bytes wait there instead.

When it cannot tell
-------------------
Messages without a byte on the wire wait as well, inside the sender's library; no packet shows them. One connection
alone does not show whether the link is full.

What would refute it
--------------------
The same small calls on a channel of their own, while the large ones run, are as slow as before.

What to do
----------
Put bulk transfers and small calls on separate channels with separate connections. Or cut large messages into a
stream of smaller ones (64 kB and less), so that other streams can send in between.

References
----------
- RFC 9113 section 5 (multiplexing); RFC 9114 section 1.1 on what TCP does to it
- https://grpc.io/docs/guides/performance/
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
from ..model.text import duration
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import Tables

ID = "head-of-line-blocking"
ABOUT = About(
    example="recorded/lab/head-of-line-blocking.pcap.gz",
    figure=contradictions.blocked_time("head_of_line"),
    caused_by=("loss-recovery",),
    picture="waiting_calls",
    explains=("head_of_line",),
)
Limits = TimeLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all messages that waited behind other streams."""
    stalls = find_stalls(tables, "head_of_line")
    if stalls:
        yield _make_finding(tables, stalls, limits)


def _make_finding(tables: Tables, stalls: Stalls, limits: Limits) -> Finding:
    connection, direction = stalls.first
    sender, _ = name_ends(tables, stalls)
    metrics = measure(tables, stalls)
    metrics.pop("bytes_in_flight_at_stop", None)  # bytes of the connection, which did not stop
    each, total = duration(float(metrics["median_wait_ns"])), duration(stalls.lost_ns)
    return Finding(
        id=ID,
        title=f"messages of {sender} waited {count_times(tables, stalls)} behind bytes of other streams",
        severity=ratings.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=ratings.lower("medium", rate_confidence(tables, stalls.rows)),
        scope=find_scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=metrics,
        evidence=tuple(item for row in sort_longest(tables, stalls.rows) for item in _show_interval(tables, row)),
        explanation=(
            "Messages that had begun waited while their connection sent bytes of other streams. The median wait was "
            f"{each} ({list_blocked(tables, stalls)}), {total} of RPC time in total. A connection of their own "
            "would save all of it only if the link has room. Messages that had not begun waited as well, and are "
            "not counted."
        ),
        remedies=_list_remedies(tables, connection, direction),
        references=("RFC 9113 section 5", "https://grpc.io/docs/guides/performance/"),
        verdict=(
            f"RPCs lost {total} ({stalls.share:.0%} of all RPC time) behind bytes of other streams on their "
            "connection: put large messages and small calls on separate channels."
        ),
    )


def _show_interval(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    stream = int(waits.stream[row])
    yield from show_interval(
        tables,
        row,
        f"the last bytes of stream {stream} before bytes of other streams; {int(waits.owed_bytes[row]):,} bytes of its "
        "message are still to send",
        "the last packet from the peer before the stream continues",
        f"stream {stream} continues, {duration(int(waits.duration_ns[row]))} later",
    )


def _list_remedies(tables: Tables, connection: int, direction: int) -> tuple[Remedy, ...]:
    seen, where = recognise(hosts.implementation(tables, connection, 0)), "at the client, for large messages"
    parts = Remedy(
        "application",
        "stream large messages in pieces of 64 kB and less",
        f"on the {hosts.host(tables, connection, direction)}: other streams can send between the pieces",
    )
    return (*settings.list_settings(intents.SECOND_CHANNEL, seen, where=where), parts)
