"""An idle connection was cut: the first packet after a silence got no answer, a RST, or met a FIN.

What it finds
-------------
A connection carries no RPC for a while, and is dead when it is used again. NAT gateways, firewalls, load balancers and
service meshes forget idle connections, and tell neither end. Servers and proxies close them, and a request may cross
their FIN. The report says how long the silence was, and compares it with known limits.

How it is decided
-----------------
Nothing was sent for a while. Then one of three things happened:

- *No answer.* What was sent is retransmitted after three or more timeouts, and no packet of the peer comes any more.
- *A RST* answers the first packet, and nothing else came from that side since the silence began. It does not count if
  that side retransmitted during the silence: then the path was cut, not the connection. RPCs may be open at the RST,
  such as a watch, if the RST has no ACK: only an end that does not know the connection sends that (RFC 9293 section
  3.5.2). A process that fails at that moment sends a FIN, or a RST with an ACK.
- *A crossed FIN or RST.* A request left less than a round trip before the FIN of the other side came, or its RST with
  an ACK, without a GOAWAY. So each was sent before the other arrived. A later RST whose ACK lacks the request may have
  crossed it, and is not called an answer. It does not count if the server refuses the client's next connection: then
  its process ended, and the silence was a chance.

The silence of a cut connection is an upper limit of the timer: the timer is no longer than that. A table of known
timers gives those that fit, as something to look at and never as a proof.

When it cannot tell
-------------------
Who cut it. If the host answers a new connection meanwhile, it lives, and this connection alone was forgotten. If not,
the host may be gone, and the report says both. If the capture ends within 5 seconds, lost packets may have come through
after that, and the report says so. A connection with an open RPC that gets no answer is the finding
`peer-unreachable`.

What would refute it
--------------------
A capture at the other end shows packets of this connection during the silence, or the peer's own log an end of its
process.

What to do
----------
Send keepalive PINGs during idle time, well below the limit of the path, where the server permits them without calls. Or
let the client close idle connections first (`grpc.WithIdleTimeout`, `GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS`). Servers and
proxies should send GOAWAY before they close, and wait a round trip: then no request is lost.

References
----------
- gRFC A8 (client-side keepalive), https://grpc.io/docs/guides/keepalive/
- RFC 5382 section 5 (NAT: established TCP connections are kept for 2 h 4 min or longer)
- RFC 9113 section 9.1 (idle connections, GOAWAY before closing)
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import evidence, failures, hosts, methods, ratings, resets, software_at, unanswered
from ..facts.early_end import RESTART_NS, find_refusals
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE
from ..software import intents, timers
from ..tables import Mask, Tables

ID = "idle-connection-cut"
ABOUT = About(
    example="recorded/wild/idle-drop.pcap.zst",
    caused_by=("forged-reset",),
    precedence=1,
    weight="affected_share",
    whole_connections=True,
    picture="losses",
    costs=(Cost("affected_rpcs", "{} affected"),),
    explains=("peer_unreachable",),
    proxy_faults=("failed_attempt",),
)


class Limits(failures.LossLimits, frozen=True, eq=False):
    timeouts: int = unanswered.TIMEOUTS
    """Retransmission timeouts without an answer (heuristic: as for `peer-unreachable`)."""
    idle_ns: int = unanswered.INITIAL_TIMEOUT_NS
    """Shortest silence (RFC 6298 section 2: TCP's initial timeout, 1 s; a shorter one is a pause)."""
    round_trips: float = 3.0
    """Shortest silence before a crossed FIN, in round trips (heuristic: the connection had come to rest)."""
    late: float = 2.0
    """A RST answers a packet if it comes within so many round trips (heuristic: a host may be busy)."""
    unknown_ns: int = 1_000_000
    """The same of a RST without ACK, on however short a path (heuristic: what forgot a connection answers at once)."""
    refused_ns: int = RESTART_NS
    """A server that refuses a SYN so soon after had stopped before (heuristic: a restart takes less than a minute)."""
    critical_time: float = CRITICAL_SHARE
    """Critical from this share of RPC time (heuristic: a fifth of all RPC time)."""


class _Cut(Struct, frozen=True, eq=False):
    """One connection that was cut."""

    connection: int
    kind: str
    """`no answer`, `RST`, or one that crossed the request: `FIN` or `crossed RST`."""
    row: int
    """Row of the unanswered table, or of the closings table."""
    silence_ns: int
    rpcs: int
    """RPCs that were hit."""
    was_open: bool = False
    """RPCs were open during the silence."""


_WORDS = {
    "no answer": "the first packet after it got no answer",
    "RST": "a RST answered the first packet after it",
    "FIN": "the next request crossed the server's FIN",
    "crossed RST": "the next request crossed the server's RST",
}


_CROSSED = ("FIN", "crossed RST")


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all idle connections that were cut."""
    crossed = _mark_crossed(tables, limits)
    cuts = [
        *_find_unanswered(tables, limits),
        *_find_resets(tables, crossed, limits),
        *_find_crossed(tables, crossed, limits),
    ]
    if cuts:
        cuts.sort(key=lambda cut: (-cut.rpcs, cut.kind not in _CROSSED, cut.connection))
        yield _make_finding(tables, cuts, limits)


def _find_unanswered(tables: Tables, limits: Limits) -> Iterator[_Cut]:
    u = tables.unanswered
    rows = unanswered.find_unanswered(tables, limits.timeouts, limits.idle_ns, idle=True)
    for row, hit in zip(rows.tolist(), unanswered.count_waiting(tables, rows).tolist(), strict=True):
        silence = int(u.first_time_ns[row]) - int(u.heard_time_ns[row])
        yield _Cut(int(u.connection[row]), "no answer", row, silence, hit)


def _find_resets(tables: Tables, crossed: Mask, limits: Limits) -> Iterator[_Cut]:
    """Find RSTs that answer the first flight after a silence, in which their own side did not retransmit in vain."""
    c, trips = tables.closings, tables.connections.min_rtt_ns
    retransmitted = c.peer_packet == tables.connections.outage_to_packet[c.connection]
    since = c.peer_time_ns - np.maximum(c.peer_idle_ns, 0)
    soon = limits.late * np.maximum(trips[c.connection], 0)
    # a RST without ACK may also answer what follows a FIN that the capture lacks
    unknown = (c.acknowledges == 0) & (tables.connections.missing_bytes[c.connection] == 0)
    soon = np.where(unknown, np.maximum(soon, limits.unknown_ns), soon)
    answers = (c.peer_time_ns > 0) & (c.time_ns - c.peer_time_ns <= soon)
    silence = c.peer_time_ns - np.maximum(since, c.own_time_ns)
    silent = (silence >= limits.idle_ns) & (c.own_packet > 0) & (c.own_packet < c.peer_packet)
    silent &= ~crossed
    for row, busy in _mark_busy(tables, (c.reset == 1) & silent & ~retransmitted & answers & (c.open_rpcs > 0)):
        if not busy or not c.acknowledges[row]:
            yield _Cut(int(c.connection[row]), "RST", row, int(silence[row]), int(c.open_rpcs[row]), busy)


def _find_crossed(tables: Tables, crossed: Mask, limits: Limits) -> Iterator[_Cut]:
    """Find FINs and RSTs of servers, without GOAWAY, that crossed the first request after a silence."""
    c, connections = tables.closings, tables.connections
    unannounced = crossed & (connections.goaway_server[c.connection] < 0)
    rows = [row for row, busy in _mark_busy(tables, unannounced & (c.open_rpcs > 0)) if not busy]
    stopped = find_refusals(tables, c.connection[rows].tolist(), limits.refused_ns)
    for row in (row for row in rows if int(c.connection[row]) not in stopped):
        silence = int(c.time_ns[row]) - int(c.own_time_ns[row])
        kind = "crossed RST" if c.reset[row] else "FIN"
        yield _Cut(int(c.connection[row]), kind, row, silence, int(c.open_rpcs[row]))


def _mark_crossed(tables: Tables, limits: Limits) -> Mask:
    """Mark FINs and RSTs of servers that were on their way when the first request after a silence was.

    A RST without ACK is of an end that does not know the connection. That of a device may be an answer so soon.
    """
    c, connections = tables.closings, tables.connections
    trips, since = connections.min_rtt_ns[c.connection], c.time_ns - c.peer_time_ns
    on_the_way = (since >= 0) & (since < connections.near_server_rtt_ns[c.connection])
    rest = np.maximum(trips, 1) * limits.round_trips
    rested = (c.own_packet > 0) & (c.time_ns - c.own_time_ns >= rest) & (c.peer_idle_ns >= rest)
    known = (c.reset == 0) | (c.acknowledges == 1)
    crossed = np.asarray((c.direction == 1) & on_the_way & rested & known)
    for row in np.flatnonzero(crossed & (c.reset == 1)).tolist():
        crossed[row] = not resets.may_be_foreign(tables, row)
    return crossed


def _mark_busy(tables: Tables, cut: Mask) -> Iterator[tuple[int, bool]]:
    """Yield the first FINs and RSTs of their connections, and whether an open RPC had begun before the silence."""
    c = tables.closings
    rows = np.flatnonzero(cut & unanswered.mark_first_closings(tables))
    begun = c.peer_time_ns[rows] - c.peer_idle_ns[rows] // 2 - 1
    busy = unanswered.mark_busy(tables, c.connection[rows], begun, c.peer_time_ns[rows])
    yield from zip(rows.tolist(), busy.tolist(), strict=True)


def _name_kind(tables: Tables, cuts: list[_Cut], kind: str) -> str:
    """Say what came; of a RST not that it is an answer, unless its ACK covers the packet or it has none."""
    may_cross = kind == "RST" and any(tables.closings.lacks[cut.row] for cut in cuts if cut.kind == kind)
    return "a RST met the first packet after it" if may_cross else _WORDS[kind]


def _make_finding(tables: Tables, cuts: list[_Cut], limits: Limits) -> Finding:
    connections = tuple(sorted({cut.connection for cut in cuts}))
    hit, first = sum(cut.rpcs for cut in cuts), cuts[0]
    lost = unanswered.sum_lost(tables, connections) or None
    share = None if lost is None else unanswered.share_lost(tables, connections, lost)
    affected = hit / max(tables.rpc_count, 1)
    silence = duration(float(np.median([cut.silence_ns for cut in cuts])))
    many = count(len(cuts), "idle connection")
    cost = f"{count(hit, 'RPC')} failed or waited" if hit else "no RPC was hit"
    # an unanswered packet alone may mean that the host is gone
    silent = np.array([cut.row for cut in cuts if cut.kind == "no answer"], dtype=np.int64)
    dark = silent[~unanswered.mark_answered(tables, silent)]
    what = f"{many} {'was' if len(cuts) == 1 else 'were'} cut"
    refusals = find_refusals(tables, (cut.connection for cut in cuts if cut.kind == "RST"), limits.refused_ns)
    stopped = len(refusals) == len(connections)
    is_brief = len(silent) == len(cuts) and bool(unanswered.mark_brief(tables, silent).all())
    if gone := len(dark) == len(cuts):
        u = tables.unanswered
        peers = hosts.name_hosts(tables, u.connection[dark], 1 - u.direction[dark])
        what += f", or {peers} {'were' if hosts.are_many(peers) else 'was'} gone,"
    elif is_brief:
        what += ", or packets were lost until the capture's end,"
    return Finding(
        id=ID,
        title=f"{what} after a silence of {silence}: {_name_kind(tables, cuts, first.kind)}",
        severity=_rate_severity(tables, hit, 0.0 if is_brief else share or 0.0, limits),
        confidence=ratings.lower("medium" if gone or is_brief else "high", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=lost,
        share=share,
        metrics={
            "connections": len(connections),
            "affected_rpcs": hit,
            "affected_share": affected,
            "silence_ns": int(np.median([cut.silence_ns for cut in cuts])),
            "shortest_silence_ns": min(cut.silence_ns for cut in cuts),
            **{f"{kind.lower().replace(' ', '_')}_connections": _count(cuts, kind) for kind in _WORDS},
        },
        evidence=tuple(
            item
            for place in hosts.pick_apart(tables, [cut.connection for cut in cuts], evidence.FEW_EXAMPLES)
            for item in _show_cut(tables, cuts[place])
        ),
        explanation=_explain(tables, cuts, refusals.get(first.connection)),
        remedies=(_WHY_STOPPED,) if stopped else _list_remedies(tables, first),
        references=("gRFC A8", "RFC 5382 section 5", "RFC 9113 section 9.1"),
        verdict=(
            f"{what} after a silence of {silence}, and {cost}: "
            + (
                "let the server send GOAWAY before it closes."
                if first.kind in _CROSSED
                else "the server refused the next connection, so look for why it had stopped."
                if stopped
                else "a longer capture may tell which."
                if is_brief
                else "keepalive PINGs must come more often than that."
            )
        ),
    )


_WHY_STOPPED = Remedy(
    "application", "the server's log, and that of what restarts it", "why it had stopped: PINGs would not have helped"
)


def _count(cuts: list[_Cut], kind: str) -> int:
    return sum(cut.kind == kind for cut in cuts)


def _rate_severity(tables: Tables, hit: int, share: float, limits: Limits) -> Severity:
    if not hit:
        return "info"
    many = failures.are_many_lost(hit, tables.rpc_count, limits)
    return "critical" if many or share >= limits.critical_time else "warning"


def _explain(tables: Tables, cuts: list[_Cut], refused: int | None) -> str:
    first = cuts[0]
    peer = hosts.host(tables, first.connection, _find_peer(tables, first))
    kinds = ", ".join(
        f"{count(_count(cuts, kind), 'time')} {_name_kind(tables, cuts, kind)}" for kind in _WORDS if _count(cuts, kind)
    )
    words = _name_kind(tables, cuts, first.kind)
    what_came = f"{words[0].upper()}{words[1:]}" if len(cuts) == 1 else f"Of {len(cuts):,} such silences: {kinds}"
    what = "Nothing was sent" if first.was_open else "No RPC was open"
    parts = [f"{what} on connection {first.connection} for {duration(first.silence_ns)}. {what_came}."]
    if first.kind == "no answer":
        parts.append(f"{unanswered.describe_end(tables, first.row)}. {unanswered.describe_answer(tables, first.row)}")
    elif first.kind == "RST":
        parts.append(_describe_reset(tables, first.row))
        if refused is not None:
            packet = int(tables.setups.reset_packet[refused])
            parts.append(
                f"{peer} refused a new connection in packet {packet}: nothing listened there, as in a restart."
            )
    else:
        parts.append(
            f"{peer} closed without a GOAWAY. The request was on its way when the {first.kind.split()[-1]} was: "
            "the client could not know."
        )
    if late := unanswered.describe_deadlines(tables, tuple(cut.connection for cut in cuts)):
        parts.append(late)
    pings = int(tables.directions.keepalive_pings[2 * first.connection])
    parts.append(
        f"The client sent {count(pings, 'keepalive PING')} on this connection."
        if pings
        else "No keepalive PING is seen on this connection."
    )
    return " ".join(parts)


def _describe_reset(tables: Tables, row: int) -> str:
    c = tables.closings
    after = duration(int(c.time_ns[row]) - int(c.peer_time_ns[row]))
    text = f"The RST came {after} after the packet"
    if resets.comes_from_elsewhere(tables, row):
        text += f", with a TTL of {c.ttl[row]}; earlier packets of that host had a TTL of {c.most_ttl[row]}"
        return f"{text}. So a device on the path sent it, not that host."
    known = "" if c.acknowledges[row] else " It has no ACK: its sender did not know the connection any more."
    known += " Its ACK lacks the packet, so it may have crossed it." if c.lacks[row] else ""
    return f"{text}; its TTL is {c.ttl[row]}.{known}"


def _find_peer(tables: Tables, cut: _Cut) -> int:
    """Find the direction of the side that is gone, or that closed."""
    if cut.kind == "no answer":
        return 1 - int(tables.unanswered.direction[cut.row])
    return int(tables.closings.direction[cut.row])


def _show_cut(tables: Tables, cut: _Cut) -> Iterator[Evidence]:
    if cut.kind == "no answer":
        yield from unanswered.show_unanswered(tables, cut.row)
        return
    c, row = tables.closings, cut.row
    side = hosts.host(tables, cut.connection, int(c.direction[row]))
    yield evidence.show_packet(c, "own_packet", row, f"the last bytes of {side}")
    yield evidence.show_packet(c, "peer_packet", row, "the first bytes after the silence")
    yield evidence.show_packet(c, "packet", row, f"{cut.kind.split()[-1]} from {side}, TTL {c.ttl[row]}")


def _list_remedies(tables: Tables, cut: _Cut) -> tuple[Remedy, ...]:
    client = hosts.host(tables, cut.connection, 0)
    shorter = duration(cut.silence_ns)
    note = f"on {client}: below {shorter}" + ("" if cut.was_open else "; the server must permit PINGs without calls")
    if cut.kind in _CROSSED:
        server = hosts.host(tables, cut.connection, 1)
        goaway = Remedy("application", "GOAWAY, then a wait of a round trip, then FIN", f"on {server} or a proxy there")
        first = Remedy("any gRPC implementation", "the client's idle timeout", f"on {client}: below {shorter}")
        timeout = timers.make_idle_timeout(software_at.recognise_server(tables, (cut.connection,)))
        return (goaway, timeout, first, *timers.list_idle_limits(cut.silence_ns))
    # a call that is open lets PINGs go without further settings
    intent = intents.KEEPALIVE if cut.was_open else intents.KEEPALIVE_WITHOUT_CALLS
    own = software_at.list_settings(tables, (cut.connection,), 0, intent, note)
    return (*own, *timers.list_idle_limits(cut.silence_ns))
