"""Apply the rules of `--fail-on`: which differences from the baselines are regressions, which limits are exceeded."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from ...analyzer.model.finding import SEVERITIES, Finding
from ...analyzer.model.text import duration
from .difference import rate
from .figures import QUANTILES, Shift, choose_unit, part, rates, shifts, unit, weight
from .rules import TIMES, Rule
from .run import Run, answered, over

_KINDS = {"latency": "latency", "turnaround": "response time"}


class Outcome(Struct, frozen=True):
    """The result of a rule for one capture."""

    rule: str
    run: str = field(name="capture")
    met: bool
    """Also true where the rule cannot be judged: a gate must not pass because figures are missing."""
    judged: bool
    text: str
    """The figures that decide the rule."""


def judge(rules: Sequence[Rule], runs: Sequence[Run], baselines: Sequence[Run] = ()) -> tuple[Outcome, ...]:
    """Apply every rule to every capture after the first; `baselines` are more captures like the first.

    A rule is met if it is met against every baseline: what differs among them is noise.
    """
    before = (runs[0], *baselines)

    def judge_one(rule: Rule, run: Run) -> Outcome:
        return judge_alone(rule, run) if rule.sign != ":" else _combine([_judge(rule, one, run) for one in before])

    return tuple(judge_one(rule, run) for rule in rules for run in runs[1:])


def judge_alone(rule: Rule, run: Run) -> Outcome:
    """Apply a rule that needs no baseline."""
    if rule.metric == "finding":
        return _judge_finding(rule, None, run)
    if rule.metric in TIMES:
        return _judge_times(rule, run)
    value, what = _measure(rule.metric, run), _name_figure(rule.metric, (run, run))
    if value is None:
        return _refuse_judgement(rule, run, f"{what} unknown in {run.label}")
    met = value < rule.limit if rule.sign == "<" else value > rule.limit
    return _make_outcome(rule, run, met, f"{what}: {_format(rule.metric, value)}")


def _combine(outcomes: Sequence[Outcome]) -> Outcome:
    """Combine the results against each baseline: the first that is not met decides."""
    decides = next((outcome for outcome in outcomes if not outcome.met), outcomes[0])
    if len(outcomes) == 1:
        return decides
    against = f"against each of {len(outcomes)} baselines" if decides.met else "against one of the baselines"
    return Outcome(decides.rule, decides.run, decides.met, decides.judged, f"{decides.text} ({against})")


def _judge(rule: Rule, first: Run, run: Run) -> Outcome:
    if rule.metric == "finding":
        return _judge_finding(rule, first, run)
    if rule.metric == "errors":
        return _judge_errors(rule, first, run)
    if rule.metric in TIMES:
        return _judge_latency(rule, first, run)
    return _judge_figure(rule, first, run)


def _make_outcome(rule: Rule, run: Run, met: bool, text: str, judged: bool = True) -> Outcome:
    return Outcome(rule.text, run.label, met, judged, text)


def _refuse_judgement(rule: Rule, run: Run, why: str) -> Outcome:
    return _make_outcome(rule, run, True, f"cannot be judged, so it counts as met: {why}", judged=False)


def _judge_finding(rule: Rule, first: Run | None, run: Run) -> Outcome:
    """Judge whether a finding is new, or more severe than in the baseline if there is one."""
    worse = [
        finding
        for finding in run.analysis.findings
        if covers(rule, finding) and (not first or weight(finding) > weight(first.finding(finding.id)))
    ]
    text = "; ".join(f"{finding.severity} {finding.id}: {finding.title}" for finding in worse)
    none = "no such finding appears or becomes more severe" if first else "no such finding"
    return _make_outcome(rule, run, bool(worse), text or none)


def covers(rule: Rule, finding: Finding) -> bool:
    """Say whether a rule is about a finding: its id, or findings of its severity."""
    if rule.finding in SEVERITIES:
        return weight(finding) >= SEVERITIES.index(rule.finding)
    return finding.id == rule.finding


def _judge_errors(rule: Rule, first: Run, run: Run) -> Outcome:
    before, after = first.failed_share, run.failed_share
    if before is None or after is None:
        return _refuse_judgement(rule, run, "no gRPC status is in the capture")
    return _make_outcome(
        rule, run, after - before >= rule.limit, f"{after:.2%} of the RPCs failed, before {before:.2%}"
    )


def _judge_times(rule: Rule, run: Run) -> Outcome:
    """Judge whether a quantile of a method exceeds the limit."""
    found = list(_list_times(rule, run))
    if not found:
        return _refuse_judgement(rule, run, "no method has complete RPCs")
    above = [one for one in found if one[0] > rule.limit] or [max(found)]
    return _make_outcome(rule, run, above[0][0] > rule.limit, "; ".join(f"{what} {duration(ns)}" for ns, what in above))


def _list_times(rule: Rule, run: Run) -> Iterator[tuple[int, str]]:
    for name, method in run.named_methods.items():
        kind, quantiles, _ = answered(method)
        for quantile in _list_quantiles(rule) if quantiles else ():
            yield getattr(quantiles, quantile), f"{name} {quantile} {_KINDS[kind]}"


def _list_quantiles(rule: Rule) -> tuple[str, ...]:
    return QUANTILES if rule.metric == "latency" else (rule.metric,)


def _judge_latency(rule: Rule, first: Run, run: Run) -> Outcome:
    """Judge whether a quantile rose by the factor and the least difference, and its shift's interval excludes 0."""
    wanted = _list_quantiles(rule)
    compared = [shift for shift in shifts((first, run)) if shift.quantile in wanted and shift.ratio is not None]
    missing = [name for name in first.named_methods if name not in run.named_methods]
    if not compared or missing:
        what = f"{missing[0]} is not in {run.label}" if missing else "no method has complete RPCs in both captures"
        return _refuse_judgement(rule, run, what)
    large = [shift for shift in compared if _is_large(shift, rule)]
    risen = [shift for shift in large if shift.certain is not False]
    shown = risen or large or [max(compared, key=lambda shift: shift.ratio or 0.0)]
    text = "; ".join(
        f"{s.method} {s.quantile} {_KINDS[s.kind]} {duration(s.from_ns)} -> {duration(s.to_ns)} ({s.ratio:.2f} times)"
        for s in shown
    )
    return _make_outcome(rule, run, bool(risen), text + (", which may be chance" if large and not risen else ""))


