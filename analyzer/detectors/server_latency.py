"""The server took long to respond.

What it finds
-------------
Calls are slow, and most of their time passes at the server. It is measured as response time: from the last byte of a
request message to the first byte of the next response message on the stream. It begins at the request's END_STREAM if
that comes clearly later: by more than 1 ms, and more than a round trip.

Three patterns are distinguished. *All calls alike*: the handler needs that time, which is reported as `info`. *A long
tail*: most responses come quickly and some take very much longer, which is a warning. Such calls wait for something
in the server: a lock, a pool, a queue, garbage collection, another service. The time lost is the server's time beyond
the method's median. *One slow server*: the slow calls are those of one of several servers of a client, which is a
warning, too.

How it is decided
-----------------
By the method's distribution of response times, less the round trip between the capture point and the server. The
response time must be long in itself and compared with the round trip between client and server.

If all calls are alike, most of the method's RPC time must be time in which a request had no response yet. A stream
that the server keeps open, such as a watch, is the server's time too, but nobody waits there. A fast call is not
reported just because the server has the largest part of it.

A tail is compared with the method's own median. Few calls can be most of what a user notices, so their part of all
RPC time does not matter. Most of the excess over the median must be the server's by the time by cause, and the 99th
percentile of the RPCs must be mostly response time. A tail counts only for methods with one response per request: a
stream may be silent because there is nothing to say.

Of calls through a proxy, both sides of which are in the capture, the legs behind the proxy count: the time that the
proxy held is not the server's.

If the longest calls are at a server whose mean call takes half as long as the tail, that is no tail. It is a slow
server if the same client has other servers whose mean is less than half of it.

When it cannot tell
-------------------
The packets show the server as one box: its host, its gRPC library, its handler and what the handler calls. With a
record of its threads (`capture --pid`) the finding says for what they waited, of a tail in the longest calls.
It is withdrawn if they mostly waited for processors, or were stopped by a CPU quota.

Packet loss makes responses late, too: a tail is not judged if packets were retransmitted, and the longest recovery took
half as long as the tail or longer. That holds for needless retransmissions as well: they show that ACKs were late,
which no handler delays. Nor is a tail judged where time in the network's queue (`network-queueing`) can explain it, or
for a method with fewer than a hundred responses of each server. Nor is it if the late calls began before their server
had answered any in the capture: a process that has just started takes long for its first calls (class loading, JIT
compilation, connections to backends).

What would refute it
--------------------
The server's own figures for the handler (interceptor, tracing) are far below these. Then its host or its library
held the call: the CPU, the number of threads, a proxy on the same host.

What to do
----------
Trace the handler at the times of the evidence. For a tail look for what these calls have in common: the same moment
(garbage collection, a full thread pool), the same key or size. If all calls are slow alike, that is the work: make
the calls in parallel, or reduce the work.

References
----------
- https://grpc.io/docs/guides/performance/
- https://opentelemetry.io/docs/specs/semconv/rpc/ (server duration, to compare with)
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..facts import contradictions, evidence, hosts
from ..facts import failures as common
from ..facts.hosts import host, name_hosts
from ..facts.methods import names, rpc_time, share_of_time
from ..facts.ratings import TAIL_FACTOR, TAIL_NS, lower, quality_allows
from ..facts.software_at import recognise_proxy
from ..facts.threads import Spent, explain_lack, read_spent
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..model.thresholds import NOTABLE_SHARE, UNARY_MESSAGES
from ..tables import COMPLETE, Ints, Method, Tables
from ..tables.grouping import distinct, group_rows

ID = "server-latency"
ABOUT = About(
    example="recorded/wild/grpclib-tail.pcap.zst",
    figure=contradictions.blocked_time("server"),
    caused_by=("hung-rpc", "synchronised-stall", "server-concurrency-limit"),
    weight="server_time_share",
    weighs_time=True,
    judges_servers=True,
    explains=("server",),
)

_NO_NAME = "a method whose name is not known"
_ONE_BOX = "The packets show the server as one box: host, library, handler and what it calls."
_SERVER = CAUSES.index("server")
_QUEUE = CAUSES.index("network_queue")


class Limits(Struct, frozen=True, eq=False):
    long_ns: int = 10_000_000
    """Median response time from which a method is slow (heuristic: ten times a usual lookup in memory, 10 ms)."""
    tail_ns: int = TAIL_NS
    """99th percentile that is a long tail (heuristic: above scheduling and garbage collection on a busy host)."""
    tail_factor: float = TAIL_FACTOR
    """A long tail has a 99th percentile of this many medians (heuristic; an exponential distribution has 6.6)."""
    round_trips: float = 2.0
    """Round trips between client and server that it must exceed (heuristic: the network cannot be the cause)."""
    of_method: float = 0.5
    """Share of the method's RPC time that must be the server's (heuristic: most of it)."""
    of_capture: float = NOTABLE_SHARE
    """Share of all RPC time that it must be (heuristic: above the variation between equal runs)."""
    of_tail: float = 0.5
    """Share of a tail's excess over the median that must be the server's (heuristic: most of it)."""
    of_user: float = 0.5
    """Share of the RPCs' 99th percentile that must be response time (heuristic: most of it)."""
    least_answers: int = 5
    """Fewest responses for a median (heuristic: two first calls with cold caches do not move a median of five)."""
    tail_answers: int = 100
    """Fewest responses of a server for a tail (heuristic: with fewer the 99th percentile is one response)."""
    first: float = 0.8
    """Share of a tail in calls begun before the server answered any, from which it is none (heuristic: most of it)."""
    of_server: int = 20
    """Fewest RPCs of each server whose medians are compared (heuristic: one slow start moves none of twenty)."""
    recovery: float = 0.5
    """Longest recovery, as a share of the tail, from which it is not judged (heuristic: two of them explain it)."""
    unary_messages: float = UNARY_MESSAGES
    """Messages per RPC up to which a method has one response per request (heuristic: two, and some rounding)."""


