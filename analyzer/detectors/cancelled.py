"""RPCs were cancelled before their end.

What it finds
-------------
Calls end with status `CANCELLED`, or callers give them up, before their deadline. On the wire this is RST_STREAM
CANCEL from the client or the server, or status `CANCELLED` in the trailers.

A client may also refuse a response: C-core resets the stream with ENHANCE_YOUR_CALM when a message or metadata exceeds
its limit, and its caller sees RESOURCE_EXHAUSTED. The response may be complete in the capture.

The report says how long these RPCs had lasted, who cancelled them, and whether they all lasted equally long. Equal
durations suggest a timer that `grpc-timeout` does not show.

How it is decided
-----------------
By the RST_STREAM or the status. RPCs reset at their deadline are left out: they are `deadline-exceeded`. Clients
cancel for good reasons (a stream no longer wanted, a hedged call that lost, a user who left), so this is `info`. It
is a warning when many RPCs were cancelled after the same time although they ended at different moments. Then a timer
cancelled them, at the end that cancelled or in a proxy, and the callers lost their responses. It is not certain that
a timer did it where all had received equally many response messages, or where another call of the method had just
been answered. It is a warning, too, when the server ended a tenth of the RPCs with `CANCELLED`, in trailers or by
RST_STREAM, whose clients had neither reset them nor set a deadline: some libraries do so when a handler raises an
exception. Where the server had sent GOAWAY, and closed the connection right behind its resets, its shutdown ended them.

A client refused a response if it reset the stream with ENHANCE_YOUR_CALM, also behind a complete response with status
OK. Other codes behind a complete response mean nothing: some clients send NO_ERROR, CANCEL or INTERNAL_ERROR when they
have read it. Three refused responses that are a tenth of the RPCs are a warning.

A hedged call has several attempts at once, numbered by `grpc-previous-rpc-attempts` (gRFC A6). When one is answered,
the client cancels the others. These count as cancelled, but not by a timer. Nor do numbered attempts whose other
attempts were not looked at one by one, as may be where they went over other connections.

When it cannot tell
-------------------
A deadline that the client did not send looks like a cancel. So does one on a connection that began before the
capture, where the name of `grpc-timeout` may not be known: the finding says so, and its confidence is low. RPCs whose
headers, or bytes of whose responses, are missing from the capture are not reported. Why the application cancelled is
not on the wire, nor which limit a response exceeded. grpc-go refuses complete responses without RST_STREAM, grpc-js
with NO_ERROR: these calls look answered. So do those of C-core if other calls began before the RST_STREAM came.

What would refute it
--------------------
The application counts fewer cancelled calls, or its log shows answers to the calls that were refused. Or, for a timer:
nothing between client and server has a timeout of the time given.

What to do
----------
Nothing, if the application meant it. If a client refused responses, look in its log, and raise the limit that they
exceeded, or send smaller messages and less metadata. If all last equally long, find the timer: a deadline in the
client's code, a timeout of a proxy (Envoy's route timeout is 15 s by default), an idle timeout. Let handlers check for
cancellation; otherwise the server continues work that no caller waits for.

References
----------
- https://grpc.io/docs/guides/cancellation/
- grpc/grpc doc/PROTOCOL-HTTP2.md: RST_STREAM CANCEL is CANCELLED
- Envoy route.proto: RouteAction.timeout
- grpc/grpc include/grpc/impl/channel_arg_names.h: limits on messages and metadata
- grpc/grpc status_conversion.cc: grpc_status_to_http2_error makes RESOURCE_EXHAUSTED of C-core ENHANCE_YOUR_CALM
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, draining, retries, software_at, timeouts
from ..facts import failures as common
from ..facts.evidence import EXAMPLES
from ..facts.failures import Failed
from ..facts.hosts import name_hosts
from ..facts.ratings import lower, quality_allows
from ..facts.software_at import recognise_end
from ..facts.vantage import reaction_ns
from ..model.detector import About, Cost
from ..model.finding import Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..software.recognise import C_CORE
from ..tables import ERROR_CODES, HEADERS_UNKNOWN, METHOD_UNKNOWN, NOT_SEEN, TOUCHES_GAP, Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct

ID = "cancelled"
ABOUT = About(
    example="recorded/lab/cancelled.pcap",
    figure=contradictions.statuses("CANCELLED"),
    caused_by=("message-too-large", "peer-unreachable", "idle-connection-cut", "mtu-black-hole", "keepalive-timeout"),
    costs=(Cost("cancelled_rpcs", "{} cancelled"),),
    explains=("CANCELLED",),
    proxy_faults=("changed_status", "ignored_reset"),
)


class Limits(timeouts.OneTimer, frozen=True, eq=False):
    passed_ns: int = 1_000_000
    """A deadline that may have passed before the first packet (heuristic: the delay of a timer and a packet, 1 ms)."""
    answered_ns: int = 20_000_000
    """A client that sends a call twice gives up the other one so soon after an answer (heuristic: a few ms)."""
    answered_share: float = 0.8
    """Share of the RPCs for which that, or something else than a timer, must hold (heuristic: most of them)."""
    by_chance: float = 0.5
    """Answers must come so seldom that fewer ends follow one by chance (heuristic: one in two)."""
    refused_rpcs: int = common.FEW
    """Fewer refused responses are no warning (heuristic: one or two show no pattern)."""
    warning_share: float = 0.10
    """A warning when one timer cancelled, or clients refused, this share of the RPCs (heuristic: one call in ten)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RPCs that were cancelled, but not by their deadline."""
    rows = common.failed(tables)
    given_up = (rows.status == common.CANCELLED) | (rows.source == common.CLIENT_RESET)
    if len(refused := draining.find_refused_with_error(tables)):
        given_up &= ~np.isin(rows.rpc, refused)
    given_up &= ~draining.mark_refused(tables, rows.rpc.astype(np.int64))
    rows = rows.where(given_up)
    unknown = (tables.rpcs.flags[rows.rpc] & HEADERS_UNKNOWN != 0) & (rows.deadline_ns < 0)
    unknown &= tables.connections.complete[tables.rpcs.connection[rows.rpc]] == 1
    if unknown.any():
        rpcs = count(int(unknown.sum()), "RPC")
        yield Skipped(ID, f"{rpcs} may have ended by a deadline: the capture lacks their headers")
    rows = rows.where(~unknown)
    cut = (rows.status == NOT_SEEN) & (tables.rpcs.flags[rows.rpc] & TOUCHES_GAP != 0)
    if cut.any():
        rpcs = count(int(cut.sum()), "RPC")
        yield Skipped(ID, f"{rpcs} may have been answered: the capture lacks bytes of their responses")
    rows = rows.where(~cut)
    if len(rows):
        yield _make_finding(tables, rows, limits)


class _Cancels(Struct, frozen=True, eq=False):
    """The cancelled RPCs, and what is known of who cancelled them and why."""

    rows: Failed
    hedged: Mask
    unclear: Mask
    """Retries, or hedged attempts: which, is not known."""
    refused: Mask
    """Their client refused the response."""
    others: Failed
    """The rest of the rows: neither hedged, nor unclear, nor refused."""
    reason: str
    """What else than a timer may have ended the others after the same time; empty if nothing is seen."""
    shut: bool
    """Their server ended the others as it shut down."""
    timer: bool
    hidden: bool
    """They may have had a deadline that the capture does not show."""
    own: int
    """How many of the others their server ended of its own accord."""

    @property
    def median(self) -> str:
        """Write the median duration: of the others where a timer ended them, otherwise of all."""
        return duration(float(np.median((self.others if self.timer else self.rows).duration_ns)))

    @property
    def by(self) -> str:
        """Name the side that cancelled most of the others."""
        return "client" if 2 * (self.others.source == common.CLIENT_RESET).sum() >= len(self.others) else "server"


def _sort_out(tables: Tables, rows: Failed, limits: Limits) -> _Cancels:
    hedged = retries.mark_hedged(tables, rows.rpc.astype(np.int64))
    unclear = retries.mark_unclear(tables, rows.rpc.astype(np.int64)) & ~hedged
    refused = _mark_refused(rows)
    others = rows.where(~(hedged | unclear | refused))
    same_time = timeouts.is_one_timer(tables, others.rpc, limits)
    reason = _find_reason(tables, others, limits) if same_time else ""
    shut = _are_shut_down(tables, others)
    timer = same_time and not reason and not shut
    # a grpc-timeout may be among the header fields that the capture does not show
    unnamed = tables.rpcs.flags[rows.rpc] & METHOD_UNKNOWN != 0
    late = tables.connections.complete[tables.rpcs.connection[rows.rpc]] == 0
    hidden = bool(((unnamed | late) & (rows.deadline_ns < 0)).any())
    own = 0 if timer or hidden or shut else _count_of_server(others, limits)
    return _Cancels(rows, hedged, unclear, refused, others, reason, shut, timer, hidden, own)


def _judge(found: _Cancels, of: int, limits: Limits) -> Severity:
    many = (len(found.others) if found.timer or found.shut else found.own) >= limits.warning_share * of
    refused = int(found.refused.sum()) >= max(limits.refused_rpcs, limits.warning_share * of)
    ended = (found.timer or found.own or found.shut) and not found.hidden and many
    return "warning" if ended or refused else "info"


def _explain(tables: Tables, found: _Cancels, limits: Limits) -> str:
    """Say for each group of the RPCs what ended them, as far as the packets show it."""
    hedged, unclear, refused = (int(mask.sum()) for mask in (found.hedged, found.unclear, found.refused))
    explained = found.timer or found.own or found.reason or found.shut or (found.hedged | found.refused).all()
    own = f"{_name_own(found.own, len(found.rows)).capitalize()} of its own accord, {_BY_SERVER}"
    remarks = (
        f"Their median duration was {found.median}.",
        _describe_hedges(hedged) if hedged else "",
        _describe_unclear(unclear) if unclear else "",
        _describe_timer(found.median, found.hidden) if found.timer else found.reason,
        _HIDDEN if found.hidden else "",
        "Their server ended them right before it closed their connection, after its GOAWAY." if found.shut else "",
        own if found.own else "",
        _describe_unsent(tables, found.others, limits),
        _describe_refused(found.rows.where(found.refused)) if refused else "",
        "" if explained else "Whether the application meant it is not on the wire.",
    )
    return " ".join(filter(None, remarks))


def _make_finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    found = _sort_out(tables, rows, limits)
    on, everything = common.connections_of(tables, rows.rpc), tables.rpc_count
    cancelled = f"{len(rows):,} of {everything:,} RPCs"
    ended = "were cancelled or reached their deadline" if (rows.status == NOT_SEEN).any() else "were cancelled"
    senders = f"({len(rows) / everything:.1%}) {ended}, {_count_senders(rows)}"
    methods = common.listed(common.by_method(tables, rows.rpc))
    if found.refused.all():
        title = _name_refusals(tables, rows)
        verdict = f"{title}: {_CHECK}."
    else:
        title = f"{cancelled} {ended}" + (f" after {found.median}" if found.timer else "")
        timer = f", by a timer of about {found.median}" if found.timer else ""
        verdict = f"{cancelled} {senders}{timer}: {_advise(found)}"
    return Finding(
        id=ID,
        title=title,
        severity=_judge(found, everything, limits),
        confidence=lower("low" if found.hidden else "medium" if found.timer else "high", quality_allows(tables)),
        scope=Scope(on, common.methods_of(tables, rows.rpc)),
        metrics=_measure(found, everything) | {"cancelled_by_method": methods},
        evidence=tuple(common.spans(tables, _sort_like_timer(found.others) if found.timer else rows)),
        explanation=f"{cancelled} {senders}: {methods}. {_explain(tables, found, limits)}",
        remedies=_list_remedies(tables, found),
        references=("https://grpc.io/docs/guides/cancellation/", "grpc/grpc doc/PROTOCOL-HTTP2.md, Errors"),
        verdict=verdict,
    )


_SHUT = "its shutdown ended them after its GOAWAY, so give that more time."


def _are_shut_down(tables: Tables, rows: Failed) -> bool:
    """Check whether servers reset these RPCs right before they closed the connections, after GOAWAY."""
    ends = tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    by_server = rows.source == common.SERVER_RESET
    return bool(len(rows) and (by_server & draining.mark_shut_down(tables, rows.rpc, ends)).all())


def _sort_like_timer(rows: Failed) -> Failed:
    """Take the RPCs that lasted most nearly as long as the timer, in the order of time: they show it."""
    apart = np.abs(rows.duration_ns - np.median(rows.duration_ns))
    return rows.where(np.sort(np.argsort(apart, kind="stable")[:EXAMPLES]))


def _mark_refused(rows: Failed) -> Mask:
    """Mark RPCs whose client refused the response."""
    return np.asarray((rows.reset_by == 0) & (rows.reset_code == _CALM))


def _name_refusals(tables: Tables, rows: Failed) -> str:
    client = name_hosts(tables, common.connections_of(tables, rows.rpc), 0)
    refused = f"{len(rows):,} of {count(tables.rpc_count, 'RPC')}"
    return f"{client} refused the response of {refused} with ENHANCE_YOUR_CALM"


def _describe_refused(rows: Failed) -> str:
    return (
        f"The client refused {count(len(rows), 'response')} with ENHANCE_YOUR_CALM. C-core does so when a message or "
        "metadata exceeds its limit; the caller sees RESOURCE_EXHAUSTED."
    )


_CALM = ERROR_CODES.index("ENHANCE_YOUR_CALM")
_CHECK = "check its limits on received messages and metadata"


def _list_limits() -> tuple[Remedy, ...]:
    limits = (intents.MESSAGE_SIZE[intents.CLIENT], intents.METADATA[intents.CLIENT])
    return (
        Remedy("application", "the client's log", "says which limit a response exceeded; costs nothing"),
        *(remedy for limit in limits for remedy in settings.list_own(limit, C_CORE)),
        Remedy("application", "smaller messages, or less metadata in responses and errors", "no limit is raised"),
    )


def _describe_timer(median: str, hidden: bool) -> str:
    same = f"They all lasted about {median} and ended at different moments: a timer ended them"
    return f"{same}." if hidden else f"{same}, which is not in their grpc-timeout."


def _find_reason(tables: Tables, rows: Failed, limits: Limits) -> str:
    """Say what else than a timer may have made clients cancel calls after the same time; nothing where none is seen."""
    by_client = rows.where((rows.row >= 0) & (rows.reset_by == 0))
    within = reaction_ns(tables, tables.rpcs.connection[by_client.rpc], 0, limits.answered_ns)
    least = max(limits.answered_share * len(rows), 1)
    message = _find_last_message(tables, by_client, within, least)
    return message or _find_other_answers(tables, by_client, within, least, limits)


def _find_last_message(tables: Tables, rows: Failed, within_ns: Ints, least: float) -> str:
    failures = tables.failures
    since = failures.since_bytes_ns[rows.row]
    last = (since >= 0) & (since <= within_ns)
    messages, counts = np.unique(failures.response_messages[rows.row[last]], return_counts=True)
    usual = int(np.argmax(counts)) if len(counts) else 0
    if not len(counts) or not messages[usual] or counts[usual] < least:
        return ""
    received = count(int(messages[usual]), "response message")
    return (
        f"{counts[usual]:,} of them had received {received}, the last one right before: their client may want no more, "
        "or a timer ended them."
    )


def _find_other_answers(tables: Tables, rows: Failed, within_ns: Ints, least: float, limits: Limits) -> str:
    c, since = tables.connections, tables.failures.since_answer_ns[rows.row]
    answered = int(((since >= 0) & (since <= within_ns)).sum())
    on = distinct(tables.rpcs.connection[rows.rpc])
    lasted = total_ns(c.last_time_ns[on] - c.first_time_ns[on])
    if answered < least or int(c.rpcs[on].sum()) * limits.answered_ns > limits.by_chance * lasted:
        return ""
    return (
        f"When {answered:,} of them were given up, another call of their method had just been answered: their client "
        "may send calls twice and drop the slower one (hedging), or a timer ended them."
    )


_HIDDEN = "It may have been their deadline: names of header fields were sent before the capture."


def _describe_unsent(tables: Tables, rows: Failed, limits: Limits) -> str:
    """Say that calls with a deadline were given up before their first byte left, and what is known of the deadline."""
    unsent = rows.where((rows.deadline_ns > 0) & (rows.duration_ns == 0) & (rows.reset_by == 0))
    if not len(unsent):
        return ""
    deadlines = duration(float(np.median(unsent.deadline_ns)))
    reset = f"{len(unsent):,} of them were reset in the packet that began them"
    if (unsent.deadline_ns <= limits.passed_ns).all():
        return f"{reset}, with a grpc-timeout of only {deadlines}: their deadline passed as they were sent."
    software = {recognise_end(tables, one, 0) for one in common.connections_of(tables, unsent.rpc)}
    if software == {C_CORE}:
        return (
            f"{reset}. Their grpc-timeout is what was left when C-core wrote it, {deadlines}: the client gave them up "
            "for another reason than their deadline."
        )
    return (
        f"{reset}: the client gave up before or as it sent them. If they had waited in the client, their deadline of "
        f"{deadlines} may have passed."
    )


def _count_of_server(rows: Failed, limits: Limits) -> int:
    """Count those that their server ended, if most: their clients had neither reset them nor set a deadline."""
    of_server = (rows.source == common.TRAILERS) | (rows.source == common.SERVER_RESET)
    number = int((of_server & (rows.deadline_ns < 0)).sum())
    return number if len(rows) >= limits.timer_rpcs and 2 * number > len(rows) else 0


def _name_own(number: int, of: int) -> str:
    return "the server ended them" if number == of else f"the server ended {number:,} of them"


_UNASKED = "though their clients had neither reset them nor set a deadline."
_BY_SERVER = f"{_UNASKED} Some libraries do so when a handler raises an exception."
_LOG = Remedy("application", "the server's log", "says at the times of the evidence why it ended them; costs nothing")


def _advise(found: _Cancels) -> str:
    if found.own:
        ended = _name_own(found.own, len(found.rows))
        return f"{ended}, {_UNASKED} Look in the server's log at the times of the evidence."
    if found.shut:
        return _SHUT
    if found.hedged.all():
        return "another attempt of the same call was answered (hedging)."
    return (
        f"find that timer in the {found.by} or a proxy." if found.timer else "check whether the application meant it."
    )


def _describe_hedges(number: int) -> str:
    return (
        f"{number:,} of them are hedged attempts (grpc-previous-rpc-attempts): another attempt of the same call was "
        "answered first."
    )


def _describe_unclear(number: int) -> str:
    return (
        f"{number:,} carry grpc-previous-rpc-attempts: they are retries, or hedged attempts. Which, is not known: not "
        "all RPCs of their method were looked at one by one."
    )


def _count_senders(rows: Failed) -> str:
    counts = [int((rows.reset_by == side).sum()) for side in (0, 1, common.NOBODY)]
    texts = ("by the client", "by the server", "with status CANCELLED")
    return ", ".join(f"{count:,} {text}" for count, text in zip(counts, texts, strict=True) if count)


def _measure(found: _Cancels, everything: int) -> dict[str, int | float | str]:
    rows, hedged, refused = found.rows, int(found.hedged.sum()), int(found.refused.sum())
    return {
        "cancelled_rpcs": len(rows),
        "rpcs": everything,
        "cancelled_share": len(rows) / everything,
        "reset_by_client_rpcs": int((rows.reset_by == 0).sum()),
        "reset_by_server_rpcs": int((rows.reset_by == 1).sum()),
        "with_deadline_rpcs": int((rows.deadline_ns > 0).sum()),
        "duration_p50_ns": int(np.median(rows.duration_ns)),
        "cancelled_rpc_time_ns": total_ns(rows.duration_ns),
        **({"hedged_rpcs": hedged} if hedged else {}),
        **({"refused_responses": refused} if refused else {}),
    }


def _list_remedies(tables: Tables, found: _Cancels) -> tuple[Remedy, ...]:
    if found.refused.all():
        return _list_limits()
    if found.own:
        return (_LOG,)
    if found.shut:
        on = common.connections_of(tables, found.rows.rpc)
        return software_at.list_settings(tables, on, 1, intents.SHUTDOWN, settings.WAITS)
    return (*_list_timers(tables, found), _STOP) if found.timer else (_STOP,)


_STOP = Remedy(
    "application",
    "look at cancellation in the handler",
    "stops work that no caller waits for; Go ctx.Done(), C++ ServerContext::IsCancelled(), Java "
    "Context.current().isCancelled(), Python context.is_active()",
)


def _list_timers(tables: Tables, found: _Cancels) -> tuple[Remedy, ...]:
    """List the settings of the software seen that end calls after a time, and where else to look for such a timer."""
    find = Remedy(
        "application",
        f"find the timer of that length in the {found.by}",
        "as a gRPC deadline it would reach the server, too"
        if found.by == "client"
        else "the client did not cancel; for example Server::timeout in tonic",
    )
    on = common.connections_of(tables, found.others.rpc)
    seen = {recognise_end(tables, one, int(found.by == "server")) for one in on}
    own = settings.list_own(intents.CALL_TIMEOUT[found.by == "server"], seen)
    return (*own, find, *(() if own else settings.list_common(intents.ROUTE_TIMEOUT)))
