"""Apply the rules of `--fail-on`: which differences from the first capture are regressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from ...analyzer.model.finding import SEVERITIES
from ...analyzer.model.text import duration
from .because import rate
from .figures import QUANTILES, part, shifts, unit, units, weight
from .run import Run, over

METRICS = ("latency", *QUANTILES, "throughput", "packets", "control", "errors", "finding")
"""What a rule can limit."""

GRAMMAR = (
    "latency:1.2, or p50, p90, p99: a quantile rose by a factor of 1.2 and by more than chance; throughput:1.2: the "
    "rate fell by that factor; packets:1.2, control:1.2: packets per message, or packets with only control frames, "
    "rose by that factor; errors:0.01: 1% more of the RPCs fail; finding:warning, or warning: a finding at least that "
    "severe appears or grows; finding:ID: that finding appears or grows"
)
"""The rules, for error messages."""
_KINDS = {"latency": "latency", "turnaround": "response time"}


class RuleError(ValueError):
    """A rule is invalid; the message says why."""


class Rule(Struct, frozen=True):
    """One rule of `--fail-on`."""

    text: str
    """The rule as the user wrote it."""
    metric: str
    limit: float = 0.0
    """Factor; for `errors` the difference of shares."""
    finding: str = ""
    """Severity or id of a finding."""


class Outcome(Struct, frozen=True):
    """The result of a rule for one capture against the first one."""

    rule: str
    run: str = field(name="capture")
    met: bool
    """Also true where the rule cannot be judged: a gate must not pass because figures are missing."""
    judged: bool
    text: str
    """The figures that decide the rule."""


def parse(text: str, ids: Sequence[str]) -> Rule:
    """Parse a rule as typed; `ids` are the ids of all findings. Raises RuleError."""
    metric, colon, value = text.partition(":")
    if text in SEVERITIES:
        return Rule(text, "finding", finding=text)
    if metric not in METRICS or not colon:
        raise RuleError(f"{text!r} is not one of: {GRAMMAR}")
    if metric == "finding":
        if value not in SEVERITIES and value not in ids:
            raise RuleError(f"{value!r} is neither a severity ({', '.join(SEVERITIES)}) nor the id of a finding")
        return Rule(text, metric, finding=value)
    try:
        limit = float(value)
    except ValueError:
        raise RuleError(f"{value!r} is not a number") from None
    least = 0.0 if metric == "errors" else 1.0
    if not math.isfinite(limit) or limit < least or (limit == 0 and metric == "errors"):
        raise RuleError(f"{text!r} needs {'a share above 0' if metric == 'errors' else 'a factor of 1 or more'}")
    return Rule(text, metric, limit=limit)


def judge(rules: Sequence[Rule], runs: Sequence[Run]) -> tuple[Outcome, ...]:
    """Apply every rule to every capture after the first."""
    return tuple(_judge(rule, runs[0], run) for rule in rules for run in runs[1:])


def _judge(rule: Rule, first: Run, run: Run) -> Outcome:
    if rule.metric == "finding":
        return _judge_finding(rule, first, run)
    if rule.metric == "errors":
        return _judge_errors(rule, first, run)
    if rule.metric in ("latency", *QUANTILES):
        return _judge_latency(rule, first, run)
    return _judge_figure(rule, first, run)


def _make_outcome(rule: Rule, run: Run, met: bool, text: str, judged: bool = True) -> Outcome:
    return Outcome(rule.text, run.label, met, judged, text)


def _refuse_judgement(rule: Rule, run: Run, why: str) -> Outcome:
    return _make_outcome(rule, run, True, f"cannot be judged, so it counts as met: {why}", judged=False)


def _judge_finding(rule: Rule, first: Run, run: Run) -> Outcome:
    """Judge whether a finding is new, or more severe than in the first capture."""
    least = SEVERITIES.index(rule.finding) if rule.finding in SEVERITIES else None
    worse = [
        finding
        for finding in run.analysis.findings
        if weight(finding) > weight(first.finding(finding.id))
        and (finding.id == rule.finding if least is None else weight(finding) >= least)
    ]
    text = "; ".join(f"{finding.severity} {finding.id}: {finding.title}" for finding in worse)
    return _make_outcome(rule, run, bool(worse), text or "no such finding appears or becomes more severe")


def _judge_errors(rule: Rule, first: Run, run: Run) -> Outcome:
    before, after = first.failed_share, run.failed_share
    if before is None or after is None:
        return _refuse_judgement(rule, run, "no gRPC status is in the capture")
    return _make_outcome(
        rule, run, after - before >= rule.limit, f"{after:.2%} of the RPCs failed, before {before:.2%}"
    )


def _judge_latency(rule: Rule, first: Run, run: Run) -> Outcome:
    """Judge whether a quantile rose by the factor and the interval of its shift excludes 0."""
    wanted = QUANTILES if rule.metric == "latency" else (rule.metric,)
    compared = [shift for shift in shifts((first, run)) if shift.quantile in wanted and shift.ratio is not None]
    missing = [name for name in first.named_methods if name not in run.named_methods]
    if not compared or missing:
        what = f"{missing[0]} is not in {run.label}" if missing else "no method has complete RPCs in both captures"
        return _refuse_judgement(rule, run, what)
    risen = [
        shift
        for shift in compared
        if shift.shift_ns > 0 and (shift.ratio or 0.0) >= rule.limit and shift.certain is not False
    ]
    shown = risen or [max(compared, key=lambda shift: shift.ratio or 0.0)]
    text = "; ".join(
        f"{s.method} {s.quantile} {_KINDS[s.kind]} {duration(s.from_ns)} -> {duration(s.to_ns)} ({s.ratio:.2f} times)"
        for s in shown
    )
    doubt = "" if risen or (shown[0].ratio or 0.0) < rule.limit else ", which may be chance"
    return _make_outcome(rule, run, bool(risen), text + doubt)


def _judge_figure(rule: Rule, first: Run, run: Run) -> Outcome:
    of, what = _FIGURES[rule.metric]
    what = what.format(unit((first, run)))
    before, after = of((first, run))
    if before is None or after is None:
        return _refuse_judgement(rule, run, f"{what} unknown in {first.label if before is None else run.label}")
    worse, better = (before, after) if rule.metric == "throughput" else (after, before)
    met = worse > better and worse >= better * rule.limit
    return _make_outcome(rule, run, met, f"{what}: {rate(after)}, before {rate(before)}")


_Pair = tuple[float | None, float | None]


def _compute_rates(runs: tuple[Run, Run]) -> _Pair:
    kind = unit(runs)
    before, after = (over(units(run, kind) * 1e9, run.span_ns) for run in runs)
    return before, after


_FIGURES: dict[str, tuple[Callable[[tuple[Run, Run]], _Pair], str]] = {
    "throughput": (_compute_rates, "{}s per second"),
    "packets": (
        lambda of: (over(of[0].packets, of[0].messages), over(of[1].packets, of[1].messages)),
        "packets per message",
    ),
    "control": (
        lambda of: (part(of[0], "control"), part(of[1], "control")),
        "packets with only control frames per message",
    ),
}
