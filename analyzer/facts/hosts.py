"""The hosts at the ends of connections: their names, their servers, and what they run."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ..summary import figures
from ..tables import DIRECTIONS, Codes, Counts, Ints, Tables
from ..tables.grouping import distinct
from . import evidence


def number_servers(tables: Tables) -> Ints:
    """Number the server of each connection: equal numbers are the same address and port."""
    c = tables.connections
    return np.asarray(c.server_ip.astype(np.int64) << 16 | c.server_port)


def host(tables: Tables, connection: int, direction: int) -> str:
    """Name the end of a connection that sends in `direction`: `client 10.0.0.1`.

    A server has its port where its address has servers at several ports that answered RPCs: `server 10.0.0.2:50052`.
    """
    if direction == 0:
        return f"{DIRECTIONS[0]} {tables.client(connection).rsplit(':', 1)[0]}"
    end = tables.server(connection)
    shares = int(tables.connections.server_ip[connection]) in _find_shared_addresses(tables)
    return f"{DIRECTIONS[1]} {end if shares else end.rsplit(':', 1)[0]}"


_SHARED: WeakKeyDictionary[Tables, frozenset[int]] = WeakKeyDictionary()
"""What `host` asks for again and again, found once."""


def _find_shared_addresses(tables: Tables) -> frozenset[int]:
    """Find the addresses with several servers, by number."""
    if tables not in _SHARED:
        servers = distinct(number_servers(tables)[tables.connections.rpcs > 0]) >> 16
        _SHARED[tables] = frozenset(servers[1:][servers[1:] == servers[:-1]].tolist())
    return _SHARED[tables]


def name_hosts(tables: Tables, connections: Sequence[int] | Counts | Ints, directions: int | Codes | Ints) -> str:
    """Name the ends that send in these directions: `server 10.0.0.2`, `2 of 3 servers (10.0.0.2 and others)`.

    All of the capture are `3 of 3 servers`; ends of both kinds are hosts: `2 hosts (client 10.0.0.1 and others)`.
    """
    sides = np.c_[np.asarray(connections), np.broadcast_to(directions, len(connections))].tolist()
    hosts = list(dict.fromkeys(host(tables, connection, direction) for connection, direction in sides))
    if len(hosts) == 1:
        return hosts[0]
    kind, _, address = hosts[0].partition(" ")
    if all(one.startswith(kind) for one in hosts):
        of = count_hosts(tables, connections, DIRECTIONS.index(kind))
        which = f" ({address} and others)" if of > len(hosts) else ""
        return f"{len(hosts):,} of {of:,} {kind}s{which}"
    return f"{len(hosts):,} hosts ({hosts[0]} and others)"


def are_many(name: str) -> bool:
    """Check whether `name_hosts` named several hosts: the verb is plural then."""
    return name[0].isdigit()


def number_ends(tables: Tables, direction: int) -> Ints:
    """Number the end of each connection that sends in `direction`: equal numbers have one name."""
    if direction == 0:
        return np.asarray(tables.connections.client_ip, dtype=np.int64)
    servers, shared = number_servers(tables), list(_find_shared_addresses(tables))
    return np.where(np.isin(servers >> 16, shared), servers, servers >> 16 << 16) if shared else servers >> 16 << 16


def count_hosts(tables: Tables, connections: Sequence[int] | Counts | Ints, direction: int) -> int:
    """Count the clients or servers of these connections and of all that carry RPCs; of all where none can be read."""
    numbers, carrying = number_ends(tables, direction), tables.connections.rpcs > 0
    mine = numbers[np.asarray(connections, dtype=np.int64)]
    return len(distinct(np.r_[mine, numbers[carrying] if carrying.any() else numbers]))


def describe_part(tables: Tables, connections: Sequence[int]) -> str:
    """Say which part of the hosts some connections are of: `1 of 21 servers (10.0.0.2)`; nothing if of all."""
    parts = []
    for direction in (1, 0):
        mine = len(distinct(number_ends(tables, direction)[list(connections)]))
        if mine < (of := count_hosts(tables, connections, direction)):
            kind, _, address = host(tables, connections[0], direction).partition(" ")
            parts.append(f"{mine:,} of {of:,} {kind}s ({address}{' and others' if mine > 1 else ''})")
    return " and ".join(parts)


def number_pools(tables: Tables) -> Ints:
    """Number the pool of each connection: clients that share a server are of one pool, and so are all their servers."""
    _, client = np.unique(tables.connections.client_ip, return_inverse=True)
    _, server = np.unique(number_servers(tables), return_inverse=True)
    server += len(client)
    pool = np.arange(2 * len(client) + 1, dtype=np.int64)
    while not np.array_equal(pool[client], pool[server]):
        # both ends take the lower number, as do those whose number they had
        least, ends = np.minimum(pool[client], pool[server]), np.r_[client, server, pool[client], pool[server]]
        np.minimum.at(pool, ends, np.tile(least, 4))
        pool = pool[pool]
    return pool[client]


def pick_apart(tables: Tables, connections: Sequence[int] | Counts | Ints, most: int | None = None) -> list[int]:
    """Pick the first places for evidence, of different pairs of hosts as far as there are; each has a connection."""
    c, on = tables.connections, np.asarray(connections, dtype=np.int64)
    pairs = c.client_ip[on].astype(np.int64) << 32 | c.server_ip[on]
    order = np.argsort(pairs, kind="stable")
    again = np.zeros(len(on), dtype=np.bool_)
    again[order[1:]] = pairs[order[1:]] == pairs[order[:-1]]
    return sorted(np.argsort(again, kind="stable")[: most or evidence.EXAMPLES].tolist())


def implementation(tables: Tables, connection: int, direction: int) -> str | None:
    """Find the gRPC implementation at the end that sends in `direction`, as far as it is known or inferred."""
    find = figures.server_implementation if direction else figures.client_implementation
    return find(tables, connection)[0]
