"""What the recorded host did in the intervals in which it had to act, as its scheduler recorded it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Struct

from .._core import PATH_PARTS as _PARTS
from .columns import Codes, Counts, Ints

PARTS: tuple[str, ...] = tuple(_PARTS)
"""Parts of the way that led to a send, in the order of `Acts.parts`' columns."""
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

    def choose(self, chosen: Any) -> Acts:
        """Choose rows by a mask or row numbers."""
        return Acts(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


class Processes(Struct, frozen=True, eq=False):
    """The record of the scheduler, joined with the packets."""

    acts: Acts
    """See `Acts`; of connections that the recorded command had at one end."""
    names: Mapping[int, str]
    """Names of processes by number."""
    processors: int
    """Processors of the host."""
    quota_processors: float | None
    """Processors that the command's cgroup may use at once; None without a quota."""
    throttled: Ints
    """Begin and end of the times in which the cgroup was throttled, capture clock; shape (times, 2)."""
    throttled_ns: int | None
    """For how long, by cpu.stat, which adds up the processors; None if the record does not say."""
    locks: bool
    """Whether waits for locks were recorded."""

    def sum_parts(self, chosen: Any) -> Ints:
        """Add up the parts of some intervals."""
        sums: Ints = self.acts.parts[chosen].reshape(-1, len(PARTS)).sum(axis=0, dtype=np.int64)
        return sums
