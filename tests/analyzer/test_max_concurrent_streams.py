"""`max-concurrent-streams`: places that are taken at once, so somebody was waiting for them."""

from __future__ import annotations

from typing import Any

import pytest
from detecting import disagreements, evidence_is_in_the_packets, found, loud, severity, the_finding
from support import recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import max_concurrent_streams as detector

QUEUE = "max-concurrent-streams-fires"


def test_fires_on_a_limit_of_ten() -> None:
    capture = recording("max-concurrent-streams")
    finding = the_finding(detector, capture.files)
    assert finding.severity == "critical"
    assert finding.metrics["max_concurrent_streams"] == 10
    assert int(finding.metrics["places_taken_at_once"]) > 900  # of 1,000 calls, 50 at once
    assert finding.lost_ns == pytest.approx(2.06e9, rel=0.05)  # of 2.14 s in which 50 callers always had a call
    assert finding.share == pytest.approx((finding.lost_ns or 0) / sum(analyze(capture.files).budget.values()))
    assert finding.remedies[0].knob == "grpc.MaxConcurrentStreams(n)"
    evidence_is_in_the_packets(finding, capture.files)


def test_quiet_without_a_limit() -> None:
    assert found(detector, recording("max-concurrent-streams-control").files) is None
    assert loud(detector) == {"max-concurrent-streams"}


def test_synthetic_captures() -> None:
    assert disagreements(detector) == []
    finding = the_finding(detector, [synthetic(QUEUE).file])
    assert finding.metrics["max_concurrent_streams"] == 4
    assert finding.metrics["places_taken_at_once"] == 36  # forty calls, the first four found room


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"refills": 36}, "critical"),
        ({"refills": 37}, None),
        ({"refilled": 0.85}, "critical"),
        ({"refilled": 1.01}, None),
        ({"critical_share": 0.95}, "warning"),
        ({"warning_share": 0.95, "critical_share": 0.96}, "info"),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(QUEUE).file], **limits) == expected
