"""Assign what is inside what: RPCs to the calls that began before them and ended after them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints

_LIVE = 65_536
"""RPCs that ended and wait for their call at once (heuristic: more than any client delivers late; bounds the time)."""


class Spans(Struct, eq=False):
    """Intervals with the numbers by which they are known."""

    numbers: Ints
    start: Ints
    end: Ints


def assign(calls: Spans, rpcs: Spans) -> list[tuple[int, int]]:
    """Assign as many RPCs to calls that contain them as possible; positions of both, in the order of calls' ends.

    Each call, in the order of ends, takes the earliest RPC that ended in it and began after it. No assignment has more
    pairs: an RPC that began later suits every call that a chosen one suits.
    """
    live: list[tuple[int, int]] = []
    pairs: list[tuple[int, int]] = []
    by_end = np.argsort(rpcs.end, kind="stable").tolist()
    starts, ends = rpcs.start.tolist(), rpcs.end.tolist()
    begins, next_rpc = calls.start.tolist(), 0
    for call in np.lexsort((calls.start, calls.end)).tolist():
        until = int(calls.end[call])
        while next_rpc < len(by_end) and ends[by_end[next_rpc]] <= until:
            rpc = by_end[next_rpc]
            insort(live, (starts[rpc], rpc))
            next_rpc += 1
        if len(live) > _LIVE:
            del live[: -_LIVE // 2]
        at = bisect_left(live, (begins[call], -1))
        if at < len(live):
            pairs.append((call, live.pop(at)[1]))
    return pairs


def find_certain(calls: Spans, rpcs: Spans, pairs: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Find the pairs that every assignment of the same calls and RPCs has: the order of ends or of starts forces them.

    When no later RPC ended before the call did, and none earlier is left, only one RPC can be the call's.
    """
    some = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    call_start, call_end = calls.start[some[:, 0]], calls.end[some[:, 0]]
    start, end = rpcs.start[some[:, 1]], rpcs.end[some[:, 1]]
    return _find_alone(call_end, end) | _find_alone(start, call_start)


def _find_alone(outer: Ints, inner: Ints) -> npt.NDArray[np.bool_]:
    """Find pairs, by `outer`, before which all inner values are before them and after which all are after them."""
    order = np.argsort(outer, kind="stable")
    later = np.minimum.accumulate(inner[order][::-1])[::-1]
    cut = np.append(later[1:] > outer[order][:-1], True)
    alone = np.zeros(len(outer), dtype=np.bool_)
    alone[order] = cut & np.append(True, cut[:-1])
    return alone


def assign_nearest(calls: Spans, rpcs: Spans, most_ns: int) -> list[tuple[int, int]]:
    """Assign RPCs to calls that began before them and ended at about the same time, the nearest ends first."""
    order = np.argsort(calls.end, kind="stable")
    ends = calls.end[order]
    found: list[tuple[int, int, int]] = []
    for rpc, at in enumerate(np.searchsorted(ends, rpcs.end).tolist()):
        for call in order[max(0, at - _NEAR) : at + _NEAR].tolist():
            apart = abs(int(rpcs.end[rpc] - calls.end[call]))
            if apart <= most_ns and calls.start[call] <= rpcs.start[rpc] <= calls.end[call]:
                found.append((apart, call, rpc))
    pairs: list[tuple[int, int]] = []
    taken_calls, taken_rpcs = set[int](), set[int]()
    for _, call, rpc in sorted(found):
        if call not in taken_calls and rpc not in taken_rpcs:
            taken_calls.add(call)
            taken_rpcs.add(rpc)
            pairs.append((call, rpc))
    return pairs


_NEAR = 16
"""Calls looked at that ended before an RPC did, and after (heuristic: more do not end together; bounds the time)."""
