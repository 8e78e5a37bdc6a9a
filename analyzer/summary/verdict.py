"""Relate the findings to each other: which is part of which, which comes first, and the verdict."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..model.analysis import Hop, Totals, Verdict
from ..model.detector import About
from ..model.finding import SEVERITIES, Finding
from ..model.text import capitalise

_WORTH_NAMING = 0.02
"""Share of RPC time from which a verdict names an `info` finding (heuristic: above the variation of runs)."""

_HIDDEN = 0.10
"""Share of RPC time without an explanation, or of RPCs without a known end, above which the verdict reports it
(heuristic: it could hide a cause that deserves a warning)."""

_MOST = 0.5
"""Share of RPC time in one place from which the verdict names the place before any warning (heuristic: most of it; a
warning is about less than a fifth)."""

_HELD = 0.1
"""Share of RPC time that a proxy held from which the verdict is about it (heuristic: as for a warning)."""
_HELD_NS = 5_000_000
"""Time per call that a proxy holds from which the verdict is about it (heuristic: a busy proxy takes 1 ms)."""

_LOSSES = ("loss_recovery", "peer_unreachable")
"""Causes that are no work of either host: much of them is worth a sentence, though no finding explains it."""

Abouts = Mapping[str, About]
"""How each detector's finding is treated, by id."""


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
                and _rank_severity(other) >= _rank_severity(finding)
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


def _rank_severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


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
    """Choose the verdict, and add the sentence about the calls as a whole. `reason` is why there are no RPCs.

    `fault` says what a proxy did with calls whose legs ended differently.
    """
    chosen = _find_held(findings, budget, hops) or _choose(findings, budget, abouts, totals, reason)
    return Verdict(capitalise(" ".join(filter(None, (chosen.text, fault, calls)))), chosen.finding)


def _find_held(findings: Sequence[Finding], budget: Mapping[str, int], hops: Sequence[Hop]) -> Verdict | None:
    """Write the verdict about a proxy, if it held calls for longer than any finding cost."""
    share = budget.get("proxy", 0) / max(1, sum(budget.values()))
    own = [finding for finding in findings if finding.part_of is None]
    if share < _HELD or any(one.severity == "critical" or (one.share or 0.0) >= share for one in own):
        return None
    hop = max(hops, key=lambda one: one.held_ns, default=None)
    if hop is None or hop.held_ns < _HELD_NS * hop.calls:
        return None
    grave = [one for one in own if one.severity != "info" and one.share is not None]
    worst = max(grave, key=lambda one: one.share or 0.0, default=None)
    return Verdict(f"{hop.verdict} {_mention(worst)}" if worst else hop.verdict, None)


def _choose(
    findings: Sequence[Finding], budget: Mapping[str, int], abouts: Abouts, totals: Totals | None, reason: str
) -> Verdict:
    """Choose the verdict of the most severe finding that is not part of another; without one, say what is known."""
    own = [finding for finding in findings if finding.part_of is None]
    grave = [finding for finding in own if finding.severity != "info"]
    most = _find_most(own, abouts, budget)
    place = most if most and abouts[most.id].weighs_time else None
    if grave:
        worst = min(grave, key=lambda finding: _rank(finding, abouts[finding.id]))
        if missing := _find_missing(grave, worst, budget, abouts):
            return Verdict(f"{missing.verdict} {_mention(worst)}", missing.id)
        if _is_smaller(worst) and (larger := place or _find_larger(own, worst)):
            return Verdict(f"{larger.verdict} {_mention(worst)}", larger.id)
        if _is_smaller(worst) and (long := _describe_transmission(budget)):
            return Verdict(f"{long} {_mention(worst)}", worst.id)
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
    reported = [finding for finding in own if (finding.share or 0.0) >= _WORTH_NAMING]
    first = max(reported, key=lambda finding: finding.lost_ns or 0) if reported else None
    if most:
        return Verdict(f"{most.verdict} {_mention(first)}" if place else most.verdict, most.id)
    if first:
        return Verdict(f"No serious problem was found. Largest cost: {first.verdict}", None)
    cause = max(_LOSSES, key=lambda one: budget.get(one, 0))
    share = budget.get(cause, 0) / max(1, whole)
    if share > _HIDDEN:
        words = f"{share:.0%} of the RPC time is {cause.replace('_', ' ')}"
        return Verdict(f"No cause was found, but {words}: see the time by cause.", None)
    long = _describe_transmission(budget)
    return Verdict(f"No problem was found, but {long}" if long else _NO_PROBLEM, None)


_NO_PROBLEM = "No transport problem was found in this capture."


def _describe_transmission(budget: Mapping[str, int]) -> str:
    """Say that most of the RPC time is transmission, if it is: no finding is about that."""
    share = budget.get("transmission", 0) / max(1, sum(budget.values()))
    if share < _MOST:
        return ""
    return f"{share:.0%} of the RPC time is transmission: send fewer bytes (compression), or use a faster path."


def _find_missing(
    grave: Sequence[Finding], worst: Finding, budget: Mapping[str, int], abouts: Abouts
) -> Finding | None:
    """Find the finding about the capture, if it lacks most of the RPC time and the worst finding costs less."""
    share = budget.get("capture_gap", 0) / max(1, sum(budget.values()))
    if share <= _MOST or worst.share is None or worst.share >= share:
        return None
    return next((finding for finding in grave if abouts[finding.id].judges_capture), None)


def _find_most(findings: Sequence[Finding], abouts: Abouts, budget: Mapping[str, int]) -> Finding | None:
    """Find the `info` finding about most of the RPCs or of their time."""
    weights = {f.id: max(weigh(f, abouts[f.id]), _weigh_time_in_vain(f, budget)) for f in findings}
    large = [f for f in findings if f.severity == "info" and weights[f.id] >= _MOST and f.share is None]
    return max(large, key=lambda finding: weights[finding.id], default=None)


def _weigh_time_in_vain(finding: Finding, budget: Mapping[str, int]) -> float:
    """Return the share of RPC time that calls took which reached their deadline: few calls may take most of it."""
    ns = finding.metrics.get("time_in_vain_ns", 0)
    return 0.0 if isinstance(ns, str) else ns / max(1, sum(budget.values()))


def _find_larger(findings: Sequence[Finding], worst: Finding) -> Finding | None:
    """Find the finding with the largest cost, if that is more than the worst one's: it may be `info`."""
    costly = [finding for finding in findings if (finding.share or 0.0) > (worst.share or 0.0)]
    return max(costly, key=lambda finding: finding.share or 0.0, default=None)


def _is_smaller(worst: Finding) -> bool:
    """Check whether a finding is a warning about a known part of the RPC time that is not most of it."""
    return worst.severity == "warning" and worst.share is not None and worst.share < _MOST and not worst.at_least


def _mention(finding: Finding | None) -> str:
    if finding is None:
        return "No transport problem was found."
    return f"Less important: {finding.id} costs {finding.share or 0.0:.0%}."


def weigh(finding: Finding, about: About) -> float:
    """Return the share of RPC time that a finding costs, or the share of its detector's own kind; 0 without any."""
    weight = finding.metrics.get(about.weight, 0.0) if finding.share is None else finding.share
    return 0.0 if isinstance(weight, str) else float(weight)


def _rank(finding: Finding, about: About) -> tuple[int, float, int, str]:
    return (
        int(about.judges_capture) - _rank_severity(finding) * 2,
        -weigh(finding, about),
        about.precedence,
        finding.id,
    )
