"""A connection ended while RPCs were open on it, or with an error.

What it finds
-------------
Calls fail because their connection ended first: it was closed with FIN or RST while RPCs waited for their response,
or by a GOAWAY with an error code. The report says the code, the text that came with it, who closed, and which RPCs
were lost.

A server may also end connections gracefully: GOAWAY NO_ERROR, every RPC finished. The report then gives the age and
the number of streams, as `info`: they show a limit on age or on requests. So does a server that closes idle connections
without GOAWAY, by FIN or RST: Pekko HTTP does.

How it is decided
-----------------
An RPC is lost when the end of its connection ended it, and neither trailers nor RST_STREAM. It is lost as well when
it was open at a GOAWAY of its server with an error code behind which that server ended no RPC, or whose last stream is
below its own: even if its client waits on until its deadline. An RPC that was open
when a GOAWAY arrived is not lost by that: a graceful end lets it finish. A client that closes its own connection
gives up its RPCs itself, which is `info`, unless it closes as soon as a GOAWAY reaches it (open RPCs may end after a
GOAWAY, so its library drops them), or as soon as bytes of its peer reach it that break HTTP/2: a header block that
cannot be decoded, or a frame that its type does not allow. The report shows the packet, and the side that sent it, with
less confidence where no GOAWAY gives the reason. Where bytes before it are missing, nobody is blamed. Several clients
that close equally long after their RPC began, at different moments, show a timer. A GOAWAY with an error code that
cost no RPC is `info`, too.

A server that closes three connections or more without GOAWAY, at the same age although they were opened at different
times, has a limit on age as well; some versions of tonic end connections like that. If their last RPCs had begun
equally long before, a timer of calls or of idle connections may be the reason, and none is named.

A server that closes three idle connections or more without GOAWAY, after the same silence and at different moments, has
an idle timeout. Where their ages are alike, too, it may be a limit on their age. A RST counts if it has an ACK, and
passed as many routers as the server's other packets. If its IP identification does not continue theirs, the report
names a device on the way as well.

A server that closes a connection without GOAWAY, and refuses the client's next one, had stopped.

When a server drains three connections or more with GOAWAY after exactly as many requests each, the report names that
limit. The last stream of a GOAWAY tells the requests: clients number streams 1, 3, 5. It names an age in the same way.
A GOAWAY with the text `max_age` says itself that it is the age.

When it cannot tell
-------------------
When packets around the end are missing: a response may have been among them, and such RPCs are left out. A RST that
a firewall or a load balancer sends in the name of one side looks like that side's. A RST without ACK is sent by an end
that does not know the connection (RFC 9293 section 3.5.2), so nobody closed it there.

What would refute it
--------------------
The client's application got responses for these RPCs, or the server's log has no closed connection at that time.

What to do
----------
By the code:

- ENHANCE_YOUR_CALM with `too_many_pings` is the finding `too-many-pings`. Servers also send it for too many RST_STREAMs
  (CVE-2023-44487): the report counts them. Find out why so many calls are given up.
- COMPRESSION_ERROR or ENHANCE_YOUR_CALM behind a header block of several frames: the metadata is probably larger than
  the receiver accepts. Node's nghttp2 and python-hyper's h2 answer so. The report names the limit of the software seen.
- COMPRESSION_ERROR of a client right after a complete response: its caller did not get it, although the status is OK on
  the wire. Such responses are counted as discarded.
- PROTOCOL_ERROR while more streams are open than the server allows, with the last stream that it allows: python-hyper's
  h2 ends the connection like that. A client that opens many streams before it has the SETTINGS cannot know the limit.
- PROTOCOL_ERROR and similar codes are faults of an implementation or of a proxy, or a limit: Netty and Jetty end a
  connection like that when the header fields of a request are too large. Tomcat sends ENHANCE_YOUR_CALM for many small
  frames. Where the text of the GOAWAY is known to be a library's own, the report names the setting.
- NO_ERROR followed by a close of the client at once: look for a newer version of its library.
- NO_ERROR followed by a close of the server that does not wait: give the shutdown, or in grpc-go
  `MaxConnectionAgeGrace`, more time.
- Bytes that break HTTP/2: the fault is in the HTTP/2 library of the side that sent them. Look for a newer version.
- No GOAWAY at all: the client's program ended or gave up waiting (timers such as `curl --max-time`), the server
  crashed, was killed, or a device between dropped the connection (idle timeouts of proxies and load balancers).

Clients should retry what is safe to run twice.

References
----------
- RFC 9113 sections 6.8, 7 and 9.1
- gRFC A9: server-side connection management; gRFC A6: client retries
- https://github.com/grpc/grpc-java/issues/11728 (a load balancer that closes after 10,000 requests)
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ..facts import breaches as http2_breaches
from ..facts import draining, early_end, header_blocks, hosts, software_at, timeouts, vantage
from ..facts import failures as common
from ..facts.early_end import Closer, End, describe_end, find_closer, find_reason, find_refusals, name_code, show_end
from ..facts.hosts import host
from ..facts.ratings import lower, quality_allows
from ..families import graceful_ends, idle_closes
from ..model.analysis import Analysis
from ..model.detector import About, Cost
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, settings, texts
from ..summary import figures
from ..tables import COMPLETE, NOT_SEEN, TOUCHES_GAP, Counts, Tables, error_name
from ..tables.durations import total_ns
from ..tables.grouping import distinct, group_rows

_TIMER = timeouts.OneTimer()
_CHECKS: dict[Closer, str] = {
    "client": "Check whether its program ended or gave up waiting.",
    "server": "Check whether the server stopped or a proxy closed it.",
    "unseen": "Capture until it is closed.",
    "forgotten": "Check whether a firewall or load balancer forgot it, or a host began anew.",
}
ID = "connection-closed-early"


def _write_figure(analysis: Analysis) -> str:
    frames = analysis.totals.frames
    return f"{count(frames.get('GOAWAY', 0), 'GOAWAY frame')}, {count(frames.get('RST_STREAM', 0), 'RST_STREAM frame')}"


ABOUT = About(
    example="recorded/wild/idle-finrace.pcap.zst",
    figure=_write_figure,
    caused_by=("too-many-pings", "forged-reset", "idle-connection-cut", "keepalive-timeout", "abrupt-goaway"),
    weight="lost_share",
    precedence=2,
    whole_connections=True,
    one_direction=True,
    costs=(Cost("lost_rpcs", "{} lost"), Cost("discarded_rpcs", "{} discarded", "response")),
    explains=("other_statuses",),
    proxy_faults=("failed_attempt",),
)


class Limits(graceful_ends.Limits, frozen=True, eq=False):
    drop_ns: int = http2_breaches.ANSWERED_NS
    """An end so soon after a GOAWAY, or bytes that break HTTP/2, answers it (heuristic: libraries take a few ms)."""
    timed_share: float = 0.10
    """A warning when a timer of the client ended this share of the RPCs (heuristic: one call in ten)."""
    refused_ns: int = early_end.RESTART_NS
    """A server that refuses a SYN so soon after had stopped before (heuristic: a restart takes less than a minute)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections that ended early; about graceful ends when there are none."""
    if not len(tables.failures.rpc) and not len(tables.goaways.packet) and not len(tables.closings.packet):
        return
    lost = _find_lost(tables)
    groups = group_rows(tables.rpcs.connection[lost])
    lost_on = {connection: tuple(lost[rows].tolist()) for connection, rows in groups.items()}
    harmless = draining.mark_answers_to_closes(tables) | draining.mark_behind_final(tables)
    errors = draining.find_first_goaways(tables, (tables.goaways.code != 0) & ~harmless)
    graceful = draining.find_first_goaways(tables, tables.goaways.code == 0, server_only=True)
    early = sorted({*errors, *lost_on})
    breaches = http2_breaches.find_breaches(tables)
    ends = [
        _make_end(tables, c, errors.get(c, graceful.get(c, -1)), lost_on.get(c, ()), breaches.get(c, ()), limits)
        for c in early
    ]
    if ends:
        yield _make_finding(tables, sorted(ends, key=lambda end: (not end.grave, -len(end.lost))), limits)
    elif rows := _leave_out_refusing(tables, graceful):
        yield graceful_ends.make_finding(tables, rows, limits, ID)
    elif idle := idle_closes.find_idle_closes(tables, limits):
        yield idle_closes.make_finding(tables, idle, ID)


def _leave_out_refusing(tables: Tables, graceful: dict[int, int]) -> list[int]:
    """List the GOAWAYs of connections on which they refused no call."""
    refusing = set(tables.rpcs.connection[draining.find_refused(tables)].tolist()) if graceful else set()
    return sorted(row for connection, row in graceful.items() if connection not in refusing)


def _find_lost(tables: Tables) -> Counts:
    """Find RPCs that the end of their connection ended; none whose response the capture may have missed.

    Those that a GOAWAY refused were not processed: they are `abrupt-goaway`.
    """
    rpcs = tables.rpcs
    rpc = np.r_[common.failed(tables).rpc, common.list_unread(tables)]
    rpc = rpc[(rpcs.status[rpc] == NOT_SEEN) | (rpcs.status[rpc] == common.UNAVAILABLE)]
    seen = (rpcs.flags[rpc] & (COMPLETE | TOUCHES_GAP)) == COMPLETE
    on, connections = rpcs.connection[rpc], tables.connections
    unread = connections.missing_bytes[on] + connections.undecoded_bytes[on] + connections.undelivered_bytes[on]
    whole = unread == 0
    seen &= whole | (rpcs.status[rpc] == common.UNAVAILABLE)
    closed = connections.closed_time_ns[on]
    seen &= ~draining.mark_refused(tables, rpc.astype(np.int64))
    ended = rpc[seen & (closed >= 0) & (rpcs.start_time_ns[rpc] + rpcs.duration_ns[rpc] >= closed)]
    return distinct(np.r_[ended, draining.find_refused_with_error(tables)]).astype(np.uint32)


def _make_end(
    tables: Tables, connection: int, goaway: int, lost: tuple[int, ...], breaches: Sequence[int], limits: Limits
) -> End:
    closed, by = int(tables.connections.closed_time_ns[connection]), int(tables.connections.closed_by[connection])
    failed = goaway >= 0 and int(tables.goaways.code[goaway]) != 0
    graceful = goaway >= 0 and not failed
    said = int(tables.goaways.time_ns[goaway]) if goaway >= 0 else -1
    # a client that closes as soon as a GOAWAY reaches it acts on that
    within = [int(vantage.reaction_ns(tables, connection, one, limits.drop_ns)) for one in (0, 1)]
    drops = graceful and by == 0 and 0 <= closed - said <= within[0]
    side, acts = (int(tables.goaways.direction[goaway]), said) if failed else (by, closed)
    breach = -1
    if breaches and not graceful and side < common.NOBODY:
        breach = http2_breaches.find_answered(tables, breaches, side, acts, within[side])
    grave = bool(lost) and (by == 1 or failed or drops or breach >= 0)
    return End(connection, goaway, lost, grave, drops, find_closer(tables, connection), breach)


def _make_finding(tables: Tables, ends: list[End], limits: Limits) -> Finding:
    lost = np.array([rpc for end in ends for rpc in end.lost], dtype=np.uint32)
    everything = tables.rpc_count
    connections = tuple(sorted(end.connection for end in ends))
    words = describe_end(tables, ends[0])
    given_up = _list_given_up(tables, ends)
    timer = _describe_timer(tables, given_up)
    # no GOAWAY says that the bytes that break HTTP/2 are the reason
    inferred = ends[0].goaway < 0 and ends[0].breach >= 0
    inferred |= ends[0].goaway >= 0 and http2_breaches.find_stream_limit(tables, ends[0].goaway) > 0
    drained = draining.find_drained(tables, limits)
    age = _find_age_of_closes(tables, ends[0], limits)
    refusal = _find_refusal(tables, ends[0], limits)
    limit = f" {drained.describe()}" if drained else ""
    many, rpcs = count(len(ends), "connection"), count(len(lost), "RPC")
    discarded = figures.find_discarded(tables)
    grave = sum(len(end.lost) for end in ends if end.grave) + len(discarded)
    severity = common.severity_of_loss(grave, everything, limits)
    if severity == "info" and len(given_up) > 0 and len(given_up) >= limits.timed_share * everything:
        severity = "warning"
    return Finding(
        id=ID,
        title=f"{many} ended early, {rpcs} lost{f', {len(discarded):,} discarded' if len(discarded) else ''}",
        severity=severity,
        confidence=lower("medium" if timer or inferred else "high", quality_allows(tables)),
        scope=Scope(connections, common.methods_of(tables, lost)),
        metrics=_measure(tables, ends, lost) | ({"discarded_rpcs": len(discarded)} if len(discarded) else {}),
        evidence=tuple(
            item
            for place in hosts.pick_apart(tables, [end.connection for end in ends])
            for item in show_end(tables, ends[place])
        ),
        explanation=f"{words} {_describe_loss(tables, lost, many)}{limit}{_describe_age(age)}"
        f"{_describe_refusal(tables, ends[0], refusal)}"
        f"{_describe_resets(tables, ends[0])}{timer}{_describe_discarded(tables, discarded)}",
        remedies=(
            *(drained.list_remedies() if drained and not drained.is_said else ()),
            *_list_remedies(tables, ends[0], age, refusal),
        ),
        references=("RFC 9113 section 6.8", "gRFC A9", "gRFC A6"),
        verdict=words
        + (timer if timer and not ends[0].grave else f" {_advise(tables, ends[0], drained, age, refusal)}"),
    )


def _describe_discarded(tables: Tables, rpc: Counts) -> str:
    """Say that clients threw complete responses away, which are OK on the wire; nothing for none."""
    if not len(rpc):
        return ""
    client = hosts.name_hosts(tables, common.connections_of(tables, rpc), 0)
    return (
        f" {client} sent GOAWAY COMPRESSION_ERROR right after {count(len(rpc), 'complete response')}: it could not "
        "decode the header block, and its callers did not get them, although the status is OK on the wire."
    )


def _find_age_of_closes(tables: Tables, end: End, limits: Limits) -> int:
    """Find the age at which the server closes connections without GOAWAY, if it closed this one so; 0 for none."""
    silent = end.goaway < 0 and end.closer == "server" and end.breach < 0
    return draining.find_age_of_closes(tables, end.connection, limits) if silent else 0


def _find_refusal(tables: Tables, end: End, limits: Limits) -> int:
    """Find the connection that the server refused after it had closed this one without GOAWAY; -1 for none."""
    silent = end.goaway < 0 and end.closer == "server" and end.breach < 0
    return find_refusals(tables, [end.connection], limits.refused_ns).get(end.connection, -1) if silent else -1


def _describe_refusal(tables: Tables, end: End, refused: int) -> str:
    if refused < 0:
        return ""
    packet = int(tables.setups.reset_packet[refused])
    return f" {host(tables, end.connection, 1)} refused the next connection in packet {packet}: nothing listened there."


def _describe_age(age_ns: int) -> str:
    if not age_ns:
        return ""
    return f" It closed all of them at an age of about {duration(age_ns)}, without GOAWAY: a limit on their age."


def _list_given_up(tables: Tables, ends: list[End]) -> Counts:
    """List the first open RPC of each connection that its client closed without a word, if one timer made it do so."""
    silent = [end for end in ends if end.lost and not end.grave and end.goaway < 0 and end.closer == "client"]
    rpc = np.array([end.lost[0] for end in silent], dtype=np.uint32)
    return rpc if timeouts.is_one_timer(tables, rpc, _TIMER) else rpc[:0]


def _describe_timer(tables: Tables, rpc: Counts) -> str:
    if not len(rpc):
        return ""
    after = duration(float(np.median(tables.rpcs.duration_ns[rpc])))
    return (
        f" Clients closed {len(rpc):,} connections about {after} after their first open RPC began, at different "
        "moments: find that timer in the client, for example curl --max-time."
    )


def _describe_loss(tables: Tables, lost: Counts, connections: str) -> str:
    if not len(lost):
        return f"No RPC was lost on {connections}."
    waited = duration(total_ns(tables.rpcs.duration_ns[lost]))
    return (
        f"{len(lost):,} of {tables.rpc_count:,} RPCs on {connections} had no response when their connection ended; "
        f"together they had waited {waited}."
    )


def _describe_resets(tables: Tables, end: End) -> str:
    """Say how many RPCs a peer had reset for which the GOAWAY asks it to send less; nothing for none."""
    goaways, failures, rpcs = tables.goaways, tables.failures, tables.rpcs
    if end.goaway < 0 or error_name(int(goaways.code[end.goaway])) != "ENHANCE_YOUR_CALM":
        return ""
    peer = 1 - int(goaways.direction[end.goaway])
    on = (rpcs.connection[failures.rpc] == end.connection) & (failures.reset_by == peer)
    ends = rpcs.start_time_ns[failures.rpc] + rpcs.duration_ns[failures.rpc]
    resets = int((on & (ends <= goaways.time_ns[end.goaway])).sum())
    of = count(int(tables.connections.rpcs[end.connection]), "RPC")
    return f" Before it, {host(tables, end.connection, peer)} had reset {resets:,} of {of}." if resets else ""


def _advise(tables: Tables, end: End, drained: draining.Drained | None, age_ns: int, refused: int) -> str:
    """Say the first thing to do about one connection's end."""
    if age_ns:
        return f"The server closes connections at an age of about {duration(age_ns)}: raise that limit."
    if refused >= 0:
        return "It refused the next connection, so it had stopped: look for why."
    if end.goaway < 0 and end.breach >= 0:
        return http2_breaches.advise_after_breach(
            tables, end.breach, int(tables.connections.closed_time_ns[end.connection])
        )
    if end.goaway < 0:
        return _CHECKS[end.closer]
    if int(tables.goaways.code[end.goaway]):
        return _advise_after_error(tables, end)
    if end.drops:
        return "Look at the client's library: GOAWAY lets open calls end, and it dropped them."
    if drained:
        return drained.advise()
    if _is_kept_open(end):
        return "The GOAWAY let that call end: look at the client's keepalive and library, or whether its program ended."
    proxy = software_at.recognise_proxy(tables, (end.connection,))
    server = software_at.recognise_server(tables, (end.connection,))
    grace = "" if _is_stopped(tables, end) else draining.name_grace(server)
    return f"Give the shutdown {f'of {proxy} ' if proxy else ''}more time{grace}."


