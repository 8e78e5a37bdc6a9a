"""Join a client's calls with the RPCs of a capture: by the ids of `traceparent`, otherwise by method, status and time.

Without ids, an RPC must lie inside its call and have the call's status. Among several possibilities, calls end in the
order in which their responses arrive.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..summary.span_ids import find_trace, make_ids
from ..tables import NO_METHOD, NOT_SEEN, Ints, Tables
from ..tables.grouping import group_rows
from . import clock
from .assign import Spans, assign, assign_nearest, find_certain
from .record import BY_SERVER, Call, Record
from .wire import Wire, find_calls

NOT_JOINED, EXACT, BY_ORDER, AMBIGUOUS = range(4)
"""How a call is joined: not at all; by ids; by order, with one possibility; with several possibilities."""

RESET_SLACK_NS = 20_000_000
"""Longest time from a call's end in the client to its RST_STREAM on the wire (heuristic: a busy process)."""

_OK = "OK"
_MOST = 0.5
"""Least share of calls answered during a capture that must have an RPC in it; below it, the record is of another run
(heuristic: half, because some contain another call's RPC by chance)."""

_BY_SERVER_CODES = [_core.STATUSES.index(name) for name in BY_SERVER]


class Joined(Struct, eq=False):
    """Calls and their RPCs; columns have a row per call."""

    calls: list[Call]
    source: Ints
    """Number of the call's record."""
    how: Ints
    rows: list[list[int]]
    """Rows of the call's RPCs, the earliest first."""
    start: Ints
    end: Ints
    """Start and end of the calls by the capture's clock, nanoseconds since the epoch."""
    bounds: list[clock.Bounds | None]
    """Bounds of each record's clock offset."""
    wire: Wire
    doubtful: set[int]
    """Calls without an RPC that may belong to RPCs without a call, because neither have ids."""


def join(records: Sequence[Record], tables: Tables) -> Joined:
    """Join the records' calls with RPCs; `tables` must have a row per RPC."""
    wire = find_calls(tables)
    calls, source = _list_calls(records)
    found = _find_by_span(calls, tables, wire)
    calls, source, rows = _merge(calls, source, found, wire)
    bounds: list[clock.Bounds | None] = [None] * len(records)
    joined = Joined(calls, source, np.array([EXACT if some else 0 for some in rows], dtype=np.int64), rows,
                    np.array([one.start_ns for one in calls], dtype=np.int64),
                    np.array([one.end_ns for one in calls], dtype=np.int64), bounds, wire, set())  # fmt: skip
    pools = _Pools(tables, wire, rows)
    for number, record in enumerate(records):
        _join_record(joined, number, record, pools, tables)
    _find_doubtful(joined, pools)
    return joined


def _list_calls(records: Sequence[Record]) -> tuple[list[Call], Ints]:
    """List all calls with the number of their record; a span in several records counts once."""
    seen: set[tuple[int, int]] = set()
    calls, source = [], []
    for number, record in enumerate(records):
        for call in record.calls:
            key = (call.trace, call.span)
            if not call.span or key not in seen:
                seen.add(key)
                calls.append(call)
                source.append(number)
    return calls, np.array(source, dtype=np.int64)


def _find_by_span(calls: Sequence[Call], tables: Tables, wire: Wire) -> dict[int, int]:
    """Find, by row, the call of each RPC that carries the span of a call or of an attempt."""
    own = {
        (call.trace, span): number for number, call in enumerate(calls) for span in (call.span, *call.attempts) if span
    }
    rpcs = tables.rpcs
    rows = np.flatnonzero((wire.call >= 0) & (rpcs.span_id != 0)) if own else np.zeros(0, dtype=np.int64)
    ids = zip(rpcs.trace_high[rows].tolist(), rpcs.trace_low[rows].tolist(), rpcs.span_id[rows].tolist(), strict=True)
    known = (
        (row, own.get((high << 64 | low, span))) for row, (high, low, span) in zip(rows.tolist(), ids, strict=True)
    )
    found = {row: number for row, number in known if number is not None}
    return found | (_find_exported(calls, tables, wire) if any(call.is_exported for call in calls) else {})


def _find_exported(calls: Sequence[Call], tables: Tables, wire: Wire) -> dict[int, int]:
    """Find, by row, the exported span of each RPC."""
    own = {(call.trace, call.span): number for number, call in enumerate(calls) if call.is_exported}
    rows = np.flatnonzero(wire.call >= 0)
    ids = zip(rows.tolist(), make_ids(tables, rows), strict=True)
    known = ((row, own.get((find_trace(tables, row) or trace, span))) for row, (trace, span) in ids)
    return {row: number for row, number in known if number is not None}


