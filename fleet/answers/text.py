"""Answer questions in a few sentences: what fails, what is slow, why, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ...analyzer.model.text import count, duration
from ...reports.shared.causes import name_cause
from ..dataset.sums import DAY_NS, HOUR_NS
from .changes import Change, Since
from .losses import WAITING

if TYPE_CHECKING:
    from .days import Slower
    from .edges import Edge, ServiceMap
    from .losses import Cause, Loser

_MUCH = 0.05
"""Least share of RPC time for a cause or a pair of hosts to be named (heuristic: smaller parts matter little)."""

OWN = ("client", "server", "network")
"""Causes that no setting changes."""


class Answers(Struct, frozen=True, kw_only=True):
    """Answers in sentences; `since` is None if the dataset covers too little time."""

    fails: str | None = None
    """None if few RPCs of each method failed."""
    slower: str | None = None
    """None if no method is much slower than a day before."""
    who: str
    why: str
    since: str | None


class Failing(Struct, frozen=True, kw_only=True):
    """The method with most failed RPCs. An RPC without a status, as where a recording ends, has not failed."""

    method: str
    rpcs: int
    failed_rpcs: int
    pair: str
    """The pair of hosts with most of them."""
    failed_rpcs_of_pair: int
    pairs: int
    """Number of pairs with failed RPCs of the method."""
    first_time_ns: int
    """Start of the first interval with any."""
    hour_ns: int | None
    """The hour of it all; None if it is the whole dataset."""


def answers(
    methods: Sequence[Loser],
    pairs: Sequence[Loser],
    causes: Sequence[Cause],
    budget: Mapping[str, int],
    since: Since | None,
    slots: int,
    failing: Failing | None = None,
    slower: Slower | None = None,
    behind: Edge | None = None,
) -> Answers:
    """Write the answers; methods and pairs must be in the order of the report.

    `behind` is the edge behind a proxy that was blocked longest.
    """
    when = _say_since_when(methods, causes, since, slots)
    who = [_say_what_is_slow(methods, pairs, sum(budget.get(cause, 0) for cause in WAITING))]
    if behind and behind.lost_ns >= _MUCH * sum(budget.values()):
        who.append(_say_what_was_blocked_behind(behind))
    return Answers(
        fails=_say_what_fails(failing) if failing else None,
        slower=_say_what_got_slower(slower) if slower else None,
        who=" ".join(who),
        why=_say_why(causes, budget),
        since=when,
    )


def _say_what_fails(failing: Failing) -> str:
    share = failing.failed_rpcs / failing.rpcs
    where = f"all on {failing.pair}"
    if failing.pairs > 1:
        where = f"on {failing.pairs:,} pairs of hosts"
        if failing.failed_rpcs_of_pair * failing.pairs > failing.failed_rpcs:
            where += f", most ({failing.failed_rpcs_of_pair:,}) on {failing.pair}"
    when = ""
    if failing.hour_ns is not None:
        when = f" between {moment(failing.hour_ns)} and {moment(failing.hour_ns + HOUR_NS)} UTC"
    return (
        f"{failing.method}: {failing.failed_rpcs:,} of {count(failing.rpcs, 'RPC')} failed{when} ({share:.0%}), "
        f"{where}; the first after {moment(failing.first_time_ns)} UTC."
    )


def _say_what_got_slower(slower: Slower) -> str:
    times = slower.after_ns / max(slower.before_ns, 1)
    when = f", {began(slower.since)}" if slower.since else ""
    if not slower.since and slower.last_ns - slower.first_ns < DAY_NS:
        when = f", between {moment(slower.first_ns)} and {moment(slower.last_ns)} UTC"
    is_pair = slower.method.endswith(f" on {slower.pair}")
    which = " (by method and pair of hosts)" if is_pair else ""
    others = f" {count(slower.others, 'other')} became slower, too{which}." if slower.others else ""
    cause = f" {slower.cause} grew most." if slower.cause else ""
    share = "Most" if slower.share > 0.5 else f"{slower.share:.0%}"
    where = "" if is_pair or slower.share < _MUCH else f" {share} of the additional time is on {slower.pair}."
    return (
        f"{slower.method}: {duration(slower.after_ns)} per RPC, {times:.1f} x as long as a day before"
        f" ({duration(slower.before_ns)}){when}.{cause}{where}{others}"
    )


def _say_what_is_slow(methods: Sequence[Loser], pairs: Sequence[Loser], lost_ns: int) -> str:
    if not methods:
        return "There are no RPCs in the recordings."
    longest = max(methods, key=lambda method: (method.duration_ns, method.name))
    sentences = []
    if methods[0].lost_ns:
        first = methods[0]
        # of the time that the pair lost, at most what other methods lost is not this method's
        own = pairs[0].lost_ns - (lost_ns - first.lost_ns) if pairs else 0
        pair = f", most of it from {pairs[0].name}" if own > first.lost_ns / 2 else ""
        sentences.append(
            f"{first.name} was blocked longest: {total(first.lost_ns)} of its {total(first.duration_ns)} of RPC time "
            f"({first.lost_ns / first.duration_ns:.0%}){pair}."
        )
    if longest is not methods[0] or not sentences:
        cause, share = mostly(longest.budget)
        sentences.append(
            f"{longest.name} takes most time: {total(longest.duration_ns)} in {count(longest.rpcs, 'RPC')}, "
            f"{share:.0%} of it {name_cause(cause)}."
        )
    return " ".join(sentences)


def _say_what_was_blocked_behind(edge: Edge) -> str:
    cause = max(WAITING, key=lambda name: edge.budget.get(name, 0))
    return (
        f"Behind the proxy {edge.proxy}, RPCs to {edge.server} were blocked for {total(edge.lost_ns)} of their "
        f"{total(edge.duration_ns)} ({cause}); before it, this time counts as the server's."
    )


def _say_why(causes: Sequence[Cause], budget: Mapping[str, int]) -> str:
    grave = [cause for cause in causes if cause.severity != "info" and cause.lost_ns]
    sentences = []
    if not budget:
        seen = next((cause for cause in causes if cause.severity != "info"), None)
        return f"{seen.id}: {seen.worst.title}." if seen else "The recordings contain no readable gRPC."
    if grave:
        first = grave[0]
        where = f"{count(first.findings, 'finding')} on {count(first.hosts, 'host')}"
        sentences.append(f"{first.id} costs most: {total(first.lost_ns)}, {where}.")
        if len(grave) > 1:
            rest = " and ".join(f"{cause.id} ({total(cause.lost_ns)})" for cause in grave[1:3])
            sentences.append(f"Next: {rest}.")
    elif causes:
        sentences.append("No finding accounts for lost time.")
    else:
        sentences.append("There are no findings.")
    every = sum(budget.values())
    own = [f"{budget[c] / every:.0%} is {name_cause(c)}" for c in OWN if every and budget.get(c, 0) >= _MUCH * every]
    if own:
        sentences.append(f"Of all RPC time, {', '.join(own)}.")
    return " ".join(sentences)


def _say_since_when(methods: Sequence[Loser], causes: Sequence[Cause], since: Since | None, slots: int) -> str | None:
    if slots < 2:
        return None
    sentences = []
    if methods and (own := methods[0].since):
        sentences.append(f"{methods[0].name}: {changed(own)}.")
    if since:
        sentences.append(f"All RPCs together: {changed(since)}.")
    if not sentences:
        sentences.append("No moment is certain at which the time per RPC changed.")
    grave = [cause for cause in causes if cause.severity != "info" and cause.lost_ns]
    if grave:
        sentences.append(f"{grave[0].id} was first seen at {moment(grave[0].first_time_ns)} UTC.")
    return " ".join(sentences)


def count_hosts(edge: Edge) -> str:
    """Say how many clients and servers an edge has, if there are several."""
    hosts = ((edge.clients, "client"), (edge.servers, "server"))
    return ", ".join(count(number, what) for number, what in hosts if number > 1)


def notes_of_map(found: ServiceMap) -> Iterator[str]:
    """Say what the map does not show, how exact its quantiles are, and how it counts calls through proxies."""
    if found.more_edges:
        yield f"{count(found.more_edges, 'more pair')} with {count(found.more_rpcs, 'RPC')}: --limit 0 lists all."
    yield "p50 and p99, here and below, are exact within 10%: RPCs are counted by duration in steps of 19%."
    if found.rpcs_behind_proxies:
        yield (
            f"Legs behind a proxy (└): {count(found.rpcs_behind_proxies, 'RPC')}. In all other figures, each of their "
            "calls counts once, as its leg before the proxy."
        )
    if one := found.unjoined:
        others = f", and {count(one.hosts - 1, 'other host')} like it" if one.hosts > 1 else ""
        yield (
            f"{one.host} serves {one.method} and calls it, too ({count(one.rpcs, 'RPC')}){others}. If it passes calls "
            "on, they count twice: legs are joined only if one recording has both."
        )


def rate(per_s: float | None) -> str:
    """Format a number of RPCs per second."""
    if per_s is None:
        return ""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def describe_total(every: Change) -> str:
    """Describe how the mean time of all RPCs changed since another dataset."""
    if every.before_ns is None or every.after_ns is None:
        return f"{count(every.rpcs, 'RPC')}; before, {count(every.rpcs_before, 'RPC')}."
    text = (
        f"{count(every.rpcs, 'RPC')} took {duration(every.after_ns)} each; before, {count(every.rpcs_before, 'RPC')} "
        f"took {duration(every.before_ns)} each ({format_change(every)})."
    )
    return f"{text} {every.cause} changed most ({format_signed(every.cause_ns)})." if every.cause_ns else text


def format_change(change: Change) -> str:
    """Format the change of the mean time as a share of the time before."""
    if change.before_ns is None or change.after_ns is None:
        return "new" if change.before_ns is None else "gone"
    return f"{change.after_ns / change.before_ns - 1:+,.0%}" if change.before_ns else ""


def format_signed(ns: int) -> str:
    """Format a difference of durations with its sign."""
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


def shorten(name: str, most: int) -> str:
    """Cut the beginning of a long name."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"


