"""RPCs ended after the same time: a timer ended them.

What it finds
-------------
RPCs fail after the same duration, or after the same silence, though they began at different moments. A timer of the
server or of a proxy ends them: nginx's `grpc_read_timeout`, HAProxy's `timeout server`, Envoy's `stream_idle_timeout`
and route timeout.

The report gives the time, how equal it is, and the settings with that default.

How it is decided
-----------------
Only ends that no handler writes count: RST_STREAM, END_STREAM without `grpc-status`, HTTP 408 or 504, and from Apache
503. `UNAVAILABLE`, `CANCELLED` or `DEADLINE_EXCEEDED` in trailers count when messages flowed until then. At least three
such RPCs, and at least half of them, have the same longest silence or the same duration, within 5 %. A silence counts
if the RPC ended with it: a timer of that length would have ended the stream at an earlier one. The time is at least
100 ms and three round trips: an error that is returned at once takes one round trip each time.

nginx resets a stream with PROTOCOL_ERROR after a timer of its client's side, and with INTERNAL_ERROR after one of its
backend's. Only the timers of that side are listed.

RPCs that ended at their own `grpc-timeout`, that their client cancelled, that ended with their connection, or whose
status the capture lacks do not count, and neither do RPCs that all ended at one moment.

When it cannot tell
-------------------
A handler that works equally long and then breaks its stream looks the same. Behind a proxy the timer may be the
proxy's or the server's: what is visible is the end of the connection that sent it. Where the capture lacks packets, a
silence may not be one.

What would refute it
--------------------
The server's log has an error of its own at these times, or no setting on the way has this time.

What to do
----------
Find the timer of that length at the end that closed the streams. Make it longer than the longest pause of the
application, or send messages more often; HTTP/2 PINGs do not reset stream timers. For calls that may last, set a
deadline at the client: then both ends know it.

References
----------
- nginx, module ngx_http_grpc_module: grpc_read_timeout
- HAProxy, configuration manual: timeout server, timeout client
- Envoy, FAQ: how do I configure timeouts
- https://grpc.io/docs/guides/deadlines/
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import draining, software_at, timeouts
from ..facts import failures as common
from ..facts.failures import Failed
from ..facts.hosts import name_hosts, number_servers, pick_apart
from ..facts.ratings import lower, quality_allows
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import duration
from ..software import timers
from ..software.implementation import DURATION, SILENCE
from ..software.recognise import recognise
from ..tables import NOT_SEEN, Ints, Mask, Tables
from ..tables.grouping import distinct, group_rows

ID = "stream-timeout"
ABOUT = About(
    example="recorded/wild/haproxy-streamtimeout.pcap.zst",
    precedence=3,
    weight="ended_share",
    costs=(Cost("ended_rpcs", "{} ended early"),),
)


class Limits(common.Rates, frozen=True, eq=False):
    rpcs: int = 3
    """Fewest RPCs with the same time (heuristic: two may be alike by chance)."""
    most_of: float = 0.5
    """Share of the RPCs that ended like this which must have it (heuristic: most of them)."""
    same_time: float = timeouts.SAME_TIME
    """Largest spread of these times, by their median (heuristic: as in `cancelled`)."""
    shortest_ns: int = 100_000_000
    """Shortest time (heuristic: no proxy has a shorter timer by default)."""
    round_trips: float = 3.0
    """Shortest time in round trips (heuristic: an error returned at once takes one)."""
    flowing: float = 0.8
    """Largest share of the silence in the duration where messages flowed (heuristic: a fifth of the time)."""
    apart: float = timeouts.APART
    """The ends must spread this many times wider than the times (as in `cancelled`: not one common stop)."""
    together_ns: int = 10_000_000
    """Times are taken to spread by this at least (as in `cancelled`: streams may begin and be stopped in one order)."""


class _Timed(Struct, frozen=True, eq=False):
    """RPCs that ended after the same time."""

    rows: Failed
    times_ns: Ints
    measures: str
    of: int
    """RPCs that ended in such a way."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the RPCs that the same timer ended."""
    rows = common.failed(tables)
    if len(rows) < limits.rpcs:
        return
    rows = rows.where((rows.row >= 0) & _is_broken_off(tables, rows) & ~common.past_deadline(rows))
    if len(rows) < limits.rpcs:
        return
    failures = tables.failures
    sent = rows.source == common.TRAILERS
    silence = failures.silence_ns[rows.row]
    flowed = silence < limits.flowing * rows.duration_ns
    broken = ~sent & _ended_silence(tables, rows)
    quiet = _find_same(tables, rows.where(broken), silence[broken], SILENCE, limits, of=int((~sent).sum()))
    lasting = ~sent | flowed
    lasted = rows.duration_ns[lasting]
    old = _find_same(tables, rows.where(lasting), lasted, DURATION, limits, of=len(lasted))
    found = [timed for timed in (quiet, old) if timed]
    if found:
        yield _make_finding(tables, max(found, key=lambda timed: len(timed.rows)), limits)


