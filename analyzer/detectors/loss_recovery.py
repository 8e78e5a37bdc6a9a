"""RPCs waited for lost packets to be sent again, and for the congestion window that the loss left behind.

What it finds
-------------
Packets got lost on the way. An RPC waited because its own bytes, or bytes of any RPC before them on the same
connection, had to be sent again; TCP hands bytes over in order. And after a loss the sender's congestion window is
smaller (to 7/10 with CUBIC, to one segment after a retransmission timeout): messages that fitted into one round trip
take two, and traffic that does not fill the window never makes it grow again. Both are counted, for both are what the
loss cost.

How it is decided
-----------------
Lost packets show in two ways: the same bytes are sent again, or later bytes come first and the missing ones follow no
sooner than a round trip. An RPC is charged the time from its last bytes until the bytes at or in front of them were
sent again, if its answer came no sooner than a round trip after; and the time in which its bytes stood behind such a
hole. It is charged to the congestion window when the sender, after a loss on its side, stopped with at least one
segment in flight, HTTP/2 and TCP receive windows open, and resumed right after an ACK. Where the sender stopped inside
a message, what was in flight then is the window; where it stopped at a message's end, the window is estimated from
that. Answers that leave in the same burst as blocked bytes stood in the queue behind them. Packets that are late by
less than a round trip were reordered, and are not counted. Where packets were sent again and no RPC is seen to wait,
as at a server that has answered already, it is told by the share of packets. A connection on which the receiver said
of every packet sent again that it had the bytes already (D-SACK, RFC 2883) lost nothing.

When it cannot tell
-------------------
A packet that is lost with nothing sent behind it leaves no hole, and is seen at the receiver only by its delay: that
time stays with the server, the client, or unexplained. A capture that lacks packets itself shows holes that no one
fills; these are told as missing. BBR does not reduce its window as CUBIC does, and paces: less of its time can be told
from outside. A window small for another reason, such as a small send buffer, looks the same after a loss.

What would refute it
--------------------
`nstat -az TcpRetransSegs TcpExtTCPTimeouts` does not grow at either end during the calls, `ss -ti` at the sender shows
`retrans:0/0` and a congestion window above the size of the messages, or the same calls take as long on a path where no
packet is sent again.

What to do
----------
Find where packets get lost, first: interface and queue drops at both ends (`ethtool -S`, `tc -s qdisc`, `nstat`),
policers, the path between. Where the loss cannot be helped, a congestion control that does not take every loss for
congestion keeps the window open (`net.ipv4.tcp_congestion_control=bbr` at the host that sends the larger messages). No
gRPC option prevents it. Channels with a connection of their own limit what one lost packet holds up.

References
----------
- RFC 9293 section 3.8, RFC 6298, RFC 8985 (RACK-TLP): retransmission; RFC 9438 section 4.6: CUBIC's reduction to 0.7
- RFC 7661: a window that is not used does not grow; Linux net/ipv4/tcp_input.c, tcp_is_cwnd_limited
- https://github.com/grpc/grpc/issues/19126
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.analysis import Analysis
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..summary.figures import TLS
from ..tables import Ints, Tables
from . import _figures
from ._shared import host, lower, methods_of_connections, milliseconds, quality_allows, severity, share_of_time

ID = "loss-recovery"


def _figure(analysis: Analysis) -> str:
    again = sum(connection.retransmitted_packets for connection in analysis.connections)
    packets = _figures.add_up(analysis, lambda side: side.packets)
    return f"{again:,} of {count(packets, 'packet')} sent again; {_figures.blocked_time('loss_recovery')(analysis)}"


ABOUT = About(
    example="recorded/bench/lossy.pcap.gz",
    figure=_figure,
    whole_connections=True,
)

_LOSS = CAUSES.index("loss_recovery")
_CONGESTION_WINDOW = CAUSES.index("congestion_window")


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.02
    """Share of RPC time lost from which it is a warning (own choice: above what runs differ by)."""
    critical_share: float = 0.20
    """Share of RPC time lost from which it is critical (own choice: a fifth of all waiting)."""
    repeated_share: float = 0.001
    """Share of packets sent again from which it is told though no RPC is seen to wait (own choice: no stray one)."""
    repeated_warning: float = 0.01
    """The same from which it is a warning (own choice: one packet in a hundred slows every TCP sender)."""
    repeated_packets: int = 5
    """Fewest such packets (own choice: fewer may be a few needless repetitions)."""
    examples: int = 3
    """Losses, and waits after them, shown as evidence (own choice: enough to see a pattern)."""


class _Cost(Struct, frozen=True, eq=False):
    """What losses cost the RPCs of the connections `rows`."""

    rows: Ints
    """The connections that lost time, the one with the longest repair first."""
    repair_ns: int
    """Waiting for lost bytes."""
    window_ns: int
    """Waiting for a congestion window that a loss had reduced."""

    @property
    def lost_ns(self) -> int:
        return self.repair_ns + self.window_ns


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all connections on which packets were sent again and RPCs waited for it."""
    connections = tables.connections
    hit = np.flatnonzero(connections.retransmitted_packets > connections.needless_retransmissions)
    if not len(hit):
        return
    repair = tables.connection_budgets[hit, _LOSS].astype(np.int64)
    window = connections.congestion_after_loss_ns[hit].astype(np.int64)
    waited = (repair + window > 0) & (connections.recovery_to_packet[hit] > 0)
    if waited.any():
        rows = hit[waited]
        order = np.argsort(-connections.recovery_ns[rows], kind="stable")
        yield _finding(tables, _Cost(rows[order], int(repair[waited].sum()), int(window[waited].sum())), limits)
    elif len(rows := hit[connections.recovery_to_packet[hit] > 0]):
        unseen = _Cost(rows[np.argsort(-connections.recovery_ns[rows], kind="stable")], 0, 0)
        figures = _metrics(tables, unseen)
        enough = int(figures["retransmitted_packets"]) >= limits.repeated_packets
        if enough and float(figures["retransmitted_share"]) >= limits.repeated_share:
            yield _unseen(tables, unseen, figures, limits)


