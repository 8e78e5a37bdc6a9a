"""Pictures of packets per second by what they carry, and of requests by the packet that carries them."""

import numpy as np
import numpy.typing as npt

from ... import _core
from ...tables import Ints
from .model import Picture, Subject, make_series

_COLUMNS = 120
"""Intervals of the range (heuristic: each is some pixels wide)."""
_KINDS = ("DATA", "HEADERS", "PING", "WINDOW_UPDATE", "SETTINGS")
"""Frame types that name a packet; of several in a packet the first."""
_BATCHES = 400
"""Requests that a picture of batches shows (heuristic: some tens of batches)."""


def draw_packet_rates(subject: Subject) -> Picture | None:
    """Draw the connection's packets per second, stacked by what they carry."""
    begin, end = subject.range
    if end <= begin:
        return None
    width = (end - begin) // _COLUMNS + 1
    kinds = _classify_packets(subject)
    edges = begin + width * np.arange(_COLUMNS + 1)
    series = []
    for number, name in enumerate((*_KINDS, "other payload", "ACK only")):
        mine = subject.times[kinds == number]
        if len(mine):
            counts = np.append(np.histogram(mine, bins=edges)[0], 0)
            rates = np.rint(counts * 1e9 / width).astype(np.int64)
            colour = f"kind_{name.lower().replace(' ', '_')}"
            series.append(make_series(name, "stack", colour, edges, rates))
    title = f"Packets per second of connection {subject.connection}, by what they carry"
    return Picture("rates", title, "packets/s", begin, int(edges[-1]), tuple(series), connections=subject.alone)


def _classify_packets(subject: Subject) -> Ints:
    """Give each packet the index of its kind: a frame type, other payload, or none."""
    packets, rows = subject.tables.packets, subject.packets
    kinds = np.where(packets.payload_bytes[rows] > 0, len(_KINDS), len(_KINDS) + 1)
    for number in reversed(range(len(_KINDS))):
        kinds[_carry(subject, _core.FRAME_TYPES.index(_KINDS[number]))] = number
    return kinds


def _carry(subject: Subject, kind: int) -> npt.NDArray[np.bool_]:
    """Mark the packets with bytes of a frame type."""
    packets, frames = subject.tables.packets, subject.tables.frames
    found = np.zeros(len(subject.packets), dtype=bool)
    mine = subject.of_connection(frames)
    mine = mine[frames.kind[mine] == kind]
    for side in (0, 1):
        places = np.flatnonzero(
            (packets.direction[subject.packets] == side) & (packets.payload_bytes[subject.packets] > 0)
        )
        numbers = packets.packet[subject.packets[places]]
        rows = mine[frames.direction[mine] == side]
        first = np.searchsorted(numbers, frames.first_packet[rows], side="left")
        after = np.searchsorted(numbers, frames.last_packet[rows], side="right")
        # a frame adds one where it begins and takes it away behind its end: packets between them have a sum above zero
        steps = np.bincount(first, minlength=len(places) + 1) - np.bincount(after, minlength=len(places) + 1)
        found[places] = np.cumsum(steps)[: len(places)] > 0
    return found


def draw_batches(subject: Subject) -> Picture | None:
    """Draw how many RPCs begin until the next one ends, and how many end until the next one begins."""
    rpcs = subject.tables.rpcs
    rows = subject.of_connection(rpcs)
    starts = rpcs.start_time_ns[rows] - subject.zero
    order = np.argsort(starts, kind="stable")
    rows, starts = rows[order], starts[order]
    first = int(np.searchsorted(starts, subject.evidence[0]))
    place = slice(max(first - _BATCHES // 2, 0), first + _BATCHES // 2)
    rows, starts = rows[place], starts[place]
    if not len(rows):
        return None
    ended = rows[rpcs.last_packet[rows] > 0]
    ends = np.sort(rpcs.start_time_ns[ended] + rpcs.duration_ns[ended] - subject.zero)
    series = (
        make_series("RPCs that begin before the next one ends", "spikes", "kind_headers", *_count_runs(starts, ends)),
        make_series("RPCs that end before the next one begins", "spikes", "kind_data", *_count_runs(ends, starts, -1)),
    )
    last = int(max(starts[-1], ends[-1] if len(ends) else 0))
    title = f"Bursts of RPCs on connection {subject.connection}: upwards those that begin, downwards those that end"
    return Picture("batches", title, "RPCs", int(starts[0]), last, series, connections=subject.alone)


def _count_runs(times: Ints, others: Ints, sign: int = 1) -> tuple[Ints, Ints]:
    """Count the instants between two of the other kind: the first instant of each run, and its length."""
    _, first, counts = np.unique(np.searchsorted(others, times), return_index=True, return_counts=True)
    return times[first], sign * counts.astype(np.int64)
