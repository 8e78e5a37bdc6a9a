"""Decide whether files are pieces of one rotated capture, or captures of the same connections at two places.

Pieces of one capture never hold the same packet. Captures at two places do, with different times. A test capture may
consist of shifted copies of another one with other addresses; its pieces hold the same sequence numbers, too. Between
copies, both directions are shifted by the same time; between two places they are not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
from msgspec import Struct

from .. import _core
from ..decode.errors import EmptyCaptureError
from ..decode.runner import DecodeOptions
from ..tables import Codes, Ints
from .connections import on_the_wire
from .recorded import MOST_PACKETS, Recorded, read

_SYN = 2

_PEEK = 5_000
"""Packets from the beginning of each file that are compared (heuristic: captures of one run begin together)."""
_SHARED = 6
"""Fewest common packets of two files with the same connections (heuristic: a handshake and a request)."""
_COPY_LATER_NS = 1_000_000_000
"""Least time shift of a copy (heuristic: tools that rewrite times shift them by whole seconds)."""
_COPY_MOVES = 3
"""Most different time shifts between copies in two files (heuristic: two where a file ends within a copy)."""


def vantages(files: Sequence[str], *, whole: bool = False, **how: Unpack[DecodeOptions]) -> tuple[tuple[str, ...], ...]:
    """Group files by the place where they were captured: one group for a rotated capture, otherwise two or more.

    Looks at the beginning of each file, or with `whole` at all of it. Files that cannot be read twice, such as
    standard input, count as one capture. Raises CaptureError.
    """
    if len(files) < 2 or not all(Path(name).is_file() for name in files):
        return (tuple(files),)
    looks: list[_Look] = []
    empty: list[str] = []
    for number, name in enumerate(files):
        try:
            looks.append(_look(read([name], most=MOST_PACKETS if whole else _PEEK, **how), number))
        except EmptyCaptureError:
            empty.append(name)  # the reader skips it with a warning
        if sum(len(look.numbers) for look in looks) > MOST_PACKETS:
            return (tuple(files),)
    if len(looks) < 2:
        return (tuple(files),)
    first, *others = _group(looks, _find_sharing(looks))
    return ((*first, *empty), *others)


class _Look(Struct, frozen=True, eq=False):
    """The part of a file that is compared."""

    name: str
    number: int
    first_ns: int
    side: str
    """Where most of its packets were captured."""
    numbers: Ints
    """Sorted and unique: sequence and acknowledgement number of each SYN and data packet in one number; the same of
    sequence number and TCP timestamp, which captures of one direction need."""
    times: Ints
    ends: Ints
    """A hash of the addresses of both ends, per row of `numbers`."""
    directions: Codes


def _look(recorded: Recorded, number: int) -> _Look:
    trace, connections = recorded.trace, recorded.tables.connections
    rows = np.flatnonzero((trace.length > 0) | (trace.flags & _SYN > 0))
    by_ack = on_the_wire(recorded, rows)
    stamp = trace.timestamp[rows].astype(np.int64)
    stamped = np.flatnonzero(stamp)
    by_stamp = ~(by_ack >> 32 << 32 | stamp)[stamped]
    rows = np.concatenate([rows, rows[stamped]])
    numbers, first = np.unique(np.concatenate([by_ack, by_stamp]), return_index=True)
    tables = recorded.tables
    ends = [hash(frozenset((tables.client(row), tables.server(row)))) for row in range(len(connections.protocol))]
    packets = connections.packets_client.astype(np.int64) + connections.packets_server
    counts = np.bincount(connections.vantage, weights=packets, minlength=len(_core.VANTAGES))
    return _Look(
        name=recorded.files[0],
        number=number,
        first_ns=recorded.tables.capture["first_time_ns"] or 0,
        side=_core.VANTAGES[int(np.argmax(counts))],
        numbers=numbers,
        times=trace.time_ns[rows[first]],
        ends=np.array(ends, dtype=np.int64)[trace.connection[rows[first]]],
        directions=trace.direction[rows[first]],
    )


def _find_sharing(looks: Sequence[_Look]) -> set[tuple[int, int]]:
    """Find pairs of files with the same packets at different times; a file that is given twice is no such pair."""
    numbers = np.concatenate([look.numbers for look in looks])
    times = np.concatenate([look.times for look in looks])
    ends = np.concatenate([look.ends for look in looks])
    directions = np.concatenate([look.directions for look in looks])
    owner = np.repeat(np.arange(len(looks)), [len(look.numbers) for look in looks])
    order = np.lexsort((owner, numbers))
    again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1])
    one, other = order[again], order[again + 1]
    found, which, count = np.unique(
        np.stack([owner[one], owner[other]]), axis=1, return_inverse=True, return_counts=True
    )
    pairs = set()
    for pair in np.flatnonzero(count >= _SHARED):
        a, b = (side[which.ravel() == pair] for side in (one, other))
        later = times[b] - times[a]
        if later.any() and not ((ends[a] != ends[b]).all() and _are_copies(later, directions[a])):
            pairs.add((looks[int(found[0, pair])].number, looks[int(found[1, pair])].number))
    return pairs


def _are_copies(later_ns: Ints, directions: Codes) -> bool:
    """Check whether packets with other addresses are copies: both directions have one of a few time shifts.

    Copies with a shift of 0 run at the same time and are ignored.
    """
    if np.abs(later_ns[later_ns != 0]).min() < _COPY_LATER_NS:
        return False
    client, server = (set(later_ns[(later_ns != 0) & (directions == side)].tolist()) for side in (0, 1))
    return max(len(client), len(server)) <= _COPY_MOVES and not client.isdisjoint(server)


def _group(looks: Sequence[_Look], sharing: set[tuple[int, int]]) -> tuple[tuple[str, ...], ...]:
    """Group files of one place: they share no packets, and were captured on the same side."""
    if not sharing:
        return (tuple(look.name for look in looks),)
    groups: list[list[_Look]] = []
    for look in sorted(looks, key=lambda look: (look.first_ns, look.number)):
        for group in groups:
            apart = any({(look.number, other.number), (other.number, look.number)} & sharing for other in group)
            if not apart and {look.side, group[0].side} - {"unknown"} <= {look.side}:
                group.append(look)
                break
        else:
            groups.append([look])
    return tuple(tuple(look.name for look in group) for group in groups)
