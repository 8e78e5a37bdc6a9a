"""An RPC is open at the capture's end, far longer than others of its method, and one side has to act.

What it finds
-------------
A call hangs: it began, others of its method ended long ago, and nothing ends it. The report says which side has to act,
since when, and whether that side sent packets on the same connection meanwhile.

How it is decided
-----------------
An RPC is open when the capture ends, or when its client closes the connection. It has taken at least five times as long
as the longest ended RPC of its method, and 1 s or longer. By its messages a side has to act: the server, if the client
ended its request, or sent a message that has no answer; else the client.

Where RPCs wait for both sides, the finding is about the side for which they waited longest in total. It counts the
others.

Without three ended RPCs of the method to compare with, a call that waits for its first answer for 10 s or longer is
`info`: it may be a watch or a long poll.

A call whose HTTP/2 window is used up is the finding `flow-control-deadlock`. One on a connection that gets no answer
any more is `peer-unreachable`.

When it cannot tell
-------------------
Whether the side still works on the RPC, or has forgotten it. Streams that wait for events are quiet for long: they are
compared with ended streams of their method alone. In a capture that begins late the first request may be a
retransmission, which the server had answered before.

What would refute it
--------------------
A longer capture shows that the RPC ends, and its method has more RPCs that take as long.

What to do
----------
Look at that RPC on the side that has to act: a stack dump (goroutines, `jstack`, `py-spy dump`), or its trace. Set a
deadline on every call. Without a `grpc-timeout` in the request a call waits as long as its connection lives.

References
----------
- https://grpc.io/docs/guides/deadlines/
- grpc/grpc doc/PROTOCOL-HTTP2.md: Timeout
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from ..facts import evidence, hosts, ratings, software_at, unanswered
from ..facts.methods import names, rpc_time, share_of_time
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE
from ..software import intents
from ..tables import BEGUN_BEFORE, DIRECTIONS, Method, Tables
from ..tables.durations import clip_ns
from ..tables.grouping import distinct

ID = "hung-rpc"
ABOUT = About(example="recorded/wild/hung-rpc.pcap.zst", caused_by=("mtu-black-hole",), precedence=2)

_SIDES = (CAUSES.index("client"), CAUSES.index("server"))


class Limits(Struct, frozen=True, eq=False):
    factor: float = 5.0
    """How many times as long as the longest ended RPC of its method (heuristic: beyond any tail seen so far)."""
    least_ns: int = 1_000_000_000
    """Shortest wait (heuristic: a shorter one may be a slow handler)."""
    others: int = 3
    """Ended RPCs of the method to compare with (heuristic: two may be alike by chance)."""
    alone_ns: int = 10_000_000_000
    """Shortest wait without them (heuristic: interactive callers have given up by then)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time (heuristic: a fifth of all RPC time)."""


class _Hung(Struct, frozen=True, eq=False):
    """One RPC that hangs."""

    row: int
    """Row of the table of open RPCs."""
    wait_ns: int
    ended: int
    """Ended RPCs of its method."""
    longest_ns: int
    """Longest ended RPC of its method, 0 without enough to compare with."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the RPCs that hang."""
    methods = {method.number: method for method in tables.methods}
    dead = set(tables.unanswered.connection.tolist())
    rows = [row for row in range(len(tables.open_rpcs.stream)) if int(tables.open_rpcs.connection[row]) not in dead]
    hung = [one for row in rows if (one := _judge(tables, row, methods, limits))]
    if hung:
        hung.sort(key=lambda one: (not one.longest_ns, -one.wait_ns, one.row))
        yield _make_finding(tables, *_divide_by_side(tables, hung), limits)


def _divide_by_side(tables: Tables, hung: list[_Hung]) -> tuple[list[_Hung], list[_Hung]]:
    """Return the RPCs that wait for the side that costs most time, by those that can be compared; and the others."""
    sides = [[one for one in hung if tables.open_rpcs.waits_for[one.row] == side] for side in (0, 1)]
    most, others = sorted(sides, key=lambda side: (_sum_compared(side), sum(one.wait_ns for one in side)), reverse=True)
    return most, others