def _unseen(tables: Tables, cost: _Cost, metrics: dict[str, int | float | str], limits: Limits) -> Finding:
    """Packets were sent again, and what RPCs waited for them is not seen from where the capture was taken."""
    share, again = float(metrics["retransmitted_share"]), f"{metrics['retransmitted_packets']:,} packets"
    scope = tuple(sorted(int(row) for row in cost.rows))
    longest = milliseconds(float(metrics["longest_repair_ns"]))
    hidden = bool((tables.connections.protocol[cost.rows] == TLS).all())
    return Finding(
        id=ID,
        title=f"{again} were sent again ({share:.1%}); what RPCs waited for them is "
        + ("encrypted" if hidden else "not seen from here"),
        severity="warning" if share >= limits.repeated_warning else "info",
        confidence=lower("medium", quality_allows(tables)),
        scope=Scope(scope, methods_of_connections(tables, scope)),
        lost_ns=None,
        share=None,
        metrics=metrics,
        evidence=tuple(_evidence(tables, cost, limits.examples)),
        explanation=(
            f"{again} ({share:.1%} of all on {len(scope):,} connection{'s' * (len(scope) > 1)}) were sent again; the "
            f"longest repair took {longest}. No RPC is seen to wait for them from where this capture was taken: a "
            "request that comes late has not begun here, and an answer that gets lost on its way has left. The other "
            "end waits, and its capture shows how long."
        )
        if not hidden
        else (
            f"{again} ({share:.1%} of all on {len(scope):,} TLS connection{'s' * (len(scope) > 1)}) were sent again; "
            f"the longest repair took {longest}. The connections are encrypted, and with them what RPCs waited."
        ),
        remedies=_remedies("both hosts"),
        references=("RFC 8985", "https://github.com/grpc/grpc/issues/19126"),
        verdict=(
            f"{share:.1%} of the packets were sent again, the longest repair took {longest}; RPCs wait for that at the "
            "other end, which this capture does not show: find where packets are dropped."
        )
        if not hidden
        else (
            f"{share:.1%} of the packets were sent again, and the longest repair took {longest}: find where packets "
            "are dropped."
        ),
    )


