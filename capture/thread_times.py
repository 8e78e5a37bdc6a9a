"""Measure how long a command's threads ran and were ready, as the kernel tells every user: in all, not when."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .tracer.quota import Quota
from .tracer.running import Running

MOST_THREADS = 1000
"""Most threads that are looked at (heuristic: a look then takes some 20 ms)."""


class ThreadTimes:
    """The times of the threads of a command and its children (/proc/PID/task/TID/schedstat), and its CPU quota.

    A thread that lives less than the time between two looks is missing, as is the time after the last one.
    """

    def __init__(self, pid: int) -> None:
        """Begin. Raises Refused and OSError if the command has ended."""
        self._pid = pid
        self._quota = Quota(Running(pid))
        self._began_ns = self._last_ns = time.monotonic_ns()
        self._known: dict[int, tuple[int, int]] = {}
        self._ran_ns = self._ready_ns = 0
        self._has_more = False

    def look(self) -> None:
        """Add what the threads did since the last look; with too many of them nothing is counted any more."""
        if self._has_more:
            return
        self._quota.look()
        self._quota.throttled.clear()  # only their sum is used
        found: dict[int, tuple[int, int]] = {}
        for thread, place in _list_threads(self._pid):
            if len(found) == MOST_THREADS:
                self._has_more = True
                return
            with contextlib.suppress(OSError, ValueError):  # it may have ended
                ran, ready, _ = map(int, (place / "schedstat").read_text(encoding="ascii").split())
                found[thread] = ran, ready
                before = self._known.get(thread, (0, 0))
                if ran >= before[0] and ready >= before[1]:  # or its number is another's now
                    self._ran_ns, self._ready_ns = self._ran_ns + ran - before[0], self._ready_ns + ready - before[1]
        if found:
            self._known, self._last_ns = found, time.monotonic_ns()

    def describe(self) -> dict[str, Any] | None:
        """Give the sums; None if the kernel does not count them, or if there were too many threads."""
        if self._has_more or not self._ran_ns:
            return None
        return {
            "elapsed_ns": self._last_ns - self._began_ns,
            "ran_ns": self._ran_ns,
            "ready_ns": self._ready_ns,
            "throttled_ns": self._quota.throttled_ns,
            "processors": self._quota.processors,
        }


def _list_threads(pid: int) -> Iterator[tuple[int, Path]]:
    """List the threads of a process and of its children, each with its folder."""
    processes = [pid]
    while processes:
        with contextlib.suppress(OSError):  # it may have ended
            for place in Path(f"/proc/{processes.pop()}/task").iterdir():
                yield int(place.name), place
                with contextlib.suppress(OSError):
                    processes += map(int, (place / "children").read_text(encoding="ascii").split())
