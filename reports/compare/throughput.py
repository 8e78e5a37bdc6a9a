"""Say why the rate of one capture is lower than the other's."""

import math
from collections.abc import Iterator

from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration
from .difference import MOSTLY, NOTABLE, PARTLY, Difference, Reason, find_new, list_new, order_by, rate, times
from .figures import choose_unit, units, weight
from .latency import describe_causes, rank_causes
from .run import Run, over


def compare_throughput(first: Run, second: Run) -> Iterator[Difference]:
    """Compare RPCs per second, or messages per second where RPCs are streams."""
    kind = choose_unit((first, second))
    found = order_by(first, second, lambda run: over(run.span_ns, units(run, kind)))
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
        for of in (_check_threads, _check_stream_limit, _check_shared_connection, _check_concurrency, _check_durations)
        if (reason := of(slow, fast, ratio, kind)) and reason.share >= PARTLY
    ]
    mostly = [reason for reason in fitting if reason.share >= MOSTLY]
    yield from (mostly or fitting)[:1]


def _check_threads(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check whether threads that had to send were held up for the additional time: then fewer RPCs were open, too."""
    found = list_new("threads", slow, fast)
    if not found or slow.span_ns is None:
        return None
    finding = max(found, key=lambda one: _read_metric(one, "waited_ns"))
    waited = _read_metric(finding, "waited_ns")
    text = f"in {slow.label} {finding.title[:1].lower()}{finding.title[1:]} ({duration(int(waited))})"
    # connections wait beside each other
    each = waited / max(1, len(finding.scope.connections))
    return Reason(text, min(each / (slow.span_ns * (1 - 1 / ratio)), 1.0), finding)


def _check_stream_limit(slow: Run, fast: Run, ratio: float, kind: str) -> Reason | None:
    """Check for a limit of concurrent streams: open RPCs are fewer by about the factor of the rates."""
    finding = find_new("stream_limit", slow, fast)
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
    found = list_new("idle_clients", slow, fast)
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
    if kind != "RPC":
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
    parts = rank_causes(slow.analysis.budget, units(slow, kind), fast.analysis.budget, units(fast, kind))
    share = _compute_share(each[0] / each[1], ratio)
    if not parts or (kind != "RPC" and slow.callers >= NOTABLE * fast.callers):
        return None
    lasting = f"RPCs take {times(each[0] / each[1])} as long in {slow.label}: " if kind == "RPC" else ""
    return Reason(lasting + describe_causes(parts), share)
