"""RPCs reached their deadline before the response arrived.

What it finds
-------------
Calls fail with `DEADLINE_EXCEEDED`: their deadline passed before the response arrived. The report says which side
was waited for meanwhile.

On the wire the RPC has this status, or it was reset when the time in the request's `grpc-timeout` had passed. Most
implementations end such a call with RST_STREAM, so the status that the client's application sees is often not on the
wire. The error code says nothing: grpc-go and C-core send CANCEL, grpclib sends NO_ERROR.

How it is decided
-----------------
An RPC that its client reset at or after its `grpc-timeout`, or its server with CANCEL, has the status
DEADLINE_EXCEEDED. So has one whose response came 20 ms or more after it, if the client's RST_STREAM may still have been
on its way, or its packets were lost: the client's timer had ended the call, whatever the response says. A client that
could send RST_STREAM and does not leaves its deadline to the server, and its call has the status of the response. One
whose response was complete here counts as well, if the packet with the client's RST_STREAM acknowledges none of the
response's last packet: the response was on its way, and the client did not read its status. So does one that either
side reset a little earlier, by 2 % of `grpc-timeout`, at least 1 ms and at most 100 ms: C-core rounds it up to two or
three digits, a little time passes between reading the clock and the first packet, and a server may track the same
deadline. The budget of these RPCs says where their time went. If most of them ended while their server sent nothing for
longer than they lasted, nothing was retransmitted, other RPCs of these methods took a fifth of that or less, and two
open ones were answered at once when it resumed, the report says so. If the deadline of most is shorter than the fastest
round trip of their connection, no server can answer in time, and the report says that. The silence begins with the
first of the RPCs that waited; pauses between them, in which nobody waits, are shorter than an RPC. Long polls are not
answered like that.

Streams that delivered messages until their deadline are told apart from RPCs that got no response: they say nothing
about what those waited for. If most of those waited for calls that occupied the server, or for its limit on the rate,
the report says so; [server-concurrency-limit](server-concurrency-limit.md) has the rules.

A DEADLINE_EXCEEDED in the trailers of a call without `grpc-timeout` is the server's own, or of what it calls. If all
are like that, the report says so: proxies such as Envoy end streams like that after `max_stream_duration`.

If no RPC ended at its deadline, those that were answered 20 ms or more after it are reported, as a warning at most:
nobody enforced the deadline, or the client gave up without RST_STREAM. Which of both, packets do not show.

When it cannot tell
-------------------
Without `grpc-timeout` in the capture: some clients do not send their deadline, and header fields sent before the
capture began are not known. Such calls are reported as `cancelled`. A client that gives up without RST_STREAM while
the response is on its way looks answered. Time before the request's first packet (name resolution, connecting, a queue
in the client) counts towards the caller's deadline and is not on the wire.

What would refute it
--------------------
The client's application cancelled the calls itself at that moment. Or its log shows a status other than
`DEADLINE_EXCEEDED` for them.

What to do
----------
If the time is the server's: make that method faster, give it more time, or let it stop early. A server can read the
remaining time and refuse what it cannot finish. A server that does not check for cancellation continues work that no
caller waits for. If it is the client's, the server had answered all its messages and the request was open: let the
client end it, or send more, if the server waits for that. If the time is the network's or a window's, look at the
other findings first: a longer deadline only hides them.

References
----------
- https://grpc.io/docs/guides/deadlines/
- grpc/grpc doc/PROTOCOL-HTTP2.md: Timeout, and RST_STREAM CANCEL
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from .. import _core
from ..facts import contradictions, releasers, software_at
from ..facts import failures as common
from ..facts.evidence import EXAMPLES
from ..facts.failures import Failed
from ..facts.hosts import host, name_hosts
from ..facts.ratings import quality_allows
from ..facts.software_at import recognise_proxy
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, texts
from ..tables import COMPLETE, HEADERS_UNKNOWN, TOUCHES_GAP, Ints, Mask, Tables
from ..tables.durations import total_ns

ID = "deadline-exceeded"
ABOUT = About(
    example="recorded/deadline-exceeded.pcap",
    figure=contradictions.statuses("DEADLINE_EXCEEDED"),
    caused_by=("peer-unreachable", "idle-connection-cut", "mtu-black-hole", "connection-closed-early"),
    precedence=3,
    weight="deadline_exceeded_share",
    costs=(
        Cost("deadline_exceeded_rpcs", "{} ended by a deadline"),
        Cost("answered_late_rpcs", "{} answered after a deadline"),
    ),
    explains=("DEADLINE_EXCEEDED",),
    proxy_faults=("changed_status", "ignored_reset"),
)


class Limits(common.Rates, frozen=True, eq=False):
    silence_ns: int = 200_000_000
    """Shortest silence of a server that is named (heuristic: as TCP's least retransmission timeout)."""
    in_silences: float = 0.8
    """Share of the RPCs that must have ended in silences, or waited for other calls or steps (heuristic: most)."""
    at_once: float = 0.1
    """Share of the silence within which two RPCs or more are answered behind it (heuristic: as after pauses)."""
    quick: float = 0.2
    """Median of the method's other RPCs, as a share of the silence, up to which it is quick (heuristic: a fifth)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RPCs that reached their deadline."""
    rows = common.failed(tables)
    rows = rows.where(rows.status == common.DEADLINE_EXCEEDED)
    if len(rows):
        yield _make_finding(tables, rows, limits)
    elif len(late := _find_answered_late(tables)):
        yield _make_late_finding(tables, late, limits)


def _find_answered_late(tables: Tables) -> Ints:
    """Find RPCs whose response came after their deadline by the server's clock, as far as it is known, and was read."""
    rpcs, c = tables.rpcs, tables.connections
    given_up = np.isin(rpcs.status, (common.CANCELLED, common.DEADLINE_EXCEEDED))
    answered = (rpcs.status_source == common.TRAILERS) & (rpcs.flags & COMPLETE != 0) & ~given_up
    way = np.maximum(c.near_server_rtt_ns, 0)[rpcs.connection]
    late = (tables.deadlines > 0) & (rpcs.duration_ns >= tables.deadlines + _core.LATE_NS + way)
    ends = rpcs.start_time_ns + rpcs.duration_ns
    return np.flatnonzero(answered & late & (ends <= common.list_leavings(tables)[rpcs.connection]))


def _make_late_finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    """Report RPCs that went on behind their deadline: nobody enforced it, or the client gave up without a word."""
    rpcs, deadlines, everything = tables.rpcs, tables.deadlines[rows], tables.rpc_count
    over = duration(float(np.median(rpcs.duration_ns[rows] - deadlines)))
    known = f"{len(rows):,} of {everything:,} RPCs were answered after their deadline{_describe_deadlines(deadlines)}"
    late = rows[np.argsort(rpcs.start_time_ns[rows], kind="stable")].astype(np.uint32)
    connections = common.connections_of(tables, late)
    unknown = f"{name_hosts(tables, connections, 0)} {_UNKNOWN}"
    return Finding(
        id=ID,
        title=known,
        severity="info" if common.severity_of_count(len(late), everything, limits) == "info" else "warning",
        confidence=quality_allows(tables),
        scope=Scope(connections, common.methods_of(tables, late)),
        metrics={
            "answered_late_rpcs": len(late),
            "rpcs": everything,
            "answered_late_share": len(late) / everything,
            "deadline_p50_ns": int(np.median(deadlines)),
        },
        evidence=tuple(
            item
            for rpc in late[:EXAMPLES].tolist()
            for item in (common.began(tables, rpc), common.ended(tables, rpc, "the response is whole"))
        ),
        explanation=f"{known}, {over} after it (median). {unknown} Nobody ended them at their deadline.",
        remedies=(
            _advise_stopping(tables, connections[0]),
            *software_at.list_settings(tables, connections, 0, intents.DEADLINE, _NOTE),
        ),
        references=("https://grpc.io/docs/guides/deadlines/", "grpc/grpc doc/PROTOCOL-HTTP2.md"),
        verdict=f"{known}. {unknown} Look in the client's log, and trace these calls.",
    )


_UNKNOWN = (
    "reset none of them. The packets do not show whether the callers still waited, or their library had given up "
    "without telling the server."
)


def _make_finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    everything, every_row = tables.rpc_count, rows
    rows, aside = _tell_streams_apart(tables, rows)
    share = len(rows) / everything
    methods = common.by_method(tables, rows.rpc)
    connections = common.connections_of(tables, rows.rpc)
    time, deadline = _describe_time(tables, rows), _describe_deadlines(rows.deadline_ns)
    others = "the server behind it" if recognise_proxy(tables, connections) else "all its handlers"
    meanwhile, todo = "", f"{time} Trace these calls before raising the deadline."
    short, trip_ns = _find_below_round_trip(tables, rows)
    if short:
        few = "Their" if short == len(rows) else f"For {short:,} of them, the"
        trip = f"the fastest round trip, {duration(trip_ns)}"
        meanwhile = f" {few} deadline is shorter than {trip}: no response can arrive in time."
        todo = f"{meanwhile.strip()} Raise it."
    own = _are_the_servers_own(tables, rows)
    known = texts.find_most_frequent(common.count_texts(tables, rows.rpc)) if own else None
    reached = f"reached their deadline{deadline}"
    if own:
        reached = "ended with DEADLINE_EXCEEDED without a grpc-timeout"
        server = name_hosts(tables, connections, 1)
        meanwhile = f" None of them had a grpc-timeout: the status comes from {server} or from what it calls."
        todo = texts.advise(known, len(rows)) or f"Look for that timer on {server}, or behind it."
    silence = None if own else _find_silence(tables, rows, limits)
    if silence is not None:
        meanwhile = (
            f" {_describe_silence(tables, silence)}, and its TCP acknowledged what came: its process was paused, or "
            f"{others} waited for something."
        )
        todo = f"{_describe_silence(tables, silence)}: look for what stopped its process, or {others}."
    waited_for = None if own or short or silence else _find_releaser(tables, rows, limits)
    if waited_for is not None:
        server = name_hosts(tables, connections, 1)
        meanwhile, todo = f" {waited_for.explain(tables, server)}", waited_for.advise(tables, server)
    others_too = () if waited_for is None else waited_for.list_all_connections(tables)
    on = tuple(sorted({*common.connections_of(tables, every_row.rpc), *others_too}))
    return Finding(
        id=ID,
        title=f"{len(rows):,} of {everything:,} RPCs {reached}",
        severity=common.severity_of_count(len(every_row), everything, limits),
        confidence=quality_allows(tables),
        scope=Scope(on, common.methods_of(tables, every_row.rpc)),
        metrics=_measure(tables, every_row, common.by_method(tables, every_row.rpc)),
        evidence=(
            *common.spans(tables, rows),
            *(() if silence is None else _show_silence(tables, silence)),
            *(() if waited_for is None else waited_for.show(tables)),
        ),
        explanation=(
            f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) {reached}: "
            f"{common.listed(methods)}. Together they took {duration(total_ns(rows.duration_ns))}, and the callers "
            f"got no response. {time}{meanwhile}{aside}"
        ),
        remedies=(
            *((texts.make_remedy(known[0]),) if known else ()),
            *(() if waited_for is None else (waited_for.make_remedy(name_hosts(tables, connections, 1)),)),
            *(() if short or waited_for is not None else (_advise_first(tables, rows, connections[0], own=own),)),
            *(
                ()
                if own or waited_for is not None
                else software_at.list_settings(tables, connections, 0, intents.DEADLINE, _NOTE)
            ),
        ),
        references=("https://grpc.io/docs/guides/deadlines/", "grpc/grpc doc/PROTOCOL-HTTP2.md"),
        verdict=f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) {reached}. {todo}",
    )


