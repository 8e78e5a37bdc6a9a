"""Find the RPC before a proxy of which an RPC behind it is the continuation: the leg in front of each leg behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import BEGUN_BEFORE, COMPLETE, NO_METHOD, Codes, Ints, Rpcs
from ..tables.grouping import group_rows

NONE, EXACT, BY_ORDER, AMBIGUOUS = range(4)
"""How a leg was joined: not at all; by an identifier that both legs carry; by sizes and times, which leave one way
only; by sizes and times, which leave several."""

LONGEST_NS = 1 << 53
"""Longest RPC that is joined: 104 days, so that no sum of times overflows."""

_MOST_OPEN = 64
"""RPCs open at once among which one is looked for (heuristic: bounds the work; above it sizes decide nothing)."""

_TRAILERS = 1
"""`Rpcs.status_source` of RPCs that their server ended with trailers."""

_Key = Callable[[int], Any]
_Mask = npt.NDArray[np.bool_]


class Joined(Struct, frozen=True, eq=False):
    """For each RPC its leg before the proxy."""

    parent: Ints
    """Row of the RPC before the proxy, -1 for none."""
    how: Codes
    """`NONE`, `EXACT`, `BY_ORDER` or `AMBIGUOUS`."""

    @property
    def sure_parent(self) -> Ints:
        """Return `parent` without those that are ambiguous."""
        return np.where(self.how == AMBIGUOUS, -1, self.parent)


def join(rpcs: Rpcs, pairs: Sequence[tuple[Ints, Ints]]) -> Joined:
    """Join RPCs to proxies with those to the servers behind them.

    A pair has the rows before one proxy, and those to all servers behind it.
    """
    parent = np.full(len(rpcs.connection), -1, dtype=np.int64)
    how = np.zeros(len(parent), dtype=np.uint8)
    legs = _Legs(rpcs)
    for front, back in pairs:
        rows = back[(parent[back] < 0) & legs.usable[back]]
        _join_pair(legs, front[legs.usable[front]], rows, parent, how)
    return Joined(parent, how)


class _Legs:
    """The columns that decide, as lists: single cells of numpy arrays are slow."""

    def __init__(self, rpcs: Rpcs) -> None:
        ended = rpcs.flags & COMPLETE != 0
        known = (rpcs.method != NO_METHOD) & (rpcs.flags & BEGUN_BEFORE == 0)
        self.usable: _Mask = known & (rpcs.duration_ns <= LONGEST_NS)
        self.start: list[int] = rpcs.start_time_ns.tolist()
        self.end: list[int] = (rpcs.start_time_ns + rpcs.duration_ns).tolist()
        # a call that was cut may go on behind the proxy
        self.cut: list[bool] = (~ended | (rpcs.status_source != _TRAILERS)).tolist()
        self.failed: list[bool] = (rpcs.status != 0).tolist()
        self.method: list[int] = rpcs.method.tolist()
        self.trace = list(zip(rpcs.trace_high.tolist(), rpcs.trace_low.tolist(), strict=True))
        self.span: list[int] = rpcs.span_id.tolist()
        self.request_id: list[int] = rpcs.request_id.tolist()
        self.attempt: list[int] = rpcs.previous_attempts.tolist()
        self.sent: list[int] = rpcs.request_bytes.tolist()
        self.received: list[int] = rpcs.response_bytes.tolist()

    def may_be(self, front: int, back: int) -> bool:
        """Check whether one lies inside the other, and no identifier of theirs differs."""
        if not self.start[front] < self.start[back] or (self.end[front] < self.end[back] and not self.cut[front]):
            return False
        traces, ids = (self.trace[front], self.trace[back]), (self.request_id[front], self.request_id[back])
        same = (traces[0] == traces[1] or _NO_TRACE in traces) and (ids[0] == ids[1] or 0 in ids)
        return same and self.attempt[front] == self.attempt[back]

    def by_span(self, row: int) -> Any:
        return (self.method[row], self.trace[row], self.span[row]) if self.span[row] else None

    def by_request(self, row: int) -> Any:
        return (self.method[row], self.request_id[row]) if self.request_id[row] else None

    def by_trace(self, row: int) -> Any:
        return (self.method[row], self.trace[row]) if self.trace[row] != _NO_TRACE else None

    def by_sizes(self, row: int) -> Any:
        return self.method[row], self.sent[row], self.received[row]

    def by_request_size(self, row: int) -> Any:
        return self.method[row], self.sent[row]


_NO_TRACE = (0, 0)


def _join_pair(legs: _Legs, front: Ints, back: Ints, parent: Ints, how: Codes) -> None:
    rest = back.tolist()
    for key in (legs.by_span, legs.by_request, legs.by_trace):
        for row, found in _find_fronts(legs, key, front.tolist(), rest):
            if len(found) == 1:
                parent[row], how[row] = found[0], EXACT
        rest = [row for row in rest if parent[row] < 0]
    taken = set(parent[back].tolist())
    free = [row for row in front.tolist() if row not in taken]
    _assign_by_order(legs, dict(_find_fronts(legs, legs.by_sizes, free, rest)), parent, how)
    # an attempt that failed behind the proxy, or a call that was cut, has other sizes than its other leg
    rest = [row for row in rest if parent[row] < 0]
    for row, found in _find_fronts(legs, legs.by_request_size, front.tolist(), rest):
        likely = [one for one in found if legs.failed[row] or legs.failed[one]]
        if len(likely) == 1:
            parent[row], how[row] = likely[0], BY_ORDER


def _find_fronts(legs: _Legs, key: _Key, front: list[int], back: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Find for each RPC behind the proxy those before it with the same key that it may belong to."""
    numbers: dict[Any, int] = {}
    groups = [
        group_rows(np.array([numbers.setdefault(key(row), len(numbers)) for row in rows], dtype=np.int64))
        for rows in (front, back)
    ]
    none = numbers.get(None)
    for number, inner in groups[1].items():
        if number == none or number not in groups[0]:
            continue
        outer = sorted((front[place] for place in groups[0][number].tolist()), key=legs.start.__getitem__)
        yield from _sweep(legs, outer, sorted((back[place] for place in inner.tolist()), key=legs.start.__getitem__))


