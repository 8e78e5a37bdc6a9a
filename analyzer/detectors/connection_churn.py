"""Connections are opened for a few RPCs each, and every one has to be set up first.

What it finds
-------------
A client that opens one connection after the other to the same server and makes only a few RPCs on each. Each of them
costs a TCP handshake, SETTINGS both ways, TLS where it is used, an empty header table and a small congestion window,
before its first RPC can begin. It tells how long that takes, in time and in round trips, against the time of the RPCs.

How it is decided
-----------------
For each client address and server port: at least five generations of connections, that is five times as many
connections as were ever open at once, with few RPCs each. A pool of parallel connections is one generation,
however large. The set-up lasts from the SYN to the first request HEADERS; connections that waited longer than a second
were opened early and are left out. It is a warning when the set-up is large against all RPC time of the capture:
a health check with a connection of its own, beside busy traffic, is none.

When it cannot tell
-------------------
For connections that began before the capture, or inside TLS that is not decrypted. Several clients behind one address
(NAT) look like one; then their connections overlap, and the number of generations stays low. That a client process
starts anew for every call cannot be told from a channel that is closed after every call.

What would refute it
--------------------
The application keeps one channel (`netstat` shows the same local port from call to call), or the connections came from
different processes that each make few calls.

What to do
----------
Create the channel once and share it: channels and stubs are safe to use from many threads in every implementation.
Do not close it after a call. Where something between closes idle connections, keep them open with a keepalive that the
server permits.

References
----------
- https://grpc.io/docs/guides/performance/: always re-use stubs and channels
- gRFC A8: client-side keepalive; gRFC A9: server-side connection management
- https://github.com/grpc/grpc-java/issues/4559, https://github.com/grpc/grpc-dotnet/issues/1549
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count
from ..summary.figures import HTTP2
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from ._failures import counted, seen_first
from ._shared import host, methods_of_connections, milliseconds, quality_allows, rpc_time, severity

ID = "connection-churn"


def _figure(analysis: Analysis) -> str:
    totals = analysis.totals
    return f"{count(totals.rpcs, 'RPC')} on {count(totals.connections, 'connection')}"


ABOUT = About(
    example="recorded/lab/connection-churn.pcap",
    figure=_figure,
    caused_by=("too-many-pings", "connection-closed-early"),
    whole_connections=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    generations: float = 5.0
    """Connections, for each that was open at once, from which they are a habit (own choice: no restart or two)."""
    few_rpcs: float = 10.0
    """RPCs per connection up to which it is hardly used (own choice: the set-up is no more than a tenth of them)."""
    early_ns: int = 1_000_000_000
    """Time to the first RPC from which a connection was opened early (own choice: no set-up takes a second)."""
    told_share: float = 0.02
    """Set-up, of set-up and RPC time together, from which it is told (own choice: above what runs differ by)."""
    warning_share: float = 0.10
    """Set-up, of set-up and all RPC time, from which it is a warning (own choice: a tenth of the time)."""
    critical_share: float = 0.50
    """The same from which it is critical (own choice: more set-up than RPCs)."""
    critical_connections: int = 20
    """Fewest connections for critical (own choice: fewer cost little altogether)."""
    examples: int = 3
    """Connections shown as evidence (own choice: enough to see a pattern)."""


class _Churn(Struct, frozen=True, eq=False):
    """Connections of one client and server; columns of equal length, the rows in which the set-up was measured."""

    connections: Ints
    first_rpc: Ints
    setup_ns: Ints
    at_once: int
    rpc_time_ns: int

    @property
    def share(self) -> float:
        """Set-up as a part of set-up and RPC time together."""
        setup = total_ns(self.setup_ns)
        return setup / (setup + self.rpc_time_ns) if setup else 0.0


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the client and server that spend the most time on setting up connections."""
    table = tables.connections
    rows = np.flatnonzero((table.protocol == HTTP2) & (table.complete == 1) & (table.rpcs > 0))
    if len(rows) < limits.generations:
        return
    groups = [(group, at_once) for group in _pairs(tables, rows) if (at_once := _churning(tables, group, limits))]
    found = [_measure(tables, group, at_once, limits) for group, at_once in groups]
    told = [churn for churn in found if len(churn.connections) and churn.share >= limits.told_share]
    if told:
        yield _finding(tables, max(told, key=lambda churn: total_ns(churn.setup_ns)), limits)


def _pairs(tables: Tables, rows: Ints) -> list[Ints]:
    """The connections by client address, server address and server port."""
    table = tables.connections
    keys = np.stack([table.client_ip[rows], table.server_ip[rows], table.server_port[rows]], axis=1)
    _, pair = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(pair.ravel(), kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(pair.ravel()[order])) + 1)


def _churning(tables: Tables, group: Ints, limits: Limits) -> int:
    """How many of the connections were open at once; 0 when they are no churn."""
    table = tables.connections
    if len(group) < limits.generations or float(table.rpcs[group].mean()) > limits.few_rpcs:
        return 0
    opened, closed = table.opened_time_ns[group], table.closed_time_ns[group]
    ended = np.sort(closed[closed >= 0])
    at_once = int((np.arange(1, len(group) + 1) - np.searchsorted(ended, np.sort(opened), side="left")).max())
    return at_once if len(group) >= limits.generations * at_once else 0


