"""Keep the last packets of a stream in small files, and write those around a moment into one capture.

tcpdump's stream is divided between packets into pcap files, so that a restart finds them again. The oldest are removed
by age and by size.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from ..files.atomic_file import PRIVATE
from ..files.folder import Folder
from .errors import RecordingError, UsageError

Comment = tuple[int, str]
"""The number of a packet in the stream, and a text."""
HEADER = 24
"""Bytes of a pcap file without packets."""
_MAGIC = struct.pack("=I", 0xA1B23C4D)
"""pcap with nanoseconds in this machine's order, as tcpdump writes it."""
_RECORD, _TIME, _LENGTH = 16, struct.Struct("=II"), struct.Struct("=I")
"""Size of the header of a packet, and its parts."""
_MOST_PACKET = 262_144
"""tcpdump's largest snaplen."""
PARTS = 64
"""Files of a full ring (heuristic: what is removed at once is then 2 % of it)."""
LEAST_NS, LEAST_BYTES = 1_000_000_000, 1_000_000
"""Shortest and smallest ring; also the shortest time of a file."""
USUAL_BYTES = 1_000_000_000
"""Largest size where none is given."""
_OF_EARLIER_STREAM = -(1 << 62)
"""Number of the first packet of a file whose packets have no number in this stream."""
_NAME = re.compile(r"ring-\d{20}\.pcap")
_UNITS = {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Keep:
    """How much a ring keeps."""

    age_ns: int = 1 << 62
    bytes: int = USUAL_BYTES


def parse_keep(text: str) -> Keep:
    """Parse an age, a size or both: `60s`, `500M`, `10m,2G`. Raises UsageError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})([smhMG])", part.strip(), re.ASCII)
        name = "age_ns" if match and match[2] in "smh" else "bytes"
        if not match or name in found:
            raise UsageError(f"{text!r} is not what to keep: write an age, a size or both: 60s, 500M or 10m,2G")
        found[name] = int(match[1]) * _UNITS[match[2]]
    if found.get("age_ns", LEAST_NS) < LEAST_NS or found.get("bytes", LEAST_BYTES) < LEAST_BYTES:
        raise UsageError(f"{text!r} is too little: the minimum is 1s and 1M")
    return Keep(**found)


@dataclass
class Part:
    """Packets that follow each other: a file of the ring, or what is about to be added to one."""

    name: str = ""
    first_packet: int = 0
    """Number of the first packet in the stream."""
    packets: int = 0
    bytes: int = 0
    first_ns: int = 1 << 62
    last_ns: int = 0

    def extend(self, other: Part) -> None:
        """Count more packets."""
        self.packets += other.packets
        self.bytes += other.bytes
        self.first_ns = min(self.first_ns, other.first_ns)
        self.last_ns = max(self.last_ns, other.last_ns)


class Ring:
    """The files of a ring in a folder. One process uses it at a time."""

    def __init__(self, folder: Folder, keep: Keep) -> None:
        """Take over the files of an earlier run. Raises OSError."""
        self.lost_packets = 0
        """Packets that could not be written."""
        self.error: OSError | None = None
        """Why not."""
        self._folder = folder
        self._keep = keep
        self._header = self._rest = b""
        self._descriptor = -1
        self._next = 1
        self._parts = [part for name in folder.names() if _NAME.fullmatch(name) and (part := self._recover(name))]
        self._count = int(self._parts[-1].name[5:-5]) if self._parts else 0

    def _recover(self, name: str) -> Part | None:
        """Read a file of an earlier run up to its last whole packet. Raises OSError."""
        found = self._folder.open(name, os.O_RDWR | os.O_NONBLOCK)
        part = Part(name, _OF_EARLIER_STREAM, bytes=HEADER)
        try:
            size = os.fstat(found).st_size
            with (
                mmap.mmap(found, size, access=mmap.ACCESS_READ)
                if size > HEADER
                else contextlib.nullcontext(b"") as data
            ):
                if data[:4] == _MAGIC:
                    with contextlib.suppress(RecordingError):  # it is damaged, so all of it goes
                        part.extend(_measure(data, HEADER))
            os.ftruncate(found, part.bytes)
        finally:
            os.close(found)
        if not part.packets:
            self._folder.remove(name)
        return part if part.packets else None

    @property
    def size(self) -> int:
        """Count the bytes of all files."""
        return sum(part.bytes for part in self._parts)

    @property
    def first_ns(self) -> int | None:
        """Give the time of the oldest packet; None without any."""
        return min((part.first_ns for part in self._parts), default=None)

    def begin_stream(self) -> None:
        """Expect the header of a stream: tcpdump was started again, and packets count from 1."""
        self._header = self._rest = b""
        self._next = 1
        for part in self._parts:
            part.first_packet = _OF_EARLIER_STREAM
        self._close()

    def add(self, piece: bytes) -> None:
        """Take a piece of the stream, which may end anywhere. Raises RecordingError for what is no such stream."""
        data = self._rest + piece
        if not self._header:
            self._rest = data
            if len(data) < HEADER:
                return
            if data[:4] != _MAGIC:
                raise RecordingError("the stream is not a pcap with nanoseconds in this machine's order")
            self._header, data = data[:HEADER], data[HEADER:]
        batch = _measure(data, 0)
        self._rest = data[batch.bytes :]
        if not batch.packets:
            return
        batch.first_packet = self._next
        self._next += batch.packets
        if self._descriptor >= 0 and self._is_full(batch):
            self._close()
        self._append(data[: batch.bytes], batch)

    def _is_full(self, batch: Part) -> bool:
        """Say whether the newest file has no room for more packets."""
        part, span_ns = self._parts[-1], max(LEAST_NS, self._keep.age_ns // PARTS)
        return part.bytes + batch.bytes > self._keep.bytes // PARTS or batch.first_ns - part.first_ns >= span_ns

    def _append(self, data: bytes, batch: Part) -> None:
        """Write whole packets; on a full disk the oldest file makes room, otherwise they are lost."""
        for attempt in range(2):
            try:
                self._write(data)
            except OSError as error:
                self.error = error
                if attempt == 0 and len(self._parts) > 1:
                    self._remove(self._parts[0])
                    continue
                self.lost_packets += batch.packets
                self._close()  # later packets do not follow those of this file
                if self._parts and not self._parts[-1].packets:
                    self._remove(self._parts[-1])
                return
            if not self._parts[-1].packets:
                self._parts[-1].first_packet = batch.first_packet
            self._parts[-1].extend(batch)
            return

    def _write(self, data: bytes) -> None:
        """Write all or nothing to the newest file, after making it. Raises OSError."""
        if self._descriptor < 0:
            self._count += 1
            name = f"ring-{self._count:020}.pcap"
            self._descriptor = self._folder.make(name, PRIVATE)
            self._parts.append(Part(name))
        part = self._parts[-1]
        text = data if part.bytes else self._header + data
        size = part.bytes + len(text)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:
            os.ftruncate(self._descriptor, part.bytes)
            os.lseek(self._descriptor, part.bytes, os.SEEK_SET)
            raise
        part.bytes = size - len(data)  # the packets are counted when all of this is done

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _remove(self, part: Part) -> None:
        if part is self._parts[-1]:
            self._close()
        self._parts.remove(part)
        self._folder.remove(part.name)

    def expire(self, now_ns: int, held_ns: int = 1 << 62) -> None:
        """Remove what is too old, but not packets from `held_ns` on; then the oldest until the rest is small enough.

        Raises OSError.
        """
        oldest = min(now_ns - self._keep.age_ns, held_ns)
        for part in [part for part in self._parts if part.last_ns < oldest]:
            self._remove(part)
        while len(self._parts) > 1 and self.size > self._keep.bytes:
            self._remove(self._parts[0])

    def write_between(self, from_ns: int, to_ns: int, out: IO[bytes], comments: Sequence[Comment]) -> int:
        """Write the files with packets of that time as one pcapng, and give the number of packets.

        `comments` are for packets of this stream. Raises OSError and CaptureError.
        """
        from ..analyzer.annotate import Annotating  # imported only here: a ring may never need it

        parts = [part for part in self._parts if part.packets and part.first_ns <= to_ns and part.last_ns >= from_ns]
        before, placed = 0, list[Comment]()
        ordered = sorted(comments)
        for part in parts:
            first, end = (bisect_left(ordered, (part.first_packet + n, "")) for n in (0, part.packets))
            placed += [(number - part.first_packet + before + 1, text) for number, text in ordered[first:end]]
            before += part.packets
        with contextlib.ExitStack() as stack:
            paths = []
            for part in parts:
                opened = self._folder.open(part.name, os.O_RDONLY | os.O_NONBLOCK)
                stack.callback(os.close, opened)
                paths.append(f"/proc/self/fd/{opened}")
            if paths:
                out.writelines(Annotating(paths, placed).pieces())
        out.flush()
        os.fsync(out.fileno())  # what is reported as written must survive the machine
        return before

    def close(self) -> None:
        """Close the newest file; all stay for the next run."""
        self._close()


def _measure(data: bytes | mmap.mmap, begin: int) -> Part:
    """Measure the whole packets from there on; times are those of the first and of the last one.

    Raises RecordingError for what is no packet. This runs for every packet, so it reads only lengths.
    """
    unpack, end, at, last, packets = _LENGTH.unpack_from, len(data) - _RECORD, begin, begin, 0
    while at <= end:
        (length,) = unpack(data, at + 8)
        if length > _MOST_PACKET:
            raise RecordingError(f"the stream is damaged: a packet of {length:,} bytes")
        after = at + _RECORD + length
        if after > end + _RECORD:
            break
        last, at, packets = at, after, packets + 1
    if not packets:
        return Part()
    times = (_read_time(data, begin), _read_time(data, last))
    return Part(packets=packets, bytes=at - begin, first_ns=min(times), last_ns=max(times))


def _read_time(data: bytes | mmap.mmap, at: int) -> int:
    seconds, nanoseconds = _TIME.unpack_from(data, at)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