def _tell_streams_apart(tables: Tables, rows: Failed) -> tuple[Failed, str]:
    """Leave out streams that delivered messages until their deadline, if others got none; say how many those are."""
    kept = rows.row >= 0
    delivered = kept & (tables.failures.response_messages[np.where(kept, rows.row, 0)] >= _STREAMS)
    streams = rows.where(delivered)
    if not len(streams) or delivered.all():
        return rows, ""
    which = count(len(streams), "stream")
    aside = f" Besides, {which} had delivered messages until their deadline{_describe_deadlines(streams.deadline_ns)}."
    return rows.where(~delivered), aside


def _find_releaser(tables: Tables, rows: Failed, limits: Limits) -> releasers.Occupied | releasers.Paced | None:
    """Find what most of the RPCs waited for inside a server."""
    least = max(limits.few, limits.in_silences * len(rows))
    occupied, paced = releasers.find_occupied(tables), releasers.find_paced(tables)
    if sum(int(np.isin(one.rows, rows.rpc).sum()) for one in occupied) >= least:
        return occupied[0]
    on = tables.rpcs.connection[rows.rpc]
    return paced[0] if sum(int(np.isin(on, one.connections).sum()) for one in paced) >= least else None


def _find_below_round_trip(tables: Tables, rows: Failed) -> tuple[int, int]:
    """Count deadlines shorter than any round trip of their connection, and find the fastest; 0 unless most are."""
    c = tables.connections
    fastest = np.where(c.complete == 1, c.min_rtt_ns, 0)[tables.rpcs.connection[rows.rpc]]
    short = (rows.deadline_ns > 0) & (rows.deadline_ns < fastest)
    return (int(short.sum()), int(fastest[short].min())) if 2 * short.sum() > len(rows) else (0, 0)


