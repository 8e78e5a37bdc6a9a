"""A host sent nothing for a while: everything in flight waited for it at the same moments.

What it finds
-------------
Calls that have nothing to do with each other stop together, and go on together. A paused process does that: garbage
collection, a CPU quota that is used up (CFS throttling), a debugger, a stopped or stalled virtual machine. So does a
handler that blocks the event loop on which everything runs (Node.js). The report says which side, how often, how long,
and whether it is regular.

How it is decided
-----------------
A side was silent although its peer waited for it. All that it had sent was acknowledged, the TCP receive window was
open, and nothing was retransmitted but what had arrived (RFC 2883): TCP did not hold it. Two things prove that it is
not one slow handler:

- *A PING.* The HTTP/2 library acknowledges it at once, unless the process is paused or its event loop is blocked. The
  acknowledgement came 20 ms late or later. Where most PINGs are equally late, a relay of TCP on the way holds them
  back, as with Nagle's algorithm: nothing was paused, and they prove nothing. Nor do those of a host whose TCP answers
  5 ms or more before even its fastest acknowledgements, two of which take equally long: a relay's TCP answers there.
- *Several RPCs.* Two or more waited for the server, each with one response per request, for 50 ms and for five times
  the server's mean time per RPC on that connection. None of them was answered before the others, and then all were at
  once, however long before the request of each was whole: the answers came within two thirds of the time by which the
  RPCs' durations differ, and within a tenth of the silences. Handlers that take long answer each call the same time
  after its request, or at random.

The network is no cause: the capture was taken at that host, or the host's TCP acknowledged all bytes, and the silence
lasted on for as long again. So its kernel and the path worked.

It is reported from two moments with late PINGs, or five waiting RPCs, of one host; from one moment with both when it
lasted for 200 ms. From a second on, three waiting RPCs are enough if TCP acknowledged all bytes meanwhile and their
methods are quick otherwise; two are enough with a late PING. The time lost is that of the RPCs that waited together for
the server. What a client's pause costs its callers comes before their first packet, and is not counted.

In a capture of TLS without its secrets, three connections of a server or more take the place of RPCs, all that were
open. On each the server's longest silence behind a record of the client lasted for a second and for five times its
mean, and nothing was retransmitted after a timeout.

When it cannot tell
-------------------
A client's pause without a PING looks like an idle client. Where all RPCs that waited began at the same moment, calls
that need long look like a pause, and nothing is reported without a PING. Long polls that one event answers look like a
pause. C-core reads its socket only while a call is open, so its late PINGs are not counted at clients. A lock or a pool
that all calls of a server need looks like a pause unless a PING was late: then the report does not call the host
unresponsive. With a record of the threads (`capture --processes on`) it says for what they waited, and whether the
process was busy instead. One or two connections of TLS without its secrets prove nothing: calls that take long, while
their client sends more, look the same. The report has the longest silence of each side, and its packets. If the kernel
was paused as well, the host cannot be told from the path.

What would refute it
--------------------
The process's own record shows no pause at these moments: garbage collection log, `cpu.stat` of its cgroup
(`nr_throttled`), scheduler statistics, the event loop's delay.

What to do
----------
Look at the moments of the evidence in the garbage collector's log. In a container, compare `nr_throttled` and
`throttled_usec` of `cpu.stat` before and after, and raise or remove the CPU limit. For pauses of the host look at the
steal time of the virtual machine. On Node.js measure the event loop's delay: a handler that computes stops all others.

References
----------
- RFC 9113 section 6.7 (PING)
- Linux Documentation/scheduler/sched-bwc.rst (CFS bandwidth control, period 100 ms)
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..facts import contradictions, hosts, methods, ratings, relays, software_at, threads, vantage
from ..facts.groups import Case, Group, put_together
from ..model.budget import CAUSES
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Scope, Severity, Skipped
from ..model.text import count, duration, format_times
from ..model.thresholds import CRITICAL_SHARE, NOTABLE_SHARE, UNARY_MESSAGES
from ..software import pauses
from ..software.recognise import C_CORE, recognise
from ..tables import DIRECTIONS, Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct, group_rows
from ..tables.processes import Acts

_PINGS_WAIT = "the process is paused or its event loop is blocked"
ID = "synchronised-stall"
ABOUT = About(
    example="recorded/wild/tonic-stopped.pcap.zst",
    figure=contradictions.blocked_time("server"),
    caused_by=("cpu-quota", "processor-saturated"),
    precedence=1,
    whole_connections=True,
    costs=(Cost("silent_ns", "silent for {}"),),
)


_SERVER, _STREAM, _CONNECTION = (CAUSES.index(name) for name in ("server", "stream_window", "connection_window"))
_PERIOD_NS = 100_000_000
"""CFS's default period (Linux kernel/sched/fair.c, default_cfs_period)."""


