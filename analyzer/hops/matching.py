"""Find for each RPC behind a proxy the RPC before the proxy that it continues."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct

from ..summary.hops import TRAILERS
from ..tables import BEGUN_BEFORE, COMPLETE, NO_METHOD, Codes, Ints, Mask, Rpcs
from ..tables.grouping import number_rows

NONE, EXACT, BY_ORDER, AMBIGUOUS = range(4)
"""How a leg was joined: not at all; by an identifier that both legs carry; by sizes and times, with only one
possibility; by sizes and times, with several."""

LONGEST_NS = 1 << 53
"""Longest RPC that is joined: 104 days, so that no sum of times overflows."""

_MOST_OPEN = 64
"""Most open RPCs with equal keys that are compared (heuristic: bounds the work; among more, sizes decide nothing)."""
_MOST_SLOW = 100_000
"""Most RPCs behind a proxy that are compared one by one (heuristic: some seconds of work)."""


class Joined(Struct, frozen=True, eq=False):
    """The leg before the proxy of each RPC."""

    parent: Ints
    """Row of the RPC before the proxy, -1 for none."""
    how: Codes
    """`NONE`, `EXACT`, `BY_ORDER` or `AMBIGUOUS`."""

    @property
    def sure_parent(self) -> Ints:
        """Return `parent` with -1 for ambiguous legs."""
        return np.where(self.how == AMBIGUOUS, -1, self.parent)


def join(rpcs: Rpcs, pairs: Sequence[tuple[Ints, Ints]]) -> Joined:
    """Join the RPCs that proxies received with the RPCs that they sent to the servers behind them.

    A pair has the rows of RPCs to one proxy, and those of RPCs to all servers behind it.
    """
    parent = np.full(len(rpcs.connection), -1, dtype=np.int64)
    joined = Joined(parent, np.zeros(len(parent), dtype=np.uint8))
    legs = _Legs(rpcs)
    for front, back in pairs:
        rows = back[(parent[back] < 0) & legs.usable[back]]
        _join_pair(legs, front[legs.usable[front]], rows, joined)
    return joined


class _Legs:
    """The columns that are compared, with lists for access to single cells, which is slow in numpy."""

    def __init__(self, rpcs: Rpcs) -> None:
        known = (rpcs.method != NO_METHOD) & (rpcs.flags & BEGUN_BEFORE == 0)
        self.usable: Mask = known & (rpcs.duration_ns <= LONGEST_NS)
        self.start, self.end = rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns
        self.failed: Mask = rpcs.status != 0
        # if a call was cut (reset, failed, or open at the end of the capture), its leg behind the proxy may end later
        self.cut: Mask = (rpcs.flags & COMPLETE == 0) | (rpcs.status_source != TRAILERS) | self.failed
        self.attempt = rpcs.previous_attempts
        # keys: numbers that are equal where the columns are, 0 where there is none
        traced = rpcs.span_id != 0
        self.trace = np.where(traced, number_rows(rpcs.method, rpcs.trace_high, rpcs.trace_low), 0)
        self.span = np.where(traced, number_rows(self.trace, rpcs.span_id), 0)
        self.request_id = np.where(rpcs.request_id != 0, number_rows(rpcs.method, rpcs.request_id), 0)
        self.request_size = number_rows(rpcs.method, rpcs.request_bytes)
        self.sizes = number_rows(self.request_size, rpcs.response_bytes)

    def may_be(self, front: Ints, back: Ints) -> Mask:
        """Check for pairs of rows whether the leg behind lies inside the leg before: same attempt, same trace if known.

        Proxies pass a trace on (W3C Trace Context section 4.3), but many write an `x-request-id` of their own.
        """
        inside = (self.start[front] < self.start[back]) & (self.start[back] <= self.end[front])
        inside &= (self.end[back] <= self.end[front]) | self.cut[front]
        traces = self.trace[front], self.trace[back]
        inside &= (traces[0] == traces[1]) | (traces[0] == 0) | (traces[1] == 0)
        return np.asarray(inside & (self.attempt[front] == self.attempt[back]))

    @cached_property
    def cells(self) -> list[tuple[int, int, bool, int, int]]:
        """Return what `may_be` compares, row by row."""
        columns: tuple[Any, ...] = (self.start, self.end, self.cut, self.attempt, self.trace)
        return list(zip(*(column.tolist() for column in columns), strict=True))


def _join_pair(legs: _Legs, front: Ints, back: Ints, joined: Joined) -> None:
    parent, how = joined.parent, joined.how
    for keys in (legs.span, legs.request_id, legs.trace):
        _join_unique(legs, keys, front, back[parent[back] < 0], joined)
        for row, found in _find_fronts(legs, keys, front, back[parent[back] < 0]):
            if len(found) == 1:
                parent[row], how[row] = found[0], EXACT
    free = front[~np.isin(front, parent)]
    _assign_by_order(legs, dict(_find_fronts(legs, legs.sizes, free, back[parent[back] < 0])), joined)
    # if an attempt failed behind the proxy or a call was cut, the response sizes of its legs differ
    for row, found in _find_fronts(legs, legs.request_size, front, back[parent[back] < 0]):
        likely = [one for one in found if legs.failed[row] or legs.failed[one]]
        if len(likely) == 1:
            parent[row], how[row] = likely[0], BY_ORDER


def _join_unique(legs: _Legs, keys: Ints, front: Ints, back: Ints, joined: Joined) -> None:
    """Join legs whose key exactly one RPC before the proxy has, and exactly one behind it."""
    size = int(keys.max(initial=0)) + 1
    once = (np.bincount(keys[front], minlength=size) == 1) & (np.bincount(keys[back], minlength=size) == 1)
    once[0] = False
    before = np.zeros(size, dtype=np.int64)
    before[keys[front]] = front
    rows = back[once[keys[back]]]
    rows = rows[legs.may_be(before[keys[rows]], rows)]
    joined.parent[rows], joined.how[rows] = before[keys[rows]], EXACT


def _find_fronts(legs: _Legs, keys: Ints, front: Ints, back: Ints) -> Iterator[tuple[int, list[int]]]:
    """Find for each RPC behind the proxy the RPCs before it with the same key that it may continue."""
    back = back[(keys[back] != 0) & np.isin(keys[back], keys[front])]
    if not 0 < len(back) <= _MOST_SLOW:
        return
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for place, rows in enumerate((front[np.isin(keys[front], keys[back])], back)):
        rows = rows[np.argsort(legs.start[rows], kind="stable")]
        for key, row in zip(keys[rows].tolist(), rows.tolist(), strict=True):
            groups.setdefault(key, ([], []))[place].append(row)
    for outer, inner in groups.values():
        yield from _sweep(legs, outer, inner)


def _sweep(legs: _Legs, front: list[int], back: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Go through RPCs with one key in the order of starts; yield each leg behind with the open legs it may continue."""
    cells = legs.cells
    open_ones: list[tuple[int, int]] = []  # a heap by the time of their end
    begun = 0
    for row in back:
        now, end, _, attempt, trace = cells[row]
        while begun < len(front) and cells[front[begun]][0] < now:
            heappush(open_ones, (cells[front[begun]][1], front[begun]))
            begun += 1
        while open_ones and open_ones[0][0] < now:
            heappop(open_ones)
        if len(open_ones) > _MOST_OPEN:
            continue
        found = []
        for until, one in open_ones:
            _, _, cut, other, its_trace = cells[one]
            same_trace = its_trace == trace or not its_trace or not trace
            if (until >= end or cut) and other == attempt and same_trace:  # as in `may_be`
                found.append(one)
        if found:
            yield row, found


