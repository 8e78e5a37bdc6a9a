"""The hosts at the ends of connections: their names, their servers, and what they run."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ..summary import figures
from ..tables import DIRECTIONS, Codes, Counts, Ints, Tables
from ..tables.grouping import distinct


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


def name_hosts(tables: Tables, connections: Sequence[int] | Counts | Ints, directions: int | Codes) -> str:
    """Name the ends that send in these directions: `server 10.0.0.2`, or `2 servers (10.0.0.2 and others)`.

    Ends of both kinds are hosts: `2 hosts (client 10.0.0.1 and others)`.
    """
    sides = np.c_[np.asarray(connections), np.broadcast_to(directions, len(connections))].tolist()
    hosts = list(dict.fromkeys(host(tables, connection, direction) for connection, direction in sides))
    if len(hosts) == 1:
        return hosts[0]
    kind, _, address = hosts[0].partition(" ")
    if all(one.startswith(kind) for one in hosts):
        return f"{len(hosts):,} {kind}s ({address} and others)"
    return f"{len(hosts):,} hosts ({hosts[0]} and others)"


def implementation(tables: Tables, connection: int, direction: int) -> str | None:
    """Find the gRPC implementation at the end that sends in `direction`, as far as it is known or inferred."""
    find = figures.server_implementation if direction else figures.client_implementation
    return find(tables, connection)[0]
