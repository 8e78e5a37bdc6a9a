"""One picture per finding: which kind shows it, and the bounded data of each."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ...model.analysis import Analysis
from ...model.detector import PictureName
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

_DRAW: Mapping[PictureName, Draw] = {
    "batches": rates.draw_batches,
    "connection_window": flights.draw_connection_window,
    "delayed_acks": flights.draw_delayed_acks,
    "flight": flights.draw_flight,
    "handshakes": connections.draw_handshakes,
    "idle_gaps": calls.draw_idle_gaps,
    "losses": calls.draw_losses,
    "packet_rates": rates.draw_packet_rates,
    "queue_delay": connections.draw_queue_delay,
    "receive_window": flights.draw_receive_window,
    "stream_window": flights.draw_stream_window,
    "streams": calls.draw_streams,
    "used_up_window": flights.draw_used_up_window,
    "waiting_calls": calls.draw_waiting_calls,
}
"""What draws each picture of a connection; the latencies of a finding's calls take the place of one without data."""


def list_lanes(analysis: Analysis, tables: Tables) -> list[int]:
    """List the connections with a lane in a picture: it needs all of their RPCs, though not their packets."""
    drawn = (one for one in analysis.findings[:MOST_PICTURES] if _name_picture(one) == "handshakes")
    return [row for finding in drawn for row in connections.order_connections(finding, tables)[:MOST_LANES].tolist()]


def _name_picture(finding: Finding) -> PictureName:
    from ...detectors import ABOUTS  # late: reports of many captures need no detector

    return ABOUTS[finding.id].picture


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
    name = _name_picture(finding)
    if name == "none":
        return None
    subject = _find_subject(finding, tables, flights, spans, analysis)
    draw = _DRAW.get(name)
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


__all__ = ["MOST_PICTURES", "Picture", "draw_pictures", "list_lanes"]
