"""Compute marks by which two hosts' recordings of one connection are matched without its handshake or addresses.

A mark is the sequence number after a packet with PSH, and its acknowledgement number: 64 bits that neither address
translation (NAT) nor offload changes. Each recording keeps the marks with the smallest hashes: both keep the same ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analyzer.tables import Packets, Tables

MOST = 32
"""Most marks of a connection (heuristic: recordings that share a quarter of it have enough in common)."""
_MOST_ALTOGETHER = 2_000_000
_LEAST = 8
_MOST_PUSHED = 4_000_000
"""Most packets from which marks are made, to bound memory (12 bytes each); later packets have none."""
_LASTED_NS = 1_000_000_000
"""Shortest connection that gets marks if its handshake was recorded: other recordings hardly begin within less."""
_PUSHED = 0x08
"""The PSH flag (RFC 9293 section 3.1); segmentation offload keeps it on the last segment."""
_ODD = np.uint64(0x9E3779B97F4A7C15)

Marks = npt.NDArray[np.uint64]


class Pushed:
    """Packets with PSH, collected piece by piece."""

    def __init__(self) -> None:
        """Begin without packets."""
        self._count = 0
        self._pieces: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]] = []

    def add(self, packets: Packets) -> None:
        """Keep the numbers of packets with PSH and payload."""
        chosen = np.flatnonzero((packets.payload_bytes > 0) & (packets.flags & _PUSHED > 0))
        if self._count >= _MOST_PUSHED or not len(chosen):
            return
        self._count += len(chosen)
        side = packets.connection[chosen] * np.uint32(2) + packets.direction[chosen]
        ends = (packets.seq[chosen].astype(np.uint64) + packets.payload_bytes[chosen]).astype(np.uint32)
        self._pieces.append((side.astype(np.uint32), ends, packets.ack[chosen].astype(np.uint32)))

    def marks(self, tables: Tables, places: npt.NDArray[np.uint32] | None = None) -> list[Marks]:
        """Compute the marks of each connection; none without RPCs, or if it is short and has its handshake.

        `places` are the numbers that connections have in `tables`, by those that packets had; too large without a row.
        """
        c = tables.connections
        long = c.last_time_ns - c.first_time_ns >= _LASTED_NS
        mine = np.asarray((c.rpcs > 0) & ((c.complete == 0) | long))
        kept = _Smallest(len(mine), max(_LEAST, min(MOST, _MOST_ALTOGETHER // max(int(mine.sum()), 1))))
        bases = np.stack([c.client_sequence, c.server_sequence]).astype(np.uint32)
        for side, ends, acknowledged in self._pieces:
            rows = (side >> 1 if places is None else places[side >> 1]).astype(np.int64)
            chosen = np.flatnonzero((rows < len(mine)) & np.append(mine, False)[np.minimum(rows, len(mine))])
            at, sender = rows[chosen], side[chosen] & 1
            # offset + initial sequence number, which wraps at 32 bits as on the wire
            first, second = ends[chosen] + bases[sender, at], acknowledged[chosen] + bases[1 - sender, at]
            kept.add(at, first.astype(np.uint64) << np.uint64(32) | second)
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
