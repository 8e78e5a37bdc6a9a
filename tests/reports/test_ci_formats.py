"""SARIF and JUnit XML: valid for those who read them, whatever a capture holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace
from support import REPOSITORY, recorded, recording, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.reports.ci import junit, sarif
from grpcdiag.reports.compare import markdown
from grpcdiag.reports.compare.comparison import compare
from grpcdiag.reports.compare.regression import judge_alone
from grpcdiag.reports.compare.rules import parse
from grpcdiag.reports.compare.run import runs

SARIF = jsonschema.Draft7Validator(
    json.loads((REPOSITORY / "fixtures" / "conformance" / "sarif" / "sarif-schema-2.1.0.json").read_text())
)
NASTY = "\x1b[31m<x y='1'>&\x00\ufffe\udc80\u202e]]> @here"
SLOW, FAST = recorded("max-concurrent-streams.pcap"), recorded("max-concurrent-streams-control.pcap")


def read_sarif(text: str) -> dict[str, Any]:
    """The run of a document that is valid against the standard's schema."""
    document = json.loads(text)
    SARIF.validate(document)
    (run,) = document["runs"]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    return dict(run)


def read_junit(text: str) -> tuple[Xml.Element, dict[str, Xml.Element]]:
    """The root, and the test cases by name; the counts are those of the elements."""
    root = Xml.fromstring(text)
    for part in (root, *root):
        for key, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            assert int(part.attrib[key]) == len(part.findall(f".//{tag}"))
    return root, {case.attrib["name"]: case for case in root.iter("testcase")}


