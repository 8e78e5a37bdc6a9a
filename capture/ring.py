"""Keep the last packets of a stream in small files, and write those around a moment into one capture.

tcpdump's stream is divided between packets into pcap files, so that a restart finds them again. The oldest are removed
by age and by size.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..files.atomic_file import PRIVATE
from ..files.folder import Folder
from .errors import RecordingError, UsageError
from .savefile import HEADER, Format, Packets, measure_file

Comment = tuple[int, str]
"""The number of a packet, and a text."""
PARTS = 64
"""Files of a full ring (heuristic: what is removed at once is then 2 % of it)."""
SPAN_NS = 60_000_000_000
"""Longest time of a file: files are written around a moment as a whole."""
MOST_FILES = 10_000
"""Most files (heuristic: a week of them if packets come seldom)."""
LEAST_NS, LEAST_BYTES = 1_000_000_000, 1_000_000
"""Shortest and smallest ring; also the shortest time of a file."""
USUAL_BYTES = 1_000_000_000
"""Largest size where none is given."""
_OF_EARLIER_RUN = -(1 << 62)
"""Number of the first packet of a file whose packets have no number in this run."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
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
class Part(Packets):
    """A file of the ring; its header counts among its bytes."""

    name: str = ""
    first_packet: int = 0
    """Number of the first packet, see `Ring.earlier_packets`."""


