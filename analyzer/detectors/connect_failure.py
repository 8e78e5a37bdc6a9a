"""Connections failed before they could carry an RPC.

What it finds
-------------
The client reports UNAVAILABLE, and no call reaches the server: its attempts to connect fail. The report says how each
of them failed.

The server refused the connection (RST for the SYN), a router or host answered the SYN with an ICMP error, or no answer
came. Or the set-up failed later: a TLS alert, an answer in HTTP/1.1 or another protocol, HTTP/2 in the clear for a
ClientHello, a server that closed the connection or sent nothing, a client that closed during the TLS handshake, a
server that refused the client right after it. It also finds names that DNS did not resolve in a capture without RPCs.

How it is decided
-----------------
By the first packets of each side. After a handshake of TLS 1.3 without secrets, a server that closed within a second,
and whose only record had the size of an alert, refused the client. A SYN without any answer counts when the capture
goes on for a second after it: then a sender with RFC 6298's initial timeout would have retransmitted it. It does not
count if other connections show that the capture lacks that server's packets. An ICMP error that quotes the SYN counts
at once. A connection without payload from the client is a port check, not a failure. In a
capture with HTTP/2 or TLS, attempts to other ports are left out.

It is `info` when the same port worked later: `slow-connect` reports what that cost. For an attempt that reached no
server, such as one to the first of two addresses, any later accepted connection is enough. Otherwise it is a warning,
and critical in a capture without RPCs.

When it cannot tell
-------------------
Where the capture has only one direction, or lacks packets of the set-up. In TLS 1.3 most alerts are encrypted, and some
clients close without one: their log says why they did not finish the handshake. A SYN without an answer may have been
lost before or behind the server: capture there as well. A server that sends nothing after the ClientHello may be
blocked, or have sent its certificate in full-size packets that the path drops (`mtu-black-hole`). Where other
connections to the same address show that the capture was taken at the server, within 200 µs, the SYNs got there.

What would refute it
--------------------
A capture at the server shows no such SYN, or an answer to it.

What to do
----------
Refused: nobody listens on that address and port. An ICMP error: a firewall rejects the connection, or its sender has no
route, or gets no answer from the host. Unanswered: a firewall, a route, or a host that is down. An alert: its name says
what is wrong, most often a certificate or ALPN. HTTP/1.1: the server or proxy does not offer HTTP/2 there. Closed after
the preface: the client speaks cleartext to a TLS port, or the server limits connections. If it served RPCs before, it
is stopping, or a proxy at its address has lost its backend; so it is if it closes before the client has sent a byte.
Closed by the client during the handshake: most often it does not trust the certificate, or it is for another name. An
alert of the server after the handshake: most often the server wants a client certificate.

References
----------
- RFC 9293 section 3.5.2: reset of a connection that does not exist
- RFC 792, RFC 1122 section 3.2.2.1, RFC 4443 section 3.1: destination unreachable
- RFC 6298 section 2: the initial retransmission timeout is one second
- RFC 8446 section 6: TLS alerts
- RFC 9113 section 3.4: the server's preface is a SETTINGS frame
- grpc/grpc doc/connection-backoff.md
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import alerts, attempts, evidence, hosts, icmp, lookups, unanswered
from ..facts.evidence import show_packet
from ..facts.ratings import lower, quality_allows
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration, safe
from ..tables import Ints, Mask, Tables
from ..tables.grouping import distinct, group_rows

ID = "connect-failure"
ABOUT = About(
    example="recorded/wild/socat-backend-gone.pcap.zst",
    whole_connections=True,
    without_rpcs=True,
    one_direction=True,
    precedence=2,
    picture="none",
    costs=(Cost("attempts", "{} failed", "connection attempt"),),
)


class Limits(Struct, frozen=True, eq=False):
    unanswered_ns: int = unanswered.INITIAL_TIMEOUT_NS
    """Time without an answer after which a SYN counts as unanswered (RFC 6298 section 2: initial timeout)."""
    at_once_ns: int = 100_000_000
    """Longest time between an attempt to one port and a connection to another (heuristic: as `slow-connect`)."""
    groups: int = 4
    """Servers and ways to fail that the text names (heuristic: a sentence each)."""


class _Group(Struct, frozen=True, eq=False):
    """Attempts to one server that failed in one way."""

    kind: str
    rows: Ints
    later: bool
    """Whether a connection to the same port that began after them worked."""
    beside: int
    """A connection with RPCs of the same client that began at the same time, to another port; -1 for none."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all attempts that failed, or about names that were not resolved."""
    failures = attempts.find_failures(tables, limits.unanswered_ns)
    ports = attempts.find_grpc_ports(tables)
    beside = _find_beside(tables, failures, limits)
    if len(ports):
        ours = np.isin(tables.connections.server_port[failures.connection], ports) | (beside >= 0)
        failures, beside = attempts.Failures(failures.connection[ours], failures.kind[ours]), beside[ours]
    groups = _group(tables, failures, beside)
    if groups:
        yield _make_finding(tables, groups, limits)
    elif not tables.rpc_count and not len(ports):
        yield from _find_names(tables, limits)


