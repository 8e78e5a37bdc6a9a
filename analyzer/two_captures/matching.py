"""Match the packets of two captures.

Packets match if connection, direction, sequence number, acknowledgement number, length and flags are equal. Where the
path does not change them, IPv4 identification and TCP timestamp must be equal, too: they distinguish a retransmission
from the original. Copies with equal values are matched in order if both captures have equally many, otherwise by time.
Segments that offload merged or split are matched by their bytes: a received packet belongs to the last sent packet that
holds its last byte.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..tables import Ints, Mask
from ..tables.grouping import take_rows
from .connections import Pair
from .recorded import Recorded, Trace

_SYN, _RST = 2, 4
_ENDS = 1 | _SYN | _RST
"""Flags that stay as they are on every path: FIN, SYN, RST. Others may be merged (PSH) or changed (ECN)."""
_LAYERS = 8
"""Most transmissions of the same bytes that are distinguished."""
_KEPT = 0.9
"""Least share of packets whose IPv4 identification (or TCP timestamp) is equal in both captures for it to be used
(heuristic: a device that rewrites it rewrites all)."""
_SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)
_EARLY_NS = 100_000
"""Most by which a packet matched by time may seem faster than the fastest known one (heuristic: clock jitter)."""


def align(first: Recorded, second: Recorded, pairs: Sequence[Pair]) -> tuple[Trace, Trace]:
    """Select both captures' packets of shared connections; connection, direction and offsets are those of `first`."""
    rows = np.full(len(second.tables.connections.protocol), -1)
    swapped, shift = np.zeros(len(rows), dtype=np.int64), np.zeros((2, len(rows)), dtype=np.int64)
    mine = np.zeros(len(first.tables.connections.protocol), dtype=bool)
    for pair in pairs:
        rows[pair.second], swapped[pair.second], mine[pair.first] = pair.first, pair.swapped, True
        shift[:, pair.second] = pair.shift
    left = take_rows(first.trace, np.flatnonzero(mine[first.trace.connection]))
    theirs = take_rows(second.trace, np.flatnonzero(rows[second.trace.connection] >= 0))
    direction = theirs.direction ^ swapped[theirs.connection].astype(np.uint8)
    right = replace(
        theirs,
        connection=rows[theirs.connection],
        direction=direction,
        seq=theirs.seq + shift[direction, theirs.connection],
        ack=theirs.ack + shift[1 - direction, theirs.connection],
    )
    return left, right


class Matches(Struct, frozen=True, eq=False):
    """Packets found in both captures: rows of the sender's trace, and the matching rows of the receiver's."""

    sent: Ints
    received: Ints
    keys: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
    """Hashes that identify the packets of both traces."""


def alike(left: Trace, right: Trace) -> Matches:
    """Match packets by all values that the path does not change: `sent` are rows of `left`, `received` of `right`."""
    plain = [_key(trace) for trace in (left, right)]
    once = _joined(plain[0], plain[1], equal_counts=1)
    for name in ("identification", "timestamp"):
        values = [getattr(trace, name).astype(np.uint64) for trace in (left, right)]
        same = values[0][once.sent] == values[1][once.received]
        if len(same) and same.mean() >= _KEPT:
            plain = [_mixed(key, value) for key, value in zip(plain, values, strict=True)]
    return _joined(plain[0], plain[1])