class _Peers(Struct, frozen=True, eq=False):
    """A server with the other servers of the same client."""

    connections: Ints
    """The connections to the slow server."""
    mean_ns: float
    """Mean time per RPC of the slow server, nanoseconds."""
    others: int
    """Number of the other servers."""
    others_mean_ns: float
    """Mean time per RPC of the slowest other server, nanoseconds."""
    lost_ns: int
    """Time of the slow server's RPCs beyond the mean of the others, nanoseconds in total."""


class _Slow(Struct, frozen=True, eq=False):
    """One method with its response times, less the round trip to the server."""

    method: Method
    p50_ns: int
    p99_ns: int
    tail: bool
    peers: tuple[_Peers, ...] = ()
    """The slow servers with the others of their clients, where those are not slow; the one that costs most first."""

    @property
    def lost_ns(self) -> int | None:
        """Return the time that the RPCs would not have needed; None where all calls are alike."""
        if self.peers:
            return sum(peers.lost_ns for peers in self.peers)
        return self.beyond_median_ns if self.tail else None

    @property
    def server_ns(self) -> int:
        """Return the server's time in all RPCs of the method."""
        return self.method.budget[_SERVER]

    @property
    def count(self) -> int:
        """Return the number of responses."""
        return (self.method.turnaround or {})["count"]

    @property
    def beyond_median_ns(self) -> int:
        """Return the server's time beyond what it had taken if each response had come after the median."""
        return max(0, self.server_ns - self.count * self.p50_ns)


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all methods with slow responses, or why tails could not be judged."""
    long = [method for method in tables.methods if _may_be_long(method, limits) or _may_differ(tables, method, limits)]
    if not long:
        return
    round_trip, near = _measure_round_trips(tables)
    if round_trip < 0:
        yield Skipped(ID, "no round-trip time was measured, so the server's part of the response time is unknown")
        return
    slow: list[_Slow] = []
    for method in long:
        found = _judge(tables, method, round_trip, near, limits)
        if isinstance(found, Skipped):
            yield found
        elif found:
            slow.append(found)
    if slow and (lack := explain_lack(tables)):
        yield Skipped(ID, lack)
    elif slow:
        yield _make_finding(tables, sorted(slow, key=lambda s: (s.lost_ns is None, -s.server_ns)))


def _may_be_long(method: Method, limits: Limits) -> bool:
    figures = method.turnaround
    if not figures or figures["count"] < limits.least_answers:
        return False
    return figures["p50"] >= limits.long_ns or figures["p99"] >= limits.tail_ns


def _may_differ(tables: Tables, method: Method, limits: Limits) -> bool:
    """Check whether a method with enough responses, some of them long, has several servers."""
    figures = method.turnaround
    if not figures or figures["count"] < 2 * limits.of_server or figures["p99"] < limits.long_ns:
        return False
    return len(distinct(hosts.number_servers(tables)[_find_connections(tables, method)])) > 1


def _find_slow_servers(tables: Tables, method: Method, least_ns: float, limits: Limits) -> tuple[_Peers, ...]:
    """Find in each pool of clients and servers the one server that is slow; nothing where they cost little together."""
    rpcs = tables.rpcs
    mine = np.flatnonzero((rpcs.method == method.number) & (rpcs.flags & COMPLETE != 0))
    pools = group_rows(hosts.number_pools(tables)[rpcs.connection[mine]]).values()
    found = [peers for rows in pools if (peers := _find_slow_server(tables, mine[rows], least_ns, limits))]
    # what they take beyond the others is their own time, not the path's
    few = sum(peers.lost_ns for peers in found) < limits.of_capture * rpc_time(tables)
    return () if few else tuple(sorted(found, key=lambda peers: -peers.lost_ns))


def _find_slow_server(tables: Tables, mine: Ints, least_ns: float, limits: Limits) -> _Peers | None:
    """Find the one server whose median response takes twice as long as that of each other one; None without it.

    Each of them must have answered enough of the RPCs: a median of few says little.
    """
    rpcs = tables.rpcs
    groups = list(group_rows(hosts.number_servers(tables)[rpcs.connection[mine]]).values())
    if len(groups) < 2 or min(map(len, groups)) < limits.of_server:
        return None
    medians = [float(np.median(rpcs.duration_ns[mine[rows]])) for rows in groups]
    slowest = int(np.argmax(medians))
    if (
        medians[slowest] < least_ns
        or max(medians[:slowest] + medians[slowest + 1 :]) >= limits.of_tail * medians[slowest]
    ):
        return None
    means = _measure_servers(tables, int(mine[groups[slowest][0]]))
    few = min(int(tables.connections.rpcs[rows].sum()) for _, rows in means) < limits.of_server
    return None if few else _compare_servers(tables, means, limits)


def _measure_round_trips(tables: Tables) -> tuple[int, int]:
    """Return the largest minimum round trip of all connections, in full and from capture point to server; -1: none."""
    connections = tables.connections
    chosen = connections.rpcs > 0
    whole = np.maximum(connections.min_rtt_ns[chosen], connections.handshake_rtt_ns[chosen])
    near = connections.near_server_rtt_ns[chosen]
    return int(whole.max(initial=-1)), max(0, int(near.max(initial=0)))


def _judge(tables: Tables, method: Method, round_trip: int, near: int, limits: Limits) -> _Slow | Skipped | None:
    figures, rpcs = method.turnaround or {}, tables.rpcs
    if not np.any(rpcs.flags[rpcs.method == method.number] & COMPLETE):
        return Skipped(ID, f"no RPC of {method.name or _NO_NAME} ended in the capture")
    p50, p99 = max(0, figures["p50"] - near), max(0, figures["p99"] - near)
    slow = _Slow(method, p50, p99, tail=True)
    least = limits.round_trips * round_trip
    far = p99 >= max(limits.tail_ns, least, limits.tail_factor * p50)
    far = far and _count_at_one_server(tables, method) >= limits.tail_answers
    is_unary = method.messages <= limits.unary_messages * method.rpcs
    if far and is_unary and _is_tail_of_server(slow, limits):
        if _find_longest_recovery(tables) >= limits.recovery * (p99 - p50):
            return Skipped(ID, f"packets were lost or late, which may explain the late responses of {method.name}")
        if method.budget[_QUEUE] >= 0.01 * figures["count"] * (p99 - p50):
            return Skipped(ID, f"the network's queue may explain the late responses of {method.name}")
        if _began_before_answers(tables, slow, limits):
            return Skipped(
                ID, f"the late responses of {method.name} belong to the first calls that the server answered"
            )
        means = [_measure_servers(tables, rpc) for rpc in _find_longest_of_pools(tables, slow)]
        if means[0][0][0] < limits.of_tail * p99:
            return slow
        if peers := tuple(one for pool in means if (one := _compare_servers(tables, pool, limits))):
            return replace(slow, tail=False, peers=peers)
    most = max(limits.of_method * sum(method.budget), limits.of_capture * rpc_time(tables))
    if is_unary and (peers := _find_slow_servers(tables, method, max(limits.long_ns, least) + near, limits)):
        return replace(slow, tail=False, peers=peers)
    # a stream that the server keeps open, such as a watch, is the server's time too, but nobody waits for a response
    answering = min(slow.server_ns, figures["count"] * figures["mean"])
    alike = p50 >= max(limits.long_ns, least) and answering >= most
    return replace(slow, tail=False) if alike else None


def _count_at_one_server(tables: Tables, method: Method) -> float:
    """Count the responses of the server with most of them, which may be its part of the RPCs of all methods."""
    used = _find_connections(tables, method)
    places = group_rows(hosts.number_servers(tables)[used]).values()
    of_servers = [int(tables.connections.rpcs[used[mine]].sum()) for mine in places]
    return float((method.turnaround or {})["count"] * max(of_servers) / max(1, sum(of_servers)))


def _is_tail_of_server(slow: _Slow, limits: Limits) -> bool:
    """Check that the server makes most of the excess over the median, and most of what the slowest callers wait."""
    figures, latency = slow.method.turnaround or {}, slow.method.latency
    excess = slow.count * (figures["mean"] - figures["p50"])
    notices = latency is None or slow.p99_ns >= limits.of_user * latency["p99"]
    return notices and slow.beyond_median_ns >= limits.of_tail * excess


def _began_before_answers(tables: Tables, slow: _Slow, limits: Limits) -> bool:
    """Check whether the long calls began before their server had answered any: it may just have started."""
    rpcs, servers = tables.rpcs, hosts.number_servers(tables)[tables.rpcs.connection]
    answered = np.full(int(servers.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(answered, servers, rpcs.start_time_ns + rpcs.duration_ns)
    mine = np.flatnonzero((rpcs.method == slow.method.number) & (rpcs.flags & COMPLETE != 0))
    beyond = rpcs.duration_ns[mine] - np.median(rpcs.duration_ns[mine])
    beyond[beyond < limits.of_tail * (slow.p99_ns - slow.p50_ns)] = 0.0
    first = rpcs.start_time_ns[mine] < answered[servers[mine]]
    return bool(beyond[first].sum() >= limits.first * beyond.sum())


def _find_longest_recovery(tables: Tables) -> int:
    """Return the longest time until a packet was retransmitted, needlessly or not; 0 without any."""
    connections = tables.connections
    return int(connections.recovery_ns[connections.retransmitted_packets > 0].max(initial=0))


def _measure_servers(tables: Tables, rpc: int) -> list[tuple[float, Ints]]:
    """Measure the server's time per RPC for each server of an RPC's client, its own server first."""
    connections, first = tables.connections, int(tables.rpcs.connection[rpc])
    used = np.flatnonzero((connections.client_ip == connections.client_ip[first]) & (connections.rpcs > 0))
    ends = hosts.number_servers(tables)
    groups = group_rows(ends[used])
    own = groups.pop(int(ends[first]))
    times = tables.connection_budgets[:, _SERVER]
    servers = [used[group] for group in (own, *groups.values())]
    return [(float(times[rows].sum() / connections.rpcs[rows].sum()), rows) for rows in servers]


def _compare_servers(tables: Tables, means: list[tuple[float, Ints]], limits: Limits) -> _Peers | None:
    """Compare the first server with the others; None without others, or if another one is slow, too."""
    (mean, rows), *others = means
    most = max((other for other, _ in others), default=mean)
    if most >= limits.of_tail * mean:
        return None
    return _Peers(rows, mean, len(others), most, int((mean - most) * tables.connections.rpcs[rows].sum()))


def _make_finding(tables: Tables, slow: list[_Slow]) -> Finding:
    first = slow[0]
    rows = _sort_longest(tables, first)[: evidence.EXAMPLES]
    own = [peers.connections for peers in first.peers]
    used = np.concatenate(own) if own else _find_connections(tables, first.method)
    connections = tuple(distinct(used).tolist())
    server = name_hosts(tables, used, 1)
    longest = _name_server_of_longest(tables, used, rows) if first.tail else ""
    name = first.method.name or _NO_NAME
    share = sum(s.server_ns for s in slow) / max(1, rpc_time(tables))
    words = _summarize(first, server, name)
    lost = sum(s.lost_ns or 0 for s in slow)
    grave = first.lost_ns is not None
    spent, proxy = _read_threads(tables, first), recognise_proxy(tables, connections)
    sure = not grave or (spent is not None and spent.main is not None)
    return Finding(
        id=ID,
        title=_write_title(first, server, first.method.name or _NO_NAME.capitalize()),
        severity="warning" if grave else "info",
        confidence=lower("high" if sure else "medium", quality_allows(tables)),
        scope=Scope(connections, names(tables, [s.method.number for s in slow])),
        lost_ns=lost if grave else None,
        share=share_of_time(tables, lost) if grave else None,
        metrics={**_measure(slow, share), **(spent.make_metrics() if spent else {})},
        evidence=tuple(_show_rpcs(tables, _find_examples(tables, first, used))),
        explanation=(
            f"{words}{longest} The round trip between client and server is not included; {share:.0%} of all RPC time "
            f"is the server's. {spent.explain() if spent else _ONE_BOX}"
        ),
        remedies=_list_remedies(first, server, proxy),
        references=("https://grpc.io/docs/guides/performance/", "https://opentelemetry.io/docs/specs/semconv/rpc/"),
        verdict=f"{_write_verdict(tables, slow, server, spent, proxy)}{longest}",
    )


def _name_server_of_longest(tables: Tables, used: Ints, longest: Ints) -> str:
    """Name the server of the longest calls where there are several servers and it is one alone; it may be by chance."""
    servers, calls = hosts.number_servers(tables), tables.rpcs.connection[longest]
    if len(longest) < evidence.EXAMPLES or len(distinct(servers[calls])) > 1 or len(distinct(servers[used])) == 1:
        return ""
    return f" The {len(longest)} longest calls were at {host(tables, int(calls[0]), 1)}."


def _read_threads(tables: Tables, slow: _Slow) -> Spent | None:
    """Read what the servers' threads did in these calls, or in one of a hundred where a tail is slow."""
    if slow.peers:
        return None
    number = slow.method.number
    longest = 0.99 if slow.tail else 0.0
    return read_spent(tables, 1, lambda acts: (acts.method == number) & (acts.idle == 0), slow.server_ns, longest)


