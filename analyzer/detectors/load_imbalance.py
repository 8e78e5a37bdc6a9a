"""One of several servers gets most of a client's RPCs.

What it finds
-------------
One server is busy while the others have little to do. The client knows several addresses of the service, and sends most
of its RPCs to one of them.

`pick_first`, the default policy of gRPC, does that: it connects to one address. A balancer of TCP connections does it
as well, because a channel keeps one connection for all its RPCs. The report counts the RPCs by server.

How it is decided
-----------------
A pool is what one DNS answer gives for a name, addresses of one family, or the servers to which a client has
connections on the same port at the same time, with the same methods. The RPCs of a pool are counted by server, if there
are 100 or more. The largest share is reported if it is at least half-way between an even share and all RPCs: with three
servers, two thirds.

It needs no action by itself: one server may be enough. It matters where this server is slow because of its load.

When it cannot tell
-------------------
Whether several addresses are the same host, or a balancer of their own. DNS over TLS, or before the capture, is not
seen. Servers that were not used are known from DNS alone.

What would refute it
--------------------
The servers' own counts of RPCs are even: a proxy in front of them spreads the load.

What to do
----------
Choose `round_robin` in the service config, so that a channel connects to all addresses. Behind a balancer of
connections use a proxy that balances RPCs, a headless service, or several channels. `MaxConnectionAge` at the servers
makes clients resolve and connect again.

References
----------
- https://grpc.io/docs/guides/custom-load-balancing/, https://grpc.io/blog/grpc-load-balancing/
- gRFC A6 and service config: `loadBalancingConfig`
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
from msgspec import Struct

from ..facts import evidence, failures, hosts, ratings, software_at
from ..facts.groups import Case, Group, put_together
from ..facts.methods import methods_of_connections
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..software import intents
from ..tables import Tables
from ..tables.grouping import distinct, group_rows

ID = "load-imbalance"
ABOUT = About(
    example="recorded/wild/lb-allonone.pcap.zst",
    whole_connections=True,
    picture="handshakes",
)

_ADDRESS_KINDS = (1, 28)
"""DNS record types of addresses: A and AAAA (RFC 1035, RFC 3596)."""


class Limits(Struct, frozen=True, eq=False):
    answers: int = 1_000
    """Different DNS answers that are judged (heuristic: a client resolves far fewer names; bounds the work)."""
    rpcs: int = 100
    """Fewest RPCs of a pool (heuristic: fewer may be uneven by chance)."""
    excess: float = 0.5
    """Share of the way from an even share to all RPCs (heuristic: half-way)."""


class _Pool(Struct, frozen=True, eq=False):
    """Servers among which a client may choose."""

    rpcs: dict[int, int]
    """RPCs by index of the server's address, of servers with any."""
    groups: tuple[list[int], ...]
    """Its connections, by server or all in one group."""
    servers: int
    """Number of addresses, used or not."""
    name: str | None
    """The name that DNS resolved, None where the servers are known by connections alone."""
    answer: int
    """Row of the DNS question, -1 for none."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the clients one of whose servers gets most of their RPCs."""
    of_client = dict[int, Case[_Pool]]()
    for pool in chain(_list_resolved(tables, limits), _list_connected(tables)):
        case = Case(pool, tuple(sorted(chain(*pool.groups))), 0, sum(pool.rpcs.values()))
        client = int(tables.connections.client_ip[case.connections[0]])
        if _is_uneven(pool, limits) and (client not in of_client or case.weight > of_client[client].weight):
            of_client[client] = case
    yield from put_together(tables, of_client.values(), lambda group: _make_finding(tables, group))


def _list_resolved(tables: Tables, limits: Limits) -> Iterator[_Pool]:
    """Yield a pool for each DNS answer with several addresses of one family, equal ones once."""
    lookups, given, c = tables.lookups, tables.lookup_addresses, tables.connections
    used: dict[tuple[int, int], list[int]] = {}
    rpcs: Counter[tuple[int, int]] = Counter()
    if not len(given.lookup):
        return
    carrying = np.flatnonzero(c.rpcs > 0)
    columns = (column[carrying].tolist() for column in (c.client_ip, c.server_ip, c.rpcs))
    for row, client, server, number in zip(carrying.tolist(), *columns, strict=True):
        used.setdefault((client, server), []).append(row)
        rpcs[client, server] += number
    answers: dict[tuple[int, ...], int] = {}
    for row, places in group_rows(given.lookup).items():
        if lookups.kind[row] in _ADDRESS_KINDS and lookups.answer_packet[row] > 0 and len(answers) < limits.answers:
            addresses = distinct(given.address[places]).tolist()
            answers.setdefault((int(lookups.client_ip[row]), *addresses), row)
    for (client, *addresses), row in answers.items():
        ends = [(client, address) for address in addresses if (client, address) in used]
        if len(addresses) > 1 and ends:
            name = tables.lookup_names[int(lookups.name[row])]
            counts = {address: rpcs[client, address] for _, address in ends}
            yield _Pool(counts, tuple(used[one] for one in ends), len(addresses), name, row)


