"""Many callers share one connection, and the client cannot keep it busy.

What it finds
-------------
More callers do not raise the rate, although network and server have time. All callers use one TCP connection, and
mostly they wait for their own client.

All responses have arrived, nothing is in flight in either direction, and no message is incomplete. Still the next
requests leave only a few hundred microseconds later, many at once. C-core and grpc-js give one connection to all
channels with the same target and the same arguments, so more channels or threads alone do not help there. Neither TCP
nor HTTP/2 limits anything here.

How it is decided
-----------------
All of this holds for a connection:

- At least six RPCs or streams were open at once.
- The client was idle for 15 % or more of the time between the first and the last message. Pauses of 10 ms and more
  are left out.
- That happened at least a hundred times.
- No other connection between the same client address and server took a share of the work at the same time.
- Its callers send in step: a round, from one silence to the next, carries at least half as many requests as there are
  callers, and pauses fill less than half of the time. The same callers then send again as soon as they have their
  responses.

Four cases are reported as `info`:

- There are two to five callers: one connection is often enough for them.
- The silence is less than 5 µs for each request: connections of their own cost each request about as much.
- The callers send at regular intervals: of n callers each sends every n-th request, and the middle half of the times
  from a request to the n-th one after it differs by less than a quarter of their median. Then timers, or the callers'
  own pauses, set these times.
- The silences last 2 ms and more on average: a timer is then more likely.

The time lost is the time in which the client was idle. At least one caller was waiting then, so it is a lower bound.
For unary calls this wait comes before their first packet, so it is no part of the RPCs' durations.

When it cannot tell
-------------------
Packets show that the client was silent, not what it did. A client that has no processor time left looks the same, and
more connections make it slower. One capture therefore does not decide, and the confidence is medium at most. Timers of
a client that fires them late look like callers that wait. A capture taken farther from the client than its gaps are
long cannot distinguish them from the network's jitter, and is not judged. Several clients behind one address or proxy
look like one.

What would refute it
--------------------
As many callers on as many connections are not faster: `grpcdiag compare` of two captures shows it. Or a timer paces
the callers, or they compute between their calls. When both ends are short of CPU, one connection may even be faster,
since it sends more requests per packet.

What to do
----------
Give callers connections of their own, or a small pool. With C-core use `GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL=1` or an
argument that differs per channel. With grpc-go, tonic and grpc-java use several ClientConns or Channels. Then check
whether the rate grows. At round trips of a few milliseconds it will not: the gaps are small compared with them.

References
----------
- https://blog.ydb.tech: "The surprising gRPC client bottleneck in low-latency networks - and how to get around it"
- https://grpc.io/docs/guides/performance/ (channels and their streams)
- https://github.com/grpc/grpc/issues/21386, https://github.com/grpc/grpc/issues/15207
"""

from collections.abc import Iterator

import numpy as np

