"""Rules of the verdict, in their order: the first that applies writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from ..model.analysis import Hop, Totals, Verdict
from ..model.detector import About
from ..model.finding import SEVERITIES, Finding
from ..model.thresholds import HIDDEN_SHARE, NOTABLE_SHARE

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


class Known(Struct, frozen=True, dict=True, eq=False):
    """What the verdict is chosen from."""

    findings: Sequence[Finding]
    """Those that are not part of another one."""
    budget: Mapping[str, int]
    abouts: Abouts
    totals: Totals | None = None
    reason: str = ""
    """Why there are no RPCs."""
    hops: Sequence[Hop] = ()

    def share_of(self, *causes: str) -> float:
        """Return the share of RPC time of some causes."""
        return sum(self.budget.get(cause, 0) for cause in causes) / max(1, sum(self.budget.values()))

    @cached_property
    def grave(self) -> list[Finding]:
        """List the findings that are warnings or critical."""
        return [finding for finding in self.findings if finding.severity != "info"]

    @cached_property
    def worst(self) -> Finding | None:
        """Find the most severe finding, of several the one with the largest share, if any is grave."""
        return min(self.grave, key=lambda finding: _rank(finding, self.abouts[finding.id]), default=None)

    @cached_property
    def small(self) -> Finding | None:
        """Give the worst finding where it is a warning about a known part of the RPC time that is not most of it."""
        worst = self.worst
        if worst is None or worst.severity != "warning" or worst.share is None or worst.at_least:
            return None
        return worst if worst.share < _MOST else None

    @cached_property
    def most(self) -> Finding | None:
        """Find the `info` finding about most of the RPCs or of their time."""
        weights = {f.id: max(_weigh(f, self.abouts[f.id]), self._weigh_time_in_vain(f)) for f in self.findings}
        large = [f for f in self.findings if f.severity == "info" and weights[f.id] >= _MOST and f.share is None]
        return max(large, key=lambda finding: weights[finding.id], default=None)

    @cached_property
    def place(self) -> Finding | None:
        """Give the same where it says in which place that time passes."""
        return self.most if self.most and self.abouts[self.most.id].weighs_time else None

    @cached_property
    def largest(self) -> Finding | None:
        """Find the finding with the largest cost that is worth naming."""
        reported = [finding for finding in self.findings if (finding.share or 0.0) >= NOTABLE_SHARE]
        return max(reported, key=lambda finding: finding.lost_ns or 0, default=None)

    def _weigh_time_in_vain(self, finding: Finding) -> float:
        """Return the share of RPC time that calls took which reached their deadline: few may take most of it."""
        ns = finding.metrics.get("time_in_vain_ns", 0)
        return 0.0 if isinstance(ns, str) else ns / max(1, sum(self.budget.values()))


def report_held_calls(known: Known) -> Verdict | None:
    """Report a proxy that held calls longer than any finding cost: it is where most can be gained."""
    share = known.share_of("proxy")
    if share < _HELD or any(one.severity == "critical" or (one.share or 0.0) >= share for one in known.findings):
        return None
    hop = max(known.hops, key=lambda one: one.held_ns, default=None)
    if hop is None or hop.held_ns < _HELD_NS * hop.calls:
        return None
    costly = [one for one in known.grave if one.share is not None]
    worst = max(costly, key=lambda one: one.share or 0.0, default=None)
    return Verdict(f"{hop.verdict} {_mention(worst)}" if worst else hop.verdict, None, "warning")


def report_disorder(known: Known) -> Verdict | None:
    """Report packets that stand too far from their place in time: nothing that was found is sure then."""
    unsorted = next((finding for finding in known.grave if finding.metrics.get("unsorted_packets")), None)
    return Verdict(unsorted.verdict, unsorted.id) if unsorted else None


def report_missing_time(known: Known) -> Verdict | None:
    """Report a capture that lacks most of the RPC time: it hides more than the worst finding costs."""
    share, worst = known.share_of("capture_gap"), known.worst
    if share <= _MOST or worst is None or worst.share is None or worst.share >= share:
        return None
    missing = next((finding for finding in known.grave if known.abouts[finding.id].judges_capture), None)
    return Verdict(f"{missing.verdict} {_mention(worst)}", missing.id) if missing else None


def report_place(known: Known) -> Verdict | None:
    """Report the place of most RPC time before a small warning, which gains little there."""
    if known.small is None or known.place is None:
        return None
    return Verdict(f"{known.place.verdict} {_mention(known.small)}", known.place.id)


def report_larger_cost(known: Known) -> Verdict | None:
    """Report a larger cost before a small warning: an `info` finding may happen only once, and cost more."""
    worst = known.small
    if worst is None:
        return None
    costly = [finding for finding in known.findings if (finding.share or 0.0) > (worst.share or 0.0)]
    larger = max(costly, key=lambda finding: finding.share or 0.0, default=None)
    return Verdict(f"{larger.verdict} {_mention(worst)}", larger.id) if larger else None


def report_transmission_first(known: Known) -> Verdict | None:
    """Report that most RPC time is transmission before a small warning: no finding is about that."""
    long = _describe_transmission(known)
    return Verdict(f"{long} {_mention(known.small)}", known.small.id) if long and known.small else None


def report_worst(known: Known) -> Verdict | None:
    """Report the worst finding: nothing above speaks against it."""
    return Verdict(known.worst.verdict, known.worst.id) if known.worst else None


def report_no_rpcs(known: Known) -> Verdict | None:
    """Report why there are no RPCs: without them nothing below can be said."""
    return Verdict(known.reason, None) if known.reason else None


def report_unknown_ends(known: Known) -> Verdict | None:
    """Report too many RPCs without a known end: they could hide a problem, so `no problem` would be untrue."""
    totals = known.totals
    if totals is None or totals.rpcs_without_known_end <= HIDDEN_SHARE * totals.rpcs:
        return None
    text = (
        f"No cause was found, but {totals.rpcs_without_known_end:,} of {totals.rpcs:,} RPCs have no known end in "
        "this capture: see its quality."
    )
    return Verdict(text, None)


def report_unexplained_time(known: Known) -> Verdict | None:
    """Report too much time without an explanation: it could hide a problem as well."""
    hidden = known.share_of("unexplained", "capture_gap")
    if hidden <= HIDDEN_SHARE:
        return None
    text = (
        f"No cause was found, but {hidden:.0%} of the RPC time is unexplained in this capture: see its quality and "
        "the time by cause."
    )
    return Verdict(text, None)


def report_pattern(known: Known) -> Verdict | None:
    """Report what holds for most of the RPCs or of their time: that is worth knowing, though it is no warning."""
    if known.most is None:
        return None
    words = f"{known.most.verdict} {_mention(known.largest)}" if known.place else known.most.verdict
    return Verdict(words, known.most.id)


def report_largest_cost(known: Known) -> Verdict | None:
    """Report the largest cost: a capture without a serious problem still has one."""
    if known.largest is None:
        return None
    return Verdict(f"No serious problem was found. Largest cost: {known.largest.verdict}", None)


def report_losses(known: Known) -> Verdict | None:
    """Report much time of losses: they are no work of either host, though no finding explains them."""
    cause = max(_LOSSES, key=lambda one: known.budget.get(one, 0))
    share = known.share_of(cause)
    if share <= HIDDEN_SHARE:
        return None
    words = f"{share:.0%} of the RPC time is {cause.replace('_', ' ')}"
    return Verdict(f"No cause was found, but {words}: see the time by cause.", None)


def report_transmission(known: Known) -> Verdict | None:
    """Report that most of the RPC time is transmission: a reader can still shorten it."""
    long = _describe_transmission(known)
    return Verdict(f"No problem was found, but {long}", None) if long else None


def report_no_problem(known: Known) -> Verdict | None:
    """Report that there is no problem of the transport: no rule found one, or a doubt."""
    return Verdict("No transport problem was found in this capture.", None)


RULES: tuple[Callable[[Known], Verdict | None], ...] = (
    report_held_calls,
    report_disorder,
    report_missing_time,
    report_place,
    report_larger_cost,
    report_transmission_first,
    report_worst,
    report_no_rpcs,
    report_unknown_ends,
    report_unexplained_time,
    report_pattern,
    report_largest_cost,
    report_losses,
    report_transmission,
    report_no_problem,
)
"""What comes first wins: problems before doubt, doubt before costs, costs before the statement that there is none."""


def choose(known: Known) -> Verdict:
    """Write the verdict of the first rule that applies; the last one always does."""
    return next(verdict for rule in RULES if (verdict := rule(known)))


def _describe_transmission(known: Known) -> str:
    share = known.share_of("transmission")
    if share < _MOST:
        return ""
    return f"{share:.0%} of the RPC time is transmission: send fewer bytes (compression), or use a faster path."


def _mention(finding: Finding | None) -> str:
    if finding is None:
        return "No transport problem was found."
    return f"Less important: {finding.id} costs {finding.share or 0.0:.0%}."


def _weigh(finding: Finding, about: About) -> float:
    """Return the share of RPC time that a finding costs, or the share of its detector's own kind; 0 without any."""
    weight = finding.metrics.get(about.weight, 0.0) if finding.share is None else finding.share
    return 0.0 if isinstance(weight, str) else float(weight)


def rank_severity(finding: Finding) -> int:
    """Rank a finding by its severity: `info` is 0."""
    return SEVERITIES.index(finding.severity)


def _rank(finding: Finding, about: About) -> tuple[int, float, int, str]:
    return (
        int(about.judges_capture) - rank_severity(finding) * 2,
        -_weigh(finding, about),
        about.precedence,
        finding.id,
    )
