"""Captures whose packets have another order in the file than in time."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

MS = 1_000_000
_PCAPNG = b"\n\r\r\n"
_ENHANCED_PACKET = 6
_FINE = b"\x4d\x3c\xb2\xa1"
_TSRESOL = b"\x09\x00\x01\x00\x09"
"""if_tsresol of nanoseconds."""


@dataclass(frozen=True)
class Records:
    """A little-endian capture file: what comes before its packets, their records, and their times."""

    head: bytes
    records: tuple[bytes, ...]
    times: tuple[int, ...]

    def arranged(self, order: Sequence[int]) -> bytes:
        """The file with its packets in another order."""
        return b"".join((self.head, *(self.records[place] for place in order)))

    def late(self, most_ns: int, seed: int = 0) -> list[int]:
        """An order in which each packet comes up to so much later than it should."""
        jitter = random.Random(seed)
        handed_over = [time + jitter.randrange(most_ns) for time in self.times]
        return sorted(range(len(self.times)), key=handed_over.__getitem__)

    def in_time(self, order: Sequence[int]) -> list[int]:
        """The order of time; packets of one time as in `order`."""
        return sorted(order, key=self.times.__getitem__)


def records_of(path: str) -> Records:
    """The packets of a pcap file, or of a pcapng file with one section that has no other blocks between packets."""
    data = pa.input_stream(path).read()
    return _blocks(data) if data[:4] == _PCAPNG else _pcap(data)


def _pcap(data: bytes) -> Records:
    records, times, at = [], [], 24
    unit = 1 if data[:4] == _FINE else 1000
    while at + 16 <= len(data):
        seconds, rest, length = struct.unpack_from("<III", data, at)
        if at + 16 + length > len(data):
            break
        records.append(data[at : at + 16 + length])
        times.append(seconds * 10**9 + rest * unit)
        at += 16 + length
    return Records(data[:24], tuple(records), tuple(times))


def _blocks(data: bytes) -> Records:
    lengths, at = [], 0
    while at + 12 <= len(data):
        lengths.append(int.from_bytes(data[at + 4 : at + 8], "little"))
        at += lengths[-1]
    ends = list(accumulate(lengths))
    blocks = [data[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    packets = tuple(block for block in blocks if int.from_bytes(block[:4], "little") == _ENHANCED_PACKET)
    head = b"".join(block for block in blocks if int.from_bytes(block[:4], "little") != _ENHANCED_PACKET)
    unit = 1 if _TSRESOL in head else 1000
    times = []
    for packet in packets:
        high, low = struct.unpack_from("<II", packet, 12)
        times.append((high << 32 | low) * unit)
    return Records(head, packets, tuple(times))
