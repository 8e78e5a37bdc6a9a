"""Compute the figures of a report from joined calls."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from .. import _core
from ..model.analysis import Quantiles
from ..model.budget import named
from ..model.client import BACKOFF, DELIVERY, QUEUE, ClientFacts, ClientJoined, ClientQueue, ClientSource, ClockBounds
from ..summary.quantiles import make_quantiles, quantiles_of
from ..tables import Ints, Tables
from ..tables.durations import total_ns, totals_ns
from .join import AMBIGUOUS, BY_ORDER, EXACT, Joined, join
from .record import BY_SERVER, Record
from .times_of_calls import CallTimes, divide, measure_full

WORTH_NAMING_NS = 1_000_000
"""Shortest wait of a call that counts as queued (heuristic: shorter ones come from the scheduler)."""
_AT_CLIENT = _core.VANTAGES.index("client")


def describe_client(named_records: Sequence[tuple[str, Record]], tables: Tables) -> ClientFacts:
    """Join records, each with its file's name, with the RPCs of a capture; `tables` must have a row per RPC."""
    joined = join([record for _, record in named_records], tables)
    times = divide(joined)
    never, outside = _judge_others(joined, tables)
    ended = times.ended
    statuses = Counter(joined.calls[one].status or "unknown" for one in never.tolist())
    how = np.bincount(joined.how, minlength=4)
    wire = joined.wire
    return ClientFacts(
        calls=len(joined.calls),
        on_wire=len(times.number),
        never_on_wire=len(never),
        outside_capture=outside,
        never_on_wire_statuses=dict(sorted(statuses.items())),
        attempts=int(times.attempts.sum()),
        rpcs_without_call=int((wire.call >= 0).sum()) - int(times.attempts.sum()),
        joined=ClientJoined(int(how[EXACT]), int(how[BY_ORDER]), int(how[AMBIGUOUS])),
        at_client=bool((tables.connections.vantage[tables.rpcs.connection[times.first]] == _AT_CLIENT).all()),
        clock_offset_ns=_combine_bounds(joined),
        call_ns=_summarize((joined.end - joined.start)[times.number]),
        before_wire_ns=_summarize(times.before),
        on_wire_ns=_summarize(times.on_wire[ended]),
        between_attempts_ns=_summarize(times.between[ended & (times.attempts > 1)]),
        after_wire_ns=_summarize(times.after[ended]),
        budget=_sum_budget(joined, times, tables),
        queues=_list_queues(joined, times, tables),
        sources=tuple(ClientSource(name, record.format, len(record.calls)) for name, record in named_records),
    )


def _summarize(durations: Ints) -> Quantiles | None:
    return make_quantiles(quantiles_of(durations, reached=True))


def _combine_bounds(joined: Joined) -> ClockBounds | None:
    """Combine the bounds of all records; None when they contradict each other."""
    known = [one for one in joined.bounds if one]
    if not known:
        return None
    least, most = max(one.least for one in known), min(one.most for one in known)
    return ClockBounds(least, most) if least <= most or len(known) == 1 else None


def _judge_others(joined: Joined, tables: Tables) -> tuple[Ints, int]:
    """Find calls without an RPC that never reached the wire, and count those that the capture may lack."""
    left = np.flatnonzero(joined.how == 0)
    first, last = tables.capture["first_time_ns"], tables.capture["last_time_ns"]
    if first is None or last is None or not len(left):
        return left[:0], len(left)
    answered = np.array([joined.calls[one].status in BY_SERVER for one in left.tolist()], dtype=np.bool_)
    start, end = joined.start[left], joined.end[left]
    connections = tables.connections
    carrying = connections.rpcs > 0
    before, behind = start < first, end > last
    begins_late = bool((carrying & (connections.complete == 0)).any() or (answered & before).any())
    ends_early = bool((carrying & (connections.closed_time_ns < 0)).any() or (answered & behind).any())
    doubtful = np.isin(left, list(joined.doubtful))
    outside = answered | doubtful | (before & begins_late) | (behind & ends_early)
    if not joined.how.any():
        outside |= (end < first) | (start > last)
    return left[~outside], int(outside.sum())


def _sum_budget(joined: Joined, times: CallTimes, tables: Tables) -> dict[str, int]:
    """Sum up the time of the calls by cause; time on the wire has the causes of the RPCs."""
    ended = times.ended
    rows = [row for one in times.number[ended].tolist() for row in joined.rows[one]]
    wire = totals_ns(tables.rpc_budgets[rows]) if rows else (0,) * len(_core.CAUSES)
    own = {QUEUE: times.before, BACKOFF: times.between, DELIVERY: times.after}
    sums = {cause: total_ns(durations[ended]) for cause, durations in own.items()}
    found = {QUEUE: sums.pop(QUEUE), **named(wire), **sums}
    return {cause: ns for cause, ns in found.items() if ns > 0}


def _list_queues(joined: Joined, times: CallTimes, tables: Tables) -> tuple[ClientQueue, ...]:
    """List the connections that calls waited for, and why."""
    connection = tables.rpcs.connection[times.first].astype(np.int64)
    found = [
        queue
        for one in np.unique(connection).tolist()
        for queue in _find_queues(joined, times, np.flatnonzero(connection == one), one, tables)
    ]
    return tuple(sorted(found, key=lambda queue: (-queue.waiting_ns, queue.connection, queue.reason)))


def _find_queues(
    joined: Joined, times: CallTimes, mine: Ints, connection: int, tables: Tables
) -> Iterator[ClientQueue]:
    since, until = joined.start[times.number[mine]], joined.wire.start[times.first[mine]]
    limit = int(tables.connections.peer_max_concurrent_streams[connection])
    full = measure_full(tables, joined, connection, limit)
    if full is not None:
        yield from _make_queue(connection, "max_concurrent_streams", limit, full.measure(since, until))
    if tables.connections.complete[connection]:
        ready = int(joined.wire.start[tables.rpcs.connection == connection].min())
        waited = np.minimum(until, ready) - np.minimum(since, ready)
        yield from _make_queue(connection, "connection_setup", None, waited)


def _make_queue(connection: int, reason: str, streams: int | None, waited: Ints) -> Iterator[ClientQueue]:
    long = waited[waited >= WORTH_NAMING_NS]
    if len(long):
        yield ClientQueue(connection, reason, streams, len(long), total_ns(long), int(long.max()))
