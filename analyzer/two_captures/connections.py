"""Match the connections of two captures.

A connection is known by its addresses and ports and by its sequence numbers: both sides' initial sequence numbers are
64 bits that hardly repeat, so that address translation on the way does not matter. Where the opening is not in a
capture, the ranges of sequence numbers have to overlap, and behind address translation packets have to agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import numpy as np
from msgspec import Struct

from ..tables import Ints
from .recorded import Recorded, Trace

_SHARED_PACKETS = 4
"""Packets with the same numbers that make two connections one (heuristic: 64 bits each)."""


class Pair(Struct, frozen=True):
    """A connection in both captures."""

    first: int
    """Its row in the first capture."""
    second: int
    """Its row in the second capture."""
    swapped: bool
    """The second capture takes the other side for the client."""
    shift: tuple[int, int]
    """What to add to offsets of the second capture, of the client's and of the server's bytes."""
    complete: bool
    """Both captures have its opening."""


class _Ends(Struct, frozen=True):
    """A connection as one capture knows it, seen from its client or, `swapped`, from its server."""

    row: int
    complete: bool
    bases: tuple[int | None, int | None]
    """Sequence numbers of the offsets 0; None for a side that sent nothing."""
    sizes: tuple[int, int]
    swapped: bool


def pairs(first: Recorded, second: Recorded) -> tuple[Pair, ...]:
    """Pair the connections that both captures have; each is in at most one pair."""
    found: list[Pair] = []
    used_first: set[int] = set()
    used_second: set[int] = set()
    late = _by_packets(first, second, used_first, used_second)  # begins when the others are done
    for pair in chain(_by_address(first, second), _by_sequence(first, second), late):
        if pair.first not in used_first and pair.second not in used_second:
            found.append(pair)
            used_first.add(pair.first)
            used_second.add(pair.second)
    return tuple(sorted(found, key=lambda pair: pair.first))


def _ends(recorded: Recorded) -> Iterator[tuple[tuple[str, str], _Ends]]:
    for row in range(len(recorded.tables.connections.protocol)):
        yield (recorded.tables.client(row), recorded.tables.server(row)), _one(recorded, row)


def _one(recorded: Recorded, row: int) -> _Ends:
    c = recorded.tables.connections
    client = int(c.client_sequence[row]) if c.packets_client[row] else None
    server = int(c.server_sequence[row]) if c.packets_server[row] else None
    sizes = (int(c.bytes_client[row]), int(c.bytes_server[row]))
    return _Ends(row, bool(c.complete[row]), (client, server), sizes, False)


def _turned(ends: _Ends) -> _Ends:
    return _Ends(ends.row, ends.complete, ends.bases[::-1], ends.sizes[::-1], not ends.swapped)


def signed(difference: int) -> int:
    """A difference of sequence numbers within half the sequence space (RFC 9293 section 3.4)."""
    return (difference + 0x8000_0000) % 0x1_0000_0000 - 0x8000_0000


def _pair(a: _Ends, b: _Ends) -> Pair:
    return Pair(a.row, b.row, b.swapped, _shift(a, b), a.complete and b.complete)


def _shift(a: _Ends, b: _Ends) -> tuple[int, int]:
    client, server = (
        signed(other - mine) if mine is not None and other is not None else 0
        for mine, other in zip(a.bases, b.bases, strict=True)
    )
    return client, server


def _by_address(first: Recorded, second: Recorded) -> Iterator[Pair]:
    """Connections of the same addresses and ports; ports are used again, so that the sequence numbers have to fit."""
    opened: dict[tuple[tuple[str, str], tuple[int | None, int | None]], _Ends] = {}
    late = defaultdict(list)
    named = defaultdict(list)
    for name, ends in _ends(second):
        for seen_name, seen in ((name, ends), (name[::-1], _turned(ends))):
            named[seen_name].append(seen)
            if seen.complete and None not in seen.bases:
                opened[seen_name, seen.bases] = seen
            else:
                late[seen_name].append(seen)
    for name, a in _ends(first):
        if name not in named:
            continue
        exact = opened.get((name, a.bases)) if a.complete else None
        others = late[name] if a.complete and None not in a.bases else named[name]
        for b in [exact] if exact else [b for b in others[:_MOST_OF_A_NAME] if _fits(a, b)]:
            yield _pair(a, b)


_MOST_OF_A_NAME = 100
"""Connections of one name, begun before a capture, that are compared: a capture may have as many as it likes."""


def _fits(a: _Ends, b: _Ends) -> bool:
    """The same initial sequence numbers; without them, ranges that overlap in both directions."""
    shift = _shift(a, b)
    if a.complete and b.complete:
        return shift == (0, 0)
    pieces = zip(shift, a.sizes, b.sizes, strict=True)
    return all(min(size, move + other) > max(0, move) or 0 in (size, other) for move, size, other in pieces)


def _by_sequence(first: Recorded, second: Recorded) -> Iterator[Pair]:
    """Connections of other names, whose initial sequence numbers are the same: addresses were translated."""
    opened: dict[tuple[int | None, int | None], _Ends] = {}
    ambiguous: set[tuple[int | None, int | None]] = set()
    for _, ends in _ends(second):
        if ends.complete and None not in ends.bases:
            for seen in (ends, _turned(ends)):
                if seen.bases in opened:
                    ambiguous.add(seen.bases)
                opened[seen.bases] = seen
    for _, ends in _ends(first):
        other = opened.get(ends.bases)
        if ends.complete and other and ends.bases not in ambiguous:
            yield _pair(ends, other)


def _by_packets(first: Recorded, second: Recorded, used: set[int], used_second: set[int]) -> Iterator[Pair]:
    """Connections of other names, begun before a capture: their packets have the same numbers on the wire."""
    mine, theirs = _numbers(first, used), _numbers(second, used_second)
    _, at, other = np.intersect1d(mine[0], theirs[0], return_indices=True)
    if not len(at):
        return
    rows, sides = np.stack([mine[1][at], theirs[1][other]]), mine[2][at] != theirs[2][other]
    both, count = np.unique(np.vstack([rows, sides[np.newaxis].astype(np.int64)]), axis=1, return_counts=True)
    for place in np.argsort(-count, kind="stable"):
        a, b, swapped = (int(value) for value in both[:, place])
        if count[place] >= _SHARED_PACKETS:
            left, right = _one(first, a), _one(second, b)
            yield _pair(left, _turned(right) if swapped else right)


def _numbers(recorded: Recorded, used: set[int]) -> tuple[Ints, Ints, Ints]:
    """Sequence number and acknowledgement as on the wire, connection and direction of data packets."""
    left_over = np.ones(len(recorded.tables.connections.protocol), dtype=bool)
    left_over[list(used)] = False
    rows = np.flatnonzero((recorded.trace.length > 0) & left_over[recorded.trace.connection])
    some: Trace = recorded.trace.at(rows)
    numbers, unique = np.unique(on_the_wire(recorded, rows), return_index=True)
    return numbers, some.connection[unique], some.direction[unique].astype(np.int64)


def on_the_wire(recorded: Recorded, rows: Ints) -> Ints:
    """Sequence number and acknowledgement of packets as they were sent, in one number."""
    some, connections = recorded.trace.at(rows), recorded.tables.connections
    bases = np.stack([connections.client_sequence, connections.server_sequence]).astype(np.int64)
    seq = (bases[some.direction, some.connection] + some.seq) & 0xFFFF_FFFF
    ack = (bases[1 - some.direction, some.connection] + some.ack) & 0xFFFF_FFFF
    return seq << 32 | ack
