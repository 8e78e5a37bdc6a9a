"""A connection ended while RPCs were open on it, or with an error.

What it finds
-------------
Connections that ended before their RPCs did: closed with FIN or RST while RPCs waited for their answer, or by a GOAWAY
with an error code. It tells the code, the text that came with it, who closed, and the RPCs that were lost. Of
connections that a server ended in good order (GOAWAY NO_ERROR, every RPC finished) it tells the age and the number
of streams, for information only: that is a limit on age or on requests at work.

How it is decided
-----------------
An RPC is lost when neither trailers nor RST_STREAM ended it but the end of its connection. That it was open when a
GOAWAY came is no loss: a graceful end lets it finish. A client that closes its own connection gives up its RPCs
itself, which is told for information only; so is a GOAWAY with an error code that cost no RPC.

When it cannot tell
-------------------
When packets around the end are missing: an answer may have been among them, and such RPCs are left out. A RST that a
firewall or a load balancer sends in the name of one side looks like that side's.

What would refute it
--------------------
The client's application got answers for these RPCs, or the server's log has no closed connection at that time.

What to do
----------
By the code: ENHANCE_YOUR_CALM with `too_many_pings` is the finding `too-many-pings`; PROTOCOL_ERROR and its like are
faults of an implementation or of a proxy. NO_ERROR followed by a close that does not wait: give `MaxConnectionAgeGrace`
or the shutdown more time. No GOAWAY at all: the server died, was killed, or something between dropped the connection
(idle timeouts of proxies and load balancers). Clients should retry what is safe to run twice.

References
----------
- RFC 9113 sections 6.8, 7 and 9.1
- gRFC A9: server-side connection management; gRFC A6: client retries
- https://github.com/grpc/grpc-java/issues/11728 (a load balancer that closes after 10,000 requests)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count
from ..tables import COMPLETE, NOT_SEEN, TOUCHES_GAP, Counts, Ints, Tables
from ..tables.durations import total_ns
from . import _failures as common
from ._shared import distinct, host, milliseconds, quality_allows

ID = "connection-closed-early"


def _figure(analysis: Analysis) -> str:
    frames = analysis.totals.frames
    return f"{count(frames.get('GOAWAY', 0), 'GOAWAY frame')}, {count(frames.get('RST_STREAM', 0), 'RST_STREAM frame')}"


ABOUT = About(
    example="recorded/lab/connection-closed-early.pcap",
    figure=_figure,
    caused_by=("too-many-pings",),
    precedence=2,
    whole_connections=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    critical_share: float = 0.10
    """Share of RPCs lost from which it is critical (own choice: one call in ten)."""
    few: int = 3
    """Fewer lost RPCs are never critical (own choice: one or two show no pattern)."""
    round_streams: tuple[int, ...] = (1_000, 10_000)
    """Requests per connection at which a proxy is guessed (nginx keepalive_requests 1000; AWS ALB 10,000)."""
    round_tolerance: float = 0.02
    """How far from such a number a GOAWAY may come (own choice: streams opened meanwhile)."""
    examples: int = 3
    """Connections shown as evidence (own choice: enough to see a pattern)."""


class _End(Struct, frozen=True, eq=False):
    """How one connection ended: `goaway` is a row of the goaways table or -1, `lost` rows of RPCs."""

    connection: int
    goaway: int
    lost: tuple[int, ...]
    grave: bool
    """Whether it was not the client's own wish and cost RPCs."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections that ended early; else one over those that ended in good order."""
    if not len(tables.failures.rpc) and not len(tables.goaways.packet):
        return
    lost = _lost(tables)
    lost_on = _by_connection(tables, lost)
    errors = _first_rows(tables, tables.goaways.code != 0)
    graceful = _first_rows(tables, tables.goaways.code == 0, server_only=True)
    ends = [
        _end(tables, c, errors.get(c, graceful.get(c, -1)), lost_on.get(c, ())) for c in sorted({*errors, *lost_on})
    ]
    if ends:
        yield _finding(tables, sorted(ends, key=lambda end: (not end.grave, -len(end.lost))), limits)
    elif graceful:
        yield _told(tables, sorted(graceful.values()), limits)


def _lost(tables: Tables) -> Counts:
    """RPCs that the end of their connection ended; none whose answer may have been missed."""
    rpcs = tables.rpcs
    rpc = common.failed(tables).rpc
    rpc = rpc[(rpcs.status[rpc] == NOT_SEEN) | (rpcs.status[rpc] == common.UNAVAILABLE)]
    seen = (rpcs.flags[rpc] & (COMPLETE | TOUCHES_GAP)) == COMPLETE
    on, connections = rpcs.connection[rpc], tables.connections
    whole = (connections.missing_bytes[on] == 0) & (connections.undecoded_bytes[on] == 0)
    seen &= whole | (rpcs.status[rpc] == common.UNAVAILABLE)
    closed = connections.closed_time_ns[on]
    return np.sort(rpc[seen & (closed >= 0) & (rpcs.start_time_ns[rpc] + rpcs.duration_ns[rpc] >= closed)])


