"""Record what the scheduler does with a command's threads. Root runs this file as a script, without capabilities.

It writes the record to standard output, which the caller opened, and opens nothing for writing but its own instances
of tracefs. Standard input is a pipe: a line holds the command's process, and its end asks for an orderly stop. The
kernel closes the pipe when the caller ends, even if it was killed. The instances are removed at the end; those of a
tracer that was killed are removed by its caller, or by the next tracer.

The record is a sequence of blocks: a letter, four bytes of length, and the content (docs/processes.md).
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import signal
import struct
import sys
import time
from typing import Any

ROOTS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
SCHEMA = "grpcdiag.processes/1"
PREFIX = "grpcdiag-"
OWN = {"sched": ["sched_waking"], "task": ["task_newtask", "task_rename"], "sock": ["sock_send_length"]}
"""Events of the command's threads alone."""
FULL = {"syscalls": ["sys_enter_futex"]}
"""More of them, with --processes full."""
ALL = {"sched": ["sched_switch"]}
"""Events of all threads: a processor is also busy with others."""
STATES = {"sock": ["inet_sock_set_state"]}
"""Of the capture's ports, events of all threads, because interrupts accept connections; else the command's alone."""
OPTIONAL = {"sock_send_length", "sys_enter_futex", "task_rename"}
PERIOD_S = 0.02
"""Time between two drains."""
BUFFER_KIB = 8192
"""Ring of each processor and instance: a second of a busy one (180,000 events)."""
MOST_BUFFERS_KIB = 524_288
"""Most memory of all rings."""
MOST_AT_ONCE = 16 << 20
"""Most bytes of a ring that are read at once."""
MOST_THREADS = 4096
"""Most threads of a process that ran before the recording (heuristic: ten times a large pool)."""
ATTEMPTS = 50
"""Times that these are listed until none of them ends meanwhile."""
MOST_PORTS = 32
"""Most ports of the kernel's filter of sockets (heuristic: more than a test names)."""
INITIAL_PIDS = "pid:[4026531836]"
"""The PID namespace of the kernel's own numbers (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
PAGE = 65_536
"""Most bytes of a page; the usual is 4,096."""
MOST_BYTES = 256 << 20
"""Largest record: some minutes of a busy benchmark."""
CGROUPS = "/sys/fs/cgroup"
ELSEWHERE_S = 1.0
"""Time between two looks at the cgroups of all recorded threads."""


class Refused(Exception):
    """Tracing is not possible here; the message says why."""


def read(path: str) -> str:
    """Read a small file."""
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 20)


def write(path: str, text: str) -> None:
    """Write a setting of tracefs."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


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


def find_root() -> str:
    """Find tracefs. Raises Refused."""
    for root in ROOTS:
        if os.path.isdir(f"{root}/instances"):
            return root
    raise Refused("tracefs is not mounted, or only root may read it (mount -t tracefs nodev /sys/kernel/tracing)")


def check_kernel(root: str) -> None:
    """Refuse kernels whose pages are laid out otherwise, and process numbers that are not the kernel's."""
    header = read(f"{root}/events/header_page")
    if sys.byteorder != "little" or not re.search(r"commit;\s*offset:8;\s*size:8;", header):
        raise Refused("its trace pages are not those of a little-endian 64-bit kernel")
    if os.readlink("/proc/self/ns/pid") != INITIAL_PIDS:  # set_event_pid takes the kernel's numbers
        raise Refused("process numbers in this container are not the kernel's")


def filter_ports(ports: list[int]) -> str:
    """Write the kernel's filter of events of sockets. Raises Refused."""
    if len(ports) > MOST_PORTS:
        raise Refused(f"{len(ports)} ports are too many, {MOST_PORTS} are possible")
    return " || ".join(f"sport == {port} || dport == {port}" for port in ports)


