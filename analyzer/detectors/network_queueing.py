"""Packets waited in a queue of the network.

What it finds
-------------
All calls over a link become slow together, small ones too. The link was full, and packets waited in its queue, which
was never empty ("bufferbloat").

Packets then take much longer on the path than its minimum, without a break. A server that takes long does not look like
that.

How it is decided
-----------------
Each packet's TCP timestamp is its sender's clock. Its arrival less that clock is its delay plus a constant, and the
smallest delay on the connection so far is that of the path alone. Any longer time is a queue. The minimum may rise by
100 parts per million, because clocks drift. The tick of the clock (1 ms on Linux) is taken off. If all packets of 10 s
are later by the same time, to 5 ms, a clock had stopped, and the minimum begins anew: a queue varies.
The same holds after 100 ms and four packets of each direction, if both are late by the same since the same moment: the
capture's clock was set, which a warning tells.

Behind the capture point it is the round trip of bytes to their ACK, less the minimum and less what the ACK was queued.
Only ACKs of two full segments and more count, because a receiver may delay other ACKs.

One late ACK of fewer bytes proves nothing. But a packet that their receiver sent without acknowledging them does: they
had not arrived when it left, and its timestamp says when that was. The bytes in front of them were held until then,
too, if all of this holds:

- their own ACK came 5 ms or less before
- it came too late for a delayed ACK
- they had been on their way for no more than four times as long as the bytes behind them

Bytes that were retransmitted do not count, unless the ACK echoes the timestamp of their first copy. Nor do bytes that
were sent when more than 14,600 bytes of the same connection were in flight: these may have filled the path.

A packet is queued from 5 ms on. It is a standing queue if such packets show that it was not empty for 100 ms. Both
figures are those of CoDel (RFC 8289). The time lost is the RPC time in such delays. A sender that fills the link is not
faster without the queue: its messages are `transmission`, not `network_queue`. A queue behind the capture point that
takes no RPC time there is reported as `info`.

A queue drains at the link's rate: packets come one after the other. If none comes for 100 ms or more, and then packets
come together that were sent over a quarter of that time or more, the path held all of them. Where this is most of the
packets' time, the report says no more than that: the path or one of the hosts stopped, or other traffic went first.
Packets that were waited for most of the time did not fill the queue.

The bytes that passed the queue say what filled it: the connection itself, another connection between the same hosts,
or, when they are too few, traffic that the capture does not show.

When it cannot tell
-------------------
If packets of both directions are later than before by the same, and always so, the clock of the capture was set: a
queue varies, and the packets of the host at the capture point do not pass it. Such delays are left out. The confidence
is medium if only those of one direction are measured, and are late by the same.

Without TCP timestamps, or with a clock whose tick is not 1 µs, 1, 4 or 10 ms, packets in front of the capture point are
not measured, nor small ones behind it. If all packets of a connection were queued, only the difference between them is
seen: the figures are lower bounds. A host or a switch that holds up packets for less than 100 ms, or lets them go one
after the other, looks like a queue of the network. Behind the capture point small packets are seen only where their
receiver sent others meanwhile, so a single packet that was held is not. A receiver that is stopped while it holds its
socket's lock looks like the path. Where a connection fills the queue itself, its small messages may wait in the
sender's socket as well: that time is `unexplained`.

What would refute it
--------------------
`ping` between the hosts during the transfer shows the round trip of an idle path.

What to do
----------
If the path held all packets, find out what stopped at that time: a link, a wireless network, a route, a firewall, or
the machine of one of the hosts.

Otherwise keep the queue short: send large messages at a limited rate, or at other times. Put a fair queue (`fq_codel`,
CAKE) at the sender's side of the narrow link, or shape the traffic to just below that link's rate. BBR fills queues
less than cubic. Windows of about one round trip of the link's rate hold less in the queue. A second connection does not
help: it shares the link.

References
----------
- RFC 8289 (CoDel) sections 3 and 4; RFC 7323 section 4 (timestamps); RFC 7567 (queue management)
- https://www.bufferbloat.net/projects/bloat/wiki/Introduction/
- https://man7.org/linux/man-pages/man8/tc-fq_codel.8.html
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, hosts, methods, ratings, unanswered
from ..facts.congestion import INITIAL_SEGMENTS
from ..facts.groups import Case, Group, put_together
from ..facts.stalls import make_scope
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE, NOTABLE_SHARE
from ..software import intents, settings
from ..tables import DIRECTIONS, Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct, group_rows

ID = "network-queueing"
ABOUT = About(
    example="recorded/lab/network-queueing-upload.pcap.gz",
    figure=contradictions.blocked_time("network_queue"),
    picture="queue_delay",
    explains=("network_queue",),
)

_QUEUE = CAUSES.index("network_queue")
_SEGMENT = 1460
"""Bytes of a full segment (Ethernet MTU 1500 less headers)."""
_WINDOW = 65_535
"""Smallest window of a connection (RFC 9113 section 6.9.2: SETTINGS do not change it)."""


class Limits(Struct, frozen=True, eq=False):
    least_share: float = NOTABLE_SHARE
    """Share of RPC time in the queue from which it matters (heuristic: above the variation between equal runs)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time lost (heuristic: a fifth of all RPC time)."""
    segment_bytes: int = _SEGMENT
    """Visible bytes in the queue at a time below which others filled it (heuristic: no full segment stood in it)."""
    filled_bytes: int = INITIAL_SEGMENTS * _SEGMENT
    """Visible bytes in the queue at a time from which they filled it (RFC 6928: what a new connection may send)."""
    filler_share: float = 0.5
    """Share of the bytes in the queue from which one connection filled it (heuristic: most of them)."""
    held_ns: int = 100_000_000
    """Shortest time in which the path held all packets (RFC 8289 section 4.3, INTERVAL: bursts pass in less)."""
    steady_share: float = 0.1
    """Most that delays vary behind a step of the clock (heuristic: those of a queue vary by more than a tenth)."""
    together_share: float = 0.25
    """Part of it over which those were sent that came together (heuristic: a sender that times out backs off)."""


class _Queue(Struct, frozen=True, eq=False):
    """The standing queue between two hosts in one direction."""

    rows: Ints
    """Rows of the queues table."""
    direction: int
    path: int
    """The number of the two hosts."""
    behind: bool
    """It is behind the capture point: RPCs recorded there need not show what it costs."""
    p50_ns: int
    longest_ns: int
    held_ns: int
    """The longest time in which the path held all packets, if that is most of the packets' time; 0 for a queue."""
    duration_ns: int
    """Time for which the queue was seen to stand, on the connection that shows most of it."""
    passed_bytes: int
    standing_bytes: int
    """Visible bytes that stood in the queue at once, on average; none of those that came together."""
    filler: int
    """The connection with most of the bytes."""
    filler_share: float
    losers: Ints
    """Connections between the hosts whose RPCs lost time, the one that lost most first."""
    lost_ns: int
    of_ns: int
    """The time of all RPCs between the hosts."""

    @property
    def seen_ns(self) -> int:
        """Return the time that it is seen to cost, here or behind the capture point."""
        return max(self.lost_ns, self.duration_ns if self.behind else 0)


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all pairs of hosts between which packets were queued in one direction."""
    measured = list(_measure_queues(tables, limits))
    queues = [queue for queue in measured if not _is_clock_step(queue, measured, limits)]
    if len(queues) < len(measured):
        yield Skipped(
            ID, "packets of both directions are late by the same from some time on: the clock may have been set"
        )
    queues.sort(key=lambda queue: (-queue.lost_ns, -queue.duration_ns * queue.p50_ns))
    of_paths = dict[int, _Queue]()
    for queue in queues:
        of_paths.setdefault(queue.path, queue)  # of both directions, which lose the same time, the longer one
    cases = [_make_case(tables, queue, limits) for queue in of_paths.values() if _matters(queue, limits)]
    yield from put_together(tables, cases, lambda group: _make_finding(tables, group, limits))


def _matters(queue: _Queue, limits: Limits) -> bool:
    return queue.seen_ns > 0 and queue.seen_ns >= limits.least_share * queue.of_ns


def _make_case(tables: Tables, queue: _Queue, limits: Limits) -> Case[_Queue]:
    shown = np.r_[tables.queues.connection[queue.rows], queue.losers].astype(np.int64)
    kind = "held" if queue.held_ns else "filled" if queue.standing_bytes >= limits.filled_bytes else "other"
    where = (tuple(shown.tolist()), queue.direction)
    return Case(queue, *where, queue.lost_ns, queue.lost_ns, f"{DIRECTIONS[queue.direction]} {kind}")


def _measure_queues(tables: Tables, limits: Limits) -> Iterator[_Queue]:
    """Measure the queues of each client, server and direction."""
    paths, budgets = _number_paths(tables), tables.connection_budgets[:, _QUEUE]
    losing = np.flatnonzero(budgets > 0)
    losing = losing[np.argsort(-budgets[losing], kind="stable")]
    losers = {path: losing[rows] for path, rows in group_rows(paths[losing]).items()}
    own = {path: total_ns(tables.connection_budgets[rows]) for path, rows in group_rows(paths).items()}
    for number, rows in group_rows(paths[tables.queues.connection] * 2 + tables.queues.direction).items():
        path = number // 2
        yield _measure_queue(tables, rows, path, losers.get(path, losing[:0]), own[path], limits)


def _number_paths(tables: Tables) -> Ints:
    """Number the pair of hosts of each connection."""
    connections = tables.connections
    return connections.client_ip.astype(np.int64) * len(tables.addresses) + connections.server_ip


def _is_clock_step(queue: _Queue, others: list[_Queue], limits: Limits) -> bool:
    """Check whether the packets of both directions were later than before by the same, and always so."""
    back = [other for other in others if (other.path, other.direction) == (queue.path, 1 - queue.direction)]
    steady = all(_is_steady(other, limits) for other in (queue, *back))
    return steady and any(abs(other.p50_ns - queue.p50_ns) <= limits.steady_share * queue.p50_ns for other in back)


def _is_steady(queue: _Queue, limits: Limits) -> bool:
    """Check whether the packets were late by the same: a queue varies."""
    return queue.longest_ns - queue.p50_ns <= limits.steady_share * queue.p50_ns


def _measure_queue(tables: Tables, rows: Ints, path: int, losers: Ints, of_ns: int, limits: Limits) -> _Queue:
    queues = tables.queues
    durations = np.maximum(queues.duration_ns[rows], 1)
    each = queues.total_ns[rows] // np.maximum(queues.packets[rows].astype(np.int64), 1)
    order = np.argsort(each, kind="stable")
    passed = np.cumsum(durations[order])
    p50 = int(each[order][np.searchsorted(passed, passed[-1] / 2)])  # half of the time it was no longer
    connections = distinct(queues.connection[rows])
    place = np.searchsorted(connections, queues.connection[rows])
    seen, sent = (np.zeros(len(connections), dtype=np.int64) for _ in range(2))
    filling = int(queues.bytes[rows[~_mark_silent(tables, rows, limits)]].sum())
    np.add.at(seen, place, durations)
    np.add.at(sent, place, queues.bytes[rows].astype(np.int64))
    return _Queue(
        rows=rows,
        direction=int(queues.direction[rows[0]]),
        path=path,
        behind=bool(queues.behind[rows].any()),
        p50_ns=p50,
        longest_ns=int(queues.longest_ns[rows].max()),
        held_ns=_find_standstill(tables, rows, limits),
        duration_ns=int(seen.max()),
        passed_bytes=int(sent.sum()),
        standing_bytes=filling * p50 // int(seen.max()),
        filler=int(connections[sent.argmax()]),
        filler_share=int(sent.max()) / max(1, int(sent.sum())),
        losers=losers,
        lost_ns=min(total_ns(tables.connection_budgets[losers, _QUEUE]), methods.rpc_time(tables)),
        of_ns=of_ns,
    )


def _mark_held(tables: Tables, rows: Ints, limits: Limits) -> Mask:
    """Mark the intervals in which the path held all packets, and then packets of different times came together."""
    q = tables.queues
    together = q.together_ns[rows] >= limits.together_share * q.silent_ns[rows]
    return np.asarray(_mark_silent(tables, rows, limits) & together)


def _mark_silent(tables: Tables, rows: Ints, limits: Limits) -> Mask:
    """Mark the intervals in which no packet came for most of the longest delay: these packets did not fill the link."""
    silent = tables.queues.silent_ns[rows]
    return np.asarray((2 * silent >= tables.queues.longest_ns[rows]) & (silent >= limits.held_ns))


def _find_standstill(tables: Tables, rows: Ints, limits: Limits) -> int:
    """Find the longest time in which the path held all packets, if that is most of the packets' time; 0 for a queue."""
    queues = tables.queues
    held = rows[_mark_held(tables, rows, limits)]
    most = 2 * total_ns(queues.total_ns[held]) > total_ns(queues.total_ns[rows])
    return int(queues.silent_ns[held].max()) if most else 0


