"""`slow-start-after-idle` on real and synthetic captures, on both sides of each of its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stalls import firing, with_waits
from support import recording, rows, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import initial_congestion_window
from grpcdiag.analyzer.detectors.slow_start_after_idle import ID, Limits, detect
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import DIRECTIONS, Packets, Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_idle_restart import AFTER_ACK, BURST, IDLE, METHOD, MSS, RTT
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, US

FIRES_ON = ["rtt205-go-16000", "rtt205-py-16000", "lab/slow-start-16000-idle-sysctl1-grpc-c++"]
QUIET_ON = ["rtt205-go-14000", "rtt205-go-32000-noslowstart"]

RTT_205 = 205 * MS
FIRING = ["rtt205-go-16000", "rtt205-go-32000", "rtt205-py-16000"]
Judge = Callable[[Conversation], bool]


def finding(analysis: Analysis) -> Finding:
    (found,) = [f for f in analysis.findings if f.id == ID]
    return found


def fires(analysis: Analysis) -> bool:
    return any(f.id == ID for f in analysis.findings)


def check_figures(found: Finding) -> None:
    """Calls 2 to 5 of five lost one round trip each; the first had nothing to fall back from."""
    assert found.metrics["bursts"] == 4
    assert found.lost_ns == pytest.approx(4 * RTT_205, rel=0.05)
    assert found.metrics["lost_per_burst_ns"] == pytest.approx(RTT_205, rel=0.05)
    assert found.metrics["segments_in_first_burst"] in (10, 11)  # 11 where a small frame went ahead of the message
    assert found.metrics["round_trip_ns"] == pytest.approx(RTT_205, rel=0.02)
    assert found.metrics["idle_before_ns"] == pytest.approx(1_000 * MS, rel=0.1)


@pytest.mark.parametrize("name", FIRING)
def test_fires_on_a_long_link(name: str) -> None:
    analysis = analyze(recording(name).files)
    found = finding(analysis)
    check_figures(found)
    assert (found.severity, found.confidence) == ("critical", "high")
    assert found.scope.connections == (0,)
    assert found.scope.methods == ("/lab.v1.Lab/Echo",)
    assert found.share == pytest.approx((found.lost_ns or 0) / sum(analysis.budget.values()))
    assert analysis.budget["congestion_window"] == pytest.approx(5 * RTT_205, rel=0.05)  # the first call's included
    assert "net.ipv4.tcp_slow_start_after_idle=0" in analysis.verdict.text
    assert analysis.verdict.finding == ID
    assert any("tcp_slow_start_after_idle=0" in remedy.knob for remedy in found.remedies)
    assert "Client 10.77.0.1" in found.explanation


@pytest.mark.parametrize("name", ["rtt205-go-16000", "rtt205-go-32000"])
def test_fires_where_the_server_captured(name: str) -> None:
    """From the receiver's side the sender's bursts are seen half a round trip later: less certain, same figures."""
    found = finding(analyze(recording(name, "server").files))
    check_figures(found)
    assert found.confidence == "medium"
    assert "Client 10.77.0.1" in found.explanation


@pytest.mark.parametrize("name", FIRING)
def test_the_evidence_is_in_the_packets(name: str) -> None:
    """Every burst shows: its first data, the stop, the ACK right before the sender resumed, the rest."""
    capture = recording(name)
    evidence = finding(analyze(capture.files)).evidence
    packets = rows(Packets, capture.files)
    place = {number: row for row, number in enumerate(packets.packet.tolist())}
    assert len(evidence) == 3 * 4
    for first, stopped, released, resumed in zip(*[iter(evidence)] * 4, strict=True):
        assert first.packet < stopped.packet < released.packet < resumed.packet
        for item, side, carries_data in (
            (first, "client", True),
            (stopped, "client", True),
            (released, "server", False),
            (resumed, "client", True),
        ):
            row = place[item.packet]
            assert DIRECTIONS[packets.direction[row]] == side
            assert bool(packets.payload_bytes[row]) == carries_data
            assert int(packets.time_ns[row]) == item.time_ns
        assert resumed.time_ns - stopped.time_ns == pytest.approx(RTT_205, rel=0.05)
        assert resumed.time_ns - released.time_ns < MS
        between = packets.direction[place[stopped.packet] + 1 : place[resumed.packet]]
        assert set(between.tolist()) == {1}, "the client sent something while it is said to have waited"
        # the ACK acknowledges bytes of the burst
        begin = int(packets.seq[place[first.packet]])
        assert int(packets.ack[place[released.packet]]) > begin


@pytest.mark.parametrize("name", ["idle-restart-fires", "idle-restart-fires-on-response"])
def test_a_burst_is_ten_segments(name: str) -> None:
    assert finding(analyze([synthetic(name).file])).metrics["segments_in_first_burst"] == 10


# The edges, one step to each side


def warm(request: int = 20_000) -> Conversation:
    conv = opened(rtt_ns=RTT)
    conv.unary(METHOD, request=10_000, response=10)
    conv.unary(METHOD, request=request, response=10)
    return conv


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    def judge(conv: Conversation) -> bool:
        path = tmp_path / "edge.pcap"
        path.write_bytes(write_pcap(Link(rtt_ns=RTT).carry(conv)))
        return fires(analyze([str(path)]))

    return judge


@pytest.mark.parametrize(("idle_ms", "expected"), [(250, False), (290, False), (400, False), (650, True), (5000, True)])
def test_idle_time_against_the_retransmission_timeout(judged: Judge, idle_ms: int, expected: bool) -> None:
    """The timeout is 300 ms here: the round trip of 100 ms and Linux's least variance term of 200 ms.

    tcp_cwnd_restart halves the window once per timeout: some 28 segments before, 14 after 400 ms, 10 after 650 ms.
    """
    conv = warm()
    last = max(write.time_ns for write in conv.writes if write.direction == "client")
    conv.advance_to(last + idle_ms * MS)
    conv.pause_after("client", BURST, AFTER_ACK)
    conv.unary(METHOD, request=20_000, response=10)
    assert judged(conv) is expected


@pytest.mark.parametrize(("pause_ns", "expected"), [(RTT // 2, False), (AFTER_ACK, True), (AFTER_ACK + 60 * MS, False)])
def test_the_rest_must_follow_the_ack(judged: Judge, pause_ns: int, expected: bool) -> None:
    """Before the ACK it cannot have been the window, long after it was the application."""
    conv = warm()
    conv.advance(IDLE)
    conv.pause_after("client", BURST, pause_ns)
    conv.unary(METHOD, request=20_000, response=10)
    assert judged(conv) is expected


@pytest.mark.parametrize(("segments", "expected"), [(4, False), (10, True)])
def test_the_burst_must_fill_the_restarted_window(judged: Judge, segments: int, expected: bool) -> None:
    conv = warm()
    conv.advance(IDLE)
    conv.pause_after("client", segments * MSS, AFTER_ACK)
    conv.unary(METHOD, request=20_000, response=10)
    assert judged(conv) is expected


def test_a_window_never_larger_loses_nothing_to_the_restart(judged: Judge) -> None:
    """The first call of a connection needs two round trips as well: that is the initial window's."""
    conv = opened(rtt_ns=RTT)
    conv.advance(IDLE)
    conv.pause_after("client", BURST, AFTER_ACK)
    conv.unary(METHOD, request=20_000, response=10)
    assert judged(conv) is False