def _name_servers(tables: Tables, method: Method) -> str:
    """Name the server of a method, or say how many have it: `3 servers (10.0.0.2 and others)`."""
    return name_hosts(tables, _find_connections(tables, method), 1)


def _find_connections(tables: Tables, method: Method) -> Ints:
    """Find the connections whose RPCs used a method."""
    used = tables.connection_methods
    return distinct(used.connection[used.method == method.number])


def _write_title(slow: _Slow, server: str, name: str) -> str:
    if slow.peers:
        most, kind = duration(max(peers.mean_ns for peers in slow.peers)), "their" if slow.peers[1:] else "its"
        return f"{name}: {server} took {'up to ' * bool(slow.peers[1:])}{most} per RPC, others of {kind} kind much less"
    if slow.tail:
        return f"{name}: {server} took {duration(slow.p99_ns)} for one response in a hundred"
    return f"{name}: {server} took {duration(slow.p50_ns)} for the median response"


def _compare(peers: tuple[_Peers, ...], server: str) -> str:
    mean = duration(max(one.mean_ns for one in peers))
    most = duration(max(one.others_mean_ns for one in peers))
    if len(peers) > 1:
        return f"{server} take up to {mean} per RPC, the other servers of their clients at most {most}"
    return f"{server} takes {mean} per RPC, the {count(peers[0].others, 'other server')} at most {most}"


