"""In what two captures differ, in sentences, and why as far as the packets prove it.

A difference is counted first. A reason is given only where figures of both captures account for it: the parts that
packets divide into, the causes that RPC time divides into, RPCs open at once times their duration, or the time that a
finding of one capture measured. Where none does, the sentence says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from ...analyzer.model.analysis import MethodFacts
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration
from .figures import bunched, packets_of, part, shifts, unit, units, weight
from .run import Run, answered, over

NOTABLE = 1.1
"""Factor between two figures from which it is a difference (own choice: runs of one work differ by some percent)."""
MOSTLY = 0.5
"""Share of a difference from which what accounts for it is its reason."""
PARTLY = 0.2
"""Share from which it is worth naming beside others."""
FAILED = 0.01
"""Difference between shares of failed RPCs that is worth telling."""
LEAST_NS = 1_000
"""Difference of mean latencies that is worth telling: clocks of captures have a resolution of a microsecond."""
NOT_TOLD = "why: not told by the packets"

What = Literal["failed_rpcs", "packets_per_message", "throughput", "latency", "turnaround"]


class Reason(Struct, frozen=True):
    """What accounts for a difference."""

    text: str
    share: float
    """Of the difference, as far as it is counted."""
    finding: Finding | None = None
    """The finding of the capture that is worse off."""


class Difference(Struct, frozen=True):
    """In what two captures differ."""

    what: What
    worse: str
    """Label of the capture that is worse off."""
    other: str
    ratio: float | None
    """How many times as much of it, 1 or more; None against none at all."""
    fact: str
    """What differs, a clause."""
    reasons: tuple[Reason, ...]
    """What accounts for it; empty where the packets do not tell."""

    @property
    def sentence(self) -> str:
        """Fact and reasons."""
        if not self.reasons:
            return f"{self.fact} ({NOT_TOLD})."
        whole = sum(reason.share for reason in self.reasons)
        word = "because" if whole >= MOSTLY else f"in part ({whole:.0%}) because"
        return f"{self.fact} {word} {', and '.join(reason.text for reason in self.reasons)}."


def differences(first: Run, second: Run) -> tuple[Difference, ...]:
    """What differs, the one to speak of first in front: failures, then what the gravest finding explains."""
    found = [
        difference
        for of in (_failures, _packets, _throughput, _latency)
        for difference in of(first, second)
        if difference is not None
    ]
    return tuple(sorted(found, key=_precedence))


def _precedence(difference: Difference) -> tuple[bool, int, bool, float]:
    grave = max((weight(reason.finding) for reason in difference.reasons), default=-1)
    return (
        difference.what != "failed_rpcs",
        -max(grave, 0),  # a remark explains no more than figures do
        not difference.reasons,
        -(difference.ratio or math.inf),
    )


def text(first: Run, second: Run) -> str:
    """The difference in one sentence."""
    found = differences(first, second)
    if not found:
        return f"{first.label} and {second.label} do not differ by {NOTABLE - 1:.0%} or more in what was compared."
    return found[0].sentence


def graver(name: str, worse: Run, other: Run) -> Finding | None:
    """The finding of that id in one capture, unless the other has it as grave."""
    finding = worse.finding(name)
    return finding if finding and weight(finding) > weight(other.finding(name)) else None


def times(ratio: float) -> str:
    """`3.2 times`."""
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times" if ratio >= 2 else f"{ratio:.2f} times"


def rate(value: float) -> str:
    """A rate with three significant digits or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ordered(first: Run, second: Run, of: Callable[[Run], float | None]) -> tuple[Run, Run, float] | None:
    """The capture with more of it, the other, and how many times as much; None without a notable difference."""
    one, two = of(first), of(second)
    if not one or not two:
        return None
    worse, other, ratio = (first, second, one / two) if one > two else (second, first, two / one)
    return (worse, other, ratio) if ratio >= NOTABLE else None


_FAILING: Mapping[str, tuple[str, ...]] = {
    "DEADLINE_EXCEEDED": ("deadline-exceeded",),
    "CANCELLED": ("cancelled",),
}
"""Findings that tell of a status."""
_ENDED = ("too-many-pings", "connection-closed-early", "rpc-errors")
"""Findings that tell of all others, the most particular first."""