def _ended_silence(tables: Tables, rows: Failed) -> Mask:
    """Mark RPCs that ended with their longest silence: of others the stream went on, so no timer measured it."""
    failures = tables.failures
    last, error = tables.rpcs.last_packet[rows.rpc], failures.headers_packet[rows.row]
    # what follows an HTTP error, as its page, is part of the end
    end = np.where(common.refused(rows) & (error > 0), error, last)
    return np.asarray(failures.silence_to_packet[rows.row] >= end)


def _is_broken_off(tables: Tables, rows: Failed) -> Mask:
    """Mark ends that a timer of the server or a proxy may have caused, on connections that went on."""
    rpcs, sent = tables.rpcs, rows.source == common.TRAILERS
    by_timer = np.isin(rows.status, (common.UNAVAILABLE, common.CANCELLED, common.DEADLINE_EXCEEDED))
    by_client = np.isin(rows.source, (common.CLIENT_RESET, common.CLIENT_DEADLINE))
    closed = tables.connections.closed_time_ns[rpcs.connection[rows.rpc]]
    end = rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    answered = common.refused(rows) & ~_waited_in_vain(tables, rows)
    with_it = ((closed >= 0) & (closed <= end)) | draining.mark_shut_down(tables, rows.rpc, end)
    unknown = rows.status == NOT_SEEN  # header fields that the capture lacks may have had an OK
    return np.asarray((~sent | by_timer) & ~by_client & ~answered & ~unknown & ~with_it)


TIMEOUTS = (408, 504)
"""HTTP statuses of a server or proxy that waited in vain (RFC 9110 sections 15.5.9 and 15.6.5)."""


def _waited_in_vain(tables: Tables, rows: Failed) -> Mask:
    """Mark RPCs whose HTTP status a timer may have caused: some software has another status for that."""
    waited: Mask = np.isin(rows.http_status, TIMEOUTS)
    for agent in distinct(rows.answered_by).tolist():
        software = recognise(common.software(tables, agent))
        waited |= (rows.answered_by == agent) & np.isin(rows.http_status, timers.list_statuses(software))
    return waited


def _find_same(tables: Tables, rows: Failed, times: Ints, measures: str, limits: Limits, *, of: int) -> _Timed | None:
    """Find the largest set with the same time; None when it is too small a part of `of`, or the time too short."""
    if len(rows) < limits.rpcs:
        return None
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    # for each time, how many of the following ones lie within the tolerance
    counts = np.searchsorted(ordered, ordered * (1 + limits.same_time), side="right") - np.arange(len(ordered))
    begin = int(np.argmax(counts))
    chosen = np.sort(order[begin : begin + int(counts[begin])])
    same, mine = times[chosen], rows.where(chosen)
    trips = np.maximum(tables.connections.min_rtt_ns[tables.rpcs.connection[mine.rpc]], 0)
    long = float(np.median(same)) >= max(limits.shortest_ns, limits.round_trips * float(np.median(trips)))
    enough = len(chosen) >= max(limits.rpcs, limits.most_of * of)
    if not (long and enough and _end_apart(tables, mine, same, limits) and _are_apart(tables, mine, same, limits)):
        return None
    return _Timed(mine, same, measures, of)


def _are_apart(tables: Tables, rows: Failed, times: Ints, limits: Limits) -> bool:
    """Check that most of them did not end together with all others of their server: it, or a proxy, stopped those."""
    groups = group_rows(number_servers(tables)[tables.rpcs.connection[rows.rpc]]).values()
    alone = (len(mine) == 1 or _end_apart(tables, rows.where(mine), times[mine], limits) for mine in groups)
    return 2 * sum(len(mine) for mine, apart in zip(groups, alone, strict=True) if apart) > len(rows)


def _end_apart(tables: Tables, rows: Failed, times: Ints, limits: Limits) -> bool:
    """Check whether they ended at different moments; RPCs begun and stopped together do not count."""
    ends = tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    return int(ends.max() - ends.min()) >= limits.apart * max(int(times.max() - times.min()), limits.together_ns)


