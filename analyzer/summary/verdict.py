"""Relate the findings to each other: which is part of which, which comes first, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..model.analysis import Totals, Verdict
from ..model.detector import About
from ..model.finding import SEVERITIES, Finding

_WORTH_NAMING = 0.02
"""Share of RPC time from which a verdict names an `info` finding (heuristic: above the variation of runs)."""

_HIDDEN = 0.10
"""Share of RPC time without an explanation, or of RPCs without a known end, above which the verdict reports it
(heuristic: it could hide a cause that deserves a warning)."""

Abouts = Mapping[str, About]
"""How each detector's finding is treated, by id."""


def link_findings(findings: Iterable[Finding], abouts: Abouts) -> tuple[Finding, ...]:
    """Link each finding to the one that it is part of, so that time is counted once; the costliest first."""
    found = tuple(findings)
    linked = (_link(finding, found, abouts[finding.id]) for finding in found)
    return tuple(sorted(linked, key=lambda finding: (-(finding.lost_ns or 0), finding.id)))


def _link(finding: Finding, found: Sequence[Finding], about: About) -> Finding:
    if about.counts_own_time and finding.lost_ns is not None:
        return finding
    own = set(finding.scope.connections)
    for cause in about.caused_by:
        for other in found:
            if (
                other.id == cause
                and own & set(other.scope.connections)
                and _rank_severity(other) >= _rank_severity(finding)
            ):
                return replace(finding, part_of=cause, lost_ns=None, share=None)
    return finding


def _rank_severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def choose_verdict(
    findings: Sequence[Finding],
    budget: Mapping[str, int],
    abouts: Abouts,
    totals: Totals | None = None,
    reason: str = "",
) -> Verdict:
    """Choose the verdict of the most severe finding that is not part of another; without one, say what is known.

    `reason` is why there are no RPCs.
    """
    grave = [finding for finding in findings if finding.severity != "info" and finding.part_of is None]
    if grave:
        worst = min(grave, key=lambda finding: _rank(finding, abouts[finding.id]))
        return Verdict(worst.verdict, worst.id)
    if reason:
        return Verdict(reason, None)
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
            f"No cause was found, but {hidden:.0%} of the RPC time is unexplained in this capture: see its quality and "
            "the time by cause."
        )
        return Verdict(text, None)
    reported = [finding for finding in findings if finding.part_of is None and (finding.share or 0.0) >= _WORTH_NAMING]
    if reported:
        first = max(reported, key=lambda finding: finding.lost_ns or 0)
        return Verdict(f"No serious problem was found. Largest cost: {first.verdict}", None)
    return Verdict("No transport problem was found in this capture.", None)


def _rank(finding: Finding, about: About) -> tuple[int, int, int, str]:
    about_the_capture = int(finding.id == "capture-quality")
    return (about_the_capture - _rank_severity(finding) * 2, -(finding.lost_ns or 0), about.precedence, finding.id)
