"""Findings, and rules of `--fail-on` that are met, as SARIF 2.1.0.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html; GitHub needs a location with a line and a fingerprint
for each result, so every result is on the first line of its capture.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from ...analyzer import _core
from ...analyzer.detectors import DETECTORS
from ...analyzer.model.analysis import Analysis
from ...analyzer.model.detector import find_detector
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import safe
from ..compare.comparison import Comparison
from ..compare.regression import Outcome
from ..shared.markdown_escape import shortened

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"info": "note", "warning": "warning", "critical": "error"}
GATE = "fail-on"
"""Id of the rule whose results are met rules of `--fail-on`."""
LONGEST = 4_000
"""Most characters of a message."""
MOST_METHODS = 20
"""Most methods named as locations of a finding."""


def of_analysis(analyses: Sequence[Analysis], outcomes: Iterable[Outcome]) -> str:
    """Write the findings of analyses and the rules that they meet."""
    results = [_describe_finding(finding, one) for one in analyses for finding in one.findings]
    results += [_describe_outcome(outcome, analyses[0]) for outcome in outcomes if outcome.met]
    return _write(results, [warning for one in analyses for warning in one.quality.warnings])


def of_comparison(c: Comparison) -> str:
    """Write the rules that captures meet."""
    analyses = {run.label: run.analysis for run in c.runs}
    return _write([_describe_outcome(one, analyses[one.run]) for one in c.outcomes if one.met], c.notes)


def _write(results: Sequence[dict[str, Any]], notes: Iterable[str]) -> str:
    driver = {"name": "grpcdiag", "version": _core.__version__}
    rules = [_describe_rule(name) for name in dict.fromkeys(result["ruleId"] for result in results)]
    notifications = [{"level": "note", "message": {"text": _clean(note)}} for note in notes]
    run = {
        "tool": {"driver": {**driver, "rules": rules}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _describe_rule(name: str) -> dict[str, Any]:
    detector = find_detector(DETECTORS, name)
    if detector is None:
        return {"id": name, "shortDescription": {"text": "A rule of --fail-on is met"}}
    short = {"text": detector.page.strip().partition("\n")[0]}
    return {"id": name, "shortDescription": short, "help": {"text": detector.page.strip()}}


def _describe_finding(finding: Finding, analysis: Analysis) -> dict[str, Any]:
    text = f"{finding.title}.\n{finding.explanation}\nPackets: {finding.display_filter}"
    properties = {"confidence": finding.confidence, "lost_ns": finding.lost_ns, "share": finding.share}
    identity = (finding.id, *sorted(finding.scope.methods))
    result = _make_result(finding.id, LEVELS[finding.severity], text, analysis, identity, finding.scope.methods)
    return result | {"properties": {**properties, "connections": finding.scope.connections}}


def _describe_outcome(outcome: Outcome, analysis: Analysis) -> dict[str, Any]:
    text = f"--fail-on {outcome.rule}: {outcome.run}: {outcome.text}"
    return _make_result(GATE, "error", text, analysis, (GATE, outcome.rule, outcome.run))


def _make_result(
    rule: str, level: str, text: str, analysis: Analysis, identity: Sequence[str], methods: Sequence[str] = ()
) -> dict[str, Any]:
    name = PurePath(analysis.files[0]).name or "capture"  # without folders, which a public report must not show
    place = {"artifactLocation": {"uri": quote(name, errors="replace")}, "region": {"startLine": 1}}
    location: dict[str, Any] = {"physicalLocation": place}
    if methods:
        names = [{"fullyQualifiedName": _clean(method), "kind": "function"} for method in methods[:MOST_METHODS]]
        location["logicalLocations"] = names
    fingerprint = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": _clean(text)},
        "locations": [location],
        "partialFingerprints": {"primaryLocationLineHash": f"{fingerprint}:1"},
    }


def _clean(text: str) -> str:
    return shortened("\n".join(map(safe, text.split("\n"))), LONGEST)
