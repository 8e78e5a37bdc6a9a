"""Attempts to open a connection that failed, shared by `connect-failure` and `slow-connect`."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.finding import Remedy
from ..model.text import count, duration, safe
from ..model.tls import LARGEST_ALERT
from ..software import protocols
from ..summary.figures import HTTP2, TLS, UNDECIDED
from ..tables import NO_AGENT, Ints, Mask, Tables
from ..tables.grouping import distinct
from . import alerts, hosts, icmp, vantage

NOTHING, PREFACE, SETTINGS, HTTP1, TLS_HELLO, OTHER = (
    _core.BEGINNINGS.index(name) for name in ("", "preface", "settings", "http1_response", "tls", "other")
)
"""Values of `Setups.client_begins` and `server_begins`."""
OFFERS_H2, CHOICE_KNOWN, CHOSEN_H2, CHOSEN_NONE = 2, 4, 8, 16
"""Bits of `Connections.tls_alpn`: the client offers HTTP/2; the server's choice is known; it is HTTP/2, or none."""
REPORTS = 2
"""ICMP errors about the SYNs of one attempt that the text names."""
NO_ALERT = 255
"""`Setups.alert` without an alert."""
TLS_1_3 = 0x0304
SERVER_UNHEARD = 2
"""Bit of `Connections.unheard`: the server's bytes were acknowledged, and are not in the capture."""

KINDS = (
    "refused",
    "unreachable",
    "unanswered",
    "http1",
    "cleartext",
    "foreign",
    "alert",
    "closed",
    "silent",
    "abandoned",
    "paused",
    "no_alpn",
    "no_request",
    "rejected",
    "unhealthy",
)
"""Ways to fail: RST for a SYN; an ICMP error for a SYN; no answer to SYNs; HTTP/1 for the preface or the ClientHello;
HTTP/2 in the clear for the ClientHello; another protocol for either; a TLS alert; closed by the server before it
sent a byte; closed by the client after it had waited in vain for one; closed by the client at once after the
server's part of the TLS handshake, or after a silence; closed by the client after the handshake because the server
selected no HTTP/2, or without a word that says why; closed by the server after it, with an encrypted alert and no
more; answered by health checks with another status than SERVING. The first one that fits counts: a client may send
an alert for what the server answered."""


UNANSWERED_THERE = Remedy(
    "linux",
    "ss -ltn; nstat -az TcpExtListenOverflows TcpExtListenDrops; nft list ruleset",
    "on the server, which the SYNs reached: a full queue of connections or a firewall drops them there",
)
"""A check where SYNs got no answer that had passed a capture point at the server."""


class Failures(Struct, frozen=True, eq=False):
    """Connections that failed before they could carry RPCs; columns of equal length, in the order of first packets."""

    connection: Ints
    kind: Ints
    """Index into `KINDS`."""


def find_failures(tables: Tables, unanswered_ns: int) -> Failures:
    """Find all failed attempts. A SYN counts as unanswered when the capture goes on for `unanswered_ns` after it."""
    c, s = tables.connections, tables.setups
    opened = (s.syns > 0) & (c.rpcs == 0) & (c.other_streams == 0)
    dialed = opened & (s.syn_ack_packet == 0)
    waited = int(tables.capture["last_time_ns"] or 0) - c.first_time_ns
    servers = hosts.number_servers(tables)
    heard = ~np.isin(servers, servers[c.unheard & SERVER_UNHEARD != 0])  # else its answer may be missing in the capture
    silent = (c.packets_server == 0) & (c.packets_client == s.syns) & heard
    reported = np.zeros(len(dialed), dtype=bool)
    reported[tables.icmp_errors.connection[(tables.icmp_errors.direction == 0) & ~icmp.mark_too_big(tables)]] = True
    asked = opened & (s.syn_ack_packet > 0) & (s.client_packet > 0) & (c.unheard == 0) & (c.missing_bytes == 0)
    mute = asked & (s.server_begins == NOTHING) & (s.closed_packet > 0)
    unfinished = asked & (c.tls_server_hello_ns >= 0) & (c.tls_finished_packet == 0) & (c.closed_by == 0)
    waited_ns = c.closed_time_ns - c.tls_hello_time_ns - c.tls_server_hello_ns
    refused = asked & _find_refused(tables, unanswered_ns)
    chosen = c.tls_alpn & CHOICE_KNOWN != 0
    begun = (s.client_begins == PREFACE) | (s.client_begins == TLS_HELLO)
    kinds: tuple[Mask, ...] = (
        dialed & (s.reset_packet > 0) & (c.closed_by == 1),
        dialed & silent & reported,
        dialed & silent & (waited >= unanswered_ns),
        asked & begun & (s.server_begins == HTTP1),
        asked & (s.client_begins == TLS_HELLO) & (s.server_begins == SETTINGS),
        asked & begun & (s.server_begins == OTHER),
        asked & (s.alert != NO_ALERT),
        mute & begun & (c.closed_by == 1),
        mute & begun & (c.closed_by == 0) & (c.closed_time_ns - s.client_time_ns >= unanswered_ns),
        unfinished & (waited_ns < unanswered_ns),
        unfinished,
        refused & chosen,
        refused & ~chosen,
        asked & (s.closed_packet > 0) & _find_rejected(tables, unanswered_ns),
        _find_unhealthy(tables),
    )
    kind = np.select(kinds, range(len(kinds)), default=-1)
    connection = np.flatnonzero(kind >= 0)
    return Failures(connection, kind[connection])


