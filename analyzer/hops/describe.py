"""Describe what a proxy did with its calls: how long it held them, and what it buffered, retried or lost."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from ..facts.software_at import recognise_proxy
from ..model.analysis import Hop, Quantiles
from ..model.finding import Evidence, Remedy
from ..model.text import count, duration
from ..software import intents, settings
from ..summary.hops import Proxy, are_same_packets
from ..summary.quantiles import make_quantiles, quantiles_of
from ..tables import PAUSE_NS, Tables
from ..tables.grouping import take_rows
from .dividing import Held, Messages
from .faults import Fault, compare_ends, list_faults
from .matching import AMBIGUOUS, BY_ORDER, EXACT, Joined

_PACES = 10
"""Fewest times between calls that can show a regular rate (heuristic: fewer may look regular by chance)."""
_REGULAR = 0.1
"""Largest interquartile range of regular times, as a share of the median (heuristic: a timer's accuracy)."""
_MOST = 0.5
"""Share of the calls above which the verdict speaks of all calls (heuristic: the majority)."""


def describe_hop(
    tables: Tables, proxy: Proxy, held: Held, joined: Joined, messages: Messages
) -> tuple[Hop, tuple[Fault, ...]]:
    """Describe the calls through one proxy, and those of them whose legs ended differently."""
    rpcs, how = tables.rpcs, joined.how[held.first]
    sure = take_rows(held, how != AMBIGUOUS)
    ends = rpcs.start_time_ns + rpcs.duration_ns
    compared = compare_ends(tables, sure, joined)
    times = [
        make_quantiles(quantiles_of(column))
        for column in (
            rpcs.duration_ns[sure.front],
            ends[sure.last] - rpcs.start_time_ns[sure.first],
            sure.up_ns,
            sure.down_ns,
        )
    ]
    names = tables.server(int(proxy.front[0])), tables.server(int(proxy.back[0]))
    usual = _find_usual(sure)
    evidence = tuple(_show(tables, messages, usual)) if usual else ()
    whole = int(held.held_ns.sum())
    first = _say_held(names[0], times, evidence) or _say_mean(names[0], whole, len(held.front))
    faults = tuple(list_faults(tables, names[0], sure, compared))
    hop = Hop(
        proxy=names[0],
        server=names[1],
        front=tuple(np.unique(rpcs.connection[held.front]).tolist()),
        back=tuple(np.unique(rpcs.connection[np.isin(joined.parent, held.front)]).tolist()),
        calls=len(held.front),
        exact=int((how == EXACT).sum()),
        by_order=int((how == BY_ORDER).sum()),
        ambiguous=int((how == AMBIGUOUS).sum()),
        duration_ns=times[0],
        behind_ns=times[1],
        held_ns=whole,
        held_up_ns=times[2],
        held_down_ns=times[3],
        whole_requests=int(((sure.sending_ns >= PAUSE_NS) & sure.waited_for_end).sum()),
        whole_responses=int((sure.answering_ns >= PAUSE_NS).sum()),
        calls_per_second=_find_pace(tables, sure),
        retried=int((sure.legs > 1).sum()),
        failed_attempts=len(compared.attempts),
        resets_not_passed_on=int(compared.went_on.sum()),
        answers_lost=int(compared.lost.sum()),
        failed_behind=int(compared.same.sum()),
        statuses_changed=int(compared.changed.sum()),
        text="",
        verdict="",
        evidence=(*evidence, *(item for fault in faults for item in fault.evidence)),
        remedies=(),
    )
    text = " ".join((first, *_say_counts(hop, len(sure.front)), *(fault.text for fault in faults)))
    verdict = _say_retries(names[0], sure, whole) or _say_verdict(first, hop, sure)
    remedies = tuple(_list_remedies(tables, proxy, hop, len(sure.front)))
    return replace(hop, text=text, verdict=verdict, remedies=remedies), faults


def note_hop(tables: Tables, hop: Hop) -> str:
    """Say how many calls have both legs joined, and how certainly."""
    back = [row for row in hop.back if tables.server(row) == hop.server]
    legs = [int(tables.connections.rpcs[list(rows)].sum()) for rows in (hop.front, back)]
    hows = (
        (hop.exact, "by traceparent or x-request-id"),
        (hop.by_order, "by sizes and times"),
        (hop.ambiguous, "by sizes and times in one of several ways"),
    )
    said = ", ".join(f"{number:,} {how}" for number, how in hows if number)
    if are_same_packets(tables, np.array(hop.front, dtype=np.intp), np.array(back, dtype=np.intp)):
        return (
            f"{hop.proxy} and {hop.server} get the same packets, so a NAT translates their addresses: the "
            f"{count(hop.calls, 'call')} that the capture has twice {'is' if hop.calls == 1 else 'are'} counted once"
        )
    return (
        f"{hop.proxy} is a proxy: {hop.calls:,} of its {count(legs[0], 'RPC')} are joined with the "
        f"{count(legs[1], 'RPC')} to {hop.server} ({said}), so each call is counted once"
    )


def _find_pace(tables: Tables, held: Held) -> float | None:
    """Find the rate, per second, at which the proxy passes on held calls; None if the times between them vary."""
    order = np.argsort(tables.rpcs.start_time_ns[held.first])
    times, waited = tables.rpcs.start_time_ns[held.first][order], (held.up_ns >= PAUSE_NS)[order]
    between = np.diff(times)[waited[1:] & waited[:-1]]
    if len(between) < _PACES:
        return None
    low, middle, high = np.quantile(between, (0.25, 0.5, 0.75))
    return float(1e9 / middle) if middle > 0 and high - low <= _REGULAR * middle else None


def _find_usual(held: Held) -> Held | None:
    """Find the call with the median time held; None without calls."""
    if not len(held.front):
        return None
    place = np.argsort(held.up_ns + held.down_ns, kind="stable")[(len(held.front) - 1) // 2]
    return take_rows(held, [place])


def _show(tables: Tables, messages: Messages, held: Held) -> Iterator[Evidence]:
    """List the packets of one call on both legs."""
    rpcs = tables.rpcs
    front, first, last = int(held.front[0]), int(held.first[0]), int(held.last[0])
    ends = rpcs.start_time_ns + rpcs.duration_ns
    on = [f"connection {int(rpcs.connection[row])}, stream {int(rpcs.stream[row])}" for row in (front, first, last)]
    yield Evidence(
        int(messages.first_packet[front]), int(messages.first_ns[front]), f"the request is at the proxy ({on[0]})"
    )
    yield Evidence(int(rpcs.first_packet[first]), int(rpcs.start_time_ns[first]), f"it passes it on ({on[1]})")
    for row, what, where in ((last, "the server behind has answered", on[2]), (front, "the call ends", on[0])):
        if rpcs.last_packet[row]:
            yield Evidence(int(rpcs.last_packet[row]), int(ends[row]), f"{what} ({where})")


def _say_held(proxy: str, times: list[Quantiles | None], evidence: tuple[Evidence, ...]) -> str:
    whole, _, up, down = times
    if not whole or not up or not down:
        return ""
    places = [f" (packets {one.packet} to {other.packet})" for one, other in pairwise(evidence)]
    parts = []
    if up.p50 > 0 or not down.p50:  # a proxy that passes headers on at once may do so before the request is whole
        parts.append(f"the request for {duration(up.p50)}{places[0]}")
    if down.p50 >= up.p50:
        parts.append(f"the response for {duration(down.p50)}{places[2] if len(places) > 2 else ''}")
    return f"Of the {duration(whole.p50)} of a call (median), the proxy {proxy} held {' and '.join(parts)}."


def _say_mean(proxy: str, held_ns: int, calls: int) -> str:
    return (
        f"The proxy {proxy} held calls for {duration(held_ns / calls)} (mean). How long it held each one is unknown: "
        "their legs can be joined in several ways."
    )


def _say_counts(hop: Hop, calls: int) -> Iterator[str]:
    if hop.whole_requests:
        yield (
            f"It waited for the whole request of {count(hop.whole_requests, 'call')}: it passed the first message "
            "on after the client had ended the request."
        )
    if hop.whole_responses:
        yield (
            f"It waited for the whole response of {count(hop.whole_responses, 'call')}: it passed the first message "
            "on after the server had sent the last one."
        )
    if hop.calls_per_second:
        yield f"It passed on {hop.calls_per_second:,.1f} calls per second at equal intervals, as a rate limit does."
    if hop.retried:
        yield f"It retried {count(hop.retried, 'call')} on its own."
    if hop.failed_behind:
        yield f"{count(hop.failed_behind, 'call')} of {calls:,} failed with the status of the server behind."


def _say_retries(proxy: str, held: Held, whole_ns: int) -> str:
    """Say that most of the time held passed in calls that the proxy retried, if it did."""
    retried = held.legs > 1
    time = int(held.held_ns[retried].sum())
    if time <= _MOST * whole_ns:
        return ""
    calls = count(int(retried.sum()), "call")
    return f"The proxy {proxy} held calls for {duration(time)} while it retried {calls}: look for why attempts failed."


def _say_verdict(first: str, hop: Hop, held: Held) -> str:
    calls = len(held.front)
    if hop.whole_requests > _MOST * calls:
        return f"{first} It waits for whole requests: switch that buffer off.{_say_sent(held)}"
    if hop.whole_responses > _MOST * calls:
        return f"{first} It waits for whole responses: switch that buffer off."
    if hop.calls_per_second:
        return f"{first} It passes on {hop.calls_per_second:,.0f} calls per second: look for a rate limit."
    return f"{first} Look for its queues, limits and filters."


def _say_sent(held: Held) -> str:
    """Say that the client was still sending most of that time: without the buffer the calls may last as long."""
    waited = held.waited_for_end
    if held.sending_ns[waited].sum() <= _MOST * held.up_ns[waited].sum():
        return ""
    sent = duration(float(np.median(held.sending_ns[waited])))
    return f" Calls may take as long without the buffer: the client sends for {sent}."


def _list_remedies(tables: Tables, proxy: Proxy, hop: Hop, calls: int) -> Iterator[Remedy]:
    """List the settings of the proxy that fit what the packets show."""
    software = recognise_proxy(tables, proxy.front.tolist())
    if hop.whole_requests > _MOST * calls:
        yield from settings.list_own(intents.UNBUFFERED, software)
    if hop.calls_per_second:
        yield from settings.list_own(intents.RATE, software)