def _make_finding(tables: Tables, group: Group[_Queue], limits: Limits) -> Finding | None:
    if methods.share_of_time(tables, sum(queue.seen_ns for queue in group.facts)) < limits.least_share:
        return None
    queue, lost_ns, share = group.facts[0], group.lost_ns, group.share or 0.0
    costs = share >= limits.least_share
    losers, used = np.concatenate([one.losers for one in group.facts]), tables.connection_methods
    describe = _describe_standstill if queue.held_ns else _describe_queue
    title, explanation, cause = describe(tables, group, limits)
    lost = f"RPCs lost {duration(lost_ns)}"
    inferred = any(one.behind or _is_steady(one, limits) for one in group.facts)
    return Finding(
        id=ID,
        title=title,
        severity=ratings.severity(share, limits.least_share, limits.critical_share),
        confidence=ratings.lower("medium" if inferred else "high", ratings.quality_allows(tables)),
        scope=make_scope(tables, np.array(group.connections), used.method[np.isin(used.connection, losers)]),
        lost_ns=lost_ns if costs else None,
        share=share if costs else None,
        metrics=_list_metrics(tables, group),
        evidence=tuple(item for one in group.shown for item in _show_packets(tables, one, group.limit_moments())),
        explanation=f"{explanation} "
        + (f"{lost} in it, as far as it shows here. " if costs else "")
        + f"A second connection shares the {'path' if queue.held_ns else 'link'} and does not help. "
        "The figures are lower bounds.",
        remedies=_list_remedies(tables, queue, _name_ends(tables, queue)[0], limits),
        references=("RFC 8289", "https://www.bufferbloat.net/projects/bloat/wiki/Introduction/"),
        verdict=(f"{lost} ({share:.0%} of all RPC time)" if costs else "Packets waited") + cause,
    )


