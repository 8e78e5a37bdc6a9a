"""tcpdump as a child that never outlives its parent: started, asked, stopped, and its words read."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import tools
from .errors import RecordingError, UsageError

GUARD = Path(__file__).with_name("guard.py")
"""See there."""

START_PATIENCE_S = 15.0
"""How long tcpdump may take until it listens (own choice: a busy machine loads it from a slow disk)."""
STOP_PATIENCE_S = 25.0
"""How long it may take to end: twice what its guard allows, and a little."""
LINES_KEPT = 200
"""Lines of its messages that are kept."""

RIGHTS = (
    "recording needs the capabilities CAP_NET_RAW and CAP_NET_ADMIN: run `sudo grpcdiag capture ...` (COMMAND still "
    "runs as you), or give tcpdump the right once: sudo setcap cap_net_raw,cap_net_admin=eip {path}"
)
"""What to do without privileges."""

_COUNTS = {
    "captured": re.compile(r"(\d+) packets? captured"),
    "received": re.compile(r"(\d+) packets? received by filter"),
    "dropped": re.compile(r"(\d+) packets? dropped by kernel"),
    "dropped_by_interface": re.compile(r"(\d+) packets? dropped by interface"),
}


@dataclass(frozen=True)
class Counts:
    """tcpdump's statistics."""

    captured: int
    """Packets written."""
    received: int
    """Packets that the kernel put into the buffer, or wanted to; on the loopback device each counts twice."""
    dropped: int
    """Packets lost because the buffer was full."""
    dropped_by_interface: int = 0
    """Packets lost before."""


@dataclass(frozen=True)
class Rotation:
    """A flight recorder: files of a size, the oldest overwritten when there are more than `files`."""

    megabytes: int
    """Millions of bytes, as tcpdump -C counts."""
    files: int | None = None


def rotation(text: str) -> Rotation:
    """`100M`, `1Gx5`: a size and how many files of it. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,9})\s*([kKmMgG]?)(?:[bB])?(?:\s*[xX]\s*(\d{1,6}))?", text.strip())
    scale = {"": 1e-6, "k": 1e-3, "m": 1, "g": 1e3}
    megabytes = int(match[1]) * scale[match[2].lower()] if match else 0
    if not match or megabytes < 1 or match[3] == "0":
        raise UsageError(f"{text!r} is no rotation: write SIZE or SIZExN, such as 100M or 100Mx10; 1M is the least")
    return Rotation(round(megabytes), int(match[3]) if match[3] else None)


def arguments(
    path: str,
    *,
    interface: str,
    expression: str,
    output: str,
    snaplen: int = 0,
    buffer_kib: int = 65_536,
    rotate: Rotation | None = None,
    stay_root: bool = False,
) -> list[str]:
    """tcpdump's command line: no promiscuous mode, nanoseconds, every packet written at once (-U)."""
    line = [path, "-i", interface, "-p", "-n", "-U", "--time-stamp-precision=nano"]
    line += ["-s", str(snaplen), "-B", str(buffer_kib), "-w", output]
    if rotate:
        line += ["-C", str(rotate.megabytes)]
        line += ["-W", str(rotate.files)] if rotate.files else []
    line += ["-Z", "root"] if stay_root else []  # else it becomes a user of its own, who may not write everywhere
    return [*line, "--", expression]


