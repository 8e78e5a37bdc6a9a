"""RPCs waited for the retransmission of lost packets, and for the congestion window that the loss had reduced.

What it finds
-------------
Some RPCs take much longer than others, and packets were retransmitted. Two costs are counted: the wait for lost
bytes, and the extra round trips in a congestion window that the loss had reduced.

TCP delivers bytes in order. An RPC therefore waits for its own lost bytes, and for lost bytes of other RPCs before
them on the connection. After a loss the sender's congestion window is smaller: 7/10 with CUBIC, one segment after a
retransmission timeout. Messages that fitted into one round trip then take two. Traffic that does not fill the window
never makes it grow again.

How it is decided
-----------------
Lost packets show in two ways: the same bytes are retransmitted, or later bytes come first and the missing ones
follow no sooner than a round trip.

An RPC is charged the time from its last bytes until the retransmission of those bytes or earlier ones, if its
response came no sooner than a round trip after. It is also charged the time in which its bytes stood behind a hole.

An RPC is charged to the congestion window when all of this holds: the sender had a loss on its side; it stopped with
at least one segment in flight; HTTP/2 and TCP receive windows were open; it resumed right after an ACK. Where the
sender stopped inside a message, the bytes in flight are the window. Where it stopped at a message's end, the window
is estimated from that. Responses that leave in the same burst as blocked bytes stood in the queue behind them.

An outage is an interval in which one side retransmitted two or more times after a timeout and no packet of the other
side arrived, until one did. RPCs that waited for the silent side are charged with it, too: its answers could not
arrive. All that was retransmitted may have arrived there: then its ACKs were lost. Where RPCs lost most of the time in
outages, the report names the longest one instead of a share of lost packets. It also names the direction when one
side's bytes are not acknowledged any more, and its peer keeps retransmitting what had arrived: the peer hears no ACK.
So it does when the peer ends the outage without an ACK of these bytes, as by TCP keepalive, and is heard once more
after they were retransmitted again.
A capture point at that peer, or at the silent side of an outage, within 200 µs, shows that the bytes came to its host.

A response that its client never acknowledged does not count as OK if the server retransmitted it twice and the client
was heard more than 200 ms after, without a RST: each packet acknowledges what has arrived. Its RPC reached its deadline
or ended with the connection; otherwise its status is unknown.

Packets that are late by less than a round trip were reordered, and are not counted. Where packets were retransmitted
and no RPC is seen to wait, as at a server that has responded already, the share of retransmitted packets decides
whether it is reported; packets that a router reported as too big, and that came again in smaller pieces, do not count
there.

A retransmission is no loss by itself: a late ACK leads to one as well. It counts if a hole shows that the bytes were
missing: the receiver reported later bytes (SACK), or the capture has these first. Without a hole it counts if its ACK
comes no later than a receiver may delay it, and nothing says that the first packet had arrived. These say so: the
receiver reports a duplicate (D-SACK, RFC 2883), or sends the same ACK twice; the ACK comes before the retransmission,
sooner than a round trip after it, or echoes an older timestamp (RFC 3522); it covers later bytes as well, of which the
receiver had reported no hole (RFC 5682). A window that such a retransmission reduced is restored.

When it cannot tell
-------------------
A lost packet with no packet behind it leaves no hole: if its retransmission is acknowledged late, it is not counted. At
the receiver only its delay is seen, and that time stays with the server, the client, or unexplained. A capture that
lacks packets itself shows holes that are never filled; these are reported as missing. In an outage the path may have
been cut, or the whole host paused. BBR does not reduce its window as CUBIC does, and it paces: less of its time can be
attributed. A window that is small for another reason, such as a small send buffer, looks the same after a loss.

What would refute it
--------------------
`nstat -az TcpRetransSegs TcpExtTCPTimeouts` does not grow at either end during the calls. Or `ss -ti` at the sender
shows `retrans:0/0` and a congestion window above the size of the messages. Or the same calls take as long on a path
without retransmissions.

What to do
----------
If a network queue stood when packets were lost, read `network-queueing` first: a queue that is full drops packets.
Otherwise find where packets get lost: interface and queue drops at both ends (`ethtool -S`, `tc -s qdisc`, `nstat`),
policers, the path between.

Where the loss cannot be avoided, use a congestion control that does not take every loss for congestion:
`net.ipv4.tcp_congestion_control=bbr` at the host that sends the larger messages. No gRPC option prevents it.
Channels with a connection of their own limit what one lost packet holds up.

References
----------
- RFC 9293 section 3.8, RFC 6298, RFC 8985 (RACK-TLP): retransmission; RFC 9438 section 4.6: CUBIC's reduction to 0.7
- RFC 2883, RFC 3522, RFC 4015, RFC 5682: retransmissions of what had arrived
- RFC 7661: a window that is not used does not grow; Linux net/ipv4/tcp_input.c, tcp_is_cwnd_limited
- https://github.com/grpc/grpc/issues/19126
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, icmp, outages, stalls, unanswered
from ..facts.hosts import host, pick_apart
from ..facts.methods import methods_of_connections, share_of_time
from ..facts.ratings import lower, quality_allows, severity
from ..model.analysis import Analysis
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..summary.figures import TLS
from ..tables import Ints, Mask, Tables

ID = "loss-recovery"


def _write_figure(analysis: Analysis) -> str:
    retransmitted = sum(connection.retransmitted_packets for connection in analysis.connections)
    packets = contradictions.add_up(analysis, lambda side: side.packets)
    blocked = contradictions.blocked_time("loss_recovery")(analysis)
    return f"{retransmitted:,} of {count(packets, 'packet')} retransmitted; {blocked}"


ABOUT = About(
    example="recorded/bench/lossy.pcap.gz",
    figure=_write_figure,
    caused_by=("peer-unreachable", "idle-connection-cut", "mtu-black-hole"),
    whole_connections=True,
    counts_losses=True,
    picture="losses",
    explains=("loss_recovery", "retransmissions", "congestion_window"),
)

_LOSS = CAUSES.index("loss_recovery")
_PEER_UNREACHABLE = CAUSES.index("peer_unreachable")
_CONGESTION_WINDOW = CAUSES.index("congestion_window")
_HELD_NS = 100_000_000
"""A path from which no packet comes for so long is no full queue (RFC 8289 section 4.3, INTERVAL)."""


class Limits(stalls.TimeLimits, frozen=True, eq=False):
    repeated_share: float = 0.001
    """Reported without a waiting RPC from this share of retransmitted packets (heuristic: more than a stray one)."""
    repeated_warning: float = 0.01
    """A warning from this share (heuristic: one packet in a hundred slows every TCP sender)."""
    repeated_packets: int = 5
    """Fewest such packets (heuristic: fewer may be spurious retransmissions)."""


class _Cost(Struct, frozen=True, eq=False):
    """What losses cost the RPCs of the connections `rows`."""

    rows: Ints
    """The connections that lost time, the one with the longest recovery first."""
    recovery_ns: int
    """RPC time waiting for lost bytes."""
    window_ns: int
    """RPC time waiting for a congestion window that a loss had reduced."""

    @property
    def lost_ns(self) -> int:
        return self.recovery_ns + self.window_ns


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all connections on which packets were retransmitted and RPCs waited."""
    connections = tables.connections
    resent = connections.retransmitted_packets > connections.needless_retransmissions
    hit = np.flatnonzero(resent | (tables.connection_budgets[:, _LOSS] > 0))
    if not len(hit):
        return
    hit = hit[np.argsort(-connections.recovery_ns[hit], kind="stable")]
    seen = connections.recovery_to_packet[hit] > 0
    recovery = tables.connection_budgets[hit, _LOSS].astype(np.int64)
    window = connections.congestion_after_loss_ns[hit].astype(np.int64)
    waited = (recovery + window > 0) & seen
    if waited.any():
        cost = _Cost(hit[waited], int(recovery[waited].sum()), int(window[waited].sum()))
        yield _make_finding(tables, cost, limits)
    elif len(rows := hit[seen & ~_mark_explained(tables, hit)]):
        unseen = _Cost(rows, 0, 0)
        figures = _measure(tables, unseen)
        enough = int(figures["retransmitted_packets"]) >= limits.repeated_packets
        if enough and float(figures["retransmitted_share"]) >= limits.repeated_share:
            yield _report_hidden(tables, unseen, figures, limits)


