"""Connections are opened for a few RPCs each, and every one has to be set up first.

What it finds
-------------
A client opens one connection after the other to the same server and makes only a few RPCs on each. Every call seems
slow, because each connection has to be set up before its first RPC can begin.

The set-up is a TCP handshake, SETTINGS both ways, TLS where it is used, an empty header table and a small congestion
window. The report compares its time, also in round trips, with the time of the RPCs.

How it is decided
-----------------
For each client address and server port: at least five generations of connections, with few RPCs each. Five
generations are five times as many connections as were ever open at once. A pool of parallel connections is one
generation, however large.

The set-up lasts from the SYN to the first request HEADERS. Connections that waited longer than a second were opened
early and are left out. It is a warning when the set-up is large compared with all RPC time of the capture: a health
check with its own connection next to busy traffic is not.

Where the server ended most of the connections, by GOAWAY or by closing them first, their number is not the client's
choice. The report says so then, and does not ask for another use of channels. Where either end ended all of them at the
same time after their last RPC, an idle timeout does that, or one of a device on the way if RSTs of the server do not
continue its IP identification. Where the client is a proxy by its frames, its own setting is named: the `user-agent`
that it passes on is of its clients. Where a client ends connections that carried equally many RPCs, or long after their
last one, it is not asked for one channel. Connections that carry health checks alone are `info`. Where one side ended
most of them by a GOAWAY with an error code, the report names that error: as long as it stays, no shared channel keeps
them.

When it cannot tell
-------------------
For connections that began before the capture, or inside TLS that is not decrypted. Several clients behind one
address (NAT) look like one; their connections then overlap, and the number of generations stays low. A client
process that starts anew for every call looks like a channel that is closed after every call.

What would refute it
--------------------
The application keeps one channel (`netstat` shows the same local port from call to call), or the connections came
from different processes that each make few calls.

What to do
----------
Create the channel once and share it: channels and stubs are safe to use from many threads in every implementation. Do
not close it after a call. Where a proxy or firewall between them closes idle connections, keep them open with a
keepalive that the server permits. Where the server ends them, look for its limit on requests or age, or for its error.

References
----------
- https://grpc.io/docs/guides/performance/: always re-use stubs and channels
- gRFC A8: client-side keepalive; gRFC A9: server-side connection management
- https://github.com/grpc/grpc-java/issues/4559, https://github.com/grpc/grpc-dotnet/issues/1549
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..facts.evidence import show_packet
from ..facts.groups import Case, Group, put_together
from ..facts.hosts import are_many, host
from ..facts.methods import methods_of_connections, rpc_time
from ..facts.ratings import quality_allows, severity
from ..facts.resets import may_be_foreign
from ..facts.software_at import recognise_end, recognise_proxy, recognise_server
from ..facts.unanswered import mark_first_closings
from ..facts.vantage import reaction_ns
from ..model.analysis import Analysis
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_CONNECTIONS, NOTABLE_SHARE
from ..software import intents, settings
from ..software.texts import find_meaning, make_remedy
from ..software.timers import list_idle_limits, make_idle_timeout
from ..summary.figures import HTTP2
from ..tables import Codes, Counts, Ints, Mask, Tables, error_name
from ..tables.durations import total_ns

ID = "connection-churn"


def _write_figure(analysis: Analysis) -> str:
    totals = analysis.totals
    return f"{count(totals.rpcs, 'RPC')} on {count(totals.connections, 'connection')}"


ABOUT = About(
    example="recorded/lab/connection-churn.pcap",
    figure=_write_figure,
    caused_by=("too-many-pings", "connection-closed-early"),
    whole_connections=True,
    picture="handshakes",
    costs=(Cost("setup_ns", "{} of connection set-up"),),
)


class Limits(Struct, frozen=True, eq=False):
    generations: float = 5.0
    """Connections for each that was open at once (heuristic: more than a restart or two)."""
    few_rpcs: float = 10.0
    """RPCs per connection up to which it is hardly used (heuristic: one set-up for ten RPCs)."""
    early_ns: int = 1_000_000_000
    """Time to the first RPC after which a connection counts as opened early (heuristic: no set-up takes a second)."""
    told_share: float = NOTABLE_SHARE
    """Reported from this share of set-up in set-up and RPC time together (heuristic: above the variation of runs)."""
    warning_share: float = 0.10
    """A warning from this share of set-up in set-up and all RPC time together (heuristic: a tenth of the time)."""
    critical_share: float = 0.50
    """Critical from this share (heuristic: more set-up than RPCs)."""
    critical_connections: int = CRITICAL_CONNECTIONS
    """Fewest connections for critical (heuristic: fewer cost little in total)."""
    idle_ns: int = 100_000_000
    """Shortest time that counts as an idle timeout (heuristic: nobody sets a shorter one)."""
    same_time: float = 0.15
    """Largest spread of these times, by their median (a timer of Pekko ticks eight times per timeout)."""
    pinged_ns: int = 1_000_000
    """A close so soon after a PING answers it (heuristic: nginx takes 100 µs)."""


class _Churn(Struct, frozen=True, eq=False):
    """Connections of one client and server whose set-up was measured; columns of equal length."""

    connections: Ints
    first_rpc: Ints
    setup_ns: Ints
    at_once: int
    rpc_time_ns: int
    ended_by_server: int
    by_server: bool
    """Whether the server ended most of them."""
    idle_ns: int
    """Time from the last RPC to the end, if it is the same for all; 0 otherwise."""
    least_idle_ns: int
    """Shortest time from the last RPC to the end by the side that ended most of them; 0 if that is soon."""
    equal_rpcs: int
    """RPCs of each connection, if all that were ended carried equally many and more than one; 0 otherwise."""
    goaway: int
    """A GOAWAY with an error code of the side that ended most of them, if most ended so; -1 otherwise."""
    proxy: str | None
    """The proxy at the client's end of all of them, if one is recognised."""
    or_device: str
    """Added to the server's name where a device on the way may have ended them; otherwise nothing."""

    @property
    def share(self) -> float:
        """Return the set-up as a share of set-up and RPC time together."""
        setup = total_ns(self.setup_ns)
        return setup / (setup + self.rpc_time_ns) if setup else 0.0


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all pairs of hosts that spend time on setting up connections, and end them alike."""
    table = tables.connections
    rows = np.flatnonzero((table.protocol == HTTP2) & (table.complete == 1) & (table.rpcs > 0))
    if len(rows) < limits.generations:
        return
    groups = [(group, count_open_at_once(tables, group, limits)) for group in group_by_pair(tables, rows)]
    found = [_measure(tables, group, at_once, limits) for group, at_once in groups if at_once]
    reported = [churn for churn in found if len(churn.connections) and churn.share >= limits.told_share]
    cases = [_make_case(tables, churn) for churn in reported]
    yield from put_together(tables, cases, lambda group: _make_finding(tables, group, limits))


def _make_case(tables: Tables, churn: _Churn) -> Case[_Churn]:
    connections = tuple(churn.connections.tolist())
    checks = methods_of_connections(tables, connections) == (_CHECK,)
    ends = (churn.by_server, churn.goaway >= 0, churn.idle_ns > 0, churn.equal_rpcs > 0, churn.proxy, churn.or_device)
    return Case(churn, connections, 0, total_ns(churn.setup_ns), kind=repr((checks, *ends)))


def _add_up(group: Group[_Churn]) -> _Churn:
    """Add up the connections of several pairs of hosts; those of one stay as they are."""
    facts, first = group.facts, group.facts[0]
    if len(facts) == 1:
        return first
    return replace(
        first,
        connections=np.concatenate([one.connections for one in facts]),
        first_rpc=np.concatenate([one.first_rpc for one in facts]),
        setup_ns=np.concatenate([one.setup_ns for one in facts]),
        at_once=max(one.at_once for one in facts),
        rpc_time_ns=sum(one.rpc_time_ns for one in facts),
        ended_by_server=sum(one.ended_by_server for one in facts),
        idle_ns=int(np.median([one.idle_ns for one in facts])),
        least_idle_ns=min(one.least_idle_ns for one in facts),
        equal_rpcs=first.equal_rpcs if all(one.equal_rpcs == first.equal_rpcs for one in facts) else 0,
    )


def group_by_pair(tables: Tables, rows: Ints) -> list[Ints]:
    """Group the connections by client address, server address and server port."""
    table = tables.connections
    keys = np.stack([table.client_ip[rows], table.server_ip[rows], table.server_port[rows]], axis=1)
    _, pair = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(pair.ravel(), kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(pair.ravel()[order])) + 1)


def count_open_at_once(tables: Tables, group: Ints, limits: Limits) -> int:
    """Count the connections that were open at once; 0 when they are no churn."""
    table = tables.connections
    if len(group) < limits.generations or float(table.rpcs[group].mean()) > limits.few_rpcs:
        return 0
    opened, closed = table.opened_time_ns[group], table.closed_time_ns[group]
    ended = np.sort(closed[closed >= 0])
    at_once = int((np.arange(1, len(group) + 1) - np.searchsorted(ended, np.sort(opened), side="left")).max())
    return at_once if len(group) >= limits.generations * at_once else 0


def _measure(tables: Tables, group: Ints, at_once: int, limits: Limits) -> _Churn:
    """Measure the set-up of the connections: from the SYN to the first RPC."""
    table, rpcs = tables.connections, tables.rpcs
    chosen = np.zeros(len(table.rpcs), dtype=np.bool_)
    chosen[group] = True
    mine = np.flatnonzero(chosen[rpcs.connection])
    connections, first = np.unique(rpcs.connection[mine], return_index=True)
    first_rpc = mine[first]
    setup = rpcs.start_time_ns[first_rpc] - table.opened_time_ns[connections]
    kept = (setup >= 0) & (setup <= limits.early_ns)
    spent = total_ns(tables.connection_budgets[group])
    by, when = _find_ends(tables)
    ended_by_server = int((by[connections] == 1).sum())
    by_server = 2 * ended_by_server > len(connections)
    idles = _measure_idle(tables, mine, by == by_server, when)
    idle = _find_idle_timeout(idles, limits)
    measured = connections[kept].astype(np.int64)
    goaway = _find_breakdown(tables, connections, by_server=by_server)
    return _Churn(
        connections=measured,
        first_rpc=first_rpc[kept],
        setup_ns=setup[kept],
        at_once=at_once,
        rpc_time_ns=spent,
        ended_by_server=ended_by_server,
        by_server=by_server,
        idle_ns=idle,
        least_idle_ns=int(idles[0]) if len(idles) >= limits.generations and idles[0] >= limits.idle_ns else 0,
        equal_rpcs=_find_equal_rpcs(table.rpcs[connections[by[connections] == by_server]], limits),
        goaway=goaway,
        proxy=recognise_proxy(tables, measured.tolist(), 0),
        or_device=", or a device on the way," if by_server and _may_be_a_devices(tables, measured) else "",
    )


def _find_equal_rpcs(rpcs: Counts, limits: Limits) -> int:
    """Find how many RPCs each connection that was ended carried, if that is always the same and more than one."""
    equal = len(rpcs) >= limits.generations and rpcs.min() == rpcs.max() > 1
    return int(rpcs[0]) if equal else 0


def _find_breakdown(tables: Tables, connections: Counts, *, by_server: bool) -> int:
    """Find a GOAWAY with an error code, if one side ended more than half of the connections so; -1 otherwise."""
    goaways = tables.goaways
    rows = np.flatnonzero((goaways.code > 0) & (goaways.direction == by_server))
    rows = rows[np.isin(goaways.connection[rows], connections)]
    most = 2 * len(np.unique(goaways.connection[rows])) > len(connections)
    return int(rows[0]) if most else -1


def _find_ends(tables: Tables) -> tuple[Codes, Ints]:
    """Find who ended each connection first, and when: by a GOAWAY, or without one by a FIN or RST."""
    goaways, table = tables.goaways, tables.connections
    by, when = table.closed_by.copy(), table.closed_time_ns.copy()
    closed = when[goaways.connection]
    rows = np.flatnonzero((closed < 0) | (goaways.time_ns <= closed))
    latest_first = rows[np.argsort(-goaways.packet[rows].astype(np.int64), kind="stable")]
    on = goaways.connection[latest_first]
    by[on], when[on] = goaways.direction[latest_first], goaways.time_ns[latest_first]  # the first one is written last
    return by, when


def _measure_idle(tables: Tables, rpcs: Ints, ended: Mask, when: Ints) -> Ints:
    """Measure the times from the last RPC of connections to their end, the shortest first."""
    on = tables.rpcs.connection[rpcs]
    last = np.zeros(len(when), dtype=np.int64)
    np.maximum.at(last, on, tables.rpcs.start_time_ns[rpcs] + tables.rpcs.duration_ns[rpcs])
    over = np.unique(on)
    over = over[ended[over] & (when[over] >= 0)]
    return np.sort(when[over] - last[over])


def _find_idle_timeout(idle: Ints, limits: Limits) -> int:
    """Find the time after their last RPC at which connections were ended, if it is always the same; 0 otherwise."""
    if len(idle) < limits.generations or idle[0] < limits.idle_ns:
        return 0
    median = int(np.median(idle))
    return median if idle[-1] - idle[0] <= limits.same_time * median else 0


def _measure_share_of_capture(tables: Tables, churn: _Churn) -> float:
    """Return the set-up as a share of set-up and all RPC time of the capture."""
    setup = total_ns(churn.setup_ns)
    return setup / (setup + rpc_time(tables))


def _make_finding(tables: Tables, group: Group[_Churn], limits: Limits) -> Finding:
    churn = _add_up(group)
    table, count = tables.connections, len(churn.connections)
    setup = float(np.median(churn.setup_ns))
    per = float(table.rpcs[churn.connections].mean())
    each = "1 RPC each" if per == 1 else f"{per:.1f} RPCs each"
    client, server = group.who, group.peers
    ender = server if churn.by_server else client
    round_trips = tables.connections.handshake_rtt_ns[churn.connections]
    known = round_trips > 0
    trips = float(np.median(churn.setup_ns[known] / round_trips[known])) if known.any() else 0.0
    pinged = _find_pinged(tables, churn.connections, limits)
    words = (
        f"{client} opened {count:,} connections to {server} for {each}, at most {churn.at_once} at once"
        f"{' between two hosts' if len(group.facts) > 1 else ''}. "
        f"The set-up of each took {duration(setup)}{f' ({trips:.1f} round trips)' if trips else ''} before its "
        f"first RPC, {churn.share:.0%} of the time of set-up and RPCs together."
        f"{_describe_ends(churn, client, server + churn.or_device)}"
        f"{f' {ender} ended them with {_name_goaway(tables, churn)}.' if churn.goaway >= 0 else ''}"
        f"{_describe_pinged(tables, pinged, client, server)}"
    )
    methods = methods_of_connections(tables, churn.connections.tolist())
    grave = severity(_measure_share_of_capture(tables, churn), limits.warning_share, limits.critical_share)
    if methods == (_CHECK,):
        grave, words = "info", f"{words} All are health checks: a probe makes a connection for each."
    return Finding(
        id=ID,
        title=f"{count:,} connections for {each}",
        severity="warning" if grave == "critical" and len(churn.connections) < limits.critical_connections else grave,
        confidence=quality_allows(tables),
        scope=Scope(group.connections, methods),
        metrics=_collect_metrics(tables, churn, per, trips),
        evidence=tuple(
            item
            for one in group.shown
            for place in range(min(group.limit_moments(), len(one.connections)))
            for item in _show_connection(tables, one, place, limits)
        ),
        explanation=f"{words} Every new connection also begins with a small congestion window and empty header tables.",
        remedies=(_PINGED,) if len(pinged) else _list_remedies(tables, churn),
        references=(
            "https://grpc.io/docs/guides/performance/",
            "https://github.com/grpc/grpc-java/issues/4559",
            "https://github.com/grpc/grpc-dotnet/issues/1549",
        ),
        verdict=(
            f"{client} opened {count:,} connections for {each}, and setting them up took "
            f"{churn.share:.0%} of the time: "
            f"{f'{client} closes them when {server} sends a PING' if len(pinged) else _advise(tables, churn, ender)}."
        ),
    )


def _find_pinged(tables: Tables, connections: Ints, limits: Limits) -> Ints:
    """Find the closes of clients right after a PING of their server, rows of `closings`, if most connections end so."""
    c, pings = tables.closings, tables.pings
    asked = pings.packet[(pings.direction == 1) & (pings.ack == 0)]
    at_once = c.time_ns - c.peer_time_ns <= reaction_ns(tables, c.connection, 0, limits.pinged_ns)
    found = (c.direction == 0) & np.isin(c.connection, connections) & np.isin(c.peer_packet, asked) & at_once
    rows = np.flatnonzero(found & mark_first_closings(tables))
    return rows if len(rows) >= limits.generations and 2 * len(rows) > len(connections) else rows[:0]


def _describe_pinged(tables: Tables, rows: Ints, client: str, server: str) -> str:
    if not len(rows):
        return ""
    after = duration(float(np.median(tables.closings.time_ns[rows] - tables.closings.peer_time_ns[rows])))
    return f" {client} closed {len(rows):,} of them {after} (median) after a PING of {server}."


def _show_pinged(tables: Tables, rows: Ints) -> Iterator[Evidence]:
    for row in rows.tolist():
        connection = tables.closings.connection[row]
        yield show_packet(tables.closings, "peer_packet", row, f"PING of the server on connection {connection}")
        yield show_packet(tables.closings, "packet", row, f"the client closes connection {connection}")


def _describe_ends(churn: _Churn, client: str, server: str) -> str:
    """Say which side ended the connections, and after what idle time; begins with a space."""
    by_server, idle = churn.ended_by_server, f"about {duration(churn.idle_ns)} after"
    if churn.idle_ns and churn.by_server:
        return f" {server} ended {by_server:,} of the connections, each {idle} its last RPC."
    first = f" {server} ended {by_server:,} of the connections." if by_server else ""
    if not churn.idle_ns:
        return first
    return f"{first} {client} ended {f'others {idle} their' if by_server else f'each one {idle} its'} last RPC."


def _advise(tables: Tables, churn: _Churn, ender: str) -> str:
    ends = "end" if are_many(ender) else "ends"
    if churn.goaway >= 0:
        return f"find out why {ender} {ends} them with {_name_goaway(tables, churn)}"
    if churn.idle_ns:
        ender += churn.or_device
        return f"{ender} {ends} them about {duration(churn.idle_ns)} after a call, so raise that idle timeout"
    if churn.by_server:
        return f"find out why {ender} {ends} them"
    if churn.equal_rpcs:
        return f"each carried {churn.equal_rpcs} RPCs, so look for a limit on that in the client, or keep one channel"
    if proxy := churn.proxy:
        return f"let {proxy}, which opens them, keep them"
    if churn.least_idle_ns:
        return (
            f"the client closes them {duration(churn.least_idle_ns)} or more after a call, so look for its idle timeout"
        )
    return "create one channel and keep it"


def _may_be_a_devices(tables: Tables, connections: Ints) -> bool:
    """Check whether a device on the way may have ended them in the server's name: most of the RSTs look so."""
    c = tables.closings
    rows = np.flatnonzero((c.reset == 1) & (c.direction == 1) & np.isin(c.connection, connections))
    foreign = sum(may_be_foreign(tables, row) for row in rows[mark_first_closings(tables)[rows]].tolist())
    return 2 * foreign > len(connections)


