"""From the joined record of the scheduler to a report's figures."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..model.recorded import ProcessFacts, RecordingFacts
from ..model.text import duration
from ..tables import DIRECTIONS
from ..tables.processes import PARTS, UNKNOWN, Processes

_HIGH_PRESSURE = 0.5
"""Share of a recording in which threads waited for processors, from which it is said (heuristic: half of it)."""
_RECORD = "the scheduler's record (capture as root)"
_READY = 10
"""From so many times the time in which they ran, threads lack processors (measured: 1 to 3, and 36 to 56 if so)."""
_THROTTLED = 0.1
"""Share of the time in which a quota stopped threads, from which it is said (heuristic: a tenth of it)."""


def describe_pressure(recording: RecordingFacts, found: Processes | None) -> Iterator[str]:
    """Say that threads of the recording host waited for processors, if they did so for long."""
    share = recording.cpu_pressure
    if share is not None and share >= _HIGH_PRESSURE:
        whose = "" if found else f": {_RECORD} tells whether it was a thread of these RPCs"
        yield f"on {recording.host} some thread waited for a processor in {share:.0%} of the recording (PSI){whose}"


def describe_lack(recording: RecordingFacts) -> Iterator[str]:
    """Say that the command's threads lacked processors, if they were ready far longer than they ran."""
    times = recording.threads
    if times is None or times.elapsed_ns == 0:
        return
    elapsed, record = duration(times.elapsed_ns), f"{_RECORD} tells which RPCs waited"
    # cpu.stat adds up over the processors that threads of the cgroup were on
    if times.throttled_ns >= _THROTTLED * times.elapsed_ns * math.ceil(times.processors or 1):
        stopped = f"for {duration(times.throttled_ns)} in {elapsed}, added up over processors"
        yield f"a CPU quota stopped threads of the command's cgroup {stopped} (cpu.stat): {record}"
    elif times.ready_ns >= max(_READY * times.ran_ns, _THROTTLED * times.elapsed_ns):
        ready, ran = duration(times.ready_ns), duration(times.ran_ns)
        waited = f"waited {ready} for a processor (schedstat)"
        yield f"in {elapsed} the command's threads ran for {ran} and {waited}: {record}"


def describe_processes(found: Processes) -> tuple[ProcessFacts, ...]:
    """Add up what each process did in the intervals in which its side had to act, the longest first."""
    acts, facts = found.acts, []
    for process in sorted(found.names):
        for direction, side in enumerate(DIRECTIONS):
            mine = (acts.process == process) & (acts.direction == direction)
            if mine.any():
                parts = dict(zip(PARTS, found.sum_parts(mine).tolist(), strict=True))
                facts.append(
                    ProcessFacts(
                        pid=process,
                        name=found.names[process],
                        side=side,
                        intervals=int(mine.sum()),
                        idle_intervals=int((mine & (acts.idle > 0)).sum()),
                        idle_ns=int(acts.duration_ns[mine & (acts.idle > 0)].sum()),
                        **{f"{part}_ns": ns for part, ns in parts.items()},
                    )
                )
    return tuple(sorted(facts, key=lambda one: -one.total_ns))


def split_budget(
    budget: Mapping[str, int], found: Processes | None, column: str = "", row: int = 0
) -> Mapping[str, int]:
    """Replace `client` and `server` by their parts, if threads of that side are known.

    `column` and `row` choose intervals: those of a connection or a method. The parts add up to the cause; what no
    interval explains is unknown.
    """
    if found is None:
        return budget
    acts, split = found.acts, dict(budget)
    chosen = getattr(acts, column) == row if column else np.ones(len(acts.process), dtype=bool)
    for direction, side in enumerate(DIRECTIONS):
        mine = chosen & (acts.direction == direction) & (acts.idle == 0) & (acts.process > 0)
        parts = acts.parts[mine].sum(axis=0, dtype=np.int64)
        rest = budget.get(side, 0) - int(np.delete(parts, UNKNOWN).sum())
        if not mine.any() or rest < 0:
            continue
        parts[UNKNOWN] = rest
        split.pop(side, None)
        split |= {f"{side}.{part}": int(ns) for part, ns in zip(PARTS, parts.tolist(), strict=True) if ns}
    return split