class Limits(Struct, frozen=True, eq=False):
    late_ping_ns: int = 20_000_000
    """Silence before a PING is acknowledged (heuristic: libraries take a millisecond, busy hosts some more)."""
    late_rpcs_ns: int = ratings.TAIL_NS
    """Silence while several RPCs wait (heuristic: as for the tail of `server-latency`)."""
    factor: float = ratings.TAIL_FACTOR
    """The same in mean times of the server per RPC (heuristic: as for the tail of `server-latency`)."""
    pings: int = 2
    """Moments with late PINGs of a host, on one connection or on several (heuristic: one may be chance)."""
    steady_pings: int = 5
    """Fewest late PINGs of a host that can be equally late (heuristic: as few may be so by chance)."""
    steady_share: float = 0.5
    """Share of all PINGs from which lateness is usual there (heuristic: most pauses meet a tenth)."""
    steady: float = 1.5
    """Equally late: nine tenths take at most so many times as long as one tenth (a relay 1.3, a busy loop 6)."""
    relay_pings: int = 5
    """Fewest acknowledged PINGs that show a relay in front of a host (heuristic: as `steady_pings`)."""
    relay_ns: int = 5_000_000
    """A relay is there if each takes so much longer than TCP's round trip (heuristic: no idle library does)."""
    alone_ns: int = 200_000_000
    """One late PING is enough from this silence on, when RPCs waited, too (heuristic: as TCP's least timeout)."""
    long_ns: int = 1_000_000_000
    """Fewer RPCs are enough from this silence on, if TCP acknowledged meanwhile (heuristic: no queue is that long)."""
    few_rpcs: int = 3
    """So few RPCs; two with a late PING (heuristic: so many handlers that are late and end together are unlikely)."""
    at_once: float = 0.67
    """The answers came within this share of the difference of the RPCs' durations (heuristic: handlers reach 1)."""
    of_silence: float = 0.1
    """And of the silences (heuristic: after pauses it is a hundredth, and 0.7 where durations vary by chance)."""
    answered: float = 0.8
    """Share of the RPCs that waited which must be answered before the next silence (heuristic: most of them)."""
    apart_ns: int = 1_000_000
    """This difference, per silence, tells a pause from calls that began together (heuristic: above jitter)."""
    rpcs: int = 5
    """RPCs of a host that waited together (heuristic: so many late handlers by chance are unlikely)."""
    near_ns: int = vantage.NEAR_NS
    """Round trip to the host up to which the capture was taken there (as for blocked intervals)."""
    unary_messages: float = UNARY_MESSAGES
    """Messages per RPC up to which each request has one response (heuristic: two, and some rounding)."""
    warning_share: float = NOTABLE_SHARE
    """A warning from this share of RPC time, or of a client's time (heuristic: above the variation of runs)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time (heuristic: a fifth of it)."""
    regular: float = 0.1
    """Deviation from a multiple of the shortest interval, as a share of it, that is regular (heuristic: jitter)."""
    quota: float = 5.0
    """Rayleigh's statistic of the ends' phases in the period of a CPU quota (random phases reach it in 1 of 150)."""
    quota_periods: int = 5
    """Shortest interval in such periods from which it is none (heuristic: a quota that is used up is so soon again)."""


