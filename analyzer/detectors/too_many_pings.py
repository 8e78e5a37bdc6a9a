"""The client sent more PINGs than the server allows, and the server closed the connection.

What it finds
-------------
Calls fail or reconnect because the server closed their connection with GOAWAY ENHANCE_YOUR_CALM `too_many_pings`.
All RPCs on the connection are affected, and the client has to connect again.

The report says which PING was one too many, how far apart the PINGs were, what they were for, and what the default
policy would have allowed. Without a GOAWAY it reports, as `info`, PINGs that a server with the default policy would
not have accepted: this server allows them, another one may not.

How it is decided
-----------------
By the GOAWAY and its text. The strikes before it are counted as gRFC A8 specifies and grpc-go does:

- A PING is a strike when it comes less than 5 minutes after the last one (2 hours when no RPC is open).
- Strikes and clock start again when the server has sent HEADERS or DATA.
- The third strike closes the connection.

The payload of a PING shows its purpose, for the implementations that use fixed payloads.

When it cannot tell
-------------------
When the server has a policy other than the default, the count of strikes is not its count. C-core's PINGs have
random payloads, so their purpose is unknown. PINGs before the capture began are not counted.

What would refute it
--------------------
The server's log names another reason for the close, or the GOAWAY came from a proxy in front of it.

What to do
----------
Make the client's keepalive time no shorter than the server permits (5 minutes by default). Or permit shorter ones at
the server (MinTime, permitKeepAliveTime) when connections must be kept open through proxies. Do not ping without
calls unless the server permits that. Where the PINGs are BDP probes and not keepalives, set a fixed window.

References
----------
- gRFC A8: client-side keepalive; grpc/grpc doc/keepalive.md
- grpc-go internal/transport/http2_server.go, handlePing
- https://github.com/grpc/grpc-go/issues/1882, https://github.com/grpc/grpc/issues/17667
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..facts import contradictions, evidence
from ..facts.evidence import show_packet
from ..facts.failures import LossLimits, are_many_lost
from ..facts.hosts import host, name_hosts
from ..facts.methods import methods_of_connections
from ..facts.ratings import quality_allows
from ..facts.software_at import list_settings
from ..model.analysis import Analysis
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..software import intents
from ..tables import Ints, Tables
from ..tables.grouping import group_rows

ID = "too-many-pings"


def _write_figure(analysis: Analysis) -> str:
    pings = contradictions.add_up(analysis, lambda side: side.pings)
    return f"{count(pings, 'PING')}; {count(analysis.totals.frames.get('GOAWAY', 0), 'GOAWAY frame')}"


ABOUT = About(
    example="recorded/too-many-pings.pcap",
    figure=_write_figure,
    precedence=1,
    whole_connections=True,
    picture="packet_rates",
    costs=(Cost("open_rpcs", "{} lost"),),
    explains=("other_statuses",),
    proxy_faults=("failed_attempt",),
)

ENHANCE_YOUR_CALM = 11
_TEXT = "too_many_pings"


class Limits(LossLimits, frozen=True, eq=False):
    strikes: int = 2
    """Strikes that a server forgives (gRFC A8 and grpc-go's maxPingStrikes: the third one closes)."""
    permitted_ns: int = 300_000_000_000
    """Time between PINGs that a server permits by default while RPCs are open (gRFC A8: 5 minutes)."""
    permitted_idle_ns: int = 7_200_000_000_000
    """The same without open RPCs (gRFC A8: 2 hours)."""
    critical_closes: int = 3
    """Critical from this many closed connections (heuristic: the client keeps its setting)."""


class _Trip(Struct, frozen=True, eq=False):
    """One connection's PINGs, rows of the pings table, up to the one that was too many; `goaway` is -1 without one."""

    connection: int
    pings: tuple[int, ...]
    goaway: int


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections that were closed, or about those that could have been."""
    goaways, pings = tables.goaways, tables.pings
    blamed = [
        int(row)
        for row in np.flatnonzero(goaways.code == ENHANCE_YOUR_CALM)
        if _TEXT in tables.goaway_reasons[goaways.reason[row]].lower()
    ]
    if blamed:
        trips = list(_find_closed(tables, blamed))
        if any(trip.pings for trip in trips):
            yield _make_finding(tables, [trip for trip in trips if trip.pings], limits)
        else:
            yield Skipped(ID, "the capture lacks the PINGs before GOAWAY too_many_pings")
    elif len(pings.packet) and int(pings.strikes.max()) > limits.strikes:
        yield _make_finding(tables, list(_find_tolerated(tables, limits)), limits)


def _find_closed(tables: Tables, blamed: list[int]) -> Iterator[_Trip]:
    """Yield for each GOAWAY the PINGs of the other side before it."""
    goaways, pings, sent = tables.goaways, tables.pings, _group_by_sender(tables)
    for goaway in blamed:
        connection = int(goaways.connection[goaway])
        rows = sent.get(2 * connection + 1 - int(goaways.direction[goaway]), np.zeros(0, dtype=np.int64))
        yield _Trip(connection, _take_since_reset(tables, rows[pings.packet[rows] <= goaways.packet[goaway]]), goaway)


def _group_by_sender(tables: Tables) -> dict[int, Ints]:
    """Group the PINGs that are no acknowledgements by twice the connection plus the direction."""
    pings = tables.pings
    rows = np.flatnonzero(pings.ack == 0)
    groups = group_rows(2 * pings.connection[rows].astype(np.int64) + pings.direction[rows])
    return {sender: rows[mine] for sender, mine in groups.items()}


def _find_tolerated(tables: Tables, limits: Limits) -> Iterator[_Trip]:
    """Yield the first PING of each connection that the default policy would not have accepted, and those before."""
    pings, sent = tables.pings, _group_by_sender(tables)
    over = np.flatnonzero((pings.strikes > limits.strikes) & (pings.ack == 0))
    connections, first = np.unique(pings.connection[over], return_index=True)
    for connection, last in zip(connections.tolist(), over[first].tolist(), strict=True):
        rows = sent[2 * connection + int(pings.direction[last])]
        yield _Trip(connection, _take_since_reset(tables, rows[rows <= last]), -1)


def _take_since_reset(tables: Tables, rows: Ints) -> tuple[int, ...]:
    """Return the PINGs since the last one that was no strike, with that one."""
    fresh = np.flatnonzero(tables.pings.strikes[rows] == 0)
    return tuple(int(row) for row in (rows[fresh[-1] :] if len(fresh) else rows))


def _make_finding(tables: Tables, trips: list[_Trip], limits: Limits) -> Finding:
    closed = [trip for trip in trips if trip.goaway >= 0]
    connections = tuple(trip.connection for trip in trips)
    client = name_hosts(tables, connections, 0)
    counts = Counter(int(tables.pings.purpose[row]) for trip in trips for row in trip.pings)
    words, purpose = _describe(tables, trips[0], limits), _core.PING_PURPOSES[counts.most_common(1)[0][0]]
    happened = f"{_describe_pings(tables, trips[0])}; {_describe_end(tables, trips[0])}"
    if len(trips) > 1:
        words += f" {count(len(trips) - 1, 'more connection')} went the same way."
        happened += f", and {count(len(trips) - 1, 'more connection')}"
    title = (
        f"{count(len(closed), 'connection')} {'was' if len(closed) == 1 else 'were'} closed for too many PINGs"
        if closed
        else f"On {count(len(trips), 'connection')} the client sends more PINGs than servers allow by default"
    )
    strikes = tables.pings.strikes
    agrees = all(trip.goaway >= 0 and int(strikes[trip.pings[-1]]) > limits.strikes for trip in trips)
    return Finding(
        id=ID,
        title=title,
        severity=_rate_severity(tables, closed, limits),
        confidence=quality_allows(tables) if agrees else "medium",
        scope=Scope(connections, methods_of_connections(tables, connections)),
        metrics=_measure(tables, trips, purpose),
        evidence=tuple(e for trip in trips[: evidence.FEW_EXAMPLES] for e in _show_pings(tables, trip)),
        explanation=words + _describe_consequence(tables, closed),
        remedies=_list_remedies(tables, connections, purpose),
        references=("gRFC A8", "grpc/grpc doc/keepalive.md", "https://github.com/grpc/grpc-go/issues/1882"),
        verdict=(
            f"{happened}: set fixed windows at {client}, because they are BDP probes."
            if purpose == "bdp"
            else f"{happened}: set the client's keepalive to 5 minutes or more."
        ),
    )


def _rate_severity(tables: Tables, closed: list[_Trip], limits: Limits) -> Severity:
    if not closed:
        return "info"
    lost = _count_open_rpcs(tables, closed)
    many = are_many_lost(lost, tables.rpc_count, limits)
    return "critical" if many or len(closed) >= limits.critical_closes else "warning"


def _count_open_rpcs(tables: Tables, closed: list[_Trip]) -> int:
    """Count the RPCs that were open when the GOAWAY arrived."""
    return int(tables.goaways.open_rpcs[[trip.goaway for trip in closed]].sum())


def _measure_intervals(tables: Tables, trip: _Trip) -> Ints:
    return np.diff(tables.pings.time_ns[list(trip.pings)])


def _describe(tables: Tables, trip: _Trip, limits: Limits) -> str:
    """Say what happened on one connection."""
    idle = int((tables.pings.open_rpcs[list(trip.pings)] == 0).sum())
    permitted = f"in {limits.permitted_ns // 60_000_000_000} minutes"
    if idle:
        hours = limits.permitted_idle_ns // 3_600_000_000_000
        permitted += f" (in {hours} hours while no RPC is open, as at {idle} of these)"
    return (
        f"{_describe_pings(tables, trip)}, without HEADERS or DATA of the server in between. The default policy "
        f"permits one PING {permitted} and forgives {limits.strikes}: {_describe_end(tables, trip)}."
    )


def _describe_pings(tables: Tables, trip: _Trip) -> str:
    intervals = _measure_intervals(tables, trip)
    apart = f", at least {duration(int(intervals.min()))} apart" if len(intervals) else ""
    sender = host(tables, trip.connection, int(tables.pings.direction[trip.pings[-1]]))
    return f"{sender} sent {count(len(trip.pings), 'PING')}{apart}"


def _describe_end(tables: Tables, trip: _Trip) -> str:
    packet = tables.pings.packet[trip.pings[-1]]
    if trip.goaway >= 0:
        return f"the server closed the connection after the PING in packet {packet}"
    return f"the PING in packet {packet} would have closed the connection"


def _describe_consequence(tables: Tables, closed: list[_Trip]) -> str:
    if not closed:
        return " This server accepted them, so its policy is not the default."
    waiting = _count_open_rpcs(tables, closed)
    rpcs = count(waiting, "RPC was", "RPCs were") if waiting else "No RPC was"
    return f" {rpcs} waiting for a response when the GOAWAY arrived; the client must connect again."


def _measure(tables: Tables, trips: list[_Trip], purpose: str) -> dict[str, int | float | str]:
    pings = tables.pings
    intervals = np.concatenate([_measure_intervals(tables, trip) for trip in trips])
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
        "open_rpcs": _count_open_rpcs(tables, closed) if closed else 0,
        **spacing,
    }


def _show_pings(tables: Tables, trip: _Trip) -> Iterator[Evidence]:
    pings, before = tables.pings, 0
    for row in trip.pings[-4:]:
        time = int(pings.time_ns[row])
        since = f", {duration(time - before)} after the one before" if before else ""
        purpose = _core.PING_PURPOSES[pings.purpose[row]]
        what = f"PING ({purpose}){since}; {count(int(pings.open_rpcs[row]), 'RPC')} open, strike {pings.strikes[row]}"
        yield Evidence(int(pings.packet[row]), time, what)
        before = time
    if trip.goaway >= 0:
        goaways, row = tables.goaways, trip.goaway
        yield show_packet(goaways, "packet", row, "GOAWAY ENHANCE_YOUR_CALM too_many_pings from the server")


def _list_remedies(tables: Tables, connections: tuple[int, ...], purpose: str) -> tuple[Remedy, ...]:
    rarer = "no more often than the server permits; a dead connection is noticed later"
    fixed = "a fixed window, which stops the BDP probes; slow on long links if it is small"
    permit = "lets clients ping as often as they do now; more packets for the server"
    client = (intents.NO_BDP_PROBES, fixed) if purpose == "bdp" else (intents.RARER_KEEPALIVE, rarer)
    return (
        *list_settings(tables, connections, 0, *client),
        *list_settings(tables, connections, 1, intents.PERMIT_PINGS, permit, where="server"),
    )