def _find_beside(tables: Tables, failures: attempts.Failures, limits: Limits) -> Ints:
    """Find for attempts that did not get through the connection that the client opened at the same time, -1 for none.

    A channel tries all addresses of a name at once. Only its port says that another address is of the same name.
    """
    c, found = tables.connections, np.full(len(failures.connection), -1, dtype=np.int64)
    lost = np.isin(failures.kind, [attempts.KINDS.index(kind) for kind in ("refused", "unreachable", "unanswered")])
    works = np.flatnonzero((c.rpcs > 0) & (tables.setups.syns > 0))
    for place in np.flatnonzero(lost).tolist() if len(works) else ():
        row = failures.connection[place]
        apart = np.abs(c.first_time_ns[works] - c.first_time_ns[row])
        mine = (c.client_ip[works] == c.client_ip[row]) & (c.server_port[works] != c.server_port[row])
        near = np.flatnonzero(mine & (apart <= limits.at_once_ns))
        if len(near):
            found[place] = works[near[np.argmin(apart[near])]]
    return found


def _group(tables: Tables, failures: attempts.Failures, beside: Ints) -> list[_Group]:
    """Group the failed attempts by server, way to fail and its words, the largest group first.

    What did not get through to the server, as to the first of several addresses, worked with the next that did.
    """
    c, groups = tables.connections, list[_Group]()
    works = (c.rpcs > 0) | (c.tls_finished_packet > 0)
    works[failures.connection] = False
    worked, reached = (_find_last(tables, mask) for mask in (works, works | (tables.setups.syn_ack_packet > 0)))
    for number, kind in enumerate(attempts.KINDS):
        of_kind = failures.kind == number
        rows, others = (
            failures.connection[of_kind],
            dict(zip(failures.connection[of_kind].tolist(), beside[of_kind].tolist(), strict=True)),
        )
        last = reached if kind in ("refused", "unreachable", "unanswered") else worked
        for group in group_rows(hosts.number_servers(tables)[rows]).values():
            for mine in _divide_by_words(tables, kind, rows[group]):
                later = last[c.server_port[mine[0]]] > c.first_time_ns[mine].max()
                groups.append(_Group(kind, mine, bool(later), others[int(mine[0])]))
    return sorted(groups, key=lambda group: (_cost_nothing(group), -len(group.rows), int(group.rows[0])))


def _cost_nothing(group: _Group) -> bool:
    """Check whether the client went on with another connection."""
    return group.later or group.beside >= 0


def _divide_by_words(tables: Tables, kind: str, rows: Ints) -> Iterator[Ints]:
    """Divide attempts to one server that failed in one way by what is said of them: who reported it, which alert."""
    words = dict[str, list[int]]()
    for row in rows.tolist():
        words.setdefault(attempts.describe(tables, row, kind), []).append(row)
    yield from map(np.array, words.values())


def _find_last(tables: Tables, works: Mask) -> Ints:
    """Find when the last connection to each port that works began, -1 for none."""
    last = np.full(1 << 16, -1, dtype=np.int64)
    np.maximum.at(last, tables.connections.server_port[works], tables.connections.first_time_ns[works])
    return last


def _rate_severity(tables: Tables, groups: list[_Group]) -> Severity:
    if all(_cost_nothing(group) for group in groups):
        return "info"
    return "warning" if tables.rpc_count else "critical"


