"""Requests of many callers leave together, in step, and wait for each other's responses.

What it finds
-------------
A client sends the requests of many callers in one burst, waits until all have their responses, and sends the next
burst. Each caller is then as slow as the slowest one in its burst.

Batching also saves packets. It is a fact about the connection, and a symptom where another finding says what makes
the callers wait.

How it is decided
-----------------
Request messages are counted from one response to the next (a burst) and from one silence to the next (a round). It
is reported where `shared-connection` finds that the client delays its callers. It is also reported where a burst
carries 16 requests or more on average over at least twenty bursts. It is never more than `info`.

When it cannot tell
-------------------
Whether the client's library gathered the requests or the callers made them at the same moment: the packets are the
same.

What would refute it
--------------------
A trace of the client in which callers hand over their requests one by one, spread over the time between the bursts.

What to do
----------
Nothing, as long as callers do not wait. If they do, spread them over several connections: with C-core
`GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL=1`, elsewhere several channels.

References
----------
- https://github.com/grpc/grpc-go/issues/1512
- https://grpc.io/docs/guides/performance/
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, evidence, hosts, methods, ratings
from ..facts.turns import GapLimits, Rows, find_losing, measure_turns, show_gaps
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import Tables
from ..tables.grouping import distinct

ID = "request-batching"
ABOUT = About(
    example="recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    figure=contradictions.calls_at_once,
    caused_by=("shared-connection",),
    whole_connections=True,
    picture="batches",
)


class Limits(Struct, frozen=True, eq=False):
    burst_requests: float = 16.0
    """Requests per burst that are reported without another reason (heuristic: most clients have fewer callers)."""
    bursts: int = 20
    """Fewest bursts (heuristic: fewer show no pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with large bursts and those whose callers wait."""
    turns = tables.turns
    large = (turns.burst_messages >= limits.burst_requests * turns.bursts) & (turns.bursts >= limits.bursts)
    waiting = find_losing(tables, GapLimits())
    rows = distinct(np.r_[np.flatnonzero(large), waiting])
    if len(rows):
        yield _make_finding(tables, rows, waiting)


def _make_finding(tables: Tables, rows: Rows, waiting: Rows) -> Finding:
    turns, directions = tables.turns, tables.directions
    row = int(rows[np.argmax(turns.burst_messages[rows])])
    turn = measure_turns(tables, np.array([row]))
    per_burst = int(turns.burst_messages[row]) / max(int(turns.bursts[row]), 1)
    per_packet = int(directions.messages[2 * row]) / max(int(directions.message_packets[2 * row]), 1)
    per_round, callers = float(turn.round_messages[0]), int(turn.callers[0])
    client = hosts.host(tables, row, 0)
    return Finding(
        id=ID,
        title=f"Requests of {callers} callers leave in bursts of {per_burst:,.1f}",
        severity="info",
        confidence=ratings.lower("medium", ratings.quality_allows(tables)),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        metrics={
            "connections": len(rows),
            "callers": callers,
            "requests": int(turns.burst_messages[row]),
            "bursts": int(turns.bursts[row]),
            "requests_per_burst": round(per_burst, 2),
            "requests_per_round": round(per_round, 2),
            "requests_per_packet": round(per_packet, 2),
        },
        evidence=tuple(_show_bursts(tables, row)),
        explanation=(
            f"{client} sent {int(turns.burst_messages[row]):,} request messages in {int(turns.bursts[row]):,} bursts "
            f"without a response in between: {per_burst:,.1f} per burst, {per_round:,.1f} from one silence to the "
            f"next, {per_packet:,.1f} per packet, for up to {callers} callers. "
            + (
                "These callers wait for each other: see shared-connection."
                if row in waiting
                else "This saves packets; nothing in the capture shows that it costs time."
            )
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, 0)),
        references=("https://github.com/grpc/grpc-go/issues/1512", "https://grpc.io/docs/guides/performance/"),
        verdict=f"{callers} callers of {client} send their requests together, {per_burst:,.1f} at a time.",
    )


def _show_bursts(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield packets at which bursts begin; the connection's first RPC when no gap was seen."""
    found = [item for item in show_gaps(tables, row, evidence.FEW_EXAMPLES) if "next request" in item.what]
    for item in found:
        yield Evidence(item.packet, item.time_ns, "a burst of requests begins here, after all responses had arrived")
    if not found:
        rpcs = tables.rpcs
        first = int(np.argmax(rpcs.connection == row))
        yield Evidence(int(rpcs.first_packet[first]), int(rpcs.start_time_ns[first]), "the first burst begins here")


def _list_remedies(implementation: str | None) -> tuple[Remedy, ...]:
    price = "one more connection for each; smaller bursts, more packets"
    several = Remedy("any gRPC implementation", "several channels, callers spread over them", price)
    return (*settings.list_own(intents.MORE_CONNECTIONS, recognise(implementation), price), several)