def _is_kept_open(end: End) -> bool:
    """Check whether a server had announced the end and waited for its calls, and the client closed with some open."""
    return end.closer == "client" and bool(end.lost)


def _is_stopped(tables: Tables, end: End) -> bool:
    """Check whether a GOAWAY says that the server was stopped, or there is none: nothing shows a limit on age then."""
    return end.goaway < 0 or draining.is_stopped(tables, end.goaway)


def _advise_after_error(tables: Tables, end: End) -> str:
    """Say what to do by the text of an error, by the metadata before it, or by its code."""
    if known := texts.find_meaning(find_reason(tables, end.goaway)):
        return texts.explain(known, "Its text")
    if end.breach < 0 and (large := _describe_metadata(tables, end.goaway)):
        own = header_blocks.list_remedies(tables, end.goaway)
        named = len(own) == 1 and own[0].implementation != "application"
        return f"{large} Send less metadata, or raise its limit{f' ({own[0].knob})' if named else ''}."
    return http2_breaches.advise_by_code(tables, end.goaway, end.breach)


def _describe_metadata(tables: Tables, goaway: int) -> str:
    """Say that metadata was large before an error without a text that says why; nothing else."""
    return "" if find_reason(tables, goaway) else header_blocks.describe_large(tables, goaway)


