"""`idle-connection-cut`: an idle connection was dead when it was used again; never a busy one, or a clean close."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from detecting import found, the_finding
from judging import changed, must, repeated, tables_of_scene, told
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import idle_connection_cut as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scenes_dead import reset_watch
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = [
    "wild/grpc-js-watch-forgotten",
    "wild/grpcio-watch-forgotten",
    "wild/idle-drop",
    "wild/idle-finrace",
    "wild/idle-rst",
]
QUIET_ON = [
    "wild/grpcio-watch-aborted",
    "wild/half-open-deadline",
    "wild/half-open-keepalive",
    "wild/half-open-nodeadline",
    "wild/idle-goaway",
    "wild/rolling-restart-ok",
    "wild/rst-thirdparty",
    "wild/server-kill",
    "wild/watch-ok",
]


def test_a_forgotten_connection_is_named() -> None:
    """A device forgot the connection during 14 s of silence."""
    analysis = analyze([recorded("wild/idle-drop.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", "medium")  # the host may be gone as well
    assert finding.metrics["silence_ns"] == pytest.approx(14.0 * S, rel=0.01)
    assert analysis.verdict.finding == detector.ID
    assert finding.lost_ns == pytest.approx(3.0 * S, rel=0.001)  # the deadline of the call
    assert "The 4.54 s after its deadline count neither as lost nor as RPC time here." in finding.explanation
    for text in (finding.title, finding.verdict):
        assert text.startswith("1 idle connection was cut, or server 10.77.28.2 was gone, after a silence of 14.0 s")


def test_a_server_that_had_stopped_was_not_cut_off() -> None:
    """It was killed without a FIN on the way, and refused the next connection."""
    tables = decode([recorded("wild/tonic-rebooted.pcap.zst")])
    finding = must(detector, tables)
    assert finding.verdict.endswith("the server refused the next connection, so look for why it had stopped.")
    assert "refused a new connection in packet 119: nothing listened there" in finding.explanation
    assert len(finding.remedies) == 1
    setups, minute = tables.setups, detector.Limits().refused_ns
    for other in (
        changed(tables, "setups", syn_ack_packet=setups.syn_ack_packet + 1),
        changed(tables, "setups", syns=np.zeros_like(setups.syns)),  # begun before the capture
        changed(tables, "connections", closed_time_ns=tables.connections.closed_time_ns - minute),
    ):
        assert must(detector, other).verdict.endswith("keepalive PINGs must come more often than that.")


def test_a_server_that_refuses_the_next_connection_did_not_close_by_a_timer() -> None:
    """It was killed in a pause of 46 ms between calls."""
    tables = decode([recorded("wild/etcd-client-killed.pcap.zst")])
    assert told(detector, tables) is None
    answers = changed(tables, "setups", syn_ack_packet=tables.setups.syn_ack_packet + 1)
    assert must(detector, answers).metrics["fin_connections"] == 1


def test_a_keepalive_that_notices_makes_it_harmless() -> None:
    """The PING got no answer, and the next call took a new connection, which the server answered."""
    finding = the_finding(detector, [recorded("wild/idle-drop-keepalive-ok.pcap.zst")])
    assert (finding.severity, finding.confidence, finding.metrics["affected_rpcs"]) == ("info", "medium", 0)
    assert "something between may have forgotten this connection" in finding.explanation
    assert "gone" not in finding.title + finding.verdict


def test_a_reset_by_a_device_is_told_from_the_servers() -> None:
    """The RST has a TTL of 250, the server's packets 61."""
    finding = the_finding(detector, [recorded("wild/idle-rst.pcap.zst")])
    assert finding.metrics["rst_connections"] == 1
    assert "with a TTL of 250; earlier packets of that host had a TTL of 61" in finding.explanation
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


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_only_the_first_end_after_a_silence_without_calls_counts(how: str) -> None:
    tables = tables_of_scene(f"idle-connection-cut-fires-{how}")
    twice = repeated(tables, "closings", 0, 2)
    twice = changed(twice, "closings", direction=[0, 1], open_rpcs=[0, 1])
    later, before = (changed(twice, "closings", packet=[packet, 18]) for packet in (19, 16))
    assert must(detector, later).metrics["connections"] == 1
    assert must(detector, before).metrics["connections"] == 1, "the other one's ACK shows that it came first"
    assert told(detector, changed(before, "connections", closed_by=[0])) is None
    closings, starts = tables.closings, tables.rpcs.start_time_ns.copy()
    begun = int(closings.peer_time_ns[0]) - int(closings.peer_idle_ns[0]) // 2
    for start, fires in ((begun, True), (begun - 1, False)):  # the last call is open at the end
        starts[-1] = start
        durations = [*tables.rpcs.duration_ns[:-1], closings.time_ns[0] - start]
        old = changed(tables, "rpcs", start_time_ns=starts, duration_ns=durations)
        assert (told(detector, old) is not None) == fires