def remove_stale(root: str) -> None:
    """Remove instances of tracers that were killed; before an instance of this process is made."""
    for name in os.listdir(f"{root}/instances"):
        owner = re.fullmatch(rf"{PREFIX}(\d+)-(own|all)", name)
        if owner and (int(owner[1]) == os.getpid() or not is_tracer(int(owner[1]))):
            with contextlib.suppress(OSError):
                os.rmdir(f"{root}/instances/{name}")


def is_tracer(pid: int) -> bool:
    """Check whether a number is that of a running tracer; another process or thread may have got it since."""
    try:
        return os.path.basename(__file__) in read(f"/proc/{pid}/cmdline")
    except OSError:
        return False


def remove_instance(path: str) -> None:
    """Remove an instance with its rings."""
    with contextlib.suppress(OSError):
        write(f"{path}/tracing_on", "0")
    for _ in range(50):  # events in flight keep an instance busy for a moment
        with contextlib.suppress(OSError):
            os.rmdir(path)
        if not os.path.exists(path):
            return
        time.sleep(PERIOD_S)


def remove_instances_of(pid: int) -> None:
    """Remove the instances of a tracer that was killed. Raises Refused and OSError."""
    root = find_root()
    check_kernel(root)
    for name in ("own", "all"):
        remove_instance(f"{root}/instances/{PREFIX}{pid}-{name}")


class Running:
    """A process that ran before the recording. Its pidfd keeps telling it from one that gets its number later."""

    def __init__(self, pid: int, uid: int | None) -> None:
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


