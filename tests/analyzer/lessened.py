"""Captures of which a part is taken away: packets, bytes of packets, the end of the file."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyarrow as pa

MEMORY = Path("/dev/shm")
"""Files here cost no disk."""


@dataclass(frozen=True)
class Capture:
    """A little-endian pcap file: its header and where its records begin; the last entry is the file's end."""

    data: bytes
    offsets: tuple[int, ...]

    def __len__(self) -> int:
        """Packets."""
        return len(self.offsets) - 1

    def packets_before(self, length: int) -> int:
        """Whole packets in the first `length` bytes."""
        return max(0, bisect_right(self.offsets, length) - 1)

    def record(self, number: int) -> memoryview:
        """The record of the packet with that number, from 1."""
        return memoryview(self.data)[self.offsets[number - 1] : self.offsets[number]]

    def without(self, gone: Collection[int]) -> bytes:
        """The capture without the packets with these numbers."""
        kept, begin = [memoryview(self.data)[:24]], self.offsets[0]
        for number in sorted(gone):
            kept.append(memoryview(self.data)[begin : self.offsets[number - 1]])
            begin = self.offsets[number]
        kept.append(memoryview(self.data)[begin : self.offsets[-1]])
        return b"".join(kept)

    def snapped(self, length: int) -> bytes:
        """The capture as `editcap -s` cuts it: packets shortened, their original length told."""
        pieces: list[bytes | memoryview] = [memoryview(self.data)[:24]]
        for number in range(1, len(self) + 1):
            record = self.record(number)
            times, kept, original = bytes(record[:8]), *struct.unpack_from("<II", record, 8)
            kept = min(kept, length)
            pieces += [times, struct.pack("<II", kept, original), record[16 : 16 + kept]]
        return b"".join(pieces)


def capture_of(files: Sequence[str]) -> Capture:
    """A capture in little-endian pcap files, the later ones of a rotated capture joined to the first."""
    first, *others = (pa.input_stream(file).read() for file in files)  # by the name's end also a compressed one
    data = first + b"".join(other[24:] for other in others)
    assert data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"), "a little-endian pcap"
    offsets, position = [24], 24
    while position + 16 <= len(data):
        position += 16 + int.from_bytes(data[position + 8 : position + 12], "little")
        offsets.append(position)
    if offsets[-1] > len(data):
        offsets.pop()
    return Capture(data, tuple(offsets))


def some(packets: int, share: float, seed: int) -> list[int]:
    """Numbers of that share of packets, and of one at the least."""
    chosen = random.Random(seed).sample(range(1, packets + 1), max(1, round(packets * share)))
    return sorted(chosen)


@contextmanager
def filed(data: bytes) -> Iterator[list[str]]:
    """The capture as a file for a moment, in memory where that can be."""
    folder = MEMORY if MEMORY.is_dir() else None
    with NamedTemporaryFile(dir=folder, suffix=".pcap") as file:
        file.write(data)
        file.flush()
        yield [file.name]