def _assign_by_order(legs: _Legs, found: dict[int, list[int]], joined: Joined) -> None:
    """Assign a different RPC before the proxy to each RPC behind it, first where there is only one choice.

    If the whole assignment is unique, there always is an RPC with only one choice. Otherwise all assignments give the
    same sum of times: then each RPC gets the choice that ends first.
    """
    behind: dict[int, list[int]] = {}
    for row, fronts in found.items():
        for one in fronts:
            behind.setdefault(one, []).append(row)
    left = {row: set(fronts) for row, fronts in found.items()}
    clear = [row for row, fronts in left.items() if len(fronts) == 1]
    ends = legs.cells if left else []
    for number, first in enumerate([*clear, *sorted(left, key=lambda row: ends[row][1])]):
        queue = [first]
        while queue:
            row = queue.pop()
            choices = left.pop(row, set())
            if not choices:
                continue
            taken = min(choices, key=lambda one: (ends[one][1], one))
            others = [other for other in behind[taken] if taken in left.get(other, ())]
            wanted = any(len(left[other]) == 1 for other in others)  # another leg has no other choice
            joined.parent[row] = taken
            joined.how[row] = AMBIGUOUS if wanted or number >= len(clear) else BY_ORDER
            for other in others:
                left[other].discard(taken)
            queue += [other for other in others if len(left[other]) == 1]
