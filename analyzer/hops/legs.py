"""Join the legs of calls through proxies, and make tables in which each call counts once."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..decode.runner import DecodeOptions, Progress
from ..model.analysis import Hop
from ..model.thresholds import PROXY_RPCS
from ..selection.methods import methods
from ..selection.narrow import Part, narrow, select_rpcs
from ..selection.part import part
from ..selection.reading import Read, read, streams_of
from ..selection.selection import Selection
from ..summary.hops import INSIDE, TRAILERS, Proxy
from ..tables import BEGUN_BEFORE, COMPLETE, Failures, Ints, Mask, Tables
from ..tables.grouping import take_rows
from .describe import describe_hop, note_hop
from .dividing import Held, Messages, divide
from .faults import Fault
from .matching import AMBIGUOUS, EXACT, NONE, Joined, join

_TOGETHER_CALLS = 6
"""Fewest calls whose durations show that both legs go together (heuristic: of fewer, independent ones may)."""
_TOGETHER = 0.2
"""Largest interquartile range of the difference of both durations, as a share of that of the leg behind (heuristic: six
pairs of independent durations stay below it once in 200)."""
_CLOCK_NS = 2_000
"""That range for calls one after the other that hardly vary: the error of four times in microseconds, nanoseconds."""


class Legs(Struct, frozen=True, eq=False):
    """The tables of a capture with joined calls through proxies."""

    tables: Tables
    """Methods and failures count each call once, with its time divided by both legs. Rows of RPCs and connections are
    those of all legs."""
    behind: Tables
    """Only the RPCs of the last legs, to the servers that respond, without those that are under way at a proxy. Methods
    are those of the calls, with the response times of the last legs."""
    hops: tuple[Hop, ...]
    faults: tuple[Fault, ...]
    """Calls whose legs ended differently."""
    failures: Failures
    """Those of all legs: an attempt that failed is no failed call, but its connection's end may be a finding."""
    failure_budgets: Ints
    notes: tuple[str, ...]
    """Sentences about what was joined."""
    parent: Ints
    """Row of each RPC's leg before the proxy; -1 if it has none or is ambiguous."""
    calls: Ints
    """Row of each RPC's first leg, which is its call; its own row if it has no leg before."""
    responding: Mask
    """Whether an RPC is in `behind`."""
    describe: Callable[[Mask], list[tuple[Hop, tuple[Fault, ...]]]]
    """Describes what the proxies did with some of the calls, given all of their legs."""