def test_a_capture_that_begins_later_is_not_judged(tmp_path: Path) -> None:
    conv = warm()
    conv.advance(IDLE)
    conv.pause_after("client", BURST, AFTER_ACK)
    conv.unary(METHOD, request=20_000, response=10)
    packets = [p for p in Link(rtt_ns=RTT).carry(conv) if p.time_ns > conv.start_ns + 10 * US]
    path = tmp_path / "late.pcap"
    path.write_bytes(write_pcap(packets[3:]))
    analysis = analyze([str(path)])
    assert not fires(analysis)
    (skipped,) = [s for s in analysis.skipped if s.id == ID]
    assert "begins after the connection" in skipped.reason


def test_severity_follows_the_share() -> None:
    tables = decode(recording("rtt205-go-16000").files)

    def severity(limits: Limits) -> str:
        (answer,) = detect(tables, limits)
        assert isinstance(answer, Finding)
        return answer.severity

    (found,) = detect(tables, Limits())
    assert isinstance(found, Finding)
    share = found.share or 0.0
    assert 0.39 < share < 0.41
    assert severity(Limits(critical_share=share)) == "critical"
    assert severity(Limits(critical_share=share + 0.001)) == "warning"
    assert severity(Limits(warning_share=share, critical_share=1.0)) == "warning"
    assert severity(Limits(warning_share=share + 0.001, critical_share=1.0)) == "info"


SMALL_FRAMES_NS = 40 * MS


def with_small_frames(tables: Tables) -> Tables:
    """The tables as if a PING 40 ms before each later call had restarted the window already."""
    later = tables.waits.idle_before_ns > SMALL_FRAMES_NS
    mss = tables.waits.mss.astype(np.int64)
    return with_waits(
        tables,
        idle_before_ns=np.where(later, SMALL_FRAMES_NS, tables.waits.idle_before_ns),
        window_before_idle_bytes=np.where(later, 10 * mss, tables.waits.window_before_idle_bytes),
    )


def test_small_frames_do_not_end_the_idle_time() -> None:
    """A window that an earlier call had let grow, and that is back at ten segments, is none of a new connection."""
    tables = with_small_frames(decode(recording("rtt205-go-32000").files))
    found = firing(detect(tables, Limits()))
    assert (found.metrics["bursts"], found.confidence) == (4, "medium")
    assert found.lost_ns == pytest.approx(4 * RTT_205, rel=0.05)
    assert found.metrics["idle_before_ns"] == pytest.approx(1_000 * MS + RTT_205, rel=0.02)  # from the last wait's end
    assert "only small frames" in found.explanation
    beginning = firing(initial_congestion_window.detect(tables, initial_congestion_window.Limits()))
    assert beginning.metrics["rpcs_waiting"] == 1


def test_quiet_on_a_sender_that_paces() -> None:
    """BBR keeps its window over idle time: its pauses are short, or come with more in flight."""
    tables = decode(recording("rtt205-go-16000").files)
    waits = tables.waits
    short = with_waits(tables, duration_ns=waits.duration_ns // 8)
    late = with_waits(tables, duration_ns=waits.duration_ns // 2)
    full = with_waits(tables, in_flight_bytes=waits.in_flight_bytes * 2)
    for changed in (short, late, full):
        assert not list(detect(changed, Limits()))


def test_every_host_that_restarts_is_named() -> None:
    tables = decode(recording("rtt205-go-16000").files)
    direction = tables.waits.direction.copy()
    direction[-1] = 1
    found = firing(detect(with_waits(tables, direction=direction), Limits()))
    assert "client 10.77.0.1 and server 10.77.0.2 restart their TCP congestion window" in found.verdict
