"""Pictures of calls: open streams under their limit, idle gaps, and calls behind a lost packet."""

import numpy as np

from ...model.budget import CAUSES
from ...tables import Ints
from ..events import RETRANSMISSION
from .model import MOST_LANES, Picture, Series, Subject, count_open, make_line, make_series

_GAPS = 20
"""Lengths of the idle gap that are drawn before and after it (heuristic: shows its repetition)."""
_AROUND = 2
"""Lengths of the longest recovery that are drawn before and after it (heuristic: shows the calls before and behind)."""
_MOST_ARROWS = 60
"""Most retransmissions that are drawn: the latest ones of the range are left out."""
_MOST_SHADES = 200


def draw_streams(subject: Subject) -> Picture | None:
    """Draw how many RPCs are open on the connection, and the limit."""
    starts, ends = _list_rpcs(subject)
    limit = subject.finding.metrics.get("limit", subject.facts.peer_max_concurrent_streams)
    if not len(starts) or not isinstance(limit, int):
        return None
    times, values = count_open(starts, ends)
    begin, end = int(times[0]), int(times[-1])
    series = (
        make_line("open RPCs", "step", "flight", times, values),
        Series("limit", "limit", "limit", ((begin, limit), (end, limit))),
    )
    title = f"Open RPCs of connection {subject.connection}, and the limit of {limit:,}"
    return Picture("streams", title, "RPCs", begin, end, series, connections=subject.alone)


