"""Triggers of `watch`: what they are written like, and what meets them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.live.triggers import TriggerError, parse
from grpcdiag.analyzer.model.analysis import Analysis

IDS = [detector.id for detector in DETECTORS]


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """Of calls of which some fail."""
    return analyze([recorded("rpc-errors.pcap")])


def judge(text: str, analysis: Analysis) -> str | None:
    return parse(text, IDS).judge(analysis)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a trigger: write p99 > 50ms"),
        ("p99", "is not a trigger"),
        ("p99 > 50", "is not a trigger"),
        ("p98 > 50ms", "is not a trigger"),
        ("p99() > 50ms", "is not a trigger"),
        ("p99 < 50ms", "is not a trigger"),
        ("p99 > \u0665ms", "is not a trigger"),
        ("status=UNAVAILABLE", "is not a trigger"),
        ("status=UNAVAILABLE rate > 1", "is not a trigger"),
        ("status=BROKEN rate > 1%", "'BROKEN' is no gRPC status; known: OK, CANCELLED"),
        ("status=OK|nothing rate > 1%", "'NOTHING' is no gRPC status"),
        ("status=UNAVAILABLE rate > 100%", "is never met"),
        ("finding:bad", "'bad' is neither a severity (info, warning, critical) nor the id of a finding"),
        ("finding:", "'' is neither"),
    ],
)
def test_what_is_no_trigger(text: str, why: str) -> None:
    with pytest.raises(TriggerError) as raised:
        parse(text, IDS)
    assert why in str(raised.value)


@pytest.mark.parametrize("quantile", ["p50", "p90", "p99", "p999", "max", "mean"])
def test_latency_is_judged_for_each_method_on_both_sides_of_the_limit(quantile: str, analysis: Analysis) -> None:
    slowest = max(analysis.methods, key=lambda one: getattr(one.latency_ns, quantile))
    limit_ns = getattr(slowest.latency_ns, quantile)
    assert judge(f"{quantile} > {limit_ns / 1e3 - 0.001:.3f}us", analysis) is not None
    assert judge(f"{quantile}>{limit_ns / 1e3:.3f}us", analysis) is None
    service = (slowest.method or "").rpartition("/")[0]
    assert judge(f"{quantile}({service}/*) > 1us", analysis) is not None
    assert judge(f"{quantile}(/other.Service/*) > 1us", analysis) is None


def test_a_rate_counts_the_calls_that_ended(analysis: Analysis) -> None:
    counts: dict[str, int] = {}
    for one in analysis.methods:
        for name, count in one.statuses.items():
            counts[name] = counts.get(name, 0) + count
    counts.pop("not_seen", None)
    name = next(name for name in counts if name != "OK")
    share = 100 * counts[name] / sum(counts.values())
    said = judge(f"status={name} rate > {share - 0.001:.6f}%", analysis)
    assert said == f"{counts[name]:,} of {sum(counts.values()):,} calls ended with {name}"
    assert judge(f"status={name} rate > {share + 0.001:.6f}%", analysis) is None
    assert judge(f"status={name.lower()}|ok rate > 50%", analysis) is not None or share < 50
    most = max((count, name) for name, count in counts.items() if name != "OK")[0]
    failed = judge("status=failed rate > 0%", analysis) or ""
    assert counts[failed.rpartition(" with ")[2].split(", ")[0]] == most
    assert judge("status=failed(/no.Such/*) rate > 0%", analysis) is None
    assert judge("status=failed rate > 0%", replace(analysis, methods=())) is None


def test_findings_are_judged_by_severity_and_id(analysis: Analysis) -> None:
    (found, *_) = [one for one in analysis.findings if one.id == "rpc-errors"]
    assert judge("finding:rpc-errors", analysis) == f"rpc-errors: {found.title}"
    assert judge("finding:info", analysis) is not None
    assert judge("finding:mtu-black-hole", analysis) is None
    quiet = replace(analysis, findings=tuple(replace(one, severity="info") for one in analysis.findings))
    assert judge("finding:info", quiet) is not None
    assert judge("finding:warning", quiet) is None
