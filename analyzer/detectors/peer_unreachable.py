"""A peer does not answer any more: data is retransmitted, and not one packet comes back.

What it finds
-------------
Calls wait until their deadline, and no error comes. One side retransmits what it sent, with growing gaps, and not a
single packet of its peer comes any more.

The peer's host, its network or something on the path is gone, without a FIN or RST. The report says since when, who
noticed, and how long RPCs waited for nothing.

How it is decided
-----------------
After the peer's last packet a side sends bytes, and retransmits after three or more retransmission timeouts. No packet
of the peer comes until the capture ends or the side gives up. TCP acknowledges data whatever the application does
(RFC 9293 section 3.8.6.3), so a slow or stopped process is no cause.

The peer was gone at the earliest right after its last packet, and at the latest when the first unanswered packet was
sent. RPC time from the latter on is `peer_unreachable`. What lies between is `unexplained`: nobody asked the peer for
anything.

A router or host that cannot deliver these packets may say so: the report names the ICMP errors that quote them. Linux
retransmits on an established connection in spite of them.

RPCs that reach their deadline meanwhile are a consequence. After its first timeout, TCP sends no new request, but only
the oldest bytes again.

A connection that was idle before, without an open RPC, is the finding `idle-connection-cut`, unless such an error says
that there is no way to the host. If the capture ends within 5 seconds, packets may only have been lost: the confidence
is medium.

A peer of which the capture holds no packet at all may have answered out of sight. It counts only if such an error says
that there is no way to it.

When it cannot tell
-------------------
If only long packets were sent, and none as long was acknowledged before, the path may drop them, and let short ones
pass (`mtu-black-hole`). The report names both, with medium confidence.

Which of host and path is gone, where no ICMP error says it. A capture at the other end tells whether the packets arrive
there. A client may end its calls and say nothing, because its FIN and RST_STREAM wait behind the lost bytes: if it
opens a new connection, the wait is given as the most it may have been. Fewer timeouts than three may be loss. A path
that recovers is `loss-recovery`. Without bytes in flight nobody notices a dead peer, and neither does this finding.

What would refute it
--------------------
A capture at the peer shows that its packets of that time left.

What to do
----------
Let the side that waits notice sooner: HTTP/2 keepalive PINGs, which most implementations do not send by default, or
`TCP_USER_TIMEOUT`. If it sends PINGs already, shorten the keepalive time. Linux retransmits for some 15 minutes by
default (`net.ipv4.tcp_retries2`). Give every call a deadline. Then look for what happened to the host or the path at
that time.

References
----------
- RFC 9293 section 3.8.3 (TCP connection failures), RFC 5482 (TCP user timeout)
- gRFC A8 (client-side keepalive), gRFC A18 (TCP user timeout)
- RFC 1122 section 4.2.3.9, RFC 5461: an ICMP error does not end an established connection
- Linux Documentation/networking/ip-sysctl.rst (tcp_retries2)
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, evidence, hosts, icmp, methods, ratings, software_at, unanswered
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE
from ..software import intents, settings
from ..tables import Ints, Tables
from ..tables.grouping import distinct

ID = "peer-unreachable"
ABOUT = About(
    example="recorded/wild/half-open-nodeadline.pcap.zst",
    figure=contradictions.blocked_time("peer_unreachable"),
    precedence=0,
    whole_connections=True,
    without_rpcs=True,
    picture="losses",
    explains=("peer_unreachable",),
    proxy_faults=("failed_attempt",),
)


_LONG = "see whether full-size packets pass (`ping -M do -s 1472`), as the path may drop them alone"


class Limits(Struct, frozen=True, eq=False):
    timeouts: int = unanswered.TIMEOUTS
    """Retransmission timeouts without a packet of the peer (heuristic: three losses in a row are no chance)."""
    idle_ns: int = unanswered.INITIAL_TIMEOUT_NS
    """Silence before from which the connection was idle (RFC 6298 section 2: TCP's initial timeout, 1 s)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time lost (heuristic: a fifth of all RPC time)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all peers that do not answer any more."""
    rows = unanswered.find_unanswered(tables, limits.timeouts, limits.idle_ns, idle=False)
    if len(rows):
        u = tables.unanswered
        longest = u.last_time_ns[rows] - u.first_time_ns[rows]
        yield _make_finding(tables, rows[np.argsort(-longest, kind="stable")], limits)


def _make_finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    u, first = tables.unanswered, int(rows[0])
    connections = tuple(distinct(u.connection[rows]).tolist())
    peers = hosts.name_hosts(tables, u.connection[rows], 1 - u.direction[rows])
    readable = tables.connections.rpcs[list(connections)].any()
    lost = unanswered.sum_lost(tables, connections) if readable else None
    share = None if lost is None else unanswered.share_lost(tables, connections, lost)
    waiting = int(unanswered.count_waiting(tables, rows).sum())
    silent = int(u.last_time_ns[first]) - int((u.heard_time_ns if u.heard_packet[first] else u.first_time_ns)[first])
    heard = f"after {unanswered.format_instant(tables, int(u.heard_time_ns[first]))}"
    if not u.heard_packet[first]:
        heard = "in this capture"
    latest = unanswered.format_instant(tables, int(u.first_time_ns[rows].min()))
    were = (
        "was unreachable" if len(rows) == 1 else f"did not answer on {count(len(connections), 'connection')}, the first"
    )
    alone = peers == hosts.host(tables, int(u.connection[first]), 1 - int(u.direction[first]))
    then = f"look for what happened to {'that host or path' if alone else 'these hosts or paths'}"
    if (error := unanswered.find_error(tables, first)) is not None:
        then = f"find out why {icmp.name_reporter(tables, error)} reports {icmp.name_error(tables, error)}"
    is_brief, is_long = (
        bool(unanswered.mark_brief(tables, rows).all()),
        bool(unanswered.mark_long(tables, rows).all()),
    )
    if is_long and error is None:
        were, then = f"did not answer packets of {int(u.shortest[rows].min()):,} bytes or more", _LONG
    waited = f"{count(waiting, 'RPC')} waited" if waiting else "no RPC is seen to wait"
    kept_alive = unanswered.is_kept_alive(tables, first, limits.idle_ns)
    tried_again = all(unanswered.find_next_try(tables, row) is not None for row in rows.tolist())
    # a client that opens a new connection has noticed, by keepalive or otherwise
    keepalive = "shorten the keepalive time, and " if kept_alive else "check that keepalive is set, and "
    keepalive = "" if is_long or (tried_again and not kept_alive) else keepalive
    if alone and not is_long and error is None and unanswered.mark_answered(tables, rows, meanwhile=True).all():
        were = f"answered new connections, but nothing on {count(len(connections), 'older one')}"
        then = "look for a device that forgot it, or another server that has the address now"
    most = "at most " if tried_again else ""
    cost = f" ({most}{duration(lost)}, {share:.0%} of RPC time)" if lost else ""
    return Finding(
        id=ID,
        title=f"{peers} did not answer any more: no packet on connection {u.connection[first]} {heard}",
        severity=_rate_severity(tables, rows, share or 0.0, waiting, limits),
        confidence=ratings.lower("medium" if is_brief or is_long else "high", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=lost,
        share=share,
        metrics={
            "connections": len(connections),
            "rpcs_waiting": waiting,
            "longest_silence_ns": silent,
            "retransmissions": int(u.retransmissions[rows].sum()),
            "retransmission_timeouts": int(u.timeouts[rows].sum()),
        },
        evidence=tuple(
            item
            for row in rows[hosts.pick_apart(tables, u.connection[rows], evidence.FEW_EXAMPLES)].tolist()
            for item in unanswered.show_unanswered(tables, row)
        ),
        explanation=_explain(tables, rows, lost, kept_alive=kept_alive),
        remedies=_list_remedies(tables, rows, kept_alive=kept_alive),
        references=("RFC 9293 section 3.8.3", "RFC 5482", "gRFC A8", "gRFC A18"),
        verdict=(f"{peers} {were} from {latest} at the latest, and {waited}{cost}: {keepalive}{then}."),
    )


def _rate_severity(tables: Tables, rows: Ints, share: float, waiting: int, limits: Limits) -> Severity:
    """Rate a dead peer: a warning at least, if RPCs may have waited for it."""
    if share >= limits.critical_share:
        return "critical"
    hidden = any(
        tables.connections.rpcs[tables.unanswered.connection[row]] == 0 and not tables.unanswered.fin_alone[row]
        for row in rows.tolist()
    )
    return "warning" if waiting or share > 0 or hidden else "info"


def _explain(tables: Tables, rows: Ints, lost: int | None, *, kept_alive: bool) -> str:
    u, first = tables.unanswered, int(rows[0])
    is_long = bool(unanswered.mark_long(tables, rows[:1])[0])
    peer = hosts.host(tables, int(u.connection[first]), 1 - int(u.direction[first]))
    earliest, latest = (unanswered.format_instant(tables, int(t[first])) for t in (u.heard_time_ns, u.first_time_ns))
    last, gone = f"The last packet of {peer} on connection {int(u.connection[first])} came at {earliest}", ""
    if not u.heard_packet[first]:
        last = f"The capture holds no packet of {peer} on connection {int(u.connection[first])}"
    elif not is_long:
        gone = " So the peer or the path was gone between these two instants."
    parts = [
        f"{last}. What was sent from {latest} on was retransmitted "
        f"{count(int(u.retransmissions[first]), 'time')}, and not one packet came back.{gone}",
        f"{unanswered.describe_end(tables, first)}.",
    ]
    if is_long:
        passed = int(u.longest_bytes[first])
        parts.append(
            f"Each of these packets had {int(u.shortest[first]):,} bytes of payload or more, and no packet with more "
            f"than {passed:,} bytes was acknowledged in this capture. So shorter ones may pass: the path may drop long "
            "packets, or the peer is gone."
        )
    if unanswered.mark_brief(tables, rows).all():
        parts.append("The capture ends soon after: lost packets may have come through then.")
    if kept_alive:
        after = duration(int(u.ping_time_ns[first]) - int(u.heard_time_ns[first]))
        parts.append(f"Its keepalive sent a PING {after} after the last packet of {peer}.")
    if len(rows) > 1:
        parts.append(f"The same is seen on {len(distinct(u.connection[rows])):,} connections.")
    if lost:
        parts.append(f"RPCs waited {duration(lost)} in total for answers that could not come.")
    if lost and (following := unanswered.find_next_try(tables, first)) is not None:
        later = int(tables.connections.first_time_ns[following]) - int(u.first_time_ns[first])
        parts.append(
            f"That is the most they may have waited: the client opened a new connection {duration(later)} "
            "after the first of these bytes, and may have ended them then."
        )
    if late := unanswered.describe_deadlines(tables, tuple(u.connection[rows].tolist())):
        parts.append(late)
    if (error := unanswered.find_error(tables, first)) is not None:
        parts.append(f"{icmp.describe_error(tables, error)}.")
    parts.append(
        f"{unanswered.describe_answer(tables, first)} A slow handler is no cause: TCP acknowledges data anyway."
    )
    return " ".join(parts)


def _list_remedies(tables: Tables, rows: Ints, *, kept_alive: bool) -> tuple[Remedy, ...]:
    u, first = tables.unanswered, int(rows[0])
    connection, direction = int(u.connection[first]), int(u.direction[first])
    sender = hosts.name_hosts(tables, u.connection[rows], u.direction[rows])
    note = f"on {sender}: an unanswered PING ends the connection after {'a shorter' if kept_alive else 'that'} time"
    intent = intents.KEEPALIVE_AND_TIMEOUT[direction]
    own = software_at.list_settings(tables, (connection,), direction, intent, note)
    sooner = "TCP gives up after some 100 s, not 15 min"
    linux = settings.list_own(intents.GIVE_UP_SOONER, "linux", sooner, where=f"on {sender}")
    calls = Remedy("application", "a deadline for every call", "ends the wait of callers, though not the connection")
    return (*own, calls, *linux)
