"""Say why RPCs of one capture take longer than the other's."""

from collections.abc import Iterator, Mapping

from ...analyzer.model.analysis import MethodFacts
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import duration
from ..shared.causes import name_cause
from .difference import LEAST_NS, MOSTLY, NOTABLE, PARTLY, Difference, Reason, list_new, order_by, times
from .figures import Shift, shifts
from .run import Run, answered, over


def compare_latency(first: Run, second: Run) -> Iterator[Difference]:
    """Compare the shared method with the most RPC time: durations of RPCs, or response times of streams."""
    name = _choose_method(first, second)
    if name is None:
        return
    kinds = [answered(run.named_methods[name])[0] for run in (first, second)]
    if kinds[0] != kinds[1]:
        return
    compare_middle = _compare_response_times if kinds[0] == "turnaround" else _compare_durations
    middle = list(compare_middle(first, second, name))
    yield from middle
    yield from (d for d in _compare_tails(first, second, name) if all(d.worse != other.worse for other in middle))


def _choose_method(first: Run, second: Run) -> str | None:
    shared = [name for name in first.named_methods if name in second.named_methods]

    def add_up(name: str) -> int:
        return sum(sum(run.named_methods[name].budget.values()) for run in (first, second))

    return max(shared, key=add_up, default=None)


def _compute_mean(method: MethodFacts) -> float | None:
    return over(sum(method.budget.values()), method.rpcs)


def _compare_durations(first: Run, second: Run, name: str) -> Iterator[Difference]:
    found = order_by(first, second, lambda run: _compute_mean(run.named_methods[name]))
    if found is None:
        return
    worse, other, ratio = found
    long, short = worse.named_methods[name], other.named_methods[name]
    means = [_compute_mean(method) or 0.0 for method in (long, short)]
    certain = [shift.certain for shift in shifts((first, second)) if shift.method == name]
    if means[0] - means[1] < LEAST_NS or (certain and not any(sure is not False for sure in certain)):
        return
    parts = rank_causes(long.budget, long.rpcs, short.budget, short.rpcs)
    which = "RPCs" if len(first.analysis.methods) == len(second.analysis.methods) == 1 else f"RPCs of {name}"
    fact = (
        f"{which} take {times(ratio)} as long in {worse.label} as in {other.label} "
        f"(mean {duration(means[0])} against {duration(means[1])})"
    )
    reasons = []
    if parts:
        finding = _find_finding(worse, other, parts, (means[0] - means[1]) * worse.rpcs)
        text = describe_causes(parts) + (f" ({finding.id}: {finding.title})" if finding else "")
        reasons = [Reason(text, sum(share for _, share in parts), finding)]
    yield Difference("latency", worse.label, other.label, ratio, fact, tuple(reasons))


def _compare_response_times(first: Run, second: Run, name: str) -> Iterator[Difference]:
    """Compare medians of response times, which an initial queue does not move; no budget divides response times."""
    medians = [shift for shift in shifts((first, second)) if (shift.method, shift.quantile) == (name, "p50")]
    if not medians or medians[0].certain is False:
        return
    figures = {first.label: medians[0].from_ns, second.label: medians[0].to_ns}
    found = order_by(first, second, lambda run: figures[run.label])
    if found is None or abs(medians[0].shift_ns) < LEAST_NS:
        return
    worse, other, ratio = found
    fact = (
        f"{worse.label}'s response time is {times(ratio)} {other.label}'s "
        f"(p50 {duration(figures[worse.label])} against {duration(figures[other.label])})"
    )
    yield Difference("turnaround", worse.label, other.label, ratio, fact, ())


TAILS = ("p90", "p99")


def _compare_tails(first: Run, second: Run, name: str) -> Iterator[Difference]:
    """Compare the slowest tenth and hundredth, if they differ by more than chance; no budget divides their time."""
    apart = [shift for shift in _list_apart(first, second, name) if shift.quantile in TAILS and shift.certain]
    if apart:
        shift = max(apart, key=_measure_factor)
        worse, other = (second, first) if shift.shift_ns > 0 else (first, second)
        fact = _describe_shift(shift, worse, other)
        yield Difference("tail", worse.label, other.label, _measure_factor(shift), fact, ())


def describe_doubt(first: Run, second: Run) -> str | None:
    """Describe the quantile that differs most although chance may explain it; None where none differs."""
    name = _choose_method(first, second)
    apart = [shift for shift in _list_apart(first, second, name) if not shift.certain] if name else []
    if not apart:
        return None
    shift = max(apart, key=_measure_factor)
    worse, other = (second, first) if shift.shift_ns > 0 else (first, second)
    return f"{_describe_shift(shift, worse, other)}, which may be chance."


def _list_apart(first: Run, second: Run, name: str) -> list[Shift]:
    return [
        shift
        for shift in shifts((first, second))
        if shift.method == name and abs(shift.shift_ns) >= LEAST_NS and _measure_factor(shift) >= NOTABLE
    ]


def _measure_factor(shift: Shift) -> float:
    low, high = sorted((shift.from_ns, shift.to_ns))
    return over(high, low) or 0.0


def _describe_shift(shift: Shift, worse: Run, other: Run) -> str:
    low, high = sorted((shift.from_ns, shift.to_ns))
    kind = "latency" if shift.kind == "latency" else "response time"
    return (
        f"{worse.label}'s {shift.quantile} {kind} is {times(_measure_factor(shift))} {other.label}'s "
        f"({duration(high)} against {duration(low)})"
    )


_UNKNOWN = ("capture_gap", "unexplained")
"""Causes that are no reasons."""

_Parts = list[tuple[str, float]]
"""Causes with their shares of a difference; a share exceeds 1 where other causes took less time."""

_ENOUGH = 0.8
"""Share of a difference after which no further cause is named."""


def rank_causes(long: Mapping[str, int], works: int, short: Mapping[str, int], others: int) -> _Parts:
    """Rank causes by their share of the additional time per RPC or message, as many as make up most of it."""
    each = {cause: long.get(cause, 0) / max(works, 1) - short.get(cause, 0) / max(others, 1) for cause in CAUSES}
    excess, parts, named = sum(each.values()), [], 0.0
    for cause, ns in sorted(each.items(), key=lambda item: -item[1]):
        if named >= _ENOUGH or excess <= 0 or ns < PARTLY * excess or cause in _UNKNOWN:
            break
        parts.append((cause, ns / excess))
        named += ns / excess
    return parts


def describe_causes(parts: _Parts) -> str:
    """Describe causes: `92% of the difference is waits for the server to send`."""
    texts = [f"{min(parts[0][1], 1.0):.0%} of the difference is {name_cause(parts[0][0])}"]
    texts += [f"{min(share, 1.0):.0%} {name_cause(cause)}" for cause, share in parts[1:]]
    return " and ".join(texts)


def _find_finding(worse: Run, other: Run, parts: _Parts, excess_ns: float) -> Finding | None:
    """Find a finding of these causes in the worse capture whose lost time is most of the difference."""
    found = (finding for cause, _ in parts for finding in list_new(cause, worse, other))
    return next((f for f in found if f.lost_ns is not None and f.lost_ns >= MOSTLY * excess_ns), None)