def _find_refused(tables: Tables, unanswered_ns: int) -> Mask:
    """Mark TLS that its client closed soon after the handshake without a byte of HTTP/2, which it had offered.

    A client of HTTP/2 sends its preface at once. An encrypted alert, as long as the notice of an end, is no such byte.
    """
    c, r = tables.connections, tables.records
    sent, size = np.zeros((2, len(c.rpcs)), np.int64)
    client = r.direction == 0
    sent[r.connection[client]], size[r.connection[client]] = r.records[client], r.bytes[client]
    wordless = (tables.setups.client_settings_packet == 0) & (sent <= 1) & (size <= LARGEST_ALERT)
    over_tls = (c.tls_alpn & (OFFERS_H2 | CHOSEN_H2) == OFFERS_H2) & (c.tls_finished_packet > 0)
    finished_ns = c.tls_hello_time_ns + c.tls_handshake_ns
    prompt = (c.closed_by == 0) & (c.closed_time_ns - finished_ns <= unanswered_ns)
    decides = np.isin(c.protocol, (TLS, HTTP2, UNDECIDED))  # else it went on in another protocol
    return np.asarray(over_tls & prompt & wordless & decides)


def _find_rejected(tables: Tables, unanswered_ns: int) -> Mask:
    """Mark TLS 1.3 that its server closed soon after the handshake, when it had sent an alert alone.

    A server of HTTP/2 sends its SETTINGS at once. One that closes later, or after its client, may say goodbye by that.
    """
    c, r = tables.connections, tables.records
    records, sizes = np.zeros((2, len(c.rpcs)), np.int64), np.zeros((2, len(c.rpcs)), np.int64)
    records[r.direction, r.connection], sizes[r.direction, r.connection] = r.records, r.bytes
    over_tls = (c.tls_version == TLS_1_3) & (c.tls_alpn & OFFERS_H2 != 0) & (c.tls_finished_packet > 0)
    prompt = (c.closed_by == 1) & (c.closed_time_ns - tables.setups.client_time_ns <= unanswered_ns)
    client, server = (records == 1) & (sizes == _core.TLS_ALERT_LENGTH)
    return np.asarray(over_tls & prompt & server & ~client)


WATCH, CHECK = "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check"
"""The methods of health checks."""
SERVING, NO_ANSWER = 1, 255
_HEALTH = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
"""`HealthCheckResponse.ServingStatus`, but for SERVING."""


def _find_unhealthy(tables: Tables) -> Mask:
    """Mark connections with health checks alone, the last of which was answered with another status than SERVING."""
    unhealthy: Mask = ~np.isin(tables.setups.health, (SERVING, NO_ANSWER))
    if unhealthy.any():
        used, checks = tables.connection_methods, {one.number for one in tables.methods if one.name in (WATCH, CHECK)}
        unhealthy[used.connection[~np.isin(used.method, list(checks))]] = False
    return unhealthy


