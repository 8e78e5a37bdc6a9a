"""Say in sentences how two captures differ, and why where the packets prove it.

Every difference is measured first. A reason is given only where figures of both captures account for it: kinds of
packets, causes of RPC time, concurrent RPCs times their duration, or the time that a finding of one capture measured.
Without a reason the sentence says that the cause is not visible.
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
from ..shared.causes import name_cause
from .figures import bunched, packets_of, part, shifts, unit, units, weight
from .run import Run, answered, over

NOTABLE = 1.1
"""Least factor between two figures that is a difference (heuristic: repeated runs differ by some percent)."""
MOSTLY = 0.5
"""Share of a difference from which its parts are the reason for it."""
PARTLY = 0.2
"""Share of a difference from which a part is named beside others."""
FAILED = 0.01
"""Least difference between shares of failed RPCs that is reported."""
LEAST_NS = 1_000
"""Least difference of mean latencies that is reported: the clocks of captures have a resolution of a microsecond."""
NOT_VISIBLE = "the cause is not visible in these captures"

What = Literal["failed_rpcs", "packets_per_message", "throughput", "latency", "turnaround"]


class Reason(Struct, frozen=True):
    """A reason for a difference."""

    text: str
    share: float
    """Share of the difference that the reason accounts for."""
    finding: Finding | None = None
    """The finding of the worse capture that shows the reason."""


class Difference(Struct, frozen=True):
    """A difference between two captures."""

    what: What
    worse: str
    """Label of the worse capture."""
    other: str
    ratio: float | None
    """Larger figure divided by the smaller one, so 1 or more; None if the smaller one is 0."""
    fact: str
    """What differs, as a clause."""
    reasons: tuple[Reason, ...]
    """The reasons; empty where the cause is not visible in the captures."""

    @property
    def sentence(self) -> str:
        """Join the fact and its reasons."""
        if not self.reasons:
            return f"{self.fact}; {NOT_VISIBLE}."
        whole = sum(reason.share for reason in self.reasons)
        word = "because" if whole >= MOSTLY else f"in part ({whole:.0%}) because"
        return f"{self.fact} {word} {', and '.join(reason.text for reason in self.reasons)}."


def differences(first: Run, second: Run) -> tuple[Difference, ...]:
    """List the differences, the most important first: failures, then by severity of the explaining finding."""
    found = [
        difference
        for of in (_compare_failures, _compare_packets, _compare_throughput, _compare_latency)
        for difference in of(first, second)
        if difference is not None
    ]
    return tuple(sorted(found, key=_rank_difference))


def _rank_difference(difference: Difference) -> tuple[bool, int, bool, float]:
    grave = max((weight(reason.finding) for reason in difference.reasons), default=-1)
    return (
        difference.what != "failed_rpcs",
        -max(grave, 0),  # a finding of severity info ranks like plain figures
        not difference.reasons,
        -(difference.ratio or math.inf),
    )


def text(first: Run, second: Run) -> str:
    """State the most important difference in one sentence."""
    found = differences(first, second)
    if not found:
        return f"{first.label} and {second.label} do not differ by {NOTABLE - 1:.0%} or more in what was compared."
    return found[0].sentence


def graver(name: str, worse: Run, other: Run) -> Finding | None:
    """Find the finding of that id in one capture, unless the other has it with the same or a higher severity."""
    finding = worse.finding(name)
    return finding if finding and weight(finding) > weight(other.finding(name)) else None


def times(ratio: float) -> str:
    """Format a ratio as `3.2 times`."""
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times" if ratio >= 2 else f"{ratio:.2f} times"


def rate(value: float) -> str:
    """Format a rate with three significant digits, or with all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _order_by(first: Run, second: Run, of: Callable[[Run], float | None]) -> tuple[Run, Run, float] | None:
    """Give the capture with the larger figure, the other one, and the ratio; None without a notable difference."""
    one, two = of(first), of(second)
    if not one or not two:
        return None
    worse, other, ratio = (first, second, one / two) if one > two else (second, first, two / one)
    return (worse, other, ratio) if ratio >= NOTABLE else None


