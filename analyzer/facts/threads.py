"""What led to a recorded host's sends, in words: proof for findings that packets alone can only suggest."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ..model.text import duration
from ..tables import Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.processes import PARTS, UNKNOWN, Acts
from .processes import FEWEST, KNOWN

_MOST = 0.5
"""Share of the time that a single reason must have to be named as the reason (heuristic: most of it)."""
_SHOWN = 3
"""Reasons that a sentence lists, the longest."""


class _Reason(Struct, frozen=True):
    parts: tuple[str, ...]
    what: str
    """As time: `48 ms were ...`."""
    did: str
    """What threads did: `its threads ... in 90% of it`."""
    advice: str


_PROCESSOR = _Reason(
    ("runnable", "other_processes"), "waits for a processor", "waited for a processor", "give it more processors"
)
_QUOTA = _Reason(("throttled",), "stopped by a CPU quota", "were stopped by a CPU quota", "raise the quota")
_REASONS = (
    _PROCESSOR,
    _QUOTA,
    _Reason(("running",), "work", "ran", "profile it"),
    _Reason(("lock",), "waits for a lock or a queue", "waited for a lock or a queue", "profile its waits"),
    _Reason(("other_rpc",), "waits for packets of other RPCs", "waited for other RPCs", "trace these"),
    _Reason(("timer",), "waits for a timer or a disk", "waited for a timer or a disk", "look for sleeps, slow disks"),
    _Reason(("io",), "waits for another process or host", "waited for another process or host", "trace these calls"),
)


class Spent(Struct, frozen=True, eq=False):
    """The time of some intervals by what led to the sends that ended them."""

    intervals: int
    parts: Ints
    """Nanoseconds by `PARTS`."""

    def share(self, reason: _Reason) -> float:
        """Return the share of a reason."""
        return self._sum(reason) / max(int(self.parts.sum()), 1)

    def _sum(self, reason: _Reason) -> int:
        return sum(int(self.parts[PARTS.index(part)]) for part in reason.parts)

    @property
    def main(self) -> _Reason | None:
        """Name the reason that has most of the time."""
        longest = max(_REASONS, key=self.share)
        return longest if self.share(longest) >= _MOST else None

    @property
    def is_busy(self) -> bool:
        """Check whether the threads ran most of the time: the process was not stopped then."""
        return self.main is not None and self.main.parts == ("running",)

    def explain(self, whose: str = "its") -> str:
        """Say in a sentence what the time was."""
        longest = sorted(_REASONS, key=self._sum, reverse=True)[:_SHOWN]
        said = [f"{one.what} {duration(self._sum(one))}" for one in longest if self.share(one) >= 0.01]
        whole = duration(float(self.parts.sum()))
        return f"The scheduler recorded {whose} threads. Of the {whole} before they sent: {', '.join(said)}."

    def advise(self) -> str | None:
        """Say what the threads mostly did, and what to do."""
        if self.main is None:
            return None
        return f"its threads {self.main.did} in {self.share(self.main):.0%} of that time: {self.main.advice}"

    def make_metrics(self) -> dict[str, int | float | str]:
        """Return the figures for a finding."""
        return {f"thread_{part}_ns": ns for part, ns in zip(PARTS, self.parts.tolist(), strict=True) if ns}


def read_spent(
    tables: Tables, direction: int, choose: Callable[[Acts], Mask], whole_ns: int, longest: float = 0.0
) -> Spent | None:
    """Read what led to the sends of a side; None unless the record explains nearly all of `whole_ns`.

    `longest` is the quantile of the intervals' durations from which they count.
    """
    if tables.processes is None:
        return None
    acts = tables.processes.acts
    rows = np.flatnonzero((acts.direction == direction) & (acts.process > 0) & choose(acts))
    lengths = acts.duration_ns[rows]
    if not len(rows) or int(lengths.sum()) < KNOWN * whole_ns:
        return None
    rows = rows[lengths >= np.quantile(lengths, longest)]
    spent = Spent(len(rows), tables.processes.sum_parts(rows))
    return spent if spent.parts[UNKNOWN] <= (1 - KNOWN) * spent.parts.sum() else None


def read_idle(tables: Tables, rows: Ints) -> Spent | None:
    """Read what led to the sends that ended idle intervals of connections; None unless nearly all is known."""
    whole_ns = total_ns(tables.turns.idle_ns[rows])
    return read_spent(tables, 0, lambda acts: np.isin(acts.connection, rows) & (acts.idle == 1), whole_ns)


def explain_idle(spent: Spent | None) -> str:
    """Say what the client's threads did in idle intervals, behind other sentences; nothing if it is not known."""
    return "" if spent is None else " " + spent.explain("the client's")


def explain_lack(tables: Tables) -> str | None:
    """Say that the server's threads mostly waited for processors or were throttled; None if they were not."""
    spent = read_spent(tables, 1, lambda acts: acts.idle == 0, 0)
    if spent is None or spent.intervals < FEWEST or spent.main not in (_PROCESSOR, _QUOTA):
        return None
    return (
        f"the server's threads {spent.main.did} in {spent.share(spent.main):.0%} of its time, as the scheduler "
        "recorded it"
    )