def _make_finding(tables: Tables, groups: list[_Group], limits: Limits) -> Finding:
    rows = np.sort(np.concatenate([group.rows for group in groups]))
    first = groups[0]
    severity = _rate_severity(tables, groups)
    sentences = [_describe(tables, group) for group in groups[: limits.groups]]
    more = len(groups) - limits.groups
    last = [f"{count(more, 'further server')} or way to fail are not named here."] if more > 0 else []
    later = " A later connection to the same port succeeded." if all(group.later for group in groups) else ""
    c = tables.connections
    heard = (c.packets_server > 0).any() or (tables.lookups.answer_packet > 0).any()  # or an answer was not recorded
    unproved = not heard and all(group.kind == "unanswered" for group in groups)
    return Finding(
        id=ID,
        title=f"{count(len(first.rows), 'connection attempt')} failed: {_name(tables, first)}"
        + _count_others(rows, first),
        severity=severity,
        confidence="low" if unproved else lower("medium" if first.kind in _LIKELY else "high", quality_allows(tables)),
        scope=Scope(tuple(rows.tolist()), ()),
        metrics={
            "attempts": len(rows),
            **{f"{kind}_attempts": n for kind, n in _count_kinds(groups).items()},
            "servers": len(distinct(hosts.number_servers(tables)[rows])),
            "first_time_ns": int(c.first_time_ns[rows].min()),
            "last_time_ns": int(c.first_time_ns[rows].max()),
        },
        evidence=tuple(
            shown
            for group in groups[: limits.groups]
            for row in group.rows[: evidence.EXAMPLES].tolist()
            for shown in _show(tables, row, group.kind)
        ),
        explanation=" ".join([*sentences, *last]) + later,
        remedies=tuple(dict.fromkeys(_find_remedy(tables, group) for group in groups)),
        references=("RFC 9293 section 3.5.2", "RFC 8446 section 6", "grpc/grpc doc/connection-backoff.md"),
        verdict=f"{_describe(tables, first, times=False)[:-1]}: {_advise(tables, first)}.",
    )


def _count_others(rows: Ints, first: _Group) -> str:
    others = len(rows) - len(first.rows)
    return f"; {others:,} more failed at another address or in another way" if others else ""


def _advise(tables: Tables, group: _Group) -> str:
    """Say what to do first. A server answers a ClientHello with its certificate, in full-size packets."""
    if _is_closed_now(tables, group):
        return "it served RPCs before, so look at what stopped; a proxy without a backend does that, too"
    if _is_closed_unasked(tables, group):
        return "it closes what it accepts, as a proxy without a backend does: look in its log"
    if _is_unanswered_there(tables, group):
        return "the SYNs reached the capture point at that host, so look at its firewall and its queue of connections"
    if group.kind == "alert":
        return alerts.advise(tables, int(group.rows[0]))
    certificate = group.kind == "silent" and tables.setups.client_begins[group.rows[0]] == attempts.TLS_HELLO
    return ADVICE[group.kind] + ", or the path drops full-size packets" * bool(certificate)


def _is_closed_now(tables: Tables, group: _Group) -> bool:
    """Check whether a server closes connections of clients that it served before, when they began in the same way."""
    c, servers, begins = tables.connections, hosts.number_servers(tables), tables.setups.client_begins
    first = int(group.rows[0])
    alike = (servers == servers[first]) & (begins == begins[first])
    return group.kind == "closed" and bool((alike & (c.rpcs > 0) & (c.first_time_ns < c.first_time_ns[first])).any())


def _is_closed_unasked(tables: Tables, group: _Group) -> bool:
    """Check whether a server closed connections before their clients sent a byte: it did not mind TLS or cleartext."""
    closed, begun = tables.setups.closed_packet[group.rows], tables.setups.client_packet[group.rows]
    return group.kind == "closed" and bool((closed < begun).all())


def _is_unanswered_there(tables: Tables, group: _Group) -> bool:
    """Check whether SYNs that got no answer had passed a capture point at the server."""
    return group.kind == "unanswered" and attempts.reached_server(tables, int(group.rows[0]))


def _find_remedy(tables: Tables, group: _Group) -> Remedy:
    if _is_unanswered_there(tables, group):
        return attempts.UNANSWERED_THERE
    stopped = _is_closed_now(tables, group) or _is_closed_unasked(tables, group)
    return _STOPPED if stopped else REMEDIES[group.kind]


_STOPPED = Remedy("application", "the log of the server, or of the proxy at its address", "why it closes connections")


def _count_kinds(groups: list[_Group]) -> dict[str, int]:
    return {kind: n for kind in attempts.KINDS if (n := sum(len(group.rows) for group in groups if group.kind == kind))}


def _name(tables: Tables, group: _Group) -> str:
    row = int(group.rows[0])
    return f"{tables.server(row)} {attempts.describe(tables, row, group.kind)}"


