"""What calls waited for inside a server: the end of calls that occupied it, or the next step of time.

Both are measured for each server, and, where that explains nothing, for each two hosts and each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.finding import Evidence, Remedy
from ..model.text import count, duration
from ..tables import BEGUN_BEFORE, COMPLETE, Ints, Mask, Method, Tables
from ..tables.grouping import distinct, group_rows, number_rows
from . import evidence, failures, hosts
from .methods import rpc_time

Fact = TypeVar("Fact")

_SERVER = CAUSES.index("server")
_MOST_SCOPES = 200
"""Most servers, pairs of hosts and connections asked for (heuristic: bounds the work)."""
_PLACES = 2
"""Fewest calls that occupy a server (heuristic: one open call beside others that fail may be chance)."""
_HELD_NS = 200_000_000
"""Shortest time for which a call occupies a place (heuristic: below, others need no deadline to outlast it)."""
_SOON_NS = 5_000_000
"""A response so soon after the end of another call was freed by it (heuristic: a busy host takes 1 ms)."""
_QUICK = 0.2
"""A call is quick up to this share of what the others waited (heuristic: a fifth)."""
_OF_SERVER = 0.9
"""Share of the time of a call without a response that must be the server's (heuristic: nearly all of it)."""
_STEPS = 3
"""Fewest steps that show a pace (heuristic: two have one interval only)."""
_STEP_NS = 200_000_000
"""Shortest interval between steps (heuristic: twice the period of CFS's CPU quota, which looks alike)."""
_TOGETHER_NS = 50_000_000
"""Responses on several connections within this time are of one step (as the shortest silence of a connection)."""
_CALLS = 5
"""Fewest calls that a step answers (heuristic: fewer are equal by chance)."""
_EVEN = 0.05
"""Most difference of an interval from the median, as a share of it (heuristic: timers are as exact)."""
_MANY_STEPS, _ABOUT_EVEN = 5, 0.2
"""The same of so many steps (heuristic: other bytes of the server, such as PINGs, may come a little sooner)."""
_EQUAL = 0.8
"""Fewest calls of a step, as a share of the most (heuristic: some places go to calls that were given up)."""
_LEFT = 0.5
"""Calls that wait on behind a step, as a share of those that it answers (heuristic: who answers all leaves none)."""
_SAME, _SAME_STEPS = 0.1, 0.25
"""Share of the steps that leave as many as the one before, within this share of a step's calls (heuristic: a client
that sets the pace, and whose calls all take as long, leaves as many each time)."""
_AT_ONCE = 0.2
"""Share of the interval, and of the difference of their durations, in which a step's responses come (heuristic)."""
_ARRIVED = 0.1
"""Share of the interval over which a step's calls had begun (heuristic: a client that sets the pace sends at once)."""


