"""Many callers share one connection, and the client cannot keep it busy.

What it finds
-------------
Callers that all use one TCP connection, while most of their waiting is for their own client: every answer is in,
nothing is in flight in either direction, nothing is owed, and still the next requests leave only some hundred
microseconds later, many at once. gRPC libraries give one connection to all channels with the same target and the same
arguments, so more channels or threads do not help. Neither TCP nor HTTP/2 limits anything here.

How it is decided
-----------------
All of this holds for a connection: at least six RPCs or streams were open at once; the client held the ball for 15 % or
more of the time between the first and the last message, pauses of 10 ms and more left out; that happened at least a
hundred times; no other connection that takes a share of the work was open beside it between the same client address and
server; and its callers go round in step. They do when a round, from one silence to the next, carries half as many
requests as there are callers or more, and pauses fill less than half of the time: then the same callers are out again
as soon as they have their answers. With two to five callers it is told as `info`: one connection is usually enough for
them. So it is when the silence is less than 5 µs for each request: connections of their own cost each request about as
much. And so it is when the silences last 2 ms and more on average: these are rather a timer's.

The time lost is the time in which the client held the ball. At least one caller was waiting then. It is a lower bound.
For unary calls this waiting is before their first packet, so it is no part of the RPCs' durations.

When it cannot tell
-------------------
Packets show that the client was silent, not what it did. Timers that fire together in the client, two milliseconds
apart or less, look like callers that wait. A capture taken farther from the client than its gaps are long cannot tell
them from the network's jitter, and is not judged. Several clients behind one address or proxy look like one.

What would refute it
--------------------
As many callers on as many connections are not faster: `grpcdiag compare` of two captures shows it. Or the callers are
paced by a timer, or compute between their calls. When both ends are short of CPU, one connection may even be faster,
since it sends more requests per packet.

What to do
----------
Give callers connections of their own, or a small pool: with C-core `GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL=1` or an
argument that differs per channel; with grpc-go, tonic and grpc-java several ClientConns or Channels. Then look
whether the rate grows. At round trips of some milliseconds it will not: the gaps are small beside them.

References
----------
- https://blog.ydb.tech: "The surprising gRPC client bottleneck in low-latency networks - and how to get around it"
- https://grpc.io/docs/guides/performance/ (channels and their streams)
- https://github.com/grpc/grpc/issues/21386, https://github.com/grpc/grpc/issues/15207
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Severity, Skipped
from ..tables import Tables
from ..tables.durations import total_ns
from . import _figures, _knobs, _shared, _turns

ID = "shared-connection"
ABOUT = About(
    example="recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    figure=_figures.calls_at_once,
    precedence=6,
    whole_connections=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    callers: int = 6
    """RPCs or streams open at once (own choice: YDB's post shows the effect from about ten; small tests use four)."""
    held_share: float = 0.15
    """Share of the active time in which the client holds the ball (own choice: below it another limit is nearer)."""
    critical_share: float = 0.5
    """The same share from which it is critical (own choice: most of the time nobody but the client is busy)."""
    gaps: int = 100
    """Times the client held the ball (own choice: fewer are no habit)."""
    callers_per_round: float = 0.5
    """Requests per round for each caller (own choice: callers in step reach one, timers of their own nearly none)."""
    most_paused: float = 0.5
    """Share of the time in pauses (own choice: from here on timers rule the connection, not its callers)."""
    request_ns: int = _turns.REQUEST_NS
    """Silence per request from which it costs time (see there)."""
    gap_ns: int = _turns.GAP_NS
    """Mean silence from which it is rather a timer's (see there)."""
    examples: int = 3
    """Gaps shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections that lose time by it, else one for information."""
    rows = _turns.with_gaps(tables, limits.gaps)
    if not len(rows):
        return
    turn = _turns.turns_of(tables, rows)
    held = _held_in_step(turn, limits)
    near = _turns.measured(tables, rows)
    if (held & ~near).any():
        yield Skipped(
            ID, "the client's gaps are shorter than the way between capture and client: capture at the client"
        )
    held &= near
    many = held & (turn.callers >= limits.callers)
    many[many] = _turns.alone(tables, rows[many])
    few = held & (turn.callers < limits.callers)
    dear = _turns.by_library(turn, limits.request_ns, limits.gap_ns)
    if (many & dear).any():
        yield _finding(tables, rows[many & dear], limits, costs=True)
    elif (few | many).any():
        yield _finding(tables, rows[few | many], limits, costs=False)


def losing(tables: Tables, limits: Limits) -> _turns.Rows:
    """The connections on which sharing costs time: what is seen there beside it follows from it."""
    rows = _turns.with_gaps(tables, limits.gaps)
    if not len(rows):
        return rows
    turn = _turns.turns_of(tables, rows)
    held = _held_in_step(turn, limits) & _turns.measured(tables, rows)
    held &= _turns.by_library(turn, limits.request_ns, limits.gap_ns)
    rows = rows[held & (turn.callers >= limits.callers)]
    return rows[_turns.alone(tables, rows)]


def _held_in_step(turn: _turns.Turn, limits: Limits) -> _turns.Mask:
    return (turn.held >= limits.held_share) & _turns.in_step(turn, limits.callers_per_round, limits.most_paused)


def _finding(tables: Tables, rows: _turns.Rows, limits: Limits, *, costs: bool) -> Finding:
    worst = int(rows[np.argmax(tables.turns.idle_ns[rows])])
    turn = _turns.turns_of(tables, np.array([worst]))
    callers, held = int(turn.callers[0]), float(turn.held[0])
    seen = _turns.gaps(tables, rows)
    lost = min(total_ns(tables.turns.idle_ns[rows]), _shared.rpc_time(tables)) if costs else None
    client = _shared.host(tables, worst, 0)
    remedies = _remedies(_shared.implementation(tables, worst, 0))
    gap = _shared.milliseconds(seen.p50_ns)
    return Finding(
        id=ID,
        title=f"{callers} callers share one connection, and the client holds the ball {held:.0%} of its time",
        severity=_severity(held, limits) if costs else "info",
        confidence=_shared.lower(
            "high" if costs and _near_client(tables, rows, seen.p50_ns) else "medium", _shared.quality_allows(tables)
        ),
        scope=Scope(tuple(rows.tolist()), _shared.methods_of_connections(tables, rows.tolist())),
        lost_ns=lost,
        share=None if lost is None else _shared.share_of_time(tables, lost),
        metrics=_metrics(tables, turn, seen, len(rows)),
        evidence=tuple(_turns.gap_evidence(tables, worst, limits.examples)),
        explanation=_explanation(tables, turn, seen, client) + ("" if costs else _why_not(turn, limits)),
        remedies=remedies,
        references=(
            'blog.ydb.tech, "The surprising gRPC client bottleneck in low-latency networks"',
            "https://grpc.io/docs/guides/performance/",
            "https://github.com/grpc/grpc/issues/21386",
        ),
        verdict=(
            f"{callers} callers share one connection of {client}, which keeps it waiting {held:.0%} of its time "
            f"({seen.count:,} gaps of about {gap} with nothing in flight and nothing owed): give callers connections "
            f"of their own ({remedies[0].implementation}: {remedies[0].knob})."
        ),
    )


def _severity(held: float, limits: Limits) -> Severity:
    return _shared.severity(held, limits.held_share, limits.critical_share)


def _near_client(tables: Tables, rows: _turns.Rows, gap_ns: int) -> bool:
    """Whether the way between capture and client is short beside the gaps, whose beginning it makes uncertain."""
    near = tables.connections.near_client_rtt_ns[rows]
    return bool(((near >= 0) & (near * 5 <= gap_ns)).all())


def _metrics(tables: Tables, turn: _turns.Turn, seen: _turns.Gaps, connections: int) -> dict[str, int | float | str]:
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
        "estimated_scaling_without_gaps": round(active / max(active - idle, 1), 2),
        **seen.metrics(),
    }