def _by_connection(tables: Tables, rpcs: Counts) -> dict[int, tuple[int, ...]]:
    order = np.argsort(tables.rpcs.connection[rpcs], kind="stable")
    connections, starts = np.unique(tables.rpcs.connection[rpcs][order], return_index=True)
    groups = np.split(rpcs[order], starts[1:])
    return {int(c): tuple(group.tolist()) for c, group in zip(connections, groups, strict=False)}


def _first_rows(tables: Tables, wanted: common.Mask, *, server_only: bool = False) -> dict[int, int]:
    """The first such GOAWAY of each connection; with `server_only` where the server was the first to send any."""
    goaways = tables.goaways
    if not (wanted & (goaways.direction == 1) if server_only else wanted).any():
        return {}
    found: dict[int, int] = {}
    first: dict[int, int] = {}
    for row in np.argsort(goaways.packet, kind="stable").tolist():
        connection = int(goaways.connection[row])
        begin = first.setdefault(connection, row)
        if wanted[row] and not (server_only and int(goaways.direction[begin]) == 0):
            found.setdefault(connection, row)
    return found


def _end(tables: Tables, connection: int, goaway: int, lost: tuple[int, ...]) -> _End:
    by_server = int(tables.connections.closed_by[connection]) == 1
    failed = goaway >= 0 and int(tables.goaways.code[goaway]) != 0
    return _End(connection, goaway, lost, bool(lost) and (by_server or failed))


def _finding(tables: Tables, ends: list[_End], limits: Limits) -> Finding:
    lost = np.array([rpc for end in ends for rpc in end.lost], dtype=np.uint32)
    everything = tables.rpc_count
    connections = tuple(sorted(end.connection for end in ends))
    words = _words(tables, ends[0])
    count, rpcs = common.counted(len(ends), "connection"), common.counted(len(lost), "RPC")
    return Finding(
        id=ID,
        title=f"{count} ended early: {rpcs} lost by it",
        severity=_severity(ends, everything, limits),
        confidence=quality_allows(tables),
        scope=Scope(connections, common.methods_of(tables, lost)),
        lost_ns=None,
        share=None,
        metrics=_metrics(tables, ends, lost),
        evidence=tuple(e for end in ends[: limits.examples] for e in _evidence(tables, end)),
        explanation=f"{words} {_loss(tables, lost, count)}",
        remedies=_remedies(tables, ends[0]),
        references=("RFC 9113 section 6.8", "gRFC A9", "gRFC A6"),
        verdict=f"{words} {_loss(tables, lost, count)}",
    )


def _loss(tables: Tables, lost: Counts, count: str) -> str:
    if not len(lost):
        return f"No RPC was lost by it, on {count}."
    waited = milliseconds(total_ns(tables.rpcs.duration_ns[lost]))
    return (
        f"{len(lost):,} of {tables.rpc_count:,} RPCs had no answer when their connection ended, on {count}; "
        f"they had waited {waited} together."
    )


def _severity(ends: list[_End], everything: int, limits: Limits) -> Severity:
    grave = sum(len(end.lost) for end in ends if end.grave)
    if not grave:
        return "info"
    return "critical" if grave >= limits.few and grave / everything >= limits.critical_share else "warning"


def _words(tables: Tables, end: _End) -> str:
    """How one connection ended."""
    connections, by = tables.connections, int(tables.connections.closed_by[end.connection])
    closer = f"{host(tables, end.connection, by)} closed it" if by < 2 else "its close is not in the capture"
    opened = int(connections.opened_time_ns[end.connection])
    ends_at = int(connections.closed_time_ns[end.connection])
    age = f" {milliseconds(ends_at - opened)} after it was opened" if opened >= 0 <= ends_at else ""
    rpcs = common.counted(len(end.lost), "RPC")
    if end.goaway < 0:
        return f"Connection {end.connection} ended without GOAWAY: {closer}{age} with {rpcs} open."
    sender = host(tables, end.connection, int(tables.goaways.direction[end.goaway]))
    return (
        f"{sender} sent GOAWAY {_code(tables, end.goaway)} on connection {end.connection}; {closer}{age} with "
        f"{rpcs} open."
    )


def _code(tables: Tables, goaway: int) -> str:
    reason = tables.goaway_reasons[tables.goaways.reason[goaway]]
    return common.error_name(int(tables.goaways.code[goaway])) + (f' "{reason}"' if reason else "")