class _Stalls(Struct, frozen=True, eq=False):
    """The stalls of one host in one role."""

    rows: Ints
    """Rows of the stalls table, in the order of time."""
    direction: int
    pings: int
    """How many of them a late PING proves."""
    times: Ints
    """When each ended; one element for those of several connections at the same moment."""
    median_ns: int
    paused: bool
    """Late PINGs prove that the process did nothing."""
    waiting: int
    """RPCs that waited together for the server."""
    waited_ns: int
    """How long they waited in all."""

    @property
    def total_ns(self) -> int:
        return self.median_ns * len(self.times)


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all servers that were silent, and one about all clients."""
    if not len(tables.stalls.connection):
        return
    proved = _prove(tables, limits)
    rows = np.flatnonzero(proved.by_ping | proved.by_rpcs)
    groups = group_rows(_number_hosts(tables)[rows]).values()
    found = [stalls for group in groups if (stalls := _collect(tables, rows[group], proved, limits))]
    yield from put_together(
        tables, [_make_case(tables, stalls) for stalls in found], lambda group: _make_finding(tables, group, limits)
    )


def _make_case(tables: Tables, stalls: _Stalls) -> Case[_Stalls]:
    connections = tuple(distinct(tables.stalls.connection[stalls.rows]).tolist())
    lost = _count_lost(tables, stalls) if stalls.waiting else None
    return Case(stalls, connections, stalls.direction, stalls.total_ns, lost, DIRECTIONS[stalls.direction])


class _Proved(Struct, frozen=True, eq=False):
    """What each stall proves; columns as long as the stalls table."""

    by_ping: Mask
    by_rpcs: Mask
    length_ns: Ints
    """Its length less the round trip from the capture point to the host."""
    waiting: Ints
    """RPCs that waited for the server, without those whose response an HTTP/2 window blocked."""


def _prove(tables: Tables, limits: Limits) -> _Proved:
    c, stalls = tables.connections, tables.stalls
    rows = stalls.connection.astype(np.int64)
    near = np.stack([c.near_client_rtt_ns, c.near_server_rtt_ns])[stalls.direction.astype(np.int64), rows]
    length = stalls.duration_ns - np.maximum(near, 0)
    after = np.where(
        stalls.acked_time_ns >= 0, stalls.start_time_ns + stalls.duration_ns - stalls.acked_time_ns, -1
    )  # how long the silence lasted after all bytes were acknowledged
    here = (near >= 0) & (near <= limits.near_ns)
    late = (length >= limits.late_ping_ns) & (here | (after >= limits.late_ping_ns))
    late_rpcs = (length >= _find_least_rpcs_ns(tables, rows, limits)) & (here | (after >= limits.late_rpcs_ns))
    waiting = _count_waiting(tables)
    by_ping = (stalls.ping_packet > 0) & late & ~_mark_c_core_clients(tables) & _mark_acknowledging(tables)
    relayed = relays.mark_relayed(tables, np.flatnonzero(by_ping), near, limits.relay_pings, limits.relay_ns)
    return _Proved(
        by_ping=by_ping & ~_mark_steady(tables, np.flatnonzero(by_ping), length, limits) & ~relayed,
        by_rpcs=(waiting >= 2) & late_rpcs & _mark_unary(tables, rows, limits) & (stalls.answers_ns >= 0),
        length_ns=length,
        waiting=waiting,
    )


def _count_waiting(tables: Tables) -> Ints:
    """Count the RPCs that waited for the server in each stall: for the client wait those that its windows blocked."""
    stalls, waits, o = tables.stalls, tables.waits, tables.open_rpcs
    blocked = ((waits.cause == _STREAM) | (waits.cause == _CONNECTION)) & (waits.direction == 1)
    stuck = (o.cause == _STREAM) | (o.cause == _CONNECTION)
    ends = np.r_[waits.start_time_ns[blocked] + waits.duration_ns[blocked], o.end_time_ns[stuck]]
    starts = np.r_[waits.start_time_ns[blocked], o.since_time_ns[stuck]]
    groups = group_rows(np.r_[waits.connection[blocked], o.connection[stuck]])
    waiting: Ints = stalls.waiting.astype(np.int64)
    of_connection = group_rows(stalls.connection) if groups else {}
    for connection, places in groups.items():
        rows = of_connection.get(connection, np.zeros(0, dtype=np.int64))
        at = stalls.start_time_ns[rows]
        waiting[rows] -= np.searchsorted(np.sort(starts[places]), at, side="right")
        waiting[rows] += np.searchsorted(np.sort(ends[places]), at, side="right")
    return waiting


def _mark_c_core_clients(tables: Tables) -> Mask:
    """Mark stalls of clients that read their socket only while a call is open."""
    stalls = tables.stalls
    clients = distinct(stalls.connection[(stalls.direction == 0) & (stalls.ping_packet > 0)]).tolist()
    core = [one for one in clients if software_at.recognise_end(tables, one, 0) == C_CORE]
    return np.asarray((stalls.direction == 0) & np.isin(stalls.connection, core), dtype=bool)


def _mark_acknowledging(tables: Tables) -> Mask:
    """Mark stalls of sides that acknowledge PINGs at all."""
    stalls = tables.stalls
    acks = tables.directions.ping_acks[2 * stalls.connection.astype(np.int64) + stalls.direction]
    return np.asarray(acks > 0, dtype=bool)


def _mark_steady(tables: Tables, late: Ints, length_ns: Ints, limits: Limits) -> Mask:
    """Mark stalls of hosts that acknowledge most PINGs equally late."""
    stalls = tables.stalls
    steady = np.zeros(len(stalls.connection), dtype=bool)
    ends = 2 * stalls.connection.astype(np.int64) + stalls.direction
    for places in group_rows(_number_hosts(tables)[late]).values() if len(late) else ():
        mine = late[places]
        acks = int(tables.directions.ping_acks[distinct(ends[mine])].sum())
        low, high = np.quantile(length_ns[mine], (0.1, 0.9))
        many = len(mine) >= max(limits.steady_pings, limits.steady_share * acks)
        steady[mine] = many and high <= limits.steady * low
    return steady


def _find_least_rpcs_ns(tables: Tables, rows: Ints, limits: Limits) -> npt.NDArray[np.float64]:
    """Find the silence from which waiting RPCs prove a stall: more than the server usually takes."""
    mean = tables.connection_budgets[rows, _SERVER] / np.maximum(tables.connections.rpcs[rows], 1)
    return np.asarray(np.maximum(limits.late_rpcs_ns, limits.factor * mean), dtype=np.float64)


def _mark_unary(tables: Tables, rows: Ints, limits: Limits) -> Mask:
    """Mark stalls of connections with one response per request, after the server's first one."""
    messages = tables.directions.messages.astype(np.int64).reshape(-1, 2).sum(axis=1)
    unary = messages[rows] <= limits.unary_messages * tables.connections.rpcs[rows]
    first = tables.directions.first_message_time_ns[2 * rows + 1]
    return np.asarray(unary & (first >= 0) & (first <= tables.stalls.start_time_ns), dtype=bool)


