"""What the findings say together: which of them are one story, which comes first, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..model.analysis import Totals, Verdict
from ..model.finding import SEVERITIES, Finding

CAUSED_BY: Mapping[str, tuple[str, ...]] = {
    "client-idle-gap": ("shared-connection",),
    "request-batching": ("shared-connection",),
    "ping-storm": ("small-packets",),
    "window-update-storm": ("small-packets",),
    "delayed-data": (
        "loss-recovery",
        "slow-start-after-idle",
        "stream-window-stall",
        "connection-window-stall",
        "receive-window-stall",
        "delayed-ack-nagle",
        "head-of-line-blocking",
        "initial-congestion-window",
    ),
    "head-of-line-blocking": ("loss-recovery",),
    "rpc-errors": ("too-many-pings", "connection-closed-early"),
    "connection-closed-early": ("too-many-pings",),
    "connection-churn": ("too-many-pings", "connection-closed-early"),
}
"""Findings that, on the same connections, are what another finding looks like from elsewhere; the likeliest first."""

_WITH_TIME_OF_THEIR_OWN = ("delayed-data",)
"""Findings that leave the time of others to those themselves: what they count is not told by any other."""

FIRST: tuple[str, ...] = (
    "too-many-pings",
    "connection-closed-early",
    "deadline-exceeded",
    "rpc-errors",
    "max-concurrent-streams",
    "shared-connection",
    "small-packets",
    "ping-storm",
    "window-update-storm",
)
"""What to speak of first among findings that are equally severe and cost no time of their own."""

_WORTH_TELLING = 0.02
"""Share of RPC time from which a finding that is information alone is told (own choice: above what runs differ by)."""

_HIDDEN = 0.10
"""Share of RPC time without an explanation, or of RPCs without a known end, from which a clean verdict is not given
(own choice: what remains could hide a cause that is worth a warning)."""

_CLIENT = 0.10
"""Share of RPC time in which the client held the ball from which a clean verdict names it beside network and server
(own choice: streams are open while their client has nothing to send)."""


def told(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Name for each finding the one that it is a part of, so that its time is counted once; the costliest first."""
    found = tuple(findings)
    linked = (_linked(finding, found) for finding in found)
    return tuple(sorted(linked, key=lambda finding: (-(finding.lost_ns or 0), finding.id)))


def _linked(finding: Finding, found: Sequence[Finding]) -> Finding:
    if finding.id in _WITH_TIME_OF_THEIR_OWN and finding.lost_ns is not None:
        return finding
    own = set(finding.scope.connections)
    for cause in CAUSED_BY.get(finding.id, ()):
        for other in found:
            if other.id == cause and own & set(other.scope.connections) and _weight(other) >= _weight(finding):
                return replace(finding, part_of=cause, lost_ns=None, share=None)
    return finding


def _weight(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def verdict(findings: Sequence[Finding], budget: Mapping[str, int], totals: Totals | None = None) -> Verdict:
    """The gravest finding that is no part of another, in its own sentence; else what can be said without one."""
    grave = [finding for finding in findings if finding.severity != "info" and finding.part_of is None]
    if grave:
        worst = min(grave, key=_precedence)
        return Verdict(worst.verdict, worst.id)
    if totals and totals.rpcs_without_known_end > _HIDDEN * totals.rpcs:
        text = (
            f"No cause was found, but {totals.rpcs_without_known_end:,} of {totals.rpcs:,} RPCs have no known end in "
            "this capture: see its quality."
        )
        return Verdict(text, None)
    whole = sum(budget.values())
    hidden = (budget.get("unexplained", 0) + budget.get("capture_gap", 0)) / whole if whole else 0.0
    if hidden > _HIDDEN:
        text = (
            f"No cause was found, but {hidden:.0%} of the RPC time cannot be explained from this capture: see its "
            "quality, and the time budget."
        )
        return Verdict(text, None)
    by_client = whole > 0 and budget.get("client", 0) >= _CLIENT * whole
    beyond = "client, network and server time" if by_client else "network and server time"
    told = [finding for finding in findings if finding.part_of is None and (finding.share or 0.0) >= _WORTH_TELLING]
    if told:
        first = max(told, key=lambda finding: finding.lost_ns or 0)
        return Verdict(f"Nothing grave slows the RPCs beyond {beyond}; what costs most: {first.verdict}", None)
    return Verdict(f"Nothing in this capture slows the RPCs beyond {beyond}.", None)


def _precedence(finding: Finding) -> tuple[int, int, int, str]:
    place = FIRST.index(finding.id) if finding.id in FIRST else len(FIRST)
    about_the_capture = int(finding.id == "capture-quality")
    return (about_the_capture - _weight(finding) * 2, -(finding.lost_ns or 0), place, finding.id)
