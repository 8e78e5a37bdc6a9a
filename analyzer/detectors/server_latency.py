"""The server took long to respond.

What it finds
-------------
Calls are slow, and most of their time passes at the server. It is measured as response time: from the last byte of a
request message to the first byte of the next response message on the stream.

Two patterns are distinguished. *All calls alike*: the handler needs that time, which is reported as `info`. *A long
tail*: most responses come quickly and some take very much longer, which is a warning. Such calls wait for something
in the server: a lock, a pool, a queue, garbage collection, another service.

How it is decided
-----------------
By the method's distribution of response times, less the round trip between the capture point and the server. The
response time must be long in itself and compared with the round trip between client and server. Most of the method's
RPC time must be the server's. A fast call is not reported just because the server has the largest part of it. A tail
counts only for methods with one response per request: a stream may be silent because there is nothing to say.

When it cannot tell
-------------------
The packets show the server as one box: its host, its gRPC library, its handler and what the handler calls. Packet
loss makes responses late, too: with more retransmitted or reordered packets than the tail allows for, a tail is not
judged. Nor is it where time in the network's queue (`network-queueing`) can explain it. A method with fewer than a
hundred responses is not judged for a tail either.

What would refute it
--------------------
The server's own figures for the handler (interceptor, tracing) are far below these. Then its host or its library
held the call: the CPU, the number of threads, a proxy on the same host.

What to do
----------
Trace the handler at the times of the evidence. For a tail look for what these calls have in common: the same moment
(garbage collection, a full thread pool), the same key or size. If all calls are slow alike, that is the work: make
the calls in parallel, or reduce the work.

References
----------
- https://grpc.io/docs/guides/performance/
- https://opentelemetry.io/docs/specs/semconv/rpc/ (server duration, to compare with)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..summary.figures import HTTP2
from ..tables import COMPLETE, Ints, Method, Tables
from . import _failures as common
from . import _figures
from ._shared import distinct, host, lower, milliseconds, names, quality_allows, rpc_time

ID = "server-latency"
ABOUT = About(
    example="recorded/max-concurrent-streams-control.pcap",
    figure=_figures.blocked_time("server"),
)

_SERVER = CAUSES.index("server")
_QUEUE = CAUSES.index("network_queue")


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    long_ns: int = 10_000_000
    """Median response time from which a method is slow (heuristic: ten times a usual lookup in memory, 10 ms)."""
    tail_ns: int = 50_000_000
    """99th percentile that is a long tail (heuristic: above scheduling and garbage collection on a busy host)."""
    tail_factor: float = 5.0
    """A long tail has a 99th percentile of this many medians (heuristic; an exponential distribution has 6.6)."""
    round_trips: float = 2.0
    """Round trips between client and server that it must exceed (heuristic: the network cannot be the cause)."""
    of_method: float = 0.5
    """Share of the method's RPC time that must be the server's (heuristic: most of it)."""
    of_capture: float = 0.02
    """Share of all RPC time that it must be (heuristic: above the variation between equal runs)."""
    least_answers: int = 20
    """Fewest responses for a median (heuristic: first calls, with cold caches, are few)."""
    tail_answers: int = 100
    """Fewest responses for a tail (heuristic: with fewer the 99th percentile is one response)."""
    disturbed: float = 0.1
    """Retransmitted or reordered packets allowed for each response in the tail (heuristic: too few to cause it)."""
    unary_messages: float = 2.1
    """Messages per RPC up to which a method has one response per request (heuristic: two, and some rounding)."""
    examples: int = 3
    """RPCs shown as evidence (heuristic: enough to see a pattern)."""


class _Slow(Struct, frozen=True, eq=False):
    """One method with its response times, less the round trip to the server."""

    method: Method
    p50_ns: int
    p99_ns: int
    tail: bool

    @property
    def server_ns(self) -> int:
        return self.method.budget[_SERVER]


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all methods with slow responses, or why tails could not be judged."""
    long = [method for method in tables.methods if _may_be_long(method, limits)]
    if not long:
        return
    round_trip, near = _measure_round_trips(tables)
    if round_trip < 0:
        yield Skipped(ID, "no round-trip time was measured, so the server's part of the response time is unknown")
        return
    whole = rpc_time(tables)
    long = [m for m in long if m.budget[_SERVER] >= max(limits.of_method * sum(m.budget), limits.of_capture * whole)]
    slow: list[_Slow] = []
    for method in long:
        found = _judge(tables, method, round_trip, near, limits)
        if isinstance(found, Skipped):
            yield found
        elif found:
            slow.append(found)
    if slow:
        yield _make_finding(tables, sorted(slow, key=lambda s: (not s.tail, -s.server_ns)), limits)


def _may_be_long(method: Method, limits: Limits) -> bool:
    figures = method.turnaround
    if not figures or figures["count"] < limits.least_answers:
        return False
    return figures["p50"] >= limits.long_ns or figures["p99"] >= limits.tail_ns


def _measure_round_trips(tables: Tables) -> tuple[int, int]:
    """Return the largest minimum round trip of all connections, in full and from capture point to server; -1: none."""
    connections = tables.connections
    chosen = (connections.protocol == HTTP2) & (connections.rpcs > 0)
    whole = np.maximum(connections.min_rtt_ns[chosen], connections.handshake_rtt_ns[chosen])
    near = connections.near_server_rtt_ns[chosen]
    return int(whole.max(initial=-1)), max(0, int(near.max(initial=0)))