class Ring:
    """The files of a ring in a folder. One process uses it at a time, and its threads take the lock."""

    def __init__(self, folder: Folder, keep: Keep) -> None:
        """Take over the files of an earlier run. Raises OSError."""
        self.lock = threading.Lock()
        self.size = 0
        """Bytes of all files."""
        self.earlier_packets = 0
        """Packets of this run's earlier streams: the first one of this stream has the next number."""
        self.lost_packets = 0
        """Packets that could not be written."""
        self.error: OSError | None = None
        """Why the last of them could not be."""
        self._folder = folder
        self._keep = keep
        self._format: Format | None = None
        self._header = self._rest = b""
        self._descriptor = -1
        self._next = 1
        names = [name for name in folder.names() if _NAME.fullmatch(name)]
        self._parts = [part for name in names if (part := self._recover(name))]
        self.size = sum(part.bytes for part in self._parts)
        self._count = int(names[-1][5:-5]) if names else 0

    def _recover(self, name: str) -> Part | None:
        """Read a file of an earlier run up to its last whole packet. Raises OSError.

        What is not surely of an earlier run stays as it is: another user's file, one with a second name, no pcap.
        """
        found = self._folder.open(name, os.O_RDWR | os.O_NONBLOCK)
        try:
            status = os.fstat(found)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != self._folder.uid or status.st_nlink != 1:
                return None
            packets = measure_file(found)[0] if status.st_size else Packets()
            if packets.packets:
                os.ftruncate(found, HEADER + packets.bytes)
                return Part(
                    **vars(packets) | {"bytes": HEADER + packets.bytes}, name=name, first_packet=_OF_EARLIER_RUN
                )
            self._folder.remove(name)  # a run ended before its first packet was whole
        except RecordingError:
            pass
        finally:
            os.close(found)
        return None

    def begin_stream(self) -> None:
        """Expect the header of a stream, as tcpdump was started again."""
        self._format, self._header, self._rest = None, b"", b""
        self.earlier_packets = self._next - 1
        self._close()

    def add(self, piece: bytes) -> None:
        """Take a piece of the stream, which may end anywhere.

        Raises UsageError for what is no pcap, and RecordingError where the stream is damaged.
        """
        data = self._rest + piece
        if self._format is None:
            self._rest = data
            if len(data) < HEADER:
                return
            self._format, self._header, data = Format(data), data[:HEADER], data[HEADER:]
        batch = self._format.measure(data)
        self._rest = data[batch.bytes :]
        if batch.packets:
            self._append(data[: batch.bytes], batch)
        self._format.check(self._rest)

    def _append(self, data: bytes, batch: Packets) -> None:
        """Write whole packets; the oldest files make room, also on a full disk. Otherwise the packets are lost."""
        if self._descriptor >= 0 and self._is_full(batch):
            self._close()
        try:
            self._free(self.size + HEADER + batch.bytes - self._keep.bytes)
            try:
                self._write(data, batch)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._free(batch.bytes)
                self._write(data, batch)
        except OSError as error:
            self.error = error
            self.lost_packets += batch.packets
            if self._parts and self._parts[-1].packets:
                self._close()  # later packets do not follow those of this file
        self._next += batch.packets

    def _is_full(self, batch: Packets) -> bool:
        """Say whether the newest file has no room for more packets."""
        part, span_ns = self._parts[-1], min(max(LEAST_NS, self._keep.age_ns // PARTS), SPAN_NS)
        return part.bytes + batch.bytes > self._keep.bytes // PARTS or batch.first_ns - part.first_ns >= span_ns

    def _write(self, data: bytes, batch: Packets) -> None:
        """Write all or nothing to the newest file, after making it. Raises OSError."""
        if self._descriptor < 0:
            self._free(1 if len(self._parts) >= MOST_FILES else 0)
            self._count += 1
            name = f"ring-{self._count:020}.pcap"
            self._descriptor = self._folder.make(name, PRIVATE)
            self._parts.append(Part(name=name))
        part = self._parts[-1]
        text, at = data if part.packets else self._header + data, part.bytes
        try:
            while text:
                written = os.pwrite(self._descriptor, text, at)
                text, at = text[written:], at + written
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, part.bytes)
            raise
        if not part.packets:
            part.first_packet, part.bytes = self._next, HEADER
            self.size += HEADER
        part.extend(batch)
        self.size += batch.bytes

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _free(self, excess: int) -> None:
        """Remove the oldest files, so many bytes or all but the one that is open. Raises OSError."""
        self._remove(self._parts[: -1 if self._descriptor >= 0 else None], excess)

    def _remove(self, parts: Sequence[Part], excess: int) -> None:
        """Remove the first of some files, as many as have so many bytes. Raises OSError if one of them stays."""
        wrong: OSError | None = None
        for part in parts if excess > 0 else ():
            try:
                self._folder.remove(part.name)
            except OSError as error:
                wrong = error
                continue
            if part is self._parts[-1]:
                self._close()
            self._parts.remove(part)
            self.size -= part.bytes
            excess -= part.bytes
            if excess <= 0:
                return
        if wrong:
            raise wrong

    def expire(self, now_ns: int, held_ns: int = 1 << 62) -> None:
        """Remove what is too old, but not packets from `held_ns` on; what is too much was removed when it came.

        Raises OSError.
        """
        oldest = min(now_ns - self._keep.age_ns, held_ns)
        self._remove([part for part in self._parts if part.last_ns < oldest], 1 << 62)

    def select(self, from_ns: int, to_ns: int, comments: Sequence[Comment]) -> Excerpt:
        """Open the files with packets of that time; they do not change any more. Raises OSError.

        Packets of `comments` are counted as in `earlier_packets`.
        """
        self._close()
        parts = [part for part in self._parts if part.packets and part.first_ns <= to_ns and part.last_ns >= from_ns]
        ordered, excerpt = sorted(comments), Excerpt()
        try:
            for part in parts:
                first, end = (bisect_left(ordered, (part.first_packet + n, "")) for n in (0, part.packets))
                shift = excerpt.packets + 1 - part.first_packet
                excerpt.comments += [(number + shift, text) for number, text in ordered[first:end]]
                excerpt.descriptors.append(self._folder.open(part.name, os.O_RDONLY | os.O_NONBLOCK))
                excerpt.packets += part.packets
                excerpt.size += part.bytes
        except BaseException:
            excerpt.close()
            raise
        return excerpt

    def close(self) -> None:
        """Close the newest file; all stay for the next run."""
        self._close()


@dataclass
class Excerpt:
    """Open files of a ring, and comments on their packets. It stays as it is whatever the ring does."""

    descriptors: list[int] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    packets: int = 0
    size: int = 0
    """Bytes of the files."""

    def list_pieces(self) -> Iterator[bytes]:
        """Give the packets as one pcapng, piece by piece. Raises CaptureError."""
        from ..analyzer.decode.annotate import Annotating  # imported only here: a ring may never need it

        return Annotating([f"/proc/self/fd/{one}" for one in self.descriptors], self.comments).pieces()

    def close(self) -> None:
        """Close the files."""
        while self.descriptors:
            os.close(self.descriptors.pop())
