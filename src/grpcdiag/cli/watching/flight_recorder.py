"""The flight recorder: which triggers are met, and the captures that are written for them.

Without triggers it keeps some packets for the timelines of single calls.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from ...analyzer.live import Window
from ...analyzer.model.analysis import Analysis
from ...capture.errors import RecordingError, UsageError
from ...capture.moments import Limits, Moments, Saved
from ...capture.ring import Keep, Ring
from ...files.folder import Folder, find
from ...files.rights import Rights
from ...reports.wireshark.comments import WORD, list_comments
from .options import Options

FOR_TIMELINES = Keep(age_ns=60 * 10**9, bytes=64 * 10**6)
"""What is kept for the view with a keyboard: as long as its calls are listed."""


class FlightRecorder:
    """Keeps the last packets, and writes those around moments at which a trigger began to be met."""

    def __init__(self, options: Options, user: pwd.struct_passwd | None) -> None:
        """Take the folder, whose ring may be of an earlier run. Raises RecordingError."""
        self.lock = threading.Lock()
        """Of the ring, to which another thread adds packets."""
        self.ring: Ring | None = None
        """None without triggers."""
        self._moments: Moments | None = None
        self._triggers = options.triggers
        self._met: set[str] = set()
        self._stack = ExitStack()
        has_triggers = options.folder is not None and bool(options.triggers)
        if not has_triggers and not options.has_keyboard:
            return
        keep = options.keep or (Keep(age_ns=60 * 10**9) if has_triggers else FOR_TIMELINES)
        with ExitStack() as stack:
            folder = options.folder if has_triggers else None
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpcdiag-")))
            try:
                self.ring = Ring(_take_folder(folder, user if has_triggers else None, stack), keep)
            except OSError as error:
                raise UsageError(f"cannot write {folder}: {error.strerror}") from None
            self._stack = stack.pop_all()
        if has_triggers:
            limits = Limits(before_ns=min(keep.age_ns, Limits.before_ns), per_hour=options.per_hour)
            self._moments = Moments(self.ring, folder, user, limits)

    def begin_stream(self) -> None:
        """Expect another stream."""
        if self.ring:
            with self.lock:
                self.ring.begin_stream()

    def judge(self, now_ns: int, packets: int, window: Window, analysis: Analysis) -> list[str]:
        """List what meets triggers; where that begins, the packets around it are to be written."""
        met = {one.text: why for one in self._triggers if (why := one.judge(analysis))}
        for text in sorted(met.keys() - self._met):
            reason = f"{text}: {met[text]}"
            if self._moments:
                comments = [*list_comments(analysis, window.tables), (packets, f"{WORD} watch: {reason}")]
                self._moments.note(now_ns, reason, comments)
        self._met = set(met)
        return [f"{text}: {why}" for text, why in met.items()]

    def settle(self, now_ns: int, *, over: bool = False) -> tuple[Saved | None, list[str]]:
        """Write what is due, and remove old packets; give the capture written, and problems."""
        saved, problems = None, list[str]()
        if self.ring is None:
            return saved, problems
        with self.lock:
            try:
                saved = self._moments.write_due(now_ns, over=over) if self._moments else None
                self.ring.expire(now_ns, self._moments.held_ns if self._moments else 1 << 62)
            except RecordingError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"old packets are not removed: {error.strerror}")
        return saved, problems

    def write_between(self, from_ns: int, to_ns: int, out: IO[bytes]) -> int:
        """Write packets of that time, and give their number. Raises OSError and RecordingError."""
        if self.ring is None:
            raise RecordingError("no packets are kept")
        with self.lock:
            return self.ring.write_between(from_ns, to_ns, out, ())

    def measure(self) -> tuple[int | None, int]:
        """Measure the ring in bytes, None without one, and count the packets that it had no room for."""
        if self.ring is None:
            return None, 0
        with self.lock:
            return self.ring.size, self.ring.lost_packets

    @property
    def refused(self) -> int:
        """Count the moments that were not written because of the limits."""
        return self._moments.refused if self._moments else 0

    def close(self) -> None:
        """Leave the folder; the ring stays for the next run."""
        if self.ring:
            self.ring.close()
        self._stack.close()


def _take_folder(path: Path, user: pwd.struct_passwd | None, stack: ExitStack) -> Folder:
    """Make a folder that only its owner can read, and take it for this process alone. Raises OSError, UsageError."""
    with Rights(user).taken():
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103 pathlib would import in this block
    place = stack.enter_context(find(path / "ring", user))
    with Rights(user).taken():
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, held)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{path}: another grpcdiag watch keeps its packets there: name another folder") from None
    return place.folder