def _list_connected(tables: Tables) -> Iterator[_Pool]:
    """Yield a pool for the servers of connections of one client, at the same time, with the same port and methods."""
    c, used = tables.connections, tables.connection_methods
    rows = np.flatnonzero(c.rpcs > 0)
    order = np.lexsort((used.method, used.connection))
    methods, of_methods = used.method[order], used.connection[order]
    columns = [column[rows].tolist() for column in (c.client_ip, c.server_port)]
    columns += [np.searchsorted(of_methods, rows, side).tolist() for side in ("left", "right")]
    groups: dict[tuple[int, int, bytes], list[int]] = {}
    for row, client, port, begin, end in zip(rows.tolist(), *columns, strict=True):
        groups.setdefault((client, port, methods[begin:end].tobytes()), []).append(row)
    for group in groups.values():
        if len(group) == 1:
            continue
        rpcs: Counter[int] = Counter()
        for server, number in zip(c.server_ip[group].tolist(), c.rpcs[group].tolist(), strict=True):
            rpcs[server] += number
        if len(rpcs) > 1 and c.first_time_ns[group].max() < c.last_time_ns[group].min():
            yield _Pool(rpcs, (group,), len(rpcs), None, -1)


def _is_uneven(pool: _Pool, limits: Limits) -> bool:
    total, even = sum(pool.rpcs.values()), 1 / pool.servers
    return total >= limits.rpcs and max(pool.rpcs.values()) / total >= even + limits.excess * (1 - even)


def _make_finding(tables: Tables, group: Group[_Pool]) -> Finding:
    pool, connections = group.facts[0], group.connections
    counts = dict(sorted(pool.rpcs.items(), key=lambda item: (-item[1], item[0])))
    total = sum(sum(one.rpcs.values()) for one in group.facts)
    most = sum(max(one.rpcs.values()) for one in group.facts)
    busiest, client = tables.addresses[next(iter(counts))], hosts.host(tables, group.cases[0].connections[0], 0)
    listed = failures.listed({tables.addresses[server]: rpcs for server, rpcs in counts.items()})
    unused = pool.servers - len(counts)
    where = "the answer of DNS" if pool.name else "connections at the same time"
    return Finding(
        id=ID,
        title=f"{most / total:.0%} of {total:,} RPCs went to one of {pool.servers:,} servers, {busiest}"
        f"{f' and others, of {group.who}' if len(group.facts) > 1 else ''}",
        severity="info",
        confidence=ratings.quality_allows(tables),
        scope=Scope(connections, methods_of_connections(tables, connections)),
        metrics={
            "servers": pool.servers,
            "unused_servers": unused,
            "rpcs": total,
            "largest_share": most / total,
            "connections": len(connections),
        },
        evidence=tuple(item for case in group.cases[: evidence.EXAMPLES] for item in _show(tables, case, group)),
        explanation=(
            f"{client} had {pool.servers:,} servers to choose from, by {where}. RPCs by server: {listed}"
            + (f"; {unused:,} without any." if unused else ".")
            + " A channel sends all RPCs to one connection, unless its policy is round_robin or similar."
        ),
        remedies=_list_remedies(tables, connections),
        references=("https://grpc.io/blog/grpc-load-balancing/", "gRPC service config: loadBalancingConfig"),
        verdict=(
            f"{most / total:.0%} of {total:,} RPCs of {group.who} went to one of {pool.servers:,} servers, {busiest}"
            f"{' and others' if len(group.facts) > 1 else ''}: choose round_robin if that server has too much load."
        ),
    )


def _show(tables: Tables, case: Case[_Pool], group: Group[_Pool]) -> Iterator[Evidence]:
    lookups, c, pool = tables.lookups, tables.connections, case.fact
    if pool.answer >= 0:
        yield evidence.show_packet(
            lookups, "answer_packet", pool.answer, f"DNS answers with {pool.servers:,} addresses"
        )
    for row in sorted(case.connections, key=lambda row: -int(c.rpcs[row]))[: group.limit_moments()]:
        what = f"connection {row} to {tables.server(row)} begins, with {c.rpcs[row]:,} RPCs"
        yield evidence.show_packet(c, "first_packet", row, what)


def _list_remedies(tables: Tables, connections: tuple[int, ...]) -> tuple[Remedy, ...]:
    note = "client: connects to all addresses that the resolver gives, and takes them in turn"
    again = "clients connect again, spread anew"
    return (
        *software_at.list_settings(tables, connections, 0, intents.ROUND_ROBIN, note),
        *software_at.list_settings(tables, connections, 1, intents.AGE, again, where="server"),
    )
