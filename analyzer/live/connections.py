"""Figures of connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np

from .. import _core
from ..model.budget import named
from ..summary.quantiles import quantiles_of
from ..tables import COMPLETE, NOT_SEEN, Counts, Ints, Mask, Tables
from . import Window
from .interval import RATES_S, SPANS_S, ConnectionFigures

MOST_CONNECTIONS = 200
"""Connections that are reported, those with the most calls of the last ten seconds."""
Ends = tuple[str, str]
"""Client and server of a connection."""


class ConnectionSamples:
    """Durations of each connection's first RPCs of each piece: a sample that does not depend on the durations.

    The tables of a piece have further RPCs because they failed or took long. These must not count.
    """

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._durations: dict[Ends, deque[Ints]] = {}
        self._open: dict[Ends, frozenset[int]] = {}

    def add(self, piece: Window) -> None:
        """Take the RPCs of the last piece that have ended, and remember those of the sample that are open."""
        rpcs = piece.tables.rpcs
        found, still_open = dict[Ends, Ints](), dict[Ends, frozenset[int]]()
        for connection, rows in _group_rows(rpcs.connection):
            ends = piece.tables.client(connection), piece.tables.server(connection)
            mine = rows[self._choose(piece, ends, rows)]
            complete = (rpcs.flags[mine] & COMPLETE) != 0
            found[ends] = rpcs.duration_ns[mine[complete]]
            if not complete.all():
                still_open[ends] = frozenset(rpcs.stream[mine[~complete]].tolist())
        self._open = still_open
        for ends in self._durations.keys() | found.keys():
            self._durations.setdefault(ends, deque(maxlen=SPANS_S[-1])).append(found.get(ends, _NONE))
        self._durations = {ends: kept for ends, kept in self._durations.items() if any(map(len, kept))}

    def _choose(self, piece: Window, ends: Ends, rows: Ints) -> Mask:
        """Choose the first RPCs that began in this piece, and those of the sample that were open before it."""
        rpcs = piece.tables.rpcs
        old = rpcs.start_time_ns[rows] < (piece.begin_ns or 0)
        place = np.empty(len(rows), np.int64)
        place[np.lexsort((rpcs.stream[rows], rpcs.start_time_ns[rows], old))] = np.arange(len(rows))
        was_open = np.isin(rpcs.stream[rows], list(self._open.get(ends, ())))
        return np.asarray(np.where(old, was_open, place < _core.FIRST_RPCS))

    def find_quantiles(self, ends: Ends) -> dict[str, dict[str, int]]:
        """Find the quantiles by the length of the window, without windows in which no RPC of the sample ended."""
        kept = list(self._durations.get(ends, ()))
        found = {f"{span}s": quantiles_of(np.concatenate([_NONE, *kept[-span:]])) for span in SPANS_S}
        return {span: quantiles for span, quantiles in found.items() if quantiles}

    def measure(self, windows: Mapping[int, Window]) -> tuple[tuple[ConnectionFigures, ...], int]:
        """Measure the connections with calls of the last ten seconds, and count those beyond `MOST_CONNECTIONS`."""
        recent = windows[RATES_S]
        now = windows[SPANS_S[0]].tables
        open_now = {ends: int(now.connections.max_concurrent_rpcs[row]) for row, ends in _list_connections(now)}
        failed = np.bincount(_list_failed(recent.tables), minlength=len(recent.tables.connections.rpcs))
        used = sorted(_list_connections(recent.tables), key=lambda one: -int(recent.tables.connections.rpcs[one[0]]))
        shown = tuple(
            self._measure_one(recent, row, ends, open_now.get(ends, 0), int(failed[row]))
            for row, ends in used[:MOST_CONNECTIONS]
        )
        return shown, max(len(used) - MOST_CONNECTIONS, 0)

    def _measure_one(self, recent: Window, row: int, ends: Ends, in_flight: int, failed: int) -> ConnectionFigures:
        of, seconds = recent.tables.connections, recent.seconds
        rtt = int(of.min_rtt_ns[row])
        quantiles = self.find_quantiles(ends)
        return ConnectionFigures(
            client=ends[0],
            server=ends[1],
            calls_per_s=int(of.rpcs[row]) / seconds if seconds > 0 else 0.0,
            in_flight=in_flight,
            failed=failed,
            retransmitted=int(of.retransmitted_packets[row]),
            rtt_ns=rtt if rtt >= 0 else None,
            p50_ns={span: one["p50"] for span, one in quantiles.items()},
            p99_ns={span: one["p99"] for span, one in quantiles.items()},
            budget=named(recent.tables.connection_budgets[row]),
        )


_NONE = np.zeros(0, np.int64)


def _group_rows(connection: Counts) -> Iterator[tuple[int, Ints]]:
    """Group rows by connection."""
    order = np.argsort(connection, kind="stable")
    numbers, begins = np.unique(connection[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, begins[1:]), strict=True) if len(numbers) else ()


def _list_connections(tables: Tables) -> list[tuple[int, Ends]]:
    """List the connections with calls: their rows, and their ends."""
    of = tables.connections
    rows = np.flatnonzero((of.rpcs > 0) | (of.max_concurrent_rpcs > 0)).tolist()
    return [(row, (tables.client(row), tables.server(row))) for row in rows]


def _list_failed(tables: Tables) -> Ints:
    """List the connections of RPCs that ended with another status than OK, which all have rows."""
    rpcs = tables.rpcs
    failed = (rpcs.status != 0) & (rpcs.status != NOT_SEEN) & ((rpcs.flags & COMPLETE) != 0)
    return np.asarray(rpcs.connection[failed].astype(np.int64))
