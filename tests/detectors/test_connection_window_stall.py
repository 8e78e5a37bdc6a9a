"""`connection-window-stall`: a real upload against 65,535 bytes, two streams that share a window, and neither."""

from __future__ import annotations

import pytest
from stalls import check_evidence, firing
from support import recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.connection_window_stall import ID, Limits, detect
from grpcdiag.analyzer.detectors.stream_window_stall import Limits as StreamLimits
from grpcdiag.analyzer.detectors.stream_window_stall import detect as detect_stream
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/connection-window-stall"]
"""Recorded captures on which the finding fires."""
QUIET_ON = ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]
"""Recorded captures on which it must not."""


def test_an_upload_waits_for_the_window_every_round_trip() -> None:
    """2 x 4 MiB over 20 ms: the client measured 1.37 and 1.35 s, nearly all of it waiting for WINDOW_UPDATE."""
    capture = recording("h2-flow-control-go-64k")
    analysis = analyze(capture.files)
    finding = next(f for f in analysis.findings if f.id == ID)
    measured = sum(capture.report["latency_ms"]) * MS
    assert finding.lost_ns == pytest.approx(2 * 1300 * MS, rel=0.1)
    assert finding.lost_ns is not None
    assert finding.lost_ns < measured
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert finding.metrics["late_credit_share"] < 0.1
    assert finding.metrics["bytes_in_flight_at_stop"] == pytest.approx(65_535, rel=0.02)
    assert analysis.verdict.finding == ID
    assert finding.remedies[0].knob == "grpc.InitialConnWindowSize(n)"
    check_evidence(finding, capture.files, "client", 10 * MS)


def test_two_streams_share_the_window() -> None:
    file = synthetic("connection-window-fires").file
    tables = decode([file])
    finding = firing(detect(tables, Limits()))
    assert finding.lost_ns == pytest.approx(scenes.RTT, rel=0.01)
    assert "client 10.0.0.1 stopped" in finding.explanation
    assert "too small" in finding.explanation
    check_evidence(finding, [file], "client", 99 * MS)
    assert list(detect_stream(tables, StreamLimits())) == []


@pytest.mark.parametrize("name", ["connection-window-quiet-wide", "stream-window-fires", "stream-window-quiet-fits"])
def test_quiet_where_the_connection_window_binds_nobody(name: str) -> None:
    assert list(detect(decode([synthetic(name).file]), Limits())) == []


@pytest.mark.parametrize("name", ["loss-0pct-rtt20", "rtt205-go-32000", "impl-go", "impl-tonic"])
def test_quiet_on_real_captures(name: str) -> None:
    assert list(detect(decode(recording(name).files), Limits())) == []


def test_severity_follows_the_share() -> None:
    tables = decode([synthetic("connection-window-fires").file])
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(critical_share=share))).severity == "critical"
    assert firing(detect(tables, Limits(critical_share=share + 0.001))).severity == "warning"