@pytest.mark.parametrize(("before_ns", "fires"), [(1_000 * MS, True), (1_000 * MS - 1, False)])
def test_a_silence_begins_with_the_last_bytes_of_either_side(before_ns: int, fires: bool) -> None:
    tables = tables_of_scene("idle-connection-cut-fires-rst")
    own = tables.closings.peer_time_ns - before_ns
    assert (told(detector, changed(tables, "closings", own_time_ns=own)) is not None) == fires


def test_a_watch_that_was_silent_for_an_hour(tmp_path: Path) -> None:
    """Recorded from the beginning, and from the middle of the silence on, where no silence is known."""
    packets = reset_watch(3_600 * S, ack=False).packets
    whole, late = tmp_path / "whole.pcap", tmp_path / "late.pcap"
    whole.write_bytes(write_pcap(packets))
    late.write_bytes(write_pcap(packets[-2:]))
    finding = the_finding(detector, [str(whole)])
    assert finding.metrics["silence_ns"] == pytest.approx(3_600 * S, rel=0.001)
    assert found(detector, [str(late)]) is None


def test_a_forgotten_connection_with_a_watch() -> None:
    """Its client learns it after 4 s of silence, from the RST that answers its message."""
    analysis = analyze([recorded("wild/grpcio-watch-forgotten.pcap.zst")])
    assert analysis.verdict.finding == detector.ID
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert 3_700 * MS < int(finding.metrics["silence_ns"]) < 4_000 * MS
    assert "Nothing was sent on connection 0 for 3.86 s" in finding.explanation
    assert "its sender did not know the connection any more" in finding.explanation


@pytest.mark.parametrize(("before_ns", "fires"), [(0, True), (-1, False), (20 * MS - 1, True), (20 * MS, False)])
def test_a_request_crosses_a_fin_within_one_way_to_the_server(before_ns: int, fires: bool) -> None:
    """From the capture point to the server and back it takes 20 ms."""
    tables = tables_of_scene("idle-connection-cut-fires-fin")
    crossed = changed(tables, "closings", peer_time_ns=tables.closings.time_ns - before_ns)
    assert (told(detector, crossed) is not None) == fires


def test_a_connection_rests_for_three_round_trips_before_a_fin() -> None:
    tables = tables_of_scene("idle-connection-cut-fires-fin")
    rest, end = 3 * int(tables.connections.min_rtt_ns[0]), tables.closings.time_ns
    for quiet_ns, fires in ((rest, True), (rest - 1, False)):
        assert (told(detector, changed(tables, "closings", own_time_ns=end - quiet_ns)) is not None) == fires
        assert (told(detector, changed(tables, "closings", peer_idle_ns=[quiet_ns])) is not None) == fires
    assert told(detector, changed(tables, "closings", own_packet=[0])) is None
    assert told(detector, changed(tables, "closings", direction=[0])) is None


def test_each_cut_connection_counts_its_own_calls() -> None:
    """Two connections without an answer: on one a call waits, on the other none."""
    tables = tables_of_scene("idle-connection-cut-fires-no-answer")
    twice = repeated(repeated(tables, "unanswered", 0, 2), "connections", 0, 2)
    twice = replace(twice, setups=repeated(tables, "setups", 0, 2).setups)
    twice = replace(twice, connection_budgets=np.repeat(tables.connection_budgets, 2, axis=0))
    twice = replace(twice, directions=repeated(tables, "directions", 0, 4).directions)
    both = must(detector, changed(twice, "unanswered", connection=[0, 1]))
    assert (both.metrics["connections"], both.metrics["affected_rpcs"], both.confidence) == (2, 1, "medium")
    assert both.title.startswith("2 idle connections were cut, or server 10.0.0.2 was gone, after a silence of")
    answered = changed(twice, "setups", syn_ack_time_ns=[0, int(tables.unanswered.first_time_ns[0]) + 1])
    lives = must(detector, changed(answered, "unanswered", connection=[0, 1]))
    assert (lives.confidence, lives.severity) == ("medium", "warning")
    assert lives.title.startswith("2 idle connections were cut, or packets were lost until the capture's end, after")
    long = tables.unanswered.first_time_ns[0] + 5 * S
    lives = must(detector, changed(answered, "unanswered", connection=[0, 1], last_time_ns=[long - 1, long]))
    assert lives.confidence == "high"
    assert lives.title.startswith("2 idle connections were cut after a silence of")


def edges(_folder: Path) -> Iterator[Tables]:
    """A server that refuses a connection later, and a FIN after a rest that is shorter."""
    stopped = decode([recorded("wild/tonic-rebooted.pcap.zst")])
    for before_ns in (S, 100 * S):
        yield changed(stopped, "connections", closed_time_ns=stopped.connections.closed_time_ns - before_ns)
    tables = tables_of_scene("idle-connection-cut-fires-fin")
    rest = 2 * int(tables.connections.min_rtt_ns[0])
    yield changed(tables, "closings", own_time_ns=tables.closings.time_ns - rest)