def _merge(
    calls: Sequence[Call], source: Ints, found: Mapping[int, int], wire: Wire
) -> tuple[list[Call], Ints, list[list[int]]]:
    """Merge calls that the capture shows to be attempts of one call, each with its own span."""
    owner: dict[int, int] = {}
    same = list(range(len(calls)))
    known = np.fromiter(found, dtype=np.int64, count=len(found))
    order = known[np.argsort(wire.start[known], kind="stable")].tolist()
    for row in order:
        first = owner.setdefault(int(wire.call[row]), found[row])
        if first != found[row] and same[found[row]] == found[row]:
            whole, part = calls[same[first]], calls[found[row]]
            same[found[row]] = same[first]
            whole.start_ns, whole.status = min(whole.start_ns, part.start_ns), part.status
            whole.end_ns = max(whole.end_ns, part.end_ns)
    kept = [number for number in range(len(calls)) if same[number] == number]
    place = {number: at for at, number in enumerate(kept)}
    rows: list[list[int]] = [[] for _ in kept]
    for row in order:
        rows[place[same[found[row]]]].append(row)
    return [calls[number] for number in kept], source[kept], rows


class _Pools:
    """RPCs without a call so far, grouped into calls, by method and by trace."""

    def __init__(self, tables: Tables, wire: Wire, rows: Iterable[Sequence[int]]) -> None:
        taken = {int(wire.call[row]) for some in rows for row in some}
        firsts = [row for row in np.unique(wire.call).tolist() if row >= 0 and row not in taken]
        self.first = np.array(firsts, dtype=np.int64)
        place = np.full(len(wire.call), -1, dtype=np.int64)
        place[self.first] = np.arange(len(firsts))
        mine = np.flatnonzero(np.where(wire.call >= 0, place[wire.call], -1) >= 0)
        mine = mine[np.argsort(wire.start[mine], kind="stable")]
        of = place[wire.call[mine]]
        self.rows: list[list[int]] = [[] for _ in firsts]
        for at, row in zip(of.tolist(), mine.tolist(), strict=True):
            self.rows[at].append(row)
        last = np.array([some[-1] for some in self.rows], dtype=np.int64)
        rpcs = tables.rpcs
        self.start, self.status = wire.start[self.first], rpcs.status[last].astype(np.int64)
        self.answered = (wire.ended[last] == 1) & (wire.by_client[last] == 0)
        self.last_end = wire.end[last]
        early = np.where(self.answered, self.last_end, np.maximum(self.start, self.last_end - RESET_SLACK_NS))
        self.end = np.where(wire.ended[last] == 1, early, self.start)
        """From when on the call may have ended."""
        self.reset = (wire.ended[last] == 1) & (wire.by_client[last] == 1)
        self.trace = [int(rpcs.trace_high[row]) << 64 | int(rpcs.trace_low[row]) for row in firsts]
        self.has_trace = np.array([trace != 0 for trace in self.trace], dtype=np.bool_)
        self.free = np.ones(len(firsts), dtype=np.bool_)
        self.taken: dict[int, int] = {}
        self.methods = _Methods(tables, rpcs.method[self.first].astype(np.int64))
        self.connection = rpcs.connection[self.first].astype(np.int64)


class _Methods:
    """Which RPCs have a method that a record names, whole or without its service."""

    def __init__(self, tables: Tables, number: Ints) -> None:
        names = {method.number: method.name for method in tables.methods}
        self._all = np.arange(len(number))
        self._named: dict[str, list[Ints]] = {}
        self._unnamed: list[Ints] = []
        for one, places in group_rows(number).items():
            name = None if one == NO_METHOD else names.get(int(one))
            if name is None:
                self._unnamed.append(places)
                continue
            for known in (name, name.rpartition("/")[2]):
                self._named.setdefault(known, []).append(places)

    def find(self, method: str | None) -> Ints:
        """Find the positions of RPCs that may have a method; RPCs whose method is unknown may have any."""
        if method is None:
            return self._all
        found = [*self._named.get(method, ()), *self._unnamed]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _join_record(joined: Joined, number: int, record: Record, pools: _Pools, tables: Tables) -> None:
    """Join the calls of one record that ids have not joined; all of them have one clock."""
    mine = np.flatnonzero(joined.source == number)
    if not len(mine):
        return
    reach = _mask_server(pools, record.server, tables)
    exact, left = mine[joined.how[mine] == EXACT], mine[joined.how[mine] != EXACT]
    zone = _choose_zone(joined, mine) if not record.has_zone else 0
    _move(joined, mine, zone)
    bounds = _bound(joined, exact) if len(exact) else _bound_left(joined, left, pools, reach)
    moved = 0
    if bounds:
        moved = bounds.choose() if len(exact) else _choose_offset(joined, left, pools, bounds)
    _move(joined, mine, moved)
    slack = _find_resolution(joined.calls[one] for one in mine.tolist())
    _join_traces(joined, left, pools, slack)
    for has_trace in (True, False):
        some = [one for one in left.tolist() if not joined.how[one] and (joined.calls[one].trace != 0) == has_trace]
        allowed = reach & ~pools.has_trace if has_trace else reach
        for group, places in _list_methods(joined, some, pools):
            _join_group(joined, group, places[allowed[places]], pools, slack)
    if not len(exact) and not _fits(joined, mine, tables):
        _undo(joined, mine, pools)
    found = _bound(joined, mine[joined.how[mine] != NOT_JOINED])
    if moved and not len(exact) and found:
        _move(joined, mine, found.choose_middle())
    bounds = bounds or found
    joined.bounds[number] = bounds and clock.Bounds(bounds.least + zone, bounds.most + zone)