def _name_ends(tables: Tables, queue: _Queue) -> tuple[str, str]:
    connection = int(tables.queues.connection[queue.rows[0]])
    return hosts.host(tables, connection, queue.direction), hosts.host(tables, connection, 1 - queue.direction)


def _describe_queue(tables: Tables, group: Group[_Queue], limits: Limits) -> tuple[str, str, str]:
    """Write the title, the explanation and the verdict's end for packets that came one after the other."""
    queue, sender, receiver = group.facts[0], group.who, group.peers
    p50, longest = duration(_get_median(group)), duration(max(one.longest_ns for one in group.facts))
    fills = "what else fills" if queue.standing_bytes < limits.segment_bytes else "what fills"
    filled = queue.standing_bytes >= limits.filled_bytes
    one = len(group.facts) == 1
    queued = "The queue" if one else f"That on the path of connection {group.cases[0].connections[0]}"
    return (
        f"packets from {sender} to {receiver} were queued for {p50} (median) and up to {longest}",
        f"Packets from {sender} to {receiver} took {p50} (median) and up to {longest} longer than the path's minimum. "
        f"{queued} was not empty for {duration(queue.duration_ns)}. {_say_what_filled_it(queue, limits)}",
        f" in a network queue of up to {longest} from {sender}: "
        + ("pace large messages, or use fq_codel." if filled else f"find {fills} the link, or stops it."),
    )