_FAILING: Mapping[str, tuple[str, ...]] = {
    "DEADLINE_EXCEEDED": ("deadline-exceeded",),
    "CANCELLED": ("cancelled",),
}
"""Findings that explain a status."""
_ENDED = ("too-many-pings", "connection-closed-early", "rpc-errors")
"""Findings that explain all other statuses, the most specific first."""


def _compare_failures(first: Run, second: Run) -> Iterator[Difference]:
    one, two = first.failed_share, second.failed_share
    if one is None or two is None or abs(one - two) < FAILED:
        return
    worse, other = (first, second) if one > two else (second, first)
    most, least = max(one, two), min(one, two)
    fact = f"{most:.1%} of the RPCs fail in {worse.label} ({least:.1%} in {other.label})"
    reason = _explain_failures(worse, other)
    yield Difference("failed_rpcs", worse.label, other.label, over(most, least), fact, (reason,) if reason else ())


def _explain_failures(worse: Run, other: Run) -> Reason | None:
    """Find the statuses with the largest increase, and the finding that explains them."""
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


def _compare_packets(first: Run, second: Run) -> Iterator[Difference]:
    found = _order_by(first, second, lambda run: over(run.packets, run.messages))
    if found is None:
        return
    worse, other, ratio = found
    per = [run.packets / run.messages for run in (worse, other)]
    fact = f"{worse.label} sends {times(ratio)} as many packets per message as {other.label}"
    fact += f" ({per[0]:.2f} against {per[1]:.2f})"
    reasons = tuple(_explain_packets(worse, other, per[0] - per[1]))
    yield Difference("packets_per_message", worse.label, other.label, ratio, fact, reasons)


def _explain_packets(worse: Run, other: Run, excess: float) -> Iterator[Reason]:
    """Name the kinds of packets that account for the excess, the largest first."""
    shares = {
        kind: ((part(worse, kind) or 0.0) - (part(other, kind) or 0.0)) / excess
        for kind in ("data", "control", "other")
    }
    for kind, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share >= PARTLY and (reason := _PARTS[kind](worse, other, share)):
            yield reason


def _explain_data(worse: Run, other: Run, share: float) -> Reason | None:
    """Explain more packets with messages or headers: fewer messages share a packet, or messages are larger."""
    apart, together = bunched(worse), bunched(other)
    if apart is None or together is None:
        return None
    if together >= NOTABLE * apart:
        sharing = f"a packet carries {apart:.1f} of its messages instead of {together:.1f}"
        finding = graver("small-packets", worse, other)
        spread = _describe_spread(worse, other)
        return Reason(f"{spread}, so {sharing}" if spread else sharing, share, finding)
    size = [over(run.sent("message_bytes"), run.messages) for run in (worse, other)]
    if size[0] and size[1] and size[0] >= NOTABLE * size[1]:
        return Reason(f"its messages are {times(size[0] / size[1])} as large", share)
    cut = [over(run.sent("data_frames"), run.messages) for run in (worse, other)]
    if cut[0] and cut[1] and cut[0] >= NOTABLE * cut[1]:
        frames = f"its messages are split into {cut[0]:.1f} DATA frames instead of {cut[1]:.1f}"
        return Reason(frames, share, graver("small-packets", worse, other))
    return None


def _describe_spread(worse: Run, other: Run) -> str | None:
    """Say that messages of many streams are sent at more different times; None if they are not."""
    busy = [run.sent("busy_intervals_10ms") for run in (worse, other)]
    if worse.callers < 2 or not busy[0] or not busy[1]:
        return None
    if busy[0] / worse.messages < NOTABLE * busy[1] / other.messages:
        return None
    return (
        f"its {worse.callers:,} {'streams' if worse.streaming else 'callers'} send at more different times "
        f"({busy[0]:,} intervals of 10 ms with messages against {busy[1]:,}, both directions)"
    )


