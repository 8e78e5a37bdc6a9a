"""Findings and rules of `--fail-on` as JUnit XML: one test case for each detector and each rule.

There is no standard; the elements are those that Jenkins, GitLab and pytest share (testsuites, testsuite, testcase,
failure, skipped, system-out).
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from xml.etree import ElementTree as Xml

from ...analyzer.detectors import DETECTORS
from ...analyzer.model.analysis import Analysis
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import safe
from ..compare.comparison import Comparison
from ..compare.regression import Outcome, covers
from ..compare.rules import Rule
from ..shared.markdown_escape import shortened

LONGEST = 4_000
"""Most characters of a text."""


def of_analysis(analyses: Sequence[Analysis], rules: Sequence[Rule], outcomes: Iterable[Outcome]) -> str:
    """Write a test case for each detector, which fails if one of the rules covers its finding, and for each outcome."""
    root = Xml.Element("testsuites", name="grpcdiag")
    for analysis in analyses:
        suite = _add_suite(root, analysis)
        for detector in DETECTORS:
            _add_detector(suite, detector.id, analysis, rules)
    _add_outcomes(root[0], outcomes)
    return _write(root)


def of_comparison(c: Comparison) -> str:
    """Write a test case for each rule and capture."""
    root = Xml.Element("testsuites", name="grpcdiag")
    for run in c.runs[1:]:
        _add_outcomes(_add_suite(root, run.analysis), (one for one in c.outcomes if one.run == run.label))
    return _write(root)


def _add_suite(root: Xml.Element, analysis: Analysis) -> Xml.Element:
    return Xml.SubElement(root, "testsuite", name=_clean(PurePath(analysis.files[0]).name or "capture"))


def _add_detector(suite: Xml.Element, name: str, analysis: Analysis, rules: Sequence[Rule]) -> None:
    case = Xml.SubElement(suite, "testcase", classname="grpcdiag.finding", name=name)
    findings = [finding for finding in analysis.findings if finding.id == name]
    failing = [finding for finding in findings if any(covers(rule, finding) for rule in rules)]
    reasons = [skipped.reason for skipped in analysis.skipped if skipped.id == name]
    for finding in failing[:1]:
        failure = Xml.SubElement(case, "failure", message=_clean(finding.title), type=finding.severity)
        failure.text = "\n".join(map(_describe, failing))[:LONGEST]
    if not findings and reasons:
        Xml.SubElement(case, "skipped", message=_clean(reasons[0]))
    if findings and not failing:
        Xml.SubElement(case, "system-out").text = "\n".join(map(_describe, findings))[:LONGEST]


def _describe(finding: Finding) -> str:
    return _clean(f"{finding.severity}: {finding.title}. {finding.explanation} Packets: {finding.display_filter}")


def _add_outcomes(suite: Xml.Element, outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        case = Xml.SubElement(suite, "testcase", classname="grpcdiag.fail-on", name=_clean(outcome.rule))
        if outcome.met:
            kind = "regression" if outcome.judged else "not judged"
            Xml.SubElement(case, "failure", message=_clean(outcome.text), type=kind)
        else:
            Xml.SubElement(case, "system-out").text = _clean(outcome.text)


def _write(root: Xml.Element) -> str:
    for part in (root, *root):
        for key, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            part.set(key, str(len(list(part.iter(tag)))))
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _clean(text: str) -> str:
    """Escape control characters, which XML 1.0 cannot hold, and bound the length."""
    return shortened(safe(text), LONGEST)
