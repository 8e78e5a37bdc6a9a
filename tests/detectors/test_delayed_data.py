"""`delayed-data`: messages that the transport or the client held back, and those that nobody did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from stalls import check_evidence, firing, found, relabelled, with_waits, written
from support import recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.delayed_data import ID, Limits, detect
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.scene import scene
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["rtt205-go-14000", "rtt205-go-16000", "rtt205-py-16000", "lab/delayed-data"]
QUIET_ON = ["impl-cpp", "impl-go", "impl-java", "impl-js", "impl-py", "impl-tonic"]

LATE = "delayed-data-fires"


@pytest.mark.parametrize(
    ("name", "messages", "cause"),
    [
        ("rtt205-go-16000", 5, "slow-start-after-idle"),
        ("rtt205-py-16000", 5, "slow-start-after-idle"),
        ("rtt205-go-14000", 1, "initial-congestion-window"),
        ("h2-flow-control-go-64k", 2, "connection-window-stall"),
    ],
)
def test_held_inside_messages_points_to_the_cause(name: str, messages: int, cause: str) -> None:
    """The time is the cause's: here it is information without time of its own."""
    capture = recording(name)
    analysis = analyze(capture.files)
    finding = next(f for f in analysis.findings if f.id == ID)
    assert (finding.severity, finding.lost_ns, finding.share) == ("info", None, None)
    assert finding.metrics["messages_held"] == messages
    assert finding.metrics["calls_held_by_client"] == 0
    assert cause in finding.explanation
    assert f"grpcdiag explain {cause}" in [remedy.knob for remedy in finding.remedies]
    assert cause in {f.id for f in analysis.findings}
    check_evidence(finding, capture.files, "client", 10 * MS)


def test_calls_held_by_the_client_lose_their_time() -> None:
    finding = firing(detect(decode([synthetic(LATE).file]), Limits()))
    assert finding.lost_ns == pytest.approx(5 * 50 * MS, rel=0.001)
    assert (finding.severity, finding.confidence) == ("warning", "medium")
    assert (finding.metrics["calls_held_by_client"], finding.metrics["messages_held"]) == (5, 0)
    assert finding.evidence[1].time_ns - finding.evidence[0].time_ns == pytest.approx(50 * MS, rel=0.001)
    assert "on purpose" in finding.explanation


@pytest.mark.parametrize(("pause_ns", "expected"), [(980_000, False), (1_020_000, True)])
def test_a_delay_counts_from_a_millisecond(tmp_path: Path, pause_ns: int, expected: bool) -> None:
    file = written(scene(scenes.late(pause_ns)), tmp_path)
    assert (found(detect(decode([file]), Limits())) is not None) is expected


def test_a_delay_counts_from_half_a_round_trip() -> None:
    tables = decode([synthetic(LATE).file])

    def with_round_trip(rtt_ns: int) -> bool:
        slow = np.full_like(tables.connections.min_rtt_ns, rtt_ns)
        return (
            found(detect(replace(tables, connections=replace(tables.connections, min_rtt_ns=slow)), Limits()))
            is not None
        )

    assert with_round_trip(99 * MS)
    assert not with_round_trip(101 * MS)


def test_what_frees_the_client_of_blame() -> None:
    """Losses on the connection, a wait of another stream meanwhile, too few calls, the server's direction."""
    tables = decode([synthetic(LATE).file])
    connections, delays = tables.connections, tables.delays
    lossy = replace(connections, retransmitted_packets=np.ones_like(connections.retransmitted_packets))
    assert found(detect(replace(tables, connections=lossy), Limits())) is None
    assert found(detect(tables, Limits(least_calls=5))) is not None
    assert found(detect(tables, Limits(least_calls=6))) is None
    server = replace(delays, direction=np.ones_like(delays.direction))
    assert found(detect(replace(tables, delays=server), Limits())) is None
    borrowed = decode([synthetic("delayed-ack-fires").file]).waits
    borrowed = replace(borrowed, cause=np.full_like(borrowed.cause, CAUSES.index("unexplained")))
    during = replace(borrowed, start_time_ns=delays.headers_time_ns + 10 * MS)
    assert found(detect(replace(tables, waits=during), Limits())) is None
    ends = delays.headers_time_ns + delays.duration_ns
    after = replace(borrowed, start_time_ns=ends, duration_ns=np.full_like(ends, MS))
    assert found(detect(replace(tables, waits=after), Limits())) is not None


def test_severity_follows_the_share_held_by_clients() -> None:
    tables = decode([synthetic(LATE).file])
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(warning_share=share))).severity == "warning"
    assert firing(detect(tables, Limits(warning_share=share + 0.001))).severity == "info"
    assert found(detect(tables, Limits(least_share=share + 0.001))) is None


def test_a_window_that_a_loss_reduced_is_the_losss() -> None:
    tables = decode([synthetic("initial-window-fires").file])
    finding = firing(detect(with_waits(tables, after_loss=np.ones_like(tables.waits.after_loss)), Limits()))
    assert "see loss-recovery" in finding.verdict
    assert "see initial-congestion-window" in firing(detect(tables, Limits())).verdict


def test_limits_of_waits_inside_messages() -> None:
    tables = decode([synthetic("initial-window-fires").file])
    duration = tables.waits.duration_ns
    for factor, expected in ((0.4, False), (0.6, True), (1.9, True), (2.1, False)):
        changed = with_waits(tables, duration_ns=(duration * factor).astype(np.int64))
        assert (found(detect(changed, Limits())) is not None) is expected, factor
    assert found(detect(relabelled(tables, "congestion_window", "unexplained"), Limits())) is None


def edges(folder: Path) -> Iterator[Tables]:
    """A short pause, and few and many retransmissions among the packets."""
    yield decode([written(scene(scenes.late(980_000)), folder)])
    tables = decode([synthetic(LATE).file])
    c = tables.connections
    for packets in (100, 10_000):
        lossy = replace(c, retransmitted_packets=np.ones_like(c.retransmitted_packets))
        yield replace(tables, connections=replace(lossy, packets_client=np.full_like(c.packets_client, packets)))
