"""What the findings say together: which of them is a part of which, which comes first, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..model.analysis import Totals, Verdict
from ..model.detector import About
from ..model.finding import SEVERITIES, Finding

_WORTH_TELLING = 0.02
"""Share of RPC time from which a finding that is information alone is told (own choice: above what runs differ by)."""

_HIDDEN = 0.10
"""Share of RPC time without an explanation, or of RPCs without a known end, from which a clean verdict is not given
(own choice: what remains could hide a cause that is worth a warning)."""

_CLIENT = 0.10
"""Share of RPC time in which the client held the ball from which a clean verdict names it beside network and server
(own choice: streams are open while their client has nothing to send)."""


Abouts = Mapping[str, About]
"""What each detector says of its finding, by id."""


def link_findings(findings: Iterable[Finding], abouts: Abouts) -> tuple[Finding, ...]:
    """Name for each finding the one that it is a part of, so that its time is counted once; the costliest first."""
    found = tuple(findings)
    linked = (_link(finding, found, abouts[finding.id]) for finding in found)
    return tuple(sorted(linked, key=lambda finding: (-(finding.lost_ns or 0), finding.id)))


def _link(finding: Finding, found: Sequence[Finding], about: About) -> Finding:
    if about.counts_own_time and finding.lost_ns is not None:
        return finding
    own = set(finding.scope.connections)
    for cause in about.caused_by:
        for other in found:
            if other.id == cause and own & set(other.scope.connections) and _weight(other) >= _weight(finding):
                return replace(finding, part_of=cause, lost_ns=None, share=None)
    return finding


def _weight(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def choose_verdict(
    findings: Sequence[Finding], budget: Mapping[str, int], abouts: Abouts, totals: Totals | None = None
) -> Verdict:
    """The gravest finding that is no part of another, in its own sentence; else what can be said without one."""
    grave = [finding for finding in findings if finding.severity != "info" and finding.part_of is None]
    if grave:
        worst = min(grave, key=lambda finding: _rank(finding, abouts[finding.id]))
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


def _rank(finding: Finding, about: About) -> tuple[int, int, int, str]:
    about_the_capture = int(finding.id == "capture-quality")
    return (about_the_capture - _weight(finding) * 2, -(finding.lost_ns or 0), about.precedence, finding.id)
