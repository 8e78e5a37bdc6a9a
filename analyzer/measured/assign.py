"""Assign RPCs to the calls that contain them: those that began before them and ended after them."""

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints

_LIVE = 65_536
"""Most ended RPCs without a call at one time (heuristic: more than any client delivers late; bounds the work)."""


class Spans(Struct, eq=False):
    """Intervals in nanoseconds since the epoch, each with a number that identifies it."""

    numbers: Ints
    start: Ints
    end: Ints


def assign(calls: Spans, rpcs: Spans) -> list[tuple[int, int]]:
    """Assign as many RPCs as possible to calls that contain them; return positions of both, by ends of calls.

    Each call, in the order of ends, takes the RPC that began first among those inside it. No assignment has more pairs:
    an RPC that began later fits into every call of the same or a later end that the taken one fits into.
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
    """Mark pairs that every assignment of these calls and RPCs contains, because the order of ends or starts forces it.

    If no later RPC ended before the call, and no earlier RPC is left, only one RPC can belong to the call.
    """
    some = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    call_start, call_end = calls.start[some[:, 0]], calls.end[some[:, 0]]
    start, end = rpcs.start[some[:, 1]], rpcs.end[some[:, 1]]
    return _find_alone(call_end, end) | _find_alone(start, call_start)


def _find_alone(outer: Ints, inner: Ints) -> npt.NDArray[np.bool_]:
    """Mark pairs whose inner value cannot belong to a neighbour.

    In the order of `outer`: all later inner values exceed the pair's outer value, and its own exceeds the one before.
    """
    order = np.argsort(outer, kind="stable")
    later = np.minimum.accumulate(inner[order][::-1])[::-1]
    cut = np.append(later[1:] > outer[order][:-1], True)
    alone = np.zeros(len(outer), dtype=np.bool_)
    alone[order] = cut & np.append(True, cut[:-1])
    return alone


def assign_nearest(calls: Spans, rpcs: Spans, most_ns: int) -> list[tuple[int, int]]:
    """Assign RPCs to calls that began before them and ended within `most_ns` of them, the nearest ends first."""
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
"""Calls compared on each side of an RPC's end (heuristic: more do not end together; bounds the work)."""
