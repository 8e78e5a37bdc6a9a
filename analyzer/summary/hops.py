"""Find proxies both of whose sides are in the capture: each call that passes through is seen as two RPCs."""

from collections.abc import Iterator
from itertools import permutations
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..model.text import count
from ..model.thresholds import PROXY_RPCS
from ..tables import COMPLETE, NO_METHOD, Ints, Mask, Rpcs, Tables
from ..tables.grouping import group_rows, number_rows

INSIDE = 0.9
"""Share of RPCs to one server inside RPCs to another from which a proxy passes them on (heuristic: nearly all; the
capture begins and ends inside some)."""
_REVERSE = 0.5
"""Share of the others inside these up to which that is no chance (heuristic: among many concurrent RPCs most lie inside
some other, in both directions alike)."""
_ROWS = 100
"""RPCs looked at per server (heuristic: more decide nothing else)."""
_SERVERS = 8
"""Servers above which the capture is not one of a proxy's host (heuristic; bounds the pairs)."""

_PACKETS = 20
"""Packets from which equal numbers of both legs are no chance (heuristic: few connections have equally few)."""
_ALIKE = 0.05
"""Difference in bytes up to which both legs may be the same packets (heuristic: proxies write other header fields)."""

TRAILERS = _core.STATUS_SOURCES.index("trailers")
"""`Rpcs.status_source` of RPCs that their server ended with trailers; others may end before their leg behind."""
_IDS = (("span_id", "trace_high", "trace_low"), ("request_id",), ("trace_low", "trace_high"))
"""Columns that both legs of a call may share; a proxy may write a span of its own."""

_Rows = npt.NDArray[np.intp]


class Proxy(Struct, frozen=True, eq=False):
    """A server that passes its RPCs on to another one."""

    front: _Rows
    """Connections to it."""
    back: _Rows
    """Connections to the server behind it."""
    one_client: bool
    """Whether one program may call both: the proxy has its client's address, and the frames of both look alike."""


class Look(Struct, frozen=True, eq=False):
    """What a capture's servers are to each other."""

    proxies: list[Proxy]
    """Pairs of servers of which one passes its RPCs on to the other; of several in a row the neighbours."""
    apart: list[tuple[_Rows, _Rows]]
    """Connections to two servers whose RPCs have the same identifiers, and do not lie inside each other."""


class _Side(Struct, frozen=True, eq=False):
    """The connections to one server, its whole RPCs, and until when all that began have rows."""

    on: _Rows
    rows: _Rows
    known_ns: int


_FOUND: WeakKeyDictionary[Tables, Look] = WeakKeyDictionary()


def look_for_proxies(tables: Tables) -> Look:
    """Look for proxies among a capture's servers, once."""
    if tables not in _FOUND:
        _FOUND[tables] = _look(tables)
    return _FOUND[tables]


def find_proxies(tables: Tables) -> list[Proxy]:
    """Find pairs of servers of which one passes its RPCs on to the other; of several in a row the neighbours."""
    return look_for_proxies(tables).proxies


def describe_proxies(tables: Tables) -> Iterator[str]:
    """Yield a sentence about each pair of servers of which one passes its RPCs on to the other."""
    look = look_for_proxies(tables)
    for proxy in look.proxies:
        there, behind = (int(tables.connections.rpcs[rows].sum()) for rows in (proxy.front, proxy.back))
        ends = [tables.server(int(rows[0])) for rows in (proxy.front, proxy.back)]
        if not proxy.one_client and are_same_packets(tables, proxy.front, proxy.back):
            yield (
                f"{ends[0]} and {ends[1]} get the same packets, so a NAT translates their addresses: the "
                f"{count(behind, 'call')} to each may be counted twice"
            )
        elif not proxy.one_client:
            yield (
                f"{ends[0]} looks like a proxy{' or a NAT' if _may_be_nat(tables, proxy) else ''}: the "
                f"{count(behind, 'RPC')} to {ends[1]} lie inside its {count(there, 'RPC')} of the same methods, so "
                "each call may be seen twice, once on each side of it"
            )
    for front, back in look.apart:
        yield (
            f"RPCs to {tables.server(int(front[0]))} and {tables.server(int(back[0]))} carry the same traceparent "
            "or x-request-id and do not lie inside each other: if one is a proxy for the other, the clocks of the "
            "captures differ, and both legs are not joined"
        )