def _are_the_servers_own(tables: Tables, rows: Failed) -> bool:
    """Check whether the server sent all of these statuses, and no client a deadline."""
    sent = (rows.status == common.DEADLINE_EXCEEDED) & (rows.source == common.TRAILERS)
    known = tables.rpcs.flags[rows.rpc] & (HEADERS_UNKNOWN | TOUCHES_GAP) == 0
    return bool((sent & known & (rows.deadline_ns <= 0)).all())


class _Silence(Struct, frozen=True, eq=False):
    """A silence of a server in which RPCs reached their deadline, and behind which others were answered at once."""

    stall: int
    """Row of the stalls table."""
    since_ns: int
    """Since when the server had sent nothing while RPCs waited."""
    until_ns: int
    ended: Mask
    """The RPCs that reached their deadline meanwhile."""

    @property
    def length_ns(self) -> int:
        return self.until_ns - self.since_ns


def _find_silence(tables: Tables, rows: Failed, limits: Limits) -> _Silence | None:
    """Find the longest silence of a server in which such RPCs ended, if most of them did, and are quick otherwise."""
    stalls, rpcs = tables.stalls, tables.rpcs
    at_once = (stalls.answers_ns >= 0) & (stalls.answers_ns <= limits.at_once * stalls.duration_ns)
    at_once &= stalls.waiting >= stalls.unanswered + 2
    long = np.flatnonzero((stalls.direction == 1) & (stalls.duration_ns >= limits.silence_ns) & at_once)
    others = np.setdiff1d(np.flatnonzero(np.isin(rpcs.method, rpcs.method[rows.rpc])), rows.rpc)
    if not len(long) or not len(others):
        return None
    silences = [_measure_silence(tables, rows, stall) for stall in long.tolist()]
    ended = int(np.any([silence.ended for silence in silences], axis=0).sum())
    first = max(silences, key=lambda silence: silence.length_ns * bool(silence.ended.any()))
    quick = float(np.median(rpcs.duration_ns[others])) <= limits.quick * first.length_ns
    return first if quick and ended >= max(limits.few, limits.in_silences * len(rows)) else None