class Occupied(Struct, frozen=True, eq=False):
    """Calls of a method that a server did not answer while as many calls of other methods were open."""

    rows: Ints
    """Rows of the RPCs that waited: none was answered before one of the others ended."""
    holders: Ints
    """Rows of the calls of other methods that were open meanwhile."""
    places: int
    """How many of these were open at least."""
    quick: tuple[int, ...]
    """Rows of calls of the method that were answered at once: the last one before, and the first one behind."""
    quick_ns: int
    """How long those took (median)."""

    def list_all_connections(self, tables: Tables) -> tuple[int, ...]:
        """List the connections of all these calls."""
        rows = np.r_[self.rows, self.holders, np.array(self.quick, dtype=np.int64)]
        return failures.connections_of(tables, rows.astype(np.uint32))

    def name(self, tables: Tables) -> str:
        """Name the calls that were open meanwhile: `4 calls of /demo.Feed/Watch`."""
        of = list(failures.by_method(tables, self.holders.astype(np.uint32)))
        return f"{self.places:,} calls of {of[0]}{' and others' if of[1:] else ''}"

    def name_limit(self, tables: Tables, server: str) -> str:
        """Say in a title what the calls waited for."""
        return f"{self.name(tables)} seem to occupy all workers of {server}"

    def list_connections(self, tables: Tables) -> tuple[int, ...]:
        """List the connections of the calls that waited."""
        return failures.connections_of(tables, self.rows.astype(np.uint32))

    def measure(self, tables: Tables) -> dict[str, int | float | str]:
        """Give the figures for a finding."""
        return {
            "limit": self.places,
            "calls_that_waited": len(self.rows),
            "service_time_p50_ns": self.quick_ns,
            "queued_share": round(len(self.rows) / tables.rpc_count, 4),
        }

    def explain(self, tables: Tables, server: str) -> str:
        """Say what was open while the calls waited, and what is not known."""
        method = tables.method_name(int(tables.rpcs.method[self.rows[0]])) or "their method"
        return (
            f"No call of {method} was answered while {self.name(tables)} were open. Before and after, one took "
            f"{duration(self.quick_ns)}. The open calls seem to occupy all workers of {server}. A lock or a limit in "
            "its handlers looks the same."
        )

    def advise(self, tables: Tables, server: str) -> str:
        """Say in the verdict what the calls waited for, and what to do."""
        return f"{self.name(tables)} seem to occupy all workers of {server}, and others wait: add workers."

    def make_remedy(self, server: str) -> Remedy:
        """Advise more workers."""
        note = f"on {server}: each open call takes one of them, however idle it is"
        return Remedy("application", "more workers than long calls, or handlers that need no thread", note)

    def show(self, tables: Tables) -> Iterator[Evidence]:
        """Show the begin of the last call that took a place, and the calls before and after the wait."""
        before, after = self.quick
        begins = tables.rpcs.start_time_ns[self.holders]
        last = self.holders[begins < tables.rpcs.start_time_ns[self.rows].min()][-1:]
        yield failures.ended(tables, before, "the last response before the wait")
        yield from (failures.began(tables, row) for row in last.tolist())
        yield failures.began(tables, int(self.rows[0]))
        yield failures.ended(tables, after, "the first response of a call that did not wait")


class Paced(Struct, frozen=True, eq=False):
    """Responses of a server that come in even steps of time, while more calls wait than a step answers."""

    connections: Ints
    stalls: Ints
    """Rows of the stalls table that the steps ended."""
    calls: int
    """Most calls that a step answered."""
    steps: int
    every_ns: int
    """The interval between steps (mean)."""
    quick_ns: int
    """The quickest response."""

    def list_all_connections(self, tables: Tables) -> tuple[int, ...]:
        """List the connections."""
        return self.list_connections(tables)

    @property
    def rate(self) -> str:
        """Write calls and interval: `50 calls per second`."""
        second = 1_000_000_000
        per = "second" if abs(self.every_ns - second) <= _EVEN * second else duration(self.every_ns)
        return f"{self.calls:,} calls per {per}"

    def name_limit(self, _tables: Tables, server: str) -> str:
        """Say in a title what the calls waited for."""
        return f"a limit of {self.rate} in {server}, or a queue drained in batches"

    def list_connections(self, _tables: Tables) -> tuple[int, ...]:
        """List the connections."""
        return tuple(self.connections.tolist())

    def measure(self, tables: Tables) -> dict[str, int | float | str]:
        """Give the figures for a finding."""
        waited = sum(
            max(0, (method.latency or {}).get("mean", 0) - self.quick_ns) * method.complete
            for method in _list_methods(tables, self.connections)
        )
        return {
            "calls_per_step": self.calls,
            "steps": self.steps,
            "step_ns": self.every_ns,
            "service_time_least_ns": self.quick_ns,
            "queued_share": round(min(1.0, waited / max(1, rpc_time(tables))), 4),
        }

    def explain(self, _tables: Tables, server: str) -> str:
        """Say how the responses came, and what is not known."""
        return (
            f"The responses of {server} came at most {self.calls:,} at a time every {duration(self.every_ns)}, "
            f"{self.steps:,} times, while more calls waited. The quickest took {duration(self.quick_ns)}. "
            f"A limit of {self.rate} in the server does that, and so does a queue that is drained in batches."
        )

    def advise(self, _tables: Tables, server: str) -> str:
        """Say in the verdict what the calls waited for."""
        return f"A limit of {self.rate}, or a queue drained in batches, seems to pace {server}."

    def make_remedy(self, server: str) -> Remedy:
        """Advise another rate."""
        note = f"on {server}: a limit on the rate, or the interval of a queue that is drained in batches"
        return Remedy("application", f"raise the limit of {self.rate}, or send less", note)

    def show(self, tables: Tables) -> Iterator[Evidence]:
        """Show where the first steps begin."""
        s = tables.stalls
        for row in self.stalls[: evidence.EXAMPLES].tolist():
            answered, left = int(s.waiting[row] - s.unanswered[row]), int(s.unanswered[row])
            what = f"{count(answered, 'response')} in {duration(int(s.answers_ns[row]))} from here, {left:,} wait on"
            yield Evidence(int(s.resumed_at_packet[row]), int(s.start_time_ns[row] + s.duration_ns[row]), what)