def _number_hosts(tables: Tables) -> Ints:
    """Number the host of each stall in its role."""
    stalls, c = tables.stalls, tables.connections
    ips = np.stack([c.client_ip, c.server_ip])[stalls.direction.astype(np.int64), stalls.connection.astype(np.int64)]
    return np.asarray(ips.astype(np.int64) * 2 + stalls.direction, dtype=np.int64)


def _collect(tables: Tables, rows: Ints, proved: _Proved, limits: Limits) -> _Stalls | None:
    """Collect the stalls of one host; None when they are too few."""
    pings = len(_find_moments(tables, rows[proved.by_ping[rows]]))
    several = rows[proved.by_rpcs[rows]]
    enough = int(proved.waiting[several].sum()) >= limits.rpcs or _is_long_for_few(tables, several, proved, limits)
    together = enough and _are_answered_at_once(tables, several, limits)
    # RPCs that were given up before the host resumed are `keepalive-timeout` or a deadline
    goes_on = (proved.length_ns >= limits.long_ns) & (tables.stalls.answers_ns >= 0) & (tables.stalls.unanswered == 0)
    least = np.where(goes_on, limits.few_rpcs - 1, limits.rpcs)
    long = proved.by_ping & (proved.length_ns >= limits.alone_ns) & (proved.waiting >= least)
    paused = pings >= limits.pings or bool(long[rows].any())
    if not paused and not together:
        return None
    if not together:
        rows = rows[proved.by_ping[rows]]
    waiting = proved.waiting[rows] * (proved.by_rpcs[rows] * together | long[rows])
    return _Stalls(
        rows,
        int(tables.stalls.direction[rows[0]]),
        pings,
        _find_moments(tables, rows),
        int(np.median(proved.length_ns[rows])),
        paused,
        int(waiting.sum()),
        total_ns(proved.length_ns[rows] * waiting),
    )


