"""Match the connections of two captures.

Connections match by addresses, ports and sequence numbers. The initial sequence numbers of both sides are 64 bits that
hardly repeat, so connections also match through address translation (NAT). Where a capture lacks the handshake, the
ranges of sequence numbers must overlap; with NAT, packets must have equal sequence and acknowledgement numbers.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import numpy as np
from msgspec import Struct

from ..model.thresholds import EQUAL_NUMBERS
from ..tables import Ints
from ..tables.grouping import take_rows
from .recorded import Recorded, Trace


class Pair(Struct, frozen=True):
    """A connection in both captures."""

    first: int
    """Its row in the first capture."""
    second: int
    """Its row in the second capture."""
    swapped: bool
    """Whether the second capture has client and server exchanged."""
    shift: tuple[int, int]
    """What to add to offsets of the second capture, for the client's and the server's bytes."""
    complete: bool
    """Whether both captures have its handshake."""


class _Ends(Struct, frozen=True):
    """A connection in one capture; if `swapped`, with client and server exchanged."""

    row: int
    complete: bool
    bases: tuple[int | None, int | None]
    """Sequence numbers at offset 0, of client and server; None for a side that sent nothing."""
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
    """Wrap a difference of sequence numbers to -2^31..2^31-1 (RFC 9293 section 3.4)."""
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
    """Pair connections by addresses and ports; ports are reused, so sequence numbers must match, too."""
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
"""Most connections without handshake and with the same addresses that are compared: bounds the work."""


def _fits(a: _Ends, b: _Ends) -> bool:
    """Check whether initial sequence numbers are equal; without handshakes, whether ranges overlap both ways."""
    shift = _shift(a, b)
    if a.complete and b.complete:
        return shift == (0, 0)
    pieces = zip(shift, a.sizes, b.sizes, strict=True)
    return all(min(size, move + other) > max(0, move) or 0 in (size, other) for move, size, other in pieces)


def _by_sequence(first: Recorded, second: Recorded) -> Iterator[Pair]:
    """Pair connections with other addresses and equal initial sequence numbers: NAT changed the addresses."""
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
    """Pair connections with other addresses and without handshake, by packets with equal numbers on the wire."""
    mine, theirs = _numbers(first, used), _numbers(second, used_second)
    _, at, other = np.intersect1d(mine[0], theirs[0], return_indices=True)
    if not len(at):
        return
    rows, sides = np.stack([mine[1][at], theirs[1][other]]), mine[2][at] != theirs[2][other]
    both, count = np.unique(np.vstack([rows, sides[np.newaxis].astype(np.int64)]), axis=1, return_counts=True)
    for place in np.argsort(-count, kind="stable"):
        a, b, swapped = (int(value) for value in both[:, place])
        if count[place] >= EQUAL_NUMBERS:
            left, right = _one(first, a), _one(second, b)
            yield _pair(left, _turned(right) if swapped else right)


def _numbers(recorded: Recorded, used: set[int]) -> tuple[Ints, Ints, Ints]:
    """Return numbers on the wire (see `on_the_wire`), connections and directions of data packets."""
    left_over = np.ones(len(recorded.tables.connections.protocol), dtype=bool)
    left_over[list(used)] = False
    rows = np.flatnonzero((recorded.trace.length > 0) & left_over[recorded.trace.connection])
    some: Trace = take_rows(recorded.trace, rows)
    numbers, unique = np.unique(on_the_wire(recorded, rows), return_index=True)
    return numbers, some.connection[unique], some.direction[unique].astype(np.int64)


def on_the_wire(recorded: Recorded, rows: Ints) -> Ints:
    """Return sequence number (high 32 bits) and acknowledgement number (low) of packets, as they were on the wire."""
    some, connections = take_rows(recorded.trace, rows), recorded.tables.connections
    bases = np.stack([connections.client_sequence, connections.server_sequence]).astype(np.int64)
    seq = (bases[some.direction, some.connection] + some.seq) & 0xFFFF_FFFF
    ack = (bases[1 - some.direction, some.connection] + some.ack) & 0xFFFF_FFFF
    return seq << 32 | ack
