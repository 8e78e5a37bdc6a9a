"""The finding about connections that their server ended gracefully: GOAWAY, and no RPC was lost."""

import numpy as np

from ..facts import draining, evidence, software_at
from ..facts import failures as common
from ..facts.early_end import name_code
from ..facts.evidence import show_packet
from ..facts.ratings import quality_allows
from ..model.finding import Finding, Remedy, Scope
from ..model.text import count, duration
from ..software import intents, settings
from ..tables import Counts, Ints, Tables
from ..tables.grouping import distinct


class Limits(draining.AlikeCloses, frozen=True, eq=False):
    """When the number of requests suggests a limit of a proxy."""

    round_streams: tuple[int, ...] = (1_000, 10_000)
    """Requests per connection that suggest a proxy's limit (nginx keepalive_requests 1000; AWS ALB 10,000)."""
    round_tolerance: float = 0.02
    """How far from such a number a GOAWAY may come (heuristic: streams are opened meanwhile)."""


def make_finding(tables: Tables, rows: list[int], limits: Limits, finding_id: str) -> Finding:
    """Make the finding about connections that a server ended gracefully."""
    goaways, connections = tables.goaways, tables.goaways.connection[rows]
    ages = goaways.time_ns[rows] - tables.connections.opened_time_ns[connections]
    ages = ages[tables.connections.opened_time_ns[connections] >= 0]
    streams = tables.connections.rpcs[connections]
    drained = draining.find_drained(tables, limits)
    guess = "" if drained else _guess_limit(streams, limits)
    limit = f" {drained.describe()}" if drained else guess
    age = f" after {duration(float(np.median(ages)))}" if len(ages) else ""
    text = (
        f"The server ended {count(len(rows), 'connection')} gracefully{age} and "
        f"{count(int(np.median(streams)), 'RPC')}; no RPC was lost{_describe_cut(tables, connections)}.{limit}"
    )
    return Finding(
        id=finding_id,
        title=f"The server ended {count(len(rows), 'connection')} gracefully",
        severity="info",
        confidence="medium" if guess else quality_allows(tables),
        scope=Scope(tuple(int(c) for c in distinct(connections)), ()),
        metrics={
            "connections": len(rows),
            "lost_rpcs": 0,
            "rpcs_per_connection_p50": int(np.median(streams)),
            **({"age_p50_ns": int(np.median(ages))} if len(ages) else {}),
        },
        evidence=tuple(
            show_packet(goaways, "packet", row, f"GOAWAY {name_code(tables, row)} from the server")
            for row in rows[: evidence.EXAMPLES]
        ),
        explanation=text,
        remedies=drained.list_remedies() if drained else _list_for_graceful(tables, rows),
        references=("RFC 9113 section 6.8", "gRFC A9"),
        verdict=text,
    )


def _describe_cut(tables: Tables, connections: Counts) -> str:
    """Say how many RPCs their server ended with an error right before it closed the connection; nothing for none."""
    rpc = common.failed(tables).rpc
    rpc = rpc[np.isin(tables.rpcs.connection[rpc], connections)]
    ends = tables.rpcs.start_time_ns[rpc] + tables.rpcs.duration_ns[rpc]
    cut = int(draining.mark_with_close(tables, rpc, ends).sum())
    with_error = "RPC ended with an error status" if cut == 1 else "RPCs ended with an error status"
    return f" without a response, but {cut:,} {with_error} right before that" if cut else ""


def _list_for_graceful(tables: Tables, rows: list[int]) -> tuple[Remedy, ...]:
    connections = tables.goaways.connection[rows].tolist()
    if all(draining.is_stopped(tables, row) for row in rows):
        return software_at.list_settings(tables, connections, 1, intents.SHUTDOWN, settings.WAITS)
    server = software_at.recognise_server(tables, connections)
    return settings.list_own(intents.CONNECTION_LIMITS, server) or settings.list_all(intents.CONNECTION_LIMITS)


def _guess_limit(streams: Ints | Counts, limits: Limits) -> str:
    """Name a proxy's limit on requests, if the number of streams matches one."""
    median = float(np.median(streams))
    near = [n for n in limits.round_streams if abs(median - n) <= limits.round_tolerance * n]
    return f" Some proxies allow about {near[0]:,} requests per connection: this is a guess." if near else ""