def _mark_explained(tables: Tables, rows: Ints) -> Mask:
    """Mark connections on which nothing was lost that arrived later.

    Their peer is unreachable, or all that was retransmitted got no answer any more, or was too big for a router.

    Of a packet that was too big there are two pieces at most.
    """
    resent = tables.connections.retransmitted_packets[rows]
    smaller = resent <= 2 * icmp.count_too_big(tables, rows)
    u, in_vain = tables.unanswered, np.zeros(len(tables.connections.rpcs), dtype=np.int64)
    proved = unanswered.mark_proved(tables) | unanswered.mark_stuck(tables)
    np.add.at(in_vain, u.connection[proved], u.retransmissions[proved])
    return np.asarray(smaller | (resent <= in_vain[rows]) | (tables.connection_budgets[rows, _PEER_UNREACHABLE] > 0))


def _report_hidden(tables: Tables, cost: _Cost, metrics: dict[str, int | float | str], limits: Limits) -> Finding:
    """Make the finding for retransmissions whose cost to RPCs is not visible from the capture point."""
    share, packets = float(metrics["retransmitted_share"]), f"{metrics['retransmitted_packets']:,} packets"
    scope = tuple(sorted(int(row) for row in cost.rows))
    longest = duration(float(metrics["longest_recovery_ns"]))
    hidden = bool((tables.connections.protocol[cost.rows] == TLS).all())
    cause = _find_cause(tables, cost)
    return Finding(
        id=ID,
        title=cause.title
        if cause
        else f"{packets} were retransmitted ({share:.1%}); the cost to RPCs is "
        + ("hidden by encryption" if hidden else "not visible in this capture"),
        severity="warning" if share >= limits.repeated_warning else "info",
        confidence=lower("medium", quality_allows(tables)),
        scope=Scope(scope, methods_of_connections(tables, scope)),
        metrics=metrics,
        evidence=(*(cause.evidence if cause else ()), *_show_losses(tables, cost)),
        explanation=(
            f"{packets} ({share:.1%} of all on {len(scope):,} {'TLS ' * hidden}connection{'s' * (len(scope) > 1)}) "
            f"were retransmitted; the longest recovery took {longest}. {_ENCRYPTED if hidden else _OUT_OF_SIGHT}"
            f"{icmp.describe_too_big(tables, cost.rows)}"
        ),
        remedies=cause.remedies if cause else _list_remedies("both hosts"),
        references=("RFC 8985", "https://github.com/grpc/grpc/issues/19126"),
        verdict=f"{cause.title}: {cause.advice}."
        if cause
        else (
            f"{share:.1%} of the packets were retransmitted, and the longest recovery took {longest}"
            f"{'' if hidden else '; RPCs wait at the other end, out of sight of this capture'}: find where packets are "
            "dropped."
        ),
    )


