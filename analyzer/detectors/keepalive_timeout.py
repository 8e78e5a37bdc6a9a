"""A keepalive timeout ended connections: the answer to a PING was on the way, or the peer's process was paused.

What it finds
-------------
Connections close while host and path work, and their RPCs fail with UNAVAILABLE. A side waited for the
acknowledgement of its keepalive PING for less time than the round trip, and gave the connection up. Or its peer did
not acknowledge the PING, although its TCP acknowledged bytes: a process that is paused, or whose event loop is blocked.

The report compares the time with the round trip.

How it is decided
-----------------
A side sends a PING, and a FIN or RST less than a round trip later, with RPCs open. So the acknowledgement could not
have arrived. Nothing of the connection was retransmitted but what had arrived: after an outage PING and FIN may arrive
together, however long apart they were sent. The PING's payload is not that of a BDP probe or of a graceful shutdown.
The same time on two connections or more shows a timer, and not a process that ends.

Where three round trips and 250 ms passed, and nothing of the connection was retransmitted but what had arrived, the
peer's TCP had acknowledged the PING. If it sent nothing new since, its process did not respond: the HTTP/2 library
acknowledges a PING at once.

When it cannot tell
-------------------
When the round trip is unknown, or when the capture lacks bytes of the connection. One connection alone may have been
closed for another reason: the confidence is low then. A peer that does not answer at all is `peer-unreachable`.

What would refute it
--------------------
The log of that side has another reason for the close.

What to do
----------
Make the keepalive timeout longer than the longest round trip, with room for queues and retransmissions: implementations
use 20 s by default. If the peer was paused, look for a pause in its garbage collector's log, for a CPU quota, and for
handlers that block its event loop.

References
----------
- gRFC A8 (client-side keepalive), https://grpc.io/docs/guides/keepalive/
- RFC 9113 section 6.7 (PING)
"""

from collections.abc import Iterator

import numpy as np

from ..facts import evidence, hosts, methods, ratings, software_at, unanswered
from ..facts.failures import NOBODY, LossLimits, severity_of_loss
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents
from ..tables import Ints, Mask, Tables
from ..tables.grouping import distinct

ID = "keepalive-timeout"
ABOUT = About(
    example="recorded/wild/ka-too-short.pcap.zst",
    precedence=1,
    weight="affected_share",
    whole_connections=True,
    costs=(Cost("affected_rpcs", "{} affected"),),
    proxy_faults=("failed_attempt",),
)


class Limits(LossLimits, frozen=True, eq=False):
    same_time: float = 0.2
    """Largest spread of the times, by their median (heuristic: a timer and a busy host)."""
    late_ns: int = 250_000_000
    """Time beyond some round trips until a PING without TCP's ACK is retransmitted (Linux TCP_RTO_MIN, 200 ms)."""
    round_trips: float = 3.0
    """These round trips (RFC 6298 section 2: the timeout begins with three)."""
    connections: int = 2
    """Connections with the same time that make it a timer (heuristic: a process seldom ends twice alike)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections that were closed too soon after a PING."""
    c, connections = tables.closings, tables.connections
    trips = connections.min_rtt_ns[c.connection]
    waited = c.time_ns - c.ping_time_ns
    # the acknowledgement may be among bytes that the capture lacks
    unread = connections.missing_bytes + connections.undecoded_bytes + connections.undelivered_bytes
    resent = connections.retransmitted_packets - connections.needless_retransmissions.astype(np.int64)
    heard = (trips >= 0) & ((resent == 0) & (unread == 0))[c.connection]
    silent = c.peer_time_ns <= c.ping_time_ns + np.maximum(trips, 0)
    pinged = (c.ping_packet > 0) & (_count_rpcs(tables) > 0)
    hasty = _find_closings(tables, pinged & heard & (c.ping_packet != c.packet) & (waited < trips))
    late = _find_closings(tables, pinged & heard & silent & (waited >= limits.round_trips * trips + limits.late_ns))
    if len(late) > len(hasty):
        yield _make_finding(tables, late, limits, hasty=False)
    elif len(hasty):
        yield _make_finding(tables, hasty, limits, hasty=True)


def _find_closings(tables: Tables, wanted: Mask) -> Ints:
    """Find the closings wanted that are the first of their connections, behind PINGs that may be keepalive's."""
    c = tables.closings
    rows = np.flatnonzero(wanted & unanswered.mark_first_closings(tables))
    if not len(rows):
        return rows  # np.isin imports numpy's masked arrays: 10 ms
    rows = rows[~np.isin(c.connection[rows], tables.unanswered.connection)]
    pings = tables.pings
    other = pings.packet[np.isin(pings.purpose, unanswered.OTHER_PINGS) & (pings.ack == 0)]
    return rows[~np.isin(c.ping_packet[rows], other)]


