"""Attempts of one call, as their requests number them: retries after a failure, and hedged attempts."""

import heapq
from collections import deque
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from ..tables import COMPLETE, Ints, Mask, Tables
from . import failures

Key = tuple[int, int, int]
"""Client address, method, and number of attempts before."""
MOST_ATTEMPTS = 5
"""Attempts of a hedged call at most (gRFC A6: higher values of maxAttempts are treated as 5)."""


class Retries(Struct, frozen=True, eq=False):
    """RPCs whose `grpc-previous-rpc-attempts` is 1 or more, by what the attempt before did."""

    retries: Ints
    """Rows of RPCs that followed a failed attempt."""
    failed: Ints
    """The failed attempt before each of `retries`."""
    hedges: Ints
    """Rows of RPCs that began before the attempt before them had ended (gRFC A6)."""
    unpaired: Ints
    """Rows of RPCs without a known attempt before them that failed or is open: it may have gone to another server."""


_FOUND: WeakKeyDictionary[Tables, Retries] = WeakKeyDictionary()
"""What several detectors ask for, found once."""


def find_retries(tables: Tables) -> Retries:
    """Pair each attempt with the failed one before it: same client, same method, the one that ended first.

    An attempt without a failed one is a hedge if the one before is open. So are the other ones of that client and
    method: a method has a retry policy or a hedging policy, never both (gRFC A6).
    """
    if tables not in _FOUND:
        _FOUND[tables] = _find_retries(tables)
    return _FOUND[tables]


def _find_retries(tables: Tables) -> Retries:
    rpcs = tables.rpcs
    again = np.flatnonzero(rpcs.previous_attempts > 0)
    again = again[np.argsort(rpcs.start_time_ns[again], kind="stable")]
    waiting = _list_failed(tables) if len(again) else {}
    pairs, others = [], []
    for row in again.tolist():
        client, method, before = _make_key(tables, row)
        failed = waiting.get((client, method, before - 1))
        if failed and failed[0][0] <= int(rpcs.start_time_ns[row]):
            pairs.append((row, failed.popleft()[1]))
        else:
            others.append(row)
    found, rest = np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(others, dtype=np.int64)
    calls = _number_calls(tables)
    hedged = np.isin(calls[rest], calls[_find_overlapping(tables, rest, calls)])
    return Retries(found[:, 0], found[:, 1], rest[hedged], rest[~hedged])


def _number_calls(tables: Tables) -> Ints:
    """Number the client and method of each RPC."""
    rpcs = tables.rpcs
    return tables.connections.client_ip[rpcs.connection].astype(np.int64) << 32 | rpcs.method


def _list_ends(tables: Tables) -> Ints:
    """List when each RPC ended, never for one that is open."""
    rpcs = tables.rpcs
    return np.where(rpcs.flags & COMPLETE, rpcs.start_time_ns + rpcs.duration_ns, np.iinfo(np.int64).max)


def _find_overlapping(tables: Tables, rows: Ints, calls: Ints) -> Ints:
    """Find attempts that begin while the one before is open; each attempt has one after it."""
    rpcs, ends = tables.rpcs, _list_ends(tables)
    before, asked = np.flatnonzero(np.isin(calls, calls[rows])), np.sort(rpcs.start_time_ns[rows])
    # most begin and end between two of these attempts
    begun = np.searchsorted(asked, rpcs.start_time_ns[before], side="right")
    before = before[np.searchsorted(asked, ends[before]) > begun]
    events = np.r_[before, rows]
    asks = np.arange(len(events)) >= len(before)
    still: dict[Key, list[int]] = {}
    found = []
    for place in np.lexsort((~asks, rpcs.start_time_ns[events])).tolist():  # attempts look before they are added
        row = int(events[place])
        client, method, number = _make_key(tables, row)
        if not asks[place]:
            heapq.heappush(still.setdefault((client, method, number), []), int(ends[row]))
            continue
        candidates = still.get((client, method, number - 1), [])
        while candidates and candidates[0] <= rpcs.start_time_ns[row]:
            heapq.heappop(candidates)
        if candidates:
            heapq.heappop(candidates)
            found.append(row)
    return np.array(found, dtype=np.int64)


def _make_key(tables: Tables, row: int) -> Key:
    rpcs = tables.rpcs
    client = int(tables.connections.client_ip[rpcs.connection[row]])
    return client, int(rpcs.method[row]), int(rpcs.previous_attempts[row])


def _list_failed(tables: Tables) -> dict[Key, deque[tuple[int, int]]]:
    """List the ends and rows of failed attempts, the first to end first; a client does not retry what it reset."""
    rpcs = tables.rpcs
    by_client = np.isin(rpcs.status_source, (failures.CLIENT_RESET, failures.CLIENT_DEADLINE))
    rows = np.flatnonzero((rpcs.status != failures.OK) & (rpcs.flags & COMPLETE != 0) & ~by_client)
    ends = rpcs.start_time_ns[rows] + rpcs.duration_ns[rows]
    failed: dict[Key, deque[tuple[int, int]]] = {}
    for place in np.argsort(ends, kind="stable").tolist():
        row = int(rows[place])
        failed.setdefault(_make_key(tables, row), deque()).append((int(ends[place]), row))
    return failed


def mark_hedged(tables: Tables, rows: Ints) -> Mask:
    """Mark cancelled RPCs that are hedged attempts: another attempt of their call was answered before.

    That is an OK of the same client and method with another number, open at the same time, the latest one before.
    """
    rpcs, hedges, calls, ends = tables.rpcs, find_retries(tables).hedges, _number_calls(tables), _list_ends(tables)
    marked = np.zeros(len(rows), dtype=bool)
    if not len(hedges):
        return marked
    answered = np.flatnonzero((rpcs.status == failures.OK) & np.isin(calls, calls[hedges]))
    hedged = np.zeros(len(calls), dtype=bool)
    hedged[hedges] = True
    numbers = {number for number in rpcs.previous_attempts[rows].tolist() if number < MOST_ATTEMPTS}
    events = np.r_[answered, rows]
    open_to: dict[Key, list[int]] = {}
    for place in np.lexsort((np.arange(len(events)) >= len(answered), ends[events])).tolist():
        row = int(events[place])
        client, method, number = _make_key(tables, row)
        if place < len(answered):
            for other in numbers - {number}:
                open_to.setdefault((client, method, other), []).append(row)
            continue
        candidates = open_to.get((client, method, number), [])
        if not candidates:
            continue
        first, second = sorted((row, candidates[-1]), key=lambda one: int(rpcs.previous_attempts[one]))
        if hedged[second] and rpcs.start_time_ns[first] <= rpcs.start_time_ns[second] < ends[first]:
            candidates.pop()
            marked[place - len(answered)] = True
    return marked


def mark_unclear(tables: Tables, rows: Ints) -> Mask:
    """Mark attempts with a number that may be hedged: not all RPCs of their method have rows, so another may be open.

    Those on the same connection have (`limits.rs`, RETRIES), those on others may not.
    """
    rpcs = tables.rpcs
    numbered = rpcs.previous_attempts[rows] > 0
    if not numbered.any():
        return numbered
    numbers, counts = np.unique(rpcs.method, return_counts=True)
    known = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    some = [method.number for method in tables.methods if method.rpcs > known.get(method.number, 0)]
    return np.asarray(numbered & np.isin(rpcs.method[rows], some) & ~np.isin(rows, find_retries(tables).retries))