def are_same_packets(tables: Tables, front: _Rows, back: _Rows) -> bool:
    """Check whether each connection before the proxy has one behind it with as many packets and bytes of both sides."""
    c = tables.connections
    counts = np.c_[c.packets_client, c.packets_server, c.bytes_client, c.bytes_server]
    before, behind = counts[front].tolist(), counts[back].tolist()
    return int(counts[back].sum(axis=0)[:2].sum()) >= _PACKETS and sorted(before) == sorted(behind)


def _may_be_nat(tables: Tables, proxy: Proxy) -> bool:
    """Check whether as many connections carry about as many bytes: a capture may lack some packets of one side."""
    sent = np.c_[tables.connections.bytes_client, tables.connections.bytes_server].astype(np.int64)
    before, behind = sent[proxy.front].sum(axis=0), sent[proxy.back].sum(axis=0)
    alike = bool((np.abs(before - behind) <= _ALIKE * np.maximum(before, behind)).all())
    return alike and len(proxy.front) == len(proxy.back)


def _look(tables: Tables) -> Look:
    on = _group_by_server(tables)
    pairs = [pair for pair in permutations(range(len(on)), 2) if _may_pass_on(tables, on[pair[0]], on[pair[1]])]
    if not pairs:
        return Look([], [])
    sides = {one: _take_side(tables, on[one]) for pair in pairs for one in pair}
    same = {(front, back): _count_same_ids(tables.rpcs, sides[front], sides[back]) for front, back in pairs}
    found = {pair for pair in pairs if same[pair][0] or _lies_inside(tables.rpcs, *(sides[one] for one in pair))}
    found |= {pair for pair in pairs if _is_spare(tables, sides, found, *pair)}
    middle = {(a, d) for a, b in found for c, d in found if b == c}
    first = tables.connections.first_packet
    return Look(
        [Proxy(on[a], on[b], _may_be_one_client(tables, on[a], on[b])) for a, b in sorted(found - middle)],
        [
            (on[a], on[b])
            for a, b in pairs
            if not same[a, b][0] and same[a, b][1] >= PROXY_RPCS and first[on[a]].min() < first[on[b]].min()
            if not _share_client(tables, on[a], on[b]).any()
        ],
    )


def _group_by_server(tables: Tables) -> list[_Rows]:
    """Group connections with RPCs by their server; none where one or many servers show no proxy."""
    connections = tables.connections
    carrying = np.flatnonzero(connections.rpcs > 0)
    servers = group_rows(connections.server_ip[carrying].astype(np.int64) << 16 | connections.server_port[carrying])
    return [carrying[some] for some in servers.values()] if 1 < len(servers) <= _SERVERS else []


def _may_pass_on(tables: Tables, front: _Rows, back: _Rows) -> bool:
    """Check whether one server may be a proxy for another: same methods, and no client of both but on its own host.

    One client of both is a client of equal servers, unless the server in front has the client's address: then the proxy
    has it, too, as a sidecar does.
    """
    c, used = tables.connections, tables.connection_methods
    shared = front[_share_client(tables, front, back)]
    others = {tables.addresses[number] for number in c.server_ip[shared[c.server_ip[shared] != c.client_ip[shared]]]}
    if not all(address.startswith("127.") or address == "::1" for address in others):
        return False
    there, behind = (used.method[np.isin(used.connection, rows)] for rows in (front, back))
    return bool(np.isin(there[there != NO_METHOD], behind).any())


def _share_client(tables: Tables, front: _Rows, back: _Rows) -> Mask:
    """Mark the connections to the first server whose client calls the second one, too."""
    addresses = tables.connections.client_ip
    return np.isin(addresses[front], addresses[back])


def _may_be_one_client(tables: Tables, front: _Rows, back: _Rows) -> bool:
    """Check whether connections to both servers have a client address in common, and no other program by its frames.

    A program whose first frames were seen and are those of no known implementation is another one than those.
    """
    c = tables.connections
    shared = c.client_ip[front[_share_client(tables, front, back)]]
    if not len(shared):
        return False
    mine = [rows[np.isin(c.client_ip[rows], shared)] for rows in (front, back)]
    unseen = any((c.complete[rows] == 0).any() for rows in mine)
    programs = [set(c.client_hint[rows].tolist()) for rows in mine]
    return unseen or not programs[0].isdisjoint(programs[1])


def _take_side(tables: Tables, connections: _Rows) -> _Side:
    rpcs = tables.rpcs
    whole = (rpcs.flags & COMPLETE != 0) & (rpcs.method != NO_METHOD)
    rows = np.flatnonzero(whole & np.isin(rpcs.connection, connections))
    return _Side(connections, rows, _find_last_known(tables, rows))


