"""`receive-window-stall`: a full TCP window against one with room for a segment, and against a slow writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from stalls import check_evidence, firing, found, with_waits, written
from support import RECORDED, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.receive_window_stall import Limits, detect
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.scene import scene
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/receive-window-stall"]
QUIET_ON = ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]

FIRES = "receive-window-fires"


def test_a_full_window_waits_for_the_ack() -> None:
    file = synthetic(FIRES).file
    finding = firing(detect(decode([file]), Limits()))
    assert finding.lost_ns == pytest.approx(scenes.RTT, rel=0.01)
    assert finding.metrics["bytes_in_flight_at_stop"] == scenes.FULL
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert "net.ipv4.tcp_rmem on server 10.0.0.2" in finding.verdict
    check_evidence(finding, [file], "client", 99 * MS)


@pytest.mark.parametrize(
    ("size", "pause_ns", "expected"),
    [
        (scenes.FULL, scenes.AFTER_ACK, True),
        (scenes.FULL - scenes.MSS, scenes.AFTER_ACK, False),  # room for one segment more
        (scenes.FULL, scenes.AFTER_ACK + 60 * MS, False),  # long after the ACK: the application
        (scenes.FULL, scenes.RTT // 2, False),  # before any ACK
    ],
)
def test_the_window_must_be_full_and_the_ack_the_release(
    tmp_path: Path, size: int, pause_ns: int, expected: bool
) -> None:
    file = written(scene(scenes.paused(size, pause_ns)), tmp_path)
    assert (found(detect(decode([file]), Limits())) is not None) is expected


@pytest.mark.parametrize(("longer", "slow"), [(1, False), (2, True)])
def test_a_wait_of_several_round_trips_names_the_reader(longer: int, slow: bool) -> None:
    tables = decode([synthetic(FIRES).file])
    stretched = with_waits(tables, duration_ns=tables.waits.duration_ns * longer)
    assert ("reads slowly" in firing(detect(stretched, Limits())).verdict) is slow


def test_severity_follows_the_share() -> None:
    tables = decode([synthetic(FIRES).file])
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(critical_share=share))).severity == "critical"
    assert firing(detect(tables, Limits(critical_share=share + 0.001))).severity == "warning"


@pytest.mark.parametrize(
    ("name", "shut_ms", "unknown_ms"),
    [("grpcio-window-shut", 3_512, 32), ("grpcio-window-reopened", 1_674, 1_806), ("h2-window-shut", 1_938, 0)],
)
def test_a_window_that_stays_closed_is_charged_as_long_as_packets_show_it(
    name: str, shut_ms: int, unknown_ms: int
) -> None:
    analysis = analyze([str(RECORDED / "wild" / f"{name}.pcap.zst")])
    finding = next(one for one in analysis.findings if one.id == "receive-window-stall")
    assert finding.lost_ns == analysis.budget["receive_window"] == pytest.approx(shut_ms * MS, rel=0.001)
    assert analysis.budget.get("unexplained", 0) == pytest.approx(unknown_ms * MS, abs=1 * MS)
    assert finding.metrics["blocked_rpcs"] == 1