def read_legs(
    files: Sequence[str], proxies: Sequence[Proxy], progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> Legs | None:
    """Read a capture again and join the legs of calls through some proxies; None when none can be joined.

    Raises CaptureError.
    """
    return join_legs(read(files, Selection(), progress, **how), proxies)


def join_legs(seen: Read, proxies: Sequence[Proxy]) -> Legs | None:
    """Join the legs of all calls through some proxies; None when no leg can be joined."""
    tables = replace(seen.tables, processes=None)  # a proxy's thread is the server of one leg, the client of another
    rpcs = tables.rpcs
    joined = join_rpcs(tables, proxies)
    if not (joined.parent >= 0).any():
        return None
    messages = _find_messages(seen)
    budgets, held = divide(tables, joined, messages)
    tables = replace(tables, rpc_budgets=budgets)
    calls, last = joined.parent < 0, np.ones(len(joined.parent), dtype=bool)
    last[joined.parent[~calls]] = False
    responding = last & (
        (rpcs.flags & COMPLETE != 0) | ~np.isin(rpcs.connection, np.concatenate([one.front for one in proxies]))
    )
    counted = methods(tables, calls, seen)

    def describe(mine: Mask) -> list[tuple[Hop, tuple[Fault, ...]]]:
        found = ((one, of) for one in proxies for of in _of(tables, held, one, mine))
        return [describe_hop(tables, one, of, joined, messages) for one, of in found]

    described = describe(np.ones(len(calls), dtype=bool))
    return Legs(
        tables=_count_once(tables, calls, last, counted),
        behind=_take_last(tables, responding, counted, seen),
        hops=tuple(hop for hop, _ in described),
        faults=tuple(fault for _, faults in described for fault in faults),
        failures=tables.failures,
        failure_budgets=tables.failure_budgets,
        notes=tuple(note_hop(tables, hop) for hop, _ in described),
        parent=joined.sure_parent,
        calls=_find_calls(joined.parent),
        responding=responding,
        describe=describe,
    )


def join_rpcs(tables: Tables, proxies: Sequence[Proxy]) -> Joined:
    """Join the RPCs behind some proxies with those before them, of tables with a row per RPC."""
    fronts = {int(one.front[0]): one.front for one in proxies}
    behind = {first: [one.back for one in proxies if one.front[0] == first] for first in fronts}
    pairs = [(_find_rows(tables, fronts[first]), _find_rows(tables, *behind[first])) for first in fronts]
    joined = join(tables.rpcs, pairs)
    for first in fronts:
        _reject(tables, joined, [one for one in proxies if one.front[0] == first])
    return joined


def select_legs(legs: Legs, chosen: Selection) -> Legs:
    """Describe only what the proxies did with the selected calls. Raises NarrowError when there are none."""
    described = legs.describe(select_rpcs(legs.tables, chosen, legs.calls))
    faults = tuple(fault for _, some in described for fault in some)
    return replace(legs, hops=tuple(hop for hop, _ in described), faults=faults)


def narrow_legs(tables: Tables, legs: Legs, seen: Read, chosen: Selection) -> Part:
    """Take the selected calls of `tables`, which are those of `legs`, perhaps with a sidecar. Raises NarrowError."""
    part = narrow(tables, seen, chosen, legs.calls)
    behind = select_rpcs(tables, chosen, legs.calls) & legs.responding
    return replace(part, servers=_take_last(tables, behind, part.tables.methods, seen))


def _find_calls(parent: Ints) -> Ints:
    calls = np.arange(len(parent))
    while (inner := parent[calls] >= 0).any():
        calls = np.where(inner, parent[calls], calls)
    return calls


def _find_rows(tables: Tables, *connections: Ints) -> Ints:
    return np.flatnonzero(np.isin(tables.rpcs.connection, np.concatenate(connections)))


def _reject(tables: Tables, joined: Joined, proxies: Sequence[Proxy]) -> None:
    """Undo what was joined behind one proxy without identifiers where too few RPCs on either side have another leg.

    If one client may call both servers, identifiers do not suffice, ambiguous legs do not count, and both legs must go
    together.
    """
    front, backs = _find_rows(tables, proxies[0].front), [_find_rows(tables, one.back) for one in proxies]
    fitting = [back[np.isin(joined.parent[back], front)] for back in backs]
    few = sum(map(len, fitting)) < PROXY_RPCS
    for proxy, back, mine in zip(proxies, backs, fitting, strict=True):
        clear = mine[joined.how[mine] != AMBIGUOUS] if proxy.one_client else mine
        if not len(mine) or (not proxy.one_client and (joined.how[mine] == EXACT).any()):
            continue
        behind, before = _find_concurrent(tables, front, back)
        apart = proxy.one_client and not _go_together(tables, joined, clear)
        passed_on = np.isin(before, joined.parent[joined.how != AMBIGUOUS] if proxy.one_client else joined.parent)
        if few or apart or len(clear) < INSIDE * len(behind) or passed_on.sum() < INSIDE * len(before):
            joined.parent[mine], joined.how[mine] = -1, NONE


def _go_together(tables: Tables, joined: Joined, back: Ints) -> bool:
    """Check whether legs have the same spans, or a leg before the proxy takes longer whenever the one behind it does.

    A client gives each RPC a span of its own (W3C Trace Context section 3.3.1.4), and two servers vary independently.
    """
    rpcs, front = tables.rpcs, joined.parent[back]
    spans = [getattr(rpcs, name) for name in ("trace_high", "trace_low", "span_id")]
    if rpcs.span_id[back].all() and all((column[front] == column[back]).all() for column in spans):
        return True
    whole = (rpcs.status_source[front] == TRAILERS) & (rpcs.status_source[back] == TRAILERS)
    behind, before = rpcs.duration_ns[back[whole]], rpcs.duration_ns[front[whole]]
    if len(behind) < _TOGETHER_CALLS:
        return False
    spread, rest = (np.subtract(*np.quantile(times, (0.75, 0.25))) for times in (behind, before - behind))
    in_turn = (
        np.sort(rpcs.start_time_ns[front])[1:] >= np.sort(rpcs.start_time_ns[front] + rpcs.duration_ns[front])[:-1]
    )
    return bool(rest < _TOGETHER * spread or (in_turn.all() and rest <= _CLOCK_NS))


def _find_concurrent(tables: Tables, front: Ints, back: Ints) -> tuple[Ints, Ints]:
    """Find the RPCs that must have another leg: complete ones behind the proxy, and those before it that went well.

    Only while both sides have RPCs. If none before the proxy went well, the others count.
    """
    rpcs = tables.rpcs
    ends, complete = rpcs.start_time_ns + rpcs.duration_ns, rpcs.flags & COMPLETE != 0
    behind = back[complete[back] & (rpcs.start_time_ns[back] <= ends[front].max())]
    behind = behind[rpcs.start_time_ns[behind] >= rpcs.start_time_ns[front].min()]
    before = front[complete[front] & (ends[front] >= rpcs.start_time_ns[back].min())]
    before = before[rpcs.start_time_ns[before] <= ends[back].max()]
    well = before[rpcs.status[before] == 0]
    return behind, well if len(well) else before


def _of(tables: Tables, found: Sequence[Held], proxy: Proxy, chosen: Mask) -> list[Held]:
    """Take the chosen calls through one proxy, none without any."""
    if not found:
        return []
    held = Held(*(np.concatenate([getattr(one, name) for one in found]) for name in Held.__struct_fields__))
    connection = tables.rpcs.connection
    mine = (
        chosen[held.front] & np.isin(connection[held.front], proxy.front) & np.isin(connection[held.first], proxy.back)
    )
    return [take_rows(held, mine)] if mine.any() else []


def _find_messages(seen: Read) -> Messages:
    """Find the first messages of each RPC, and the end of its request."""
    rpcs = seen.tables.rpcs
    streams = streams_of(rpcs.connection, rpcs.stream)
    order = np.argsort(streams, kind="stable")
    asks = seen.turns[1] > 0
    place, known = _look_up(seen.turns[0], streams, order)
    by_time = np.flatnonzero(asks & known)[::-1]  # reversed: of several rows of a stream, the first message wins
    start, ends = rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns
    messages = Messages(start.copy(), rpcs.first_packet.astype(np.int64), start.copy(), ends)
    messages.first_ns[place[by_time]] = seen.turns[2][by_time]
    messages.first_packet[place[by_time]] = seen.turns[1][by_time]
    np.maximum.at(messages.last_ns, place[by_time], seen.turns[2][by_time])
    answers = np.flatnonzero(known & ~asks)
    np.minimum.at(messages.answered_ns, place[answers], seen.turns[2][answers])
    place, known = _look_up(seen.request_ends[0], streams, order)
    np.maximum.at(messages.last_ns, place[known], seen.request_ends[1][known])
    return messages


def _look_up(keys: Ints, streams: Ints, order: Ints) -> tuple[Ints, Mask]:
    """Find the rows of streams, and a mask of the keys that have one."""
    place = order[np.minimum(np.searchsorted(streams[order], keys), len(order) - 1)]
    return place, streams[place] == keys


def _count_once(tables: Tables, calls: Mask, last: Mask, counted: tuple[Any, ...]) -> Tables:
    """Make tables that count calls instead of legs, and list only the open RPCs of last legs."""
    rpcs, failures, open_rpcs = tables.rpcs, tables.failures, tables.open_rpcs
    mine = calls[failures.rpc]
    connection_budgets = np.zeros_like(tables.connection_budgets)
    np.add.at(connection_budgets, rpcs.connection.astype(np.int64), tables.rpc_budgets)
    streams = streams_of(rpcs.connection, rpcs.stream)
    waiting = ~np.isin(streams_of(open_rpcs.connection, open_rpcs.stream), streams[~last])
    return replace(
        tables,
        connection_budgets=connection_budgets,
        rpcs=replace(rpcs, previous_attempts=np.where(calls, rpcs.previous_attempts, 0).astype(np.uint8)),
        methods=counted,
        failures=take_rows(failures, mine),
        failure_budgets=tables.failure_budgets[mine] if len(tables.failure_budgets) else tables.failure_budgets,
        open_rpcs=take_rows(open_rpcs, waiting),
        message_count=sum(method.messages for method in counted),
        begun_before=int((rpcs.flags[calls] & BEGUN_BEFORE != 0).sum()),
    )


def _take_last(tables: Tables, last: Mask, counted: tuple[Any, ...], seen: Read) -> Tables:
    """Make tables of the last legs; methods count calls, with the response times of the last legs."""
    everywhere = np.ones(len(tables.connections.rpcs), dtype=bool)
    responses = {method.number: method for method in methods(tables, last, seen)}
    mixed = tuple(
        replace(
            method,
            turnaround=responses[method.number].turnaround,
            turnaround_intervals=responses[method.number].turnaround_intervals,
        )
        if method.number in responses
        else method
        for method in counted
    )
    others = np.ones(len(tables.other_requests.connection), dtype=bool)
    return part(tables, last, everywhere, mixed, seen, everywhere, others)