def _name_goaway(tables: Tables, churn: _Churn) -> str:
    reason: str = tables.goaway_reasons[tables.goaways.reason[churn.goaway]]
    name = f"GOAWAY {error_name(int(tables.goaways.code[churn.goaway]))}"
    return f'{name} "{reason}"' if reason else name


def _list_remedies(tables: Tables, churn: _Churn) -> tuple[Remedy, ...]:
    if churn.goaway >= 0:
        known = find_meaning(tables.goaway_reasons[tables.goaways.reason[churn.goaway]])
        ender = host(tables, int(churn.connections[0]), int(churn.by_server))
        log = Remedy("application", f"the log of {ender} at the times of the evidence", _BREAKS)
        return (*((make_remedy(known),) if known else ()), log)
    if churn.idle_ns:
        server = make_idle_timeout(recognise_server(tables, churn.connections.tolist()))
        devices = list_idle_limits(churn.idle_ns) if churn.or_device else ()
        return (server, *devices) if churn.by_server else (_name_idle_timeouts(), ONE_CHANNEL)
    if churn.by_server:
        return (_ENDED,)
    if churn.equal_rpcs:
        return (_name_limits(), ONE_CHANNEL)
    if proxy := churn.proxy:
        look = Remedy(proxy, "the connections to its backends", "whether it keeps them open")
        return settings.list_own(intents.KEEP_BACKENDS, proxy) or (look,)
    if churn.least_idle_ns:
        return (_name_idle_timeouts(), ONE_CHANNEL)
    return list_channels(recognise_end(tables, int(churn.connections[0]), 0))


