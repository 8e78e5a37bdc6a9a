"""Processes that are recorded: their threads, and whether their number is still theirs."""

import contextlib
import os
import re
import select

from .tracefs import Refused, read

MOST_THREADS = 4096
"""Most threads of a process that ran before the recording (heuristic: ten times a large pool)."""

_ENDS = 4
"""PF_EXITING (linux/sched.h), a flag of proc_pid_stat(5)."""


class Running:
    """A process. Its pidfd keeps telling it from one that gets its number later."""

    def __init__(self, pid: int, uid: int | None = None) -> None:
        """Open it; `uid` is the only user whose processes may be recorded. Raises Refused and OSError."""
        self.pid = pid
        self._waiting = select.poll()
        try:
            self._waiting.register(os.pidfd_open(pid), select.POLLIN)
            allowed = uid is None or belongs_to(pid, uid)
        except OSError as error:
            raise Refused(f"process {pid}: {error.strerror}") from None
        self.check_alive()  # so what was read of this number was read of this process
        if not allowed:
            raise Refused(f"process {pid} is not the caller's: only a root login may record it")

    def is_alive(self) -> bool:
        """Check whether the process runs: a pidfd is readable when it has ended."""
        return not self._waiting.poll(0)

    def check_alive(self) -> None:
        """Raise Refused if the process has ended."""
        if not self.is_alive():
            raise Refused(f"process {self.pid} has ended")

    def read_cgroups(self) -> str | None:
        """Read the file that names its cgroups; None if the process has ended, for its number may be another's."""
        with contextlib.suppress(OSError):
            text = read(f"/proc/{self.pid}/cgroup")
            return text if self.is_alive() else None
        return None

    def follow(self, filter_: str) -> list[tuple[int, int, str]] | None:
        """Add its threads to a filter of events; list them with process and name. Raises Refused and OSError.

        None if one ended meanwhile: its number may be another's. The kernel adds threads that these make, and removes
        those that end.
        """
        tasks: dict[int, tuple[int, int, str]] = {}
        folder = f"/proc/{self.pid}/task"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while new := [thread for thread in map(int, os.listdir(folder)) if thread not in tasks]:
                if len(tasks) + len(new) > MOST_THREADS:
                    raise Refused(f"process {self.pid} has more than {MOST_THREADS} threads")
                add_threads(filter_, new)
                for thread in new:
                    tasks[thread] = (thread, self.pid, read(f"{folder}/{thread}/comm").strip())
            self.check_alive()
            return list(tasks.values())
        self.check_alive()
        return None


def read_cgroups(thread: str) -> str | None:
    """Read the file that names a thread's cgroups; None if it ends: the kernel moves it to the first ones then."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        text = read(f"/proc/{thread}/cgroup")
        flags = int(read(f"/proc/{thread}/stat").rpartition(")")[2].split()[6])
        return None if flags & _ENDS else text
    return None


def open_child(pid: int, parent: int) -> Running | None:
    """Open a process that another made; None if it has ended, for its number may be another's."""
    with contextlib.suppress(Refused, OSError):
        child = Running(pid)
        if re.search(rf"^PPid:\s+{parent}$", read(f"/proc/{pid}/status"), re.MULTILINE) and child.is_alive():
            return child
    return None


def belongs_to(pid: int, uid: int) -> bool:
    """Check whether a user may trace a process: all its users are this one, and it had no other's rights before."""
    status = f"/proc/{pid}/status"
    users = re.search(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", read(status), re.MULTILINE)
    # the file is root's if the process may not be dumped, as after a change of user (proc(5)); the folder is not
    return users is not None and {*map(int, users.groups())} == {uid} and os.stat(status).st_uid == uid


def add_threads(filter_: str, threads: list[int]) -> None:
    """Add threads to a filter of events in one step, for the kernel takes long for each step.

    Truncating the file would empty the filter.
    """
    text = "".join(f"{thread} " for thread in threads).encode()
    file = os.open(filter_, os.O_WRONLY)
    try:
        while text:
            text = text[os.write(file, text) :]
    finally:
        os.close(file)
