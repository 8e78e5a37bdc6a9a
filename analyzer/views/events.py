"""Order the events of one connection (bursts, blocked intervals, silences), and fold their repetitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from ..tables import DIRECTIONS, Ints, Packets, Waits
from ..tables.durations import total_ns
from .excerpt import Excerpt


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of bursts, and of events that are too short to draw."""

    burst_rtt_share: float = 0.25
    """Packets of one side belong to one burst if they are closer than this share of the round trip (heuristic: an
    unblocked sender sends its window within a small part of it)."""
    burst_ns: int = 100_000
    """They always do if they are closer than this (heuristic: pacing and interrupts of Linux take tens of µs)."""
    silence_ns: int = 1_000_000
    """Shortest silence drawn (heuristic: readers of a trace notice it)."""
    wait_rtt_share: float = 0.05
    """Blocked intervals shorter than this share of the round trip are only counted (heuristic: latency hides them)."""
    wait_rpc_share: float = 0.05
    """Least share of an RPC's time for blocked intervals of other streams to be drawn with it (heuristic: as above)."""
    period: int = 16
    """Most events of a pattern whose repetitions are folded."""
    repeats: int = 4
    """Fewest occurrences of a pattern that are folded (heuristic: three are read faster than a folded line)."""


LIMITS = Limits()
"""The limits in use."""

BURST, WAIT, SILENCE = range(3)
"""Kinds of events."""
SYN, FIN, RST, ACK = 2, 1, 4, 16
"""TCP flags (RFC 9293 section 3.1)."""
RETRANSMISSION = _core.PACKET_NOTES.index("retransmission")
"""`Packets.note` of a packet with bytes sent before."""
_OF_RETRANSMISSIONS = [_core.CAUSES.index(cause) for cause in ("loss_recovery", "peer_unreachable")]
_DUPLICATE = _core.PACKET_NOTES.index("duplicate")
_DATA_OR_HEADERS = 1 << _core.FRAME_TYPES.index("DATA") | 1 << _core.FRAME_TYPES.index("HEADERS")
_KINDS = len(_core.FRAME_TYPES) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """Runs of packets of one side without packets of the other side, and without a pause, between them."""

    direction: Ints
    first_packet: Ints
    last_packet: Ints
    first_time_ns: Ints
    last_time_ns: Ints
    packets: Ints
    bytes: Ints
    """TCP payload."""
    retransmissions: Ints
    flags: Ints
    """SYN, FIN, RST and ACK of its first packet."""
    offset: Ints
    """Offset of its first byte in its direction."""
    frames_from: Ints
    """Index of its first frame in `Sequence.frame_rows` of its direction."""
    frames_to: Ints
    """Index after its last frame there."""


@dataclass(frozen=True, slots=True, eq=False)
class Silences:
    """Intervals in which neither side sent bytes."""

    start_time_ns: Ints
    duration_ns: Ints
    open_rpcs: Ints
    acks: Ints
    """Packets during the silence: without payload, or of other streams if the excerpt has one stream."""
    before_packet: Ints
    after_packet: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """The events of a connection in order; `kind` gives the table of an event, `row` its row there."""

    bursts: Bursts
    silences: Silences
    waits: Waits
    wait_rows: Ints
    """Rows of `waits` that are drawn."""
    frame_rows: tuple[Ints, Ints]
    """Rows of the excerpt's frames by direction, in the order of their bytes."""
    short_waits: int
    """Number of blocked intervals too short to be drawn."""
    short_waits_ns: int
    """Sum of their durations."""
    kind: Ints
    row: Ints
    shape: Ints
    """Events with equal numbers count as repetitions: equal side and frame types, or equal cause."""


@dataclass(frozen=True, slots=True)
class Step:
    """Events from `start` until before `stop`: one event, or `repeats` repetitions of the events before them."""

    start: int
    stop: int
    repeats: int = 0


