"""A server seems to work on a limited number of RPCs at once, while others wait in it.

What it finds
-------------
Calls get slower the more of them are open, although a single call is fast. The server works on a small number of calls
at once, and the others wait in a queue inside it.

The limit may be a pool of threads, a setting (`max_workers`), an executor, a semaphore, a lock, or one event loop that
handlers block (asyncio). No HTTP/2 limit is reached. The report says how many calls the server seems to work on, how
long one takes, and how long they wait.

How it is decided
-----------------
By the first RPCs of each connection, of one method. With a limit of N, a call starts when it arrives, or when all but
N - 1 of the calls before it are answered. From then on all calls must take about the same time, whatever their
response time. The finding needs all of this, for one N below the number of open calls:

- the time from this start to the response varies little, and for calls that found a free place as for those that
  waited; no call was answered sooner,
- half of the calls waited as long as one takes, or longer,
- the median response of the whole capture contains such a wait as well,
- most of the method's RPC time beyond the round trip is the server's: no queue of the network explains it.

The first calls of a server that has just started are slow. If only these found a free place, the limits next to N must
fit half as well at most instead. A limit on the rate makes many numbers fit.

One call at a time is recognised by the responses alone, in whatever order they come: while calls are open, one response
follows the other at even intervals, and a call that found no other took as long. Two workers end their calls at moments
that have nothing to do with each other. If a lone call took another time, a limit on the rate may have made the
intervals, and nothing is reported. The very first call may be slow, as in a server that has just started, if most of
the calls behind it took twice as long as it.

A server that works on all calls at once answers each after its own time: then calls with more others before them take
no longer, and no N fits.

Two other patterns show what calls waited for, whatever they take; each needs three of them or more:

- *Calls of other methods occupy the server.* While as many of these were open, two or more, no call of the method was
  answered before one of them ended: calls reached their deadline without a response, or were answered within 5 ms of
  such an end. No other call was answered meanwhile, and calls of the method before and after took a fifth of that or
  less. Streams that hold a thread each do that, such as those of `Watch` in grpc-python.
- *The server answers in steps of time.* Responses come together, as many each time, at even intervals of 200 ms or
  more, while at least half as many more wait on. The calls of a step had begun at different times, and the quickest
  call took a fifth of an interval or less. Three steps are enough if their intervals differ by 5 % at most. A client
  that sends in steps gets all its responses before the next one, or each after the same time.

A narrow link also lets one call after the other through, at even intervals. So one call at a time is reported only of a
capture on the server's host, or where the calls need less than 128 kbit/s of the link.

When it cannot tell
-------------------
Only packets of calls are seen, never threads. A lock, a database with few connections, a backend with a limit, or as
many busy processors look the same, and so does a limit on the rate whose interval is as long as a call, or shorter
where the first call was slow. So the confidence is medium, and low for one call at a time. Calls of different length,
several methods in one pool of which none is occupied for long, or a capture that begins when the queue already exists
hide a limit. What the server does after these first calls is not judged, only whether the responses of the whole
capture still contain such a wait. With a record of the server's threads (`capture --pid`) the finding says what they
waited for; it is withdrawn if they mostly waited for processors or were stopped by a CPU quota. Connections that reach
their limit of concurrent streams are left out. Calls that are answered in steps of time may wait for a limit on the
rate or for a queue that is drained in batches: packets do not tell which. Callers in a loop begin their next calls
together behind each step, as a client with a timer of its own does, and nothing is reported.

What would refute it
--------------------
The server's own count of running handlers exceeds the limit given here. Or a call alone takes as long as one among
many.

What to do
----------
Compare the number with the server's pool, and raise it if processors and backends allow. Otherwise refuse what cannot
be served in time (RESOURCE_EXHAUSTED), or add servers: a longer queue only adds latency.

References
----------
- https://grpc.io/docs/guides/performance/
- grpc/grpc src/python/grpcio/grpc/__init__.py: grpc.server(ThreadPoolExecutor(max_workers), maximum_concurrent_rpcs)
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..facts import contradictions, failures, hosts, ratings, releasers, software_at, threads, vantage
from ..facts.groups import Case, Group, put_together
from ..facts.methods import methods_of_connections, names
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..tables import BEGUN_BEFORE, COMPLETE, Ints, Method, Tables
from ..tables.grouping import distinct

ID = "server-concurrency-limit"
ABOUT = About(
    example="recorded/wild/plateau.pcap.zst",
    figure=contradictions.calls_at_once,
    weight="queued_share",
    whole_connections=True,
    picture="streams",
)

_SERVER, _NETWORK = CAUSES.index("server"), CAUSES.index("network")
_HEADERS = 66
"""Bytes before TCP's payload: Ethernet, IPv4, and TCP with timestamps."""
_UNKNOWN = "The packets do not show what limits it: a pool of threads, a lock, a backend, or busy processors."
_UNKNOWN_ONE = "The packets do not show what limits it: an event loop that handlers block, a lock, or a pool of one."