_OCCUPIED: WeakKeyDictionary[Tables, list[Occupied]] = WeakKeyDictionary()
_PACED: WeakKeyDictionary[Tables, list[Paced]] = WeakKeyDictionary()
"""What two detectors ask for, found once."""


def find_occupied(tables: Tables) -> list[Occupied]:
    """Find the servers that calls of other methods occupied, that with most waiting calls first."""
    if tables not in _OCCUPIED:
        starved, freed = _mark_starved(tables), _mark_slow(tables)
        with_some = distinct(tables.rpcs.connection[starved | freed])
        found = _search(tables, with_some, lambda connections: _find_occupied(tables, connections, starved, freed))
        _OCCUPIED[tables] = sorted(found, key=lambda one: -len(one.rows))
    return _OCCUPIED[tables]


def find_paced(tables: Tables) -> list[Paced]:
    """Find the servers that answer in steps of time, the one with most steps first."""
    if tables not in _PACED:
        with_some = distinct(tables.stalls.connection[_mark_steps(tables)])
        found = _search(tables, with_some, lambda connections: _find_paced(tables, connections))
        _PACED[tables] = sorted(found, key=lambda one: -one.steps)
    return _PACED[tables]


def _search(tables: Tables, some: Ints, find: Callable[[Ints], Fact | None]) -> Iterator[Fact]:
    """Ask for the connections of each server, of each two hosts, and each: those of `some` that are not explained."""
    c, servers = tables.connections, hosts.number_servers(tables)
    left = np.zeros(len(servers), dtype=bool)
    left[some] = True
    for scope in (servers, number_rows(c.client_ip, servers), np.arange(len(servers))):
        asked = np.flatnonzero(np.isin(scope, scope[left]))
        for group in list(group_rows(scope[asked]).values())[:_MOST_SCOPES]:
            if (fact := find(asked[group])) is not None:
                left[asked[group]] = False
                yield fact


def _mark_starved(tables: Tables) -> Mask:
    """Mark RPCs that reached their deadline without a response, while no other of their method was answered.

    Their time was the server's: no path or window held them.
    """
    f, rpcs = tables.failures, tables.rpcs
    starved = np.zeros(len(rpcs.start_time_ns), dtype=bool)
    if len(tables.failure_budgets) == len(f.rpc):
        late = (rpcs.status[f.rpc] == failures.DEADLINE_EXCEEDED) & (f.response_messages == 0) & (f.since_answer_ns < 0)
        starved[f.rpc] = late & (tables.failure_budgets[:, _SERVER] >= _OF_SERVER * rpcs.duration_ns[f.rpc])
    return starved


def _mark_answered(tables: Tables) -> Mask:
    """Mark RPCs that got a response message, or all of an OK."""
    answered = (tables.rpcs.flags & (COMPLETE | BEGUN_BEFORE) == COMPLETE) & (tables.rpcs.status == failures.OK)
    answered[tables.failures.rpc[tables.failures.response_messages > 0]] = True
    return np.asarray(answered)


