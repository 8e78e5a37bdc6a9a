"""Single calls of the last minute."""

from __future__ import annotations

import numpy as np

from .. import _core
from ..tables import COMPLETE, END_MISSING, NOT_SEEN, names_of
from . import Window
from .interval import CallFigures

MOST_CALLS = 50
"""Calls that are reported, the longest ones."""


def list_calls(window: Window) -> tuple[CallFigures, ...]:
    """List the longest calls of a window that have rows, those without an end as if it were now."""
    tables, rpcs = window.tables, window.tables.rpcs
    is_followed = tables.connections.closed_time_ns[rpcs.connection] < 0
    is_open = ((rpcs.flags & (COMPLETE | END_MISSING)) == 0) & is_followed
    took = np.where(is_open, window.end_ns - rpcs.start_time_ns, rpcs.duration_ns)
    names = names_of(tables.methods)
    found = []
    for row in np.argsort(-took, kind="stable")[:MOST_CALLS].tolist():
        connection, status = int(rpcs.connection[row]), int(rpcs.status[row])
        found.append(
            CallFigures(
                method=next(filter(None, names.get(int(rpcs.method[row]), ())), None),
                client=tables.client(connection),
                server=tables.server(connection),
                stream=int(rpcs.stream[row]),
                start_ns=int(rpcs.start_time_ns[row]),
                duration_ns=max(int(took[row]), 0),
                status=None if is_open[row] or status == NOT_SEEN else _core.STATUSES[status],
                is_open=bool(is_open[row]),
            )
        )
    return tuple(found)