def _explanation(tables: Tables, turn: _turns.Turn, seen: _turns.Gaps, client: str) -> str:
    m = _metrics(tables, turn, seen, 1)
    return (
        f"Up to {m['callers']} RPCs or streams at a time use one connection of {client}. {seen.count:,} times all of "
        f"them had their answers, nothing was in flight in either direction and nothing was owed, and the client sent "
        f"nothing for about {_shared.milliseconds(seen.p50_ns)} (nine of ten times for less than "
        f"{_shared.milliseconds(seen.p90_ns)}): {float(turn.held[0]):.0%} of the time from first to last message. "
        f"{m['requests_per_round']} requests went out per round, {m['requests_per_burst']} before an answer came in "
        f"between; the round itself took about {_shared.milliseconds(float(m['round_turnaround_ns']))}. In the "
        "gaps the client owes no bytes and waits for none: the time passes above TCP. Without the gaps the same "
        f"rounds would give about {m['estimated_scaling_without_gaps']} times the rate; this is an estimate, for the "
        "capture does not show one caller alone."
    )


def _why_not(turn: _turns.Turn, limits: Limits) -> str:
    """Why it is told for information only."""
    callers, request_ns = int(turn.callers[0]), float(turn.request_ns[0])
    if callers < limits.callers:
        return f" With {callers} callers this is for information: one connection is usually enough for so few."
    if turn.gap_ns[0] >= limits.gap_ns:
        return " Silences of milliseconds are rather a timer's or the application's work, so this is for information."
    return (
        f" That is {request_ns / 1000:.1f} µs for each request, about what a packet of its own would cost it: more "
        "connections are not likely to be faster, so this is for information."
    )


def _remedies(implementation: str | None) -> tuple[Remedy, ...]:
    price = "one TCP connection more for each; each has its own congestion window to build up"
    return _knobs.seen_first(
        (
            Remedy(
                _knobs.C_CORE,
                'GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL=1 ("grpc.use_local_subchannel_pool") on each channel',
                "channels with equal target and arguments share one connection otherwise, however many there are; an "
                f"argument of any name with a value of its own per channel does the same; {price}",
            ),
            Remedy("grpc-go", "several grpc.NewClient(...), callers spread over them", price),
            Remedy("grpc-java", "several ManagedChannels, callers spread over them", price),
            Remedy("tonic", "several Endpoint::connect(), or Channel::balance_list over the same address", price),
            Remedy(
                "grpc-js",
                "'grpc.use_local_subchannel_pool': 1 on each client",
                f"clients of one process share subchannels otherwise; {price}",
            ),
            Remedy(
                "grpc-dotnet",
                "several GrpcChannels with a SocketsHttpHandler each",
                "EnableMultipleHttp2Connections opens another connection only beyond the server's stream limit",
            ),
            Remedy("application", "several requests per message or call", "fewer turns for the same work"),
        ),
        implementation,
    )