_Releaser = releasers.Occupied | releasers.Paced


class Limits(Struct, frozen=True, eq=False):
    calls: int = 16
    """Fewest calls judged (heuristic: fewer fit by chance)."""
    most_calls: int = 128
    """Most calls judged, the first ones (heuristic: bounds the work)."""
    groups: int = 200
    """Most pairs of server and method judged, those with most calls (heuristic: bounds the work)."""
    shortest_ns: int = 1_000_000
    """Shortest time that a call takes (heuristic: below, packets' own times decide, 1 ms)."""
    spread: float = 0.35
    """Spread of the middle four fifths of these times, by their median (heuristic: handlers seldom vary less)."""
    not_faster: float = 0.8
    """Calls with a free place take at least this share of the others' time (heuristic: with a limited rate, less)."""
    not_slower: float = 1.75
    """They take at most so many times as long (heuristic: first calls are slow; 2 or more at even intervals)."""
    queued: float = 2.0
    """Median response behind one slow first call, in its time (heuristic: a server starts cold, as a JVM does)."""
    sharp: float = 2.0
    """Spread of a neighbouring limit, in that of the limit, if only first calls had a free place (heuristic: 2.5)."""
    even: float = 0.75
    """Shortest interval between responses of one call at a time, by the median (heuristic: 1 in 20 may be less)."""
    waited_share: float = 0.5
    """Share of calls that waited as long as one takes (heuristic: most of them)."""
    wait_goes_on: float = 1.5
    """The median response of the whole capture, in such times (heuristic: half of the calls still wait)."""
    of_method: float = 0.5
    """Share of the method's RPC time beyond the round trip that must be the server's (heuristic: most of it)."""
    slowest_link: int = 128_000
    """Bits per second that every link carries (heuristic: EDGE and ISDN do, slower ones are too slow for gRPC)."""
    near_ns: int = vantage.NEAR_NS
    """Round trip to a server on the host of the capture (as the core's limit): no link is between them."""


