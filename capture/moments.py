"""Write the packets around moments: the time before each from the ring, and the time after it when that has passed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import gmtime, monotonic_ns, strftime
from typing import IO

from ..files.atomic_file import PRIVATE, Part, random_name
from ..files.folder import Folder
from .errors import RecordingError
from .ring import Comment, Excerpt, Ring

HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Limits:
    """What is written at most, so that a condition that holds all day does not fill the disk."""

    before_ns: int = 60 * 10**9
    after_ns: int = 5 * 10**9
    per_hour: int = 6
    bytes: int = 2 * 10**9
    """Of all captures of this run together."""


@dataclass
class Moment:
    """A moment whose packets shall be written."""

    time_ns: int
    noted_ns: int
    """When it was noted, by this host's clock that is never set."""
    reasons: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)


@dataclass(frozen=True)
class Saved:
    """A capture that was written."""

    path: Path
    reasons: tuple[str, ...]
    packets: int


class Moments:
    """Collects moments, and writes the packets around each once."""

    def __init__(self, ring: Ring, folder: Folder, shown: Path, limits: Limits) -> None:
        """Captures go to `folder`, which users know as `shown`."""
        self.refused = 0
        """Moments that were not written because of the limits."""
        self._ring = ring
        self._folder = folder
        self._shown = shown
        self._limits = limits
        self._pending: Moment | None = None
        self._written_ns: list[int] = []
        self._bytes = 0

    @property
    def held_ns(self) -> int:
        """Give the time from which the ring must keep packets, because they are to be written."""
        return self._pending.time_ns - self._limits.before_ns if self._pending else 1 << 62

    def note(self, time_ns: int, reason: str, comments: Sequence[Comment]) -> bool:
        """Ask for the packets around a moment; one that is about to be written takes it in. False beyond the limits.

        Packets of `comments` are counted from the first one of this stream.
        """
        if self._pending is None:
            self._written_ns = [one for one in self._written_ns if one > time_ns - HOUR_NS]
            if len(self._written_ns) >= self._limits.per_hour or self._bytes >= self._limits.bytes:
                self.refused += 1
                return False
            self._pending = Moment(time_ns, monotonic_ns())
        self._pending.reasons.append(reason)
        self._pending.comments += [(self._ring.earlier_packets + packet, text) for packet, text in comments]
        return True

    def write_due(self, now_ns: int, *, over: bool = False) -> Saved | None:
        """Write the moment whose time after it has passed, or any if the stream is `over`. Raises RecordingError.

        On a stream that does not go on no packet says how late it is: then this host's time counts.
        """
        moment, limits = self._pending, self._limits
        if moment is None:
            return None
        passed_ns = max(now_ns - moment.time_ns, monotonic_ns() - moment.noted_ns)
        if not over and passed_ns < limits.after_ns:
            return None
        from ..analyzer import _core

        name = next(self._list_names(moment.time_ns))
        try:
            saved = self._write(moment, name)  # Ctrl-C in there leaves the moment for the end of the stream
        except (OSError, RecordingError, _core.CaptureError) as error:
            self._pending = None
            why = getattr(error, "strerror", None) or error
            raise RecordingError(f"{self._shown / name} is not written: {why} ({'; '.join(moment.reasons)})") from None
        self._pending = None
        self._written_ns.append(moment.time_ns)
        return saved

    def _write(self, moment: Moment, name: str) -> Saved:
        """Write a moment. Raises OSError, RecordingError and CaptureError."""
        limits = self._limits
        with self._ring.lock:
            span = (moment.time_ns - limits.before_ns, moment.time_ns + limits.after_ns)
            excerpt = self._ring.select(*span, moment.comments)
        with closing(excerpt):  # recording goes on meanwhile
            if not excerpt.packets:
                raise RecordingError("no packets of that time are left")
            part = Part(self._folder, random_name(), PRIVATE)
            try:
                with open(part.descriptor, "wb", closefd=False) as out:
                    self._copy(excerpt, out)
                    size = out.tell()
                part.publish(name)
            finally:
                part.discard()
        self._bytes += size
        self._folder.synchronise()
        return Saved(self._shown / name, tuple(moment.reasons), excerpt.packets)

    def _copy(self, excerpt: Excerpt, out: IO[bytes]) -> None:
        """Copy the packets to the disk, unless they are too many. Raises OSError, RecordingError and CaptureError."""
        most = self._limits.bytes
        for piece in excerpt.list_pieces():
            if self._bytes + max(out.tell() + len(piece), excerpt.size) > most:
                self.refused += 1
                raise RecordingError(f"the captures of one run have at most {most:,} bytes together")
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())  # what is reported as written must survive the machine

    def _list_names(self, time_ns: int) -> Iterator[str]:
        """List names that nothing has, after the time in UTC."""
        stem = strftime("%Y%m%d-%H%M%SZ", gmtime(time_ns // 10**9))
        for number in range(1, 10_000):
            name = f"{stem}{f'-{number}' if number > 1 else ''}.pcapng"
            if self._folder.look(name) is None:
                yield name