_ENCRYPTED = "The connections are encrypted, so how long RPCs waited is unknown."
_OUT_OF_SIGHT = (
    "No RPC is seen to wait for them at this capture point: a late request has not begun here, and a lost response has "
    "already left. The other end waits, and a capture there shows how long."
)


def _make_finding(tables: Tables, cost: _Cost, limits: Limits) -> Finding:
    share = share_of_time(tables, cost.lost_ns)
    metrics = _measure(tables, cost)
    scope = tuple(sorted(int(row) for row in cost.rows))
    cause = _find_cause(tables, cost)
    return Finding(
        id=ID,
        title=cause.title
        if cause
        else f"RPCs waited for {count(int(metrics['retransmitted_packets']), 'retransmitted packet')}",
        severity=severity(share, limits.warning_share, limits.critical_share),
        confidence=_rate_confidence(tables, cost),
        scope=Scope(scope, methods_of_connections(tables, scope)),
        lost_ns=cost.lost_ns,
        share=share,
        metrics=metrics,
        evidence=(*(cause.evidence if cause else ()), *_show_losses(tables, cost)),
        explanation=_explain(tables, cost, metrics),
        remedies=cause.remedies if cause else _list_remedies(_name_hosts(tables, cost)),
        references=(
            "RFC 8985",
            "RFC 9438 section 4.6",
            "Linux net/ipv4/tcp_input.c tcp_is_cwnd_limited",
            "https://github.com/grpc/grpc/issues/19126",
        ),
        verdict=(
            f"{cause.title}. RPCs lost {duration(cost.lost_ns)} ({share:.0%}): {cause.advice}."
            if cause
            else _write_verdict(tables, cost, metrics, share)
        ),
    )


class _Cause(Struct, frozen=True, eq=False):
    """What made most of the loss, where it is more than packets that get lost now and then."""

    title: str
    advice: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]