class _Fit(Struct, frozen=True, eq=False):
    """Some calls to one server, as a limit explains them; all columns are equally long, in the order of arrival."""

    limit: int
    rows: Ints
    """Rows of the RPCs."""
    begin_ns: Ints
    """When each arrived at the server or its place became free, as its response would show."""
    freed_by: Ints
    """Place of the call whose end freed its place; -1 where one was free."""
    took_ns: Ints
    """From then to its end."""
    spread: float


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield a finding about the servers with equal limits, and about those whose calls wait for others or for steps."""
    yield from _find_pools(tables, limits)
    facts: tuple[_Releaser, ...] = (*releasers.find_occupied(tables), *releasers.find_paced(tables))
    cases = (
        Case(fact, fact.list_all_connections(tables), 1, len(facts) - place, kind=fact.name_limit(tables, ""))
        for place, fact in enumerate(facts)
    )
    yield from put_together(tables, cases, lambda group: _report_releaser(tables, group))


def _find_pools(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the method with the longest time of a call, and its servers with equal limits."""
    methods = {method.number: method for method in tables.methods}
    slow = [number for number, method in methods.items() if _may_wait(method, limits)]
    groups = sorted(_group_calls(tables, slow, limits.calls), key=len, reverse=True)
    fits = (
        _fit_limit(tables, rows[: limits.most_calls], methods[int(tables.rpcs.method[rows[0]])], limits)
        for rows in groups[: limits.groups]
    )
    found = [fit for fit in fits if fit is not None and (fit.limit > 1 or not _may_be_link(tables, fit, limits))]
    if found and (lack := threads.explain_lack(tables)):
        yield Skipped(ID, f"{lack}: as many processors look like a limit")
    elif found:
        longest = max(found, key=_measure_call)
        cases = (
            Case(fit, tuple(distinct(tables.rpcs.connection[fit.rows]).tolist()), 1, _measure_call(fit))
            for fit in found
            if fit.limit == longest.limit and _get_method(tables, fit) == _get_method(tables, longest)
        )
        yield from put_together(tables, cases, lambda group: _make_finding(tables, group))


def _measure_call(fit: _Fit) -> float:
    return float(np.median(fit.took_ns))


def _get_method(tables: Tables, fit: _Fit) -> int:
    return int(tables.rpcs.method[fit.rows[0]])


def _may_wait(method: Method, limits: Limits) -> bool:
    """Check whether the median response leaves room for a call of the shortest time and a wait in the server."""
    is_long = (method.turnaround or {}).get("p50", 0) >= limits.wait_goes_on * limits.shortest_ns
    beyond_path = sum(method.budget) - method.budget[_NETWORK]
    return is_long and method.budget[_SERVER] >= limits.of_method * beyond_path


def _fit_limit(tables: Tables, rows: Ints, method: Method, limits: Limits) -> _Fit | None:
    """Find the least limit that explains the calls; None when none does."""
    start, end = _list_times(tables, rows)
    near = max(int(tables.connections.near_server_rtt_ns[tables.rpcs.connection[rows]].max()), 0)
    arrival, response = start + near, (method.turnaround or {}).get("p50", 0) - near
    if fit := _fit_one(rows, arrival, end, limits):
        explained = _explains(fit, limits) or _queues_behind_first(fit, arrival, end, limits)
        return fit if explained and _waits(fit, arrival, response, limits) else None
    begin, freed_by = _try_limits(arrival, end, _count_open(start, end))
    took = end - begin
    if not len(took):
        return None
    low, median, high = np.quantile(took, (0.1, 0.5, 0.9), axis=1)
    # no call can be answered sooner than one takes
    possible = (median > 0) & ((end - arrival).min() >= limits.not_faster * median)
    alike = np.flatnonzero(possible & (high - low <= limits.spread * median))
    fits = (
        _Fit(row + 1, rows, begin[row], freed_by[row], took[row], float((high[row] - low[row]) / median[row]))
        for row in alike.tolist()
    )
    spreads = (high - low) / np.maximum(median, 1)
    # callers in a loop make multiples of the limit fit as well
    for fit in fits:
        first = _is_free_at_first(fit, arrival, end)
        fitting = _is_sharp(fit, spreads, limits) if first else _explains(fit, limits)
        if fitting and _waits(fit, arrival, response, limits):
            return fit
    return None


def _fit_one(rows: Ints, arrival: Ints, end: Ints, limits: Limits) -> _Fit | None:
    """Explain the calls by a server that works on one at a time; None unless they end at even intervals."""
    order = np.argsort(end, kind="stable")
    before = np.full(len(end), -1)
    before[order[1:]] = order[:-1]
    # another call had come when the one before it ended
    waiting = np.searchsorted(np.sort(arrival), end[before], side="right") > np.argsort(order)
    freed_by = np.where((before >= 0) & waiting, before, -1)
    waited = freed_by >= 0
    took = end - np.where(waited, end[freed_by], arrival)
    if waited.sum() < max(1, limits.calls - 1):
        return None
    least, low, median, high = np.quantile(took[waited], (0.05, 0.1, 0.5, 0.9))
    fit = _Fit(1, rows, end - took, freed_by, took, float((high - low) / max(median, 1)))
    even = least >= limits.even * median and fit.spread <= limits.spread
    return fit if even else None


