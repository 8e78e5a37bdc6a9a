"""Follow the ways to the sends that ended intervals, by the quota of the process that sent."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from ...tables import Ints
from ...tables.processes import Quota, Spans, Steps
from .record import ProcessRecord


class Sends(Struct, frozen=True, eq=False):
    """The sends that ended intervals; columns of equal length, by the clock of the record."""

    start: Ints
    end: Ints
    socket: Ints
    """Number of the socket, -1 where the packet is not known."""
    offset: Any
    """Place of the packet's first byte in the socket's bytes."""


class Ways:
    """The ways to some sends."""

    def __init__(self, record: ProcessRecord, sends: Sends, arrivals: Ints) -> None:
        """Find who sent, and divide the time before; `arrivals` are times of packets, ascending."""
        self._record, self._sends, self._arrivals = record, sends, arrivals
        tasks = {thread: (process, root, name) for thread, process, root, name in record.events.tasks()}
        self._tasks = tasks
        every = np.arange(len(sends.start))
        threads, self.parts = record.events.divide(*self._choose(every), [])
        found, where = np.unique(threads, return_inverse=True)
        unknown = (0, 0, "")
        self.process = np.array([tasks.get(int(one), unknown)[0] for one in found], dtype=np.int64)[where]
        self._root = np.array([tasks.get(int(one), unknown)[1] for one in found], dtype=np.int64)[where]
        for rows, throttled in self._group(every):
            if throttled:
                self.parts[rows] = record.events.divide(*self._choose(rows), throttled)[1]

    @property
    def names(self) -> dict[int, str]:
        """Name the processes that sent."""
        return {process: self._tasks[process][2] if process in self._tasks else "" for process in self._list_senders()}

    @property
    def threads(self) -> dict[int, str]:
        """Name the recorded threads."""
        return {thread: name for thread, (_, _, name) in self._tasks.items()}

    @property
    def quotas(self) -> dict[int, Quota]:
        """Give the quotas of the processes that sent."""
        roots = dict(zip(self.process.tolist(), self._root.tolist(), strict=True))
        watched = {one.process: one for one in self._record.quotas}
        return {
            process: Quota(
                known.processors,
                np.array(known.throttled, dtype=np.int64).reshape(-1, 2) + self._record.offset_ns,
                known.throttled_ns,
            )
            for process in self._list_senders()
            if (known := watched.get(roots[process]))
        }

    def follow(self, rows: Any) -> Steps:
        """Read the steps of some ways, by the capture's clock."""
        chosen = np.arange(len(self.process))[rows]
        place = np.zeros(len(self.process), dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        pieces = []
        for group, throttled in self._group(chosen):
            interval, *columns = self._record.events.follow(*self._choose(group), throttled)
            pieces.append((place[group[interval]], *columns))
        interval, part, thread, start, end = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        order, offset = np.argsort(interval, kind="stable"), self._record.offset_ns
        return Steps(
            interval[order], part[order], thread[order].astype(np.int64), start[order] + offset, end[order] + offset
        )

    def list_spans(self, most: int) -> Spans:
        """List what the threads did, by the capture's clock; throttled while any watched cgroup was."""
        throttled = _merge([time for one in self._record.quotas for time in one.throttled])
        shortest, thread, state, start, end = self._record.events.spans(throttled, most)
        offset = self._record.offset_ns
        threads = {one: (process, name) for one, (process, _, name) in self._tasks.items()}
        return Spans(thread.astype(np.int64), state, start + offset, end + offset, shortest, threads)

    def _list_senders(self) -> list[int]:
        return [process for process in np.unique(self.process).tolist() if process]

    def _group(self, rows: Ints) -> Iterator[tuple[Ints, list[tuple[int, int]]]]:
        """Group rows by the quota of the process that sent."""
        watched = {one.process: list(one.throttled) for one in self._record.quotas}
        for root in np.unique(self._root[rows]).tolist() or [0]:
            yield rows[self._root[rows] == root], watched.get(root, [])

    def _choose(self, rows: Ints) -> tuple[Ints, Ints, Ints, Any, Ints]:
        sends = self._sends
        return sends.start[rows], sends.end[rows], sends.socket[rows], sends.offset[rows], self._arrivals


def _merge(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join times that overlap, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(times):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
