"""The OpenMetrics report: Prometheus' own parser reads it, its figures are the analysis's, its size is bounded."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from injected import injected
from markup import HOSTILE
from msgspec.structs import replace
from support import recorded, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.reports import openmetrics
from grpcdiag.reports.openmetrics import LONGEST, METHODS, OTHER

SAMPLE = re.compile(r'[a-z_]+(\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? -?[0-9][0-9.e+-]*')
META = re.compile(r"# (TYPE|UNIT|HELP) grpcdiag[a-z_]* .+")


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze([recorded("rtt205-go-16000.pcap")])


def parse(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name, as Prometheus' own parser reads them."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def check_lines(text: str) -> None:
    """The format's grammar, and that no series and no family occurs twice."""
    *lines, last, rest = text.split("\n")
    assert (last, rest) == ("# EOF", "")
    series = Counter(line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#"))
    assert series and max(series.values()) == 1
    for line in lines:
        assert (META if line.startswith("#") else SAMPLE).fullmatch(line), line
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len({*types})


def find(samples: Any, name: str, **labels: str) -> float:
    return sum(value for found, value in samples[name] if labels.items() <= found.items())


def test_the_figures_are_those_of_the_analysis(analysis: Analysis) -> None:
    samples = parse(openmetrics.render(analysis))
    (method,) = analysis.methods
    assert find(samples, "grpcdiag_rpcs", method="/lab.v1.Lab/Echo", status="OK") == 5
    assert method.latency_ns
    for quantile, ns in (("0.5", method.latency_ns.p50), ("0.99", method.latency_ns.p99), ("1", method.latency_ns.max)):
        assert find(samples, "grpcdiag_rpc_latency_seconds", quantile=quantile) == pytest.approx(ns / 1e9, rel=1e-12)
    for cause, ns in analysis.budget.items():
        assert find(samples, "grpcdiag_rpc_time_seconds", cause=cause) == pytest.approx(ns / 1e9, rel=1e-12)
    assert find(samples, "grpcdiag_findings") == len(analysis.findings)
    lost = sum(one.lost_ns or 0 for one in analysis.findings if one.part_of is None)
    assert find(samples, "grpcdiag_finding_lost_seconds") == pytest.approx(lost / 1e9, rel=1e-12)
    assert find(samples, "grpcdiag_capture_packets") == 138
    assert analysis.capture.first_time_ns
    start = find(samples, "grpcdiag_capture_start_timestamp_seconds")
    assert start == pytest.approx(analysis.capture.first_time_ns / 1e9, abs=1e-6)
    assert find(samples, "grpcdiag_info", version=analysis.version) == 1


def check_metrics(found: Analysis) -> None:
    """What holds for the report of any capture (`test_every_capture`)."""
    text = openmetrics.render(found)
    check_lines(text)
    samples = parse(text)
    assert find(samples, "grpcdiag_rpcs") == found.totals.rpcs


@pytest.mark.parametrize("text", [*HOSTILE, "A" * 100_000, 'a"b\\c\nd{e="f"} 1', "\\", '"', "# EOF\n"])
def test_hostile_text_is_a_label(text: str, analysis: Analysis) -> None:
    page = openmetrics.render(injected(analysis, text))
    check_lines(page)
    assert page.count("\n") == openmetrics.render(injected(analysis, "word")).count("\n")
    values = [value for found in parse(page).values() for labels, _ in found for value in labels.values()]
    assert max(map(len, values)) <= LONGEST
    assert all(value.isprintable() for value in values)


def test_methods_are_bounded(analysis: Analysis) -> None:
    """Beyond the most, and of one name when cut, they are together; nothing is lost."""
    names = [f"/p.S/{'long' * 40}{n}" if n < 2 else f"/p.S/M{n}" if n != 7 else OTHER for n in range(METHODS + 30)]
    methods = tuple(replace(analysis.methods[0], method=name) for name in names)
    text = openmetrics.render(replace(analysis, methods=methods))
    check_lines(text)
    samples = parse(text)
    assert len({labels["method"] for labels, _ in samples["grpcdiag_rpcs"]}) == METHODS - 1
    assert find(samples, "grpcdiag_rpcs") == 5 * len(names)
    assert find(samples, "grpcdiag_rpcs", method=OTHER) == 5 * 31
    many = openmetrics.render(replace(analysis, methods=methods * 1000))
    assert len(many.splitlines()) == len(text.splitlines())


def test_the_command(tmp_path: Any) -> None:
    out = tmp_path / "grpcdiag.prom"
    assert run_here("analyze", recorded("rpc-errors.pcap"), "--format", "openmetrics", "-o", str(out)).code == 0
    check_lines(out.read_text())
    outcome = run_here("analyze", recorded("rpc-errors.pcap"), "--format", "openmetrics", "--method", "Down")
    assert find(parse(outcome.text), "grpcdiag_rpcs") == 1