def _explain_control(worse: Run, other: Run, share: float) -> Reason:
    """Explain more packets with only control frames."""
    storms = [f for name in ("ping-storm", "window-update-storm") if (f := graver(name, worse, other))]
    more, fewer = (_format_part(run, packets_of(run, "control") or 0) for run in (worse, other))
    text = f"{more} packets carry only {_name_frames(worse)} ({other.label}: {fewer})"
    return Reason(text, share, max(storms, key=weight, default=None))


def _name_frames(run: Run) -> str:
    """Name the control frames, the most frequent first."""
    names = {
        "PING": run.sent("pings") + run.sent("ping_acks"),
        "WINDOW_UPDATE": run.sent("window_updates"),
        "SETTINGS": run.sent("settings"),
    }
    most = max(names.values())
    frequent = [name for name, number in sorted(names.items(), key=lambda item: -item[1]) if number >= PARTLY * most]
    return " or ".join(frequent)


def _explain_other(worse: Run, other: Run, share: float) -> Reason:
    """Explain more packets without payload, and more retransmissions."""
    again, theirs = over(worse.retransmitted, worse.messages) or 0.0, over(other.retransmitted, other.messages) or 0.0
    rest = (part(worse, "other") or 0.0) - (part(other, "other") or 0.0)
    if again - theirs >= MOSTLY * rest:
        more, fewer = (_format_part(run, run.retransmitted) for run in (worse, other))
        text = f"{more} packets are retransmitted ({other.label}: {fewer})"
        return Reason(text, share, graver("loss-recovery", worse, other))
    more, fewer = (_format_part(run, packets_of(run, "other") or 0) for run in (worse, other))
    return Reason(f"{more} packets only acknowledge, open or close ({other.label}: {fewer})", share)


def _format_part(run: Run, packets: int) -> str:
    return f"{packets:,} of {run.packets:,}"


_PARTS: dict[str, Callable[[Run, Run, float], Reason | None]] = {
    "data": _explain_data,
    "control": _explain_control,
    "other": _explain_other,
}


def _compare_throughput(first: Run, second: Run) -> Iterator[Difference]:
    kind = unit((first, second))
    found = _order_by(first, second, lambda run: over(run.span_ns, units(run, kind)))
    if found is None:
        return
    slow, fast, ratio = found
    rates = [over(units(run, kind) * 1e9, run.span_ns) or 0.0 for run in (slow, fast)]
    fact = (
        f"{fast.label}'s throughput is {times(ratio)} {slow.label}'s "
        f"({rate(rates[1])} against {rate(rates[0])} {kind}s per second)"
    )
    reasons = tuple(_explain_throughput(slow, fast, ratio, kind))
    yield Difference("throughput", slow.label, fast.label, ratio, fact, reasons)


def _explain_throughput(slow: Run, fast: Run, ratio: float, kind: str) -> Iterator[Reason]:
    """Give one reason for the lower rate, the most specific one that accounts for it."""
    fitting = [
        reason
        for of in (_check_stream_limit, _check_shared_connection, _check_concurrency, _check_durations)
        if (reason := of(slow, fast, ratio, kind)) and reason.share >= PARTLY
    ]
    mostly = [reason for reason in fitting if reason.share >= MOSTLY]
    yield from (mostly or fitting)[:1]


