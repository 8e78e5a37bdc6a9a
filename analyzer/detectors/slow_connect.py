"""The set-up of a connection took long, and its first RPC waited for it.

What it finds
-------------
The first call on a new connection is slow for its caller, and its time on the wire does not show it. The set-up of the
connection took long: DNS lookups, earlier attempts that failed with the back-off between them, SYNs that were
retransmitted, the TLS handshake, or a server that sent its SETTINGS late.

The time of an RPC begins with its first packet. The report says which step took the time.

How it is decided
-----------------
Each step counts with the time beyond the round trips that it needs. DNS lookups count from the first question to the
SYN when each step follows the one before at once, for names that gave the server's address, with their search domains
and `_grpc_config`. Failed attempts count when they follow each other as gRPC's back-off spaces them.

The connection counts when one step took at least 200 ms and the first RPC followed the set-up at once: a connection
that was opened early delays nothing. Neither does one whose client had another connection with RPCs meanwhile. Late
SETTINGS count only if the client sent its first RPC after them. It is a warning when the set-up is a large share of
set-up and RPC time.

SYNs that passed a capture point at the server, within 200 µs as connections to its address show, were dropped there:
its queue of connections was full, or a firewall of the host dropped them. SYNs that it answered were not: the SYN-ACKs
were lost.

When it cannot tell
-------------------
For connections that began before the capture, for DNS over TLS or HTTPS, and for lookups that a cache or a process on
another host answered. Of DNS over TCP only answered lookups count, whose messages no segment cuts. Inside TLS without
secrets the first RPC is not visible, so that it counts as waiting.

What would refute it
--------------------
The client's log has the application's first call only after the connection was ready.

What to do
----------
Open the channel before the first call (`WaitForReady`, `Connect`, `getState(true)`), and then fix the slow step: the
verdict names it.

References
----------
- RFC 8305: Happy Eyeballs; the next address is tried after 250 ms
- RFC 6298 section 2: the first SYN is retransmitted after one second
- grpc/grpc doc/connection-backoff.md: 1 s, growing to 120 s
- https://github.com/grpc/grpc/issues/35638, https://github.com/grpc/grpc/issues/31466
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct

from ..facts import attempts as connection_attempts
from ..facts import evidence, hosts, unanswered
from ..facts import lookups as dns_lookups
from ..facts.evidence import show_packet
from ..facts.methods import methods_of_connections, rpc_time
from ..facts.ratings import lower, quality_allows, severity
from ..facts.set_up import find_first_rpcs
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_CONNECTIONS
from ..software import intents, settings
from ..tables import Ints, Tables

ID = "slow-connect"
ABOUT = About(
    example="recorded/wild/connect-syn-retry.pcap.zst",
    whole_connections=True,
    without_rpcs=True,
    precedence=1,
    picture="handshakes",
    costs=(Cost("delay_ns", "connections delayed by {}"),),
)


class Limits(Struct, frozen=True, eq=False):
    step_ns: int = 200_000_000
    """Shortest time of a step beyond its round trips (heuristic: below the 250 ms of RFC 8305 and the 1 s of a SYN)."""
    at_once_ns: int = 100_000_000
    """Longest time in which the next step or the first RPC follows (heuristic: half a step; a busy process is late)."""
    unanswered_ns: int = unanswered.INITIAL_TIMEOUT_NS
    """As in `connect-failure` (RFC 6298 section 2)."""
    warning_share: float = 0.05
    """A warning from this share of the delay in delay and RPC time (heuristic: as blocked time elsewhere)."""
    critical_share: float = 0.90
    """Critical from this share (heuristic: nearly all time), when RPCs are many enough."""
    critical_connections: int = CRITICAL_CONNECTIONS
    """Fewest connections for critical (heuristic: as connection-churn)."""


class _Step(Struct, frozen=True, eq=False):
    """A step of a connection's set-up that took long."""

    kind: str
    excess_ns: int
    words: str
    begin: Evidence
    end: Evidence


