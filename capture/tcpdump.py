"""Run tcpdump as a child that never outlives its parent: start it, ask for statistics, stop it, read its messages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import tools
from .errors import RecordingError, UsageError

if TYPE_CHECKING:
    import pwd

GUARD = Path(__file__).with_name("guard.py")
"""See there."""

START_PATIENCE_S = 15.0
"""Longest time until tcpdump listens (heuristic: a busy machine may load it from a slow disk)."""
STOP_PATIENCE_S = 25.0
"""Longest time until tcpdump ends: twice its guard's limit, and a margin."""
LINES_KEPT = 200
"""Most lines of its messages in memory."""

RIGHTS = (
    "recording needs the capabilities CAP_NET_RAW and CAP_NET_ADMIN: run `sudo grpcdiag capture ...` (COMMAND still "
    "runs as you), or give tcpdump these capabilities once: sudo setcap cap_net_raw,cap_net_admin=eip {path}"
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
    """Packets that the kernel put into the buffer, or dropped there; on the loopback device each counts twice."""
    dropped: int
    """Packets dropped because the buffer was full."""
    dropped_by_interface: int = 0
    """Packets dropped by the interface, before the buffer."""


@dataclass(frozen=True)
class Rotation:
    """A ring of files of one size; the oldest is overwritten after `files` files."""

    megabytes: int
    """Size of a file in millions of bytes, as for tcpdump -C."""
    files: int | None = None


def rotation(text: str) -> Rotation:
    """Parse a size and a number of files: `100M`, `1Gx5`. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,9})\s*([kKmMgG]?)(?:[bB])?(?:\s*[xX]\s*(\d{1,6}))?", text.strip())
    scale = {"": 1e-6, "k": 1e-3, "m": 1, "g": 1e3}
    megabytes = int(match[1]) * scale[match[2].lower()] if match else 0
    if not match or megabytes < 1 or match[3] == "0":
        raise UsageError(f"{text!r} is not a rotation: write SIZE or SIZExN, such as 100M or 100Mx10; at least 1M")
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
    flushes: bool = False,
) -> list[str]:
    """Build tcpdump's command line: no promiscuous mode, nanoseconds.

    Every packet is written immediately (-U), unless the guard `flushes` its output.
    """
    line = [path, "-i", interface, "-p", "-n", *(() if flushes else ("-U",)), "--time-stamp-precision=nano"]
    line += ["-s", str(snaplen), "-B", str(buffer_kib), "-w", output]
    if rotate:
        line += ["-C", str(rotate.megabytes)]
        line += ["-W", str(rotate.files)] if rotate.files else []
    line += (
        ["-Z", "root"] if stay_root else []
    )  # otherwise tcpdump switches to its own user, who may not write everywhere
    return [*line, "--", expression]


def _build_setpriv(user: pwd.struct_passwd) -> list[str]:
    """Build the prefix that runs tcpdump as a user with the capabilities to record and no other of root's.

    tcpdump's own -Z keeps CAP_DAC_OVERRIDE (with libcap-ng), so it could write through links. Raises RecordingError.
    """
    tool = tools.find("setpriv")
    if tool is None:
        raise RecordingError("recording as root for a user needs setpriv: apt install util-linux")
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
        flushes: bool = False,
    ) -> None:
        """Start tcpdump with the command line of `arguments`. Raises RecordingError.

        `stdout` is where `-w -` writes, `user` is the user as whom root runs it, `mode` is the mode of its files.
        `flushes` is as for `arguments`.
        """
        self.line = tuple(line)
        self._said: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(GUARD),
                *(("--flush",) if flushes else ()),
                *tools.list_prefix(),
                *(_build_setpriv(user) if user else ()),
                *line,
            ],
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
        """Say whether tcpdump still records."""
        return self._process.poll() is None

    def listen(self) -> None:
        """Return when packets are being recorded. Raises UsageError and RecordingError with tcpdump's message.

        tcpdump prints "listening on" when its socket is bound and its filter is set: from then on the kernel buffers
        packets.
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
        raise self._make_error()

    def _make_error(self) -> RecordingError:
        words = self.words or "no message"
        if "permission to" in words or "Operation not permitted" in words:
            return RecordingError(f"{words}\n{RIGHTS.format(path=self.line[0])}")
        if "parse filter" in words or "syntax error" in words or "unknown host" in words:
            return UsageError(f"wrong filter: {words}")
        if "No such device" in words:
            return UsageError(words)
        if "Permission denied" in words:
            words += (
                "\ntcpdump may not write there, or you may not run it: AppArmor's profile allows names that end in "
                ".pcap, and root runs tcpdump as the user for whom it records"
            )
        return RecordingError(f"tcpdump does not record: {words}")

    @property
    def words(self) -> str:
        """Join tcpdump's messages, without statistics and announcements."""
        quiet: tuple[str, ...] = ("listening on", "data link type", "packets captured", "packet captured")
        quiet += ("received by filter", "dropped by", "verbose output", "dropped privs")
        with self._news:
            lines = [line for line in self._said if line and not any(word in line for word in quiet)]
        return "; ".join(line.removeprefix("tcpdump: ") for line in lines)

    @property
    def counts(self) -> Counts | None:
        """Parse the last statistics; None before the first ones."""
        found: dict[str, int] = {}
        with self._news:
            for line in self._said:
                found |= {name: int(m[1]) for name, pattern in _COUNTS.items() if (m := pattern.search(line))}
        return Counts(**found) if {"captured", "received", "dropped"} <= set(found) else None

    def ask(self, patience_s: float = 1.0) -> Counts | None:
        """Ask for current statistics; None if tcpdump does not answer."""
        assert self._process.stdin is not None
        with self._news:
            before = self._answers()
            try:
                self._process.stdin.write(b"s")
                self._process.stdin.flush()
            except OSError:
                return None
            answered = self._news.wait_for(lambda: self._answers() > before or not self.alive, patience_s)
            # every request adds an answer, but only the last one is needed
            kept = [place for place, line in enumerate(self._said) if "received by filter, " in line][:-1]
            for place in reversed(kept):
                del self._said[place]
        return self.counts if answered else None

    def _answers(self) -> int:
        return sum("received by filter, " in line for line in self._said)

    def stop(self) -> int:
        """Let tcpdump write its buffered packets and end, and return its exit code. A second call does nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guard may have ended
            self._process.stdin.close()
        try:
            code = self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # and tcpdump, which the guard may have stopped
            code = self._process.wait()
        self._reader.join(1.0)
        return code


def start_deaf(thread: threading.Thread) -> None:
    """Start a thread that gets no signals: the main thread waits for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find() -> str:
    """Find the path of tcpdump. Raises RecordingError."""
    path = tools.find("tcpdump")
    if path is None:
        raise RecordingError("tcpdump is not installed: apt install tcpdump, or dnf install tcpdump")
    return path
