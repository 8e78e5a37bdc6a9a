"""Write the packets around moments: the time before each from the ring, and the time after it when that has passed."""

from __future__ import annotations

import pwd
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..files.atomic_file import PRIVATE, replacing
from .errors import RecordingError
from .ring import Comment, Ring

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

    def __init__(self, ring: Ring, folder: Path, user: pwd.struct_passwd | None, limits: Limits) -> None:
        """Captures go to `folder`; root makes them with the rights of `user`."""
        self.refused = 0
        """Moments that were not written because of the limits."""
        self._ring = ring
        self._folder = folder
        self._user = user
        self._limits = limits
        self._pending: Moment | None = None
        self._written_ns: list[int] = []
        self._bytes = 0

    @property
    def held_ns(self) -> int:
        """Give the time from which the ring must keep packets, because they are to be written."""
        return self._pending.time_ns - self._limits.before_ns if self._pending else 1 << 62

    def note(self, time_ns: int, reason: str, comments: Sequence[Comment]) -> bool:
        """Ask for the packets around a moment; one that is about to be written takes it in. False beyond the limits."""
        if self._pending is None:
            self._written_ns = [one for one in self._written_ns if one > time_ns - HOUR_NS]
            if len(self._written_ns) >= self._limits.per_hour or self._bytes >= self._limits.bytes:
                self.refused += 1
                return False
            self._pending = Moment(time_ns)
        self._pending.reasons.append(reason)
        self._pending.comments += comments
        return True

    def write_due(self, now_ns: int, *, over: bool = False) -> Saved | None:
        """Write the moment whose time after it has passed, or any if the stream is `over`. Raises RecordingError."""
        moment, limits = self._pending, self._limits
        if moment is None or (not over and now_ns < moment.time_ns + limits.after_ns):
            return None
        self._pending = None
        from ..analyzer import _core

        path = next(self._list_paths(moment.time_ns))
        try:
            with replacing(path, self._user, PRIVATE) as out:
                span = (moment.time_ns - limits.before_ns, moment.time_ns + limits.after_ns)
                packets = self._ring.write_between(*span, out, moment.comments)
                size = out.tell()
                if not packets:
                    raise RecordingError("no packets of that time are left")
        except (OSError, RecordingError, _core.CaptureError) as error:
            why = getattr(error, "strerror", None) or error
            raise RecordingError(f"{path} is not written: {why} ({'; '.join(moment.reasons)})") from None
        self._written_ns.append(moment.time_ns)
        self._bytes += size
        return Saved(path, tuple(moment.reasons), packets)

    def _list_paths(self, time_ns: int) -> Iterator[Path]:
        """List names that nothing has, after the time in UTC."""
        stem = time.strftime("%Y%m%d-%H%M%SZ", time.gmtime(time_ns // 10**9))
        for number in range(1, 10_000):
            path = self._folder / f"{stem}{f'-{number}' if number > 1 else ''}.pcapng"
            with suppress(OSError):
                if path.exists():
                    continue
            yield path
