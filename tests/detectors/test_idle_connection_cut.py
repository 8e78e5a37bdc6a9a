"""`idle-connection-cut`: an idle connection was dead when it was used again; never a busy one, or a clean close."""

from __future__ import annotations

import pytest
from detecting import disagreements, evidence_is_in_the_packets, found, loud, the_finding
from judging import changed, must, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import idle_connection_cut as detector
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = ["wild/idle-drop", "wild/idle-finrace", "wild/idle-rst"]
"""Recorded captures on which the finding fires."""
QUIET_ON = [
    "wild/half-open-deadline",
    "wild/half-open-keepalive",
    "wild/half-open-nodeadline",
    "wild/idle-goaway",
    "wild/rolling-restart-ok",
    "wild/rst-thirdparty",
    "wild/server-kill",
    "wild/watch-ok",
]
"""Recorded captures on which it must not."""


def test_synthetic_captures_agree() -> None:
    assert disagreements(detector) == []


@pytest.mark.parametrize("name", QUIET_ON)
def test_it_is_quiet(name: str) -> None:
    assert found(detector, [recorded(f"{name}.pcap.zst")]) is None


def test_it_is_quiet_on_all_other_recordings() -> None:
    assert loud(detector) == set()


@pytest.mark.parametrize("name", FIRES_ON)
def test_its_packets_are_in_the_capture(name: str) -> None:
    files = [recorded(f"{name}.pcap.zst")]
    evidence_is_in_the_packets(the_finding(detector, files), files)


def test_a_forgotten_connection_is_named() -> None:
    """A device forgot the connection during 14 s of silence."""
    analysis = analyze([recorded("wild/idle-drop.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", "medium")  # the host may be gone as well
    assert finding.metrics["silence_ns"] == pytest.approx(14.0 * S, rel=0.01)
    assert analysis.verdict.finding == detector.ID
    assert analysis.budget["peer_unreachable"] == finding.lost_ns


def test_a_keepalive_that_notices_makes_it_harmless() -> None:
    """The PING got no answer, and the next call took a new connection, which the server answered."""
    finding = the_finding(detector, [recorded("wild/idle-drop-keepalive-ok.pcap.zst")])
    assert (finding.severity, finding.confidence, finding.metrics["affected_rpcs"]) == ("info", "high", 0)
    assert "something between forgot this connection" in finding.explanation


def test_a_reset_by_a_device_is_told_from_the_servers() -> None:
    """The RST has a TTL of 250, the server's packets 61."""
    finding = the_finding(detector, [recorded("wild/idle-rst.pcap.zst")])
    assert finding.metrics["rst_connections"] == 1
    assert "with a TTL of 250; earlier packets of that side had a TTL of 61" in finding.explanation
    same = the_finding(detector, [recorded("wild/idle-rst.pcap.zst")]).verdict
    assert "keepalive" in same


def test_requests_that_cross_a_fin_are_counted() -> None:
    """The server closes after 500 ms of silence, less the way of 20 ms there and back."""
    analysis = analyze([recorded("wild/idle-finrace.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.metrics["fin_connections"], finding.metrics["affected_rpcs"]) == (9, 9)
    assert finding.metrics["silence_ns"] == pytest.approx(480 * MS, rel=0.06)
    assert next(f for f in analysis.findings if f.id == "connection-closed-early").part_of == detector.ID
    assert "GOAWAY" in finding.verdict
    assert "keepalive" not in " ".join(remedy.knob.lower() for remedy in finding.remedies)


def test_known_limits_that_the_silence_passed_are_listed() -> None:
    tables = tables_of_scene("idle-connection-cut-fires-no-answer")
    silent = changed(tables, "unanswered", heard_time_ns=tables.unanswered.first_time_ns - 400 * S)
    devices = [remedy.implementation for remedy in must(detector, silent).remedies]
    assert "AWS NLB, NAT gateway" in devices
    assert "GCP firewall" not in devices
    assert "network" in [remedy.implementation for remedy in must(detector, tables).remedies]


def test_a_goaway_before_the_fin_is_no_cut() -> None:
    tables = tables_of_scene("idle-connection-cut-fires-fin")
    assert must(detector, tables).metrics["fin_connections"] == 1
    assert told(detector, changed(tables, "connections", goaway_server=[0])) is None