def _group_calls(tables: Tables, methods: list[int], least: int) -> Iterator[Ints]:
    """Yield the calls of `methods` to each server by method, in the order of their begin, where they are `least`.

    They end where others may have no rows.
    """
    rpcs, c = tables.rpcs, tables.connections
    server = hosts.number_servers(tables)
    servers = distinct(server)
    place = np.searchsorted(servers, server)
    # the first rows of each connection; where a stream limit is reached, others wait in the client
    rows = np.lexsort((rpcs.stream, rpcs.start_time_ns, rpcs.connection))
    on = rpcs.connection[rows]
    first = np.arange(len(rows)) - np.searchsorted(on, on) < _core.FIRST_RPCS
    limited = (c.peer_max_concurrent_streams >= 0) & (c.max_concurrent_rpcs >= c.peer_max_concurrent_streams)
    rows = rows[first & ~limited[on]]
    on, start = rpcs.connection[rows], rpcs.start_time_ns[rows]
    more = c.rpcs[on] > np.bincount(on, minlength=len(server))[on]
    latest = np.full(len(server), np.iinfo(np.int64).min)
    np.maximum.at(latest, on, start)
    until = np.full(len(servers), np.iinfo(np.int64).max)
    np.minimum.at(until, place[on[more]], latest[on[more]])
    whole = rpcs.flags[rows] & (COMPLETE | BEGUN_BEFORE) == COMPLETE
    rows = rows[np.isin(rpcs.method[rows], methods) & whole & (start <= until[place[on]])]
    keys = (rpcs.stream[rows], rpcs.start_time_ns[rows], rpcs.method[rows], place[rpcs.connection[rows]])
    rows = rows[np.lexsort(keys)]
    kind = np.c_[place[rpcs.connection[rows]], rpcs.method[rows].astype(np.int64)]
    ends = np.append(np.flatnonzero((kind[1:] != kind[:-1]).any(axis=1)) + 1, len(rows))
    begins = np.append(0, ends[:-1])
    many = ends - begins >= least  # there may be very many servers
    yield from (rows[begin:end] for begin, end in zip(begins[many].tolist(), ends[many].tolist(), strict=True))


def _sort_ends(end: Ints) -> Ints:
    """List in each row the calls before that call, in the order of their ends, and then zeros."""
    order = np.argsort(end, kind="stable")
    ended = np.zeros((len(end), len(end)), dtype=np.int64)
    for place in range(len(end)):
        ended[place, :place] = order[order < place]
    return ended


def _list_times(tables: Tables, rows: Ints) -> tuple[Ints, Ints]:
    start = tables.rpcs.start_time_ns[rows]
    return start, start + tables.rpcs.duration_ns[rows]


def _count_open(start: Ints, end: Ints) -> int:
    """Count the most calls that were open at once: those begun by each begin, less those ended."""
    return int((np.arange(1, len(start) + 1) - np.searchsorted(np.sort(end), start, side="right")).max())


def _try_limits(arrival: Ints, end: Ints, most: int) -> tuple[Ints, Ints]:
    """Say when each call began, and which call freed its place, for each limit below `most` from 1 on."""
    place = np.arange(len(end))
    # its place is free when all calls before it but limit - 1 have ended
    rank = place - np.arange(1, max(most, 1))[:, np.newaxis]
    freeing = _sort_ends(end)[place, np.maximum(rank, 0)]
    waits = (rank >= 0) & (end[freeing] > arrival)
    return np.where(waits, end[freeing], arrival), np.where(waits, freeing, -1)


def _explains(fit: _Fit, limits: Limits) -> bool:
    """Check whether calls take about as long with a wait as without one."""
    waited = fit.freed_by >= 0
    if not waited.any() or waited.all():
        return False
    took, free = float(np.median(fit.took_ns[waited])), float(np.median(fit.took_ns[~waited]))
    return took * limits.not_faster <= free <= took * limits.not_slower


