"""What a recorded host's threads waited for before they sent; shared by the detectors that read process records."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from ..model.budget import CAUSES
from ..model.finding import Confidence, Evidence
from ..model.text import duration
from ..tables import DIRECTIONS, Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct
from ..tables.processes import PARTS, UNKNOWN, Processes
from . import evidence, methods, ratings, turns

FEWEST = 50
"""Intervals with a known thread at least (heuristic: fewer show no pattern)."""
KNOWN = 0.9
"""Share of the time that the record explains, from which it is believed (heuristic: losses are none)."""

_OWN_PAUSE = (PARTS.index("timer"), UNKNOWN)
"""A client's pause of 10 ms or longer is its application's own if a timer ended it, or if it is not known what did."""


class WaitLimits(Struct, frozen=True, eq=False):
    """The limits of detectors of what threads wait for."""

    intervals: int = FEWEST
    """Intervals with a known thread at least (heuristic: fewer show no pattern)."""
    warning_share: float = 0.05
    """A warning from this share of RPC time, or of the connections' time (heuristic: above the variation of runs)."""


class Waited(Struct, frozen=True, eq=False):
    """What the threads of one side waited for in some parts."""

    direction: int
    chosen: Mask
    """The side's intervals without the pauses of its application; a mask of `Acts`."""
    ns: Ints
    """The time in these parts, per interval."""
    parts: Ints
    """All parts of the side's intervals."""
    lost_ns: int
    """The time in these parts inside RPCs, at most what the budget gives the side."""
    idle_ns: int
    """The time in these parts while the client left the connection idle."""
    weight: float
    """The time in these parts as a share of RPC time, or of the connections' time if that is more."""

    @property
    def total_ns(self) -> int:
        """Add up the time in these parts."""
        return total_ns(self.ns)

    @property
    def share(self) -> float:
        """Give the time in these parts as a share of all time in which the side had to act."""
        return self.total_ns / max(int(self.parts.sum()), 1)


def measure_waits(found: Processes, tables: Tables, direction: int, parts: Sequence[str]) -> Waited:
    """Measure the time that the threads of a side spent in some parts."""
    acts = found.acts
    mine = (acts.direction == direction) & (acts.process > 0)
    chosen = mine & ~((acts.idle == 2) & (acts.parts[:, _OWN_PAUSE] > 0).any(axis=1))
    ns = acts.parts[:, [PARTS.index(part) for part in parts]].sum(axis=1) * chosen
    own = sum(method.budget[CAUSES.index(DIRECTIONS[direction])] for method in tables.methods)
    lost, idle = min(total_ns(ns[acts.idle == 0]), int(own)), total_ns(ns[acts.idle > 0])
    rows = distinct(acts.connection[chosen])
    active = total_ns(turns.measure_turns(tables, rows).active_ns) + total_ns(tables.turns.pause_ns[rows])
    weight = max(methods.share_of_time(tables, lost), idle / max(active, 1))
    return Waited(direction, chosen, ns, found.sum_parts(chosen), lost, idle, weight)


def find_longest(tables: Tables, parts: Sequence[str], limits: WaitLimits, share: float) -> Waited | None:
    """Find the side that waited longest in `parts`, often enough and for `share` of its time; None if none did."""
    if tables.processes is None:
        return None
    sides = [measure_waits(tables.processes, tables, direction, parts) for direction in (0, 1)]
    found = [one for one in sides if one.chosen.sum() >= limits.intervals and one.share >= share]
    return max(found, key=lambda one: one.total_ns, default=None)


def list_connections(found: Processes, waited: Waited) -> tuple[int, ...]:
    """List the connections on which the side waited."""
    return tuple(distinct(found.acts.connection[waited.ns > 0]).tolist())


def rate_confidence(tables: Tables, waited: Waited) -> Confidence:
    """Rate how far the record and the capture can be trusted."""
    known = 1 - int(waited.parts[UNKNOWN]) / max(int(waited.parts.sum()), 1)
    return ratings.lower("high" if known >= KNOWN else "medium", ratings.quality_allows(tables))


def describe_parts(waited: Waited) -> str:
    """List the largest parts of the side's time: `running 40 %, runnable 30 %`."""
    whole = max(int(waited.parts.sum()), 1)
    ranked = sorted(zip(waited.parts.tolist(), PARTS, strict=True), reverse=True)
    return ", ".join(f"{part.replace('_', ' ')} {ns / whole:.0%}" for ns, part in ranked if ns >= 0.01 * whole)


def describe_places(waited: Waited) -> str:
    """Say how much of the time was inside RPCs, and how much while the client left connections idle."""
    inside, idle = duration(waited.total_ns - waited.idle_ns), duration(waited.idle_ns)
    return f"{inside} of it were inside RPCs, {idle} between them"


def make_metrics(found: Processes, waited: Waited) -> dict[str, int | float | str]:
    """Return the figures for a finding."""
    parts = {f"{part}_ns": ns for part, ns in zip(PARTS, waited.parts.tolist(), strict=True)}
    share = round(waited.share, 4)
    figures: dict[str, int | float | str] = {
        "side": DIRECTIONS[waited.direction],
        "intervals": int(waited.chosen.sum()),
        "waited_ns": waited.total_ns,
        "waited_share": share,
    }
    return figures | {"waited_idle_ns": waited.idle_ns, **parts, "processors": found.processors}


def show_longest(found: Processes, waited: Waited, what: str) -> Iterator[Evidence]:
    """Yield the packets before which the side waited longest."""
    acts = found.acts
    longest = np.argsort(-waited.ns, kind="stable")[: evidence.EXAMPLES]
    for row in sorted(longest[waited.ns[longest] > 0].tolist(), key=lambda row: int(acts.packet[row])):
        length, ns = int(acts.duration_ns[row]), int(waited.ns[row])
        name = found.names.get(int(acts.process[row]), "")
        text = f"sent by {name} after {duration(length)}, of which {duration(ns)} {what}"
        yield Evidence(int(acts.packet[row]), int(acts.start_time_ns[row]) + length, text)


def lacks_processors(tables: Tables, rows: Ints, most: float) -> str | None:
    """Say that the client's threads waited for processors in idle intervals of connections, if they mostly did."""
    found = tables.processes
    if found is None:
        return None
    acts = found.acts
    chosen = np.isin(acts.connection, rows) & (acts.direction == 0) & (acts.idle == 1) & (acts.process > 0)
    parts = found.sum_parts(chosen)
    waited = sum(int(parts[PARTS.index(part)]) for part in ("runnable", "other_processes", "throttled"))
    if not chosen.any() or waited < most * int(parts.sum()):
        return None
    return (
        f"in {waited / int(parts.sum()):.0%} of the client's idle time its threads waited for a processor, as the "
        "scheduler recorded it: more connections would not help"
    )
