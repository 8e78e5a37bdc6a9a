"""`--fail-on`: the rules of a gate, what they say of an analysis, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .common import fail, say
from .completion import severities

if TYPE_CHECKING:
    from ...analyzer.model.analysis import Analysis
    from ...reports.compare.regression import Outcome
    from ...reports.compare.rules import Rule

MET = 1
"""Exit code: a rule of `--fail-on` is met."""

FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="RULE",
        autocompletion=severities,
        help="Exit with 1 if this is met; repeatable. info, warning, critical: a finding is at least that severe; "
        "finding:ID: there is that finding; a limit, such as p99>50ms, throughput<1000, packets>2, control>1, "
        "connections>8 or errors>0.01.",
    ),
]


def parse_rules(texts: Sequence[str], *, baseline: bool) -> list[Rule]:
    """Parse rules; one that is invalid, or needs a baseline where there is none, ends the command."""
    if not texts:
        return []  # nothing is imported before the core reads
    from ...analyzer.detectors import DETECTORS
    from ...reports.compare.rules import RuleError, parse

    try:
        rules = [parse(text, [detector.id for detector in DETECTORS], baseline=baseline) for text in texts]
    except RuleError as error:
        fail(f"--fail-on {error}", 2)
    for rule in rules:
        if not rule.alone and not baseline:
            fail(f"--fail-on {rule.text} needs a baseline: use grpcdiag compare, or a limit such as p99>50ms", 2)
    return rules


def judge_analysis(rules: Sequence[Rule], analysis: Analysis) -> tuple[Outcome, ...]:
    """Apply rules to an analysis, and to those of captures that could not be put together with it."""
    if not rules:
        return ()
    from ...reports.compare.regression import judge_alone
    from ...reports.compare.run import runs

    return tuple(judge_alone(rule, run) for rule in rules for run in runs(list_analyses(analysis)))


def list_analyses(analysis: Analysis) -> tuple[Analysis, ...]:
    """List an analysis and those of captures that could not be put together with it."""
    return (analysis, *(analysis.apart.analyses if analysis.apart else ()))


def end_if_met(outcomes: Iterable[Outcome], *, quiet: bool, several: bool) -> None:
    """Say which rules are met, and end the command if there are any; with `several` captures, name them."""
    met = [outcome for outcome in outcomes if outcome.met]
    if not met:
        return
    if not quiet:
        for outcome in met:
            say(f"--fail-on {outcome.rule}: {f'{outcome.run}: ' if several else ''}{outcome.text}")
    raise typer.Exit(MET)