def _is_large(shift: Shift, rule: Rule) -> bool:
    return shift.shift_ns > 0 and (shift.ratio or 0.0) >= rule.limit and shift.shift_ns >= rule.least


def _judge_figure(rule: Rule, first: Run, run: Run) -> Outcome:
    pair = (first, run)
    what = _name_figure(rule.metric, pair)
    is_rate = rule.metric == "throughput"
    before, after = rates(pair, choose_unit(pair)) if is_rate else (_measure(rule.metric, run) for run in pair)
    if before is None or after is None:
        return _refuse_judgement(rule, run, f"{what} unknown in {first.label if before is None else run.label}")
    worse, better = (before, after) if is_rate else (after, before)
    met = worse > better and worse >= better * rule.limit and worse - better >= rule.least
    text = f"{what}: {_format(rule.metric, after)}, before {_format(rule.metric, before)}"
    return _make_outcome(rule, run, met, text)


def _name_figure(metric: str, pair: tuple[Run, Run]) -> str:
    return f"{choose_unit(pair)}s per second" if metric == "throughput" else _FIGURES[metric][1]


def _format(metric: str, value: float) -> str:
    return f"{value:.2%}" if metric == "errors" else rate(value)


def _measure(metric: str, run: Run) -> float | None:
    """Measure a figure; the packets of a selection are those of the whole capture, so nothing is known per message."""
    if run.analysis.narrowed and metric in ("packets", "control"):
        return None
    return _FIGURES[metric][0](run)


_FIGURES: dict[str, tuple[Callable[[Run], float | None], str]] = {
    "throughput": (lambda run: rates([run], unit([run]))[0], "RPCs per second"),
    "packets": (lambda run: over(run.packets, run.messages), "packets per message"),
    "control": (lambda run: part(run, "control"), "packets with only control frames per message"),
    "connections": (lambda run: run.connections, "connections with RPCs"),
    "errors": (lambda run: run.failed_share, "share of failed RPCs"),
}
