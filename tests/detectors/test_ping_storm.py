"""`ping-storm`: PINGs sent in separate packets, many a second and most of the packets."""

from __future__ import annotations

from typing import Any

import pytest
from detecting import severity, the_finding
from support import recording, synthetic

from grpcdiag.analyzer.detectors import ping_storm as detector

FIRES_ON = ["rpc-errors", "lab/ping-storm"]
QUIET_ON = ["impl-go", "rtt205-go-16000"]

STORM = "ping-storm-fires"


def test_synthetic_captures() -> None:
    files = [synthetic(STORM).file]
    finding = the_finding(detector, files)
    assert finding.severity == "critical"
    assert finding.metrics["ping_only_packets"] == 2 * 400  # PINGs and their acknowledgements
    assert finding.metrics["ping_packets_per_s"] == pytest.approx(2 * 1000 / 3, rel=0.05)


def test_a_rate_and_a_share() -> None:
    """As large a share, but ten PINGs where the storm has a hundred: told, no warning."""
    assert severity(detector, [synthetic("ping-storm-slow").file]) == "info"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"packets": 800}, "critical"),
        ({"packets": 801}, "info"),
        ({"per_second": 700.0}, "info"),
        ({"duration_ns": 1_300_000_000}, "info"),
        ({"share": 0.999}, "info"),
        ({"critical_share": 0.999}, "warning"),
        ({"told_packets": 801}, None),
        ({"told_share": 0.999}, None),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(STORM).file], **limits) == expected


def test_real_captures() -> None:
    """Loud only where 200 slow streams are each answered by PINGs; an estimator at work between two ends is told."""
    finding = the_finding(detector, recording("mid-connection-go").files)
    assert finding.severity == "info"
    assert int(finding.metrics["bdp_pings"]) == 1055 + 1008


@pytest.mark.parametrize(
    "limits", [{"streams": 201}, {"paced_share": 0.3}, {"messages_per_stream": 30}, {"stream_interval_ns": 300_000_000}]
)
def test_slow_streams_on_the_other_side_of_each_limit(limits: dict[str, Any]) -> None:
    files = recording("ably-staggered-veth").files
    assert severity(detector, files) == "warning"
    assert severity(detector, files, **limits) == "info"