def _is_free_at_first(fit: _Fit, arrival: Ints, end: Ints) -> bool:
    """Check whether no call found a free place but those that came before the first response."""
    free = fit.freed_by < 0
    return bool(arrival[free].max(initial=0) < end.min())


def _is_sharp(fit: _Fit, spreads: npt.NDArray[np.float64], limits: Limits) -> bool:
    """Check whether the limits next to one fit far worse; with a limit on the rate they fit as well."""
    place = fit.limit - 1
    if place < 1 or place + 1 >= len(spreads):
        return False
    return bool(min(spreads[place - 1], spreads[place + 1]) >= limits.sharp * spreads[place])


def _queues_behind_first(fit: _Fit, arrival: Ints, end: Ints, limits: Limits) -> bool:
    """Check whether the first call alone found a free place and was slow, and those behind it still took far longer.

    Calls that are worked on together take no longer than the first, however evenly they end. A first call that is
    faster than the interval shows a limit on the rate.
    """
    waited, response = fit.freed_by >= 0, end - arrival
    first = response[~waited]
    slow = len(first) == 1 and first[0] > float(np.median(fit.took_ns[waited]))
    return bool(slow and np.median(response[waited]) >= limits.queued * first[0])


def _waits(fit: _Fit, arrival: Ints, response: int, limits: Limits) -> bool:
    """Check that calls wait as long as one takes: most of those judged, and the median of the whole capture."""
    took = float(np.median(fit.took_ns[fit.freed_by >= 0]))
    queued = fit.begin_ns - arrival >= took
    return (
        took >= limits.shortest_ns
        and float(queued.mean()) >= limits.waited_share
        and response >= limits.wait_goes_on * took
    )


def _may_be_link(tables: Tables, fit: _Fit, limits: Limits) -> bool:
    """Check whether a slow link between capture point and server may let one call after the other through."""
    c, rows = tables.connections, distinct(tables.rpcs.connection[fit.rows])
    sent = c.bytes_client[rows].sum() + _HEADERS * c.packets_client[rows].sum()
    answered = c.bytes_server[rows].sum() + _HEADERS * c.packets_server[rows].sum()
    bits = 8 * max(int(sent), int(answered)) / int(c.rpcs[rows].sum())
    took = float(np.median(fit.took_ns[fit.freed_by >= 0])) / 1e9
    return bool(c.near_server_rtt_ns[rows].max() > limits.near_ns and bits >= limits.slowest_link * took)