def _measure(tables: Tables, ends: list[End], lost: Counts) -> dict[str, int | float | str]:
    codes = [name_code(tables, end.goaway) for end in ends if end.goaway >= 0]
    closers = [end.closer for end in ends]
    return {
        "connections": len(ends),
        "lost_rpcs": len(lost),
        "rpcs": tables.rpc_count,
        "lost_share": len(lost) / tables.rpc_count,
        "lost_rpc_time_ns": total_ns(tables.rpcs.duration_ns[lost]),
        "closed_by_server": closers.count("server"),
        "closed_by_client": closers.count("client"),
        "without_goaway": sum(end.goaway < 0 for end in ends),
        "goaways": ", ".join(sorted(set(codes))[:5]),
    }


_RETRY = Remedy(
    "any gRPC implementation",
    '"retryPolicy" with "retryableStatusCodes": ["UNAVAILABLE"] in the service config',
    "client: retries lost calls; only for methods that may run twice",
)


_GIVEN_UP = Remedy(
    "application",
    "the client's program: when it ends, and its timers (curl --max-time, timeouts of HTTP libraries)",
    "a deadline of gRPC (grpc-timeout) reaches the server, too, which then stops work that nobody waits for",
)

_KEPT_OPEN = Remedy(
    "application",
    "the client's keepalive and library",
    "grpc-js fails open calls when its keepalive PING is refused behind a GOAWAY (grpc-node issue 3068)",
)
_WHY_STOPPED = Remedy("application", "the server's log, and that of what restarts it", "why it had stopped")
_SAYS = "has more on {}; a connection that lives longer, or a retry, does not change that"