def _is_long_for_few(tables: Tables, rows: Ints, proved: _Proved, limits: Limits) -> bool:
    """Check for a silence so long that few RPCs prove it: TCP acknowledged, and their methods are quick otherwise."""
    acked = tables.stalls.acked_time_ns[rows] >= 0
    rows = rows[acked & (proved.length_ns[rows] >= limits.long_ns) & (proved.waiting[rows] >= limits.few_rpcs)]
    return any(_are_methods_quick(tables, row, int(proved.length_ns[row] / limits.factor)) for row in rows.tolist())


def _are_methods_quick(tables: Tables, stall: int, most_ns: int) -> bool:
    """Check whether the methods of the RPCs that waited in a stall usually take less: they are no long polls."""
    stalls, rpcs, used = tables.stalls, tables.rpcs, tables.connection_methods
    start, end = stalls.start_time_ns[stall], stalls.start_time_ns[stall] + stalls.duration_ns[stall]
    on = rpcs.connection == stalls.connection[stall]
    waited = rpcs.method[on & (rpcs.start_time_ns <= start) & (rpcs.start_time_ns + rpcs.duration_ns >= end)]
    if not len(waited) and on.sum() < tables.connections.rpcs[stalls.connection[stall]]:  # not all have rows
        waited = used.method[used.connection == stalls.connection[stall]]
    usual = {method.number: method.latency["p50"] for method in tables.methods if method.latency}
    return len(waited) > 0 and all(usual.get(one, most_ns + 1) <= most_ns for one in distinct(waited).tolist())


def _are_answered_at_once(tables: Tables, rows: Ints, limits: Limits) -> bool:
    """Tell pauses from calls that all take long: those are answered as far apart as they began, or by chance."""
    stalls = tables.stalls
    answers, durations = total_ns(stalls.answers_ns[rows]), total_ns(stalls.durations_ns[rows])
    waited, left = int(stalls.waiting[rows].sum()), int(stalls.unanswered[rows].sum())
    at_once = answers <= min(limits.at_once * durations, limits.of_silence * total_ns(stalls.duration_ns[rows]))
    apart = durations >= len(rows) * limits.apart_ns
    return at_once and apart and waited - left >= limits.answered * waited


def _find_moments(tables: Tables, rows: Ints) -> Ints:
    """Return when stalls ended; those that overlap on several connections are one, which ended with its first."""
    stalls = tables.stalls
    order = rows[np.argsort(stalls.start_time_ns[rows], kind="stable")]
    starts = stalls.start_time_ns[order]
    ends = starts + stalls.duration_ns[order]
    before = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, ends[:-1]])[: len(ends)]
    return np.asarray(ends[starts >= before], dtype=np.int64)


def _find_period(stalls: _Stalls, limits: Limits) -> str:
    """Say whether the stalls are regular; nothing where they are not."""
    steps = np.diff(stalls.times)
    if len(steps) < 2:
        return ""
    base = int(steps.min())
    phases = np.exp(2j * np.pi * (stalls.times % _PERIOD_NS) / _PERIOD_NS)
    if base < limits.quota_periods * _PERIOD_NS and len(phases) * abs(phases.mean()) ** 2 >= limits.quota:
        return _QUOTA
    multiples = steps.astype(np.float64) / base
    if base > stalls.median_ns and bool((np.abs(multiples - np.round(multiples)) <= limits.regular).all()):
        each = duration(float(steps.sum() / np.round(multiples).sum()))
        return f"the silences come every {each}" + (" or a multiple of it" if multiples.max() > 1.5 else "")
    return ""


