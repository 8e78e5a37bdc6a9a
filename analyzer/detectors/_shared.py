"""Figures and words that more than one detector needs."""

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..model.finding import Confidence, Evidence, Severity
from ..summary import figures
from ..tables import DIRECTIONS, Codes, Counts, Ints, Mask, Tables
from ..tables.durations import clip_ns

EXAMPLES, FEW_EXAMPLES = 3, 2
"""Connections, RPCs or packets shown as evidence of a finding, at most (heuristic: enough to see a pattern)."""


def rpc_time(tables: Tables) -> int:
    """Sum up the time of all RPCs, nanoseconds; shares of time refer to it."""
    return clip_ns(sum(sum(method.budget) for method in tables.methods))


def share_of_time(tables: Tables, lost_ns: int) -> float:
    """Return `lost_ns` as a share of all RPC time; 0 without RPC time."""
    whole = rpc_time(tables)
    return lost_ns / whole if whole else 0.0


def reaction_ns(tables: Tables, connections: int | Counts, side: int, own_ns: int) -> Any:
    """Tell how long after a packet to `side` its answer may be captured: the way there and back, and its own time."""
    c = tables.connections
    near = c.near_server_rtt_ns if side else c.near_client_rtt_ns
    return np.maximum(near[connections], 0) + own_ns


def number_servers(tables: Tables) -> Ints:
    """Number the server of each connection: equal numbers are the same address and port."""
    c = tables.connections
    return np.asarray(c.server_ip.astype(np.int64) << 16 | c.server_port)


def severity(share: float, warning: float, critical: float) -> Severity:
    """Rate the severity of a share by the shares from which it is a warning and critical."""
    if share >= critical:
        return "critical"
    return "warning" if share >= warning else "info"


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


def senders_are_near(tables: Tables, connections: Counts, directions: Ints, round_trips_ns: Ints) -> bool:
    """Check whether the capture was taken at the senders, where their bursts are seen undistorted.

    Near means at most a fifth of the round trip between the capture point and the sender.
    """
    table = tables.connections
    near = np.where(directions == 0, table.near_client_rtt_ns[connections], table.near_server_rtt_ns[connections])
    return bool((near <= round_trips_ns // 5).all())


NEAR_NS = 200_000
"""A round trip from the capture point to a host this short does not leave its network (heuristic: as in the core)."""
AT = [_core.VANTAGES.index(end) for end in ("client", "server")]
"""Values of `Connections.vantage` by direction."""


def mark_taken_at(tables: Tables, direction: int) -> Mask:
    """Mark connections that were captured at the host that sends in `direction`, or right in front of it."""
    c = tables.connections
    near = (c.near_client_rtt_ns, c.near_server_rtt_ns)[direction]
    return np.asarray((c.vantage == AT[direction]) & (near >= 0) & (near <= NEAR_NS))


def lower(*confidences: Confidence) -> Confidence:
    """Return the lowest of some confidences."""
    order: tuple[Confidence, ...] = ("low", "medium", "high")
    return min(confidences, key=order.index)


def quality_allows(tables: Tables) -> Confidence:
    """Return the highest confidence that the capture allows; medium when it lacks packets or bytes."""
    capture = tables.capture
    lacks = int(tables.connections.missing_bytes.sum()) > 0 or bool(capture["dropped_packets"])
    return "medium" if lacks or capture["truncated_packets"] else "high"


def methods_of_connections(tables: Tables, connections: Iterable[int]) -> tuple[str, ...]:
    """List the methods of all RPCs on some connections."""
    used = tables.connection_methods
    selected = np.zeros(len(tables.connections.rpcs), dtype=bool)
    selected[list(connections)] = True
    return names(tables, distinct(used.method[selected[used.connection]]).tolist())


def names(tables: Tables, numbers: Iterable[int]) -> tuple[str, ...]:
    """List names of methods by number, each once, sorted; names that are not in the capture are left out."""
    known = {method.number: method.name for method in tables.methods}
    return tuple(sorted({name for name in map(known.get, numbers) if name}))


def distinct(values: npt.NDArray[np.integer[Any]]) -> Ints:
    """Sort values and remove duplicates. `np.unique` alone does the same, but imports numpy's masked arrays: 10 ms."""
    ordered = np.sort(values.astype(np.int64))
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


def show_packet(table: Struct, name: str, row: int, what: str) -> Evidence:
    """Show a packet of a row by the name of the column with its number; that of its time is alike: `ack_time_ns`."""
    packet, time = (int(getattr(table, column)[row]) for column in (name, name.replace("packet", "time_ns")))
    return Evidence(packet, time, what)
