"""Write a track per recorded thread: when it ran, when it was ready, and for what it waited."""

from collections.abc import Callable, Iterator

import numpy as np

from ...analyzer.model.text import duration
from ...analyzer.tables.processes import STATES, Processes
from .writer import Writer

_MOST_SPANS = 200_000
"""Most times of all threads together; the shortest are left out (heuristic: a trace of 10 MB)."""


def write_threads(writer: Writer, found: Processes, rank: int, at: Callable[[int], int]) -> Iterator[None]:
    """Write the threads of each recorded process, from the capture's first packet on; `at` converts times."""
    if found.list_spans is None:
        return
    spans = found.list_spans(_MOST_SPANS)
    left_out = f" Times below {duration(spans.shortest_ns)} are left out." if spans.shortest_ns else ""
    groups: dict[int, int] = {}
    for thread in np.unique(spans.thread).tolist():
        rows = slice(*np.searchsorted(spans.thread, [thread, thread + 1]).tolist())
        process, name = spans.threads.get(thread, (0, ""))
        if process not in groups:
            own = spans.threads.get(process, (0, name))[1]
            text = f"Threads as the scheduler recorded them.{left_out}"
            groups[process] = writer.track(f"threads of {own} ({process})", None, rank, text)
        track = writer.track(f"{name} {thread}", groups[process], len(groups))
        columns = (spans.state[rows], spans.start_time_ns[rows], spans.end_time_ns[rows])
        for state, start, end in zip(*(column.tolist() for column in columns), strict=True):
            if at(end) > at(start):  # times before the first packet are none
                writer.slice(track, at(start), at(end), STATES[state], "thread")
            yield