def _get_median(group: Group[_Queue]) -> int:
    return int(np.median([one.p50_ns for one in group.facts]))


def _describe_standstill(tables: Tables, group: Group[_Queue], limits: Limits) -> tuple[str, str, str]:
    """Write the same for packets that the path held until all came together."""
    queue = max(group.facts, key=lambda one: one.held_ns)
    sender, receiver = _name_ends(tables, queue)
    held, least = duration(queue.held_ns), duration(limits.held_ns)
    rows = queue.rows[_mark_held(tables, queue.rows, limits)]
    longest = rows[np.argmax(tables.queues.silent_ns[rows])]
    end = int(tables.queues.longest_time_ns[longest])
    since, until = (unanswered.format_instant(tables, at) for at in (end - queue.held_ns, end))
    return (
        f"packets from {group.who} to {group.peers} were held on the way for up to {held}, and then came together",
        f"No packet from {sender} to {receiver} came through from {since} to {until} ({held}). Then packets came "
        f"together that had been sent one after the other. The path held all packets for {least} or more "
        f"{count(len(rows), 'time')}. The path or one of the hosts stopped, or other traffic went first: packets do "
        "not tell which.",
        f" while the path from {group.who} held all packets for up to {held}: find what stopped the path or a host.",
    )


def _say_what_filled_it(queue: _Queue, limits: Limits) -> str:
    passed = f"{queue.passed_bytes:,} bytes of this capture passed it"
    if queue.standing_bytes < limits.segment_bytes:
        return (
            f"Only {passed}, less than a full segment at a time: traffic that the capture does not show filled it, or "
            "the link lost its rate, or stopped."
        )
    if queue.standing_bytes < limits.filled_bytes:
        return f"{passed.capitalize()}, {queue.standing_bytes:,} at a time: too few to say that they filled it."
    if queue.filler_share < limits.filler_share:
        return f"{passed.capitalize()}, on several connections between these hosts: together they filled it."
    filler = f"{queue.filler_share:.0%} of them on connection {queue.filler}"
    if not len(queue.losers) or queue.filler == queue.losers[0]:
        return f"{passed.capitalize()}, {filler}: large messages on the same connection filled it."
    return (
        f"{passed.capitalize()}, {filler}: its large messages filled the link that connection {queue.losers[0]} shares."
    )