def _find_last_known(tables: Tables, rows: _Rows) -> int:
    """Find until when all RPCs that began have rows: of a connection's later RPCs only some have."""
    rpcs = tables.rpcs
    ordered = rows[np.lexsort((rpcs.start_time_ns[rows], rpcs.connection[rows]))]
    connections, first, number = np.unique(rpcs.connection[ordered], return_index=True, return_counts=True)
    last = rpcs.start_time_ns[ordered[first + np.minimum(number, _core.FIRST_RPCS) - 1]]
    return int(last[tables.connections.rpcs[connections] > number].min(initial=np.iinfo(np.int64).max))


def _count_same_ids(rpcs: Rpcs, front: _Side, back: _Side) -> tuple[int, int]:
    """Count RPCs to one server with the identifier of an RPC to the other: those that begin inside it, and outside."""
    inside = outside = 0
    for names in _IDS:
        column = getattr(rpcs, names[0])
        inner = back.rows[column[back.rows] != 0][:_ROWS]
        outer = front.rows[np.isin(column[front.rows], column[inner])]
        if not len(outer):
            continue
        rows = np.r_[outer, inner]
        keys = number_rows(*(getattr(rpcs, name)[rows] for name in ("method", *names)))
        begun = _find_latest_end(rpcs, keys, outer, inner) > rpcs.start_time_ns[inner]
        inside += int(begun.sum())
        if names[0] != "trace_low":
            outside += int((np.isin(keys[len(outer) :], keys[: len(outer)]) & ~begun).sum())
    return inside, outside


def _lies_inside(rpcs: Rpcs, front: _Side, back: _Side) -> bool:
    """Check whether RPCs to one server lie inside those to another, and not the other way round as well."""
    return _measure_inside(rpcs, back, front) >= INSIDE and _measure_inside(rpcs, front, back) <= _REVERSE


def _is_spare(tables: Tables, sides: dict[int, _Side], found: set[tuple[int, int]], front: int, back: int) -> bool:
    """Check whether a proxy that is known by other servers behind it made few RPCs to this one, too."""
    clients = tables.connections.client_ip
    others = [sides[b].on for a, b in found if a == front]
    return (
        bool(others)
        and len(sides[back].rows) < PROXY_RPCS
        and bool(np.isin(clients[sides[back].on], clients[np.concatenate(others)]).all())
        and _measure_inside(tables.rpcs, sides[back], sides[front], least=1) == 1
    )


def _measure_inside(rpcs: Rpcs, inner: _Side, outer: _Side, least: int = PROXY_RPCS) -> float:
    """Measure which share of the RPCs to one server lies inside RPCs of the same method to another."""
    rows = inner.rows[rpcs.start_time_ns[inner.rows] <= outer.known_ns][:_ROWS]
    if len(rows) < least:
        return 0.0
    starts, ends = rpcs.start_time_ns[rows], rpcs.start_time_ns[rows] + rpcs.duration_ns[rows]
    there = outer.rows[rpcs.start_time_ns[outer.rows] <= starts.max()]
    there = there[rpcs.start_time_ns[there] + rpcs.duration_ns[there] >= starts.min()]
    cut = there[rpcs.status_source[there] != TRAILERS]  # if a call was cut, its leg behind may end later
    methods = rpcs.method
    inside = _find_latest_end(rpcs, methods[np.r_[there, rows]], there, rows) >= ends
    inside |= _find_latest_end(rpcs, methods[np.r_[cut, rows]], cut, rows) >= starts
    return float(inside.mean())


def _find_latest_end(rpcs: Rpcs, keys: npt.NDArray[np.integer], outer: _Rows, inner: _Rows) -> Ints:
    """Find for each inner RPC the latest end of the outer ones with its key that begin before it; -1 without any.

    `keys` has those of the outer RPCs and then those of the inner ones.
    """
    rows, is_inner = np.r_[outer, inner], np.arange(len(keys)) >= len(outer)
    starts = rpcs.start_time_ns[rows]
    ends, rank = np.unique(np.r_[-1, np.where(is_inner, -1, starts + rpcs.duration_ns[rows])], return_inverse=True)
    order = np.lexsort((is_inner, starts, keys))
    group = np.cumsum(np.diff(keys[order], prepend=0) != 0) * len(ends)  # so that no key sees the ends of another
    latest = np.empty(len(rows), dtype=np.int64)
    latest[order] = ends[np.maximum.accumulate(group + rank[1:][order]) - group]
    return latest[len(outer) :]