def _finding(tables: Tables, cost: _Cost, limits: Limits) -> Finding:
    share = share_of_time(tables, cost.lost_ns)
    metrics = _metrics(tables, cost)
    scope = tuple(sorted(int(row) for row in cost.rows))
    return Finding(
        id=ID,
        title=f"{metrics['retransmitted_packets']:,} packets were sent again, and RPCs waited for it",
        severity=severity(share, limits.warning_share, limits.critical_share),
        confidence=_confidence(tables, cost),
        scope=Scope(scope, methods_of_connections(tables, scope)),
        lost_ns=cost.lost_ns,
        share=share,
        metrics=metrics,
        evidence=tuple(_evidence(tables, cost, limits.examples)),
        explanation=_explanation(tables, cost, metrics),
        remedies=_remedies(_hosts(tables, cost)),
        references=(
            "RFC 8985",
            "RFC 9438 section 4.6",
            "Linux net/ipv4/tcp_input.c tcp_is_cwnd_limited",
            "https://github.com/grpc/grpc/issues/19126",
        ),
        verdict=_verdict(cost, metrics, share),
    )


def _confidence(tables: Tables, cost: _Cost) -> Confidence:
    """Retransmissions are seen; that a window is small is concluded from when the sender stops and resumes."""
    concluded: Confidence = "medium" if cost.window_ns > cost.repair_ns else "high"
    return lower(concluded, quality_allows(tables))


def _metrics(tables: Tables, cost: _Cost) -> dict[str, int | float | str]:
    connections, rows = tables.connections, cost.rows
    packets = int(connections.packets_client[rows].sum()) + int(connections.packets_server[rows].sum())
    again = int(connections.retransmitted_packets[rows].sum())
    return {
        "connections": len(rows),
        "retransmitted_packets": again,
        "retransmitted_share": round(again / packets, 5) if packets else 0.0,
        "needless_retransmissions": int(connections.needless_retransmissions[rows].sum()),
        "retransmission_timeouts": int(connections.retransmission_timeouts[rows].sum()),
        "loss_recovery_ns": cost.repair_ns,
        "congestion_window_after_loss_ns": cost.window_ns,
        "longest_repair_ns": int(connections.recovery_ns[rows].max()),
    }


def _waits_after_loss(tables: Tables, cost: _Cost) -> Ints:
    """The waits for a reduced window, the longest first."""
    waits = tables.waits
    rows = np.flatnonzero((waits.cause == _CONGESTION_WINDOW) & (waits.after_loss == 1))
    rows = rows[np.isin(waits.connection[rows], cost.rows)]
    return rows[np.argsort(-waits.duration_ns[rows], kind="stable")]


def _hosts(tables: Tables, cost: _Cost) -> str:
    """The end that waited longest for its reduced window; both ends where none did."""
    waits, rows = tables.waits, _waits_after_loss(tables, cost)
    if not len(rows):
        return "both hosts"
    times = np.bincount(waits.direction[rows], weights=waits.duration_ns[rows], minlength=2)
    direction = int(np.argmax(times))
    row = rows[waits.direction[rows] == direction][0]
    return host(tables, int(waits.connection[row]), direction)