def _collect_metrics(tables: Tables, churn: _Churn, per: float, trips: float) -> dict[str, int | float | str]:
    return {
        "connections": len(churn.connections),
        "open_at_once": churn.at_once,
        "ended_by_server": churn.ended_by_server,
        "rpcs_per_connection": per,
        "setup_p50_ns": int(np.median(churn.setup_ns)),
        "setup_ns": total_ns(churn.setup_ns),
        "setup_per_rpc_ns": total_ns(churn.setup_ns) // max(1, int(tables.connections.rpcs[churn.connections].sum())),
        "setup_round_trips": trips,
        "setup_share": churn.share,
        "setup_share_of_capture": _measure_share_of_capture(tables, churn),
        "rpc_time_ns": churn.rpc_time_ns,
    }


def _show_connection(tables: Tables, churn: _Churn, place: int, limits: Limits) -> Iterator[Evidence]:
    table, rpcs = tables.connections, tables.rpcs
    connection, rpc = int(churn.connections[place]), int(churn.first_rpc[place])
    yield Evidence(
        int(table.first_packet[connection]),
        int(table.opened_time_ns[connection]),
        f"SYN of {tables.client(connection)}: connection {connection}, which carries "
        f"{count(int(table.rpcs[connection]), 'RPC')}",
    )
    after = duration(int(churn.setup_ns[place]))
    yield Evidence(int(rpcs.first_packet[rpc]), int(rpcs.start_time_ns[rpc]), f"its first RPC begins {after} later")
    yield from _show_pinged(tables, _find_pinged(tables, churn.connections, limits)[place : place + 1])