def _count_rpcs(tables: Tables) -> Ints:
    """Count the RPCs that each closing ended: open then, or reset by the same side since its PING, as C-core does."""
    c, rpcs, failures = tables.closings, tables.rpcs, tables.failures
    closing = np.full((len(tables.connections.rpcs), 2), -1)
    latest_first = np.argsort(c.packet)[::-1]
    closing[c.connection[latest_first], c.direction[latest_first]] = latest_first
    reset = failures.reset_by < NOBODY
    rpc = failures.rpc[reset]
    rows = closing[rpcs.connection[rpc], failures.reset_by[reset]]
    ends = rpcs.start_time_ns[rpc] + rpcs.duration_ns[rpc]
    ended = (rows >= 0) & (ends > c.ping_time_ns[rows]) & (ends <= c.time_ns[rows]) if len(c.packet) else rows >= 0
    return np.asarray(c.open_rpcs + np.bincount(rows[ended], minlength=len(c.packet)), dtype=np.int64)


def _make_finding(tables: Tables, rows: Ints, limits: Limits, *, hasty: bool) -> Finding:
    c, first = tables.closings, int(rows[0])
    connections = tuple(distinct(c.connection[rows]).tolist())
    side = hosts.name_hosts(tables, c.connection[rows], c.direction[rows])
    waited, trip = c.time_ns[rows] - c.ping_time_ns[rows], tables.connections.min_rtt_ns[c.connection[rows]]
    lost = int(_count_rpcs(tables)[rows].sum())
    share = lost / max(tables.rpc_count, 1)
    wait, round_trip = (duration(float(np.median(times))) for times in (waited, trip))
    closed = count(len(rows), "connection")
    spread = int(waited.max() - waited.min())
    timer = len(waited) >= limits.connections and spread <= limits.same_time * float(np.median(waited))
    peer = hosts.name_hosts(tables, c.connection[rows], 1 - c.direction[rows])
    rpcs = count(lost, "RPC")
    return Finding(
        id=ID,
        title=f"{side} closed {closed} {wait} after a PING; "
        + (f"the round trip is {round_trip}" if hasty else f"{peer} had not acknowledged it"),
        severity=severity_of_loss(lost, tables.rpc_count, limits),
        confidence=ratings.lower("high" if timer else "low", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        metrics={
            "connections": len(connections),
            "affected_rpcs": lost,
            "affected_share": share,
            "median_wait_ns": int(np.median(waited)),
            "median_round_trip_ns": int(np.median(trip)),
        },
        evidence=tuple(
            item
            for row in rows[hosts.pick_apart(tables, c.connection[rows], evidence.FEW_EXAMPLES)].tolist()
            for item in _show(tables, row)
        ),
        explanation=(
            f"{side} sent a PING on {closed}, and closed {wait} later (median), which ended {rpcs}. The "
            f"shortest round trip is {round_trip} (median), "
            + (
                "so the acknowledgement could not have arrived. The peer did nothing wrong."
                if hasty
                else f"and nothing was lost: the TCP of {peer} acknowledged the PING. An HTTP/2 library "
                "acknowledges it at once, unless the process is paused or its event loop is blocked."
            )
        ),
        remedies=_list_remedies(
            tables, first, f"on {side}: " + (f"well above the round trip of {round_trip}" if hasty else _LONGER)
        ),
        references=("gRFC A8", "RFC 9113 section 6.7"),
        verdict=(
            f"{side} closed {closed} {wait} after a PING, sooner than the round trip of {round_trip}, and "
            f"so ended {rpcs}: make the keepalive timeout longer."
            if hasty
            else f"{side} closed {closed} with {rpcs} open: {peer} did not acknowledge a PING for {wait}, though its "
            f"TCP did. Look for a pause, a CPU quota or a blocked event loop there."
        ),
    )


def _show(tables: Tables, row: int) -> Iterator[Evidence]:
    c = tables.closings
    side = hosts.host(tables, int(c.connection[row]), int(c.direction[row]))
    yield evidence.show_packet(c, "ping_packet", row, f"PING of {side} on connection {c.connection[row]}")
    waited = duration(int(c.time_ns[row]) - int(c.ping_time_ns[row]))
    how = "RST" if c.reset[row] else "FIN"
    yield evidence.show_packet(c, "packet", row, f"{how} of {side}, {waited} after its PING")
    late = _find_late_ack(tables, row)
    if late is not None:
        pings = tables.pings
        yield evidence.show_packet(pings, "packet", late, "the acknowledgement of the PING")


def _find_late_ack(tables: Tables, row: int) -> int | None:
    c, pings = tables.closings, tables.pings
    mine = (pings.connection == c.connection[row]) & (pings.direction != c.direction[row]) & (pings.ack == 1)
    rows = np.flatnonzero(mine & (pings.packet > c.packet[row]))
    return int(rows[0]) if len(rows) else None


_LONGER = "longer than its peer pauses; a peer that is gone is noticed later"


_TONIC = ("Endpoint::keep_alive_timeout", "Server::http2_keepalive_timeout")


def _list_remedies(tables: Tables, row: int, note: str) -> tuple[Remedy, ...]:
    c = tables.closings
    connections, direction = (int(c.connection[row]),), int(c.direction[row])
    return software_at.list_settings(tables, connections, direction, intents.KEEPALIVE_TIMEOUT[direction], note)