def _measure_silence(tables: Tables, rows: Failed, stall: int) -> _Silence:
    """Measure a silence from the first of the RPCs on that waited: one after the other, with shorter pauses between.

    Callers in step all reach their deadline, and begin again later: nobody waits in between.
    """
    stalls, starts = tables.stalls, tables.rpcs.start_time_ns[rows.rpc]
    ends, stopped = starts + rows.duration_ns, int(stalls.stopped_time_ns[stall])
    since = int(stalls.start_time_ns[stall])
    until = since + int(stalls.duration_ns[stall])
    ended = (tables.rpcs.connection[rows.rpc] == stalls.connection[stall]) & (ends > stopped) & (ends <= until)
    ended &= rows.duration_ns <= until - stopped
    for place in np.flatnonzero(ended)[np.argsort(-ends[ended], kind="stable")].tolist():
        if since - ends[place] <= rows.duration_ns[place]:
            since = min(since, max(stopped, int(starts[place])))
    return _Silence(stall, since, until, ended & (ends > since))


def _describe_silence(tables: Tables, silence: _Silence) -> str:
    server = host(tables, int(tables.stalls.connection[silence.stall]), 1)
    return f"{server[0].upper()}{server[1:]} sent nothing for {duration(silence.length_ns)} meanwhile"