def _find_cause(tables: Tables, cost: _Cost) -> _Cause | None:
    """Find an outage, or one direction that is dropped."""
    if (row := outages.find_one_way(tables, cost.rows, cost.lost_ns)) is not None:
        evidence, remedies = outages.show_one_way(tables, row), outages.list_one_way_remedies(tables, row)
        advice = outages.advise_one_way(tables, row)
        return _Cause(outages.describe_one_way(tables, row), advice, tuple(evidence), remedies)
    if (cut := outages.find_outage(tables, cost.rows, cost.lost_ns)) is not None:
        evidence, remedies = outages.show_outage(tables, cut), outages.list_remedies(tables, cut)
        advice = outages.advise_outage(tables, cut)
        return _Cause(outages.describe_outage(tables, cut), advice, tuple(evidence), remedies)
    return None


def _rate_confidence(tables: Tables, cost: _Cost) -> Confidence:
    """Rate the confidence: retransmissions are seen, a small window is inferred from when the sender stops."""
    inferred: Confidence = "medium" if cost.window_ns > cost.recovery_ns else "high"
    return lower(inferred, quality_allows(tables))


def _measure(tables: Tables, cost: _Cost) -> dict[str, int | float | str]:
    connections, rows = tables.connections, cost.rows
    segment = np.maximum(connections.mss_client[rows], connections.mss_server[rows])
    uncaptured = int((connections.missing_bytes[rows] // np.maximum(segment, 1))[segment > 0].sum())
    packets = int(connections.packets_client[rows].sum()) + int(connections.packets_server[rows].sum()) + uncaptured
    retransmitted = int(connections.retransmitted_packets[rows].sum())
    return {
        "connections": len(rows),
        "retransmitted_packets": retransmitted,
        "retransmitted_share": round(retransmitted / packets, 5) if packets else 0.0,
        "needless_retransmissions": int(connections.needless_retransmissions[rows].sum()),
        "retransmission_timeouts": int(connections.retransmission_timeouts[rows].sum()),
        "loss_recovery_ns": cost.recovery_ns,
        "congestion_window_after_loss_ns": cost.window_ns,
        "longest_recovery_ns": int(connections.recovery_ns[rows].max()),
    }


def _find_after_loss(tables: Tables, cost: _Cost) -> Ints:
    """Find the blocked intervals of a reduced window, the longest first."""
    waits = tables.waits
    rows = np.flatnonzero((waits.cause == _CONGESTION_WINDOW) & (waits.after_loss == 1))
    rows = rows[np.isin(waits.connection[rows], cost.rows)]
    return rows[np.argsort(-waits.duration_ns[rows], kind="stable")]


def _name_hosts(tables: Tables, cost: _Cost) -> str:
    """Name the end that was blocked longest by its reduced window; both ends where none was."""
    waits, rows = tables.waits, _find_after_loss(tables, cost)
    if not len(rows):
        return "both hosts"
    times = np.bincount(waits.direction[rows], weights=waits.duration_ns[rows], minlength=2)
    direction = int(np.argmax(times))
    row = rows[waits.direction[rows] == direction][0]
    return host(tables, int(waits.connection[row]), direction)


def _show_losses(tables: Tables, cost: _Cost) -> Iterator[Evidence]:
    connections = tables.connections
    for row in cost.rows[pick_apart(tables, cost.rows)]:
        end, ns = int(connections.recovery_time_ns[row]), int(connections.recovery_ns[row])
        yield Evidence(
            int(connections.recovery_from_packet[row]),
            end - ns,
            f"connection {int(row)}: the loss shows here: the packet after the lost one, or the sender's last packet "
            "before it noticed",
        )
        yield Evidence(
            int(connections.recovery_to_packet[row]), end, f"the lost bytes are retransmitted, {duration(ns)} later"
        )
    waits = _find_after_loss(tables, cost)
    for wait in waits[pick_apart(tables, tables.waits.connection[waits])]:
        yield from _show_window(tables, int(wait))


def _show_window(tables: Tables, wait: int) -> Iterator[Evidence]:
    waits = tables.waits
    start, waited = int(waits.start_time_ns[wait]), int(waits.duration_ns[wait])
    sender = host(tables, int(waits.connection[wait]), int(waits.direction[wait]))
    segments = int(waits.in_flight_bytes[wait]) / max(1, int(waits.mss[wait]))
    yield Evidence(
        int(waits.stopped_at_packet[wait]),
        start,
        f"after a loss {sender} stops with {int(waits.in_flight_bytes[wait]):,} bytes ({segments:.1f} segments) in "
        f"flight and {int(waits.owed_bytes[wait]):,} bytes still to send",
    )
    released = int(waits.released_by_packet[wait])
    if released and int(waits.released_time_ns[wait]) >= start:
        yield Evidence(released, int(waits.released_time_ns[wait]), "the ACK that opens its congestion window")
    yield Evidence(
        int(waits.resumed_at_packet[wait]), start + waited, f"the next bytes, {duration(waited)} after the stop"
    )


def _explain(tables: Tables, cost: _Cost, metrics: dict[str, int | float | str]) -> str:
    timeouts = int(metrics["retransmission_timeouts"])
    packets = int(metrics["retransmitted_packets"])
    some = "" if packets == 1 else f"{timeouts:,} of them "
    after = f", {some}only after a retransmission timeout" if timeouts else ""
    text = (
        f"{count(packets, 'packet')} ({metrics['retransmitted_share']:.1%} of all on "
        f"{count(len(cost.rows), 'connection')}) {'was' if packets == 1 else 'were'} retransmitted{after}. RPCs waited "
        f"{duration(cost.recovery_ns)} in total for lost bytes: their own bytes, or earlier bytes on the "
        f"connection. The longest recovery that ended took {duration(float(metrics['longest_recovery_ns']))}."
    )
    if queue := _find_queue(tables, cost):
        text += (
            f" When its packet was lost, packets waited in a network queue of up to {duration(queue)} on the way: full "
            "queues drop packets."
        )
    if cost.window_ns:
        text += (
            f" The losses reduced the congestion window, mostly that of {_name_hosts(tables, cost)}. RPCs waited "
            f"another {duration(cost.window_ns)} for extra round trips: traffic that does not fill the window does "
            "not make it grow again."
        )
    return text + icmp.describe_too_big(tables, cost.rows)


def _find_queue(tables: Tables, cost: _Cost) -> int:
    """Find the longest time in the queue that stood on the lost packet's way, for the longest recovery; 0 for none."""
    connections, queues = tables.connections, tables.queues
    row = int(cost.rows[0])
    lost = int(connections.recovery_time_ns[row] - connections.recovery_ns[row])
    way = (queues.connection == row) & (queues.direction == connections.recovery_direction[row])
    stood = (queues.start_time_ns <= lost) & (queues.start_time_ns + queues.duration_ns >= lost)
    held = (2 * queues.silent_ns >= queues.longest_ns) & (queues.silent_ns >= _HELD_NS)  # see network-queueing
    return int(queues.longest_ns[way & stood & ~held].max(initial=0))


def _write_verdict(tables: Tables, cost: _Cost, metrics: dict[str, int | float | str], share: float) -> str:
    lost = (
        f"Packet loss ({metrics['retransmitted_share']:.1%} of packets retransmitted) cost "
        f"{duration(cost.lost_ns)} of RPC time ({share:.0%})"
    )
    if queue := _find_queue(tables, cost):
        queued = f"with packets queued for up to {duration(queue)}"
        return f"{lost}, {queued}: pace large messages, or use fq_codel."
    window = f", {duration(cost.window_ns)} of it by reduced congestion windows" if cost.window_ns else ""
    return f"{lost}{window}: find where packets are dropped."


_BBR = (
    "does not take each loss for congestion; for new connections; needs the module tcp_bbr, and may take bandwidth "
    "from others on the path"
)


def _list_remedies(sender: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            "network",
            "nstat -az TcpRetransSegs TcpExtTCPTimeouts; ethtool -S INTERFACE; tc -s qdisc show",
            "at both ends, before and after the calls: shows whether the hosts drop the packets; if not, the path does "
            "(policers, overloaded or faulty links)",
        ),
        *settings.list_own(intents.CONGESTION_CONTROL, "linux", _BBR, where=f"on {sender}, for unavoidable loss"),
        Remedy(
            "application",
            "large and urgent messages on channels of their own",
            "a lost packet delays all RPCs on its connection and on no other; each connection has its own window",
        ),
        Remedy("any gRPC implementation", "none", "no gRPC or HTTP/2 option prevents waiting for lost packets"),
    )
