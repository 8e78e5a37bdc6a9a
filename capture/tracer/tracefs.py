"""The kernel's tracefs: whether it can be used here, and instances of it, each with its own events and rings."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator

ROOTS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
PREFIX = "grpcdiag-"
FOLDER = "/capture/tracer"
"""The end of the program's path in the command line of every tracer, wherever grpcdiag is installed."""
OPTIONAL = {"sock_send_length", "sys_enter_futex", "task_rename"}
PERIOD_S = 0.02
"""Time between two drains."""
BUFFER_KIB = 8192
"""Ring of each processor and instance: a second of a busy one (180,000 events)."""
MOST_BUFFERS_KIB = 524_288
"""Most memory of all rings."""
MEMORY_PARTS = 16
"""The rings take at most this part of the memory that is available (heuristic: what a benchmark does not notice)."""
MOST_AT_ONCE = 16 << 20
"""Most bytes of a ring that are read at once."""
MOST_PORTS = 32
"""Most ports of the kernel's filter of sockets (heuristic: more than a test names)."""
INITIAL = {"pid": "pid:[4026531836]", "time": "time:[4026531834]", "cgroup": "cgroup:[4026531835]"}
"""The kernel's own namespaces (PROC_PID_INIT_INO and others, include/linux/proc_ns.h)."""
PAGE = 65_536
"""Most bytes of a page; the usual is 4,096."""


class Refused(Exception):
    """Tracing is not possible; the message says why."""


class Unsuitable(Refused):
    """Tracing is not possible on this machine, and no setting changes that."""


def read(path: str) -> str:
    """Read a small file."""
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 20)


def write(path: str, text: str) -> None:
    """Write a setting of tracefs."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def find_root() -> str:
    """Find tracefs. Raises Refused."""
    for root in ROOTS:
        if os.path.isdir(f"{root}/instances"):
            return root
    raise Refused("tracefs is not mounted, or only root may read it (mount -t tracefs nodev /sys/kernel/tracing)")


def check_kernel(root: str) -> None:
    """Refuse kernels whose pages are laid out otherwise, and numbers and clocks that are not the kernel's."""
    header = read(f"{root}/events/header_page")
    if sys.byteorder != "little" or not re.search(r"commit;\s*offset:8;\s*size:8;", header):
        raise Unsuitable("its trace pages are not those of a little-endian 64-bit kernel")
    if not is_initial("pid"):  # set_event_pid takes the kernel's numbers
        raise Unsuitable("process numbers in this container are not the kernel's")
    if not is_initial("time"):  # CLOCK_MONOTONIC is not the trace's
        raise Unsuitable("the clock of this container is not the kernel's")


def is_initial(kind: str) -> bool:
    """Check whether this process is in the kernel's own namespace of a kind; an older kernel has no other."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}") == INITIAL[kind]
    except FileNotFoundError:
        return kind != "pid"


def filter_ports(ports: list[int]) -> str:
    """Write the kernel's filter of events of sockets. Raises Refused."""
    if len(ports) > MOST_PORTS:
        raise Refused(f"{len(ports)} ports are too many, {MOST_PORTS} are possible")
    return " || ".join(f"sport == {port} || dport == {port}" for port in ports)


def choose_buffer_kib(cpus: int, memory: str) -> int:
    """Choose the size of a ring; `memory` is /proc/meminfo."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", memory, re.MULTILINE)
    most = min(MOST_BUFFERS_KIB, int(found[1]) // MEMORY_PARTS if found else MOST_BUFFERS_KIB)
    return min(BUFFER_KIB, most // (2 * cpus))


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
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        return any(word.endswith(FOLDER) for word in read(f"/proc/{pid}/cmdline").split("\0"))
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


class Instance:
    """An instance of tracefs with its own events and rings."""

    def __init__(self, root: str, name: str, buffer_kib: int) -> None:
        """Make it, with nothing enabled. Raises OSError."""
        self.path = f"{root}/instances/{PREFIX}{os.getpid()}-{name}"
        os.mkdir(self.path)
        self._pipes: list[int] = []
        self.formats: list[str] = []
        try:
            write(f"{self.path}/trace_clock", "mono")
            write(f"{self.path}/buffer_size_kb", str(buffer_kib))
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


def read_pages(pipe: int) -> Iterator[bytearray]:
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