def _failures(first: Run, second: Run) -> Iterator[Difference]:
    one, two = first.failed_share, second.failed_share
    if one is None or two is None or abs(one - two) < FAILED:
        return
    worse, other = (first, second) if one > two else (second, first)
    most, least = max(one, two), min(one, two)
    fact = f"{worse.label} fails {most:.1%} of its RPCs ({other.label} {least:.1%})"
    reason = _why_failed(worse, other)
    yield Difference("failed_rpcs", worse.label, other.label, over(most, least), fact, (reason,) if reason else ())


def _why_failed(worse: Run, other: Run) -> Reason | None:
    """The status with the most failures more, and the finding that tells of it."""
    more = {
        status: (over(number, worse.rpcs) or 0.0) - (over(other.statuses.get(status, 0), other.rpcs) or 0.0)
        for status, number in worse.statuses.items()
        if status not in ("OK", "not_seen")
    }
    whole = sum(share for share in more.values() if share > 0)
    groups: dict[tuple[str, ...], float] = {}
    for status, share in more.items():
        names = _FAILING.get(status, _ENDED)
        groups[names] = groups.get(names, 0.0) + max(share, 0.0)
    names, share = max(groups.items(), key=lambda item: item[1], default=(_ENDED, 0.0))
    finding = next((finding for name in names if (finding := graver(name, worse, other))), None)
    if finding is None or share < MOSTLY * whole or not whole:
        return None
    return Reason(f"{finding.title} ({finding.id})", min(share / whole, 1.0), finding)


def _packets(first: Run, second: Run) -> Iterator[Difference]:
    found = _ordered(first, second, lambda run: over(run.packets, run.messages))
    if found is None:
        return
    worse, other, ratio = found
    work = "for as many messages" if _alike(worse.messages, other.messages) else "per message"
    per = [run.packets / run.messages for run in (worse, other)]
    fact = f"{worse.label} sends {times(ratio)} the packets of {other.label} {work}"
    fact += f" ({per[0]:.2f} against {per[1]:.2f} each)"
    reasons = tuple(_why_packets(worse, other, per[0] - per[1]))
    yield Difference("packets_per_message", worse.label, other.label, ratio, fact, reasons)


def _alike(one: float, two: float) -> bool:
    return abs(one - two) <= 0.01 * max(one, two)


def _why_packets(worse: Run, other: Run, excess: float) -> Iterator[Reason]:
    """The parts of the packets that there are more of, the largest first."""
    shares = {
        kind: ((part(worse, kind) or 0.0) - (part(other, kind) or 0.0)) / excess
        for kind in ("data", "control", "other")
    }
    for kind, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share >= PARTLY and (reason := _PARTS[kind](worse, other, share)):
            yield reason


def _more_data(worse: Run, other: Run, share: float) -> Reason | None:
    """Packets with messages or headers: messages travel alone, or they are larger."""
    apart, together = bunched(worse), bunched(other)
    if apart is None or together is None:
        return None
    if together >= NOTABLE * apart:
        said = f"{apart:.1f} of its messages share a packet, not {together:.1f}"
        finding = graver("small-packets", worse, other)
        spread = _spread(worse, other)
        return Reason(f"{spread}, so that {said}" if spread else said, share, finding)
    size = [over(run.sent("message_bytes"), run.messages) for run in (worse, other)]
    if size[0] and size[1] and size[0] >= NOTABLE * size[1]:
        return Reason(f"its messages are {times(size[0] / size[1])} as large", share)
    cut = [over(run.sent("data_frames"), run.messages) for run in (worse, other)]
    if cut[0] and cut[1] and cut[0] >= NOTABLE * cut[1]:
        said = f"its messages are cut into {cut[0]:.1f} DATA frames, not {cut[1]:.1f}"
        return Reason(said, share, graver("small-packets", worse, other))
    return None


def _spread(worse: Run, other: Run) -> str | None:
    """That messages of many streams come at more different times, if they do."""
    busy = [run.sent("busy_intervals_10ms") for run in (worse, other)]
    if worse.callers < 2 or not busy[0] or not busy[1]:
        return None
    if busy[0] / worse.messages < NOTABLE * busy[1] / other.messages:
        return None
    return (
        f"the messages of its {worse.callers:,} {'streams' if worse.streaming else 'callers'} are spread in time (over "
        f"{busy[0]:,} intervals of 10 ms against {busy[1]:,}, both directions)"
    )