def _show_silence(tables: Tables, silence: _Silence) -> Iterator[Evidence]:
    stalls, stall = tables.stalls, silence.stall
    server = host(tables, int(stalls.connection[stall]), 1)
    packet, time = int(stalls.stopped_at_packet[stall]), int(stalls.stopped_time_ns[stall])
    yield Evidence(packet, time, f"the last bytes of {server} before its silence")
    yield Evidence(int(stalls.resumed_at_packet[stall]), silence.until_ns, f"the next bytes of {server}")


def _describe_deadlines(deadlines_ns: Ints) -> str:
    known = deadlines_ns[deadlines_ns > 0]
    if not len(known):
        return ""
    least, most = int(known.min()), int(known.max())
    if duration(least) == duration(most):
        return f" of {duration(most)}"
    # the client's library sends what is left of it
    is_one = most - least <= _LEFT_SHARE * most
    return f" of about {duration(most)}" if is_one else f" of {duration(least)} to {duration(most)}"


def _describe_time(tables: Tables, rows: Failed) -> str:
    went = common.where_time_went(tables, rows)
    if not went:
        return "Where their time went is unknown."
    whole = sum(went.values())
    parts = ", ".join(f"{cause} {ns / whole:.0%}" for cause, ns in list(went.items())[:3] if ns / whole >= 0.005)
    return f"Their time by cause: {parts}."


def _measure(tables: Tables, rows: Failed, methods: Mapping[str, int]) -> dict[str, int | float | str]:
    known = rows.deadline_ns[rows.deadline_ns > 0]
    went = common.where_time_went(tables, rows)
    deadline = {"deadline_p50_ns": int(np.median(known))} if len(known) else {}
    return {
        "deadline_exceeded_rpcs": len(rows),
        "rpcs": tables.rpc_count,
        "deadline_exceeded_share": len(rows) / tables.rpc_count,
        "status_on_wire_rpcs": int((rows.status == common.DEADLINE_EXCEEDED).sum()),
        "reset_by_client_rpcs": int((rows.reset_by == 0).sum()),
        "reset_by_server_rpcs": int((rows.reset_by == 1).sum()),
        **deadline,
        "time_in_vain_ns": total_ns(rows.duration_ns),
        **{f"time_in_vain_{cause}_ns": ns for cause, ns in went.items()},
        "deadline_exceeded_by_method": common.listed(methods),
    }


def _advise_first(tables: Tables, rows: Failed, connection: int, *, own: bool) -> Remedy:
    """Advise the client where it was waited for most of the time, the server's handler otherwise."""
    if own and not recognise_proxy(tables, (connection,)):
        return Remedy(
            "application", "the server's log at the times of the evidence", "says which of its timers that was"
        )
    went = common.where_time_went(tables, rows)
    if 2 * went.get("client", 0) <= sum(went.values()):
        return _advise_stopping(tables, connection)
    return Remedy(
        "application",
        "end the request, or send its next message, if the server waits for that",
        f"on {host(tables, connection, 0)}: for most of the time its messages were answered and its request was open",
    )


def _advise_stopping(tables: Tables, connection: int) -> Remedy:
    if proxy := software_at.recognise_proxy(tables, (connection,)):
        note = f"{host(tables, connection, 1)} is a proxy: which backend it waited for, and whether it had one"
        return Remedy("application", f"the log of {proxy} at the times of the evidence", note)
    return Remedy(
        "application",
        "look at the remaining time and at cancellation in the handler",
        f"on {host(tables, connection, 1)}: stops work that no caller waits for; Go ctx.Done(), C++ "
        "ServerContext::IsCancelled(), Java Context.current().isCancelled(), Python context.time_remaining()",
    )


_STREAMS = 2
"""Messages of a response from which an RPC is a stream that delivers."""
_LEFT_SHARE = 0.02
"""Share by which deadlines on the wire differ that are one setting (heuristic: a call passes before its HEADERS)."""
_NOTE = "a longer deadline, if the work needs it: callers wait longer"