def _describe(tables: Tables, group: _Group, *, times: bool = True) -> str:
    """Say in a sentence who tried what, how often and when: `10.0.0.2:80 refused ... in 3 attempts ...`."""
    c, rows = tables.connections, group.rows
    begin = int(tables.capture["first_time_ns"])
    clients = list(dict.fromkeys(tables.client(int(row)).rsplit(":", 1)[0] for row in rows.tolist()))
    who = f"client {clients[0]}" if len(clients) == 1 else count(len(clients), "client")
    when = [(int(c.first_time_ns[rows].min()) - begin) / 1e9, (int(c.first_time_ns[rows].max()) - begin) / 1e9]
    span = f" at {when[0]:.3f} s" if len(rows) == 1 else f" from {when[0]:.3f} s to {when[1]:.3f} s"
    syns = int(tables.setups.syns[rows].sum())
    sent = f", {count(syns, 'SYN')} in all" if group.kind == "unanswered" and syns > len(rows) else ""
    # "once" behind "and sent nothing" would say how often it sent nothing
    often = f"{sent} (1 attempt, {who})" if len(rows) == 1 else f" in {len(rows):,} attempts{sent} (by {who})"
    other = (
        f" The client opened connection {group.beside} to {tables.server(group.beside)} at the same time."
        if times and group.beside >= 0
        else ""
    )
    return f"{_name(tables, group)}{often}{span + ' of the capture' if times else ''}.{other}"


def _show(tables: Tables, row: int, kind: str) -> Iterator[Evidence]:
    c, s = tables.connections, tables.setups
    ends = f"{tables.client(row)} to {tables.server(row)}"
    yield show_packet(c, "first_packet", row, f"SYN of {ends}: connection {row}")
    if kind == "no_alpn":
        yield show_packet(s, "server_packet", row, "the ServerHello, after which the server selects no h2")
    what = attempts.describe(tables, row, kind)
    if kind == "unreachable":
        for error in icmp.find_errors(tables, row, 0, 0, too_big=False)[: attempts.REPORTS]:
            yield icmp.show_error(tables, error, 0)
        return
    packet, time = {
        "refused": (s.reset_packet, s.reset_time_ns),
        "unanswered": (c.last_packet, c.last_time_ns),
        "alert": (s.alert_packet, s.alert_time_ns),
        "http1": (s.server_packet, s.server_time_ns),
        "closed": (s.closed_packet, c.closed_time_ns),
        "silent": (s.closed_packet, c.closed_time_ns),
        "cleartext": (s.server_packet, s.server_time_ns),
        "foreign": (s.server_packet, s.server_time_ns),
        "abandoned": (s.closed_packet, c.closed_time_ns),
        "paused": (s.closed_packet, c.closed_time_ns),
        "no_alpn": (s.closed_packet, c.closed_time_ns),
        "no_request": (s.closed_packet, c.closed_time_ns),
        "rejected": (s.closed_packet, c.closed_time_ns),
        "unhealthy": (s.health_packet, s.health_time_ns),
    }[kind]
    if kind != "unanswered":
        after = duration(max(0, int(time[row]) - int(c.first_time_ns[row])))
        yield Evidence(int(packet[row]), int(time[row]), f"the server {what}, {after} later")
    elif s.syns[row] > 1:
        yield Evidence(int(packet[row]), int(time[row]), f"its last of {s.syns[row]:,} SYNs, none was answered")


