"""The methods of RPCs, and the time of all RPCs."""

from collections.abc import Iterable

import numpy as np

from ..tables import Tables
from ..tables.durations import clip_ns
from ..tables.grouping import distinct


def rpc_time(tables: Tables) -> int:
    """Sum up the time of all RPCs, nanoseconds; shares of time refer to it."""
    return clip_ns(sum(sum(method.budget) for method in tables.methods))


def share_of_time(tables: Tables, lost_ns: int) -> float:
    """Return `lost_ns` as a share of all RPC time; 0 without RPC time."""
    whole = rpc_time(tables)
    return lost_ns / whole if whole else 0.0


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
