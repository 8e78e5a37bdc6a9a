"""How severe a finding is, and how sure."""

from ..model.finding import Confidence, Severity
from ..tables import Tables

TAIL_NS = 50_000_000
"""Response time of a long tail (heuristic: above scheduling and garbage collection on a busy host)."""
TAIL_FACTOR = 5.0
"""The same in usual response times (heuristic; the tail of an exponential distribution has 6.6 medians)."""


def severity(share: float, warning: float, critical: float) -> Severity:
    """Rate the severity of a share by the shares from which it is a warning and critical."""
    if share >= critical:
        return "critical"
    return "warning" if share >= warning else "info"


def lower(*confidences: Confidence) -> Confidence:
    """Return the lowest of some confidences."""
    order: tuple[Confidence, ...] = ("low", "medium", "high")
    return min(confidences, key=order.index)


UNSORTED = 0.01
"""Share of packets out of the order of time from which that of all is in doubt (heuristic: one in 100)."""
MANY_STEPS = 10
"""Steps back that are too many for a clock that is set, or for captures that were joined (heuristic)."""


def is_unsorted(tables: Tables) -> bool:
    """Check whether the file may have its packets in a wrong order; those whose times are disproved do not count."""
    capture = tables.capture
    steps = int(capture["time_steps_back"]) - int(capture["contradicted_times"])
    return steps > max(MANY_STEPS, UNSORTED * int(capture["packets"]))


def quality_allows(tables: Tables) -> Confidence:
    """Return the highest confidence that the capture allows; medium when it lacks packets, bytes or order."""
    capture = tables.capture
    lacks = int(tables.connections.missing_bytes.sum()) > 0 or bool(capture["dropped_packets"])
    return "medium" if lacks or capture["truncated_packets"] or is_unsorted(tables) else "high"
