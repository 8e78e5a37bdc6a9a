"""Record what the scheduler does with a command's threads.

The tracer writes the record to standard output, which the caller opened, and opens nothing for writing but its own
instances of tracefs. Standard input is a pipe: a line holds the command's process, and its end asks for an orderly
stop. The kernel closes the pipe when the caller ends, even if it was killed. The instances are removed at the end;
those of a tracer that was killed are removed by its caller, or by the next tracer.

The record is a sequence of blocks: a letter, four bytes of length, and the content (docs/processes.md).
"""

import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import struct
import time
from typing import Any

from .quota import Quota, list_cgroups
from .running import MOST_THREADS, Running, add_threads, open_child, read_cgroups
from .tracefs import (
    PERIOD_S,
    Instance,
    Refused,
    check_kernel,
    choose_buffer_kib,
    filter_ports,
    find_root,
    is_initial,
    read,
    remove_stale,
    write,
)

SCHEMA = "grpcdiag.processes/1"
OWN = {"sched": ["sched_waking"], "task": ["task_newtask", "task_rename"], "sock": ["sock_send_length"]}
"""Events of the command's threads alone."""
FULL = {"syscalls": ["sys_enter_futex"]}
"""More of them, with --processes full."""
ALL = {"sched": ["sched_switch"]}
"""Events of all threads: a processor is also busy with others."""
STATES = {"sock": ["inet_sock_set_state"]}
"""Of the capture's ports, events of all threads, because interrupts accept connections; else the command's alone."""
ATTEMPTS = 50
"""Times that the threads of running processes are listed until none of them ends meanwhile."""
MOST_BYTES = 256 << 20
"""Largest record: some minutes of a busy benchmark."""
ELSEWHERE_S = 1.0
"""Time between two looks at the cgroups of all recorded threads."""


def measure_offset() -> tuple[int, int]:
    """Measure the capture's clock less the trace's, and by how much it may be wrong; nanoseconds."""
    best = (0, 1 << 62)
    for _ in range(50):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (now - (before + after) // 2, after - before), key=lambda pair: pair[1])
    return best


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
        self._written = self._cost_ns = 0
        self._running = [Running(pid, wanted["uid"]) for pid in wanted["pids"]]
        self._quotas: dict[int, Quota] = {}
        self._stopped = False
        self._elsewhere = not is_initial("cgroup")  # quotas of those above are not seen here
        self._next_s = 0.0

    def run(self) -> None:
        """Record until standard input ends. Raises Refused and OSError."""
        try:
            self._begin()
            os.write(2, b"ready\n")
            self._drain_until_end()
            self._end()
            if self._written >= MOST_BYTES:
                raise Refused(f"it reached {MOST_BYTES >> 20} MiB: record shorter runs")
            os.write(2, b"%d\n" % self._cost_ns)
        finally:
            for instance in self._instances:
                instance.remove()

    def _begin(self) -> None:
        root = find_root()
        check_kernel(root)
        remove_stale(root)
        cpus = os.cpu_count() or 1
        room = choose_buffer_kib(cpus, read("/proc/meminfo"))
        own = Instance(root, "own", room)
        self._instances.append(own)
        everything = Instance(root, "all", room)
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
        self._quotas = {process.pid: Quota(process) for process in self._running}
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
        for quota in self._quotas.values():
            quota.look()
        if not self._elsewhere and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + ELSEWHERE_S
            self._elsewhere = self._is_elsewhere()

    def _is_elsewhere(self) -> bool:
        """Check whether a recorded thread is in a cgroup whose quota is not known."""
        quotas = self._quotas.values()
        if not all(quota.places for quota in quotas):  # the command has not begun
            return False
        if any(quota.is_hidden for quota in quotas):
            return True
        watched = [list_cgroups(quota.places) for quota in quotas]
        for thread in read(f"{self._instances[0].path}/set_event_pid").split()[:MOST_THREADS]:
            places = read_cgroups(thread) if int(thread) != self._wanted["parent"] else None
            if places is not None and list_cgroups(places) not in watched:
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
                parent = self._wanted["parent"]
                self._quotas[parent].process = open_child(int(request.split()[-1]), parent)
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
        self._cost_ns = time.process_time_ns()
        self._write_json(
            {
                "offset_ns": offset,
                "uncertainty_ns": uncertainty,
                "lost_events": sum(instance.count_lost() for instance in self._instances),
                "elsewhere": self._elsewhere,
                "quotas": [quota.describe(process) for process, quota in self._quotas.items()],
                "cut": self._written >= MOST_BYTES,
                "cost_ns": self._cost_ns,
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