from ..facts import contradictions, hosts, methods, processes, ratings, threads
from ..facts.turns import (
    GapLimits,
    Gaps,
    Rows,
    Turn,
    find_with_gaps,
    mark_alone,
    mark_costly,
    mark_in_step,
    mark_measurable,
    mark_regular,
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

ID = "shared-connection"
ABOUT = About(
    example="recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    figure=contradictions.calls_at_once,
    side="client",
    caused_by=("cpu-quota", "processor-saturated"),
    precedence=6,
    whole_connections=True,
    picture="idle_gaps",
    explains=("idle_clients",),
)


class Limits(GapLimits, frozen=True, eq=False):
    critical_share: float = 0.5
    """Critical from this share (heuristic: most of the time only the client can be busy)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections that lose time this way; one as `info` when none does."""
    rows = find_with_gaps(tables, limits.gaps)
    if not len(rows):
        return
    turn = measure_turns(tables, rows)
    held = mark_in_step(turn, limits)
    near = mark_measurable(tables, rows)
    if (held & ~near).any():
        yield Skipped(
            ID, "the client's gaps are shorter than the round trip between capture and client: capture at the client"
        )
    held &= near
    held[held] = mark_alone(tables, rows[held])
    many = held & (turn.callers >= limits.callers)
    few = held & (turn.callers < limits.callers)
    costly = mark_costly(tables, turn, limits)
    if (many & costly).any() and (reason := processes.lacks_processors(tables, rows[many], limits.waiting_share)):
        yield Skipped(ID, reason)
    elif (many & costly).any():
        yield _make_finding(tables, rows[many & costly], limits, costs=True)
    elif (few | many).any():
        yield _make_finding(tables, rows[few | many], limits, costs=False)


def _make_finding(tables: Tables, rows: Rows, limits: Limits, *, costs: bool) -> Finding:
    worst = int(rows[np.argmax(tables.turns.idle_ns[rows])])
    turn = measure_turns(tables, np.array([worst]))
    callers, held = int(turn.callers[0]), float(turn.held[0])
    seen = measure_gaps(tables, rows)
    lost = min(total_ns(tables.turns.idle_ns[rows]), methods.rpc_time(tables)) if costs else None
    client = hosts.host(tables, worst, 0)
    remedies = _list_remedies(hosts.implementation(tables, worst, 0))
    spent = threads.read_idle(tables, rows)
    near = tables.connections.near_client_rtt_ns[rows]  # its round trip is the uncertainty of gaps
    return Finding(
        id=ID,
        title=f"{callers} callers share one connection that waits for the client {held:.0%} of the time",
        severity=ratings.severity(held, limits.held_share, limits.critical_share) if costs else "info",
        confidence=ratings.lower(
            "medium" if ((near >= 0) & (near * 5 <= seen.p50_ns)).all() else "low", ratings.quality_allows(tables)
        ),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        lost_ns=lost,
        share=None if lost is None else methods.share_of_time(tables, lost),
        at_least=lost is not None,
        metrics=_measure(tables, turn, seen, len(rows)) | (spent.make_metrics() if spent else {}),
        evidence=tuple(show_gaps(tables, worst)),
        explanation=_explain(tables, turn, seen, client)
        + ("" if costs else _explain_info(tables, turn, limits))
        + threads.explain_idle(spent),
        remedies=remedies,
        references=(
            'blog.ydb.tech, "The surprising gRPC client bottleneck in low-latency networks"',
            "https://grpc.io/docs/guides/performance/",
            "https://github.com/grpc/grpc/issues/21386",
        ),
        verdict=(
            f"{callers} callers share one connection of {client}, which leaves it idle {held:.0%} of the time. "
            "If that host has processor time left, compare a run with separate connections "
            f"({remedies[0].implementation}: {remedies[0].knob})."
        ),
    )


def _measure(tables: Tables, turn: Turn, seen: Gaps, connections: int) -> dict[str, int | float | str]:
    turns, row = tables.turns, int(turn.rows[0])
    idle, active = int(turns.idle_ns[row]), int(turn.active_ns[0])
    return {
        "connections": connections,
        "callers": int(turn.callers[0]),
        "client_held_ns": idle,
        "client_held_share": round(float(turn.held[0]), 4),
        "active_ns": active,
        "requests_per_burst": round(int(turns.burst_messages[row]) / max(int(turns.bursts[row]), 1), 2),
        "requests_per_round": round(float(turn.round_messages[0]), 2),
        "client_held_per_request_ns": round(float(turn.request_ns[0])),
        "round_turnaround_ns": (active - idle) // max(int(turns.idles[row]), 1),
        **seen.metrics(),
    }


def _explain(tables: Tables, turn: Turn, seen: Gaps, client: str) -> str:
    m = _measure(tables, turn, seen, 1)
    return (
        f"Up to {m['callers']} RPCs or streams at a time use one connection of {client}. {seen.count:,} times all "
        f"had their responses, and nothing was in flight in either direction. The client then sent nothing for "
        f"about {duration(seen.p50_ns)} (nine of ten times for less than "
        f"{duration(seen.p90_ns)}), {float(turn.held[0]):.0%} of the time from first to last message. "
        f"From one gap to the next it sends {m['requests_per_round']} requests, {m['requests_per_burst']} of them "
        "before the first response arrives. Such a round takes about "
        f"{duration(float(m['round_turnaround_ns']))} without its gap. In the gaps no "
        "response is outstanding and no request is unfinished: the time passes above TCP. A client without processor "
        "time left looks the same, and is not faster with more connections. A second capture with separate connections "
        "decides (grpcdiag compare)."
    )


def _explain_info(tables: Tables, turn: Turn, limits: Limits) -> str:
    """Say why it is `info`."""
    callers, request_ns = int(turn.callers[0]), float(turn.request_ns[0])
    if callers < limits.callers:
        return f" This is info: one connection is often enough for {callers} callers."
    if mark_regular(tables, turn.rows, limits.dispersion)[0]:
        return (
            " This is info: the callers send at regular intervals. Callers with timers or pauses look like this, and "
            "so do callers that wait for a connection and a server of steady speed."
        )
    if turn.gap_ns[0] >= limits.gap_ns:
        return " This is info: silences of milliseconds are more likely a timer's or the application's work."
    return (
        f" This is info: the gaps are {request_ns / 1000:.1f} µs per request, about the cost of a separate packet. "
        "More connections are not likely to be faster."
    )


def _list_remedies(implementation: str | None) -> tuple[Remedy, ...]:
    price = "one more TCP connection for each; each has its own congestion window, which begins small"
    fewer = Remedy("application", "several requests per message or call", "fewer rounds for the same work")
    seen, intent = recognise(implementation), intents.MORE_CONNECTIONS
    return (*(settings.list_own(intent, seen, price) or settings.list_common(intent, price)), fewer)
