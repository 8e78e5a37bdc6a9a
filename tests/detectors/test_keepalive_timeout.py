"""`keepalive-timeout`: closed before the PING could be acknowledged; never after a round trip, or by a dead peer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from detecting import the_finding
from judging import changed, must, repeated, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import keepalive_timeout as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/ka-too-short", "wild/grpcio-ka-too-short", "wild/tonic-paused-keepalive"]
QUIET_ON = [
    "wild/half-open-keepalive",
    "wild/idle-drop-keepalive-ok",
    "wild/rst-thirdparty",
    "wild/server-kill",
    "wild/watch-ok",
]


def test_a_timeout_below_the_round_trip_is_named() -> None:
    """The timeout is 350 ms, the round trip 600 ms: each connection is closed, and every call fails."""
    analysis = analyze([recorded("wild/ka-too-short.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence, finding.metrics["affected_rpcs"]) == ("critical", "high", 8)
    assert finding.metrics["median_wait_ns"] == pytest.approx(350 * MS, rel=0.05)
    assert finding.metrics["median_round_trip_ns"] == pytest.approx(600 * MS, rel=0.05)
    assert analysis.verdict.finding == detector.ID
    # what the server says of them comes after the client's FIN
    assert not any(f.id == "rpc-errors" for f in analysis.findings)
    assert finding.remedies[0].implementation == "grpclib"


def test_a_peer_whose_tcp_alone_responds_is_named() -> None:
    """Its process was stopped for 2.5 s; 6 calls of two connections failed."""
    finding = the_finding(detector, [recorded("wild/tonic-paused-keepalive.pcap.zst")])
    assert (finding.severity, finding.confidence, finding.metrics["affected_rpcs"]) == ("warning", "high", 6)
    assert finding.metrics["median_wait_ns"] == pytest.approx(600 * MS, rel=0.05)
    assert finding.title.endswith("server 10.9.0.2 had not acknowledged it")
    assert "longer than its peer pauses" in finding.remedies[0].note


@pytest.mark.parametrize(
    ("beyond_ns", "resent", "missing", "sent_ns", "fires"),
    [(0, 0, 0, 0, True), (-1, 0, 0, 0, False), (0, 1, 0, 0, False), (0, 0, 1, 0, False), (0, 0, 0, 1, False)],
)
def test_a_ping_must_be_so_late_that_tcp_has_acknowledged_it(
    beyond_ns: int, resent: int, missing: int, sent_ns: int, *, fires: bool
) -> None:
    """With nothing new of the peer a round trip after the PING."""
    tables, limits = tables_of_scene("keepalive-timeout-fires"), detector.Limits()
    trip, pinged = int(tables.connections.min_rtt_ns[0]), tables.closings.ping_time_ns
    at = pinged + int(limits.round_trips * trip) + limits.late_ns + beyond_ns
    late = changed(tables, "closings", time_ns=at, peer_time_ns=pinged + trip + sent_ns)
    late = changed(late, "connections", retransmitted_packets=[resent], missing_bytes=[missing])
    assert (told(detector, late) is not None) == fires


def test_one_connection_alone_is_weak() -> None:
    tables = tables_of_scene("keepalive-timeout-fires")
    assert must(detector, tables).confidence == "low"
    assert told(detector, changed(tables, "closings", open_rpcs=[0])) is None
    assert told(detector, changed(tables, "closings", ping_packet=[0])) is None


def test_a_bandwidth_probe_is_no_keepalive() -> None:
    tables = tables_of_scene("keepalive-timeout-fires")
    (row,) = [row for row, packet in enumerate(tables.pings.packet) if packet == tables.closings.ping_packet[0]]
    purpose = tables.pings.purpose.copy()
    purpose[row] = 1
    assert told(detector, changed(tables, "pings", purpose=purpose)) is None


def test_calls_that_c_core_resets_before_its_fin_count() -> None:
    """grpcio ended 2 of 2 calls with UNAVAILABLE, each on a connection of its own."""
    analysis = analyze([recorded("wild/grpcio-ka-too-short.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.metrics["affected_rpcs"], finding.metrics["connections"]) == ("warning", 2, 2)
    assert finding.metrics["median_wait_ns"] == pytest.approx(52 * MS, rel=0.05)
    assert {f.part_of for f in analysis.findings if f.id != detector.ID} == {detector.ID}


def test_only_the_first_end_of_a_connection_that_answers_counts() -> None:
    tables = repeated(tables_of_scene("keepalive-timeout-fires"), "closings", 0, 2)
    assert must(detector, changed(tables, "closings", direction=[1, 0], packet=[21, 20])).metrics["connections"] == 1
    server_first = changed(tables, "closings", direction=[1, 0], packet=[18, 20], ping_packet=[0, 19])
    assert told(detector, changed(server_first, "connections", closed_by=[1])) is None
    assert told(detector, changed(tables, "unanswered", connection=[0])) is None  # `peer-unreachable`


def edges(_folder: Path) -> Iterator[Tables]:
    """A connection closed too soon after its PING."""
    tables = tables_of_scene("keepalive-timeout-fires")
    at, trip = tables.closings.ping_time_ns, int(tables.connections.min_rtt_ns[0])
    for after_ns in (2 * trip, 4 * trip):
        yield changed(tables, "closings", time_ns=at + after_ns, peer_time_ns=at + trip)
