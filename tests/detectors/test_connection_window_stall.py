"""`connection-window-stall`: a real upload against 65,535 bytes, two streams that share a window, and neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from judging import changed, played
from stalls import check_evidence, firing
from support import recorded, recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.connection_window_stall import ID, Limits, detect
from grpcdiag.analyzer.detectors.stream_window_stall import Limits as StreamLimits
from grpcdiag.analyzer.detectors.stream_window_stall import detect as detect_stream
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/connection-window-stall", "wild/etcd-bigrange", "wild/ghz-clientpause", "wild/grpclib-slowreader2"]
QUIET_ON = ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]


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


def test_severity_follows_the_share() -> None:
    tables = decode([synthetic("connection-window-fires").file])
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(critical_share=share))).severity == "critical"
    assert firing(detect(tables, Limits(critical_share=share + 0.001))).severity == "warning"


SLOW = "wild/grpclib-slowreader2.pcap.zst"
"""The client's application reads 50 kB each 40 ms: 1.25 MB/s; the window carries 262,144 bytes per 31 ms."""


def test_a_reader_that_leaves_the_window_unread_is_slow_though_updates_come_within_a_round_trip() -> None:
    finding = firing(detect(decode([recorded(SLOW)]), Limits()))
    assert finding.metrics["late_credit_share"] < 0.5
    assert finding.metrics["unread_bytes_at_stop"] == pytest.approx(262_144 - 50_000, rel=0.01)
    assert finding.verdict.endswith("client 10.91.4.1 reads slowly, 1.28 MB/s where the window carries 8.57 MB/s.")
    assert finding.remedies[0].implementation == "application"


@pytest.mark.parametrize(("in_flight", "slow"), [(131_000, True), (131_100, False)])
def test_a_reader_may_have_half_of_the_window_unread(in_flight: int, slow: bool) -> None:
    tables = decode([recorded(SLOW)])
    waits = changed(tables, "waits", in_flight_bytes=np.full_like(tables.waits.in_flight_bytes, in_flight))
    assert ("reads slowly" in firing(detect(waits, Limits())).verdict) is slow


@pytest.mark.parametrize(("rate_share", "slow"), [(0.49, True), (0.51, False)])
def test_a_slow_reader_is_slower_than_the_window_carries(rate_share: float, slow: bool) -> None:
    tables = decode([recorded(SLOW)])
    d = tables.directions
    span = int(d.last_message_time_ns[1] - d.first_message_time_ns[1])
    carried = rate_share * 262_144 / int(np.median(tables.waits.rtt_ns)) * span
    messages = changed(tables, "directions", message_bytes=[0, int(carried)])
    assert ("reads slowly" in firing(detect(messages, Limits())).verdict) is slow


def test_a_stream_between_two_messages_may_have_waited_for_the_window_too() -> None:
    """Two uploads write all the time: what one of them did while the window was used up is not known."""
    analysis = analyze([recorded("wild/grpc-js-two-uploads.pcap.zst")])
    total = sum(analysis.budget.values())
    assert analysis.budget["connection_window"] > 0.4 * total
    assert analysis.budget["unexplained"] > 0.3 * total
    assert analysis.budget.get("client", 0) < 0.05 * total


def test_headers_do_not_wait_for_the_window(tmp_path: Path) -> None:
    """The window is used up by one response; the server answers another call with trailers after 50 ms."""
    conv = opened(rtt_ns=10 * MS, auto_window=False)
    large, small = conv.start_rpc(scenes.PUT), conv.start_rpc(scenes.PUT)
    large.send_message(10, end_stream=True)
    conv.settle()
    large.begin_message("server", 80_000, 65_530)
    conv.settle()
    small.send_message(10, end_stream=True)
    conv.settle()
    conv.advance(50 * MS)
    small.trailers_only(5)
    conv.settle()
    tables = played(conv, tmp_path)
    assert [CAUSES[cause] for cause in tables.waits.cause.tolist()] == ["connection_window"]
    assert int(tables.connection_budgets[0, CAUSES.index("server")]) == pytest.approx(50 * MS, rel=0.05)


@pytest.mark.parametrize(("longer", "slow"), [(0, True), (-1, False)])
def test_stream_windows_tell_of_the_reader_if_they_blocked_as_long(longer: int, slow: bool) -> None:
    """The library gives back the connection's window at once, whatever the application has read."""
    tables = decode([recorded("wild/grpc-js-slow-reader.pcap.zst")])
    waits = tables.waits
    mine, streams = (waits.cause == CAUSES.index(name) for name in ("connection_window", "stream_window"))
    durations = waits.duration_ns.copy()
    durations[np.flatnonzero(streams)[0]] += int(durations[mine].sum()) - int(durations[streams].sum()) + longer
    finding = firing(detect(changed(tables, "waits", duration_ns=durations), Limits()))
    assert ("reads slowly" in finding.verdict) is slow
    assert ("The stream windows blocked it at least as long" in finding.explanation) is slow
    assert ("enlarge" in finding.verdict) is not slow


def test_a_window_at_zero_behind_a_tail_probe_is_no_loss() -> None:
    """The client's process was stopped for 1.46 s: its kernel acknowledged the probe, the window stayed shut."""
    analysis = analyze([recorded("wild/ghz-clientpause.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == ID)
    assert finding.lost_ns == pytest.approx(1_459 * MS, rel=0.001)
    assert "read nothing for 1.46 s, or too little" in finding.verdict
    assert analysis.budget.get("loss_recovery", 0) == 0
    assert "loss-recovery" not in {f.id for f in analysis.findings}


def test_what_is_not_known_is_not_written() -> None:
    (finding,) = [
        f for f in detect(decode([recorded("wild/etcd-bigrange.pcap.zst")]), Limits()) if isinstance(f, Finding)
    ]
    assert "-1 bytes" not in finding.explanation + " ".join(item.what for item in finding.evidence)
    assert "55,940 bytes were in flight" in finding.explanation
    unknown = decode([recorded(SLOW)])
    unknown = changed(unknown, "waits", in_flight_bytes=np.full_like(unknown.waits.in_flight_bytes, -1))
    found = firing(detect(unknown, Limits()))
    assert "bytes_in_flight_at_stop" not in found.metrics
    assert "in flight" not in found.explanation + " ".join(item.what for item in found.evidence)


@pytest.mark.parametrize(("stream_window", "both"), [(0, True), (100_000, False)])
def test_two_windows_at_zero_are_both_named(stream_window: int, both: bool) -> None:
    tables = decode([synthetic("connection-window-fires").file])
    tables = changed(tables, "waits", stream_window_bytes=np.full_like(tables.waits.stream_window_bytes, stream_window))
    finding = firing(detect(tables, Limits()))
    assert ("enlarging one alone will not help" in finding.explanation) is both
    assert ("enlarge stream and connection window on server" in finding.verdict) is both
