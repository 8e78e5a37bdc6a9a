"""Attempts of one call, as their requests number them: retries after a failure, and hedged attempts."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..tables import COMPLETE, Ints, Tables
from . import _failures

Key = tuple[int, int, int]
"""Client address, method, and number of attempts before."""


class Retries(Struct, frozen=True, eq=False):
    """RPCs whose `grpc-previous-rpc-attempts` is 1 or more, by what the attempt before did."""

    retries: Ints
    """Rows of RPCs that followed a failed attempt."""
    failed: Ints
    """The failed attempt before each of `retries`."""
    hedges: Ints
    """Rows of RPCs that began before the attempt before them had failed (gRFC A6)."""


def find_retries(tables: Tables) -> Retries:
    """Pair each attempt with the failed one before it: same client, same method, the one that ended first.

    All failed RPCs have rows, so an attempt without a failed one before it is a hedge, if the capture has its
    connection's opening.
    """
    rpcs = tables.rpcs
    again = np.flatnonzero(rpcs.previous_attempts > 0)
    again = again[np.argsort(rpcs.start_time_ns[again], kind="stable")]
    waiting = _list_failed(tables) if len(again) else {}
    pairs, hedges = [], []
    for row in again.tolist():
        client, method, before = _make_key(tables, row)
        failed = waiting.get((client, method, before - 1), [])
        if failed and failed[0][0] <= int(rpcs.start_time_ns[row]):
            pairs.append((row, failed.pop(0)[1]))
        elif tables.connections.complete[rpcs.connection[row]]:
            hedges.append(row)
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Retries(found[:, 0], found[:, 1], np.array(hedges, dtype=np.int64))


def _make_key(tables: Tables, row: int) -> Key:
    rpcs = tables.rpcs
    client = int(tables.connections.client_ip[rpcs.connection[row]])
    return client, int(rpcs.method[row]), int(rpcs.previous_attempts[row])


def _list_failed(tables: Tables) -> dict[Key, list[tuple[int, int]]]:
    """List the ends and rows of failed attempts, the first to end first; a client does not retry what it reset."""
    rpcs = tables.rpcs
    by_client = np.isin(rpcs.status_source, (_failures.CLIENT_RESET, _failures.CLIENT_DEADLINE))
    rows = np.flatnonzero((rpcs.status != _failures.OK) & (rpcs.flags & COMPLETE != 0) & ~by_client)
    ends = rpcs.start_time_ns[rows] + rpcs.duration_ns[rows]
    failed: dict[Key, list[tuple[int, int]]] = {}
    for place in np.argsort(ends, kind="stable").tolist():
        row = int(rows[place])
        failed.setdefault(_make_key(tables, row), []).append((int(ends[place]), row))
    return failed


def mark_hedged(tables: Tables, rows: Ints) -> _failures.Mask:
    """Mark cancelled RPCs that are hedged attempts: another attempt of the same call was answered, or was to be.

    That is a hedge itself, or an attempt during which a hedge began that ended with OK first.
    """
    rpcs, hedges = tables.rpcs, find_retries(tables).hedges
    answered = hedges[rpcs.status[hedges] == _failures.OK].tolist()
    marked = np.isin(rows, hedges)
    ends = rpcs.start_time_ns + rpcs.duration_ns
    for place in np.flatnonzero(~marked).tolist():
        row = int(rows[place])
        client, method, before = _make_key(tables, row)
        for hedge in answered:
            began = rpcs.start_time_ns[row] <= rpcs.start_time_ns[hedge] <= ends[hedge] <= ends[row]
            if began and _make_key(tables, hedge) == (client, method, before + 1):
                answered.remove(hedge)
                marked[place] = True
                break
    return marked
