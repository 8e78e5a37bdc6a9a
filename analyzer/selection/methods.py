"""Recompute the figures of methods for some of the RPCs."""

import numpy as np
from msgspec.structs import replace

from ..decode.disk_columns import gathered
from ..summary.quantiles import Durations, interval_of, quantiles_of
from ..tables import BEGUN_BEFORE, COMPLETE, END_MISSING, TOUCHES_GAP, Ints, Mask, Method, Tables
from ..tables.durations import totals_ns
from ..tables.grouping import group_rows
from .reading import BITS, Read, streams_of

LATE_END_NS = 1_000_000
"""Least time from a request's last message to its END_STREAM that makes the response wait for that (call.rs)."""


def methods(tables: Tables, mine: Mask, seen: Read) -> tuple[Method, ...]:
    """Compute the methods of the RPCs `mine`, with the figures of only these."""
    keys, turnarounds = _measure_response_times(seen, tables.connections.near_server_rtt_ns)
    rpcs = tables.rpcs
    chosen = np.flatnonzero(mine)
    streams = streams_of(rpcs.connection[chosen], rpcs.stream[chosen])
    order = np.argsort(streams, kind="stable")
    at = order[np.minimum(np.searchsorted(streams[order], keys), len(order) - 1)]
    row = chosen[at]
    known = (streams[at] == keys) & (rpcs.flags[row] & TOUCHES_GAP == 0)
    row, turnarounds = row[known], turnarounds[known]
    rows_of, turns_of = group_rows(rpcs.method[chosen]), group_rows(rpcs.method[row])
    none = np.zeros(0, dtype=np.int64)
    return tuple(
        _compute_method(tables, method, chosen[rows_of[method.number]], turnarounds[turns_of.get(method.number, none)])
        for method in tables.methods
        if method.number in rows_of
    )


def _compute_method(tables: Tables, method: Method, rows: Ints, turnarounds: Durations) -> Method:
    rpcs = tables.rpcs
    flags, start, duration = rpcs.flags[rows], rpcs.start_time_ns[rows], rpcs.duration_ns[rows]
    last = len(method.statuses) - 1
    complete = flags & COMPLETE != 0
    latencies = duration[complete & (flags & BEGUN_BEFORE == 0)]
    return replace(
        method,
        rpcs=len(rows),
        complete=int(complete.sum()),
        touch_gaps=int((flags & TOUCHES_GAP != 0).sum()),
        end_missing=int((flags & END_MISSING != 0).sum()),
        statuses=tuple(np.bincount(np.minimum(rpcs.status[rows], last), minlength=last + 1).tolist()),
        first_start_ns=int(start.min()),
        last_end_ns=int((start + duration).max()),
        latency=quantiles_of(latencies),
        latency_intervals=interval_of(latencies),
        messages=int(
            gathered(rpcs.request_messages, rows).sum(dtype=np.int64)
            + gathered(rpcs.response_messages, rows).sum(dtype=np.int64)
        ),
        budget=totals_ns(gathered(tables.rpc_budgets, rows)),
        turnaround=quantiles_of(turnarounds),
        turnaround_intervals=interval_of(turnarounds),
    )


def _measure_response_times(seen: Read, round_trips: Ints) -> tuple[Ints, Durations]:
    """Measure response times, from the end of a request message to the begin of the next response message.

    The request's END_STREAM counts as the end where it comes clearly later. `round_trips` are those to the server, by
    connection.
    """
    keys, packet, time = seen.turns
    order = np.lexsort((np.abs(packet), keys))
    keys, packet, time = keys[order], packet[order], time[order]
    answers = np.flatnonzero((packet[1:] < 0) & (packet[:-1] > 0) & (keys[1:] == keys[:-1])) + 1
    keys, since, until = keys[answers], time[answers - 1], time[answers]
    streams, ends = seen.request_ends
    if len(streams):
        by_stream = np.argsort(streams, kind="stable")
        at = by_stream[np.minimum(np.searchsorted(streams[by_stream], keys), len(streams) - 1)]
        late = ends[at] - since > np.maximum(round_trips[keys >> BITS], LATE_END_NS)
        since = np.where((streams[at] == keys) & late & (ends[at] <= until), ends[at], since)
    return keys, np.maximum(until - since, 0)
