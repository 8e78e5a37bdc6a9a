"""`network-queueing`: packets wait in a queue of the network that is never empty."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from detecting import found, severity, the_finding
from judging import changed, must
from support import recorded, rows, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import network_queueing as detector
from grpcdiag.analyzer.detectors import receive_window_stall, stream_window_stall
from grpcdiag.analyzer.tables import Packets
from grpcdiag.fixtures.synthetic import scenes_queues as scenes
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/bloat-same", "wild/bloat-other", "lab/network-queueing"]
QUIET_ON = ["wild/bloat-none-control", "wild/gc-server", "lab/network-queueing-control", "impl-go", "rtt205-go-16000"]

FIRES = "network-queue-fires"


def test_the_same_packets_with_other_timestamps_are_a_slow_server() -> None:
    queued, slow = (analyze([synthetic(name).file]) for name in (FIRES, "network-queue-quiet-slow-server"))
    assert sum(queued.budget.values()) == sum(slow.budget.values())
    assert queued.budget["network_queue"] > 0.8 * slow.budget["server"] > 0
    assert queued.budget["server"] < 0.2 * slow.budget["server"]
    assert "network_queue" not in slow.budget


def test_figures_of_a_queue_of_40_ms() -> None:
    files = [synthetic(FIRES).file]
    finding = the_finding(detector, files)
    assert finding.metrics["queue_p50_ns"] == pytest.approx(scenes.QUEUED, abs=2 * MS)
    assert finding.metrics["queue_max_ns"] == pytest.approx(scenes.QUEUED, abs=2 * MS)
    assert finding.metrics["queue_stood_ns"] == pytest.approx(100 * scenes.STEP + scenes.QUEUED, rel=0.05)
    assert finding.metrics["direction"] == "server"


def test_packets_show_how_the_queue_grew() -> None:
    """Arrival less the sender's clock, in the packets named: it grew over three rows, from the first to the longest."""
    files = [recorded("wild/bloat-same.pcap.zst")]
    evidence, packets = the_finding(detector, files).evidence, rows(Packets, files)
    at = np.searchsorted(packets.packet, [item.packet for item in evidence])
    late = packets.time_ns[at] - packets.timestamp[at].astype(np.int64) * MS  # ticks of 1 ms
    grown = ((late - late[0]) / MS).round()
    assert [item.what.startswith("the longest queue begins: ") for item in evidence] == [True, False, False, False]
    told = [float(re.search(r"took ([\d.]+) ms", item.what)[1]) for item in evidence]
    assert told[0] < 10
    assert np.abs(grown - (np.array(told) - told[0])).max() <= 2


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        (FIRES, "large messages on the same connection filled it"),
        ("network-queue-other-connection", "its large messages filled the link that connection 0 shares"),
        ("network-queue-unseen", "traffic that the capture does not show filled it"),
    ],
)
def test_what_filled_the_queue(capture: str, words: str) -> None:
    finding = the_finding(detector, [synthetic(capture).file])
    assert words in finding.explanation
    assert ("find what else" in finding.verdict) == ("does not show" in words)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, "critical"),
        ({"critical_share": 0.99}, "warning"),
        ({"least_share": 0.99}, None),
    ],
)
def test_severity_follows_the_share(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(FIRES).file], **limits) == expected


def test_a_filler_has_most_of_the_bytes() -> None:
    files = [synthetic("network-queue-other-connection").file]
    assert "together they filled it" in the_finding(detector, files, filler_share=0.999).explanation
    assert "too few to say" in the_finding(detector, files, filled_bytes=1_000_000).explanation
    assert "does not show filled it" in the_finding(detector, files, segment_bytes=1_000_000).explanation


def test_a_queue_behind_the_capture_point_is_measured_by_acks() -> None:
    """Recorded at the server, whose windows are used up because its bytes are in the queue: the link is full."""
    files = [recorded("wild/bloat-other-server.pcap.zst")]
    queues = decode(files).queues
    assert set(queues.behind.tolist()) == set(queues.direction.tolist()) == {1}
    finding = the_finding(detector, files)
    assert (finding.severity, finding.confidence, finding.lost_ns) == ("info", "medium", None)
    assert 400 * MS < int(finding.metrics["queue_p50_ns"]) < 620 * MS
    assert "RPCs lost" not in finding.explanation + finding.verdict
    assert found(stream_window_stall, files) is None
    assert found(receive_window_stall, files) is None
    assert "receive_window" not in analyze(files).budget
    assert found(detector, files, least_share=2.0) is None


def test_an_upload_delays_the_calls_beside_it() -> None:
    """Recorded at the client, whose requests wait behind an upload of 700 kB: the server is not slow."""
    files = [recorded("lab/network-queueing-upload.pcap.gz")]
    finding = the_finding(detector, files)
    assert (finding.metrics["direction"], finding.confidence) == ("client", "medium")
    assert "large messages on the same connection filled it" in finding.explanation
    budget = analyze(files).budget
    assert budget["server"] < 0.1 * budget["network_queue"]


@pytest.mark.parametrize(("rtt_ms", "offered"), [(69, False), (71, True)])
def test_a_window_of_a_connection_cannot_be_below_65_535(rtt_ms: int, offered: bool) -> None:
    """403,851 bytes in 435 ms: 65,535 bytes are those of 70.6 ms."""
    tables = decode([synthetic(FIRES).file])
    finding = must(detector, changed(tables, "connections", min_rtt_ns=[rtt_ms * MS]))
    assert any("a window of about" in remedy.note for remedy in finding.remedies) == offered


@pytest.mark.parametrize(
    ("silent_ms", "together_ms", "longest_ms", "held"),
    [(100, 25, 200, True), (99, 25, 198, False), (100, 24, 200, False), (100, 25, 201, False)],
)
def test_a_path_that_holds_all_packets_lets_them_go_together(
    silent_ms: int, together_ms: int, longest_ms: int, held: bool
) -> None:
    tables = decode([recorded("wild/grpcio-path-held.pcap.zst")])
    times = {"silent_ns": silent_ms, "together_ns": together_ms, "longest_ns": longest_ms}
    rows = {name: [ms * MS] * len(tables.queues.connection) for name, ms in times.items()}
    finding = must(detector, changed(tables, "queues", **rows))
    assert ("held on the way" in finding.title) == ("find what stopped the path" in finding.verdict) == held
    assert (len(finding.remedies) == 1 and "hypervisors" in finding.remedies[0].knob) == held


def test_a_standstill_has_a_begin_and_an_end() -> None:
    """The way back stood still twice for 400 ms."""
    finding = the_finding(detector, [recorded("wild/grpcio-path-held.pcap.zst")])
    since, until = (float(word) for word in re.search(r"from ([\d.]+) s to ([\d.]+) s", finding.explanation).groups())
    assert until - since == pytest.approx(0.4, abs=0.02)
    assert "2 times" in finding.explanation
    assert finding.metrics["held_ns"] == pytest.approx(400 * MS, rel=0.05)