def sequence(excerpt: Excerpt, limits: Limits = LIMITS) -> Sequence:
    """Make the sequence of events of an excerpt."""
    rtt = max(int(excerpt.tables.connections.min_rtt_ns[excerpt.connection]), 0)
    wait_rows, short = _waits(excerpt, int(limits.wait_rtt_share * rtt), limits.wait_rpc_share)
    direction = excerpt.frames.direction
    frame_rows = np.flatnonzero(direction == 0), np.flatnonzero(direction == 1)
    packets = excerpt.packets
    sent = _sent(excerpt, frame_rows)
    gap = max(limits.burst_ns, int(limits.burst_rtt_share * rtt))
    bursts = _bursts(packets, sent, gap, excerpt.tables.waits.resumed_at_packet[wait_rows], excerpt, frame_rows)
    silences = _silences(excerpt, bursts, wait_rows, max(limits.silence_ns, int(limits.burst_rtt_share * rtt)))
    kind, row, shape = _ordered(excerpt, bursts, silences, wait_rows, frame_rows)
    short_ns = total_ns(excerpt.tables.waits.duration_ns[short])
    return Sequence(
        bursts, silences, excerpt.tables.waits, wait_rows, frame_rows, len(short), short_ns, kind, row, shape
    )


def steps(shape: Ints, limits: Limits = LIMITS) -> Iterator[Step]:
    """Fold repetitions: yield the events of a pattern once, then a step with its repetitions."""
    count, place = len(shape), 0
    changes = {p: np.flatnonzero(shape[p:] != shape[:-p]) for p in range(1, min(limits.period, count - 1) + 1)}
    while place < count:
        best, repeats = 0, 0
        for period, changed in changes.items():
            after = int(np.searchsorted(changed, place))
            same = (int(changed[after]) if after < len(changed) else count - period) - place
            times = max(same, 0) // period + 1
            if times >= limits.repeats and times * period > best * repeats:
                best, repeats = period, times
        for event in range(place, place + max(best, 1)):
            yield Step(event, event + 1)
        place += max(best, 1)
        if best:
            yield Step(place, place + best * (repeats - 1), repeats - 1)
            place += best * (repeats - 1)


