"""Read the packets of pcap files and streams as tcpdump writes them: how many are whole, and from when to when."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from ..analyzer import _core
from .errors import RecordingError, UsageError

HEADER = 24
"""Size in bytes of a pcap file without packets."""
_RECORD = 16
"""Size in bytes of the header of a packet."""
_MOST_PACKET = 262_144
"""tcpdump's largest snaplen."""
_PIECE = 1 << 20
_FORMATS = {
    struct.pack(f"{order}I", magic): (order, tick_ns)
    for order in "<>"
    for magic, tick_ns in ((0xA1B2C3D4, 1000), (0xA1B23C4D, 1))
}
"""Byte order and nanoseconds per unit of time, by the first bytes of a file."""


@dataclass
class Packets:
    """Packets that follow each other."""

    packets: int = 0
    bytes: int = 0
    first_ns: int = 1 << 62
    last_ns: int = 0

    def extend(self, other: Packets) -> None:
        """Count more packets."""
        self.packets += other.packets
        self.bytes += other.bytes
        self.first_ns = min(self.first_ns, other.first_ns)
        self.last_ns = max(self.last_ns, other.last_ns)


class Format:
    """How a pcap file writes numbers and times."""

    def __init__(self, header: bytes) -> None:
        """`header` is the beginning of the file. Raises UsageError for what is no pcap."""
        found = _FORMATS.get(header[:4])
        if found is None:
            raise UsageError("this is no pcap, as `tcpdump -w -` and `dumpcap -P -w -` write it")
        self._order, self._tick_ns = found
        self._length, self._time = struct.Struct(f"{self._order}I"), struct.Struct(f"{self._order}II")

    def measure(self, data: bytes) -> Packets:
        """Measure the whole packets at the beginning; times are those of the first and of the last one."""
        packets, last, end = _core.measure_records(data, self._order == ">", _MOST_PACKET)
        if not packets:
            return Packets()
        times = (self._read_time(data, 0), self._read_time(data, last))
        return Packets(packets, end, min(times), max(times))

    def _read_time(self, data: bytes, at: int) -> int:
        seconds, ticks = self._time.unpack_from(data, at)
        return int(seconds) * 1_000_000_000 + int(ticks) * self._tick_ns

    def check(self, data: bytes) -> None:
        """Raise RecordingError if a packet begins there that is longer than any."""
        if len(data) >= _RECORD and (length := self._length.unpack_from(data, 8)[0]) > _MOST_PACKET:
            raise RecordingError(f"the stream is damaged: a packet of {length:,} bytes")


@dataclass(frozen=True)
class Written:
    """The contents of a pcap file."""

    packets: int
    """Complete packets."""
    cut_at: int | None
    """Byte at which an incomplete last packet begins; None if all packets are complete."""


def look(descriptor: int) -> Written:
    """Read the packets of an open pcap file. Raises OSError."""
    try:
        found, size = measure_file(descriptor)
    except UsageError:
        return Written(0, 0)
    return Written(found.packets, None if HEADER + found.bytes == size else HEADER + found.bytes)


def measure_file(descriptor: int) -> tuple[Packets, int]:
    """Measure the whole packets of an open pcap file, and its size. Raises OSError, and UsageError for other files.

    It is not mapped: whoever may write it could shorten it meanwhile, which would end this process.
    """
    header = os.pread(descriptor, HEADER, 0)
    found, form, rest, at = Packets(), Format(header if len(header) == HEADER else b""), b"", HEADER
    while piece := os.pread(descriptor, _PIECE, at):
        at += len(piece)
        data = rest + piece
        batch = form.measure(data)
        found.extend(batch)
        rest = data[batch.bytes :]
        if len(rest) > _RECORD + _MOST_PACKET:  # no packet begins there
            break
    return found, os.fstat(descriptor).st_size
