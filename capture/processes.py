"""Run the tracer, which records what the scheduler does with threads of a command, or of running processes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Literal

from ..analyzer import _core
from . import command, tools, tracer
from .errors import RecordingError

Detail = Literal["off", "on", "full"]
"""Nothing, scheduler events, or these and waits for locks."""

START_PATIENCE_S = 15.0
"""Longest time until events are recorded (heuristic: as for tcpdump)."""
STOP_PATIENCE_S = 25.0
"""Longest time until the last events are written (heuristic: as for tcpdump)."""
_NO_RIGHTS = ("--inh-caps=-all", "--bounding-set=-all", "--")


def may_trace() -> bool:
    """Check whether threads could be recorded here."""
    try:
        tracer.check_kernel(tracer.find_root())
    except (tracer.Refused, OSError):
        return False
    return os.geteuid() == 0 and tools.find("setpriv") is not None


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
        if os.geteuid() != 0:
            raise RecordingError("only root may record them (sudo grpcdiag capture ...)")
        setpriv = tools.find("setpriv")
        if setpriv is None:
            raise RecordingError("setpriv of util-linux is not installed")
        caller = None if started else command.choose_user(None)  # whoever asked: root itself may record all
        wanted = {
            "core": _core.__file__,
            "parent": os.getpid() if children else 0,
            "pids": list(dict.fromkeys(pids)),
            "uid": caller.pw_uid if caller else None,
            "ports": list(ports),
            "full": detail == "full",
        }
        self._process = subprocess.Popen(
            [setpriv, *_NO_RIGHTS, sys.executable, "-I", "-S", tracer.__file__, json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the command, not for the recording
            cwd="/",
        )
        self._answer: str | None = None
        words = self._read_line()
        if words != "ready":
            self.stop()
            raise RecordingError(words or "the tracer does not answer")

    @property
    def pid(self) -> int:
        """The tracer's process, by which its instances are named."""
        return self._process.pid

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
        """Let the tracer write its last events and end; return why the record is incomplete, if it is.

        A second call returns the same.
        """
        if self._answer is None:
            self._answer = self._stop()
        return self._answer

    def _stop(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            code = self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        words = self._process.stderr.read().decode(errors="replace").strip()
        self._process.stderr.close()
        if code < 0:  # a signal killed it
            with contextlib.suppress(tracer.Refused, OSError):
                tracer.remove_instances_of(self.pid)
        return words or f"exit code {code}" if code else ""