def in_flight(packets: Packets, direction: int, columns: int) -> Ints:
    """Compute the most bytes that one side had in flight in each of `columns` equal time intervals."""
    if not len(packets.packet) or columns < 1:
        return np.zeros(0, dtype=np.int64)
    mine = packets.direction == direction
    ends = np.where(mine, packets.seq.astype(np.int64) + packets.payload_bytes, 0)
    acked = np.where(mine | (packets.flags & ACK == 0), 0, packets.ack.astype(np.int64))
    before = int(packets.seq[mine].min()) if mine.any() else 0  # what was sent before the first packet is not in flight
    known = np.maximum(np.maximum.accumulate(acked), before)
    flight = np.maximum(np.maximum.accumulate(ends) - known, 0)
    span = max(int(packets.time_ns[-1] - packets.time_ns[0]), 1)
    column = np.minimum((packets.time_ns - packets.time_ns[0]) * columns // (span + 1), columns - 1).clip(0)
    most = np.full(columns, -1, dtype=np.int64)
    np.maximum.at(most, column, flight)
    last = np.zeros(columns, dtype=np.int64)
    last[column] = flight  # columns without packets keep the value after the last packet before them
    filled = np.maximum.accumulate(np.where(most >= 0, np.arange(columns), 0))
    return np.where(most >= 0, most, last[filled])


def _waits(excerpt: Excerpt, shortest_ns: int, share: float) -> tuple[Ints, Ints]:
    """Find the rows of blocked intervals to draw, and of those that are too short.

    For an RPC's excerpt, they include those of other streams that last at least `share` of its time, of its causes.
    """
    waits = excerpt.tables.waits
    mine = waits.connection == excerpt.connection
    if excerpt.stream is not None:
        own = waits.stream == excerpt.stream
        if excerpt.rpc is not None:  # a blocked stream may block others behind it, for the same cause
            causes = np.flatnonzero(excerpt.tables.rpc_budgets[excerpt.rpc] > 0)
            long = waits.duration_ns >= share * (excerpt.end_ns - excerpt.start_ns)
            own |= long & np.isin(waits.cause, causes)
        mine &= own
    mine &= (waits.start_time_ns <= excerpt.end_ns) & (waits.start_time_ns + waits.duration_ns >= excerpt.start_ns)
    short = mine & (waits.duration_ns < shortest_ns)
    return np.flatnonzero(mine & ~short), np.flatnonzero(short)


def _span(excerpt: Excerpt, rows: Ints) -> tuple[Ints, Ints]:
    """Return first and last packets of frames, widened to be ascending: a retransmission may put them out of order."""
    first = excerpt.frames.first_packet[rows].astype(np.int64)
    last = excerpt.frames.last_packet[rows].astype(np.int64)
    return np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(last)


def _sent(excerpt: Excerpt, frame_rows: tuple[Ints, Ints]) -> Ints:
    """Find the packets to draw: with payload, SYN, FIN or RST; if the excerpt has one stream, with its frames.

    For an RPC that waited for lost packets, they include all retransmissions: TCP delivers bytes in order.
    """
    packets = excerpt.packets
    drawn = (packets.payload_bytes > 0) & (packets.note != _DUPLICATE)
    if excerpt.stream is None:
        return np.flatnonzero(drawn | (packets.flags & (SYN | FIN | RST) != 0))
    for direction, rows in enumerate(frame_rows):
        mine = packets.direction == direction
        first, last = _span(excerpt, rows)
        at = np.searchsorted(first, packets.packet, side="right") - 1
        within = (at >= 0) & (last[at] >= packets.packet) if len(rows) else np.zeros(len(mine), dtype=bool)
        drawn &= ~mine | within
    if excerpt.rpc is not None and excerpt.tables.rpc_budgets[excerpt.rpc, _OF_RETRANSMISSIONS].any():
        drawn |= packets.note == RETRANSMISSION
    return np.flatnonzero(drawn)


def _bursts(
    packets: Packets,
    sent: Ints,
    gap_ns: int,
    resumed: npt.NDArray[np.uint32],
    excerpt: Excerpt,
    frames: tuple[Ints, Ints],
) -> Bursts:
    direction, time, number = packets.direction[sent], packets.time_ns[sent], packets.packet[sent].astype(np.int64)
    flags = packets.flags[sent].astype(np.int64)
    ends = flags & (SYN | FIN | RST)
    new = np.ones(len(sent), dtype=bool)
    new[1:] = (direction[1:] != direction[:-1]) | (np.diff(time) >= gap_ns) | (ends[1:] != ends[:-1])
    new |= np.isin(number, resumed)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(sent))[: len(first)] - 1
    bursts_from, bursts_to = np.zeros(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    for side, rows in enumerate(frames):
        mine = direction[first] == side
        begins, stops = _span(excerpt, rows)
        bursts_from[mine] = np.searchsorted(stops, number[first][mine])
        bursts_to[mine] = np.searchsorted(begins, number[last][mine], side="right")
    return Bursts(
        direction=direction[first].astype(np.int64),
        first_packet=number[first],
        last_packet=number[last],
        first_time_ns=time[first],
        last_time_ns=time[last],
        packets=last - first + 1,
        bytes=_sums(packets.payload_bytes[sent], first),
        retransmissions=_sums(packets.note[sent] == RETRANSMISSION, first),
        flags=flags[first],
        offset=packets.seq[sent][first].astype(np.int64),
        frames_from=bursts_from,
        frames_to=np.maximum(bursts_to, bursts_from),
    )


def _sums(values: npt.NDArray[Any], first: Ints) -> Ints:
    """Sum up values from each first row until before the next one."""
    return np.add.reduceat(values.astype(np.int64), first) if len(first) else first


def _silences(excerpt: Excerpt, bursts: Bursts, wait_rows: Ints, shortest_ns: int) -> Silences:
    """Find gaps between bursts that no blocked interval covers, apart from at most a fifth at either end."""
    start, stop = bursts.last_time_ns[:-1], bursts.first_time_ns[1:]
    long = (stop > start) & (stop - start >= shortest_ns)  # not where timestamps go backwards
    if len(wait_rows):
        waits, rest = excerpt.tables.waits, (stop - start) // 5
        begun = waits.start_time_ns[wait_rows]
        order = np.argsort(begun, kind="stable")
        until = np.maximum.accumulate((begun + waits.duration_ns[wait_rows])[order])
        latest = np.searchsorted(begun[order], start + rest, side="right") - 1
        long &= (latest < 0) | (until[latest] < stop - rest)
    chosen = np.flatnonzero(long)
    before, after = bursts.last_packet[:-1][chosen], bursts.first_packet[1:][chosen]
    number = excerpt.packets.packet
    return Silences(
        start_time_ns=start[chosen],
        duration_ns=(stop - start)[chosen],
        open_rpcs=_open_rpcs(excerpt, start[chosen]),
        acks=np.searchsorted(number, after) - np.searchsorted(number, before, side="right"),
        before_packet=before,
        after_packet=after,
    )


def _open_rpcs(excerpt: Excerpt, times: Ints) -> Ints:
    """Count the open RPCs of the connection, or of the excerpt's stream, right after each time."""
    rpcs = excerpt.tables.rpcs
    mine = rpcs.connection == excerpt.connection
    if excerpt.stream is not None:
        mine &= rpcs.stream == excerpt.stream
    starts = np.sort(rpcs.start_time_ns[mine])
    ended = mine & (rpcs.last_packet > 0)
    stops = np.sort((rpcs.start_time_ns + rpcs.duration_ns)[ended])
    return np.searchsorted(starts, times, side="right") - np.searchsorted(stops, times, side="right")


def _ordered(
    excerpt: Excerpt, bursts: Bursts, silences: Silences, wait_rows: Ints, frame_rows: tuple[Ints, Ints]
) -> tuple[Ints, Ints, Ints]:
    """Order all events by packet; return their kinds, rows and shapes."""
    waits = excerpt.tables.waits
    shapes = (
        _burst_shapes(excerpt, bursts, frame_rows) * 4 + BURST,
        (waits.cause[wait_rows].astype(np.int64) * len(DIRECTIONS) + waits.direction[wait_rows]) * 4 + WAIT,
        np.minimum(silences.open_rpcs, 1) * 4 + SILENCE,
    )
    behind = (bursts.first_packet, waits.stopped_at_packet[wait_rows].astype(np.int64), silences.before_packet)
    kind = np.concatenate([np.full(len(rows), which) for which, rows in enumerate(behind)])
    order = np.lexsort((kind, np.concatenate(behind)))
    row = np.concatenate([np.arange(len(bursts.packets)), wait_rows, np.arange(len(silences.acks))])
    return kind[order], row[order], np.concatenate(shapes)[order]


def _burst_shapes(excerpt: Excerpt, bursts: Bursts, frame_rows: tuple[Ints, Ints]) -> Ints:
    """Compute bits for side, frame types, SYN/FIN/RST, retransmissions and failed RPCs.

    Control frames count only in bursts without HEADERS and DATA: elsewhere they would prevent folding.
    """
    types = np.zeros(len(bursts.packets), dtype=np.int64)
    for side, rows in enumerate(frame_rows):
        mine = bursts.direction == side
        kinds = np.minimum(excerpt.frames.kind[rows], _KINDS - 1)
        for kind in range(_KINDS):
            seen = np.concatenate([[0], np.cumsum(kinds == kind)])
            present = seen[bursts.frames_to[mine]] > seen[bursts.frames_from[mine]]
            types[mine] |= present.astype(np.int64) << kind
    payload = types & _DATA_OR_HEADERS
    shape = bursts.direction | np.where(payload, payload, types) << 1
    shape |= (bursts.flags & (SYN | FIN | RST)) << (_KINDS + 1)
    shape |= (bursts.retransmissions > 0).astype(np.int64) << (_KINDS + 5)
    rpcs = excerpt.tables.rpcs
    failed = np.sort(rpcs.last_packet[(rpcs.connection == excerpt.connection) & (rpcs.status != 0)]).astype(np.int64)
    has = np.searchsorted(failed, bursts.last_packet, side="right") > np.searchsorted(failed, bursts.first_packet)
    return shape | has.astype(np.int64) << (_KINDS + 6)