def belongs_to(pid: int, uid: int) -> bool:
    """Check whether a user may trace a process: all its users are this one, and it had no other's rights before."""
    status = f"/proc/{pid}/status"
    users = re.search(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", read(status), re.MULTILINE)
    # the file is root's if the process may not be dumped, as after a change of user (proc(5)); the folder is not
    return users is not None and {*map(int, users.groups())} == {uid} and os.stat(status).st_uid == uid


class Instance:
    """An instance of tracefs with its own events and rings."""

    def __init__(self, root: str, name: str, cpus: int) -> None:
        """Make it, with nothing enabled. Raises OSError."""
        self.path = f"{root}/instances/{PREFIX}{os.getpid()}-{name}"
        os.mkdir(self.path)
        self._pipes: list[int] = []
        self.formats: list[str] = []
        try:
            write(f"{self.path}/trace_clock", "mono")
            write(f"{self.path}/buffer_size_kb", str(min(BUFFER_KIB, MOST_BUFFERS_KIB // (2 * cpus))))
        except OSError:  # no room for the rings
            self.remove()
            raise

    def enable(self, events: dict[str, list[str]]) -> None:
        """Enable events; those that this kernel lacks are left out if they are optional. Raises OSError."""
        for system, names in events.items():
            for name in names:
                place = f"{self.path}/events/{system}/{name}"
                if name in OPTIONAL and not os.path.exists(place):
                    continue
                self.formats.append(read(f"{place}/format"))
                write(f"{place}/enable", "1")

    def open(self) -> None:
        """Open the rings. Raises OSError."""
        found = (re.fullmatch(r"cpu(\d+)", name) for name in os.listdir(f"{self.path}/per_cpu"))
        self._cpus = sorted(int(name[1]) for name in found if name)
        for cpu in self._cpus:
            ring = f"{self.path}/per_cpu/cpu{cpu}/trace_pipe_raw"
            self._pipes.append(os.open(ring, os.O_RDONLY | os.O_NONBLOCK))

    def drain(self) -> list[tuple[int, list[bytearray]]]:
        """Read the pages of each processor."""
        return [(cpu, list(read_pages(pipe))) for cpu, pipe in zip(self._cpus, self._pipes, strict=True)]

    def count_lost(self) -> int:
        """Count the events that found no room in a ring."""
        texts = [read(f"{self.path}/per_cpu/cpu{cpu}/stats") for cpu in self._cpus]
        return sum(int(n) for text in texts for n in re.findall(r"^(?:overrun|dropped events): (\d+)", text, re.M))

    def stop(self) -> None:
        """Record no more events."""
        write(f"{self.path}/tracing_on", "0")

    def remove(self) -> None:
        """Remove the instance with its rings."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
        remove_instance(self.path)


def read_pages(pipe: int) -> Any:
    """Yield what a ring holds, page by page."""
    found = 0
    while found < MOST_AT_ONCE:
        try:
            page = os.read(pipe, PAGE)
        except BlockingIOError:
            return
        if not page:
            return
        found += len(page)
        yield bytearray(page)


def measure_offset() -> tuple[int, int]:
    """Measure the capture's clock less the trace's, and by how much it may be wrong; nanoseconds."""
    best = (0, 1 << 62)
    for _ in range(50):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (now - (before + after) // 2, after - before), key=lambda pair: pair[1])
    return best


def list_cgroups(text: str) -> list[str]:
    """List the folders of a process's cgroups, with all above them; `text` is its file `cgroup`."""
    folders = []
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        if names and "cpu" not in names.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for base in dict.fromkeys(
            (f"{CGROUPS}/{names}", f"{CGROUPS}/cpu") if names else (CGROUPS, f"{CGROUPS}/unified")
        ):
            folders += ["/".join([base, *parts[:depth]]) for depth in range(len(parts), 0, -1)]
    return folders


class Quota:
    """How long the cgroups of a process were throttled."""

    def __init__(self, pid: int | None = None) -> None:
        """Begin with a process, or without one."""
        self.pid = pid
        self.throttled: list[tuple[int, int]] = []
        self.throttled_ns = 0
        self.processors: float | None = None
        self._counts: dict[str, int] = {}
        self.places = ""
        self._folders: list[str] = []
        self._period_ns = 100_000_000
        self._last_ns = 0

    def look(self) -> None:
        """Note how long the cgroup that was throttled most was throttled since the last look."""
        if self.pid is None:
            return
        with contextlib.suppress(OSError, ValueError):  # the process may have ended
            text = read(f"/proc/{self.pid}/cgroup")
            if text != self.places:
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


class Tracer:
    """A recording of the scheduler."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        """Load what redacts and compresses pages."""
        loader = importlib.machinery.ExtensionFileLoader("_core", wanted["core"])
        spec = importlib.util.spec_from_file_location("_core", wanted["core"], loader=loader)
        assert spec is not None
        self._core = importlib.util.module_from_spec(spec)
        loader.exec_module(self._core)
        self._wanted = wanted
        self._instances: list[Instance] = []
        self._written = 0
        self._running = [Running(pid, wanted["uid"]) for pid in wanted["pids"]]
        self._quotas: dict[int, Quota] = {}
        self._stopped = False
        self._elsewhere = False
        self._next_s = 0.0

    def run(self) -> None:
        """Record until standard input ends. Raises Refused and OSError."""
        try:
            self._begin()
            os.write(2, b"ready\n")
            self._drain_until_end()
            self._end()
            if self._written >= MOST_BYTES:
                raise Refused(f"it reached {MOST_BYTES >> 20} MiB, and is not used: record shorter runs")
        finally:
            for instance in self._instances:
                instance.remove()

    def _begin(self) -> None:
        root = find_root()
        check_kernel(root)
        remove_stale(root)
        cpus = os.cpu_count() or 1
        own = Instance(root, "own", cpus)
        self._instances.append(own)
        everything = Instance(root, "all", cpus)
        self._instances.append(everything)
        tasks = self._follow(own)
        if ports := filter_ports(self._wanted["ports"]):
            write(f"{everything.path}/events/sock/inet_sock_set_state/filter", ports)
        (everything if ports else own).enable(STATES)
        own.enable(OWN)
        if self._wanted["full"]:
            own.enable(FULL)
        everything.enable(ALL)
        for instance in self._instances:
            instance.open()
        formats = [*own.formats, *everything.formats]
        self._pages = self._core.TracePages(formats, os.urandom(32))
        offset, uncertainty = measure_offset()
        self._write_json(
            {
                "schema": SCHEMA,
                "clock": "mono",
                "offset_ns": offset,
                "uncertainty_ns": uncertainty,
                "formats": formats,
                "tasks": tasks,
                "processors": cpus,
                "full": self._wanted["full"],
                "started_time_ns": time.time_ns(),
            }
        )

    def _follow(self, own: Instance) -> list[tuple[int, int, str]]:
        """Record the command's threads, which the parent will make, and those of running processes."""
        write(f"{own.path}/options/event-fork", "1")
        filter_, parent = f"{own.path}/set_event_pid", self._wanted["parent"]
        self._quotas = {process.pid: Quota(process.pid) for process in self._running}
        tasks = []
        if parent:
            self._quotas[parent] = Quota()
            tasks.append((parent, parent, "grpcdiag"))
        for _ in range(ATTEMPTS):
            write(filter_, "")  # opening it empties it; no event is enabled yet
            if parent:
                add_threads(filter_, [parent])
            found = [process.follow(filter_) for process in self._running]
            if None not in found:
                return tasks + [task for some in found for task in some or []]
        raise Refused("threads of the processes end too often")

    def _look(self) -> None:
        for process in self._running:
            if not process.is_alive():  # another process may get its number
                self._quotas[process.pid].pid = None
        for quota in self._quotas.values():
            quota.look()
        if not self._elsewhere and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + ELSEWHERE_S
            self._elsewhere = self._is_elsewhere()

    def _is_elsewhere(self) -> bool:
        """Check whether a recorded thread is in a cgroup that is not watched, so that its quota is not known."""
        watched = {quota.places for quota in self._quotas.values()}
        if "" in watched:  # the command has not begun
            return False
        for thread in read(f"{self._instances[0].path}/set_event_pid").split()[:MOST_THREADS]:
            with contextlib.suppress(OSError):  # it may have ended
                if int(thread) != self._wanted["parent"] and read(f"/proc/{thread}/cgroup") not in watched:
                    return True
        return False

    def _write_block(self, letter: bytes, content: bytes) -> None:
        text = letter + struct.pack("<I", len(content)) + content
        self._written += len(text)
        while text:
            text = text[os.write(1, text) :]

    def _write_json(self, document: dict[str, Any]) -> None:
        self._write_block(b"J", json.dumps(document).encode())

    def _drain(self) -> None:
        for instance in self._instances:
            for cpu, pages in instance.drain():
                if pages:
                    self._write_block(b"P", struct.pack("<H", cpu) + self._pages.compress(pages))

    def _drain_until_end(self) -> None:
        asked = select.poll()
        asked.register(0, select.POLLIN)
        while not self._stopped and self._written < MOST_BYTES:
            if asked.poll(PERIOD_S * 1000):
                request = os.read(0, 64)
                if not request:
                    return
                self._quotas[self._wanted["parent"]].pid = int(request.split()[-1])
            self._drain()
            self._look()

    def stop(self, number: int, frame: object) -> None:
        """Stop at a signal."""
        self._stopped = True

    def _end(self) -> None:
        for instance in self._instances:
            instance.stop()
        self._drain()
        self._look()
        offset, uncertainty = measure_offset()
        self._write_json(
            {
                "offset_ns": offset,
                "uncertainty_ns": uncertainty,
                "lost_events": sum(instance.count_lost() for instance in self._instances),
                "elsewhere": self._elsewhere,
                "quotas": [quota.describe(process) for process, quota in self._quotas.items()],
                "cut": self._written >= MOST_BYTES,
                "cost_ns": time.process_time_ns(),
                "ended_time_ns": time.time_ns(),
            }
        )


def main(arguments: list[str]) -> int:
    """Record until standard input ends; messages are lines on standard error."""
    try:
        tracer = Tracer(json.loads(arguments[0]))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, tracer.stop)
        tracer.run()
    except Refused as refusal:
        os.write(2, f"{refusal}\n".encode())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(2, f"{where}{error.strerror}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