def test_sarif_has_every_finding() -> None:
    analysis = analyze(recording("rpc-errors").files)
    outcome = run_here("analyze", recorded("rpc-errors.pcap"), "--format", "sarif", "--fail-on", "errors>0.1")
    run = read_sarif(outcome.text)
    assert outcome.code == 1
    *found, gate = run["results"]
    assert [one["ruleId"] for one in found] == [finding.id for finding in analysis.findings]
    levels = {"info": "note", "warning": "warning", "critical": "error"}
    assert [one["level"] for one in found] == [levels[finding.severity] for finding in analysis.findings]
    assert all(
        finding.display_filter in one["message"]["text"] for finding, one in zip(analysis.findings, found, strict=True)
    )
    assert (gate["ruleId"], gate["level"]) == ("fail-on", "error")
    assert gate["message"]["text"].endswith("share of failed RPCs: 35.43%")
    prints = [one["partialFingerprints"]["primaryLocationLineHash"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_junit_has_a_case_for_every_detector() -> None:
    outcome = run_here("analyze", SLOW, "--format", "junit")
    assert outcome.code == 0, "without --fail-on nothing fails but the test case"
    _, cases = read_junit(outcome.text)
    assert set(cases) == {detector.id for detector in DETECTORS}
    failures = {name for name, case in cases.items() if case.find("failure") is not None}
    analysis = analyze([SLOW])
    assert failures == {finding.id for finding in analysis.findings if finding.severity != "info"}
    assert {name for name, case in cases.items() if case.find("skipped") is not None} == {
        one.id for one in analysis.skipped
    } - {finding.id for finding in analysis.findings}


@pytest.mark.parametrize(
    ("rules", "failing"),
    [
        (["info"], {"max-concurrent-streams", "ping-storm", "server-latency", "window-update-storm"}),
        (["finding:ping-storm"], {"ping-storm"}),
        (["critical", "p99>1ms", "p99>1s"], {"max-concurrent-streams", "p99>1ms"}),
    ],
)
def test_rules_decide_what_fails(rules: list[str], failing: set[str]) -> None:
    outcome = run_here("analyze", SLOW, "--format", "junit", *(word for rule in rules for word in ("--fail-on", rule)))
    assert outcome.code == 1
    _, cases = read_junit(outcome.text)
    assert {name for name, case in cases.items() if case.find("failure") is not None} == failing


def test_a_comparison_reports_its_rules() -> None:
    rules = ("--fail-on", "throughput:1.2", "--fail-on", "errors:0.01", "--fail-on", "finding:critical")
    found = run_here("compare", FAST, SLOW, *rules, "--format", "junit")
    root, cases = read_junit(found.text)
    assert found.code == 1
    assert [suite.attrib["name"] for suite in root] == ["max-concurrent-streams.pcap"]
    assert {name for name, case in cases.items() if case.find("failure") is not None} == {
        "throughput:1.2",
        "finding:critical",
    }
    results = read_sarif(run_here("compare", FAST, SLOW, *rules, "--format", "sarif").text)["results"]
    assert [one["message"]["text"].split(":")[0] for one in results] == ["--fail-on throughput", "--fail-on finding"]
    for name in ("sarif", "junit"):
        assert run_here("compare", FAST, SLOW, "--format", name).code == 2, "there is nothing to report without rules"


def test_a_rule_that_needs_a_baseline_is_wrong_usage() -> None:
    outcome = run_here("analyze", SLOW, "--fail-on", "p99:1.2")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "needs a baseline" in outcome.err


def test_connections_without_rpcs_have_findings_too() -> None:
    outcome = run_here("analyze", recorded("tls13-go.pcap"), "--format", "sarif")
    assert outcome.code == 4
    assert read_sarif(outcome.text)["tool"]["driver"]["name"] == "grpcdiag"


def spoil(analysis: Analysis) -> Analysis:
    """The analysis with nasty text wherever a capture or a file name may put some."""
    finding = analysis.findings[0]
    scope = replace(finding.scope, methods=(NASTY, "m" * 100_000))
    worse = replace(finding, title=NASTY, explanation=NASTY + "e" * 100_000, severity="critical", scope=scope)
    methods = tuple(replace(method, method=NASTY) for method in analysis.methods)
    quality = replace(analysis.quality, warnings=(NASTY,))
    return replace(analysis, files=(f"/home/secret/{NASTY}",), findings=(worse,), methods=methods, quality=quality)


def test_nasty_text_is_escaped_and_bounded() -> None:
    nasty = spoil(analyze([SLOW]))
    rules = [parse(text, []) for text in ("p99>1ms", "info", "p99:1")]
    outcomes = [judge_alone(rule, run) for rule in rules[:2] for run in runs([nasty])]
    compared = compare([nasty, nasty], rules)
    for text in (sarif.of_analysis([nasty], outcomes), sarif.of_comparison(compared)):
        assert "m" * 5_000 not in text and "/home" not in text and "secret" not in text
        read_sarif(text)
    for text in (junit.of_analysis([nasty], rules[1:2], outcomes), junit.of_comparison(compared)):
        read_junit(text)
        assert not set(text) & set("\x1b\x00\ufffe\udc80\u202e")
        assert "e" * 5_000 not in text and "secret" not in text
    page = markdown.render(compared)
    assert not set(page) & set("\x1b\x00\ufffe\udc80\u202e")
    assert "secret" not in page
    html = MarkdownIt("gfm-like", {"linkify": False}).render(page)
    assert "<x" not in html


def test_the_markdown_of_a_comparison(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    rules = ("--fail-on", "throughput:1.2", "--fail-on", "p99>1s")
    assert run_here("compare", FAST, SLOW, *rules, "--format", "markdown", "-o", str(path)).code == 1
    page = path.read_text()
    assert page.startswith("## Comparison\n\n**A's throughput is 4.8 times B's")
    assert "| **met** | `throughput:1.2` | B | RPCs per second: 468, before 2,266 |" in page
    assert "| not met | `p99>1s` | B |" in page
    assert "B's `p99`" not in page and "A's `p99` latency is 1.24 times B's" in page
    sweep = [analyze(recording(name).files) for name in ("ydb-unary-single-inflight1", "ydb-unary-single-inflight8")]
    assert "### Scaling" in markdown.render(compare([*sweep, sweep[1]]))