def _add_up(group: Group[_Stalls]) -> _Stalls:
    """Add up the stalls of several hosts; those of one stay as they are."""
    facts, first = group.facts, group.facts[0]
    if len(facts) == 1:
        return first
    return _Stalls(
        rows=np.sort(np.concatenate([one.rows for one in facts])),
        direction=first.direction,
        pings=sum(one.pings for one in facts),
        times=np.sort(np.concatenate([one.times for one in facts])),
        median_ns=int(np.median([one.median_ns for one in facts])),
        paused=all(one.paused for one in facts),
        waiting=sum(one.waiting for one in facts),
        waited_ns=sum(one.waited_ns for one in facts),
    )


def _make_finding(tables: Tables, group: Group[_Stalls], limits: Limits) -> Finding:
    stalls, connections = _add_up(group), group.connections
    table, rows = tables.stalls, stalls.rows
    who, paused = group.who, stalls.paused
    software = recognise(hosts.implementation(tables, int(table.connection[rows[0]]), stalls.direction))
    often = group.write_each(lambda one: len(one.times), format_times)
    suspects = "garbage collection" if paused else "a lock, garbage collection"
    periods = {_find_period(one, limits) for one in group.facts}
    period = periods.pop() if len(periods) == 1 else ""
    spent = _read_threads(tables, stalls)
    known = spent and spent.advise()
    was = group.say("was", "were")
    state = f"{was} busy" if spent and spent.is_busy else f"{was} unresponsive" if paused else "sent nothing"
    stopped = f"{who} {state} {often} for {duration(stalls.median_ns)}"
    return Finding(
        id=ID,
        title=stopped + (f"; {period}" if period else ""),
        severity=_rate_severity(tables, group, limits),
        confidence=ratings.lower("high" if paused or known else "medium", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=group.lost_ns,
        share=group.share,
        metrics={
            "side": DIRECTIONS[stalls.direction],
            "stalls": len(stalls.times),
            "median_stall_ns": stalls.median_ns,
            "longest_stall_ns": int(table.duration_ns[rows].max()),
            "silent_ns": stalls.total_ns,
            "late_pings": stalls.pings,
            "rpcs_waiting": stalls.waiting,
            "shortest_interval_ns": _find_shortest_interval(group),
            **(spent.make_metrics() if spent else {}),
        },
        evidence=tuple(
            item
            for one in group.shown
            for row in one.rows[: group.limit_moments()].tolist()
            for item in _show_stall(tables, row)
        ),
        explanation=_explain(tables, group, often, period, spent),
        remedies=pauses.list_remedies(software, who, quota=period == _QUOTA, paused=paused),
        references=("RFC 9113 section 6.7", "Linux Documentation/scheduler/sched-bwc.rst"),
        verdict=(
            f"{stopped}{' (median)' if len(stalls.times) > 1 else ''}"
            f"{', with everything in flight' if stalls.waiting else ''}: "
            f"{known or f'look for {suspects}, a CPU quota, a blocked event loop or a paused host there'}."
        ),
    )


def _find_shortest_interval(group: Group[_Stalls]) -> int:
    """Find the shortest time between two stalls of a host; -1 without two."""
    return min((int(np.diff(one.times).min()) for one in group.facts if len(one.times) > 1), default=-1)


_QUOTA = "the silences end in step with 100 ms, the period of a CPU quota"


def _count_lost(tables: Tables, stalls: _Stalls) -> int:
    """Sum up the time of the RPCs that waited; never more than the server's time on their connections."""
    connections = distinct(tables.stalls.connection[stalls.rows])
    return min(stalls.waited_ns, total_ns(tables.connection_budgets[connections, _SERVER]))


def _rate_severity(tables: Tables, group: Group[_Stalls], limits: Limits) -> Severity:
    """Rate servers by RPC time, clients by their connections' time: their callers wait before their first packet."""
    if group.share is not None:
        return ratings.severity(group.share, limits.warning_share, limits.critical_share)
    c = tables.connections
    for case in group.cases:
        rows = list(case.connections)
        span = int(c.last_time_ns[rows].max() - c.first_time_ns[rows].min())
        if case.fact.total_ns >= limits.warning_share * max(span, 1):
            return "warning"
    return "info"


def _read_threads(tables: Tables, stalls: _Stalls) -> threads.Spent | None:
    """Read what led to the sends of the intervals in whose time the stalls lie."""
    table = tables.stalls
    middles = table.start_time_ns[stalls.rows] + table.duration_ns[stalls.rows] // 2
    of_stalls = group_rows(table.connection[stalls.rows])

    def choose(acts: Acts) -> Mask:
        chosen = np.zeros(len(acts.connection), dtype=bool)
        for connection, rows in group_rows(acts.connection).items():
            times = np.sort(middles[of_stalls.get(connection, rows[:0])])
            start = acts.start_time_ns[rows]
            first, behind = np.searchsorted(times, start), np.searchsorted(times, start + acts.duration_ns[rows])
            chosen[rows] = behind > first
        return chosen

    return threads.read_spent(tables, stalls.direction, choose, stalls.total_ns)


def _explain(tables: Tables, group: Group[_Stalls], often: str, period: str, spent: threads.Spent | None) -> str:
    stalls = _add_up(group)
    parts = [
        f"{group.say(f'{often.capitalize()} {group.who} sent nothing', f'{group.who} sent nothing {often}')} for "
        f"{_describe_lengths(tables, stalls)} although {group.say('its peer', 'their peers')} waited"
        f"{f'; {period}' if period else ''}."
    ]
    if stalls.waiting:
        parts.append(
            f"{count(stalls.waiting, 'RPC')} waited, all that were in flight, and none was answered before the others."
        )
    if stalls.pings:
        parts.append(
            f"{format_times(stalls.pings).capitalize()} {group.say('it', 'they')} did not acknowledge a PING "
            f"meanwhile, which the HTTP/2 library does at once unless {_PINGS_WAIT}."
        )
    if spent:
        parts.append(spent.explain())
    elif not stalls.pings:
        parts.append("A lock, a pool or a service that all calls need would look the same.")
    acked = int((tables.stalls.acked_time_ns[stalls.rows] >= 0).sum())
    if acked:
        its = f"{group.say('Its', 'Their')} TCP acknowledged all bytes in {count(acked, 'silence')}"
        parts.append(f"{its}, so {group.say('its kernel and the path', 'their kernels and the paths')} worked.")
    if stalls.direction == 0:
        parts.append("What it costs calls before their first packet is not in the RPCs' durations.")
    return " ".join(parts)


def _describe_lengths(tables: Tables, stalls: _Stalls) -> str:
    length = duration(stalls.median_ns)
    longest = duration(int(tables.stalls.duration_ns[stalls.rows].max()))
    return length if len(stalls.times) == 1 else f"{length} (median; longest {longest})"


def _show_stall(tables: Tables, row: int) -> Iterator[Evidence]:
    stalls = tables.stalls
    who = hosts.host(tables, int(stalls.connection[row]), int(stalls.direction[row]))
    end = int(stalls.start_time_ns[row] + stalls.duration_ns[row])
    yield Evidence(
        int(stalls.stopped_at_packet[row]),
        int(stalls.stopped_time_ns[row]),
        f"the last bytes of {who} before its silence",
    )
    if ping := int(stalls.ping_packet[row]):
        yield Evidence(ping, int(stalls.ping_time_ns[row]), f"a PING that {who} does not acknowledge until it resumes")
    waiting = int(stalls.waiting[row])
    yield Evidence(
        int(stalls.resumed_at_packet[row]),
        end,
        f"{who} resumes, {duration(int(stalls.duration_ns[row]))} after its peer began to wait"
        + (f"; {count(waiting, 'RPC')} waited" if waiting else ""),
    )