def _make_finding(tables: Tables, group: Group[_Fit]) -> Finding:
    fit, connections, server = group.facts[0], group.cases[0].connections, group.who
    rows = fit.rows
    method = next(method for method in tables.methods if method.number == _get_method(tables, fit))
    start, end = _list_times(tables, rows)
    near = max(int(tables.connections.near_server_rtt_ns[list(connections)].max()), 0)
    took = float(np.median(fit.took_ns[fit.freed_by >= 0]))
    mean = float((method.latency or {}).get("mean", 0))
    share = max(0.0, 1 - (took + near) / mean) * method.rpcs / tables.rpc_count if mean else 0.0
    waited, name = float(np.median((fit.begin_ns - start - near)[fit.freed_by >= 0])), method.name or "one method"
    spent = _read_threads(tables, connections)
    known = spent and spent.advise()
    unknown, look = (
        (_UNKNOWN_ONE, "a blocked event loop, a lock, a pool of one")
        if fit.limit == 1
        else (_UNKNOWN, "a pool of threads")
    )
    calls, most = count(fit.limit, "call"), _count_open(start, end)
    one, wait = duration(took), duration(waited)
    at = group.say("", f" at {hosts.host(tables, connections[0], 1)}")
    works = f"{server} {group.say('seems', 'seem')} to work"
    return Finding(
        id=ID,
        title=f"{works} on {calls} at once{group.say('', ' each')}, while {most:,} are open",
        severity="info",
        confidence=ratings.lower("medium" if fit.limit > 1 or known else "low", ratings.quality_allows(tables)),
        scope=Scope(group.connections, names(tables, [method.number])),
        metrics={
            "limit": fit.limit,
            "calls_judged": len(rows),
            "most_open_calls": most,
            "calls_that_waited": int((fit.freed_by >= 0).sum()),
            "service_time_p50_ns": int(took),
            "service_time_spread": round(fit.spread, 3),
            "queue_time_p50_ns": int(waited),
            "queued_share": round(share, 4),
            **(spent.make_metrics() if spent else {}),
        },
        evidence=tuple(item for one_server in group.shown for item in _show_queue(tables, one_server)),
        explanation=(
            f"Of the first {len(rows):,} calls of {name}{at}, {most:,} were open at once. Their responses came as from "
            f"a server that works on {calls} at once: each took about {one} after its place became free, however many "
            f"were open. The others waited {wait} for a place (median). {spent.explain() if spent else unknown}"
        ),
        remedies=_list_remedies(server, fit.limit, software_at.recognise_server(tables, connections)),
        references=("https://grpc.io/docs/guides/performance/",),
        verdict=(
            f"{works} on {calls} of {name} at once, {one} each; "
            f"{known or f'the others wait {wait} inside it: look for {look}'}."
        ),
    )


def _report_releaser(tables: Tables, group: Group[_Releaser]) -> Finding:
    fact, server = group.facts[0], group.who
    return Finding(
        id=ID,
        title=fact.name_limit(tables, server),
        severity="info",
        confidence=ratings.lower("medium", ratings.quality_allows(tables)),
        scope=Scope(group.connections, methods_of_connections(tables, group.connections)),
        metrics=fact.measure(tables),
        evidence=tuple(item for one in group.shown for item in one.show(tables)),
        explanation=fact.explain(tables, server),
        remedies=(fact.make_remedy(server),),
        references=("https://grpc.io/docs/guides/performance/",),
        verdict=fact.advise(tables, server),
    )


def _read_threads(tables: Tables, connections: tuple[int, ...]) -> threads.Spent | None:
    whole = int(tables.connection_budgets[list(connections), _SERVER].sum())
    return threads.read_spent(tables, 1, lambda acts: np.isin(acts.connection, connections) & (acts.idle == 0), whole)


def _show_queue(tables: Tables, fit: _Fit) -> Iterator[Evidence]:
    """Show the call that waited longest, and the one that freed its place; servers may let a later call go first."""
    start, _ = _list_times(tables, fit.rows)
    waited = (fit.freed_by >= 0) & (fit.took_ns > 0)
    place = int(np.argmax(np.where(waited, fit.begin_ns - start, -1)))
    row, freeing = int(fit.rows[place]), int(fit.rows[fit.freed_by[place]])
    yield failures.began(tables, row)
    yield failures.ended(tables, freeing, "a response frees a place")
    yield failures.ended(tables, row, f"the response, {duration(float(fit.took_ns[place]))} later")


def _list_remedies(server: str, limit: int, software: str | None) -> tuple[Remedy, ...]:
    """List the limits of the software seen, then those of any handler; only words that fit all without it."""
    more = "more calls at once, if processors and backends allow"
    wanted = (*((intents.ONE_AT_A_TIME,) if limit == 1 else ()), intents.MORE_AT_ONCE)
    own = [one for intent in wanted for one in settings.list_own(intent, software, more, where=f"on {server}")]
    loop = "an event loop that handlers block, or a pool of one thread"
    pool = "the server's pool of threads, its executor or its limit on calls"
    return (
        *(own or (Remedy("application", loop if limit == 1 else pool, f"on {server}: {more}"),)),
        Remedy("application", "semaphores, locks and connection pools in the handler", f"on {server}: {more}"),
        Remedy("application", "RESOURCE_EXHAUSTED when the queue is long", "callers fail at once instead of waiting"),
    )