def _sum_compared(hung: list[_Hung]) -> int:
    return sum(one.wait_ns for one in hung if one.longest_ns)


def _judge(tables: Tables, row: int, methods: Mapping[int, Method], limits: Limits) -> _Hung | None:
    """Judge one open RPC; None if it is no longer than others, or waits for what may never happen."""
    o = tables.open_rpcs
    wait, age = (clip_ns(int(o.end_time_ns[row]) - int(start[row])) for start in (o.since_time_ns, o.start_time_ns))
    if int(o.cause[row]) not in _SIDES:
        return None
    if _may_be_answered(tables, row):
        return None
    method = methods.get(int(o.method[row]))
    ended = method.complete if method else 0
    if method and method.latency and ended >= limits.others:
        longest = method.latency["max"]
        return _Hung(row, wait, ended, longest) if wait >= max(limits.factor * longest, limits.least_ns) else None
    first = o.waits_for[row] == 1 and not o.response_messages[row] and o.request_messages[row]
    return _Hung(row, wait, ended, 0) if first and age >= limits.alone_ns else None


def _may_be_answered(tables: Tables, row: int) -> bool:
    """Check whether the first request of a connection may be a retransmission, answered before the capture began."""
    o, c, rpcs = tables.open_rpcs, tables.connections, tables.rpcs
    on = int(o.connection[row])
    if c.complete[on] or not c.retransmitted_packets[on]:
        return False
    begun = rpcs.first_packet[(rpcs.connection == on) & (rpcs.flags & BEGUN_BEFORE == 0)]
    return bool(o.first_packet[row] <= begun.min(initial=o.first_packet[row]))


def _make_finding(tables: Tables, hung: list[_Hung], others: list[_Hung], limits: Limits) -> Finding:
    o, first = tables.open_rpcs, hung[0]
    rows = np.array([one.row for one in hung])
    connections = tuple(distinct(o.connection[rows]).tolist())
    side = hosts.name_hosts(tables, o.connection[rows], int(o.waits_for[first.row]))
    lost = min(clip_ns(_sum_compared(hung)), rpc_time(tables)) if first.longest_ns else None
    share = None if lost is None else share_of_time(tables, lost)
    rpcs, verb = count(len(hung), "RPC"), "waits" if len(hung) == 1 else "wait"
    longest = max(one.wait_ns for one in hung)
    waited = f"{rpcs} {verb} for {side} until the end, {'the longest ' if len(hung) > 1 else ''}"
    waited += f"for {duration(longest)}"
    return Finding(
        id=ID,
        title=waited,
        severity=_rate_severity(share, limits),
        confidence=ratings.lower("high" if first.longest_ns else "low", ratings.quality_allows(tables)),
        scope=Scope(connections, names(tables, distinct(o.method[rows]).tolist())),
        lost_ns=lost,
        share=share,
        at_least=lost is not None,
        metrics={
            "hung_rpcs": len(hung),
            "waiting_for_server_rpcs": len(hung) if o.waits_for[first.row] else 0,
            "longest_wait_ns": longest,
            "longest_other_ns": first.longest_ns,
            "without_deadline_rpcs": sum(_lacks_deadline(tables, one.row) for one in hung),
        }
        | ({"waiting_for_other_side_rpcs": len(others)} if others else {}),
        evidence=tuple(
            item for place in hosts.pick_apart(tables, o.connection[rows]) for item in _show(tables, hung[place].row)
        ),
        explanation=_explain(tables, hung, others),
        remedies=_list_remedies(tables, first.row, side),
        references=("https://grpc.io/docs/guides/deadlines/", "grpc/grpc doc/PROTOCOL-HTTP2.md"),
        verdict=(
            f"{waited}: look at what that side does with {'it' if len(hung) == 1 else 'them'}, and set a deadline."
        ),
    )