def _summarize(slow: _Slow, server: str, name: str) -> str:
    p50, p99 = duration(slow.p50_ns), duration(slow.p99_ns)
    if slow.peers:
        whose = "their" if slow.peers[1:] else "its"
        return f"{_compare(slow.peers, server)}: {whose} calls are the slow ones of {name}."
    if slow.tail:
        return (
            f"{server} responded to {name} in {p50} (median of {slow.count:,}) but needed {p99} or more for one "
            "response in a hundred: some calls wait for something there. These took "
            f"{duration(slow.beyond_median_ns)} longer than the median in total."
        )
    return f"{server} needed {p50} to respond to {name} (median of {slow.count:,}; 99th percentile {p99})."


def _write_verdict(tables: Tables, slow: list[_Slow], server: str, spent: Spent | None, proxy: str | None) -> str:
    first, name = slow[0], slow[0].method.name or _NO_NAME
    p50, p99 = duration(first.p50_ns), duration(first.p99_ns)
    if first.peers:
        hosts_with = "their hosts and their load with those" if first.peers[1:] else "its host and its load with theirs"
        return f"{_compare(first.peers, server)}: compare {hosts_with}."
    known = spent and spent.advise()
    if first.tail:
        behind = f"capture behind it, too: {proxy} passes calls on"
        todo = known or (behind if proxy else "trace the handler at the times of the evidence")
        return f"{server} needed {p99} or more for one in a hundred responses of {name} (median {p50}): {todo}."
    # each connection has unknown methods of its own
    alike = sum(s.server_ns for s in slow if s is first or _is_same(tables, s, first))
    part = f"{alike / max(1, rpc_time(tables)):.0%} of the RPC time is in {server}"
    if known:
        return f"{part} ({name}: median {p50}): {known}."
    inside = "Trace calls inside it: packets do not show its handlers, queues and backends."
    todo = f"{proxy} passes calls on: capture behind it, too." if proxy else inside
    return f"{part}, which took {p50} (median) to respond to {name}. {todo}"