def _mark_slow(tables: Tables) -> Mask:
    """Mark RPCs that were answered late, of methods that are quick at times: what freed them is worth a look."""
    quick = [m.number for m in tables.methods if 0 <= (m.turnaround or {}).get("min", -1) <= _QUICK * _HELD_NS]
    slow = (tables.rpcs.duration_ns >= _HELD_NS) & np.isin(tables.rpcs.method, quick)
    return np.asarray(slow & _mark_answered(tables))


def _find_occupied(tables: Tables, connections: Ints, starved: Mask, slow: Mask) -> Occupied | None:
    rpcs = tables.rpcs
    rows = np.flatnonzero(np.isin(rpcs.connection, connections))
    # a call without a row may have been answered meanwhile
    some = starved | slow if int(tables.connections.rpcs[connections].sum()) == len(rows) else starved
    numbers, counts = np.unique(rpcs.method[rows[some[rows]]], return_counts=True)
    for method in numbers[(counts >= failures.FEW)].tolist():
        found = _judge_method(tables, rows, some, method)
        if found is not None and _knows_answers(tables, connections, rows, found):
            return found
    return None


def _judge_method(tables: Tables, rows: Ints, some: Mask, method: int) -> Occupied | None:
    """Judge whether calls of a method waited just while as many calls of others were open; None if any did not."""
    rpcs, answered = tables.rpcs, _mark_answered(tables)
    begins, ends = rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns
    is_mine = rpcs.method[rows] == method
    mine, waited = rows[is_mine], rows[is_mine & some[rows]]
    long = answered[rows] & (rpcs.duration_ns[rows] >= max(_HELD_NS, int(np.median(rpcs.duration_ns[waited]))))
    open_at = _Open(np.sort(begins[rows[~is_mine & long]]), np.sort(ends[rows[~is_mine & long]]))
    waited = waited[~answered[waited] | open_at.mark_freed(begins[waited], ends[waited])]
    if len(waited) < failures.FEW:
        return None
    # of calls that queue for a place, others may get the first ones that become free
    until = np.where(answered[waited], begins[waited], ends[waited])
    places = int(open_at.count_least(begins[waited], until).min())
    others = np.setdiff1d(rows[answered[rows] & ~(~is_mine & long)], waited)
    if places < _PLACES or (open_at.count_least(begins[others], ends[others]) >= places).any():
        return None
    return _compare(tables, waited, rows[~is_mine & long], np.intersect1d(mine, others), places)


def _compare(tables: Tables, waited: Ints, holders: Ints, quick: Ints, places: int) -> Occupied | None:
    """Compare calls that waited with those of their method before and after them, which must have been quick."""
    begins, lasted = tables.rpcs.start_time_ns, tables.rpcs.duration_ns
    ends = begins + lasted
    before, after = quick[ends[quick] <= begins[waited].min()], quick[begins[quick] >= begins[waited].max()]
    if not len(before) or not len(after):
        return None
    quick_ns = int(np.median(lasted[np.r_[before, after]]))
    if quick_ns > _QUICK * int(lasted[waited].min()):
        return None
    shown = int(before[np.argmax(ends[before])]), int(after[np.argmin(begins[after])])
    held = holders[(begins[holders] < ends[waited].max()) & (ends[holders] > begins[waited].min())]
    return Occupied(waited, held, places, shown, quick_ns)


class _Open(Struct, frozen=True, eq=False):
    """When some calls began and ended, both sorted."""

    begins: Ints
    ends: Ints

    def mark_freed(self, since: Ints, until: Ints) -> Mask:
        """Mark intervals that one of them ended in, right before their end."""
        last = np.append(self.ends, 0)[np.searchsorted(self.ends, until, side="right") - 1]
        return np.asarray((last > since) & (until - last <= _SOON_NS))

    def count_least(self, since: Ints, until: Ints) -> Ints:
        """Count the fewest that were open at any moment of each interval."""
        first, last = (np.searchsorted(self.ends, times, side="right") for times in (since, until))
        least = np.searchsorted(self.begins, since, side="right") - first
        behind = np.searchsorted(self.begins, self.ends, side="right") - np.arange(1, len(self.ends) + 1)
        for place in np.flatnonzero(last > first).tolist():
            least[place] = min(least[place], behind[first[place] : last[place]].min())
        return np.asarray(least)


