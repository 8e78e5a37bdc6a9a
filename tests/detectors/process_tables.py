"""Tables of a small capture with made-up intervals, as if the scheduler had been recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from detecting import the_finding
from msgspec.structs import replace
from support import synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.tables import Tables
from grpcdiag.analyzer.tables.processes import PARTS, Acts, Processes

__all__ = ["answers", "finding", "tables", "the_finding"]
US = 1_000


def tables(
    *, direction: int = 0, idle: int = 1, intervals: int = 100, known: bool = True, locks: bool = True, **parts_us: int
) -> Tables:
    """Make intervals that are alike; `parts_us` are the parts of each."""
    before = decode([synthetic("shared-connection-fires").file])
    parts = np.zeros((intervals, len(PARTS)), dtype=np.int64)
    for part, us in parts_us.items():
        parts[:, PARTS.index(part)] = us * US
    first = int(before.connections.first_time_ns[0])
    acts = Acts(
        connection=np.zeros(intervals, dtype=np.uint32),
        stream=np.ones(intervals, dtype=np.uint32),
        direction=np.full(intervals, direction, dtype=np.uint8),
        idle=np.full(intervals, idle, dtype=np.uint8),
        method=np.zeros(intervals, dtype=np.uint32),
        start_time_ns=first + np.arange(intervals, dtype=np.int64),
        duration_ns=parts.sum(axis=1),
        packet=np.arange(1, intervals + 1, dtype=np.uint32),
        process=np.full(intervals, 7 * known, dtype=np.int64),
        parts=parts,
    )
    throttled = np.array([[first, first + 1]], dtype=np.int64)
    return replace(before, processes=Processes(acts, {7: "load"}, 2, 0.5, throttled, 1 * US, locks))


def answers(module: Any, some: Tables) -> list[Finding | Skipped]:
    """Everything that a detector says."""
    return list(module.detect(some, module.Limits()))


def finding(module: Any, some: Tables) -> Finding | None:
    """The one finding of a detector, if it has one."""
    found = [answer for answer in answers(module, some) if isinstance(answer, Finding)]
    assert len(found) <= 1
    return found[0] if found else None
