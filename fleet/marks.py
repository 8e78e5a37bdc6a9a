"""What tells connections that began before their recording on another host, whatever their addresses there.

A mark is the sequence number behind a packet that its sender pushed (PSH), with the acknowledgement number: 64 bits
that neither address translation nor offload changes. Both recordings keep the same ones, those with the smallest
hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..analyzer.decode import stream
from ..analyzer.tables import Packets, Tables

if TYPE_CHECKING:
    from ..analyzer.reading import How

MOST = 64
"""Marks of a connection (own choice: of two recordings that have a tenth in common enough are the same)."""
_MOST_ALTOGETHER = 4_000_000
_LEAST = 8
_PUSHED = 0x08
"""The bit of PSH (RFC 9293 section 3.1); segmentation offload keeps it on the last packet of what was one."""
_ODD = np.uint64(0x9E3779B97F4A7C15)

Marks = npt.NDArray[np.uint64]


def of(tables: Tables, paths: Sequence[str], how: How) -> list[Marks] | None:
    """The marks of each connection with RPCs, of a second reading; None where all connections began here.

    Raises CaptureError.
    """
    c = tables.connections
    mine = np.asarray(c.rpcs > 0)
    if not (mine & (c.complete == 0)).any():
        return None
    kept = _Smallest(len(mine), max(_LEAST, min(MOST, _MOST_ALTOGETHER // int(mine.sum()))))
    bases = np.stack([c.client_sequence, c.server_sequence]).astype(np.int64)
    for packets in stream(Packets, paths, **how):
        chosen = np.flatnonzero((packets.payload_bytes > 0) & (packets.flags & _PUSHED > 0))
        chosen = chosen[packets.connection[chosen] < len(mine)]
        chosen = chosen[mine[packets.connection[chosen]]]
        at, side = packets.connection[chosen].astype(np.int64), packets.direction[chosen].astype(np.int64)
        end = bases[side, at] + packets.seq[chosen].astype(np.int64) + packets.payload_bytes[chosen]
        acknowledged = bases[1 - side, at] + packets.ack[chosen].astype(np.int64)
        kept.add(at, ((end % 2**32) << 32 | acknowledged % 2**32).astype(np.uint64))
    return kept.of_each()


class _Smallest:
    """The marks of each connection with the smallest hashes."""

    def __init__(self, connections: int, most: int) -> None:
        self._most = most
        self._limits = np.full(connections, np.iinfo(np.uint64).max, dtype=np.uint64)
        self._at = np.zeros(0, dtype=np.int64)
        self._marks = np.zeros(0, dtype=np.uint64)

    def add(self, at: npt.NDArray[np.int64], marks: Marks) -> None:
        near = _hash(marks) <= self._limits[at]
        at, marks = np.concatenate([self._at, at[near]]), np.concatenate([self._marks, marks[near]])
        hashes = _hash(marks)
        order = np.lexsort((hashes, at))
        at, marks, hashes = at[order], marks[order], hashes[order]
        new = np.r_[True, (at[1:] != at[:-1]) | (marks[1:] != marks[:-1])][: len(at)]
        at, marks, hashes = at[new], marks[new], hashes[new]
        begins = np.searchsorted(at, at, side="left")
        first = np.arange(len(at)) - begins < self._most
        self._at, self._marks = at[first], marks[first]
        full = np.arange(len(at)) - begins == self._most - 1
        self._limits[at[full]] = hashes[full]

    def of_each(self) -> list[Marks]:
        ends = np.searchsorted(self._at, np.arange(len(self._limits) + 1))
        return [self._marks[begin:end] for begin, end in pairwise(ends)]


def _hash(marks: Marks) -> Any:
    mixed = (marks ^ (marks >> np.uint64(29))) * _ODD
    return mixed ^ (mixed >> np.uint64(32))