def _judge(tables: Tables, method: Method, round_trip: int, near: int, limits: Limits) -> _Slow | Skipped | None:
    figures = method.turnaround or {}
    p50, p99 = max(0, figures["p50"] - near), max(0, figures["p99"] - near)
    least = limits.round_trips * round_trip
    slow = p50 >= max(limits.long_ns, least)
    tail = figures["count"] >= limits.tail_answers and p99 >= max(limits.tail_ns, least, limits.tail_factor * p50)
    if tail and _is_unary(method, limits):
        if _count_disturbed(tables) > limits.disturbed * 0.01 * figures["count"]:
            return Skipped(ID, f"packets were lost or reordered, which may explain the late responses of {method.name}")
        if method.budget[_QUEUE] >= 0.01 * figures["count"] * (p99 - p50):
            return Skipped(ID, f"the network's queue may explain the late responses of {method.name}")
        return _Slow(method, p50, p99, True)
    return _Slow(method, p50, p99, False) if slow else None


def _is_unary(method: Method, limits: Limits) -> bool:
    return method.messages <= limits.unary_messages * method.rpcs


def _count_disturbed(tables: Tables) -> int:
    connections = tables.connections
    return int(connections.retransmitted_packets.sum()) + int(connections.out_of_order_packets.sum())


def _make_finding(tables: Tables, slow: list[_Slow], limits: Limits) -> Finding:
    first = slow[0]
    rows = _find_examples(tables, first, limits)
    connections = tuple(int(c) for c in distinct(tables.rpcs.connection[rows]))
    server, name = host(tables, connections[0], 1), first.method.name or "A method whose name is not known"
    share = first.server_ns / max(1, rpc_time(tables))
    words = _summarize(first, server, name)
    return Finding(
        id=ID,
        title=f"{name}: {server} took {milliseconds(first.p99_ns if first.tail else first.p50_ns)} "
        + ("for one response in a hundred" if first.tail else "for the median response"),
        severity="warning" if first.tail else "info",
        confidence=lower("medium" if first.tail else "high", quality_allows(tables)),
        scope=Scope(connections, names(tables, [s.method.number for s in slow])),
        lost_ns=None,
        share=None,
        metrics=_measure(slow, share),
        evidence=tuple(_show_rpcs(tables, rows)),
        explanation=(
            f"{words} The round trip between client and server is not included; {share:.0%} of all RPC time is the "
            "server's. The packets show the server as one box: host, library, handler and what it calls."
        ),
        remedies=_list_remedies(first.tail, server),
        references=("https://grpc.io/docs/guides/performance/", "https://opentelemetry.io/docs/specs/semconv/rpc/"),
        verdict=f"{_summarize_briefly(first, server, name)}: trace the handler at the times of the evidence.",
    )


def _summarize(slow: _Slow, server: str, name: str) -> str:
    count = (slow.method.turnaround or {})["count"]
    p50, p99 = milliseconds(slow.p50_ns), milliseconds(slow.p99_ns)
    if slow.tail:
        return (
            f"{server} responds to {name} in {p50} (median of {count:,}) but needs {p99} and more for one response in "
            "a hundred: some calls wait for something there."
        )
    return f"{server} needs {p50} to respond to {name} (median of {count:,}; 99th percentile {p99})."


def _summarize_briefly(slow: _Slow, server: str, name: str) -> str:
    p50, p99 = milliseconds(slow.p50_ns), milliseconds(slow.p99_ns)
    if slow.tail:
        return f"{server} needs {p99} and more for one response of {name} in a hundred (median {p50})"
    return f"{server} needs {p50} to respond to {name} (median)"


def _find_examples(tables: Tables, slow: _Slow, limits: Limits) -> Ints:
    """Find the longest RPCs of the method."""
    rpcs = tables.rpcs
    mine = np.flatnonzero((rpcs.method == slow.method.number) & (rpcs.flags & COMPLETE != 0))
    order = np.lexsort((rpcs.stream[mine], rpcs.connection[mine], -rpcs.duration_ns[mine]))
    return mine[order][: limits.examples]


def _show_rpcs(tables: Tables, rows: Ints) -> Iterator[Evidence]:
    for row in rows.tolist():
        yield common.began(tables, row)
        yield common.ended(tables, row, "the last packet of this RPC")


def _measure(slow: list[_Slow], share: float) -> Mapping[str, int | float | str]:
    first = slow[0]
    return {
        "server_p50_ns": first.p50_ns,
        "server_p99_ns": first.p99_ns,
        "answers": (first.method.turnaround or {})["count"],
        "server_time_ns": first.server_ns,
        "server_time_share": share,
        "long_tail": int(first.tail),
        "slow_methods": len(slow),
        "slow_methods_p50": ", ".join(f"{s.method.name} {milliseconds(s.p50_ns)}" for s in slow[:5]),
    }


def _list_remedies(tail: bool, server: str) -> tuple[Remedy, ...]:
    trace = Remedy(
        "application", "trace the handler at the times of the evidence", f"on {server}: shows what it waits for"
    )
    if not tail:
        parallel = Remedy(
            "application", "call in parallel, or ask for several things in one call", "more load on the server at once"
        )
        return (trace, parallel)
    threads = Remedy(
        "application",
        "the server's pools: threads, connections to other services, locks",
        "a pool that is too small makes some calls wait; a larger one needs more memory",
    )
    deadline = Remedy(
        "any gRPC implementation", "a deadline on the client", "bounds the wait; the calls in the tail fail instead"
    )
    return (trace, threads, deadline)