def _list_remedies(tables: Tables, end: End, age_ns: int, refused: int) -> tuple[Remedy, ...]:
    if age_ns:
        ages = software_at.list_settings(tables, (end.connection,), 1, intents.AGE, draining.MORE)
        return (*ages, _RETRY)
    if end.goaway >= 0 and "too_many_pings" in find_reason(tables, end.goaway).lower():
        pings = Remedy("application", "grpcdiag explain too-many-pings", "the cause of this GOAWAY, and its settings")
        return (pings, _RETRY)
    if end.goaway >= 0 and (code := int(tables.goaways.code[end.goaway])):
        known = texts.find_meaning(find_reason(tables, end.goaway))
        sender = host(tables, end.connection, int(tables.goaways.direction[end.goaway]))
        log = Remedy("application", f"the log of {sender} at the times of the evidence", _SAYS.format(error_name(code)))
        large = end.breach < 0 and not known and _describe_metadata(tables, end.goaway)
        limits = header_blocks.list_remedies(tables, end.goaway) if large else ()
        if end.breach < 0 and not known:
            limits += http2_breaches.list_stream_limits(tables, end.goaway)
        return (*((texts.make_remedy(known),) if known else ()), *limits, log)
    if end.breach >= 0:
        return (http2_breaches.make_remedy(tables, end.breach),)
    if end.goaway < 0 and end.closer == "client":
        return (_GIVEN_UP,)
    if end.drops:
        return (Remedy("application", "the client's library and its version", "whether it lets open calls end"), _RETRY)
    if refused >= 0:
        return (_WHY_STOPPED, _RETRY)
    if end.goaway >= 0 and _is_kept_open(end):
        return (_KEPT_OPEN, _RETRY)
    stopped = _is_stopped(tables, end)
    server = software_at.recognise_server(tables, (end.connection,))
    graces = () if stopped else settings.list_known(intents.GRACE, server, draining.MORE_TIME)
    stops = software_at.list_settings(tables, (end.connection,), 1, intents.SHUTDOWN, settings.WAITS)
    ordered = (*graces, *stops)
    between = Remedy("application", "idle timeouts of proxies and load balancers between", "if no server was stopped")
    return (_RETRY, between, *ordered) if end.goaway < 0 else (*ordered, _RETRY)