def _as_user(user: pwd.struct_passwd) -> list[str]:
    """What stands before tcpdump's command line so that it runs as a user who may record, with nothing else of root's.

    tcpdump's own -Z keeps CAP_DAC_OVERRIDE (with libcap-ng), with which it writes through links. Raises RecordingError.
    """
    tool = tools.find("setpriv")
    if tool is None:
        raise RecordingError("root records for users with setpriv, which is not installed: apt install util-linux")
    rights = "-all,+net_raw,+net_admin"
    words = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups"]
    words += [f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    return [tool, *words, "--"]


class Tcpdump:
    """A running tcpdump. Stops when this object is closed or its process ends."""

    def __init__(
        self,
        line: Sequence[str],
        stdout: int = subprocess.DEVNULL,
        *,
        user: pwd.struct_passwd | None = None,
        mode: int = 0o600,
    ) -> None:
        """Start it with the arguments of `arguments`; `stdout` is where `-w -` writes. Raises RecordingError.

        `user` is whom root runs it as, `mode` that of the files that it makes itself.
        """
        self.line = tuple(line)
        self._said: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), *(_as_user(user) if user else ()), *line],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the command, not for the recording
            umask=0o777 & ~mode,
            env={**os.environ, "LC_ALL": "C"},
        )
        self._reader = threading.Thread(target=self._read, name="grpcdiag-tcpdump", daemon=True)
        start_deaf(self._reader)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            with self._news:
                self._said.append(raw.decode(errors="replace").strip())
                del self._said[LINES_KEPT // 2 : -LINES_KEPT // 2]
                self._news.notify_all()

    @property
    def alive(self) -> bool:
        """Whether it still records."""
        return self._process.poll() is None

    def listen(self) -> None:
        """Return when packets are recorded. Raises UsageError and RecordingError with its own words.

        tcpdump says "listening on" when its socket is bound and its filter set: from then on the kernel keeps what
        passes.
        """
        until = time.monotonic() + START_PATIENCE_S
        with self._news:
            while not any("listening on" in line for line in self._said):
                left = until - time.monotonic()
                if left <= 0 or not self.alive:
                    break
                self._news.wait(min(left, 0.05))
            else:
                return
        self.stop()
        raise self._refusal()

    def _refusal(self) -> RecordingError:
        words = self.words or "it said nothing"
        if "permission to" in words or "Operation not permitted" in words:
            return RecordingError(f"{words}\n{RIGHTS.format(path=self.line[0])}")
        if "parse filter" in words or "syntax error" in words or "unknown host" in words:
            return UsageError(f"wrong filter: {words}")
        if "No such device" in words:
            return UsageError(words)
        if "Permission denied" in words:
            words += (
                "\ntcpdump may not write there or not be run by you: AppArmor's profile of it allows names that end in "
                ".pcap, and root runs it as the user for whom it records"
            )
        return RecordingError(f"tcpdump does not record: {words}")

    @property
    def words(self) -> str:
        """What it said, apart from its statistics and announcements."""
        quiet: tuple[str, ...] = ("listening on", "data link type", "packets captured", "packet captured")
        quiet += ("received by filter", "dropped by", "verbose output", "dropped privs")
        with self._news:
            lines = [line for line in self._said if line and not any(word in line for word in quiet)]
        return "; ".join(line.removeprefix("tcpdump: ") for line in lines)

    @property
    def counts(self) -> Counts | None:
        """The statistics it gave last; None before the first ones."""
        found: dict[str, int] = {}
        with self._news:
            for line in self._said:
                found |= {name: int(m[1]) for name, pattern in _COUNTS.items() if (m := pattern.search(line))}
        return Counts(**found) if {"captured", "received", "dropped"} <= set(found) else None

    def ask(self, patience_s: float = 1.0) -> Counts | None:
        """Its statistics as they are now; None when it does not answer."""
        assert self._process.stdin is not None
        with self._news:
            before = self._answers()
            try:
                self._process.stdin.write(b"s")
                self._process.stdin.flush()
            except OSError:
                return None
            answered = self._news.wait_for(lambda: self._answers() > before or not self.alive, patience_s)
            # an answer each time, some hundred times at the most: only the last one is of use
            kept = [place for place, line in enumerate(self._said) if "received by filter, " in line][:-1]
            for place in reversed(kept):
                del self._said[place]
        return self.counts if answered else None

    def _answers(self) -> int:
        return sum("received by filter, " in line for line in self._said)

    def stop(self) -> int:
        """Let it write what it has and end; its exit code. Does nothing the second time."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its reader may have gone
            self._process.stdin.close()
        try:
            code = self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(1.0)
        return code


def start_deaf(thread: threading.Thread) -> None:
    """Start a thread to which the kernel delivers no signals: they are for the main thread, which waits for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find() -> str:
    """Path of tcpdump. Raises RecordingError."""
    path = tools.find("tcpdump")
    if path is None:
        raise RecordingError("tcpdump is not installed: apt install tcpdump, or dnf install tcpdump")
    return path