def _rate_severity(share: float | None, limits: Limits) -> Severity:
    if share is None:
        return "info"
    return "critical" if share >= limits.critical_share else "warning"


def _lacks_deadline(tables: Tables, row: int) -> bool:
    o = tables.open_rpcs
    return bool(o.timeout_ns[row] < 0 and not o.headers_unknown[row])


def _explain(tables: Tables, hung: list[_Hung], others: list[_Hung]) -> str:
    o, first = tables.open_rpcs, hung[0]
    row = first.row
    side = hosts.host(tables, int(o.connection[row]), int(o.waits_for[row]))
    name = tables.method_name(int(o.method[row])) or "The RPC"
    where = f"connection {o.connection[row]}, stream {o.stream[row]}"
    sent, answered = int(o.request_messages[row]), int(o.response_messages[row])
    messages = f"{count(sent, 'request message')} and {count(answered, 'response message')}"
    parts = [
        f"{name} ({where}) had its last packet at {unanswered.format_instant(tables, int(o.last_time_ns[row]))}, and "
        f"then waited {duration(first.wait_ns)} for {side}, until "
        + ("its client closed the connection." if o.closed[row] else "the capture ended."),
        f"It had {messages} so far; by these the {DIRECTIONS[o.waits_for[row]]} has to act.",
    ]
    if first.longest_ns:
        parts.append(f"The longest ended RPC of this method took {duration(first.longest_ns)}.")
    else:
        ended = f"Only {count(first.ended, 'RPC')}" if first.ended else "No other RPC"
        parts.append(f"{ended} of this method ended, so it may be a watch or a long poll.")
    if o.heard_time_ns[row] > o.since_time_ns[row]:
        last = unanswered.format_instant(tables, int(o.heard_time_ns[row]))
        parts.append(f"{side} still sent packets on this connection until {last}: its host and the path work.")
    if others:
        verb = "waits" if len(others) == 1 else "wait"
        parts.append(f"{count(len(others), 'other RPC')} {verb} for the {DIRECTIONS[1 - o.waits_for[row]]}.")
    if without := sum(_lacks_deadline(tables, one.row) for one in hung):
        of = f"{without:,} of {len(hung):,} hanging RPCs have"
        parts.append(f"{of if len(hung) > 1 else 'The hanging RPC has'} no grpc-timeout: nothing ends it.")
    return " ".join(parts)


def _show(tables: Tables, row: int) -> Iterator[Evidence]:
    o = tables.open_rpcs
    name = tables.method_name(int(o.method[row])) or "an RPC whose method is unknown"
    where = f"connection {o.connection[row]}, stream {o.stream[row]}"
    yield Evidence(int(o.first_packet[row]), int(o.start_time_ns[row]), f"{name} begins ({where})")
    if o.last_packet[row] != o.first_packet[row]:
        yield evidence.show_packet(o, "last_packet", row, f"its last packet ({where})")
    if o.heard_packet[row] and o.heard_time_ns[row] > o.since_time_ns[row]:
        side = hosts.host(tables, int(o.connection[row]), int(o.waits_for[row]))
        yield evidence.show_packet(o, "heard_packet", row, f"{side} is still there, but sends nothing for this RPC")


def _list_remedies(tables: Tables, row: int, side: str) -> tuple[Remedy, ...]:
    note = "ends the wait of the caller; a handler can stop when it is cancelled"
    dump = Remedy(
        "application",
        "a dump of all stacks",
        f"on {side}, while the RPC hangs: shows what it waits for (SIGQUIT for Go and Java, py-spy dump for Python)",
    )
    connections = (int(tables.open_rpcs.connection[row]),)
    return (dump, *software_at.list_settings(tables, connections, 0, intents.DEADLINE, note))
