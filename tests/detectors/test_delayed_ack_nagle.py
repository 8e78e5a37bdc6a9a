"""`delayed-ack-nagle`: small writes that wait for a delayed ACK."""

from __future__ import annotations

import pytest
from stalls import check_evidence, firing, relabelled
from support import recorded, recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.delayed_ack_nagle import Limits, detect
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/delayed-ack-nagle"]
QUIET_ON = ["impl-cpp", "impl-go", "impl-tonic", "rtt205-go-16000"]

FIRES = "delayed-ack-fires"


def waiting() -> Tables:
    return decode([synthetic(FIRES).file])


def test_each_call_waits_forty_milliseconds() -> None:
    finding = firing(detect(waiting(), Limits()))
    assert finding.lost_ns == pytest.approx(5 * scenes.NAGLE, rel=0.01)
    assert finding.metrics["waits"] == 5
    assert finding.metrics["median_wait_ns"] == pytest.approx(41 * MS, rel=0.01)
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert "set TCP_NODELAY on client 10.0.0.1's sockets" in finding.verdict
    check_evidence(finding, [synthetic(FIRES).file], "client", 40 * MS)


def test_the_senders_implementation_comes_first() -> None:
    tables = relabelled(decode(recording("rtt205-go-16000").files), "congestion_window", "delayed_ack")
    assert firing(detect(tables, Limits())).remedies[0].implementation == "grpc-go"


def test_severity_follows_the_share() -> None:
    tables = waiting()
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(critical_share=share))).severity == "critical"
    assert firing(detect(tables, Limits(critical_share=share + 0.001))).severity == "warning"
    assert firing(detect(tables, Limits(warning_share=share + 0.001, critical_share=1))).severity == "info"


def test_a_message_held_back_behind_its_headers_is_not_late() -> None:
    """HEADERS and DATA in two writes, Nagle on: DATA leaves right after the delayed ACK of the HEADERS."""
    analysis = analyze([recorded("lab/delayed-ack-nagle.pcap")])
    finding = next(f for f in analysis.findings if f.id == "delayed-ack-nagle")
    assert finding.severity == "critical"
    assert finding.lost_ns == pytest.approx(analysis.budget["delayed_ack"])
    assert finding.metrics["median_wait_ns"] == pytest.approx(44 * MS, abs=9 * MS)
    assert "delayed-data" not in {f.id for f in analysis.findings}


@pytest.mark.parametrize("name", ["delayed-ack-nagle-control", "delayed-data", "delayed-data-control"])
def test_a_message_that_no_ack_released_was_late(name: str) -> None:
    assert list(detect(decode([recorded(f"lab/{name}.pcap")]), Limits())) == []


def test_a_response_behind_something_else_is_granted_its_servers_time() -> None:
    """Handlers of 5 ms; the client's clock says that nine responses came 37 ms later than the others on average."""
    analysis = analyze([recorded("wild/grpc-go-nagle-ping.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == "delayed-ack-nagle")
    assert finding.lost_ns == pytest.approx(337 * MS, rel=0.03)
    assert finding.metrics["median_wait_ns"] == pytest.approx(37 * MS, rel=0.03)
    assert "9 responses waited behind a segment of other data." in finding.explanation
    assert all("43.8 ms after the stop" in shown.what for shown in finding.evidence[1:3])
    assert finding.remedies[0].implementation == "grpc-go"
