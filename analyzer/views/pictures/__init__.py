"""One picture per finding: which kind shows it, and the bounded data of each."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ...model.analysis import Analysis
from ...model.finding import Finding
from ...tables import Ints, Tables
from ..sampling import Spans
from . import calls, connections, flights, rates
from .model import MOST_LANES, Picture, Subject, find_facts

MOST_PICTURES = 24
"""Most findings with a picture (heuristic: the rest of a longer list is not read)."""
MOST_NAMED = 200
"""Most connections, and most methods, whose latencies a picture shows."""

Draw = Callable[[Subject], Picture | None]

DRAWN_BY: Mapping[str, Draw] = {
    "connection-churn": connections.draw_handshakes,
    "connection-window-stall": flights.draw_connection_window,
    "delayed-ack-nagle": flights.draw_delayed_acks,
    "client-idle-gap": calls.draw_idle_gaps,
    "flow-control-deadlock": flights.draw_used_up_window,
    "half-closed-streams": connections.draw_handshakes,
    "head-of-line-blocking": calls.draw_waiting_calls,
    "header-overhead": rates.draw_packet_rates,
    "idle-connection-cut": calls.draw_losses,
    "initial-congestion-window": flights.draw_flight,
    "load-imbalance": connections.draw_handshakes,
    "loss-recovery": calls.draw_losses,
    "max-concurrent-streams": calls.draw_streams,
    "mtu-black-hole": calls.draw_losses,
    "network-queueing": connections.draw_queue_delay,
    "peer-unreachable": calls.draw_losses,
    "ping-storm": rates.draw_packet_rates,
    "receive-window-stall": flights.draw_receive_window,
    "request-batching": rates.draw_batches,
    "server-concurrency-limit": calls.draw_streams,
    "shared-connection": calls.draw_idle_gaps,
    "slow-connect": connections.draw_handshakes,
    "slow-start-after-idle": flights.draw_flight,
    "small-packets": rates.draw_packet_rates,
    "stream-window-stall": flights.draw_stream_window,
    "too-many-pings": rates.draw_packet_rates,
    "window-update-storm": rates.draw_packet_rates,
}
"""What draws each finding's picture; the latencies of its calls show the others."""
WITHOUT_PICTURE = ("capture-quality", "connect-failure")
"""Findings about what has no calls and no packets of a connection."""


def list_lanes(analysis: Analysis, tables: Tables) -> list[int]:
    """List the connections with a lane in a picture: it needs all of their RPCs, though not their packets."""
    drawn = [
        finding
        for finding in analysis.findings[:MOST_PICTURES]
        if DRAWN_BY.get(finding.id) is connections.draw_handshakes
    ]
    return [row for finding in drawn for row in connections.order_connections(finding, tables)[:MOST_LANES].tolist()]


def draw_pictures(
    tables: Tables, flights: tuple[Ints, Ints], spans: Spans, analysis: Analysis
) -> tuple[Picture | None, ...]:
    """Draw the picture of each finding, in their order; None for those without one."""
    return tuple(
        _draw(finding, tables, flights, spans, analysis) if place < MOST_PICTURES else None
        for place, finding in enumerate(analysis.findings)
    )


def _draw(
    finding: Finding, tables: Tables, flights: tuple[Ints, Ints], spans: Spans, analysis: Analysis
) -> Picture | None:
    if finding.id in WITHOUT_PICTURE:
        return None
    subject = _find_subject(finding, tables, flights, spans, analysis)
    draw = DRAWN_BY.get(finding.id)
    return (draw(subject) if draw and subject else None) or _draw_latencies(finding, tables)


def _find_subject(
    finding: Finding, tables: Tables, flights: tuple[Ints, Ints], spans: Spans, analysis: Analysis
) -> Subject | None:
    """Find the connection of the first evidence, or the first of the finding's, and its packets that the page has."""
    packets = tables.packets
    evidence = np.array([item.packet for item in finding.evidence], dtype=np.int64)
    rows = np.flatnonzero(np.isin(packets.packet, evidence))
    candidates = [*packets.connection[rows].tolist(), *finding.scope.connections[:1]]
    facts = next(filter(None, (find_facts(analysis, connection) for connection in candidates)), None)
    if facts is None:
        return None
    mine = np.flatnonzero(packets.connection == facts.connection)
    if not spans.whole:
        mine = mine[_find_range(spans, facts.connection, packets.packet[mine].astype(np.int64), evidence)]
    zero = int(tables.capture["first_time_ns"] or 0)
    return Subject(finding, tables, flights, facts, mine, zero) if len(mine) else None


def _find_range(spans: Spans, connection: int, packets: Ints, evidence: Ints) -> npt.NDArray[np.bool_]:
    """Mark the packets around the first piece of evidence on the connection, between which the page lacks none."""
    rows = np.flatnonzero(spans.connection == connection)
    for number in evidence[np.isin(evidence, packets)].tolist():
        for first, last in zip(spans.first_packet[rows].tolist(), spans.last_packet[rows].tolist(), strict=True):
            if first <= number <= last:
                return np.asarray((packets >= first) & (packets <= last))
    return np.zeros(len(packets), dtype=bool)


def _draw_latencies(finding: Finding, tables: Tables) -> Picture | None:
    """Ask for the latencies of the finding's calls over time; the page draws them of its own RPCs."""
    scope, zero = finding.scope, int(tables.capture["first_time_ns"] or 0)
    if not tables.methods:
        return None
    begin = min(method.first_start_ns for method in tables.methods) - zero
    end = max(int(tables.capture["last_time_ns"] or 0) - zero, begin)
    title = "Each call: its start and its latency, in the colour of its main cause"
    return Picture(
        "latency",
        title,
        "ns",
        begin,
        end,
        connections=scope.connections[:MOST_NAMED],
        methods=scope.methods[:MOST_NAMED],
    )


__all__ = ["DRAWN_BY", "MOST_PICTURES", "WITHOUT_PICTURE", "Picture", "draw_pictures", "list_lanes"]
