"""The client sent more PINGs than the server allows, and the server closed the connection.

What it finds
-------------
Connections that the server closed with GOAWAY ENHANCE_YOUR_CALM `too_many_pings`: which PING tripped it, how far apart
the PINGs were, what they were for, and what the default policy would have allowed. All RPCs on the connection are
affected, and the client has to connect again. Without a GOAWAY it tells of PINGs that a server with the default
policy would not have taken, for information only: this server allows them, the next one may not.

How it is decided
-----------------
By the GOAWAY and its text. The strikes before it are counted as gRFC A8 says and grpc-go does: a PING is a strike when
it comes less than 5 minutes after the last one (2 hours when no RPC is open); strikes and clock start anew when the
server has sent HEADERS or DATA; the third strike closes the connection. The payload of a PING tells what it was for,
for the implementations that use fixed ones.

When it cannot tell
-------------------
When the server has another policy than the default, the count of strikes is not its count. C-core's PINGs have random
payloads, so their purpose is unknown. PINGs before the capture began are not counted.

What would refute it
--------------------
The server's log names another reason for the close, or the GOAWAY came from a proxy in front of it.

What to do
----------
Make the client's keepalive time no shorter than the server permits (5 minutes by default), or permit shorter ones at
the server (MinTime, permitKeepAliveTime) when connections must be kept open through proxies. Do not ping without calls
unless the server permits that. Where the PINGs are a bandwidth estimator's, not a keepalive's, set a fixed window.

References
----------
- gRFC A8: client-side keepalive; grpc/grpc doc/keepalive.md
- grpc-go internal/transport/http2_server.go, handlePing
- https://github.com/grpc/grpc-go/issues/1882, https://github.com/grpc/grpc/issues/17667
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count
from ..tables import Ints, Tables
from . import _figures
from ._failures import counted, seen_first
from ._shared import host, methods_of_connections, milliseconds, quality_allows

ID = "too-many-pings"


def _figure(analysis: Analysis) -> str:
    pings = _figures.add_up(analysis, lambda side: side.pings)
    return f"{count(pings, 'PING')}; {count(analysis.totals.frames.get('GOAWAY', 0), 'GOAWAY frame')}"


ABOUT = About(
    example="recorded/too-many-pings.pcap",
    figure=_figure,
    precedence=1,
    whole_connections=True,
)

ENHANCE_YOUR_CALM = 11
_TEXT = "too_many_pings"


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    strikes: int = 2
    """Strikes that a server forgives (gRFC A8 and grpc-go's maxPingStrikes: the third one closes)."""
    permitted_ns: int = 300_000_000_000
    """Time between PINGs that a server permits by default while RPCs are open (gRFC A8: 5 minutes)."""
    permitted_idle_ns: int = 7_200_000_000_000
    """The same without open RPCs (gRFC A8: 2 hours)."""
    critical_closes: int = 3
    """Closed connections from which it is critical (own choice: the client does not learn)."""
    critical_share: float = 0.10
    """Share of RPCs open at the GOAWAYs from which it is critical (own choice: one call in ten)."""
    few: int = 3
    """Fewer open RPCs are not critical by their share (own choice: one or two show no pattern)."""
    examples: int = 2
    """Connections shown as evidence (own choice: enough to see a pattern)."""


class _Trip(Struct, frozen=True, eq=False):
    """One connection's PINGs, rows of the pings table, up to the one that was too many; `goaway` is -1 without."""

    connection: int
    pings: tuple[int, ...]
    goaway: int


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections that were closed, or over those that could have been."""
    goaways, pings = tables.goaways, tables.pings
    blamed = [
        int(row)
        for row in np.flatnonzero(goaways.code == ENHANCE_YOUR_CALM)
        if _TEXT in tables.goaway_reasons[goaways.reason[row]].lower()
    ]
    if blamed:
        trips = [_closed(tables, row) for row in blamed]
        if any(trip.pings for trip in trips):
            yield _finding(tables, [trip for trip in trips if trip.pings], limits)
        else:
            yield Skipped(ID, "the capture lacks the PINGs before GOAWAY too_many_pings")
    elif len(pings.packet) and int(pings.strikes.max()) > limits.strikes:
        yield _finding(tables, list(_tolerated(tables, limits)), limits)


def _closed(tables: Tables, goaway: int) -> _Trip:
    goaways, pings = tables.goaways, tables.pings
    connection = int(goaways.connection[goaway])
    mine = (pings.connection == connection) & (pings.direction == 1 - goaways.direction[goaway]) & (pings.ack == 0)
    rows = np.flatnonzero(mine & (pings.packet <= goaways.packet[goaway]))
    return _Trip(connection, _since_reset(tables, rows), goaway)


def _tolerated(tables: Tables, limits: Limits) -> Iterator[_Trip]:
    """The first PING of each connection that the default policy would not have taken, and those before it."""
    pings = tables.pings
    over = np.flatnonzero((pings.strikes > limits.strikes) & (pings.ack == 0))
    connections, first = np.unique(pings.connection[over], return_index=True)
    for connection, place in zip(connections, first, strict=True):
        last = int(over[place])
        mine = (pings.connection == connection) & (pings.direction == pings.direction[last]) & (pings.ack == 0)
        rows = np.flatnonzero(mine)
        yield _Trip(int(connection), _since_reset(tables, rows[rows <= last]), -1)


def _since_reset(tables: Tables, rows: Ints) -> tuple[int, ...]:
    """The PINGs from the last one that was no strike on."""
    fresh = np.flatnonzero(tables.pings.strikes[rows] == 0)
    return tuple(int(row) for row in (rows[fresh[-1] :] if len(fresh) else rows))


def _finding(tables: Tables, trips: list[_Trip], limits: Limits) -> Finding:
    closed = [trip for trip in trips if trip.goaway >= 0]
    connections = tuple(trip.connection for trip in trips)
    client = host(tables, connections[0], 0)
    words, purpose = _words(tables, trips[0], limits), _purpose(tables, trips)
    if len(trips) > 1:
        words += f" {counted(len(trips) - 1, 'more connection')} went the same way."
    title = (
        f"{len(closed):,} connections were closed for too many PINGs"
        if closed
        else f"On {counted(len(trips), 'connection')} the client sends more PINGs than servers allow by default"
    )
    return Finding(
        id=ID,
        title=title if len(trips) > 1 else title.replace("1 connections were", "1 connection was"),
        severity=_severity(tables, closed, limits),
        confidence=_confidence(tables, trips, limits),
        scope=Scope(connections, methods_of_connections(tables, connections)),
        lost_ns=None,
        share=None,
        metrics=_metrics(tables, trips, purpose),
        evidence=tuple(e for trip in trips[: limits.examples] for e in _evidence(tables, trip)),
        explanation=words + _consequence(tables, closed),
        remedies=_remedies(tables, connections, purpose),
        references=("gRFC A8", "grpc/grpc doc/keepalive.md", "https://github.com/grpc/grpc-go/issues/1882"),
        verdict=(
            f"{words} Set the keepalive time of {client} to 5 minutes or more, or permit shorter ones at the server."
            if purpose != "bdp"
            else f"{words} They are a bandwidth estimator's: set fixed windows at {client}, or upgrade it."
        ),
    )


def _severity(tables: Tables, closed: list[_Trip], limits: Limits) -> Severity:
    if not closed:
        return "info"
    lost = _open_rpcs(tables, closed)
    many = lost >= limits.few and lost >= limits.critical_share * tables.rpc_count
    return "critical" if many or len(closed) >= limits.critical_closes else "warning"


def _open_rpcs(tables: Tables, closed: list[_Trip]) -> int:
    """RPCs that were open when the GOAWAY came."""
    return int(tables.goaways.open_rpcs[[trip.goaway for trip in closed]].sum())


def _confidence(tables: Tables, trips: list[_Trip], limits: Limits) -> Confidence:
    """High where the server said it and the count by the default policy agrees; its policy is not on the wire."""
    pings = tables.pings
    agrees = all(trip.goaway >= 0 and int(pings.strikes[trip.pings[-1]]) > limits.strikes for trip in trips)
    return quality_allows(tables) if agrees else "medium"


def _purpose(tables: Tables, trips: list[_Trip]) -> str:
    counts = Counter(int(tables.pings.purpose[row]) for trip in trips for row in trip.pings)
    return str(_core.PING_PURPOSES[counts.most_common(1)[0][0]])


def _intervals(tables: Tables, trip: _Trip) -> Ints:
    return np.diff(tables.pings.time_ns[list(trip.pings)])


def _words(tables: Tables, trip: _Trip, limits: Limits) -> str:
    """What happened on one connection."""
    pings, rows = tables.pings, list(trip.pings)
    intervals = _intervals(tables, trip)
    idle = int((pings.open_rpcs[rows] == 0).sum())
    apart = f", {milliseconds(int(intervals.min()))} apart at the least" if len(intervals) else ""
    permitted = f"{limits.permitted_ns // 60_000_000_000} minutes"
    if idle:
        permitted += f" ({limits.permitted_idle_ns // 3_600_000_000_000} hours without open RPCs: {idle} of them)"
    end = (
        f"the server closed the connection after the PING in packet {pings.packet[rows[-1]]}"
        if trip.goaway >= 0
        else f"the PING in packet {pings.packet[rows[-1]]} would have closed the connection"
    )
    return (
        f"{host(tables, trip.connection, int(pings.direction[rows[-1]]))} sent {counted(len(rows), 'PING')}{apart} "
        f"without HEADERS or DATA of the server in between; the default policy permits one in {permitted} and forgives "
        f"{limits.strikes}: {end}."
    )


def _consequence(tables: Tables, closed: list[_Trip]) -> str:
    if not closed:
        return " This server took them; its policy must be another one than the default."
    return (
        f" {counted(_open_rpcs(tables, closed), 'RPC')} had no answer when GOAWAY came; the client must connect again."
    )


def _metrics(tables: Tables, trips: list[_Trip], purpose: str) -> dict[str, int | float | str]:
    pings = tables.pings
    intervals = np.concatenate([_intervals(tables, trip) for trip in trips])
    closed = [trip for trip in trips if trip.goaway >= 0]
    last = [trip.pings[-1] for trip in trips]
    known = len(intervals) > 0
    spacing = {"interval_min_ns": int(intervals.min()), "interval_p50_ns": int(np.median(intervals))} if known else {}
    return {
        "closed_connections": len(closed),
        "connections": len(trips),
        "pings": sum(len(trip.pings) for trip in trips),
        "strikes": int(pings.strikes[last].max()),
        "purpose": purpose,
        "open_rpcs": _open_rpcs(tables, closed) if closed else 0,
        **spacing,
    }


def _evidence(tables: Tables, trip: _Trip) -> Iterator[Evidence]:
    pings, before = tables.pings, 0
    for row in trip.pings[-4:]:
        time = int(pings.time_ns[row])
        since = f", {milliseconds(time - before)} after the one before" if before else ""
        purpose = _core.PING_PURPOSES[pings.purpose[row]]
        what = f"PING ({purpose}){since}; {counted(int(pings.open_rpcs[row]), 'RPC')} open, strike {pings.strikes[row]}"
        yield Evidence(int(pings.packet[row]), time, what)
        before = time
    if trip.goaway >= 0:
        goaways, row = tables.goaways, trip.goaway
        yield Evidence(
            int(goaways.packet[row]), int(goaways.time_ns[row]), "GOAWAY ENHANCE_YOUR_CALM too_many_pings of the server"
        )


def _remedies(tables: Tables, connections: tuple[int, ...], purpose: str) -> tuple[Remedy, ...]:
    rarer = "as rare as the server permits; a dead connection is noticed later"
    keepalive = (
        Remedy("grpc-go", "keepalive.ClientParameters{Time: 5 * time.Minute, PermitWithoutStream: false}", rarer),
        Remedy("grpc-java", "keepAliveTime(5, TimeUnit.MINUTES), keepAliveWithoutCalls(false)", rarer),
        Remedy("C-core", "GRPC_ARG_KEEPALIVE_TIME_MS = 300000, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS = 0", rarer),
        Remedy("grpc-js", "grpc.keepalive_time_ms: 300000, grpc.keepalive_permit_without_calls: 0", rarer),
        Remedy("tonic", "Endpoint::http2_keep_alive_interval(Duration::from_secs(300))", rarer),
        Remedy("grpc-dotnet", "SocketsHttpHandler.KeepAlivePingDelay = TimeSpan.FromMinutes(5)", rarer),
    )
    fixed = "a fixed window, which ends the estimator's PINGs; slow on long links if it is small"
    estimator = (
        Remedy("grpc-go", "grpc.WithInitialWindowSize(...), grpc.WithInitialConnWindowSize(...)", fixed),
        Remedy("grpc-java", "NettyChannelBuilder.initialFlowControlWindow(...)", fixed),
        Remedy("C-core", "GRPC_ARG_HTTP2_BDP_PROBE = 0", fixed),
    )
    permit = "lets clients ping as often as they do; more packets for the server"
    server = (
        Remedy("grpc-go", "server: keepalive.EnforcementPolicy{MinTime: ..., PermitWithoutStream: true}", permit),
        Remedy("grpc-java", "server: NettyServerBuilder.permitKeepAliveTime(...)", permit),
        Remedy("C-core", "server: GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS", permit),
    )
    client = estimator if purpose == "bdp" else keepalive
    return (*seen_first(tables, connections, 0, client), *seen_first(tables, connections, 1, server))