def _metrics(tables: Tables, ends: list[_End], lost: Counts) -> dict[str, int | float | str]:
    codes = [_code(tables, end.goaway) for end in ends if end.goaway >= 0]
    return {
        "connections": len(ends),
        "lost_rpcs": len(lost),
        "rpcs": tables.rpc_count,
        "lost_share": len(lost) / tables.rpc_count,
        "lost_rpc_time_ns": total_ns(tables.rpcs.duration_ns[lost]),
        "closed_by_server": sum(int(tables.connections.closed_by[end.connection]) == 1 for end in ends),
        "closed_by_client": sum(int(tables.connections.closed_by[end.connection]) == 0 for end in ends),
        "without_goaway": sum(end.goaway < 0 for end in ends),
        "goaways": ", ".join(sorted(set(codes))[:5]),
    }


def _evidence(tables: Tables, end: _End) -> Iterator[Evidence]:
    if end.goaway >= 0:
        goaways, row = tables.goaways, end.goaway
        what = (
            f"GOAWAY {_code(tables, row)}, last stream {goaways.last_stream[row]}, "
            f"{common.counted(int(goaways.open_rpcs[row]), 'RPC')} open"
        )
        yield Evidence(int(goaways.packet[row]), int(goaways.time_ns[row]), what)
    if end.lost:
        yield common.began(tables, end.lost[0])
        by = ("client", "server", "capture")[int(tables.connections.closed_by[end.connection])]
        yield common.ended(tables, end.lost[0], f"the connection, closed by the {by}, ends without an answer")


def _told(tables: Tables, rows: list[int], limits: Limits) -> Finding:
    """Connections that a server ended in good order."""
    goaways, connections = tables.goaways, tables.goaways.connection[rows]
    ages = goaways.time_ns[rows] - tables.connections.opened_time_ns[connections]
    ages = ages[tables.connections.opened_time_ns[connections] >= 0]
    streams = tables.connections.rpcs[connections]
    guess = _guess(streams, limits)
    age = f" after {milliseconds(float(np.median(ages)))}" if len(ages) else ""
    text = (
        f"The server ended {common.counted(len(rows), 'connection')} in good order{age} and "
        f"{int(np.median(streams)):,} RPCs; no RPC was lost.{guess}"
    )
    return Finding(
        id=ID,
        title=f"The server ended {common.counted(len(rows), 'connection')} in good order",
        severity="info",
        confidence="medium" if guess else quality_allows(tables),
        scope=Scope(tuple(int(c) for c in distinct(connections)), ()),
        lost_ns=None,
        share=None,
        metrics={
            "connections": len(rows),
            "lost_rpcs": 0,
            "rpcs_per_connection_p50": int(np.median(streams)),
            **({"age_p50_ns": int(np.median(ages))} if len(ages) else {}),
        },
        evidence=tuple(
            Evidence(int(goaways.packet[row]), int(goaways.time_ns[row]), f"GOAWAY {_code(tables, row)} of the server")
            for row in rows[: limits.examples]
        ),
        explanation=text,
        remedies=(_AGE,),
        references=("RFC 9113 section 6.8", "gRFC A9"),
        verdict=text,
    )


def _guess(streams: Ints | Counts, limits: Limits) -> str:
    """A proxy's limit on requests, if the number of streams is that of one."""
    median = float(np.median(streams))
    near = [n for n in limits.round_streams if abs(median - n) <= limits.round_tolerance * n]
    return f" About {near[0]:,} requests per connection is a limit that proxies have: a guess." if near else ""


_AGE = Remedy(
    "grpc-go",
    "keepalive.ServerParameters{MaxConnectionAge: ..., MaxConnectionAgeGrace: ...}",
    "server: older connections, and more time for their last RPCs; load spreads more slowly over new servers",
)
_RETRY = Remedy(
    "any gRPC implementation",
    '"retryPolicy" with "retryableStatusCodes": ["UNAVAILABLE"] in the service config',
    "client: sends lost calls again; only for methods that may run twice",
)


def _remedies(tables: Tables, end: _End) -> tuple[Remedy, ...]:
    if end.goaway >= 0 and "too_many_pings" in tables.goaway_reasons[tables.goaways.reason[end.goaway]].lower():
        pings = Remedy("application", "grpcdiag explain too-many-pings", "the cause of this GOAWAY, and its knobs")
        return (pings, _RETRY)
    graceful = (
        _AGE,
        Remedy("grpc-go", "Server.GracefulStop()", "server: waits for open RPCs, however long they take"),
        Remedy("grpc-java", "maxConnectionAgeGrace(...); Server.shutdown(), awaitTermination(...)", "the same"),
        Remedy("C-core", "GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS; Server::Shutdown(deadline)", "the same"),
        Remedy("grpc-js", "Server.tryShutdown()", "the same"),
    )
    between = Remedy("application", "idle timeouts of proxies and load balancers between", "if no server was stopped")
    ordered = common.seen_first(tables, (end.connection,), 1, graceful)
    return (_RETRY, between, *ordered) if end.goaway < 0 else (*ordered, _RETRY)