def _is_same(tables: Tables, one: _Slow, other: _Slow) -> bool:
    """Check whether two methods are the same for a reader: unknown ones of one server."""
    of = [_name_servers(tables, slow.method) for slow in (one, other)]
    return one.method.name is None and other.method.name is None and of[0] == of[1]


def _sort_longest(tables: Tables, slow: _Slow) -> Ints:
    """List the RPCs of the method, the longest first."""
    rpcs = tables.rpcs
    mine = np.flatnonzero((rpcs.method == slow.method.number) & (rpcs.flags & COMPLETE != 0))
    return mine[np.lexsort((rpcs.stream[mine], rpcs.connection[mine], -rpcs.duration_ns[mine]))]


def _find_examples(tables: Tables, slow: _Slow, connections: Ints) -> Ints:
    """Find the longest RPCs of the method on some connections, of different servers where those are slow as well."""
    rpcs, rows = tables.rpcs, _sort_longest(tables, slow)
    rows = rows[np.isin(rpcs.connection[rows], connections)] if slow.peers else rows
    rows = rows[rpcs.duration_ns[rows] >= min(slow.p99_ns, rpcs.duration_ns[rows[0]])] if slow.tail else rows
    return rows[hosts.pick_apart(tables, rpcs.connection[rows])]


def _find_longest_of_pools(tables: Tables, slow: _Slow) -> list[int]:
    """Find the longest RPC of the method in each pool of clients and servers, the longest one first."""
    rows = _sort_longest(tables, slow)
    pools = group_rows(hosts.number_pools(tables)[tables.rpcs.connection[rows]])
    return [int(rows[place]) for place in sorted(int(places[0]) for places in pools.values())]


