"""Say in sentences how two captures differ, and why where the packets prove it.

Every difference is measured first. A reason is given only where figures of both captures account for it: kinds of
packets, causes of RPC time, concurrent RPCs times their duration, or the time that a finding of one capture measured.
Without a reason the sentence says that the cause is not visible.
"""

import math
from collections.abc import Iterator, Sequence

from ...analyzer.detectors import ABOUTS
from .difference import FAILED, MOSTLY, NOTABLE, Difference, Reason, find_new
from .figures import weight
from .latency import compare_latency, describe_doubt
from .packets import compare_packets
from .run import Run, over
from .throughput import compare_throughput


def differences(first: Run, second: Run, baselines: Sequence[Run] = ()) -> tuple[Difference, ...]:
    """List the differences, the most important first: failures, then by severity of the explaining finding.

    What one of the `baselines`, which are like the first, has in common with the second is noise.
    """
    found = [
        difference
        for of in (_compare_failures, compare_packets, compare_throughput, compare_latency)
        for difference in of(first, second)
        if difference is not None
    ]
    seen = [{(d.what, d.worse == second.label) for d in differences(one, second)} for one in baselines]
    lasting = [d for d in found if all((d.what, d.worse == second.label) in one for one in seen)]
    return tuple(sorted(lasting, key=_rank_difference))


def _rank_difference(difference: Difference) -> tuple[bool, int, bool, float]:
    grave = max((weight(reason.finding) for reason in difference.reasons), default=-1)
    return (
        difference.what != "failed_rpcs",
        -max(grave, 0),  # a finding of severity info ranks like plain figures
        not difference.reasons,
        -(difference.ratio or math.inf),
    )


def text(first: Run, second: Run, baselines: Sequence[Run] = ()) -> str:
    """State the most important difference in one sentence."""
    found = differences(first, second, baselines)
    if not found and baselines:
        return f"{second.label} does not differ from all {len(baselines) + 1} baselines by {NOTABLE - 1:.0%} or more."
    if not found:
        none = f"{first.label} and {second.label} do not differ by {NOTABLE - 1:.0%} or more"
        doubt = describe_doubt(first, second)
        return f"{none} beyond chance. {doubt}" if doubt else f"{none} in what was compared."
    return found[0].sentence


def _compare_failures(first: Run, second: Run) -> Iterator[Difference]:
    one, two = first.failed_share, second.failed_share
    if one is None or two is None or abs(one - two) < FAILED:
        return
    worse, other = (first, second) if one > two else (second, first)
    most, least = max(one, two), min(one, two)
    fact = f"{most:.1%} of the RPCs fail in {worse.label} ({least:.1%} in {other.label})"
    reason = _explain_failures(worse, other)
    yield Difference("failed_rpcs", worse.label, other.label, over(most, least), fact, (reason,) if reason else ())


_EXPLAINED = {what for about in ABOUTS.values() for what in about.explains}
"""Also statuses: those that a finding explains alone."""


def _explain_failures(worse: Run, other: Run) -> Reason | None:
    """Find the statuses with the largest increase, and the finding that explains them."""
    more = {
        status: (over(number, worse.rpcs) or 0.0) - (over(other.statuses.get(status, 0), other.rpcs) or 0.0)
        for status, number in worse.statuses.items()
        if status not in ("OK", "not_seen")
    }
    whole = sum(share for share in more.values() if share > 0)
    groups: dict[str, float] = {}
    for status, share in more.items():
        what = status if status in _EXPLAINED else "other_statuses"
        groups[what] = groups.get(what, 0.0) + max(share, 0.0)
    what, share = max(groups.items(), key=lambda item: item[1], default=("other_statuses", 0.0))
    finding = find_new(what, worse, other)
    if finding is None or share < MOSTLY * whole or not whole:
        return None
    return Reason(f"{finding.title} ({finding.id})", min(share / whole, 1.0), finding)
