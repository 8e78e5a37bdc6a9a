"""Messages waited on their connection because bytes of other streams went first.

What it finds
-------------
RPCs that share a connection with large messages: one TCP connection sends one byte after the other, so a small message
that becomes ready while a large one is being sent waits until the bytes in front of it are gone. HTTP/2 interleaves
streams by frames, but what a library has handed to TCP already, and what TCP holds back, is in front all the same.

How it is decided
-----------------
A wait counts when a stream owed bytes of a message it had begun while its connection kept sending bytes of other
streams in the same direction. The time lost is the RPC time that passed so. It is an upper bound of what a connection
of its own would save: where the link itself is full, the bytes wait there instead.

When it cannot tell
-------------------
Messages that had not yet put a byte on the wire wait as well, inside the sender's library: no packet shows them.
Whether the link is full cannot be read from one connection alone.

What would refute it
--------------------
The same small calls on a channel of their own, while the large ones run, are as slow as before.

What to do
----------
Put bulk transfers and small calls on separate channels with separate connections; cut large messages into a stream of
smaller ones (64 kB and less), so that others get their turn.

References
----------
- RFC 9113 section 5 (multiplexing); RFC 9114 section 1.1 on what TCP does to it
- https://grpc.io/docs/guides/performance/
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..tables import Tables
from . import _figures, _shared, _stalls

ID = "head-of-line-blocking"
ABOUT = About(
    example="recorded/lab/head-of-line-blocking.pcap.gz",
    figure=_figures.blocked_time("head_of_line"),
    caused_by=("loss-recovery",),
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
    """Yield one finding over all waits behind other streams."""
    stalls = _stalls.find(tables, "head_of_line")
    if stalls:
        yield _finding(tables, stalls, limits)


def _finding(tables: Tables, stalls: _stalls.Stalls, limits: Limits) -> Finding:
    connection, direction = stalls.first
    sender = _shared.host(tables, connection, direction)
    metrics = _stalls.metrics(tables, stalls)
    del metrics["bytes_in_flight_at_stop"]  # the connection's, which did not stop
    each, total = _shared.milliseconds(float(metrics["median_wait_ns"])), _shared.milliseconds(stalls.lost_ns)
    return Finding(
        id=ID,
        title=f"messages of {sender} waited {_stalls.times(len(stalls.rows))} behind bytes of other streams",
        severity=_shared.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=_shared.lower("medium", _stalls.confidence(tables, stalls.rows)),
        scope=_stalls.scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=metrics,
        evidence=tuple(
            item for row in _stalls.longest(tables, stalls.rows, limits.examples) for item in _evidence(tables, row)
        ),
        explanation=(
            f"Messages that had begun waited while their connection sent bytes of other streams: {each} in the median "
            f"({_stalls.where(tables, stalls)}), {total} of RPC time in all. How much of it a connection of their own "
            "would save depends on whether the link has room; messages that had not begun waited unseen."
        ),
        remedies=_remedies(tables, connection, direction),
        references=("RFC 9113 section 5", "https://grpc.io/docs/guides/performance/"),
        verdict=(
            f"RPCs lost {total} ({stalls.share:.0%} of all RPC time) behind bytes of other streams that {sender} sent "
            "first on the same connection: put large messages and small calls on separate channels."
        ),
    )


def _evidence(tables: Tables, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    stream = int(waits.stream[row])
    yield from _stalls.evidence(
        tables,
        row,
        f"the last bytes of stream {stream} before others go first; {int(waits.owed_bytes[row]):,} bytes of its "
        "message are owed",
        "the newest packet from the peer before the stream goes on",
        f"stream {stream} goes on, {_shared.milliseconds(int(waits.duration_ns[row]))} later",
    )


_SEPARATE = (
    ("grpc-go", "a second grpc.NewClient", "each ClientConn has its own connection"),
    ("grpc-java", "a second ManagedChannel", "each channel has its own connection"),
    ("grpc-c++", "grpc.use_local_subchannel_pool=1", "on the second channel: alike channels share a connection else"),
    (
        "grpc-python",
        "grpc.use_local_subchannel_pool=1",
        "on the second channel: alike channels share a connection else",
    ),
    ("grpc-node", "grpc.use_local_subchannel_pool: 1", "on the second channel: alike channels share a connection else"),
    ("tonic", "a second Channel", "clones of a Channel share its connection"),
    ("grpc-dotnet", "a second GrpcChannel", "with an HttpHandler of its own"),
)


def _remedies(tables: Tables, connection: int, direction: int) -> tuple[Remedy, ...]:
    seen = _shared.implementation(tables, connection, 0) or ""
    options = sorted(_SEPARATE, key=lambda option: not seen.startswith(option[0]))
    return (
        *(Remedy(name, knob, f"at the client, for large messages: {note}") for name, knob, note in options),
        Remedy(
            "application",
            "stream large messages in pieces of 64 kB and less",
            f"on the {_shared.host(tables, connection, direction)}: other streams get their turn between the pieces",
        ),
    )