def _knows_answers(tables: Tables, connections: Ints, rows: Ints, found: Occupied) -> bool:
    """Check that no call without a row can have been answered meanwhile: one of another method or connection."""
    if int(tables.connections.rpcs[connections].sum()) == len(rows):
        return True
    used = tables.connection_methods
    known = tables.rpcs.method[np.r_[found.rows, found.holders]]
    return len(connections) == 1 and bool(np.isin(used.method[np.isin(used.connection, connections)], known).all())


def _mark_steps(tables: Tables) -> Mask:
    """Mark silences of servers behind which calls were answered."""
    s = tables.stalls
    return np.asarray((s.direction == 1) & (s.answers_ns >= 0) & (s.waiting > s.unanswered))


def _find_paced(tables: Tables, connections: Ints) -> Paced | None:
    """Find the steps of a server; some calls must wait for a step more than others, or each may take as long."""
    rows = np.flatnonzero(_mark_steps(tables) & np.isin(tables.stalls.connection, connections))
    times = tables.stalls.start_time_ns[rows] + tables.stalls.duration_ns[rows]
    order = np.argsort(times, kind="stable")
    rows, times = rows[order], times[order]
    firsts = np.flatnonzero(np.append(True, np.diff(times) > _TOGETHER_NS)[: len(times)])
    begin, end = _find_even(times[firsts])
    if end - begin < _STEPS:
        return None
    bounds = np.append(firsts, len(rows))
    times_taken = [method.turnaround for method in _list_methods(tables, connections) if method.turnaround]
    varied_ns = max((taken["max"] - taken["p50"] for taken in times_taken), default=0)
    steps = [rows[bounds[place] : bounds[place + 1]] for place in range(begin, end)]
    every = int(times[firsts[end - 1]] - times[firsts[begin]]) // (end - begin - 1)
    if every < _STEP_NS or varied_ns < every:
        return None
    return _judge_steps(tables, steps, every, min(taken["min"] for taken in times_taken))


def _list_methods(tables: Tables, connections: Ints) -> Iterator[Method]:
    used = tables.connection_methods
    numbers = distinct(used.method[np.isin(used.connection, connections)]).tolist()
    return (method for method in tables.methods if method.number in numbers)


def _find_even(times: Ints) -> tuple[int, int]:
    """Find the longest run of times with about even intervals between them: its begin and its end."""
    intervals = np.diff(times)
    differ = np.abs(intervals - np.median(intervals)) if len(intervals) else intervals
    uneven = differ > _ABOUT_EVEN * intervals
    bounds = np.r_[-1, np.flatnonzero(uneven), len(intervals)]
    longest = int(np.argmax(np.diff(bounds)))
    begin, end = int(bounds[longest]) + 1, int(bounds[longest + 1]) + 1
    exact = differ[begin : end - 1] <= _EVEN * intervals[begin : end - 1]
    return (begin, end) if end - begin >= _MANY_STEPS or exact.all() else (begin, begin)


def _judge_steps(tables: Tables, steps: list[Ints], every: int, quick_ns: int) -> Paced | None:
    """Judge whether time alone ends the waits: each step answers as many, and leaves others that came before it."""
    s = tables.stalls
    answered = np.array([int((s.waiting[step] - s.unanswered[step]).sum()) for step in steps])
    left = np.array([int(s.unanswered[step].sum()) for step in steps])
    most, rows = int(answered.max()), np.concatenate(steps)
    busy = left >= _LEFT * most
    took, apart = s.answers_ns[rows], s.durations_ns[rows]
    at_once = (took <= _AT_ONCE * every) & (took <= _AT_ONCE * apart) & (apart >= _ARRIVED * every)
    if most < _CALLS or quick_ns > _QUICK * every:
        return None
    if busy.sum() < _STEPS or (answered[busy] < _EQUAL * most).any() or not at_once.all():
        return None
    same = np.abs(np.diff(left[busy])) < _SAME * most
    if same.mean() > _SAME_STEPS:
        return None
    return Paced(distinct(s.connection[rows]), rows, most, len(steps), every, quick_ns)