def _make_finding(tables: Tables, timed: _Timed, limits: Limits) -> Finding:
    rows, everything = timed.rows, tables.rpc_count
    median = float(np.median(timed.times_ns))
    least, most = duration(int(timed.times_ns.min())), duration(int(timed.times_ns.max()))
    span = least if least == most else f"{least} to {most}"
    silent = timed.measures == SILENCE
    when = "after {} without a packet" if silent else "{} after their request, though packets flowed"
    connections = common.connections_of(tables, rows.rpc)
    software = software_at.recognise_proxy(tables, connections)
    by = f"{name_hosts(tables, connections, 1)}{f' ({software})' if software else ''}"
    remedies = _list_timers(rows, timed, software)
    known = bool(remedies) and remedies[0].implementation == software
    likely = f" Look at {remedies[0].knob} of {software}." if known else ""
    unsaid = common.refused(rows) & ~np.isin(rows.http_status, TIMEOUTS)  # these say other things, too
    sure = not (unsaid | (rows.source == common.TRAILERS)).any()
    ended = "may have ended" if unsaid.any() else "ended"
    return Finding(
        id=ID,
        title=f"{len(rows):,} RPCs were ended {when.format(duration(median))}",
        severity=common.severity_of_count(len(rows), everything, limits),
        confidence=lower("high" if sure else "medium", quality_allows(tables)),
        scope=Scope(connections, common.methods_of(tables, rows.rpc)),
        part_of="proxy-error" if common.refused(rows).all() else None,  # which counts every such response
        metrics={
            "ended_rpcs": len(rows),
            "alike_ends": timed.of,
            "rpcs": everything,
            "ended_share": len(rows) / everything,
            "measures": timed.measures,
            "time_p50_ns": int(median),
            "time_min_ns": int(timed.times_ns.min()),
            "time_max_ns": int(timed.times_ns.max()),
            "ended_by_method": common.listed(common.by_method(tables, rows.rpc)),
        },
        evidence=tuple(_show(tables, rows, timed)),
        explanation=(
            f"{by} ended {len(rows):,} of {everything:,} RPCs {when.format(span)}: {len(rows):,} of the {timed.of:,} "
            "that were broken off. They ended at different moments, so a timer of that end, or of a host behind it, "
            f"{ended} them, and not the client's deadline.{likely} HTTP/2 PINGs do not keep a stream open."
        ),
        remedies=(*remedies, _DEADLINE),
        references=(
            "nginx, module ngx_http_grpc_module",
            "Envoy, FAQ: how do I configure timeouts",
            "https://grpc.io/docs/guides/deadlines/",
        ),
        verdict=(f"{by} ended {len(rows):,} of {everything:,} RPCs {when.format(duration(median))}: find that timer."),
    )


def _list_timers(rows: Failed, timed: _Timed, software: str | None) -> tuple[Remedy, ...]:
    """List the timers that may have ended the RPCs; those that answer with their HTTP status, if all got one."""
    median, statuses = float(np.median(timed.times_ns)), distinct(rows.http_status)
    if common.refused(rows).all() and len(statuses) == 1:
        return timers.list_answering_timers(int(statuses[0]), median, software)
    codes = distinct(rows.reset_code)
    by_server = (rows.reset_by == 1).all() and len(codes) == 1
    return timers.list_timers(timed.measures, median, software, int(codes[0]) if by_server else None)


def _show(tables: Tables, rows: Failed, timed: _Timed) -> Iterator[Evidence]:
    rpcs, failures = tables.rpcs, tables.failures
    for place in pick_apart(tables, rpcs.connection[rows.rpc]):
        rpc, row = int(rows.rpc[place]), int(rows.row[place])
        yield common.began(tables, rpc)
        before = int(failures.silence_from_packet[row])
        end = int(rpcs.start_time_ns[rpc]) + int(rows.duration_ns[place])
        if timed.measures == SILENCE and before != rpcs.first_packet[rpc]:
            start = end - int(failures.silence_ns[row])
            yield Evidence(before, start, f"the last packet of stream {rpcs.stream[rpc]} before the silence")
        yield common.ended(tables, rpc, common.reset_words(tables, rows, place))


_DEADLINE = Remedy(
    "application", "a deadline at the client, shorter than the timer", "both ends know it, and the status says so"
)
