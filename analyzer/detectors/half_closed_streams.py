"""Streams stay half-closed: the server ended them, and the client neither ends nor resets its side.

What it finds
-------------
After some time, no further call begins on a connection, although all its calls have ended. The client leaks streams: it
gets the server's trailers and forgets the stream without ending its own side.

Such a stream counts against `SETTINGS_MAX_CONCURRENT_STREAMS` until both sides ended it (RFC 9113 section 5.1.2). The
report says how many there are, since when, and how far they are from the limit.

How it is decided
-----------------
The server sent END_STREAM, and 1 s or more later, when the connection or the capture ends, there is neither END_STREAM
nor RST_STREAM of the client. gRPC libraries send one of them right away. Three such streams or more are reported.

It is a warning if they are half of the limit or more, and critical if the limit is reached.

When it cannot tell
-------------------
When bytes of these streams are missing. Without a limit from the server the streams cost memory alone, so the finding
is `info`. A server may also count a stream as closed as soon as it has ended it.

What would refute it
--------------------
A longer capture has END_STREAM or RST_STREAM of the client for these streams.

What to do
----------
Let the client end its side: call `CloseSend` (Go), `WritesDone` and `Finish` (C++), or cancel the call. A server can
send RST_STREAM with NO_ERROR after its trailers (RFC 9113 section 8.1), which frees the stream.

References
----------
- RFC 9113 sections 5.1 (half-closed), 5.1.2 (stream concurrency), 8.1 (RST_STREAM with NO_ERROR)
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import evidence, hosts, methods, ratings, unanswered
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Severity, Skipped
from ..tables import Ints, Tables

ID = "half-closed-streams"
ABOUT = About(
    example="recorded/wild/half-closed-leak.pcap.zst",
    precedence=1,
    weight="share_of_limit",
    whole_connections=True,
    picture="handshakes",
)


class Limits(Struct, frozen=True, eq=False):
    streams: int = 3
    """Fewest half-closed streams of a connection (heuristic: one or two may be about to end)."""
    warning_share: float = 0.5
    """A warning from this share of the stream limit (heuristic: half of the room for calls)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with half-closed streams."""
    streams = tables.turns.half_closed
    rows = np.flatnonzero(streams >= limits.streams)
    if len(rows):
        share = _measure_shares(tables, rows)
        yield _make_finding(tables, rows[np.lexsort((-streams[rows].astype(np.int64), -share))], limits)


def _measure_shares(tables: Tables, rows: Ints) -> Ints:
    """Return which share of the stream limit is half-closed, in thousandths; 0 without a limit."""
    allowed = tables.connections.peer_max_concurrent_streams[rows]
    share = 1000 * tables.turns.half_closed[rows].astype(np.int64) // np.maximum(allowed, 1)
    return np.where(allowed > 0, share, 0)


def _make_finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    turns, first = tables.turns, int(rows[0])
    connections = tuple(sorted(rows.tolist()))
    count, allowed = int(turns.half_closed[first]), int(tables.connections.peer_max_concurrent_streams[first])
    share = int(_measure_shares(tables, rows[:1])[0]) / 1000
    client = hosts.host(tables, first, 0)
    of = f" of {allowed:,} that the server allows" if share else ""
    ended = f"the server has ended{f', of {allowed:,} that it allows' if share else ''}"
    since = unanswered.format_instant(tables, int(turns.half_closed_time_ns[first]))
    full = "; no further call can begin" if share >= 1 else ""
    return Finding(
        id=ID,
        title=f"{count:,} streams{of} stay half-closed: {client} does not end them",
        severity=_rate_severity(share, limits),
        confidence=ratings.quality_allows(tables),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        metrics={
            "connections": len(connections),
            "half_closed_streams": int(turns.half_closed[rows].sum()),
            "most_half_closed_streams": count,
            "max_concurrent_streams": allowed,
            "share_of_limit": share,
        },
        evidence=tuple(
            evidence.show_packet(
                turns,
                "half_closed_packet",
                row,
                f"the server ends the first of {turns.half_closed[row]:,} streams that the client never ends "
                f"(connection {row})",
            )
            for row in rows[: evidence.EXAMPLES].tolist()
        ),
        explanation=(
            f"On connection {first} the server ended {count:,} streams, the first at {since}, and {client} sent "
            f"neither END_STREAM nor RST_STREAM for them until the end. They still count as open{of}{full}."
        ),
        remedies=(
            Remedy("application", "end the request side, or cancel the call", f"on {client}: frees the stream"),
            Remedy("application", "RST_STREAM NO_ERROR after the trailers", "on the server: frees the stream as well"),
        ),
        references=("RFC 9113 section 5.1", "RFC 9113 section 5.1.2", "RFC 9113 section 8.1"),
        verdict=(
            f"{client} leaves {count:,} streams open that {ended}{full}: end the request side of each call, or "
            "cancel it."
        ),
    )


def _rate_severity(share: float, limits: Limits) -> Severity:
    if share >= 1:
        return "critical"
    return "warning" if share >= limits.warning_share else "info"