def _measure(tables: Tables, group: Ints, at_once: int, limits: Limits) -> _Churn:
    """The set-up of the connections: from the SYN to the first RPC."""
    table, rpcs = tables.connections, tables.rpcs
    chosen = np.zeros(len(table.rpcs), dtype=np.bool_)
    chosen[group] = True
    mine = np.flatnonzero(chosen[rpcs.connection])
    connections, first = np.unique(rpcs.connection[mine], return_index=True)
    first_rpc = mine[first]
    setup = rpcs.start_time_ns[first_rpc] - table.opened_time_ns[connections]
    kept = (setup >= 0) & (setup <= limits.early_ns)
    spent = total_ns(tables.connection_budgets[group])
    return _Churn(connections[kept].astype(np.int64), first_rpc[kept], setup[kept], at_once, spent)


def _share_of_capture(tables: Tables, churn: _Churn) -> float:
    """The set-up as a part of itself and the time of all RPCs, also those of other clients and servers."""
    setup = total_ns(churn.setup_ns)
    return setup / (setup + rpc_time(tables))


def _severity(tables: Tables, churn: _Churn, limits: Limits) -> Severity:
    grave = severity(_share_of_capture(tables, churn), limits.warning_share, limits.critical_share)
    return "warning" if grave == "critical" and len(churn.connections) < limits.critical_connections else grave


def _finding(tables: Tables, churn: _Churn, limits: Limits) -> Finding:
    table, count = tables.connections, len(churn.connections)
    setup = float(np.median(churn.setup_ns))
    per = float(table.rpcs[churn.connections].mean())
    first = int(churn.connections[0])
    client, server = host(tables, first, 0), host(tables, first, 1)
    trips = _round_trips(tables, churn)
    words = (
        f"{client} opened {count:,} connections to {server} for {per:.1f} RPCs each, at most {churn.at_once} at once; "
        f"each took {milliseconds(setup)}{f' ({trips:.1f} round trips)' if trips else ''} until its first RPC could "
        f"begin, {churn.share:.0%} of the time of set-up and RPCs together."
    )
    return Finding(
        id=ID,
        title=f"{count:,} connections for {per:.1f} RPCs each",
        severity=_severity(tables, churn, limits),
        confidence=quality_allows(tables),
        scope=Scope(tuple(churn.connections.tolist()), methods_of_connections(tables, churn.connections.tolist())),
        lost_ns=None,
        share=None,
        metrics=_metrics(tables, churn, per, trips),
        evidence=tuple(e for place in range(min(limits.examples, count)) for e in _evidence(tables, churn, place)),
        explanation=f"{words} Every new connection also begins with a small congestion window and empty header tables.",
        remedies=seen_first(tables, (first,), 0, _REMEDIES),
        references=(
            "https://grpc.io/docs/guides/performance/",
            "https://github.com/grpc/grpc-java/issues/4559",
            "https://github.com/grpc/grpc-dotnet/issues/1549",
        ),
        verdict=f"{words} Create one channel and keep it.",
    )


def _round_trips(tables: Tables, churn: _Churn) -> float:
    """The median set-up in round trips of the handshake; 0 when they were not measured."""
    round_trips = tables.connections.handshake_rtt_ns[churn.connections]
    known = round_trips > 0
    return float(np.median(churn.setup_ns[known] / round_trips[known])) if known.any() else 0.0


def _metrics(tables: Tables, churn: _Churn, per: float, trips: float) -> dict[str, int | float | str]:
    return {
        "connections": len(churn.connections),
        "open_at_once": churn.at_once,
        "rpcs_per_connection": per,
        "setup_p50_ns": int(np.median(churn.setup_ns)),
        "setup_ns": total_ns(churn.setup_ns),
        "setup_per_rpc_ns": total_ns(churn.setup_ns) // max(1, int(tables.connections.rpcs[churn.connections].sum())),
        "setup_round_trips": trips,
        "setup_share": churn.share,
        "setup_share_of_capture": _share_of_capture(tables, churn),
        "rpc_time_ns": churn.rpc_time_ns,
    }


def _evidence(tables: Tables, churn: _Churn, place: int) -> Iterator[Evidence]:
    table, rpcs = tables.connections, tables.rpcs
    connection, rpc = int(churn.connections[place]), int(churn.first_rpc[place])
    yield Evidence(
        int(table.first_packet[connection]),
        int(table.opened_time_ns[connection]),
        f"SYN of {tables.client(connection)}: connection {connection}, which carries "
        f"{counted(int(table.rpcs[connection]), 'RPC')}",
    )
    after = milliseconds(int(churn.setup_ns[place]))
    yield Evidence(int(rpcs.first_packet[rpc]), int(rpcs.start_time_ns[rpc]), f"its first RPC begins {after} later")


_KEEP = "one channel for the life of the process, used by all threads; it holds a socket open"
_REMEDIES = (
    Remedy("application", "create the channel once and share it", _KEEP),
    Remedy("grpc-go", "one grpc.ClientConn from grpc.NewClient(...), closed at the end", _KEEP),
    Remedy("grpc-java", "one ManagedChannel, shutdown() at the end", _KEEP),
    Remedy("C-core", "one grpc::Channel (C++), one grpc.insecure_channel(...) (Python)", _KEEP),
    Remedy("grpc-js", "one client object, close() at the end", _KEEP),
    Remedy("tonic", "one tonic::transport::Channel, cloned", _KEEP),
    Remedy("grpc-dotnet", "one GrpcChannel.ForAddress(...)", _KEEP),
)
