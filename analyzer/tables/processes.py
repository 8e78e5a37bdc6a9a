"""What the recorded host did in the intervals in which it had to act, as its scheduler recorded it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Struct

from .._core import PATH_PARTS as _PARTS
from .._core import THREAD_STATES as _STATES
from .columns import Codes, Counts, Ints

PARTS: tuple[str, ...] = tuple(_PARTS)
"""Parts of the way that led to a send, in the order of `Acts.parts`' columns."""
STATES: tuple[str, ...] = tuple(_STATES)
"""What a thread can do; what it waits for is known by what woke it."""
UNKNOWN = PARTS.index("unknown")
"""The part that the record does not tell."""


class Acts(Struct, frozen=True, eq=False):
    """One row per interval in which the recorded host had to act, ended by its packet."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "stream whose bytes ended it"]
    direction: Annotated[Codes, "the side that had to act"]
    idle: Annotated[
        Codes,
        "1 when the client left the connection idle, 2 when it paused for 10 ms or longer, 0 for a part of an RPC",
    ]
    method: Annotated[Counts, "method of the RPC, `NO_METHOD` when not known"]
    start_time_ns: Annotated[Ints, "when it began"]
    duration_ns: Annotated[Ints, "from then until the side sent"]
    packet: Annotated[Counts, "packet that ended it"]
    process: Annotated[Ints, "process that sent the packet, 0 when it is not known"]
    parts: Annotated[Ints, "nanoseconds by `PARTS`, which add up to the duration; shape (intervals, parts)"]


class Steps(Struct, frozen=True, eq=False):
    """The ways to the sends that ended intervals, in steps; columns of equal length, ascending in time per interval."""

    interval: Ints
    """Place of the interval among those asked for."""
    part: Codes
    """A place in `PARTS`."""
    thread: Ints
    """The thread, 0 when it is not known."""
    start_time_ns: Ints
    end_time_ns: Ints


class Spans(Struct, frozen=True, eq=False):
    """What each thread did; columns of equal length, by thread and ascending in time."""

    thread: Ints
    state: Codes
    """A place in `STATES`."""
    start_time_ns: Ints
    end_time_ns: Ints
    shortest_ns: int
    """Shorter times are left out; 0 if none are."""
    threads: Mapping[int, tuple[int, str]]
    """Process and name of each thread."""


class Quota(Struct, frozen=True, eq=False):
    """What the cgroup of a process allowed, and when it was used up."""

    processors: float | None
    """Processors that it may use at once; None without a quota."""
    throttled: Ints
    """Begin and end of the times in which it was throttled, capture clock; shape (times, 2)."""
    throttled_ns: int | None
    """For how long, by cpu.stat, which adds up the processors; None if the record does not say."""


class Processes(Struct, frozen=True, eq=False):
    """The record of the scheduler, joined with the packets."""

    acts: Acts
    """See `Acts`; of connections that a recorded process had at one end."""
    names: Mapping[int, str]
    """Names of processes by number."""
    processors: int
    """Processors of the host."""
    quotas: Mapping[int, Quota]
    """By process, of those that were watched and their children."""
    locks: bool
    """Whether waits for locks were recorded."""
    follow: Callable[[Any], Steps] | None = None
    """Reads the ways to the sends of some rows of `acts`; None for a selection."""
    list_spans: Callable[[int], Spans] | None = None
    """Lists what the threads did, in so many spans at most; None for a selection."""
    threads: Mapping[int, str] = {}
    """Names of threads by number."""
    elsewhere: bool = False
    """Whether a recorded thread was in a cgroup whose quota is not known: it may have been throttled unseen."""

    def sum_parts(self, chosen: Any) -> Ints:
        """Add up the parts of some intervals."""
        return np.asarray(self.acts.parts[chosen].reshape(-1, len(PARTS)).sum(axis=0, dtype=np.int64))
