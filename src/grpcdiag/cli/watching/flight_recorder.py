"""The flight recorder: which triggers are met, and the captures that are written for them.

Without triggers it keeps some packets for the timelines of single calls.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import IO

from ...analyzer.live import Window
from ...analyzer.model.analysis import Analysis
from ...capture.errors import RecordingError, UsageError
from ...capture.moments import Limits, Moments, Saved
from ...capture.ring import Keep, Ring
from ...files.folder import Folder, find
from ...reports.wireshark.comments import list_comments, make_comment
from .options import Options

FOR_TIMELINES = Keep(age_ns=60 * 10**9, bytes=64 * 10**6)
"""What is kept for the view with a keyboard: as long as its calls are listed."""


class FlightRecorder:
    """Keeps the last packets, and writes those around moments at which a trigger began to be met."""

    def __init__(self, options: Options, user: pwd.struct_passwd | None) -> None:
        """Take the folder, whose ring may be of an earlier run. Raises RecordingError."""
        self.ring: Ring | None = None
        """None without triggers."""
        self._moments: Moments | None = None
        self._triggers = options.triggers
        self._met: set[str] = set()
        self._stream: object = None
        """The stream that the ring takes."""
        self._broken: RecordingError | None = None
        """Why it takes no more of that."""
        self._told: list[str] = []
        self._lost_packets = 0
        self._stack = ExitStack()
        has_triggers = options.folder is not None and bool(options.triggers)
        if not has_triggers and not options.has_keyboard:
            return
        keep = options.keep or (Keep(age_ns=60 * 10**9) if has_triggers else FOR_TIMELINES)
        with ExitStack() as stack:
            path = options.folder if has_triggers else None
            if path is None:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpcdiag-")))
            try:
                folder = _take_folder(path, user if has_triggers else None, stack)
                self.ring = Ring(folder, keep)
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}") from None
            self._stack = stack.pop_all()
        if has_triggers:
            limits = Limits(before_ns=min(keep.age_ns, Limits.before_ns), per_hour=options.per_hour)
            self._moments = Moments(self.ring, folder, path, limits)

    def begin_stream(self) -> Callable[[bytes], None] | None:
        """Expect another stream; give the function that keeps its pieces, until another one begins."""
        if self.ring is None:
            return None
        with self.ring.lock:
            self.ring.begin_stream()
            self._stream, self._broken = object(), None
        return partial(self._keep, self.ring, self._stream)

    def _keep(self, ring: Ring, stream: object, piece: bytes) -> None:
        with ring.lock:
            if stream is not self._stream:
                return
            try:
                ring.add(piece)
            except RecordingError as error:
                self._broken, self._stream = error, None

    def judge(self, now_ns: int, packets: int, window: Window, analysis: Analysis) -> list[str]:
        """List what meets triggers; where that begins, the packets around it are to be written."""
        met = {one.text: why for one in self._triggers if (why := one.judge(analysis))}
        for text in sorted(met.keys() - self._met):
            reason = f"{text}: {met[text]}"
            if self._moments:
                comments = [*list_comments(analysis, window.tables), (packets, make_comment(f"watch: {reason}"))]
                self._moments.note(now_ns, reason, comments)
        self._met = set(met)
        return [f"{text}: {why}" for text, why in met.items()]

    def settle(self, now_ns: int, *, over: bool = False) -> tuple[Saved | None, list[str]]:
        """Write what is due, and remove old packets; give the capture written, and problems that are new.

        Raises UsageError if the first stream is none that can be kept.
        """
        saved, problems = None, list[str]()
        if self.ring is None:
            return saved, problems
        try:
            saved = self._moments.write_due(now_ns, over=over) if self._moments else None
        except RecordingError as error:
            problems.append(str(error))
        with self.ring.lock:
            try:
                self.ring.expire(now_ns, self._moments.held_ns if self._moments else 1 << 62)
            except OSError as error:
                problems.append(f"old packets are not removed: {error.strerror}")
            lost, self._lost_packets = self._lost_packets, self.ring.lost_packets
            if self.ring.error and lost < self._lost_packets:
                problems.append(f"packets are not kept: {self.ring.error.strerror}")
            if isinstance(self._broken, UsageError) and self._moments and not self.ring.earlier_packets:
                raise UsageError(f"--trigger needs a stream that can be kept: {self._broken}")
            if self._broken:
                problems.append(f"the rest of the packets is not kept: {self._broken}")
        told, self._told = self._told, problems
        return saved, [one for one in problems if one not in told]

    def write_between(self, from_ns: int, to_ns: int, out: IO[bytes]) -> int:
        """Write packets of that time, and give their number. Raises OSError and RecordingError."""
        if self.ring is None:
            raise RecordingError("no packets are kept")
        with self.ring.lock:
            excerpt = self.ring.select(from_ns, to_ns, ())
        with closing(excerpt):
            out.writelines(excerpt.list_pieces())
        return excerpt.packets

    def measure(self) -> tuple[int | None, int]:
        """Measure the ring in bytes, None without one, and count the packets that could not be written."""
        return (self.ring.size, self.ring.lost_packets) if self.ring else (None, 0)

    @property
    def refused(self) -> int:
        """Count the moments that were not written because of the limits."""
        return self._moments.refused if self._moments else 0

    def close(self) -> None:
        """Leave the folder; the ring stays for the next run."""
        if self.ring:
            with self.ring.lock:
                self._stream = None
                self.ring.close()
        self._stack.close()


def _take_folder(path: Path, user: pwd.struct_passwd | None, stack: ExitStack) -> Folder:
    """Make a folder that only its owner can read, and take it for this process alone. Raises OSError, UsageError.

    One that is there must be the user's own, and nobody else may change it: what is in it is removed and written again.
    """
    _make_folder(path, user)
    folder = stack.enter_context(find(path / "ring", user)).folder
    held = folder.open(".", os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, held)
    status = os.fstat(held)
    if status.st_uid != folder.uid or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        whose = "is another user's" if status.st_uid != folder.uid else "can be changed by others (chmod go-w)"
        raise UsageError(f"{path} {whose}: name a folder of your own, or a new one")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{path}: another grpcdiag watch keeps its packets there: name another folder") from None
    return folder


def _make_folder(path: Path, user: pwd.struct_passwd | None) -> None:
    """Make a folder and those above it, unless they are there. Raises OSError."""
    for one in (*reversed(path.parents), path):
        with suppress(IsADirectoryError), find(one, user) as place:
            place.folder.make_folder(place.name, 0o700)
