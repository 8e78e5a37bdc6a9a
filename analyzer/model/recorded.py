"""What was recorded beside the packets: settings and clock of the host, and what its threads did."""

from typing import Literal

from msgspec import Struct

from ..tables.durations import Count


class HostClock(Struct, frozen=True):
    """What the recording host knew of its clock when the recording began."""

    source: Literal["chrony", "kernel"]
    synchronised: bool
    max_error_ns: Count | None
    """By how much it was wrong at most; None if it was not synchronised."""


class ThreadTimes(Struct, frozen=True):
    """What the kernel tells every user of the command's threads: in all, not when; added up over threads."""

    elapsed_ns: Count
    """From the first look to the last."""
    ran_ns: Count
    """They ran."""
    ready_ns: Count
    """They were ready and did not run (schedstat), or a quota stopped them."""
    throttled_ns: Count
    """The quota of the command's cgroup was used up (cpu.stat); added up over processors."""
    processors: float | None = None
    """Processors that the cgroup may use at once; None without a quota."""


class RecordingFacts(Struct, frozen=True):
    """The files beside the capture that were used."""

    file: str
    host: str
    """The host that recorded."""
    kernel: str
    samples: Count
    """Looks at its sockets."""
    waits_measured: Count
    """Waits whose congestion window its kernel told."""
    window_samples: Count
    """Samples of cubic's congestion windows during waits, which the estimates can be compared with."""
    window_samples_near_estimate: Count
    """Samples within a tenth, or two segments, of the estimate."""
    clock: HostClock | None = None
    threads: ThreadTimes | None = None
    """None if they were not measured, or if the scheduler was recorded."""
    record_cost_ns: Count | None = None
    """Processor time that recording the scheduler took, without that of the kernel in the threads; None without."""
    cpu_pressure: float | None = None
    """Share of the recording in which some thread of the host was ready and had no processor (PSI)."""


class ProcessFacts(Struct, frozen=True, kw_only=True):
    """What led to the sends of a process in the intervals in which its side had to act, by the scheduler's record."""

    pid: int
    name: str
    side: str
    intervals: Count
    """Intervals whose send it made: its time in RPCs, and the idle intervals of its connections."""
    idle_intervals: Count
    """Of these, intervals in which the client left a connection idle, for whatever time."""
    idle_ns: Count
    """Time of these."""
    running_ns: Count
    """A thread that led to the send ran."""
    runnable_ns: Count
    """It was ready, and its processor ran other threads of the recorded command."""
    other_processes_ns: Count
    """It was ready, and its processor ran other processes."""
    wake_up_ns: Count
    """It was ready, and its processor was idle."""
    throttled_ns: Count
    """It was ready, and its cgroup had used up its quota."""
    lock_ns: Count
    """It waited for a lock for which several threads waited."""
    other_rpc_ns: Count
    """It waited for packets of another RPC."""
    timer_ns: Count
    """It waited for a timer."""
    io_ns: Count
    """It waited for another process, a device, or a connection that is not in the capture."""
    unknown_ns: Count
    """The record does not tell."""

    @property
    def total_ns(self) -> int:
        """Add up all parts."""
        names = [name for name in self.__struct_fields__ if name.endswith("_ns") and name != "idle_ns"]
        return sum(getattr(self, name) for name in names)