class _Slow(Struct, frozen=True, eq=False):
    """A connection with its slow steps, the slowest first, and its first RPC."""

    connection: int
    steps: tuple[_Step, ...]
    attempts: tuple[int, ...]
    """The failed attempts before it."""
    rpc: int
    """Row of its first RPC, -1 for none that can be read."""

    @property
    def excess_ns(self) -> int:
        """Add up the steps."""
        return sum(step.excess_ns for step in self.steps)


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all connections whose set-up delayed their first RPC."""
    found = sorted(_find_slow(tables, limits), key=lambda slow: -slow.excess_ns)
    if found:
        yield _make_finding(tables, found, limits)


def _find_slow(tables: Tables, limits: Limits) -> Iterator[_Slow]:
    c, s = tables.connections, tables.setups
    first_rpc = find_first_rpcs(tables)
    carries = (first_rpc >= 0) | ((c.tls == 1) & (c.rpcs == 0) & (c.encrypted_bytes > 0))
    ready = (s.syns > 0) & (s.syn_ack_packet > 0) & carries
    failures = connection_attempts.find_failures(tables, limits.unanswered_ns)
    attempts = connection_attempts.find_attempts_before(tables, failures)
    lookups = dns_lookups.find_lookups_before(tables, np.flatnonzero(ready), attempts, limits.at_once_ns)
    slowest = np.maximum.reduce([_measure_syn(tables), _measure_tls(tables), _measure_settings(tables)])
    slow = ready & (slowest >= limits.step_ns)
    slow[list(attempts)] |= ready[list(attempts)]
    slow[list(lookups)] |= ready[list(lookups)]
    others = _Others.collect(tables, first_rpc)
    for row in np.flatnonzero(slow).tolist():
        rpc = int(first_rpc[row])
        steps = [*_list_own_steps(tables, row, rpc)]
        steps += _list_attempts(tables, row, attempts.get(row, []), failures)
        steps += _list_lookups(tables, lookups.get(row))
        long = sorted((step for step in steps if step.excess_ns >= limits.step_ns), key=lambda step: -step.excess_ns)
        if long and _waited(tables, row, rpc, limits) and not others.had_another(tables, row, rpc, long):
            yield _Slow(row, tuple(long), tuple(attempts.get(row, ())), rpc)


_Key = tuple[int, int]
"""A client's address and a server's port."""


class _Others(Struct, frozen=True, eq=False):
    """For each client and port: when connections began their first RPC, and until when one of those was open."""

    columns: dict[_Key, tuple[Ints, Ints]]

    @classmethod
    def collect(cls, tables: Tables, first_rpc: Ints) -> _Others:
        """Collect the connections with RPCs."""
        c = tables.connections
        rows = np.flatnonzero(first_rpc >= 0)
        rows = rows[np.argsort(tables.rpcs.start_time_ns[first_rpc[rows]], kind="stable")]
        until = np.where(c.closed_time_ns[rows] >= 0, c.closed_time_ns[rows], c.last_time_ns[rows])
        keys: dict[_Key, list[int]] = {}
        for place, key in enumerate(zip(c.client_ip[rows].tolist(), c.server_port[rows].tolist(), strict=True)):
            keys.setdefault(key, []).append(place)
        starts = tables.rpcs.start_time_ns[first_rpc[rows]]
        return cls({key: (starts[mine], np.maximum.accumulate(until[mine])) for key, mine in keys.items()})

    def had_another(self, tables: Tables, row: int, rpc: int, steps: list[_Step]) -> bool:
        """Check whether the client had another connection with RPCs during the whole set-up."""
        c = tables.connections
        columns = self.columns.get((int(c.client_ip[row]), int(c.server_port[row])))
        if rpc < 0 or columns is None:
            return False
        place = int(np.searchsorted(columns[0], min(step.begin.time_ns for step in steps), side="right"))
        return place > 0 and int(columns[1][place - 1]) >= int(tables.rpcs.start_time_ns[rpc])


def _measure_syn(tables: Tables) -> Ints:
    """Measure the time from the first SYN to the last one."""
    c = tables.connections
    return np.where((tables.setups.syns > 1) & (c.opened_time_ns >= 0), c.opened_time_ns - c.first_time_ns, 0)


def _measure_tls(tables: Tables) -> Ints:
    """Measure the time from the ClientHello to the ServerHello beyond a round trip."""
    c = tables.connections
    return np.where(c.tls_server_hello_ns >= 0, c.tls_server_hello_ns - np.maximum(c.handshake_rtt_ns, 0), 0)


def _measure_settings(tables: Tables) -> Ints:
    """Measure the time from the client's preface to the server's SETTINGS beyond a round trip."""
    s = tables.setups
    known = (s.client_settings_time_ns >= 0) & (s.server_settings_time_ns >= 0)
    late = s.server_settings_time_ns - s.client_settings_time_ns - np.maximum(tables.connections.handshake_rtt_ns, 0)
    return np.where(known, late, 0)


def _waited(tables: Tables, row: int, rpc: int, limits: Limits) -> bool:
    """Check whether the first RPC began as soon as the connection was ready; without readable RPCs it may have."""
    if rpc < 0:
        return True
    c, s, start = tables.connections, tables.setups, int(tables.rpcs.start_time_ns[rpc])
    shaken = int(c.tls_hello_time_ns[row] + c.tls_handshake_ns[row]) if c.tls_handshake_ns[row] >= 0 else 0
    settings = int(s.server_settings_time_ns[row])
    ready = max(int(s.syn_ack_time_ns[row]), shaken, settings if settings <= start else 0)
    return start - ready <= limits.at_once_ns + max(0, int(c.handshake_rtt_ns[row]))


def _list_own_steps(tables: Tables, row: int, rpc: int) -> Iterator[_Step]:
    c, s = tables.connections, tables.setups
    syns, syn_ns = int(s.syns[row]), int(_measure_syn(tables)[row])
    answered = bool(s.syn_ack_time_ns[row] < c.opened_time_ns[row])
    until = "though the server answered" if answered else "until the server answered"
    yield _Step(
        "syn_ack" if answered else "syn_there" if connection_attempts.reached_server(tables, row) else "syn",
        syn_ns,
        f"the SYN was sent {syns:,} times, for {duration(syn_ns)}, {until}",
        show_packet(c, "first_packet", row, f"first SYN of connection {row}"),
        show_packet(s, "syn_ack_packet", row, "SYN-ACK"),
    )
    hello_ns = int(c.tls_server_hello_ns[row])
    yield _Step(
        "tls",
        int(_measure_tls(tables)[row]),
        f"the server answered the ClientHello after {duration(hello_ns)}, {_compare(tables, row)}",
        Evidence(max(1, int(c.tls_hello_packet[row])), int(c.tls_hello_time_ns[row]), "ClientHello"),
        Evidence(max(1, int(s.server_packet[row])), int(s.server_time_ns[row]), "the server's first TLS record"),
    )
    settings, preface = int(s.server_settings_time_ns[row]), int(s.client_settings_time_ns[row])
    if 0 <= settings <= (int(tables.rpcs.start_time_ns[rpc]) if rpc >= 0 else -1):
        yield _Step(
            "settings",
            int(_measure_settings(tables)[row]),
            f"the server sent its SETTINGS {duration(settings - preface)} after the client's, "
            f"{_compare(tables, row)}, and the client sent no RPC before",
            Evidence(max(1, int(s.client_settings_packet[row])), preface, "SETTINGS of the client"),
            Evidence(max(1, int(s.server_settings_packet[row])), settings, "SETTINGS of the server"),
        )


def _compare(tables: Tables, row: int) -> str:
    trip = int(tables.connections.handshake_rtt_ns[row])
    return f"at a round trip of {duration(trip)}" if trip >= 0 else "and the round trip is unknown"


def _list_attempts(
    tables: Tables, row: int, attempts: list[int], failures: connection_attempts.Failures
) -> Iterator[_Step]:
    if not attempts:
        return
    c, failed = tables.connections, np.array(attempts, dtype=np.int64)
    lost = int(c.first_time_ns[row]) - int(c.first_time_ns[failed[0]])
    kind = connection_attempts.KINDS[int(failures.kind[np.searchsorted(failures.connection, failed[-1])])]
    said = connection_attempts.describe(tables, int(failed[-1]), kind)
    before = "an earlier attempt failed" if len(failed) == 1 else f"{len(failed):,} earlier attempts failed"
    where = connection_attempts.list_ends(tables, failed)
    again = "this connection was opened" if len(failed) == 1 else "this connection was opened, with back-off,"
    yield _Step(
        kind,
        lost,
        f"{before} ({where} {said}), and {again} {duration(lost)} after the first SYN",
        show_packet(
            c,
            "first_packet",
            failed[0],
            f"SYN of {tables.client(attempts[0])} to {tables.server(attempts[0])}, which {said}",
        ),
        show_packet(c, "first_packet", row, f"SYN of connection {row}"),
    )


def _list_lookups(tables: Tables, chain: dns_lookups.Chain | None) -> Iterator[_Step]:
    if chain is None:
        return
    asked = tables.lookups
    first, last = chain.lookups[0], chain.lookups[-1]
    name = dns_lookups.describe(tables, first)
    yield _Step(
        "dns",
        chain.end_ns - chain.begin_ns,
        f"DNS lookups took {duration(chain.end_ns - chain.begin_ns)} before the first SYN: "
        f"{dns_lookups.sum_up(tables, chain)}",
        show_packet(asked, "packet", first, f"DNS question for {name}"),
        dns_lookups.show_end(tables, last),
    )


def _make_finding(tables: Tables, found: list[_Slow], limits: Limits) -> Finding:
    kinds = Counter(slow.steps[0].kind for slow in found)
    kind = max(kinds, key=lambda kind: sum(slow.excess_ns for slow in found if slow.steps[0].kind == kind))
    worst = next(slow for slow in found if slow.steps[0].kind == kind)
    shown = [worst, *(slow for slow in found if slow is not worst)]
    delay = sum(slow.excess_ns for slow in found)
    share = delay / (delay + rpc_time(tables)) if delay else 0.0
    rows = sorted({row for slow in found for row in (slow.connection, *slow.attempts)})
    ends = f"{tables.client(worst.connection)} to {tables.server(worst.connection)}"
    median = duration(float(np.median([slow.excess_ns for slow in found])))
    waited = "may have waited" if worst.rpc < 0 else "waited"
    set_up = count(len(found), "connection")
    many = f"{set_up} lost {median}{' each (median)' if len(found) > 1 else ''}"
    grave = severity(share, limits.warning_share, limits.critical_share)
    unread = any(slow.rpc < 0 for slow in found)
    closed = _find_closed(tables, worst) if kind == "refused" else -1
    stopped = closed >= 0
    return Finding(
        id=ID,
        title=f"{set_up} set up {median} late: {CAUSES[kind]}",
        severity="warning" if grave == "critical" and len(found) < limits.critical_connections else grave,
        confidence=lower("low" if unread else "high", quality_allows(tables)),
        scope=Scope(tuple(rows), methods_of_connections(tables, rows)),
        metrics={
            "connections": len(found),
            "delay_ns": delay,
            "delay_p50_ns": int(np.median([slow.excess_ns for slow in found])),
            "delay_max_ns": worst.excess_ns,
            "delay_share_of_delay_and_rpc_time": round(share, 5),
            **{f"{name}_connections": number for name, number in sorted(kinds.items())},
        },
        evidence=tuple(_show(tables, shown[: evidence.EXAMPLES])),
        explanation=(
            f"{many} before the first RPC. On connection {worst.connection} ({ends}) "
            f"{'; '.join(step.words for step in worst.steps)}. {_say_first(tables, worst)}"
            + (f" {tables.server(closed)} had closed connection {closed} before, so it had stopped." if stopped else "")
        ),
        remedies=tuple(list_remedies()[name] for name in dict.fromkeys(s.kind for slow in found for s in slow.steps)),
        references=("RFC 8305", "RFC 6298 section 2", "grpc/grpc doc/connection-backoff.md"),
        verdict=(
            f"Server {tables.server(closed)} closed a connection, and then refused new ones for {median}: look for why "
            "it stopped. Calls that had no connection meanwhile are not in the capture."
            if stopped
            else f"The first RPC of {set_up} {waited} {median} for the set-up: {CAUSES[kind]}. {ADVICE[kind]}."
        ),
    )


_STOPPED_NS = 60_000_000_000
"""A server that refuses a SYN so soon after it closed a connection had stopped (heuristic: a restart takes less)."""


def _find_closed(tables: Tables, slow: _Slow) -> int:
    """Find the last connection of the client that this server closed before it refused others; -1 for none."""
    c, row, first = tables.connections, slow.connection, slow.attempts[0]
    servers = hosts.number_servers(tables)
    same = (servers == servers[row]) & (c.client_ip == c.client_ip[row])
    used = (c.rpcs > 0) | (c.encrypted_bytes > 0)
    before = same & used & (c.closed_by == 1) & (c.closed_time_ns >= 0)
    since = c.first_time_ns[first] - c.closed_time_ns
    rows = np.flatnonzero(before & (since >= 0) & (since <= _STOPPED_NS))
    return int(rows[np.argmax(c.closed_time_ns[rows])]) if len(rows) else -1


def _say_first(tables: Tables, slow: _Slow) -> str:
    if slow.rpc < 0:
        return "The first RPC is encrypted, so whether it waited is unknown."
    start = int(tables.rpcs.start_time_ns[slow.rpc])
    after = start - min(step.begin.time_ns for step in slow.steps)
    return f"The first RPC was sent {duration(after)} after the set-up began, as soon as it was done."


def _show(tables: Tables, chosen: Iterable[_Slow]) -> Iterator[Evidence]:
    for slow in chosen:
        for step in slow.steps:
            yield step.begin
            after = duration(step.end.time_ns - step.begin.time_ns)
            yield Evidence(step.end.packet, step.end.time_ns, f"{step.end.what}, {after} later")
        if slow.rpc >= 0:
            packet, start = int(tables.rpcs.first_packet[slow.rpc]), int(tables.rpcs.start_time_ns[slow.rpc])
            yield Evidence(packet, start, f"the first RPC of connection {slow.connection} begins")


CAUSES = {
    "dns": "DNS lookups (name resolution) took that long",
    "syn": "its SYNs were not answered at first",
    "syn_there": "the server did not answer its SYNs at first",
    "syn_ack": "the server's SYN-ACKs were not acknowledged at first",
    "tls": "the server sent its ServerHello late",
    "settings": "the server sent its SETTINGS late",
    "refused": "earlier attempts were refused (RST)",
    "unreachable": "earlier attempts were answered with ICMP errors",
    "unanswered": "an address that was tried first did not answer",
    "alert": "earlier attempts ended with a TLS alert",
    "http1": "earlier attempts were answered in HTTP/1.1",
    "closed": "the server closed earlier attempts",
    "silent": "the server sent nothing on earlier attempts",
    "cleartext": "earlier attempts with TLS were answered in the clear",
    "foreign": "earlier attempts were answered in another protocol",
    "abandoned": "the client ended earlier attempts in their TLS handshake",
    "paused": "the client was silent in the TLS handshake of earlier attempts",
    "no_alpn": "the server selected no h2 by ALPN on earlier attempts",
    "no_request": "the client refused the server after the TLS handshake of earlier attempts",
    "unhealthy": "the server answered health checks on earlier connections with another status than SERVING",
    "rejected": "the server ended earlier attempts by an alert after the TLS handshake",
}
"""What took the time, by step."""

ADVICE = {
    "dns": "Look at the DNS server and the resolver's search list",
    "syn": "Look for loss or a firewall on the path, or a full queue of connections at the server, at that time",
    "syn_there": "They reached the capture point at that host: look at its queue of connections, and its firewall",
    "syn_ack": "Look for loss or a firewall on the way to the client at that time",
    "tls": "Look at what the server does before its ServerHello",
    "settings": "Look at what the server or proxy does between accept and SETTINGS",
    "refused": "Let clients start when the server listens, or shorten the back-off",
    "unreachable": "Look at the route and the firewall rules at the sender of these errors",
    "unanswered": "Remove the dead address from DNS, or repair its route",
    "alert": "Repair certificates, TLS versions or ALPN",
    "http1": "Turn HTTP/2 on at that server",
    "closed": "Look in the server's log at the times of the evidence",
    "silent": "Look in the server's log at the times of the evidence",
    "cleartext": "Use TLS at both ends or at neither",
    "foreign": "Check that a gRPC server listens on that port",
    "abandoned": "Look in the client's log why it ended them",
    "paused": "Look at what held up the client",
    "no_alpn": "Enable h2 in the ALPN of what ends TLS there",
    "no_request": "Look in the client's log why it refused the server",
    "unhealthy": "Set the service's status in the server's health service",
    "rejected": "Look in the server's log why it ended them",
}
"""What to do first, by step."""

_EARLY = Remedy("application", "connect before the first call", "the set-up still takes as long, but no RPC waits")


@functools.cache
def list_remedies() -> dict[str, Remedy]:
    """List a setting for each step."""
    backoff = Remedy(
        "any gRPC implementation",
        f"the connection back-off: {settings.name_settings(intents.BACKOFF)}",
        "1 s at first, growing to 120 s; shorter ones load a server that starts",
    )
    search = Remedy(
        "linux",
        "options ndots:1 in /etc/resolv.conf, or a name that ends with a dot",
        f"the search list is not tried first; {settings.name_settings(intents.NO_SERVICE_CONFIG)} save the TXT lookup",
    )
    return dict.fromkeys(connection_attempts.KINDS, backoff) | {
        "dns": search,
        "syn": Remedy(
            "linux", "ss -ltn and nstat -az TcpExtListenOverflows", "on the server: a full accept queue drops SYNs"
        ),
        "syn_there": connection_attempts.UNANSWERED_THERE,
        "syn_ack": _EARLY,
        "tls": _EARLY,
        "settings": _EARLY,
        "unanswered": Remedy(
            "application",
            "the addresses in DNS",
            "an address that does not answer costs 250 ms or more on each connection",
        ),
    }