def _show_rpcs(tables: Tables, rows: Ints) -> Iterator[Evidence]:
    for row in rows.tolist():
        yield common.began(tables, row)
        yield common.ended(tables, row, "the last packet of this RPC")


def _measure(slow: list[_Slow], share: float) -> Mapping[str, int | float | str]:
    first = slow[0]
    return {
        "server_p50_ns": first.p50_ns,
        "server_p99_ns": first.p99_ns,
        "answers": first.count,
        "server_time_ns": first.server_ns,
        "server_time_share": share,
        "long_tail": int(first.tail),
        "slow_servers": len(first.peers),
        "slow_methods": len(slow),
        "slow_methods_p50": ", ".join(f"{s.method.name or 'unknown'} {duration(s.p50_ns)}" for s in slow[:5]),
    }


def _list_remedies(slow: _Slow, server: str, proxy: str | None) -> tuple[Remedy, ...]:
    if slow.peers:
        return (
            Remedy("application", "compare host, load and version", f"of {server} with the client's other servers"),
        )
    if proxy:
        both = Remedy("grpcdiag", f"a capture on both sides of {proxy}", "shows whether it or a server behind takes it")
        return (both,)
    trace = Remedy(
        "application", "trace the handler at the times of the evidence", f"on {server}: shows what it waits for"
    )
    if not slow.tail:
        parallel = Remedy(
            "application", "call in parallel, or ask for several things in one call", "more load on the server at once"
        )
        return (trace, parallel)
    threads = Remedy(
        "application",
        "the server's pools: threads, connections to other services, locks",
        "a pool that is too small makes some calls wait; a larger one needs more memory",
    )
    deadline = Remedy(
        "any gRPC implementation", "a deadline on the client", "bounds the wait; the calls in the tail fail instead"
    )
    return (trace, threads, deadline)
