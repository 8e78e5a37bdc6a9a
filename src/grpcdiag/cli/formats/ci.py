"""Write SARIF and JUnit XML of `analyze` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..support.gate import judge_analysis, list_analyses, parse_rules

if TYPE_CHECKING:
    from ...analyzer.model.analysis import Analysis
    from ...reports.compare.comparison import Comparison
    from ...reports.compare.rules import Rule

DEFAULT = "warning"
"""Findings of at least this severity are failures in JUnit XML if no rule says otherwise."""


def render_analysis(analysis: Analysis, rules: Sequence[Rule], *, junit: bool) -> str:
    """Render findings, and what the rules about figures say; rules about findings decide which of these fail."""
    from ...reports.ci import junit as junit_xml
    from ...reports.ci import sarif

    about_findings = [rule for rule in rules if rule.metric == "finding"]
    outcomes = judge_analysis([rule for rule in rules if rule.metric != "finding"], analysis)
    analyses = list_analyses(analysis)
    if junit:
        deciding = about_findings or parse_rules([DEFAULT], baseline=False)
        return junit_xml.of_analysis(analyses, deciding, outcomes)
    return sarif.of_analysis(analyses, outcomes)


def render_comparison(comparison: Comparison, *, junit: bool) -> str:
    """Render what the rules say of each capture."""
    from ...reports.ci import junit as junit_xml
    from ...reports.ci import sarif

    return junit_xml.of_comparison(comparison) if junit else sarif.of_comparison(comparison)