def _mixed(key: npt.NDArray[np.uint64], value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix a value into a hash; two different packets have equal hashes about once in 2^64 cases."""
    mixed = (key ^ value) * _SPREAD
    return mixed ^ (mixed >> np.uint64(29))


def _key(trace: Trace) -> npt.NDArray[np.uint64]:
    key = _mixed(np.full(len(trace), _SPREAD), (trace.connection * 2 + trace.direction).astype(np.uint64))
    for column in (trace.seq, trace.ack, trace.length, (trace.flags & _ENDS).astype(np.int64)):
        key = _mixed(key, column.view(np.uint64))
    return key


def _joined(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64], equal_counts: int = 0) -> Matches:
    """Match rows with equal keys in order, for keys that are equally frequent on both sides.

    With `equal_counts`, only keys that occur exactly that many times.
    """
    orders = [np.argsort(keys, kind="stable") for keys in (left, right)]
    keys, starts, counts = [], [], []
    for side, order in zip((left, right), orders, strict=True):
        unique, start, count = np.unique(side[order], return_index=True, return_counts=True)
        keys.append(unique)
        starts.append(start)
        counts.append(count)
    _, at, other = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    fits = counts[0][at] == counts[1][other]
    if equal_counts:
        fits &= counts[0][at] == equal_counts
    at, other = at[fits], other[fits]
    count = counts[0][at]
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return Matches(
        orders[0][np.repeat(starts[0][at], count) + within],
        orders[1][np.repeat(starts[1][other], count) + within],
        (left, right),
    )


class Crossing(Struct, frozen=True, eq=False):
    """All packets of one direction between the capture points, with both captures' timestamps on one clock."""

    sent: Trace
    """At the sender's capture point."""
    received: Trace
    """At the receiver's."""
    sent_at: Ints
    """Times of the packets sent, by the first capture's clock."""
    received_at: Ints
    """Times of the packets received, by the first capture's clock."""
    origin: Ints
    """For each received packet, the row of the sent packet that it is, or that held its last byte; -1 for none."""
    arrived: Mask
    """Sent packets of which all bytes are known to have arrived."""
    merged: Mask
    """Received packets that were matched by their bytes."""

    @property
    def delay(self) -> Ints:
        """Compute the one-way delay of each received packet in nanoseconds; -1 if it has no match."""
        found = self.origin >= 0
        delay = np.full(len(self.origin), -1, dtype=np.int64)
        delay[found] = np.maximum(self.received_at[found] - self.sent_at[self.origin[found]], 0)
        return delay


def cross(sent: Trace, received: Trace, times: tuple[Ints, Ints], known: Matches, fastest_ns: int) -> Crossing:
    """Match the packets of one direction: add matches by time and by bytes to the known ones."""
    origin = np.full(len(received), -1, dtype=np.int64)
    origin[known.received] = known.sent
    arrived = np.zeros(len(sent), dtype=bool)
    arrived[known.sent] = True
    crossing = Crossing(sent, received, *times, origin, arrived, np.zeros(len(origin), dtype=bool))
    least = max(0, fastest_ns - _EARLY_NS)
    _by_time(crossing, known.keys, least)
    _by_bytes(crossing, least)
    return crossing


def _by_time(crossing: Crossing, keys: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], least_ns: int) -> None:
    """Match copies of which fewer arrived than were sent: each is the last copy sent before it arrived."""
    left, right = np.flatnonzero(~crossing.arrived), np.flatnonzero(crossing.origin < 0)
    left = left[np.isin(keys[0][left], keys[1][right])]
    right = right[np.isin(keys[1][right], keys[0][left])]
    copies: dict[int, list[int]] = {}
    for key, row in zip(keys[0][left].tolist(), left.tolist(), strict=True):
        copies.setdefault(key, []).append(row)
    for key, row in reversed(list(zip(keys[1][right].tolist(), right.tolist(), strict=True))):
        rows = copies[key]
        while rows and crossing.sent_at[rows[-1]] > crossing.received_at[row] - least_ns:
            rows.pop()
        if rows:
            origin = rows.pop()
            crossing.origin[row], crossing.arrived[origin] = origin, True


def _by_bytes(crossing: Crossing, least_ns: int) -> None:
    """Match data that was merged or split on the path."""
    sent, received = crossing.sent, crossing.received
    left = np.flatnonzero(~crossing.arrived & (sent.length > 0))
    right = np.flatnonzero((crossing.origin < 0) & (received.length > 0))
    if not len(left) or not len(right):
        return
    covered = np.zeros(len(sent), dtype=np.int64)
    place = places(received)[right]
    for rows in _layers(sent, left):
        begin = places(sent)[rows]
        end = begin + sent.length[rows]
        holder = np.searchsorted(begin, place + received.length[right] - 1, side="right") - 1
        inside = (holder >= 0) & (place + received.length[right] <= end[np.maximum(holder, 0)])
        candidate = rows[np.maximum(holder, 0)]
        early = crossing.received_at[right] - crossing.sent_at[candidate] >= least_ns
        before = crossing.origin[right]
        later = (before < 0) | (crossing.sent_at[candidate] > crossing.sent_at[np.maximum(before, 0)])
        take = inside & early & later
        crossing.origin[right[take]] = candidate[take]
    found = right[crossing.origin[right] >= 0]
    crossing.merged[found] = True
    for rows in _layers(sent, left):
        _cover(covered, sent, rows, received, found[np.isin(crossing.origin[found], rows)])
    crossing.arrived[left] = covered[left] >= sent.length[left]


def places(trace: Trace) -> Ints:
    """Map the bytes of all connections and directions to one axis; each direction gets 2^42 bytes of it."""
    return ((trace.connection * 2 + trace.direction) << 42) + np.clip(trace.seq, 0, (1 << 42) - 1)


def _layers(trace: Trace, rows: Ints) -> Iterator[Ints]:
    """Divide data packets into layers without overlaps, each ascending by place: first transmissions, second, ..."""
    place = places(trace)
    for _ in range(_LAYERS):
        if not len(rows):
            return
        flow = (trace.connection[rows] * 2 + trace.direction[rows]).astype(np.int64)
        order = np.argsort(flow, kind="stable")
        rows = rows[order]
        end = np.maximum.accumulate(place[rows] + trace.length[rows])
        fresh = place[rows] >= np.concatenate([[-1], end[:-1]])
        yield rows[fresh]
        rows = rows[~fresh]


def _cover(covered: Ints, sent: Trace, rows: Ints, received: Trace, pieces: Ints) -> None:
    """Count, for each sent packet of one layer, its bytes that arrived in the received packets `pieces`."""
    begin = places(sent)[rows]
    end = begin + sent.length[rows]
    first, last = places(received)[pieces], places(received)[pieces] + received.length[pieces]
    low, high = np.searchsorted(end, first, side="right"), np.searchsorted(begin, last, side="left")
    count = np.maximum(high - low, 0)
    index = np.repeat(low, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    piece = np.repeat(np.arange(len(pieces)), count)
    overlap = np.minimum(end[index], last[piece]) - np.maximum(begin[index], first[piece])
    np.add.at(covered, rows[index], overlap)
