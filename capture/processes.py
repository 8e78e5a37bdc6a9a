"""Run the tracer, which records what the scheduler does with threads of a command, or of running processes."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..analyzer import _core
from . import command, tools
from .errors import RecordingError
from .tracer import tracefs

Detail = Literal["auto", "off", "on", "full"]
"""Scheduler events where that is possible, nothing, scheduler events, or these and waits for locks."""

START_PATIENCE_S = 10.0
"""Longest time until events are recorded, before the command begins (heuristic: a busy machine needs a second)."""
STOP_PATIENCE_S = 10.0
"""Longest time until the last events are written (heuristic: a busy machine needs a second)."""
_NO_RIGHTS = ("--inh-caps=-all", "--bounding-set=-all", "--")
_MAY_MOUNT = 1 << 21
"""CAP_SYS_ADMIN (linux/capability.h)."""


class UnsuitableError(RecordingError):
    """Threads cannot be recorded here, and the user cannot change that while packets are recorded so."""


def check_possible() -> str:
    """Check that threads can be recorded here, and find setpriv, which starts the tracer. Raises RecordingError."""
    if os.geteuid() != 0:
        raise UnsuitableError("only root may record them (sudo grpcdiag capture ...)")
    try:
        tracefs.check_kernel(tracefs.find_root())
    except (tracefs.Unsuitable, OSError) as error:
        raise UnsuitableError(str(error)) from None
    except tracefs.Refused as refusal:
        raise (RecordingError if _may_mount() else UnsuitableError)(str(refusal)) from None
    setpriv = tools.find("setpriv")
    if setpriv is None:
        raise RecordingError("setpriv of util-linux is not installed")
    return setpriv


def _may_mount() -> bool:
    found = re.search(r"^CapEff:\s+([0-9a-f]+)$", tools.read("/proc/self/status") or "", re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & _MAY_MOUNT)


class Tracer:
    """A running tracer. It ends when this object is closed or its process ends."""

    def __init__(
        self,
        stdout: int,
        ports: Sequence[int],
        detail: Detail,
        pids: Sequence[int] = (),
        *,
        children: bool = True,
        started: bool = False,
    ) -> None:
        """Start it; the record goes to `stdout`. Raises RecordingError if it cannot record.

        It records `children` of this process, and the processes `pids`, which run already: the caller's alone, unless
        this program `started` them.
        """
        setpriv = check_possible()
        caller = None if started else command.choose_user(None)  # whoever asked: root itself may record all
        wanted = {
            "core": _core.__file__,
            "parent": os.getpid() if children else 0,
            "pids": list(dict.fromkeys(pids)),
            "uid": caller.pw_uid if caller else None,
            "ports": list(ports),
            "full": detail == "full",
        }
        program = [sys.executable, "-I", "-S", "-B", str(Path(tracefs.__file__).parent)]
        self._process = subprocess.Popen(
            [setpriv, *_NO_RIGHTS, *program, json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the command, not for the recording
            cwd="/",
        )
        self.cost_ns = 0
        self._answer: str | None = None
        words = self._read_line()
        if words != "ready":
            self._answer = self._stop(STOP_PATIENCE_S if words else 0.0)
            raise RecordingError(words.removeprefix("ready\n") or "the tracer does not answer")

    @property
    def pid(self) -> int:
        """Return the number of the tracer's process, which the names of its instances contain."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Check whether the tracer ended by itself: it failed, was killed, or its record reached the limit."""
        return self._process.poll() is not None

    def _read_line(self) -> str:
        assert self._process.stderr is not None
        ready, until, text = select.poll(), time.monotonic() + START_PATIENCE_S, b""
        ready.register(self._process.stderr, select.POLLIN)
        while b"\n" not in text and (left := until - time.monotonic()) > 0 and ready.poll(left * 1000):
            found = os.read(self._process.stderr.fileno(), 4096)
            if not found:
                break
            text += found
        return text.decode(errors="replace").strip()

    def follow(self, pid: int) -> None:
        """Name the command's process, whose cgroup is watched."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the tracer may have ended
            self._process.stdin.write(b"%d\n" % pid)
            self._process.stdin.flush()

    def stop(self) -> str:
        """Let the tracer write its last events and end; return why the record cannot be used, if it cannot.

        A second call returns the same. Then `cost_ns` is the tracer's own processor time.
        """
        if self._answer is None:
            self._answer = self._stop(STOP_PATIENCE_S)
        return self._answer

    def _stop(self, patience_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        code = self._wait(patience_s)
        if code is None:
            self._process.kill()
            code = self._wait(STOP_PATIENCE_S)
        if code is None:  # the kernel holds it
            return "the tracer does not end"
        words = self._process.stderr.read().decode(errors="replace").strip()
        self._process.stderr.close()
        if code < 0:  # a signal killed it
            with contextlib.suppress(tracefs.Refused, OSError):
                tracefs.remove_instances_of(self.pid)
        if code == 0:
            self.cost_ns = int(words or 0)
            return ""
        return words or f"exit code {code}"

    def _wait(self, patience_s: float) -> int | None:
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