def _sweep(legs: _Legs, front: list[int], back: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Go through both in the order of their starts, with those before the proxy that are open."""
    open_ones: list[tuple[int, int]] = []  # a heap by the time of their end
    begun = 0
    for row in back:
        now = legs.start[row]
        while begun < len(front) and legs.start[front[begun]] <= now:
            heappush(open_ones, (legs.end[front[begun]], front[begun]))
            begun += 1
        while open_ones and open_ones[0][0] < now:
            heappop(open_ones)
        found = [one for _, one in open_ones if legs.may_be(one, row)] if len(open_ones) <= _MOST_OPEN else []
        if found:
            yield row, found


def _assign_by_order(legs: _Legs, found: dict[int, list[int]], parent: Ints, how: Codes) -> None:
    """Assign each RPC behind the proxy another one before it, as long as one of them has one choice only.

    If the whole assignment can be made in one way only, there always is such an RPC. Where there are several ways, all
    give the same sum of times: then each gets the one that ends first.
    """
    behind: dict[int, list[int]] = {}
    for row, fronts in found.items():
        for one in fronts:
            behind.setdefault(one, []).append(row)
    left = {row: set(fronts) for row, fronts in found.items()}
    clear = [row for row, fronts in left.items() if len(fronts) == 1]
    for number, first in enumerate([*clear, *sorted(left, key=legs.end.__getitem__)]):
        queue = [first]
        while queue:
            row = queue.pop()
            choices = left.pop(row, set())
            if not choices:
                continue
            taken = min(choices, key=legs.end.__getitem__)
            others = [other for other in behind[taken] if taken in left.get(other, ())]
            wanted = any(len(left[other]) == 1 for other in others)  # by another one, which has no other choice
            parent[row], how[row] = taken, AMBIGUOUS if wanted or number >= len(clear) else BY_ORDER
            for other in others:
                left[other].discard(taken)
            queue += [other for other in others if len(left[other]) == 1]
