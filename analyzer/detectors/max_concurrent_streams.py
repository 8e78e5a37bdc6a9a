"""RPCs queue in the client because the server allows no more streams at once.

What it finds
-------------
Callers wait, although the server responds quickly and the RPCs are short on the wire. RPCs beyond the server's
SETTINGS_MAX_CONCURRENT_STREAMS wait in the client, before their first packet.

The setting limits how many RPCs a connection carries at a time. Neither the server nor the RPC's duration on the
wire shows the wait.

How it is decided
-----------------
The client's open streams reached the limit that the server sent. Ten streams or more ended while they were at the
limit. In at least half of these cases, and in ten of them, a new stream took the place at once: its RPC had been
waiting. Meanwhile at least one RPC is waiting all the time, so the time at the limit is a lower bound of the time
that RPCs queued. The queue itself is not on the wire, and this time is no part of the RPCs' durations.

A busy client, such as a JVM that has just started, takes free places late. So with a limit of ten or more, ten places
taken at once are enough if the limit was reached for half of the time. Then the confidence is medium, and no time is
called lost.

Streams that stay open, such as watches, can fill a limit for good: as many as allowed are open for 5 s or longer, and
none ends. Then nothing further can begin on the connection. Whether an RPC waits for that is not on the wire; from a
limit of ten on it is a warning, below that it may be chance and is not reported.

It is a warning if the limit was reached for a tenth of the time between the first and the last message, and critical if
for half of it. With a limit below ten it is a warning at most, and says that RPCs may queue.

When it cannot tell
-------------------
The limit is sent once, at the opening: a capture that begins later does not contain it. How many RPCs wait, and for
how long each, is not on the wire. Exactly as many callers as the limit allows, each calling in a loop, look the same
without a queue, and so does a client that opens another connection instead. With a small limit this is likely, so the
confidence is lower, and no time is called lost.

What would refute it
--------------------
The client's own measure of its calls agrees with the durations on the wire: then no RPC queued.

What to do
----------
Raise the limit at the server, if it can handle more at a time. Or open more connections from the client, or make the
calls shorter. With grpc-dotnet `EnableMultipleHttp2Connections` opens connections as they are needed.

References
----------
- RFC 9113 sections 5.1.2 and 6.5.2
- https://github.com/grpc/proposal/blob/master/A105-max_concurrent_streams-connection-scaling.md
- https://grpc.io/docs/guides/performance/
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import control, hosts, methods, ratings
from ..facts.turns import Rows, measure_turns
from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import COMPLETE, Mask, Tables
from ..tables.durations import total_ns

ID = "max-concurrent-streams"


def _write_figure(analysis: Analysis) -> str:
    limits = [c.peer_max_concurrent_streams for c in analysis.connections if c.peer_max_concurrent_streams is not None]
    most = max((c.max_concurrent_rpcs for c in analysis.connections), default=0)
    limit = f"the lowest limit that a server announced is {min(limits):,}" if limits else "no server announced a limit"
    return f"at most {count(most, 'RPC')} at once on a connection; {limit}"


ABOUT = About(
    example="recorded/max-concurrent-streams.pcap",
    figure=_write_figure,
    precedence=5,
    whole_connections=True,
    picture="streams",
    explains=("stream_limit",),
)


class Limits(Struct, frozen=True, eq=False):
    refills: int = 10
    """Fewest places taken at once (heuristic: fewer may be chance)."""
    refilled: float = 0.5
    """Share of streams that ended at the limit and were replaced at once (heuristic: most of them)."""
    warning_share: float = 0.1
    """A warning from this share of the active time at the limit (heuristic: a tenth)."""
    critical_share: float = 0.5
    """Critical from this share (heuristic: most of the time)."""
    unknown_streams: int = 10
    """Open streams from which an unknown limit is reported (heuristic: servers seldom allow fewer)."""
    certain_limit: int = 10
    """High confidence from this limit (heuristic: so many callers seldom equal the limit by chance)."""
    full_ns: int = 5_000_000_000
    """Least mean time between the ends of streams while as many as allowed are open (heuristic: longer than most)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with a queue, or why some could not be judged."""
    turns, connections = tables.turns, tables.connections
    bound = (turns.refills >= limits.refills) & (_mark_prompt(tables, limits) | _mark_busy(tables, limits))
    unknown = (connections.complete == 0) & (connections.peer_max_concurrent_streams < 0)
    unknown &= connections.max_concurrent_rpcs >= limits.unknown_streams
    if unknown.any():
        yield Skipped(
            ID,
            f"{count(int(unknown.sum()), 'connection')} with many streams began before the capture: the limit is "
            "unknown",
        )
    full = turns.at_limit_ns // (turns.ended_at_limit.astype(np.int64) + 1) >= limits.full_ns
    full &= connections.peer_max_concurrent_streams >= limits.certain_limit
    if bound.any():
        yield _make_finding(tables, np.flatnonzero(bound), limits)
    elif full.any():
        yield _make_full_finding(tables, np.flatnonzero(full))


def _mark_prompt(tables: Tables, limits: Limits) -> Mask:
    """Mark connections on which a new stream took most places at once."""
    return np.asarray(tables.turns.refills >= limits.refilled * tables.turns.ended_at_limit)


def _mark_busy(tables: Tables, limits: Limits) -> Mask:
    """Mark connections that were at a large limit most of the time: a busy client may take places late."""
    rows = np.arange(len(tables.connections.rpcs))
    active = measure_turns(tables, rows).active_ns
    large = tables.connections.peer_max_concurrent_streams >= limits.certain_limit
    return np.asarray(large & (tables.turns.at_limit_ns >= limits.critical_share * active))


def _make_finding(tables: Tables, rows: Rows, limits: Limits) -> Finding:
    turns, connections = tables.turns, tables.connections
    row = int(rows[np.argmax(turns.at_limit_ns[rows])])
    limit, refills = int(connections.peer_max_concurrent_streams[row]), int(turns.refills[row])
    streams = count(limit, "stream")
    at_limit = int(turns.at_limit_ns[row])
    share = min(1.0, at_limit / int(measure_turns(tables, np.array([row])).active_ns[0]))
    lost = min(total_ns(turns.at_limit_ns[rows]), methods.rpc_time(tables))
    grave = ratings.severity(share, limits.warning_share, limits.critical_share)
    client, server = hosts.host(tables, row, 0), hosts.host(tables, row, 1)
    ended, waited = int(turns.ended_at_limit[row]), duration(at_limit)
    certain = limit >= limits.certain_limit and bool(_mark_prompt(tables, limits)[row])
    queue, were_waiting = ("queue", "were") if certain else ("may queue", "may have been")
    return Finding(
        id=ID,
        title=f"RPCs {queue}: {server} allows {streams}, and the limit was reached {share:.0%} of the time",
        severity="warning" if grave == "critical" and not certain else grave,
        confidence=ratings.lower(ratings.quality_allows(tables), _rate_confidence(limit, certain)),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        lost_ns=lost if certain else None,
        share=methods.share_of_time(tables, lost) if certain else None,
        at_least=certain,
        metrics={
            "connections": len(rows),
            "max_concurrent_streams": limit,
            "at_limit_ns": at_limit,
            "at_limit_share": round(share, 4),
            "times_at_limit": int(turns.at_limit_times[row]),
            "streams_ended_at_limit": ended,
            "places_taken_at_once": refills,
        },
        evidence=tuple(_show_refill(tables, row, limit, were_waiting)),
        explanation=(
            f"{server} allows {streams} at once (SETTINGS_MAX_CONCURRENT_STREAMS). {client} had that many open "
            f"for {waited}, {share:.0%} of the time from first to last message. {ended:,} streams ended meanwhile, and "
            f"{refills:,} times a new one took the place at once: RPCs {were_waiting} waiting for it. "
            f"{_QUEUED if certain else _MAY_QUEUE}"
            f"{_describe_callers(tables, row, limit)}"
            f"Exactly {count(limit, 'caller')} in a loop would look the same without a queue."
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, 1), hosts.implementation(tables, row, 0)),
        references=(
            "RFC 9113 section 5.1.2",
            "https://github.com/grpc/proposal/blob/master/A105-max_concurrent_streams-connection-scaling.md",
        ),
        verdict=(
            f"RPCs of {client} queue for at least {duration(lost)} before their first packet, which no "
            f"duration here includes, because {server} allows {streams} at once: raise MAX_CONCURRENT_STREAMS there."
            if certain
            else f"{server} allows {streams} at once, and {client} had as many open for {share:.0%} of the time: if it "
            f"has more than {count(limit, 'caller')}, RPCs queue before their first packet. Then raise "
            "MAX_CONCURRENT_STREAMS there."
        ),
    )


_QUEUED = (
    "At least one RPC waited all that time, before its first packet, which is not part of the durations on the wire. "
    "It is a lower bound, because the length of the queue is not on the wire. "
)
_MAY_QUEUE = (
    "A queue in the client is not on the wire. Call times that the client measured, if longer than the durations here, "
    "would prove one. "
)


def _make_full_finding(tables: Tables, rows: Rows) -> Finding:
    """Report connections on which as many streams as allowed stay open."""
    turns, connections = tables.turns, tables.connections
    row = int(rows[np.argmax(turns.at_limit_ns[rows])])
    limit, at_limit = int(connections.peer_max_concurrent_streams[row]), int(turns.at_limit_ns[row])
    client, server = hosts.host(tables, row, 0), hosts.host(tables, row, 1)
    where, streams = f"connection {row}", count(limit, "stream")
    number, time = int(turns.ended_at_limit[row]), duration(at_limit)
    ended = f"only {number:,} of them ended in {time}" if number else f"none of them ended for {time}"
    return Finding(
        id=ID,
        title=f"{where} is full: {server} allows {streams}, and {ended}",
        severity="warning",
        confidence=ratings.lower("medium", ratings.quality_allows(tables)),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        metrics={"connections": len(rows), "max_concurrent_streams": limit, "at_limit_ns": at_limit},
        evidence=tuple(_show_full(tables, row, limit)),
        explanation=(
            f"{server} allows {streams} at once (SETTINGS_MAX_CONCURRENT_STREAMS). {client} had that many open on "
            f"{where}, and {ended}. No further RPC can begin there until one does. Whether an RPC waits is not on the "
            "wire: only the client knows its queue."
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, 1), hosts.implementation(tables, row, 0)),
        references=("RFC 9113 section 5.1.2",),
        verdict=(
            f"Connection {row} carries {streams}, as many as {server} allows, and {ended}: further RPCs of {client} "
            "would wait there. Raise MAX_CONCURRENT_STREAMS, or give long streams a channel of their own."
        ),
    )


def _show_full(tables: Tables, row: int, limit: int) -> Iterator[Evidence]:
    """Show the stream that took the last place; the whole connection where not all of its RPCs have rows."""
    rpcs = tables.rpcs
    on = np.flatnonzero(rpcs.connection == row)
    on = on[np.lexsort((rpcs.stream[on], rpcs.start_time_ns[on]))]
    ends = rpcs.start_time_ns[on] + rpcs.duration_ns[on]
    ends = np.sort(ends[rpcs.flags[on] & COMPLETE != 0])
    still = np.arange(1, len(on) + 1) - np.searchsorted(ends, rpcs.start_time_ns[on], side="right")
    full = on[still >= limit]
    if not len(full):
        yield from control.show_span(tables, row, f"{count(limit, 'stream')} stay open, as many as allowed")
        return
    last = int(full[0])
    words = f"stream {rpcs.stream[last]} begins: {limit:,} are open, as many as allowed"
    yield Evidence(int(rpcs.first_packet[last]), int(rpcs.start_time_ns[last]), words)


def _describe_callers(tables: Tables, row: int, limit: int) -> str:
    """Say how many calls the client had open before it knew the limit, if they were more."""
    most = int(tables.connections.max_concurrent_rpcs[row])
    return f"The client had {most:,} open before it knew the limit: if they all go on, RPCs queue. " * (most > limit)


def _rate_confidence(limit: int, certain: bool) -> Confidence:
    return "high" if certain else "medium" if limit > 1 else "low"  # one caller in a loop is common


def _show_refill(tables: Tables, row: int, limit: int, were_waiting: str) -> Iterator[Evidence]:
    turns = tables.turns
    opened, when = int(turns.refill_opened_packet[row]), int(turns.refill_time_ns[row])
    ended, ended_at = int(turns.refill_ended_packet[row]), int(turns.refill_ended_time_ns[row])
    yield Evidence(ended, ended_at, f"a stream ends while {limit:,} are open, as many as allowed")
    yield Evidence(opened, when, f"a new stream takes its place at once: RPCs {were_waiting} waiting")


def _list_remedies(server: str | None, client: str | None) -> tuple[Remedy, ...]:
    more = "at the client: one more TCP connection for each"
    several = Remedy("any gRPC implementation", "several channels, callers spread over them", more)
    seen, beyond = recognise(client), intents.BEYOND_STREAM_LIMIT
    at_client = settings.list_settings(beyond, seen, more, general=(several,))
    at_server = settings.list_windows(intents.STREAM_LIMIT, server, 1)
    return (at_server[0], at_client[0], *at_server[1:], *at_client[1:])
