"""How long cgroups were throttled, because they had used up their quota (cpu.stat)."""

import contextlib
import os
import re
import time
from typing import Any

from .running import Running
from .tracefs import read

CGROUPS = "/sys/fs/cgroup"


def list_cgroups(text: str) -> list[str]:
    """List the folders of a process's cgroups, with all above them; `text` is its file `cgroup`.

    A cgroup outside this process's namespace (`/../`) has no folder here.
    """
    folders = []
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part]
        if ".." in parts or (names and "cpu" not in names.split(",")):
            continue
        for base in dict.fromkeys(
            (f"{CGROUPS}/{names}", f"{CGROUPS}/cpu") if names else (CGROUPS, f"{CGROUPS}/unified")
        ):
            folders += ["/".join([base, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return folders


class Quota:
    """How long the cgroups of a process were throttled."""

    def __init__(self, process: Running | None = None) -> None:
        """Begin with a process, or without one."""
        self.process = process
        self.throttled: list[tuple[int, int]] = []
        self.throttled_ns = 0
        self.processors: float | None = None
        self._counts: dict[str, int] = {}
        self.places = ""
        self._folders: list[str] = []
        self._period_ns = 100_000_000
        self._last_ns = 0

    @property
    def is_hidden(self) -> bool:
        """Check whether the process has cgroups whose quota cannot be read here."""
        return bool(self.places) and not self._folders

    def look(self) -> None:
        """Note how long the cgroup that was throttled most was throttled since the last look."""
        if self.process is None:
            return
        text = self.process.read_cgroups()
        if text and text != self.places:
            with contextlib.suppress(ValueError):
                found = [one for one in list_cgroups(text) if os.path.exists(f"{one}/cpu.stat")]
                self.places, self._folders, self._counts = text, found, {}
                self._read_limit()
        now, counts = time.clock_gettime_ns(time.CLOCK_MONOTONIC), self._count()
        # a cgroup and those above it may be throttled at once, so their times do not add up
        grown = max((count - self._counts.get(folder, count) for folder, count in counts.items()), default=0)
        if grown > 0:
            start = max(self._last_ns - min(grown, self._period_ns), self.throttled[-1][1] if self.throttled else 0)
            self.throttled.append((start, now))
            self.throttled_ns += grown
        self._counts, self._last_ns = self._counts | counts, now

    def describe(self, process: int) -> dict[str, Any]:
        """Describe what was found, for the process that was followed."""
        found = {"throttled": self.throttled, "throttled_ns": self.throttled_ns, "processors": self.processors}
        return {"process": process, **found}

    def _count(self) -> dict[str, int]:
        """Read how many nanoseconds each cgroup was throttled in all."""
        counts = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found = re.search(r"^throttled_(usec|time) (\d+)", read(f"{folder}/cpu.stat"), re.MULTILINE)
                if found:
                    counts[folder] = int(found[2]) * (1000 if found[1] == "usec" else 1)
        return counts

    def _read_limit(self) -> None:
        for folder in self._folders:
            with contextlib.suppress(OSError, ValueError):
                if os.path.exists(f"{folder}/cpu.max"):
                    quota, period = read(f"{folder}/cpu.max").split()
                else:
                    quota = read(f"{folder}/cpu.cfs_quota_us").strip()
                    period = read(f"{folder}/cpu.cfs_period_us").strip()
                if quota not in ("max", "-1"):
                    allowed = int(quota) / int(period)
                    self.processors = min(allowed, self.processors or allowed)
                    self._period_ns = int(period) * 1000