def _evidence(tables: Tables, cost: _Cost, examples: int) -> Iterator[Evidence]:
    connections = tables.connections
    for row in cost.rows[:examples]:
        end, ns = int(connections.recovery_time_ns[row]), int(connections.recovery_ns[row])
        yield Evidence(
            int(connections.recovery_from_packet[row]),
            end - ns,
            f"connection {int(row)}: the loss shows: the packet behind the lost one, or the sender's last before it "
            "noticed",
        )
        yield Evidence(
            int(connections.recovery_to_packet[row]), end, f"the lost bytes are sent again, {milliseconds(ns)} later"
        )
    for wait in _waits_after_loss(tables, cost)[:examples]:
        yield from _window_evidence(tables, int(wait))


def _window_evidence(tables: Tables, wait: int) -> Iterator[Evidence]:
    waits = tables.waits
    start, duration = int(waits.start_time_ns[wait]), int(waits.duration_ns[wait])
    sender = host(tables, int(waits.connection[wait]), int(waits.direction[wait]))
    segments = int(waits.in_flight_bytes[wait]) / max(1, int(waits.mss[wait]))
    yield Evidence(
        int(waits.stopped_at_packet[wait]),
        start,
        f"after a loss {sender} stops with {int(waits.in_flight_bytes[wait]):,} bytes ({segments:.1f} segments) in "
        f"flight and {int(waits.owed_bytes[wait]):,} bytes owed",
    )
    released = int(waits.released_by_packet[wait])
    if released and int(waits.released_time_ns[wait]) >= start:
        yield Evidence(released, int(waits.released_time_ns[wait]), "the ACK that makes room in its congestion window")
    yield Evidence(
        int(waits.resumed_at_packet[wait]), start + duration, f"the next bytes, {milliseconds(duration)} after the stop"
    )


def _explanation(tables: Tables, cost: _Cost, metrics: dict[str, int | float | str]) -> str:
    timeouts = int(metrics["retransmission_timeouts"])
    after = f", {timeouts:,} of them only after a retransmission timeout" if timeouts else ""
    text = (
        f"{metrics['retransmitted_packets']:,} packets ({metrics['retransmitted_share']:.1%} of all on "
        f"{len(cost.rows):,} connection{'s' * (len(cost.rows) > 1)}) were sent again{after}. RPCs waited "
        f"{milliseconds(cost.repair_ns)} in all for lost bytes, their own or such as came before theirs on the same "
        f"connection; the longest repair took {milliseconds(float(metrics['longest_repair_ns']))}."
    )
    if cost.window_ns:
        text += (
            f" The losses reduced the congestion window, mostly that of {_hosts(tables, cost)}: RPCs waited "
            f"{milliseconds(cost.window_ns)} more for further round trips, because traffic that does not fill the "
            "window does not make it grow again."
        )
    return text


def _verdict(cost: _Cost, metrics: dict[str, int | float | str], share: float) -> str:
    window = (
        f", {milliseconds(cost.window_ns)} of it in congestion windows that the loss had reduced"
        if cost.window_ns
        else ""
    )
    return (
        f"Packet loss ({metrics['retransmitted_share']:.1%} of packets sent again) cost the RPCs "
        f"{milliseconds(cost.lost_ns)}, {share:.0%} of their time{window}: find where packets are dropped."
    )


def _remedies(sender: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            "network",
            "nstat -az TcpRetransSegs TcpExtTCPTimeouts; ethtool -S INTERFACE; tc -s qdisc show",
            "at both ends, before and after the calls: shows whether the hosts drop the packets; else it is the path "
            "(policers, overloaded or faulty links)",
        ),
        Remedy(
            "linux",
            "sysctl -w net.ipv4.tcp_congestion_control=bbr",
            f"on {sender}, for loss that cannot be helped: does not take each loss for congestion; for new "
            "connections; needs the module tcp_bbr, and may take bandwidth from others on the path",
        ),
        Remedy(
            "application",
            "large and urgent messages on channels of their own",
            "a lost packet holds up all RPCs on its connection and no other; each connection has a window of its own",
        ),
        Remedy("any gRPC implementation", "none", "no gRPC or HTTP/2 option prevents waiting for lost packets"),
    )
