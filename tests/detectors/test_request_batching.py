"""`request-batching`: figures where callers wait for each other, or bursts are large; never an accusation."""

from __future__ import annotations

from typing import Any

import pytest
from detecting import found, the_finding
from support import recording, synthetic

from grpcdiag.analyzer.detectors import request_batching as detector

FIRES_ON = ["lab/request-batching"]
QUIET_ON = ["any", "ydb-unary-single-inflight1"]


@pytest.mark.parametrize("name", ["ydb-unary-single-inflight8", "ydb-stream-single-inflight8"])
def test_figures_where_callers_share(name: str) -> None:
    capture = recording(name)
    finding = the_finding(detector, capture.files)
    assert (finding.severity, finding.lost_ns) == ("info", None)
    assert finding.metrics["requests"] == 8000
    assert 4 < float(finding.metrics["requests_per_burst"]) <= 8
    assert "shared-connection" in finding.explanation


def test_synthetic_captures() -> None:
    finding = the_finding(detector, [synthetic("shared-connection-fires").file])
    assert finding.metrics["requests_per_burst"] == 8
    assert finding.metrics["requests_per_packet"] == 8


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"burst_requests": 8.0}, True), ({"burst_requests": 8.1}, False), ({"bursts": 104}, False)],
)
def test_large_bursts_without_waiting(limits: dict[str, Any], expected: bool) -> None:
    """103 bursts of eight whose callers do not wait for the client."""
    files = [synthetic("shared-connection-quiet-busy").file]
    finding = found(detector, files, **({"burst_requests": 8.0} | limits))
    assert bool(finding) is expected
    if finding:
        assert "nothing in the capture shows that it costs time" in finding.explanation