def _move(joined: Joined, numbers: Ints, by_ns: int) -> None:
    joined.start[numbers] += by_ns
    joined.end[numbers] += by_ns


def _choose_zone(joined: Joined, numbers: Ints) -> int:
    """Choose the time zone of times without one, in nanoseconds."""
    wire = joined.wire
    if not len(wire.start):
        return 0
    return clock.choose_zone(joined.start[numbers], joined.end[numbers], int(wire.start.min()), int(wire.end.max()))


def _mask_server(pools: _Pools, server: str | None, tables: Tables) -> npt.NDArray[np.bool_]:
    """Mark RPCs to the server that a record names; all RPCs if none goes there."""
    known = [tables.server(row) == server for row in range(len(tables.connections.rpcs))] if server else []
    there = np.array(known, dtype=np.bool_)[pools.connection] if known else np.zeros(len(pools.start), dtype=np.bool_)
    return there if there.any() else np.ones(len(pools.start), dtype=np.bool_)


def _bound(joined: Joined, numbers: Ints) -> clock.Bounds | None:
    """Bound by joined calls the clock offset that remains after the calls' times were moved."""
    wire = joined.wire
    first = np.array([joined.rows[one][0] for one in numbers.tolist()], dtype=np.int64)
    last = np.array([joined.rows[one][-1] for one in numbers.tolist()], dtype=np.int64)
    received = [joined.calls[one].status in (*BY_SERVER, None) for one in numbers.tolist()]
    answered = (wire.ended[last] == 1) & (wire.by_client[last] == 0) & np.array(received, dtype=np.bool_)
    return clock.bound(joined.start[numbers], joined.end[numbers], wire.start[first], wire.end[last], answered)


def _bound_left(joined: Joined, left: Ints, pools: _Pools, reach: npt.NDArray[np.bool_]) -> clock.Bounds | None:
    """Bound the offset without pairs, if calls and RPCs have one method and the same statuses equally often."""
    method = {joined.calls[one].method for one in left.tolist()}
    if len(method) != 1 or not pools.answered.all():
        return None
    places = pools.methods.find(method.pop())
    places = places[reach[places]]
    statuses = np.sort([_number_status(joined.calls[one].status) for one in left.tolist()])
    if not np.array_equal(statuses, np.sort(pools.status[places])):
        return None
    return clock.bound_without_pairs(joined.start[left], joined.end[left], pools.start[places], pools.end[places])


def _choose_offset(joined: Joined, left: Ints, pools: _Pools, bounds: clock.Bounds) -> int:
    """Choose no offset if all calls then contain an RPC, otherwise the least one.

    The upper bound is far off if all calls waited before they were sent. The middle is chosen once calls are joined.
    """
    if bounds.least <= 0 <= bounds.most:
        calls = Spans(left, joined.start[left], joined.end[left])
        places = pools.methods.find(joined.calls[int(left[0])].method)
        if len(assign(calls, Spans(places, pools.start[places], pools.end[places]))) == len(left):
            return 0
    return bounds.least


def _fits(joined: Joined, mine: Ints, tables: Tables) -> bool:
    """Check whether the record belongs to this capture: most calls answered during the capture have an RPC in it."""
    first, last = tables.capture["first_time_ns"] or 0, tables.capture["last_time_ns"] or 0
    meeting = mine[(joined.end[mine] >= first) & (joined.start[mine] <= last)]
    answered = np.array([one for one in meeting.tolist() if joined.calls[one].status == _OK], dtype=np.int64)
    inside = answered[(joined.start[answered] >= first) & (joined.end[answered] <= last)]
    found = joined.how[inside] != NOT_JOINED
    return bool(found.mean() >= _MOST) if len(inside) else not len(answered)


def _undo(joined: Joined, mine: Ints, pools: _Pools) -> None:
    """Undo the joins of calls."""
    for one in mine.tolist():
        if joined.how[one] != NOT_JOINED:
            joined.how[one], joined.rows[one] = NOT_JOINED, []
            pools.free[pools.taken.pop(one)] = True


