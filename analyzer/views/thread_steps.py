"""Collect the ways of recorded threads to their sends, as the HTML page draws them, bounded in number."""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..tables import Ints
from ..tables.processes import Processes, Steps

Column = npt.NDArray[Any]


class PageSteps(Struct, frozen=True, eq=False):
    """What the threads of a recorded host did until it sent, in the order of starts."""

    interval: Annotated[Column, "the interval that it belongs to; 0 is the longest"]
    connection: Annotated[Column, "row of its connection"]
    direction: Annotated[Column, "the side that had to act"]
    stream: Annotated[Column, "stream whose bytes were sent"]
    packet: Annotated[Column, "packet that was sent"]
    part: Annotated[Column, "index into `PARTS`"]
    thread: Annotated[Column, "the thread, 0 when it is not known"]
    start_ns: Annotated[Column, "relative to the capture's first packet"]
    duration_ns: Annotated[Column, "until the next step"]


NO_STEPS = PageSteps(*(np.zeros(0, dtype=np.int64) for _ in PageSteps.__struct_fields__))


def collect_steps(found: Processes, zero_ns: int, most: int) -> PageSteps:
    """Collect the steps of the longest intervals in which a recorded host had to act, `most` of them at most."""
    acts = found.acts
    known = np.flatnonzero(acts.process > 0)
    rows = known[np.argsort(-acts.duration_ns[known], kind="stable")[:most]]
    if found.follow is None or not len(rows):
        return NO_STEPS
    steps = _join_equal(found.follow(rows))
    order = np.argsort(steps.start_time_ns, kind="stable")
    of: Ints = rows[steps.interval[order]]
    return PageSteps(
        interval=steps.interval[order],
        connection=acts.connection[of],
        direction=acts.direction[of],
        stream=acts.stream[of],
        packet=acts.packet[of],
        part=steps.part[order],
        thread=steps.thread[order],
        start_ns=steps.start_time_ns[order] - zero_ns,
        duration_ns=(steps.end_time_ns - steps.start_time_ns)[order],
    )


def _join_equal(steps: Steps) -> Steps:
    """Join steps that follow each other and differ in time alone, such as pieces of one long pause."""
    follows = steps.start_time_ns[1:] == steps.end_time_ns[:-1]
    for column in (steps.interval, steps.part, steps.thread):
        follows &= column[1:] == column[:-1]
    firsts, lasts = np.flatnonzero(np.append(True, ~follows)), np.flatnonzero(np.append(~follows, True))
    return Steps(
        steps.interval[firsts],
        steps.part[firsts],
        steps.thread[firsts],
        steps.start_time_ns[firsts],
        steps.end_time_ns[lasts],
    )
