"""Relate the findings to each other: which is part of which, which comes first, and the verdict."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..model.analysis import Hop, Totals, Verdict
from ..model.finding import Finding
from ..model.text import capitalise
from .verdict_rules import Abouts, Known, choose, rank_severity


def link_findings(findings: Iterable[Finding], abouts: Abouts) -> tuple[Finding, ...]:
    """Link each finding to the one that it is part of, so that time is counted once; the costliest first."""
    found = tuple(findings)
    linked = (_capitalise(_link(finding, found, abouts)) for finding in found)
    return tuple(sorted(linked, key=lambda finding: (-(finding.lost_ns or 0), finding.id)))


def _capitalise(finding: Finding) -> Finding:
    return replace(finding, explanation=capitalise(finding.explanation), verdict=capitalise(finding.verdict))


def _link(finding: Finding, found: Sequence[Finding], abouts: Abouts) -> Finding:
    about = abouts[finding.id]
    if about.counts_own_time and finding.lost_ns is not None:
        return finding
    own = set(finding.scope.connections)
    for cause in about.caused_by:
        for other in found:
            if (
                other.id == cause
                and not {_find_side(other, abouts), _find_side(finding, abouts)} >= {"client", "server"}
                and own & set(other.scope.connections)
                and rank_severity(other) >= rank_severity(finding)
                and other.metrics.get("lost_rpcs", 1)  # an end that cost no RPC explains no failure
            ):
                part = replace(finding, part_of=cause, lost_ns=None, share=None)
                # a process record says why: the same time is no second warning
                explained = abouts[cause].needs_processes and own <= set(other.scope.connections)
                return replace(part, severity="info") if explained else part
    return finding


def _find_side(finding: Finding, abouts: Abouts) -> str:
    """Find out whose time a finding counts: `client`, `server`, or nothing where it may be both."""
    return abouts[finding.id].side or str(finding.metrics.get("side", ""))


def choose_verdict(
    findings: Sequence[Finding],
    budget: Mapping[str, int],
    abouts: Abouts,
    totals: Totals | None = None,
    reason: str = "",
    calls: str = "",
    hops: Sequence[Hop] = (),
    fault: str = "",
) -> Verdict:
    """Choose the verdict by the first rule that applies, and add the sentence about the calls as a whole.

    `reason` is why there are no RPCs, `fault` says what a proxy did with calls whose legs ended differently.
    """
    own = tuple(finding for finding in findings if finding.part_of is None)
    chosen = choose(Known(own, budget, abouts, totals, reason, hops))
    return replace(chosen, text=capitalise(" ".join(filter(None, (chosen.text, fault, calls)))))
