"""The client lets its connection stand still while callers wait.

What it finds
-------------
A connection with several callers on which, again and again, every answer is in, nothing is in flight and nothing is
owed, and the client sends nothing for some tens or hundreds of microseconds. In these gaps neither the network nor the
server has anything to do.

How it is decided
-----------------
The gaps are counted from the moment at which the client can have the last answer; those of 10 ms and more are the
application's own pauses and are left out. A finding needs at least a hundred gaps, 15 % of the time between the first
and the last message in them, and callers that go round in step, sending again as soon as they are answered: a round
carries at least half as many requests as there are callers, and pauses fill less than half of the time. With six
callers or more, 30 % of the time, and 5 µs of silence for each request it is a warning, unless the silences last 2 ms
and more on average. Where `shared-connection` explains the gaps by the one connection that all callers use, this
finding only adds figures.

A lone caller is never told: between its calls it does whatever it is there for.

When it cannot tell
-------------------
Packets show that the client was silent, not what it did: its library, its application and a busy machine look alike.
Nor do they show timers that fire together. A capture taken farther from the client than its gaps are long is not
judged.

What would refute it
--------------------
A profile or trace of the client in which callers are not waiting for the gRPC library in these moments, but compute, or
are paced by a timer.

What to do
----------
Look at the client above TCP: a profile of its gRPC threads, its event loop or its completion queues. Spread callers
over more connections, more completion queues or more event loops; take work out of the callbacks that run on them.

References
----------
- https://grpc.io/docs/guides/performance/
- https://blog.ydb.tech: "The surprising gRPC client bottleneck in low-latency networks - and how to get around it"
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..tables import Tables
from ..tables.durations import total_ns
from . import _figures, _knobs, _shared, _turns, shared_connection

ID = "client-idle-gap"
ABOUT = About(
    example="recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    figure=_figures.blocked_time("client"),
    caused_by=("shared-connection",),
    whole_connections=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    held_share: float = 0.15
    """Share of the active time in which the client holds the ball (own choice: below it another limit is nearer)."""
    gaps: int = 100
    """Times the client held the ball (own choice: fewer are no habit)."""
    callers_per_round: float = 0.5
    """Requests per round for each caller (own choice: callers in step reach one, timers of their own nearly none)."""
    most_paused: float = 0.5
    """Share of the time in pauses (own choice: from here on timers rule the connection, not its callers)."""
    callers: int = 6
    """RPCs or streams open at once from which it is a warning (own choice: as for `shared-connection`)."""
    warning_share: float = 0.3
    """Share of the active time from which it is a warning (own choice: twice what is worth telling)."""
    critical_share: float = 0.6
    """Share of the active time from which it is critical (own choice: most of the time)."""
    request_ns: int = _turns.REQUEST_NS
    """Silence per request from which it costs time (as for `shared-connection`)."""
    gap_ns: int = _turns.GAP_NS
    """Mean silence from which it is rather a timer's (as for `shared-connection`)."""
    examples: int = 3
    """Gaps shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections that lose time, else one for information."""
    rows = _turns.with_gaps(tables, limits.gaps)
    if not len(rows):
        return
    turn = _turns.turns_of(tables, rows)
    held = (turn.held >= limits.held_share) & _turns.in_step(turn, limits.callers_per_round, limits.most_paused)
    held &= _turns.measured(tables, rows)
    explained = np.isin(rows, shared_connection.losing(tables, shared_connection.Limits()))
    costs = held & ~explained & (turn.callers >= limits.callers) & (turn.held >= limits.warning_share)
    costs &= _turns.by_library(turn, limits.request_ns, limits.gap_ns)
    if costs.any():
        yield _finding(tables, rows[costs], limits, costs=True)
    elif held.any():
        yield _finding(tables, rows[held], limits, costs=False)


def _finding(tables: Tables, rows: _turns.Rows, limits: Limits, *, costs: bool) -> Finding:
    worst = int(rows[np.argmax(tables.turns.idle_ns[rows])])
    turn = _turns.turns_of(tables, np.array([worst]))
    seen, held, callers = _turns.gaps(tables, rows), float(turn.held[0]), int(turn.callers[0])
    lost = min(total_ns(tables.turns.idle_ns[rows]), _shared.rpc_time(tables)) if costs else None
    client, gap = _shared.host(tables, worst, 0), _shared.milliseconds(seen.p50_ns)
    return Finding(
        id=ID,
        title=f"The client lets a connection with {callers} callers stand still for {held:.0%} of its time",
        severity=_shared.severity(held, limits.warning_share, limits.critical_share) if costs else "info",
        confidence=_shared.lower("medium", _shared.quality_allows(tables)),
        scope=Scope(tuple(rows.tolist()), _shared.methods_of_connections(tables, rows.tolist())),
        lost_ns=lost,
        share=None if lost is None else _shared.share_of_time(tables, lost),
        metrics=_metrics(tables, turn, seen, len(rows)),
        evidence=tuple(_turns.gap_evidence(tables, worst, limits.examples)),
        explanation=(
            f"{seen.count:,} times {client} had every answer, nothing was in flight or owed in either direction, and "
            f"it sent nothing for about {gap}, although up to {callers} callers go round in step on the connection. "
            f"That is {held:.0%} of the time from the first to the last message. Lengths of the gaps: {seen.classes}."
        ),
        remedies=_remedies(_shared.implementation(tables, worst, 0)),
        references=(
            "https://grpc.io/docs/guides/performance/",
            'blog.ydb.tech, "The surprising gRPC client bottleneck in low-latency networks"',
        ),
        verdict=(
            f"{client} leaves its connection idle for {held:.0%} of the time while {callers} callers go round on it "
            f"({seen.count:,} gaps of about {gap}): look at the client above TCP, not at the network or the server."
        ),
    )


def _metrics(tables: Tables, turn: _turns.Turn, seen: _turns.Gaps, connections: int) -> dict[str, int | float | str]:
    turns, row = tables.turns, int(turn.rows[0])
    idle = int(turns.idle_ns[row])
    return {
        "connections": connections,
        "callers": int(turn.callers[0]),
        "client_held_ns": idle,
        "client_held_share": round(float(turn.held[0]), 4),
        "active_ns": int(turn.active_ns[0]),
        "round_turnaround_ns": (int(turn.active_ns[0]) - idle) // max(int(turns.idles[row]), 1),
        "pauses": int(turns.pauses[row]),
        "pause_ns": int(turns.pause_ns[row]),
        **seen.metrics(),
    }


def _remedies(implementation: str | None) -> tuple[Remedy, ...]:
    return _knobs.seen_first(
        (
            Remedy(
                "application", "a profile of the client while it runs", "shows what its gRPC threads do in the gaps"
            ),
            Remedy(
                _knobs.C_CORE,
                "a CompletionQueue and a thread for each few callers; GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL=1",
                "one queue or one connection serves all callers otherwise",
            ),
            Remedy("grpc-go", "GOMAXPROCS; several grpc.NewClient(...)", "one writer goroutine serves a connection"),
            Remedy(
                "grpc-java",
                "NettyChannelBuilder.eventLoopGroup(...), several ManagedChannels",
                "one event loop serves a connection; keep blocking work off it",
            ),
            Remedy("grpc-js", "several processes or worker threads", "one event loop serves everything in a process"),
            Remedy(
                "tonic", 'several Channels; #[tokio::main(flavor = "multi_thread")]', "one task serves a connection"
            ),
            Remedy("grpc-dotnet", "several GrpcChannels with a SocketsHttpHandler each", "a connection has one writer"),
        ),
        implementation,
    )
