"""Select RPCs, and explain when none is selected."""

import numpy as np

from ..decode.errors import NarrowError
from ..model.text import list_first, utc
from ..tables import Ints, Mask, Tables
from .selection import Selection, after_first, matches

NAMED = 10
"""Methods or connections that a message names at most."""


def select_rpcs(tables: Tables, chosen: Selection, calls: Ints | None = None) -> Mask:
    """Mark the selected rows of the RPCs table, or those whose row in `calls` is. Raises NarrowError when none is."""
    rpcs, first = tables.rpcs, tables.capture["first_time_ns"] or 0
    mine = np.ones(len(rpcs.connection), dtype=np.bool_)
    if chosen.connections:
        number = len(tables.connections.rpcs)
        wrong = [connection for connection in chosen.connections if not 0 <= connection < number]
        if wrong:
            raise NarrowError(f"there is no connection {wrong[0]}; the capture has {number:,}, numbered from 0")
        mine &= np.isin(rpcs.connection, chosen.connections)
        if not mine.any():
            raise NarrowError(f"no RPC is on connection {', '.join(map(str, chosen.connections))}")
    if chosen.method is not None:
        mine &= np.isin(rpcs.method, _find_methods(tables, chosen.method))
    if chosen.trace is not None:
        mine &= _mark_trace(tables, chosen.trace)
    mine &= _mark_time(rpcs.start_time_ns, first, chosen)
    mine = mine if calls is None else mine[calls]
    if not mine.any():
        starts = tables.rpcs.start_time_ns - (tables.capture["first_time_ns"] or 0)
        begin, end = (utc(int(time)) for time in (tables.rpcs.start_time_ns.min(), tables.rpcs.start_time_ns.max()))
        span = f"RPCs begin from {starts.min() / 1e9:.6f} s to {starts.max() / 1e9:.6f} s ({begin} to {end} UTC)"
        raise NarrowError(f"none of {len(starts):,} RPCs is selected; {span}")
    return mine


def _mark_time(times: Ints, first_ns: int, chosen: Selection) -> Mask:
    """Mark times in the selected range."""
    meant = np.ones(len(times), dtype=np.bool_)
    if chosen.begin is not None:
        meant &= times >= first_ns + after_first(chosen.begin, first_ns)
    return meant & (times <= first_ns + after_first(chosen.end, first_ns)) if chosen.end is not None else meant


def _mark_trace(tables: Tables, trace: int) -> Mask:
    """Mark the RPCs of a trace. Raises NarrowError when there are none."""
    rpcs = tables.rpcs
    mine: Mask = (rpcs.trace_high == trace >> 64) & (rpcs.trace_low == trace & _LOW)
    if not mine.any():
        known = int(np.count_nonzero(rpcs.span_id))
        raise NarrowError(f"no RPC is of trace {trace:032x}; {known:,} of {len(mine):,} RPCs have a traceparent")
    return mine


_LOW = (1 << 64) - 1
"""The last eight octets of a trace-id."""


def _find_methods(tables: Tables, pattern: str) -> list[int]:
    names = {method.number: method.name or method.label for method in tables.methods}
    found = [number for number, name in names.items() if name is not None and matches(name, pattern)]
    if not found:
        there = [name for name in names.values() if name]
        has = f"the capture has {list_first(there, NAMED)}" if there else "the capture has no method name"
        raise NarrowError(f"no method matches {pattern!r}; {has}")
    return found


def select_other_requests(tables: Tables, chosen: Selection) -> Mask:
    """Mark requests that are no RPCs and begin in the selected time."""
    return _mark_time(tables.other_requests.start_time_ns, tables.capture["first_time_ns"] or 0, chosen)


def select_without_rpcs(tables: Tables, chosen: Selection) -> Mask:
    """Mark selected connections without RPCs: they open in the selected time."""
    opened = tables.connections.first_time_ns
    meant = _mark_time(opened, tables.capture["first_time_ns"] or 0, chosen)
    return meant & np.isin(np.arange(len(opened)), chosen.connections) if chosen.connections else meant