def _describe_health(tables: Tables, connection: int) -> str:
    """Say what a server answers to health checks, and what clients do then (gRFC A17)."""
    used = tables.connection_methods
    watch = {one.number for one in tables.methods if one.name == WATCH}
    watches = np.isin(used.method[used.connection == connection], list(watch)).any()
    status = _HEALTH.get(int(tables.setups.health[connection]), "an unknown status")
    who = "clients with healthCheckConfig send" if watches else "who asks sends"
    return f"answers health checks with {status}, and {who} it no calls"


def reached_server(tables: Tables, connection: int) -> bool:
    """Check whether SYNs had passed a capture point at the server, as all connections to its address show."""
    c = tables.connections
    known = (c.server_ip == c.server_ip[connection]) & (c.near_server_rtt_ns >= 0) & (c.near_client_rtt_ns >= 0)
    return bool(known.any() and vantage.mark_taken_at(tables, 1)[known].all())


def find_grpc_ports(tables: Tables) -> Ints:
    """List the ports of servers that speak HTTP/2, or TLS that offers it; empty when no connection shows either."""
    c = tables.connections
    offers = (c.protocol == TLS) & (c.tls_alpn & OFFERS_H2 != 0)
    speaks = (c.rpcs > 0) | ((c.protocol == HTTP2) & (tables.setups.server_begins != NOTHING)) | offers
    return distinct(c.server_port[speaks & (c.packets_server > 0)])


def describe(tables: Tables, connection: int, kind: str) -> str:
    """Say what ended an attempt, without its ends: `refused the connection (RST for the SYN)`."""
    s = tables.setups
    hello = "the ClientHello" if s.client_begins[connection] == TLS_HELLO else "the HTTP/2 preface"
    if kind == "alert":
        return alerts.describe(tables, connection, hello)
    status = int(s.http1_status[connection])
    if kind == "unreachable":
        return _describe_error(tables, connection)
    closed = "RST" if s.reset_packet[connection] == s.closed_packet[connection] else "FIN"
    when = "before" if s.closed_packet[connection] < s.client_packet[connection] else "after"
    return {
        "refused": "refused the connection (RST for the SYN)",
        "unanswered": "did not answer the SYN",
        "http1": f"answered {hello} in HTTP/1.1{f' with status {status}' if status else ''}",
        "closed": f"closed the connection ({closed}) {when} {hello} and sent nothing",
        "silent": f"accepted the connection and sent nothing after {hello}",
        "cleartext": f"answered {hello} with HTTP/2 in the clear",
        "foreign": _describe_foreign(tables, connection, hello),
        "abandoned": "sent its part of the TLS handshake, and the client closed at once without finishing it",
        "paused": f"sent its part of the TLS handshake; the client closed after {_wait(tables, connection)} of silence",
        "no_alpn": f"selected {_name_choice(tables, connection)} although the client offers h2; the client closed "
        "right after the handshake",
        "no_request": "was refused by the client, which closed right after the TLS handshake without a request",
        "unhealthy": _describe_health(tables, connection),
        "rejected": "ended the connection by an encrypted TLS alert after the handshake",
    }[kind]


def _describe_foreign(tables: Tables, connection: int, hello: str) -> str:
    """Quote the first line of another protocol, and name it where it is known: `as Redis: "-ERR unknown command"`."""
    s, agent = tables.setups, int(tables.connections.server_agent[connection])
    line = safe(tables.agents[agent]) if agent != NO_AGENT else ""
    answered = (
        f"answered {hello}" if s.server_packet[connection] > s.client_packet[connection] else "greeted the client"
    )
    return (
        f'{answered} {protocols.name_protocol(line)}: "{line}"'
        if line
        else f"{answered} with bytes of another protocol"
    )


def _wait(tables: Tables, connection: int) -> str:
    """Format the time from the ServerHello to the client's close."""
    c, row = tables.connections, connection
    return duration(max(0, int(c.closed_time_ns[row] - c.tls_hello_time_ns[row] - c.tls_server_hello_ns[row])))


def _name_choice(tables: Tables, connection: int) -> str:
    none = int(tables.connections.tls_alpn[connection]) & CHOSEN_NONE
    return "no ALPN protocol" if none else "another protocol than h2 by ALPN"


