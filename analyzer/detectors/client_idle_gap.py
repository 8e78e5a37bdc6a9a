"""The client leaves its connection idle while callers wait.

What it finds
-------------
A client with several callers sends in rounds, with a silence before each round. In these silences all responses have
arrived, nothing is in flight, and no message is incomplete.

Each silence lasts some tens or hundreds of microseconds. Neither the network nor the server has anything to do then.

How it is decided
-----------------
A gap begins when the last response can have reached the client. Gaps of 10 ms and more are the application's own pauses
and are left out. A finding needs all of this:

- At least a hundred gaps.
- The gaps take 15 % of the time between the first and the last message.
- Callers that send in step, again as soon as they have their responses: a round carries at least half as many
  requests as there are callers, and pauses fill less than half of the time.

It is a warning with six callers or more, 30 % of the time, and 5 µs of silence for each request, unless the silences
last 2 ms and more on average, or the callers send at regular intervals. Where `shared-connection` explains the gaps by
the one connection that all callers use, this finding only adds figures.

A lone caller is never reported: what it does between its calls is its own work.

When it cannot tell
-------------------
Packets show that the client was silent, not what it did: its library, its application and a busy machine look alike.
Packets do not show timers that fire together either. A capture taken farther from the client than its gaps are long
is not judged.

A single long gap is not reported: the packets of a client that was stopped between its calls (SIGSTOP, garbage
collection, a paused machine) are those of one that had nothing to ask. Only a PING that comes meanwhile and is
acknowledged late tells them apart, see `synchronised-stall`. No call is open in such a gap, so it takes no RPC time.

What would refute it
--------------------
A profile or trace of the client in which callers are not waiting for the gRPC library in these moments, but compute,
or are paced by a timer.

What to do
----------
Look at the client above TCP: a profile of its gRPC threads, its event loop or its completion queues. Spread callers
over more connections, more completion queues or more event loops. Take work out of the callbacks that run on them.

References
----------
- https://grpc.io/docs/guides/performance/
- https://blog.ydb.tech: "The surprising gRPC client bottleneck in low-latency networks - and how to get around it"
"""

from collections.abc import Iterator

import numpy as np

from ..facts import contradictions, hosts, methods, processes, ratings, threads
from ..facts.turns import (
    GapLimits,
    Gaps,
    Rows,
    Turn,
    find_losing,
    find_with_gaps,
    mark_costly,
    mark_in_step,
    mark_measurable,
    measure_gaps,
    measure_turns,
    show_gaps,
)
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..model.text import duration
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import Tables
from ..tables.durations import total_ns

ID = "client-idle-gap"
ABOUT = About(
    example="recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    figure=contradictions.blocked_time("client"),
    side="client",
    caused_by=("cpu-quota", "processor-saturated", "lock-contention", "shared-connection"),
    whole_connections=True,
    picture="idle_gaps",
    explains=("idle_clients",),
)


class Limits(GapLimits, frozen=True, eq=False):
    warning_share: float = 0.3
    """A warning from this share of the active time (heuristic: twice the share that is reported)."""
    critical_share: float = 0.6
    """Critical from this share of the active time (heuristic: most of the time)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections that lose time; one as `info` when none does."""
    rows = find_with_gaps(tables, limits.gaps)
    if not len(rows):
        return
    turn = measure_turns(tables, rows)
    held = mark_in_step(turn, limits) & mark_measurable(tables, rows)
    explained = np.isin(rows, find_losing(tables, GapLimits()))
    costs = held & ~explained & (turn.callers >= limits.callers) & (turn.held >= limits.warning_share)
    costs &= mark_costly(tables, turn, limits)
    if costs.any() and (reason := processes.lacks_processors(tables, rows[costs], limits.waiting_share)):
        yield Skipped(ID, reason)
    elif costs.any():
        yield _make_finding(tables, rows[costs], limits, costs=True)
    elif held.any():
        yield _make_finding(tables, rows[held], limits, costs=False)


def _make_finding(tables: Tables, rows: Rows, limits: Limits, *, costs: bool) -> Finding:
    worst = int(rows[np.argmax(tables.turns.idle_ns[rows])])
    turn = measure_turns(tables, np.array([worst]))
    seen, held, callers = measure_gaps(tables, rows), float(turn.held[0]), int(turn.callers[0])
    lost = min(total_ns(tables.turns.idle_ns[rows]), methods.rpc_time(tables)) if costs else None
    client, gap = hosts.host(tables, worst, 0), duration(seen.p50_ns)
    spent = threads.read_idle(tables, rows)
    return Finding(
        id=ID,
        title=f"The client leaves a connection with {callers} callers idle for {held:.0%} of the time",
        severity=ratings.severity(held, limits.warning_share, limits.critical_share) if costs else "info",
        confidence=ratings.lower("medium", ratings.quality_allows(tables)),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        lost_ns=lost,
        share=None if lost is None else methods.share_of_time(tables, lost),
        metrics=_measure(tables, turn, seen, len(rows)) | (spent.make_metrics() if spent else {}),
        evidence=tuple(show_gaps(tables, worst)),
        explanation=(
            f"{seen.count:,} times {client} had all responses, nothing was in flight in either direction, and it sent "
            f"nothing for about {gap}, although up to {callers} callers send in step on the connection. "
            f"That is {held:.0%} of the time from the first to the last message. Lengths of the gaps: {seen.classes}."
            + threads.explain_idle(spent)
        ),
        remedies=_list_remedies(hosts.implementation(tables, worst, 0)),
        references=(
            "https://grpc.io/docs/guides/performance/",
            'blog.ydb.tech, "The surprising gRPC client bottleneck in low-latency networks"',
        ),
        verdict=(
            f"{client} leaves its connection idle for {held:.0%} of the time between the rounds of {callers} callers: "
            "profile the client's gRPC threads, not the network or the server."
        ),
    )


def _measure(tables: Tables, turn: Turn, seen: Gaps, connections: int) -> dict[str, int | float | str]:
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


def _list_remedies(implementation: str | None) -> tuple[Remedy, ...]:
    profile = Remedy(
        "application", "a profile of the client while it runs", "shows what its gRPC threads do in the gaps"
    )
    return settings.list_settings(intents.MORE_WRITERS, recognise(implementation), general=(profile,))
