"""The three questions answered in a sentence each: who is slow, why, since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ...analyzer.model.text import count, duration
from .changes import Since

if TYPE_CHECKING:
    from .report import Cause, Loser

_MUCH = 0.05
"""Share of RPC time from which somebody is told to take it (own choice)."""

OWN = {"client": "the client's own", "server": "the server's own", "network": "on the way"}
"""Causes that no setting changes, in words."""


class Answers(Struct, frozen=True, kw_only=True):
    """Sentences; `since` is None where the time is too short to tell."""

    who: str
    why: str
    since: str | None


def answers(
    methods: Sequence[Loser],
    pairs: Sequence[Loser],
    causes: Sequence[Cause],
    budget: Mapping[str, int],
    since: Since | None,
    slots: int,
) -> Answers:
    """The answers; all losers in the order of the report."""
    return Answers(who=_who(methods, pairs), why=_why(causes, budget), since=_since(methods, causes, since, slots))


def _who(methods: Sequence[Loser], pairs: Sequence[Loser]) -> str:
    if not methods:
        return "There are no RPCs in the recordings."
    longest = max(methods, key=lambda method: (method.duration_ns, method.name))
    told = []
    if methods[0].lost_ns:
        first = methods[0]
        pair = f", most of it from {pairs[0].name}" if pairs and pairs[0].lost_ns > first.lost_ns / 2 else ""
        told.append(
            f"{first.name} waits longest, {total(first.lost_ns)} of its {total(first.duration_ns)} of RPC time "
            f"({first.lost_ns / first.duration_ns:.0%}){pair}."
        )
    if longest is not methods[0] or not told:
        cause, share = mostly(longest.budget)
        told.append(
            f"{longest.name} takes most time, {total(longest.duration_ns)} in {count(longest.rpcs, 'RPC')}, "
            f"{share:.0%} of it {OWN.get(cause, cause)}."
        )
    return " ".join(told)


def _why(causes: Sequence[Cause], budget: Mapping[str, int]) -> str:
    grave = [cause for cause in causes if cause.severity != "info" and cause.lost_ns]
    told = []
    if not budget:
        seen = next((cause for cause in causes if cause.severity != "info"), None)
        return f"{seen.id}: {seen.worst.title}." if seen else "No gRPC is in them, or none that can be read."
    if grave:
        first = grave[0]
        where = f"{count(first.findings, 'finding')} on {count(first.hosts, 'host')}"
        told.append(f"{first.id} costs most: {total(first.lost_ns)}, {where}.")
        if len(grave) > 1:
            rest = " and ".join(f"{cause.id} ({total(cause.lost_ns)})" for cause in grave[1:3])
            told.append(f"Then {rest}.")
    elif causes:
        told.append("No finding accounts for lost time.")
    else:
        told.append("There are no findings.")
    every = sum(budget.values())
    own = [f"{budget[c] / every:.0%} is {OWN[c]}" for c in OWN if every and budget.get(c, 0) >= _MUCH * every]
    if own:
        told.append(f"Of all RPC time {', '.join(own)}.")
    return " ".join(told)


def _since(methods: Sequence[Loser], causes: Sequence[Cause], since: Since | None, slots: int) -> str | None:
    if slots < 2:
        return None
    told = []
    if methods and (own := methods[0].since):
        told.append(f"{methods[0].name}: {changed(own)}.")
    if since:
        told.append(f"All RPCs together: {changed(since)}.")
    if not told:
        told.append("Time per RPC has no single moment at which it changed.")
    grave = [cause for cause in causes if cause.severity != "info" and cause.lost_ns]
    if grave:
        told.append(f"{grave[0].id} was seen first at {moment(grave[0].first_time_ns)} UTC.")
    return " ".join(told)


def mostly(budget: Mapping[str, int]) -> tuple[str, float]:
    """The cause of most of the time, and its share."""
    cause = max(budget, key=lambda name: (budget[name], name), default="unexplained")
    return cause, budget.get(cause, 0) / max(sum(budget.values()), 1)


def changed(change: Since) -> str:
    """A change in words: how much, when, and because of what."""
    return f"since {moment(change.time_ns)} UTC RPCs are {faster(change)}; what changed most is {change.cause}"


def faster(change: Since) -> str:
    """`7.9 x longer` or `4.8 x shorter`."""
    factor = max(change.after_ns, change.before_ns) / max(min(change.after_ns, change.before_ns), 1)
    return f"{factor:.1f} x {'longer' if change.after_ns > change.before_ns else 'shorter'}"


def total(ns: int) -> str:
    """A sum of durations, in hours where it has many."""
    seconds = ns / 1e9
    if seconds < 600:
        return duration(ns)
    return f"{seconds / 60:,.0f} min" if seconds < 36_000 else f"{seconds / 3600:,.1f} h"


def moment(time_ns: int, among: tuple[int | None, int | None] | None = None) -> str:
    """A time of UTC; without the date where all times, from the first to the last `among` them, are of one day."""
    try:
        found = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
        days = [datetime.fromtimestamp((one or 0) // 1_000_000_000, UTC).date() for one in among or ()]
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{found:%H:%M}" if days and days[0] == days[-1] else f"{found:%Y-%m-%d %H:%M}"
