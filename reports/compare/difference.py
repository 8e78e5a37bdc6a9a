"""A difference between two captures, and the reasons for it."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from ...analyzer.detectors import ABOUTS
from ...analyzer.model.finding import Finding
from .run import Run

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

What = Literal["failed_rpcs", "packets_per_message", "throughput", "latency", "turnaround", "tail"]


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


def find_new(what: str, worse: Run, other: Run) -> Finding | None:
    """Find the finding of one capture that explains a difference most directly."""
    return next(iter(list_new(what, worse, other)), None)


def list_new(what: str, worse: Run, other: Run) -> list[Finding]:
    """List the findings of one capture that explain a difference (`About.explains`), the most direct first.

    What the other capture has as well is not what differs.
    """
    found = [one for one in worse.findings.values() if what in explains(one) and not other.finding(one.id)]
    return sorted(found, key=lambda one: (explains(one).index(what), ABOUTS[one.id].precedence, -(one.lost_ns or 0)))


def explains(finding: Finding) -> tuple[str, ...]:
    """List what a finding explains: nothing, if only another version knows it."""
    about = ABOUTS.get(finding.id)
    return about.explains if about else ()


def times(ratio: float) -> str:
    """Format a ratio as `3.2 times`."""
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times" if ratio >= 2 else f"{ratio:.2f} times"


def rate(value: float) -> str:
    """Format a rate with three significant digits, or with all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def order_by(first: Run, second: Run, of: Callable[[Run], float | None]) -> tuple[Run, Run, float] | None:
    """Give the capture with the larger figure, the other one, and the ratio; None without a notable difference."""
    one, two = of(first), of(second)
    if not one or not two:
        return None
    worse, other, ratio = (first, second, one / two) if one > two else (second, first, two / one)
    return (worse, other, ratio) if ratio >= NOTABLE else None