def _list_metrics(tables: Tables, group: Group[_Queue]) -> dict[str, int | float | str]:
    queue, rows = group.facts[0], np.concatenate([one.rows for one in group.facts])
    return {
        "direction": ("client", "server")[queue.direction],
        "queue_p50_ns": _get_median(group),
        "queue_max_ns": max(one.longest_ns for one in group.facts),
        "held_ns": max(one.held_ns for one in group.facts),
        "queue_stood_ns": queue.duration_ns,
        "queued_packets": int(tables.queues.packets[rows].sum()),
        "bytes_passed": queue.passed_bytes,
        "bytes_in_queue": queue.standing_bytes,
        "filling_connection": queue.filler,
        "filling_connection_share": round(queue.filler_share, 3),
        "connections_that_lost_time": sum(len(one.losers) for one in group.facts),
    }


def _show_packets(tables: Tables, queue: _Queue, moments: int) -> Iterator[Evidence]:
    """Show the first packet of the longest queue, and the packets that were queued longest."""
    queues, (sender, _) = tables.queues, _name_ends(tables, queue)
    longest = queue.rows[np.argsort(-queues.longest_ns[queue.rows], kind="stable")][:moments]
    first = _find_begin(tables, queue.rows, longest[0])
    shown = {
        int(queues.longest_packet[row]): (queues.longest_time_ns[row], queues.longest_ns[row], row) for row in longest
    }
    time = queues.first_time_ns[first]
    shown[int(queues.first_packet[first])] = (time, time - queues.start_time_ns[first], first)
    for packet, (time, queued_ns, row) in sorted(shown.items(), key=lambda item: item[1][0]):
        queued = duration(int(queued_ns))
        what = (
            f"ACK of bytes from {sender}, {queued} later than the fastest round trip"
            if queues.behind[row]
            else f"packet from {sender} that took {queued} longer than the fastest, by its TCP timestamp"
        )
        begins = packet == queues.first_packet[first]
        yield Evidence(packet, int(time), f"the longest queue begins: {what}" if begins else what)


def _find_begin(tables: Tables, rows: Ints, row: int) -> int:
    """Find the first row of a row's queue: one of more than 1 s has several, each from the end of the last one."""
    queues = tables.queues
    rows = rows[(queues.connection[rows] == queues.connection[row]) & (queues.behind[rows] == queues.behind[row])]
    rows = rows[np.argsort(queues.start_time_ns[rows], kind="stable")]
    starts = queues.start_time_ns[rows]
    begins = np.flatnonzero(np.r_[True, starts[1:] != (starts + queues.duration_ns[rows])[:-1]])
    place = int(np.flatnonzero(rows == row)[0])
    return int(rows[begins[np.searchsorted(begins, place, side="right") - 1]])


def _list_remedies(tables: Tables, queue: _Queue, sender: str, limits: Limits) -> tuple[Remedy, ...]:
    if queue.held_ns:
        return (
            Remedy(
                "network",
                "logs of links, wireless networks, switches, routes and hypervisors at that time",
                "also whether one of the hosts was paused, the one that recorded as well",
            ),
        )
    below = "RATE just below that link's: small flows pass large ones"
    shape = settings.list_own(intents.SHAPING, "linux", f"at the sender's side of the narrow link, {below}")
    if queue.standing_bytes < limits.filled_bytes:
        return shape
    reading = hosts.implementation(tables, queue.filler, 1 - queue.direction)
    fills = "it fills queues less than cubic"
    rate = queue.passed_bytes * 1_000_000_000 // queue.duration_ns
    held = rate * max(0, int(tables.connections.min_rtt_ns[queue.filler])) // 1_000_000_000
    windows = (
        settings.list_windows(intents.CONNECTION_WINDOW[1 - queue.direction], reading, 1 - queue.direction)
        if held >= _WINDOW
        else ()
    )
    return (
        Remedy(
            "application",
            "send large messages at a limited rate",
            f"on the {sender}: {rate * 8 / 1e6:,.1f} Mbit/s of this capture passed the queue",
        ),
        *shape,
        *settings.list_own(intents.CONGESTION_CONTROL, "linux", fills, where=f"on the {sender}, with fq"),
        *(
            Remedy(
                each.implementation, each.knob, f"a window of about {held:,} bytes holds less in the queue; {each.note}"
            )
            for each in windows[:1]
        ),
    )