def _describe_error(tables: Tables, connection: int) -> str:
    errors = icmp.find_errors(tables, connection, 0, 0, too_big=False)[:REPORTS]
    if not errors:
        return "did not answer the SYN"
    first, *_ = names = [(icmp.name_reporter(tables, error), icmp.name_error(tables, error)) for error in errors]
    if first[0] == tables.addresses[int(tables.connections.server_ip[connection])]:
        return f"answered the SYN with {first[1]}"
    return "did not answer the SYN; " + " and ".join(f"{reporter} reports {named}" for reporter, named in names)


def list_ends(tables: Tables, connections: Ints, most: int = 3) -> str:
    """List the servers of some connections, a few by name: `10.0.0.1:443 and 2 others`."""
    ends = list(dict.fromkeys(tables.server(int(row)) for row in connections.tolist()))
    more = f" and {count(len(ends) - most, 'other')}" if len(ends) > most else ""
    return ", ".join(ends[:most]) + more


class Chain(Struct, eq=False):
    """Failed attempts of one client after each other, as its back-off spaces them."""

    attempts: list[int]
    last_ns: int
    waits: int = 0


FIRST_BACKOFF_NS = 1_000_000_000
"""gRPC's first back-off, which grows by 1.6 to 120 s at most and varies by 20 % (connection-backoff.md)."""
LONGEST_BACKOFF_NS = 120_000_000_000
GROWING_WAITS = 11
"""Waits after which the back-off has its maximum: 1.6 ** 11 is more than 120."""
CONNECT_NS = 20_000_000_000
"""gRPC waits at least so long for an attempt (connection-backoff.md, MIN_CONNECT_TIMEOUT)."""


def _longest_gap(chain: Chain, tables: Tables) -> float:
    """Return the longest time in which the client tries again."""
    backoff = 1.2 * min(LONGEST_BACKOFF_NS, FIRST_BACKOFF_NS * 1.6 ** min(chain.waits, GROWING_WAITS))
    unanswered = tables.connections.packets_server[chain.attempts[-1]] == 0
    return backoff + (CONNECT_NS if unanswered else 0)


_Chains = dict[tuple[int, bool], dict[int, Chain]]
"""Chains by the server's port and whether the client has an IPv6 address, and by the client's address."""


def find_attempts_before(tables: Tables, failures: Failures) -> dict[int, list[int]]:
    """Find for connections that succeeded the failed attempts to the same port right before them."""
    c = tables.connections
    if not len(failures.connection):
        return {}
    failed = set(failures.connection.tolist())
    ports = distinct(c.server_port[failures.connection])
    dialed = (tables.setups.syns > 0) & np.isin(c.server_port, ports)
    chains: _Chains = {}
    found: dict[int, list[int]] = {}
    for row in np.flatnonzero(dialed).tolist():
        if row in failed:
            _extend_chain(tables, chains, row)
        elif tables.setups.syn_ack_packet[row] > 0:
            found[row] = [attempt for chain in _take_chains(tables, chains, row) for attempt in chain.attempts]
    return {row: attempts for row, attempts in found.items() if attempts}


def _has_ipv6(tables: Tables, row: int) -> bool:
    return ":" in tables.addresses[int(tables.connections.client_ip[row])]


def _extend_chain(tables: Tables, chains: _Chains, row: int) -> None:
    c = tables.connections
    client, now = int(c.client_ip[row]), int(c.first_time_ns[row])
    mine = chains.setdefault((int(c.server_port[row]), _has_ipv6(tables, row)), {})
    chain = mine.get(client)
    if chain is None or now - chain.last_ns > _longest_gap(chain, tables):
        mine[client] = Chain([row], now)
        return
    chain.waits += now - chain.last_ns >= 0.8 * FIRST_BACKOFF_NS
    chain.attempts.append(row)
    chain.last_ns = now


def _take_chains(tables: Tables, chains: _Chains, row: int) -> Iterator[Chain]:
    """Take the chains that a connection ends: its client's, and over the other version of IP if one client uses it."""
    c = tables.connections
    client, port, now = int(c.client_ip[row]), int(c.server_port[row]), int(c.first_time_ns[row])
    six = _has_ipv6(tables, row)
    own, other = chains.get((port, six), {}), chains.get((port, not six), {})
    taken = [own.pop(client, None), other.popitem()[1] if len(other) == 1 else None]
    yield from (chain for chain in taken if chain and now - chain.last_ns <= _longest_gap(chain, tables))