def _find_names(tables: Tables, limits: Limits) -> Iterator[Finding]:
    """Yield a finding about names without an address, where no connection was opened."""
    asked = tables.lookups
    kinds = np.isin(asked.kind, lookups.ADDRESSES)
    waited = int(tables.capture["last_time_ns"] or 0) - asked.time_ns
    lost = kinds & (
        ((asked.answer_packet > 0) & (asked.code > 0)) | ((asked.answer_packet == 0) & (waited >= limits.unanswered_ns))
    )
    rows = np.flatnonzero(lost)
    other = tables.connections.server_port != lookups.PORT
    if not len(rows) or other.any() or (kinds & ~lost).any():
        return
    names = list(dict.fromkeys(safe(tables.lookup_names[int(asked.name[row])]) for row in rows.tolist()))
    unanswered = int((asked.answer_packet[rows] == 0).sum())
    missing = int((asked.code[rows] == lookups.NO_SUCH_NAME).sum())
    shown = ", ".join(names[: limits.groups])
    words = (
        f"{count(len(rows), 'DNS question')} for {shown} gave no address: {missing:,} with no such name (NXDOMAIN), "
        f"{unanswered:,} without an answer, {len(rows) - missing - unanswered:,} with another error"
    )
    yield Finding(
        id=ID,
        title=f"DNS gave no address for {shown}",
        severity="critical",
        confidence=quality_allows(tables),
        scope=Scope((), ()),
        metrics={"questions": len(rows), "no_such_name": missing, "unanswered": unanswered},
        evidence=tuple(lookups.show_end(tables, row) for row in rows[: evidence.EXAMPLES].tolist()),
        explanation=f"{words}. No connection was opened.",
        remedies=(
            Remedy("application", "the name in the channel's target", "check it, and what the resolver searches"),
        ),
        references=("RFC 1035 section 4.1.1", "grpc/grpc doc/naming.md"),
        verdict=f"DNS gave no address for {shown}, so no connection was opened: check the name and the DNS server.",
    )


ADVICE = {
    "refused": "check that the server is running and listens on that port",
    "unreachable": "check the route and the firewall rules at the sender of that error",
    "unanswered": "check firewalls, routes and whether that host is up",
    "http1": "turn HTTP/2 on there, or use the port that has it",
    "closed": "check whether one end expects TLS and the other cleartext",
    "silent": "check whether something blocks the server process",
    "cleartext": "use insecure credentials there, or the port that has TLS",
    "foreign": "that port is not gRPC's; check the target",
    "abandoned": "it may not trust the certificate; see its log",
    "paused": "look at what held up the client: a pause, a processor without time, or a timeout of the handshake",
    "no_alpn": "enable h2 in the ALPN of what ends TLS there",
    "no_request": "ALPN or the certificate; the client's log says which, or secrets (--keylog)",
    "rejected": "look at the server's log; it may want a client certificate",
    "unhealthy": "set that service's status in the server's health service, or correct serviceName in the client",
}
"""What to do first, by way to fail."""

_LIKELY = ("abandoned", "no_request")
"""Ways to fail whose reason the packets do not show."""

_SHOW_CERTIFICATE = Remedy(
    "linux", "openssl s_client -alpn h2 -connect HOST:PORT", "shows the certificate and who signed it"
)

REMEDIES = {
    "refused": Remedy("linux", "ss -ltn", "on the server: shows the addresses and ports on which a process listens"),
    "unreachable": Remedy(
        "linux",
        "ip route get HOST; nft list ruleset",
        "on the sender of the ICMP error: its route, and what it rejects",
    ),
    "unanswered": Remedy(
        "linux", "tcpdump -ni any 'tcp[tcpflags] & tcp-syn != 0'", "on the server: shows whether the SYNs arrive there"
    ),
    "alert": Remedy(
        "linux", "openssl s_client -alpn h2 -connect HOST:PORT", "shows certificates, version and ALPN of the server"
    ),
    "http1": Remedy("linux", "curl -v --http2-prior-knowledge http://HOST:PORT", "shows whether HTTP/2 is offered"),
    "closed": Remedy("application", "the channel's credentials", "TLS for a TLS port, insecure for a cleartext port"),
    "silent": Remedy(
        "application", "the server's accept loop and its thread pool", "the kernel accepts, not the process"
    ),
    "cleartext": Remedy(
        "application", "the channel's credentials", "insecure for a cleartext port, TLS for a TLS port"
    ),
    "foreign": Remedy("linux", "ss -ltnp", "on the server: shows which process listens on the port"),
    "abandoned": _SHOW_CERTIFICATE,
    "paused": Remedy(
        "application", "the client's garbage collector, processor quota and event loop", "while it connects"
    ),
    "no_alpn": Remedy(
        "application",
        "the ALPN protocols of the server, proxy or load balancer: add h2",
        "grpc-go since 1.67, C-core and grpc-java refuse servers that select none",
    ),
    "no_request": _SHOW_CERTIFICATE,
    "unhealthy": Remedy(
        "application",
        "SetServingStatus(SERVICE, SERVING) in the server; healthCheckConfig.serviceName in the client",
        "both must name the same service; an empty name is the whole server",
    ),
    "rejected": Remedy(
        "application", "the certificate and key in the channel's credentials", "for servers that ask for them (mTLS)"
    ),
}
"""A check for each way to fail."""
