"""Tables of a small capture with made-up intervals, as if the scheduler had been recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from detecting import the_finding
from msgspec.structs import replace
from support import synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.tables import Tables
from grpcdiag.analyzer.tables.processes import PARTS, Acts, Processes, Quota

__all__ = ["answers", "as_recorded", "finding", "tables", "the_finding"]
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
    return replace(before, processes=Processes(acts, {7: "load"}, 2, {7: Quota(0.5, throttled, US)}, locks))


def as_recorded(
    before: Tables, shares: Mapping[str, float], *, longest: Mapping[str, float] | None = None, known: bool = True
) -> Tables:
    """Add made-up threads of the servers to a capture: each RPC's time at the server in these parts.

    `longest` are the parts of the hundredth of the intervals that is longest.
    """
    rpcs, lengths = before.rpcs, before.rpc_budgets[:, CAUSES.index("server")].astype(np.int64)
    parts = np.zeros((len(lengths), len(PARTS)), dtype=np.int64)
    late = lengths >= np.quantile(lengths, 0.99)
    for which, some in ((~late if longest else late | ~late, shares), (late, longest or {})):
        for part, share in some.items():
            parts[which, PARTS.index(part)] = (lengths[which] * share).astype(np.int64)
    acts = Acts(
        connection=rpcs.connection,
        stream=rpcs.stream,
        direction=np.ones(len(lengths), dtype=np.uint8),
        idle=np.zeros(len(lengths), dtype=np.uint8),
        method=rpcs.method,
        start_time_ns=rpcs.start_time_ns + rpcs.duration_ns - lengths,
        duration_ns=lengths,
        packet=rpcs.last_packet,
        process=np.full(len(lengths), 7 * known, dtype=np.int64),
        parts=parts,
    )
    quota = Quota(None, np.zeros((0, 2), dtype=np.int64), None)
    return replace(before, processes=Processes(acts, {7: "server"}, 2, {7: quota}, True))


def answers(module: Any, some: Tables) -> list[Finding | Skipped]:
    """Everything that a detector says."""
    return list(module.detect(some, module.Limits()))


def finding(module: Any, some: Tables) -> Finding | None:
    """The one finding of a detector, if it has one."""
    found = [answer for answer in answers(module, some) if isinstance(answer, Finding)]
    assert len(found) <= 1
    return found[0] if found else None