def _check_stream_limit(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check for a limit of concurrent streams: open RPCs are fewer by about the factor of the rates."""
    finding = graver("max-concurrent-streams", slow, fast)
    if finding is None or not slow.at_once or not fast.at_once or fast.at_once <= slow.at_once:
        return None
    at_limit, limit = _read_metric(finding, "at_limit_share"), _read_metric(finding, "max_concurrent_streams")
    text = (
        f"{slow.label}'s server allows {count(int(limit), 'concurrent stream')} and this limit is reached "
        f"{at_limit:.0%} of the time: {slow.at_once:.1f} {'streams' if slow.streaming else 'RPCs'} are open on "
        f"average against {fast.at_once:.1f}"
    )
    return Reason(text, _compute_share(fast.at_once / slow.at_once, ratio), finding)


def _compute_share(factor: float, ratio: float) -> float:
    """Compute the share of a ratio, 0 to 1, that one of its factors accounts for."""
    return min(max(math.log(factor) / math.log(ratio), 0.0), 1.0) if factor > 0 else 0.0


def _read_metric(finding: Finding, name: str) -> float:
    value = finding.metrics.get(name)
    return value if isinstance(value, int | float) else 0.0


def _check_shared_connection(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check for a connection shared by many callers that waits for the client for the additional time."""
    found = [f for name in ("shared-connection", "client-idle-gap") if (f := graver(name, slow, fast))]
    if not found or slow.span_ns is None:
        return None
    finding = max(found, key=weight)
    held, share = _read_metric(finding, "client_held_ns"), _read_metric(finding, "client_held_share")
    excess = slow.span_ns * (1 - 1 / ratio)
    callers = int(_read_metric(finding, "callers"))
    text = (
        f"in {slow.label} {count(callers, 'caller')} share a connection that waits for the client to send {share:.0%} "
        f"of the time, while {fast.label} has "
        f"{count(fast.connections, 'connection')} for {count(fast.callers, 'caller')}"
    )
    return Reason(text, min(held / excess, 1.0), finding)


def _check_concurrency(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check whether the faster capture has more concurrent RPCs or streams."""
    if kind == "message":
        if fast.callers < NOTABLE * slow.callers or not slow.callers:
            return None
        text = f"{fast.label} has {count(fast.callers, 'concurrent stream')}, {slow.label} has {slow.callers:,}"
        return Reason(text, _compute_share(fast.callers / slow.callers, ratio))
    if not slow.at_once or not fast.at_once or fast.at_once < NOTABLE * slow.at_once:
        return None
    text = f"{fast.label} has {fast.at_once:.1f} concurrent RPCs on average, {slow.label} has {slow.at_once:.1f}"
    return Reason(text, _compute_share(fast.at_once / slow.at_once, ratio))


def _check_durations(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check whether RPCs take longer; for streams, whether a cause takes more time per message."""
    each = [over(run.rpc_time_ns, units(run, kind)) for run in (slow, fast)]
    if not each[0] or not each[1] or each[0] < NOTABLE * each[1]:
        return None
    parts = _rank_causes(slow.analysis.budget, units(slow, kind), fast.analysis.budget, units(fast, kind))
    share = _compute_share(each[0] / each[1], ratio)
    if not parts or (kind == "message" and slow.callers >= NOTABLE * fast.callers):
        return None
    lasting = f"RPCs take {times(each[0] / each[1])} as long in {slow.label}: " if kind == "RPC" else ""
    return Reason(lasting + _describe_causes(parts), share)


def _compare_latency(first: Run, second: Run) -> Iterator[Difference]:
    """Compare the shared method with the most RPC time: durations of RPCs, or response times of streams."""
    shared = [name for name in first.named_methods if name in second.named_methods]
    if not shared:
        return
    name = max(shared, key=lambda name: sum(sum(run.named_methods[name].budget.values()) for run in (first, second)))
    kinds = [answered(run.named_methods[name])[0] for run in (first, second)]
    if kinds[0] == kinds[1] == "turnaround":
        yield from _compare_response_times(first, second, name)
    elif kinds[0] == kinds[1]:
        yield from _compare_durations(first, second, name)


def _compute_mean(method: MethodFacts) -> float | None:
    return over(sum(method.budget.values()), method.rpcs)


def _compare_durations(first: Run, second: Run, name: str) -> Iterator[Difference]:
    found = _order_by(first, second, lambda run: _compute_mean(run.named_methods[name]))
    if found is None:
        return
    worse, other, ratio = found
    long, short = worse.named_methods[name], other.named_methods[name]
    means = [_compute_mean(method) or 0.0 for method in (long, short)]
    certain = [shift.certain for shift in shifts((first, second)) if shift.method == name]
    if means[0] - means[1] < LEAST_NS or (certain and not any(sure is not False for sure in certain)):
        return
    parts = _rank_causes(long.budget, long.rpcs, short.budget, short.rpcs)
    which = "RPCs" if len(first.analysis.methods) == len(second.analysis.methods) == 1 else f"RPCs of {name}"
    fact = (
        f"{which} take {times(ratio)} as long in {worse.label} as in {other.label} "
        f"(mean {duration(means[0])} against {duration(means[1])})"
    )
    reasons = []
    if parts:
        finding = _find_finding(worse, other, parts, (means[0] - means[1]) * worse.rpcs)
        text = _describe_causes(parts) + (f" ({finding.id}: {finding.title})" if finding else "")
        reasons = [Reason(text, sum(share for _, share in parts), finding)]
    yield Difference("latency", worse.label, other.label, ratio, fact, tuple(reasons))


def _compare_response_times(first: Run, second: Run, name: str) -> Iterator[Difference]:
    """Compare medians of response times, which an initial queue does not move; no budget divides response times."""
    medians = [shift for shift in shifts((first, second)) if (shift.method, shift.quantile) == (name, "p50")]
    if not medians or medians[0].certain is False:
        return
    figures = {first.label: medians[0].from_ns, second.label: medians[0].to_ns}
    found = _order_by(first, second, lambda run: figures[run.label])
    if found is None or abs(medians[0].shift_ns) < LEAST_NS:
        return
    worse, other, ratio = found
    fact = (
        f"{worse.label}'s response time is {times(ratio)} {other.label}'s "
        f"(p50 {duration(figures[worse.label])} against {duration(figures[other.label])})"
    )
    yield Difference("turnaround", worse.label, other.label, ratio, fact, ())


_UNKNOWN = ("capture_gap", "unexplained")
"""Causes that are no reasons."""

_Parts = list[tuple[str, float]]
"""Causes with their shares of a difference; a share exceeds 1 where other causes took less time."""

_ENOUGH = 0.8
"""Share of a difference after which no further cause is named."""


def _rank_causes(long: Mapping[str, int], works: int, short: Mapping[str, int], others: int) -> _Parts:
    """Rank causes by their share of the additional time per RPC or message, as many as make up most of it."""
    each = {cause: long.get(cause, 0) / max(works, 1) - short.get(cause, 0) / max(others, 1) for cause in CAUSES}
    excess, parts, named = sum(each.values()), [], 0.0
    for cause, ns in sorted(each.items(), key=lambda item: -item[1]):
        if named >= _ENOUGH or excess <= 0 or ns < PARTLY * excess or cause in _UNKNOWN:
            break
        parts.append((cause, ns / excess))
        named += ns / excess
    return parts


def _describe_causes(parts: _Parts) -> str:
    """Describe causes: `92% of the difference is waits for the server to send`."""
    texts = [f"{min(parts[0][1], 1.0):.0%} of the difference is {name_cause(parts[0][0])}"]
    texts += [f"{min(share, 1.0):.0%} {name_cause(cause)}" for cause, share in parts[1:]]
    return " and ".join(texts)


_FINDINGS_OF: dict[str, tuple[str, ...]] = {
    "server": ("server-latency",),
    "congestion_window": ("slow-start-after-idle", "initial-congestion-window", "loss-recovery"),
    "receive_window": ("receive-window-stall",),
    "stream_window": ("stream-window-stall",),
    "connection_window": ("connection-window-stall",),
    "loss_recovery": ("loss-recovery",),
    "delayed_ack": ("delayed-ack-nagle",),
    "head_of_line": ("head-of-line-blocking",),
    "network_queue": ("network-queueing",),
    "peer_unreachable": ("peer-unreachable", "idle-connection-cut"),
}
"""Findings that explain a cause's time, the most specific first."""


def _find_finding(worse: Run, other: Run, parts: _Parts, excess_ns: float) -> Finding | None:
    """Find a finding of these causes in the worse capture whose lost time is most of the difference."""
    names: Iterable[str] = (name for cause, _ in parts for name in _FINDINGS_OF.get(cause, ()))
    found = [finding for name in names if (finding := graver(name, worse, other))]
    return next((f for f in found if f.lost_ns is not None and f.lost_ns >= MOSTLY * excess_ns), None)