def _more_control(worse: Run, other: Run, share: float) -> Reason:
    """Packets of control frames alone."""
    storms = [f for name in ("ping-storm", "window-update-storm") if (f := graver(name, worse, other))]
    mine, theirs = (_of_all(run, packets_of(run, "control") or 0) for run in (worse, other))
    said = f"{mine} packets carry {_frames(worse)} alone ({other.label}: {theirs})"
    return Reason(said, share, max(storms, key=weight, default=None))


def _frames(run: Run) -> str:
    """Which control frames there are, most of them first."""
    names = {
        "PING": run.sent("pings") + run.sent("ping_acks"),
        "WINDOW_UPDATE": run.sent("window_updates"),
        "SETTINGS": run.sent("settings"),
    }
    most = max(names.values())
    kept = [name for name, number in sorted(names.items(), key=lambda item: -item[1]) if number >= PARTLY * most]
    return " or ".join(kept)


def _more_other(worse: Run, other: Run, share: float) -> Reason:
    """Packets without payload, and retransmissions."""
    again, theirs = over(worse.retransmitted, worse.messages) or 0.0, over(other.retransmitted, other.messages) or 0.0
    rest = (part(worse, "other") or 0.0) - (part(other, "other") or 0.0)
    if again - theirs >= MOSTLY * rest:
        mine, less = (_of_all(run, run.retransmitted) for run in (worse, other))
        said = f"{mine} packets are sent again ({other.label}: {less})"
        return Reason(said, share, graver("loss-recovery", worse, other))
    mine, less = (_of_all(run, packets_of(run, "other") or 0) for run in (worse, other))
    return Reason(f"{mine} packets only acknowledge, open or close ({other.label}: {less})", share)


def _of_all(run: Run, packets: int) -> str:
    return f"{packets:,} of {run.packets:,}"


_PARTS: dict[str, Callable[[Run, Run, float], Reason | None]] = {
    "data": _more_data,
    "control": _more_control,
    "other": _more_other,
}


def _throughput(first: Run, second: Run) -> Iterator[Difference]:
    kind = unit((first, second))
    found = _ordered(first, second, lambda run: over(run.span_ns, units(run, kind)))
    if found is None:
        return
    slow, fast, ratio = found
    rates = [over(units(run, kind) * 1e9, run.span_ns) or 0.0 for run in (slow, fast)]
    fact = (
        f"{fast.label} carries {times(ratio)} the {kind}s of {slow.label} per second "
        f"({rate(rates[1])} against {rate(rates[0])})"
    )
    yield Difference("throughput", slow.label, fast.label, ratio, fact, tuple(_why_slow(slow, fast, ratio, kind)))


def _why_slow(slow: Run, fast: Run, ratio: float, kind: str) -> Iterator[Reason]:
    """One reason for the rate, the most particular that accounts for it."""
    fitting = [
        reason
        for of in (_limit, _shared, _at_once, _lasting)
        if (reason := of(slow, fast, ratio, kind)) and reason.share >= PARTLY
    ]
    mostly = [reason for reason in fitting if reason.share >= MOSTLY]
    yield from (mostly or fitting)[:1]