def mostly(budget: Mapping[str, int]) -> tuple[str, float]:
    """Find the cause with the most time, and its share."""
    cause = max(budget, key=lambda name: (budget[name], name), default="unexplained")
    return cause, budget.get(cause, 0) / max(sum(budget.values()), 1)


def changed(change: Since) -> str:
    """Describe a change: its time, its factor, and the cause that changed most."""
    return f"{began(change)}, RPCs are {faster(change)}; {change.cause} changed most"


def began(change: Since) -> str:
    """Say when a change was, how exactly this is known, and how often chance alone shows one as clear."""
    often = 1 / change.chance
    digits = 10 ** (len(str(int(often))) - 1)
    chance = "less than 1 in 1,000" if often >= 1000 else f"about 1 in {int(often / digits) * digits:,}"
    return f"since {moment(change.time_ns)} UTC ({margin(change)}; by chance: {chance})"


def margin(change: Since, among: tuple[int | None, int | None] | None = None) -> str:
    """Format how exactly the time of a change is known."""
    within = max(change.time_ns - change.earliest_ns, change.latest_ns - change.time_ns)
    if within < 3_600_000_000_000:
        return f"± {within // 60_000_000_000} min"
    return f"between {moment(change.earliest_ns, among)} and {moment(change.latest_ns, among)}"


def faster(change: Since) -> str:
    """Format a change as `7.9 x longer` or `4.8 x shorter`."""
    factor = max(change.after_ns, change.before_ns) / max(min(change.after_ns, change.before_ns), 1)
    return f"{factor:.1f} x {'longer' if change.after_ns > change.before_ns else 'shorter'}"


def total(ns: int) -> str:
    """Format a sum of durations, in minutes or hours if it is long."""
    seconds = ns / 1e9
    if seconds < 600:
        return duration(ns)
    return f"{seconds / 60:,.0f} min" if seconds < 36_000 else f"{seconds / 3600:,.1f} h"


def moment(time_ns: int, among: tuple[int | None, int | None] | None = None) -> str:
    """Format a time in UTC; without the date if the first and last times in `among` are on one day."""
    try:
        found = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
        days = [datetime.fromtimestamp((one or 0) // 1_000_000_000, UTC).date() for one in among or ()]
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{found:%H:%M}" if days and days[0] == days[-1] else f"{found:%Y-%m-%d %H:%M}"
