"""Say what a finding costs."""

from collections.abc import Callable

from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration

_COSTS = (
    ("failed_rpcs", "RPC", "failed"),
    ("refused_rpcs", "RPC", "refused"),
    ("lost_rpcs", "RPC", "lost"),
    ("lost_answers", "RPC", "without a complete answer"),
    ("deadline_exceeded_rpcs", "RPC", "ended by a deadline"),
    ("cancelled_rpcs", "RPC", "cancelled"),
    ("ended_rpcs", "RPC", "ended early"),
    ("affected_rpcs", "RPC", "affected"),
    ("open_rpcs", "RPC", "lost"),
    ("retries", "retry", "sent"),
    ("attempts", "connection attempt", "failed"),
)
"""Metrics that say what a finding costs if that is no time: the noun, and what happened to it."""
_TIMES = (("delay_ns", "connections delayed by {}"), ("setup_ns", "{} of connection set-up"))
"""The same for time outside RPCs."""


def describe_cost(finding: Finding, *, read: bool = True, mark: Callable[[str], str] = str) -> str:
    """Say what a finding costs; `read` says whether the RPCs could be read, `mark` writes another finding's id."""
    if finding.lost_ns is not None and finding.share is not None:
        least = ">= " * finding.at_least
        return f"lost {least}{duration(finding.lost_ns)}, {least}{finding.share:.1%} of RPC time"
    parts = [
        f"{count(number, noun, 'retries' if noun == 'retry' else None)} {what}"
        for name, noun, what in _COSTS
        if isinstance(number := finding.metrics.get(name), int) and number
    ]
    parts += [text.format(duration(ns)) for name, text in _TIMES if isinstance(ns := finding.metrics.get(name), int)]
    parts += [f"part of {mark(finding.part_of)}"] if finding.part_of else []
    return ", ".join(parts) or ("no latency cost measured" if read else "cost to the RPCs unknown")