_PINGED = Remedy(
    "application",
    "the server's keepalive time: longer than its connections are idle",
    "nginx's keepalive cache closes an idle connection on which bytes come, also those of a PING (nginx issue 929)",
)


def _name_idle_timeouts() -> Remedy:
    known = settings.name_settings(intents.IDLE_TIMEOUT[intents.CLIENT])
    return Remedy("application", "the client's idle timeout: longer than the time between its calls", known)


def _name_limits() -> Remedy:
    known = settings.name_settings(intents.REQUESTS_OF_CLIENT)
    return Remedy("application", "the client's limit on requests per connection", known)


_ENDED = Remedy(
    "application",
    "the server's limits on requests, age and idle time of a connection, and its log at the times of the evidence",
    "say why it ends connections so early",
)
_BREAKS = "it ends each connection with an error, so sharing one channel does not help"
_CHECK = "/grpc.health.v1.Health/Check"
_KEEP = "one channel for the life of the process, used by all threads; it holds a socket open"
ONE_CHANNEL = Remedy("application", "create the channel once and share it", _KEEP)


def list_channels(software: str | None) -> tuple[Remedy, ...]:
    """List how one channel is shared, by the client's software."""
    return settings.list_settings(intents.ONE_CHANNEL, software, _KEEP, general=(ONE_CHANNEL,))
