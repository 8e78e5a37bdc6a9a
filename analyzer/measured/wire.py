"""Group the RPCs of a capture into calls: attempts of one call belong together."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..tables import BEGUN_BEFORE, COMPLETE, Ints, Tables
from .record import MOST_NS

_BY_CLIENT = [_core.STATUS_SOURCES.index(name) for name in ("client_deadline", "client_reset")]
_LOOKED_AT = 64
"""Most failed attempts compared to find the one that a retry follows (heuristic: concurrent back-offs; bounds the
work)."""
OK = _core.STATUSES.index("OK")


class Wire(Struct, eq=False):
    """RPCs by row, each with the row of its call's first attempt; times are nanoseconds since the epoch."""

    start: Ints
    end: Ints
    ended: Ints
    """1 where the end was seen."""
    by_client: Ints
    """1 where the client ended it before a response: the application may learn this before RST_STREAM is sent."""
    call: Ints
    """Row of the first attempt of the RPC's call; -1 for RPCs that began before the capture, and for those that a proxy
    passed on."""
    passed_on: int
    """Number of RPCs behind a proxy that are legs of RPCs before it."""


def find_calls(tables: Tables) -> Wire:
    """Find the attempts of each call: by the caller's span, otherwise by `grpc-previous-rpc-attempts`."""
    rpcs = tables.rpcs
    start = np.clip(rpcs.start_time_ns, 0, MOST_NS)
    duration = np.clip(rpcs.duration_ns, 0, MOST_NS - start)
    call = np.where(rpcs.flags & BEGUN_BEFORE, -1, np.arange(len(start)))
    wire = Wire(
        start=start,
        end=start + duration,
        ended=(rpcs.flags & COMPLETE != 0).astype(np.int64),
        by_client=np.isin(rpcs.status_source, _BY_CLIENT).astype(np.int64),
        call=call,
        passed_on=0,
    )
    for rows in _list_same_span(tables, call >= 0):
        attempts = _drop_passed_on(tables, wire, rows)
        wire.passed_on += len(rows) - len(attempts)
        call[rows] = -1
        call[attempts] = attempts[0]
    _link_retries(tables, wire)
    return wire


def _list_same_span(tables: Tables, usable: npt.NDArray[np.bool_]) -> Iterator[list[int]]:
    """Yield the RPCs of each span that has several, in the order of their starts."""
    rpcs = tables.rpcs
    rows = np.flatnonzero(usable & (rpcs.span_id != 0))
    keys = (rpcs.start_time_ns[rows], rpcs.span_id[rows], rpcs.trace_low[rows], rpcs.trace_high[rows])
    order = np.lexsort(keys)
    rows = rows[order]
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in keys[1:]], axis=0)
    first = np.flatnonzero(new)
    number = np.diff(np.append(first, len(rows)))
    for at in np.flatnonzero(number > 1):
        yield rows[first[at] : first[at] + number[at]].tolist()


def _drop_passed_on(tables: Tables, wire: Wire, rows: list[int]) -> list[int]:
    """Drop RPCs to another server inside an earlier RPC: a proxy passed that one on with the same span."""
    kept: list[int] = []
    longest = -1
    for row in rows:
        inside = longest >= 0 and wire.end[row] <= wire.end[longest] and not _have_same_server(tables, row, longest)
        if not inside:
            kept.append(row)
            longest = row if longest < 0 or wire.end[row] > wire.end[longest] else longest
    return kept


def _have_same_server(tables: Tables, row: int, other: int) -> bool:
    ends = [
        (tables.connections.server_ip[c], tables.connections.server_port[c])
        for c in tables.rpcs.connection[[row, other]]
    ]
    return bool(ends[0] == ends[1])


def _link_retries(tables: Tables, wire: Wire) -> None:
    """Link each retry with its own span, or without one, to a failed attempt that ended before it."""
    rpcs, call = tables.rpcs, wire.call
    if not rpcs.previous_attempts.any():
        return
    waiting: dict[tuple[int, ...], deque[int]] = {}
    members: dict[int, list[int]] = {}
    for row in np.argsort(wire.start, kind="stable").tolist():
        if call[row] < 0:
            continue
        if call[row] != row:
            members.setdefault(int(call[row]), []).append(row)
        key = (
            int(tables.connections.client_ip[rpcs.connection[row]]),
            int(rpcs.method[row]),
            int(rpcs.trace_high[row]),
            int(rpcs.trace_low[row]),
        )
        number = int(rpcs.previous_attempts[row])
        before = waiting.get((*key, number - 1)) if number and call[row] == row else None
        found = next((one for one in islice(before or (), _LOOKED_AT) if wire.end[one] <= wire.start[row]), None)
        if found is not None and before is not None:
            before.remove(found)
            call[row] = call[found]
        if wire.ended[row] and rpcs.status[row] != OK:
            waiting.setdefault((*key, number), deque()).append(row)
    for first, rows in members.items():
        call[rows] = call[first]
