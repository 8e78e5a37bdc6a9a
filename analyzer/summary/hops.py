"""Find proxies both of whose sides are in the capture: each call that passes through is seen as two RPCs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.text import count
from ..tables import COMPLETE, NO_METHOD, Tables
from ..tables.grouping import group_rows

INSIDE = 0.9
"""Share of RPCs to one server inside RPCs to another from which a proxy passes them on (heuristic: nearly all; the
capture begins and ends inside some)."""
_REVERSE = 0.5
"""Share of the others inside these up to which that is no chance (heuristic: among many concurrent RPCs most lie inside
some other, in both directions alike)."""
FEW = 3
"""RPCs below which nothing is concluded (heuristic: one or two lie inside another by chance)."""
_ROWS = 100
"""RPCs looked at per server (heuristic: more decide nothing else)."""
_SERVERS = 8
"""Servers above which the capture is not one of a proxy's host (heuristic; bounds the pairs)."""

_FIRST_RPCS = 32
"""RPCs of each connection that have rows in any case (limits.rs)."""

_Rows = npt.NDArray[np.intp]


class Proxy(Struct, frozen=True, eq=False):
    """A server that passes its RPCs on to another one."""

    front: _Rows
    """Connections to it."""
    back: _Rows
    """Connections to the server behind it."""


def find_proxies(tables: Tables) -> list[Proxy]:
    """Find pairs of servers of which one passes its RPCs on to the other; of several in a row the neighbours."""
    on = _group_by_server(tables)
    rows = [_find_rows(tables, some) for some in on]
    known = [_find_last_known(tables, some) for some in rows]
    found = {
        (front, back)
        for front, back in permutations(range(len(on)), 2)
        if not _share_client(tables, on[front], on[back])
        and (
            _count_same_ids(tables, rows[front], rows[back])[0]
            or (
                _measure_inside(tables, rows[back], rows[front], known[front]) >= INSIDE
                and _measure_inside(tables, rows[front], rows[back], known[back]) <= _REVERSE
            )
        )
    }
    middle = {(a, d) for a, b in found for c, d in found if b == c}
    return [Proxy(on[front], on[back]) for front, back in sorted(found - middle)]


def describe_proxies(tables: Tables) -> Iterator[str]:
    """Yield a sentence about each pair of servers of which one passes its RPCs on to the other."""
    for proxy in find_proxies(tables):
        there, behind = (int(tables.connections.rpcs[rows].sum()) for rows in (proxy.front, proxy.back))
        yield (
            f"{tables.server(int(proxy.front[0]))} looks like a proxy: the {count(behind, 'RPC')} to "
            f"{tables.server(int(proxy.back[0]))} lie inside its {count(there, 'RPC')} of the same methods, so each "
            "call may be seen twice, once on each side of the proxy"
        )
    on = _group_by_server(tables)
    for front, back in permutations(on, 2):
        if _share_client(tables, front, back):
            continue
        inside, outside = _count_same_ids(tables, _find_rows(tables, front), _find_rows(tables, back))
        if not inside and outside >= FEW and _begin_first(tables, front, back):
            yield (
                f"RPCs to {tables.server(int(front[0]))} and {tables.server(int(back[0]))} carry the same traceparent "
                "or x-request-id and do not lie inside each other: if one is a proxy for the other, the clocks of the "
                "captures differ, and both legs are not joined"
            )


def _group_by_server(tables: Tables) -> list[_Rows]:
    """Group connections with RPCs by their server; none where one or many servers show no proxy."""
    connections = tables.connections
    carrying = np.flatnonzero(connections.rpcs > 0)
    servers = group_rows(connections.server_ip[carrying].astype(np.int64) << 16 | connections.server_port[carrying])
    return [carrying[some] for some in servers.values()] if 1 < len(servers) <= _SERVERS else []


def _begin_first(tables: Tables, front: _Rows, back: _Rows) -> bool:
    """Choose one order of two servers."""
    return bool(tables.connections.first_packet[front].min() < tables.connections.first_packet[back].min())


def _share_client(tables: Tables, front: _Rows, back: _Rows) -> bool:
    """Check whether one client calls both servers, which is then one of equal servers."""
    connections = tables.connections
    return bool(np.isin(connections.client_ip[front], connections.client_ip[back]).any())


def _count_same_ids(tables: Tables, front: _Rows, back: _Rows) -> tuple[int, int]:
    """Count RPCs to one server with the identifier of an RPC to the other: those that begin inside it, and outside."""
    rpcs = tables.rpcs
    spans = np.stack([rpcs.method, rpcs.trace_high, rpcs.trace_low, rpcs.span_id], axis=1)
    requests = np.stack([rpcs.method, rpcs.request_id], axis=1)
    traces = spans[:, :-1]  # a proxy may write a span of its own
    inside = outside = 0
    for ids in (spans, requests, traces):
        if not (front_seen := front[ids[front, -1] != 0]).size:
            continue
        before = {tuple(key): row for row, key in zip(front_seen.tolist(), ids[front_seen].tolist(), strict=True)}
        inner = back[ids[back, -1] != 0][:_ROWS]
        for row, key in zip(inner.tolist(), ids[inner].tolist(), strict=True):
            if (outer := before.get(tuple(key))) is not None:
                later = int(rpcs.start_time_ns[row]) - int(rpcs.start_time_ns[outer])
                inside += 0 < later < rpcs.duration_ns[outer]
                outside += ids is not traces and not 0 < later < rpcs.duration_ns[outer]
    return inside, outside


def _find_rows(tables: Tables, connections: _Rows) -> _Rows:
    rpcs = tables.rpcs
    whole = (rpcs.flags & COMPLETE != 0) & (rpcs.method != NO_METHOD)
    return np.flatnonzero(whole & np.isin(rpcs.connection, connections))


def _measure_inside(tables: Tables, inner: _Rows, outer: _Rows, known_ns: int) -> float:
    """Measure which share of some RPCs lies inside others of the same method, all of which are known up to a time."""
    rpcs = tables.rpcs
    starts, ends = rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns
    inner = inner[starts[inner] <= known_ns][:_ROWS]
    inside = 0
    for row in inner:
        same = outer[rpcs.method[outer] == rpcs.method[row]]
        inside += bool(((starts[same] <= starts[row]) & (ends[same] >= ends[row])).any())
    return inside / len(inner) if len(inner) >= FEW else 0.0


def _find_last_known(tables: Tables, rows: _Rows) -> int:
    """Find until when all RPCs that began have rows: of a connection's later RPCs only some have."""
    rpcs = tables.rpcs
    ordered = rows[np.lexsort((rpcs.start_time_ns[rows], rpcs.connection[rows]))]
    connections, first, number = np.unique(rpcs.connection[ordered], return_index=True, return_counts=True)
    last = rpcs.start_time_ns[ordered[first + np.minimum(number, _FIRST_RPCS) - 1]]
    return int(last[tables.connections.rpcs[connections] > number].min(initial=np.iinfo(np.int64).max))