def draw_idle_gaps(subject: Subject) -> Picture | None:
    """Draw the open RPCs around the longest idle gap of the evidence, with shades where none is open."""
    starts, ends = _list_rpcs(subject)
    evidence = subject.evidence[: len(subject.evidence) // 2 * 2].reshape(-1, 2)
    if not len(starts) or not len(evidence):
        return None
    gap_start, gap_end = evidence[np.argmax(evidence[:, 1] - evidence[:, 0])].tolist()
    pad = _GAPS * max(gap_end - gap_start, 1)
    times, values = count_open(starts, ends)
    inside = (times >= gap_start - pad) & (times <= gap_end + pad)
    idle = np.flatnonzero((values[:-1] == 0) & inside[:-1])[:_MOST_SHADES]
    name, gaps = "no RPC is open", np.stack([times[idle], times[idle + 1]], axis=1)
    if not len(gaps):  # streams stay open while the client is idle
        name, gaps = "idle gap", evidence
    series = (
        make_line("open RPCs", "step", "flight", times[inside], values[inside]),
        make_series(name, "shade", "client", gaps[:, 0], gaps[:, 1]),
    )
    title = f"Open RPCs of connection {subject.connection}, and the gaps in which the client is idle"
    begin, end = max(gap_start - pad, int(times[0])), min(gap_end + pad, int(times[-1]))
    return Picture("idle", title, "RPCs", begin, end, series, connections=subject.alone)


def _list_rpcs(subject: Subject) -> tuple[Ints, Ints]:
    """List starts and ends of the connection's RPCs; an RPC without an end in the capture stays open until its end."""
    rpcs, connections = subject.tables.rpcs, subject.tables.connections
    rows = subject.of_connection(rpcs)
    starts = rpcs.start_time_ns[rows]
    last = connections.last_time_ns[subject.connection]
    ends = np.where(rpcs.last_packet[rows] > 0, starts + rpcs.duration_ns[rows], np.maximum(last, starts))
    return starts - subject.zero, ends - subject.zero


def draw_losses(subject: Subject) -> Picture | None:
    """Draw arrows from packets to their retransmissions, above every call that was open meanwhile."""
    arrows = _list_retransmissions(subject)
    name = "first sent, until retransmitted"
    if not len(arrows):
        arrows, name = subject.evidence[:2].reshape(-1, 2), "from the first to the second packet of the evidence"
    longest = arrows[np.argmax(arrows[:, 1] - arrows[:, 0])]
    length = max(int(longest[1] - longest[0]), 1)
    begin, end = int(longest[0]) - _AROUND * length, int(longest[1]) + _AROUND * length
    arrows = arrows[(arrows[:, 1] >= begin) & (arrows[:, 0] <= end)]
    arrows = arrows[np.argsort(arrows[:, 0] - arrows[:, 1], kind="stable")][:_MOST_ARROWS]
    calls, lanes = _draw_open_calls(subject, begin, end, longest)
    top = np.zeros(len(arrows), dtype=np.int64)
    series = (make_series(name, "arrows", "limit", arrows[:, 0], arrows[:, 1], top, top), *calls)
    title = f"Retransmissions on connection {subject.connection}, and the calls that were open meanwhile"
    begin, end = max(begin, subject.range[0]), min(end, subject.range[1])
    return Picture("loss", title, "lanes", begin, end, series, ("packets", *lanes), connections=subject.alone)


def draw_waiting_calls(subject: Subject) -> Picture | None:
    """Draw the calls that were open during the longest interval between two pieces of evidence."""
    evidence = subject.evidence[: len(subject.evidence) // 2 * 2].reshape(-1, 2)
    if not len(evidence):
        return None
    longest = evidence[np.argmax(evidence[:, 1] - evidence[:, 0])]
    length = max(int(longest[1] - longest[0]), 1)
    begin, end = int(longest[0]) - _AROUND * length, int(longest[1]) + _AROUND * length
    calls, lanes = _draw_open_calls(subject, begin, end, longest)
    arrow = make_series("stopped, and resumed", "arrows", "limit", [longest[0]], [longest[1]], [0], [0])
    title = f"Calls of connection {subject.connection} that were open during the longest wait"
    begin, end = max(begin, subject.range[0]), min(end, subject.range[1])
    return Picture("loss", title, "lanes", begin, end, (arrow, *calls), ("wait", *lanes), connections=subject.alone)


def _list_retransmissions(subject: Subject) -> Ints:
    """List retransmissions whose bytes an earlier packet carried: its time and theirs, shape (packets, 2)."""
    packets, rows = subject.tables.packets, subject.packets
    found = [np.zeros((0, 2), dtype=np.int64)]
    for side in (0, 1):
        mine = rows[(packets.direction[rows] == side) & (packets.payload_bytes[rows] > 0)]
        again = packets.note[mine] == RETRANSMISSION
        first, later = mine[~again], mine[again]
        if not len(first) or not len(later):
            continue
        first = first[np.argsort(packets.seq[first], kind="stable")]
        origin = first[np.maximum(np.searchsorted(packets.seq[first], packets.seq[later], side="right") - 1, 0)]
        covers = packets.seq[origin] + packets.payload_bytes[origin] > packets.seq[later]
        covers &= (packets.seq[origin] <= packets.seq[later]) & (packets.packet[origin] < packets.packet[later])
        times = np.stack([packets.time_ns[origin[covers]], packets.time_ns[later[covers]]], axis=1)
        found.append(times - subject.zero)
    return np.concatenate(found)


def _draw_open_calls(subject: Subject, begin: int, end: int, meanwhile: Ints) -> tuple[list[Series], list[str]]:
    """Draw a bar for each call that was open in an interval, in the colour of its main cause; the longest are kept."""
    tables = subject.tables
    starts, ends = _list_rpcs(subject)
    rows = subject.of_connection(tables.rpcs)
    shown = np.flatnonzero((starts <= meanwhile[1]) & (ends >= meanwhile[0]))
    shown = shown[np.argsort(starts[shown] - ends[shown], kind="stable")][:MOST_LANES]
    shown = shown[np.argsort(starts[shown], kind="stable")]
    causes = [int(np.argmax(tables.rpc_budgets[row])) for row in rows[shown].tolist()]
    lanes = np.arange(1, len(shown) + 1)
    series = []
    for cause in sorted(set(causes)):
        mine = np.array(causes) == cause
        calls = shown[mine]
        bars = np.maximum(starts[calls], begin), np.minimum(ends[calls], end), lanes[mine]
        series.append(make_series(CAUSES[cause], "bars", CAUSES[cause], *bars))
    return series, [f"stream {stream}" for stream in tables.rpcs.stream[rows[shown]].tolist()]