def _find_doubtful(joined: Joined, pools: _Pools) -> None:
    """Find calls that the client ended and that may own a remaining RPC: at most as many as RPCs remain."""
    for has_trace in (True, False):
        left = [
            one
            for one in np.flatnonzero(joined.how == NOT_JOINED).tolist()
            if (joined.calls[one].trace != 0) == has_trace and joined.calls[one].status not in BY_SERVER
        ]
        for group, places in _list_methods(joined, left, pools):
            spare = pools.free[places] & ~(pools.has_trace[places] & has_trace)
            joined.doubtful.update(group[: int(spare.sum())])


def _number_status(name: str | None) -> int:
    return NOT_SEEN if name is None else _core.STATUSES.index(name)


def _find_resolution(calls: Iterable[Call]) -> int:
    """Find the unit to which a record's times are rounded, in nanoseconds, to widen its calls by it."""
    unit = int(np.gcd.reduce([one for call in calls for one in (call.start_ns, call.end_ns)]))
    return max((step for step in (1_000, 1_000_000, 1_000_000_000) if unit and unit % step == 0), default=0)


def _join_traces(joined: Joined, left: Ints, pools: _Pools, slack: int) -> None:
    """Join calls that have a trace id but no span id with the RPCs of that trace."""
    calls: dict[int, list[int]] = {}
    for one in left.tolist():
        if joined.calls[one].trace and not joined.calls[one].span:
            calls.setdefault(joined.calls[one].trace, []).append(one)
    places: dict[int, list[int]] = {}
    for at, trace in enumerate(pools.trace):
        if trace in calls:
            places.setdefault(trace, []).append(at)
    for trace, found in places.items():
        if len(calls[trace]) == len(found) == 1:
            _note(joined, calls[trace][0], found[0], EXACT, pools)
        else:
            _join_group(joined, calls[trace], np.array(found), pools, slack)


def _list_methods(joined: Joined, some: Iterable[int], pools: _Pools) -> Iterator[tuple[list[int], Ints]]:
    groups: dict[str | None, list[int]] = {}
    for one in some:
        groups.setdefault(joined.calls[one].method, []).append(one)
    for method, group in groups.items():
        if len(places := pools.methods.find(method)):
            yield group, places


def _join_group(joined: Joined, group: Sequence[int], places: Ints, pools: _Pools, slack: int) -> None:
    """Join calls of one method: first those with the RPC's status, then those that the client may have ended."""
    calls = np.array(group, dtype=np.int64)
    status = np.array([_number_status(joined.calls[one].status) for one in group], dtype=np.int64)
    ended = calls[~np.isin(status, _BY_SERVER_CODES)]
    _join_near(joined, ended, places[pools.reset[places]], pools)
    for code in np.unique(status).tolist():
        same = places if code == NOT_SEEN else places[pools.status[places] == code]
        _join_some(joined, calls[status == code], same, pools, slack, sure=code != NOT_SEEN)
    _join_some(joined, calls, places[pools.status[places] == NOT_SEEN], pools, slack, sure=False)
    for some in (places[~pools.answered[places]], places):
        _join_some(joined, ended, some, pools, slack, sure=False)
    _join_near(joined, ended, places, pools)  # a response may arrive just after the deadline


def _join_near(joined: Joined, calls: Ints, places: Ints, pools: _Pools) -> None:
    """Join calls that the client ended with streams that end at about the same time, because the client resets them."""
    calls, places = calls[joined.how[calls] == NOT_JOINED], places[pools.free[places]]
    own = Spans(calls, joined.start[calls], joined.end[calls])
    there = Spans(places, pools.start[places], pools.last_end[places])
    for call, place in assign_nearest(own, there, RESET_SLACK_NS):
        _note(joined, int(calls[call]), int(places[place]), AMBIGUOUS, pools)


def _join_some(joined: Joined, calls: Ints, places: Ints, pools: _Pools, slack: int, *, sure: bool) -> None:
    calls, places = calls[joined.how[calls] == NOT_JOINED], places[pools.free[places]]
    if not len(calls) or not len(places):
        return
    own = Spans(calls, joined.start[calls] - slack, joined.end[calls] + slack)
    there = Spans(places, pools.start[places], pools.end[places])
    pairs = assign(own, there)
    if not pairs:
        return
    certain = find_certain(own, there, pairs) & (sure and len(pairs) == len(calls) == len(places))
    for (call, place), known in zip(pairs, certain.tolist(), strict=True):
        _note(joined, int(calls[call]), int(places[place]), BY_ORDER if known else AMBIGUOUS, pools)


def _note(joined: Joined, call: int, place: int, how: int, pools: _Pools) -> None:
    joined.how[call], joined.rows[call] = how, list(pools.rows[place])
    pools.free[place] = False
    pools.taken[call] = place