def _limit(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """A limit of concurrent streams: as many times fewer RPCs open at once as the rate is lower."""
    finding = graver("max-concurrent-streams", slow, fast)
    if finding is None or not slow.at_once or not fast.at_once or fast.at_once <= slow.at_once:
        return None
    at_limit, limit = _metric(finding, "at_limit_share"), _metric(finding, "max_concurrent_streams")
    said = (
        f"its server allows {count(int(limit), 'stream')} at once and the limit binds {at_limit:.0%} of the time: "
        f"{slow.at_once:.1f} {_open(slow)} open on average against {fast.at_once:.1f}"
    )
    return Reason(f"in {slow.label} {said}", _of_ratio(fast.at_once / slow.at_once, ratio), finding)


def _open(run: Run) -> str:
    return "streams are" if run.streaming else "RPCs are"


def _of_ratio(factor: float, ratio: float) -> float:
    """What part of a ratio a factor of it is, 0 to 1."""
    return min(max(math.log(factor) / math.log(ratio), 0.0), 1.0) if factor > 0 else 0.0


def _metric(finding: Finding, name: str) -> float:
    value = finding.metrics.get(name)
    return value if isinstance(value, int | float) else 0.0


def _shared(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """A connection of many callers on which the client holds the ball, as long as the work takes longer."""
    found = [f for name in ("shared-connection", "client-idle-gap") if (f := graver(name, slow, fast))]
    if not found or slow.span_ns is None:
        return None
    finding = max(found, key=weight)
    held, share = _metric(finding, "client_held_ns"), _metric(finding, "client_held_share")
    excess = slow.span_ns * (1 - 1 / ratio)
    callers = int(_metric(finding, "callers"))
    said = (
        f"in {slow.label} {count(callers, 'caller')} share a connection, which the client keeps waiting {share:.0%} of "
        f"the time with nothing in flight and nothing owed, while {fast.label} has "
        f"{count(fast.connections, 'connection')} for {count(fast.callers, 'caller')}"
    )
    return Reason(said, min(held / excess, 1.0), finding)


def _at_once(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """More callers."""
    if kind == "message":
        if fast.callers < NOTABLE * slow.callers or not slow.callers:
            return None
        said = f"{fast.label} has {count(fast.callers, 'stream')} open at once, not {slow.callers:,}"
        return Reason(said, _of_ratio(fast.callers / slow.callers, ratio))
    if not slow.at_once or not fast.at_once or fast.at_once < NOTABLE * slow.at_once:
        return None
    said = f"{fast.label} has {fast.at_once:.1f} RPCs open at once on average, not {slow.at_once:.1f}"
    return Reason(said, _of_ratio(fast.at_once / slow.at_once, ratio))


def _lasting(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """RPCs that last longer; for streams, time of a cause for each message."""
    each = [over(run.rpc_time_ns, units(run, kind)) for run in (slow, fast)]
    if not each[0] or not each[1] or each[0] < NOTABLE * each[1]:
        return None
    parts = _causes(slow.analysis.budget, units(slow, kind), fast.analysis.budget, units(fast, kind))
    share = _of_ratio(each[0] / each[1], ratio)
    if not parts or (kind == "message" and slow.callers >= NOTABLE * fast.callers):
        return None
    lasting = f"RPCs take {times(each[0] / each[1])} as long in {slow.label}: " if kind == "RPC" else ""
    return Reason(lasting + _words(parts), share)


def _latency(first: Run, second: Run) -> Iterator[Difference]:
    """Of the method that both share with the most RPC time: whole RPCs, or the turnaround of streams."""
    shared = [name for name in first.named_methods if name in second.named_methods]
    if not shared:
        return
    name = max(shared, key=lambda name: sum(sum(run.named_methods[name].budget.values()) for run in (first, second)))
    kinds = [answered(run.named_methods[name])[0] for run in (first, second)]
    if kinds[0] == kinds[1] == "turnaround":
        yield from _turnaround(first, second, name)
    elif kinds[0] == kinds[1]:
        yield from _duration(first, second, name)


def _mean(method: MethodFacts) -> float | None:
    return over(sum(method.budget.values()), method.rpcs)


def _duration(first: Run, second: Run, name: str) -> Iterator[Difference]:
    found = _ordered(first, second, lambda run: _mean(run.named_methods[name]))
    if found is None:
        return
    worse, other, ratio = found
    long, short = worse.named_methods[name], other.named_methods[name]
    means = [_mean(method) or 0.0 for method in (long, short)]
    certain = [shift.certain for shift in shifts((first, second)) if shift.method == name]
    if means[0] - means[1] < LEAST_NS or (certain and not any(sure is not False for sure in certain)):
        return
    parts = _causes(long.budget, long.rpcs, short.budget, short.rpcs)
    which = "RPCs" if len(first.analysis.methods) == len(second.analysis.methods) == 1 else f"RPCs of {name}"
    fact = (
        f"{which} take {times(ratio)} as long in {worse.label} as in {other.label} "
        f"(mean {duration(means[0])} against {duration(means[1])})"
    )
    reasons = []
    if parts:
        finding = _behind(worse, other, parts, (means[0] - means[1]) * worse.rpcs)
        said = _words(parts) + (f" ({finding.id}: {finding.title})" if finding else "")
        reasons = [Reason(said, sum(share for _, share in parts), finding)]
    yield Difference("latency", worse.label, other.label, ratio, fact, tuple(reasons))


def _turnaround(first: Run, second: Run, name: str) -> Iterator[Difference]:
    """By the median, which a queue at the begin does not move; no budget divides it."""
    medians = [shift for shift in shifts((first, second)) if (shift.method, shift.quantile) == (name, "p50")]
    if not medians or medians[0].certain is False:
        return
    figures = {first.label: medians[0].from_ns, second.label: medians[0].to_ns}
    found = _ordered(first, second, lambda run: figures[run.label])
    if found is None or abs(medians[0].shift_ns) < LEAST_NS:
        return
    worse, other, ratio = found
    fact = (
        f"messages are answered {times(ratio)} as late in {worse.label} as in {other.label} "
        f"(p50 {duration(figures[worse.label])} against {duration(figures[other.label])})"
    )
    yield Difference("turnaround", worse.label, other.label, ratio, fact, ())


CAUSE_WORDS: Mapping[str, str] = {
    "client": "the client holding the ball",
    "server": "the server holding the ball",
    "network": "the network's round trips",
    "transmission": "bytes on their way",
    "congestion_window": "waits for the congestion window",
    "receive_window": "waits for the TCP receive window",
    "stream_window": "waits for the stream's window",
    "connection_window": "waits for the connection's window",
    "loss_recovery": "waits for lost packets",
    "delayed_ack": "waits for a delayed ACK",
    "head_of_line": "waits behind other streams",
}
"""Causes in words; `capture_gap` and `unexplained` are no reasons."""

_Parts = list[tuple[str, float]]
"""Causes and their parts in a difference, which may be more than 1 where other causes took less."""

_ENOUGH = 0.8
"""Part of a difference after which no further cause is named."""


def _causes(long: Mapping[str, int], works: int, short: Mapping[str, int], others: int) -> _Parts:
    """Causes by their part in the excess of time per RPC or message, the largest first, as many as make most of it."""
    each = {cause: long.get(cause, 0) / max(works, 1) - short.get(cause, 0) / max(others, 1) for cause in CAUSES}
    excess, parts, told = sum(each.values()), [], 0.0
    for cause, ns in sorted(each.items(), key=lambda item: -item[1]):
        if told >= _ENOUGH or excess <= 0 or ns < PARTLY * excess or cause not in CAUSE_WORDS:
            break
        parts.append((cause, ns / excess))
        told += ns / excess
    return parts


def _words(parts: _Parts) -> str:
    """`92 % of the difference is the server holding the ball`."""
    said = [f"{min(parts[0][1], 1.0):.0%} of the difference is {CAUSE_WORDS[parts[0][0]]}"]
    said += [f"{min(share, 1.0):.0%} {CAUSE_WORDS[cause]}" for cause, share in parts[1:]]
    return " and ".join(said)


_FINDINGS_OF: dict[str, tuple[str, ...]] = {
    "server": ("server-latency",),
    "congestion_window": ("slow-start-after-idle", "initial-congestion-window", "loss-recovery"),
    "receive_window": ("receive-window-stall",),
    "stream_window": ("stream-window-stall",),
    "connection_window": ("connection-window-stall",),
    "loss_recovery": ("loss-recovery",),
    "delayed_ack": ("delayed-ack-nagle",),
    "head_of_line": ("head-of-line-blocking",),
}
"""Which findings tell of a cause's time, the most particular first."""


def _behind(worse: Run, other: Run, parts: _Parts, excess_ns: float) -> Finding | None:
    """The finding of the worse capture that lost as much of these causes' time as makes most of the difference."""
    names: Iterable[str] = (name for cause, _ in parts for name in _FINDINGS_OF.get(cause, ()))
    found = [finding for name in names if (finding := graver(name, worse, other))]
    return next((f for f in found if f.lost_ns is not None and f.lost_ns >= MOSTLY * excess_ns), None)
