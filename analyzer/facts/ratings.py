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


def quality_allows(tables: Tables) -> Confidence:
    """Return the highest confidence that the capture allows; medium when it lacks packets or bytes."""
    capture = tables.capture
    lacks = int(tables.connections.missing_bytes.sum()) > 0 or bool(capture["dropped_packets"])
    return "medium" if lacks or capture["truncated_packets"] else "high"
