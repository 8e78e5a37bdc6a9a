"""`stream-timeout`: streams that a timer ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from detecting import found, the_finding
from judging import changed, played, told
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import stream_timeout as detector
from grpcdiag.analyzer.facts import draining
from grpcdiag.analyzer.facts.failures import failed
from grpcdiag.analyzer.software import timers
from grpcdiag.analyzer.software.implementation import CONNECT, DURATION, SILENCE
from grpcdiag.analyzer.software.known import read_all
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened, scene
from grpcdiag.fixtures.synthetic.scenes_connect import METHOD, cut_streams
from grpcdiag.fixtures.synthetic.scenes_failures import given_up
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = [
    "wild/haproxy-streamtimeout",
    "wild/nginx-readtimeout",
    "wild/route-timeout",
    "wild/stream-idle-timeout",
]
QUIET_ON = [
    "rpc-errors",
    "deadline-exceeded",
    "lab/cancelled",
    "wild/haproxy-backend-down",
    "wild/apache-backend-down",
    "wild/otlp-unavail",
    "wild/nghttpx-backendkill",
    "wild/grpc-js-age-grace",
    "wild/grpc-js-grace",
]


def test_only_calls_that_end_together_end_with_their_connection() -> None:
    """A server that drains a connection closes it when its last call ends, whatever ended that."""
    tables = decode([recorded("wild/grpc-js-age-grace.pcap.zst")])
    rows = failed(tables)
    ends = tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    assert draining.mark_shut_down(tables, rows.rpc, ends).tolist() == [True] * 10
    alone = rows.reset_by == 1  # without the other stream of each connection, which ends with the FIN
    assert not draining.mark_shut_down(tables, rows.rpc[alone], ends[alone]).any()
    late = changed(tables, "connections", closed_time_ns=tables.connections.closed_time_ns + 21 * MS)
    assert not draining.mark_shut_down(late, rows.rpc, ends).any()
    failing = changed(tables, "goaways", code=np.ones_like(tables.goaways.code))
    assert not draining.mark_shut_down(failing, rows.rpc, ends).any()


@pytest.mark.parametrize(
    ("name", "ended", "measures", "time_ms", "setting"),
    [
        ("haproxy-streamtimeout", 6, "silence", 1_002, "timeout server"),
        ("haproxy-504", 6, "silence", 802, "timeout server"),
        ("nginx-readtimeout", 40, "silence", 325, "grpc_read_timeout"),
        ("route-timeout", 10, "duration", 3_021, "route.timeout"),
        ("stream-idle-timeout", 6, "silence", 3_010, "grpc_read_timeout"),
        ("http-write-timeout", 5, "duration", 2_002, "http.Server.WriteTimeout"),
        ("apache-proxy-timeout", 9, "silence", 1_008, "ProxyTimeout"),
    ],
)
def test_recorded_captures(name: str, ended: int, measures: str, time_ms: int, setting: str) -> None:
    """Timers of 1 s (timeout server), 300 ms (grpc_read_timeout), 3 s of age, 3 s (grpc_read_timeout), 2 s of age, 1 s.

    In http-write-timeout, messages are 200 ms apart: the longest silence is as alike as the duration, but streams
    survived it.
    """
    path = recorded(f"wild/{name}.pcap.zst")
    finding = the_finding(detector, [path])
    assert (finding.metrics["ended_rpcs"], finding.metrics["measures"]) == (ended, measures)
    assert int(finding.metrics["time_p50_ns"]) == pytest.approx(time_ms * MS, rel=0.01)
    assert setting in {remedy.knob for remedy in finding.remedies}
    assert analyze([path]).verdict.finding in {"stream-timeout", "proxy-error"}


@pytest.mark.parametrize(
    ("name", "part_of"),
    [("haproxy-504", "proxy-error"), ("nginx-readtimeout", "proxy-error"), ("haproxy-streamtimeout", None)],
)
def test_a_timer_that_shows_as_504_is_a_part_of_these(name: str, part_of: str | None) -> None:
    """A timer that resets its streams has no other finding."""
    findings = {finding.id: finding for finding in analyze([recorded(f"wild/{name}.pcap.zst")]).findings}
    assert findings["stream-timeout"].part_of == part_of
    assert ("proxy-error" in findings) == (part_of is not None)


def play(folder: Path, silences_ms: Sequence[int]) -> str:
    path = folder / "streams.pcap"
    path.write_bytes(write_pcap(scene(cut_streams([ms * MS for ms in silences_ms])).packets))
    return str(path)


@pytest.mark.parametrize(
    ("silences_ms", "fires"),
    [
        ([500, 500], False),  # two are too few
        ([500, 500, 500], True),
        ([500, 512, 524], True),  # within 5 %
        ([500, 514, 528], False),
        ([500, 500, 500, 700, 900, 1_100, 1_300], False),  # most of them differ
        ([500, 500, 500, 700, 900, 1_100], True),
        ([98, 98, 98], False),  # 1 ms of round trip is in it
        ([102, 102, 102], True),
    ],
)
def test_each_limit(tmp_path: Path, silences_ms: Sequence[int], fires: bool) -> None:
    assert bool(found(detector, [play(tmp_path, silences_ms)], same_time=0.05)) == fires


def test_the_time_of_a_few_round_trips_is_no_timer() -> None:
    """An error that is returned at once takes one round trip, which is the same each time."""
    tables = decode([synthetic("stream-timeout-fires").file])
    assert list(detector.detect(tables, detector.Limits()))
    far = changed(tables, "connections", min_rtt_ns=tables.connections.min_rtt_ns * 0 + 180 * MS)
    assert list(detector.detect(far, detector.Limits())) == []


@pytest.mark.parametrize(
    ("durations_ms", "ends_ms", "fires"),
    [
        ([500, 502, 501, 505], [0, 0, 0, 0], False),  # the server stops
        ([500, 500, 500, 500], [0, 0, 0, 0], False),
        ([500, 500, 500, 500], [0, 10, 20, 29], False),  # it stops its streams in the order in which they began
        ([500, 500, 500, 500], [0, 10, 20, 30], True),
        ([500, 505, 510, 520], [0, 20, 40, 59], False),
        ([500, 505, 510, 520], [0, 20, 40, 60], True),
    ],
)
def test_streams_that_end_together_are_no_timer(durations_ms: list[int], ends_ms: list[int], fires: bool) -> None:
    """The ends must spread three times as wide as the times, and by 30 ms."""
    assert (told(detector, end_together(durations_ms, ends_ms)) is not None) == fires


def end_together(durations_ms: list[int], ends_ms: list[int]) -> Tables:
    """Give four streams these durations, which are silences, and these ends."""
    tables = decode([synthetic("stream-timeout-fires").file])
    durations, ends = np.array(durations_ms) * MS, int(tables.rpcs.start_time_ns[0]) + S + np.array(ends_ms) * MS
    silent = changed(tables, "failures", silence_ns=durations)
    return changed(silent, "rpcs", start_time_ns=ends - durations, duration_ns=durations)


@pytest.mark.parametrize(("after_ms", "fires"), [(970, True), (978, True), (980, False), (1_000, False)])
def test_an_end_at_the_deadline_is_no_timer(tmp_path: Path, after_ms: int, fires: bool) -> None:
    """The server resets them with INTERNAL_ERROR; the deadline is 1 s, and counts from 20 ms before on."""
    tables = played(given_up(after_ms * MS, timeout="1S", side="server", code=2), tmp_path)
    assert (told(detector, tables) is not None) == fires


def test_errors_of_the_application_are_no_timer(tmp_path: Path) -> None:
    """NOT_FOUND in trailers after equally long work."""
    conv = opened()
    for _ in range(5):
        conv.unary(METHOD, response=None, server_delay_ns=500 * MS, status=5)
    path = tmp_path / "errors.pcap"
    path.write_bytes(write_pcap(scene(conv).packets))
    assert found(detector, [str(path)]) is None


@pytest.mark.parametrize(("messages", "fires"), [(1, False), (8, True)])
def test_unavailable_in_trailers_counts_when_messages_flowed(tmp_path: Path, messages: int, fires: bool) -> None:
    conv = opened()
    for _ in range(4):
        call = conv.start_rpc(METHOD)
        call.send_message(16, end_stream=True)
        conv.settle()
        for _ in range(messages):
            call.reply_message(16)
            conv.settle()
            conv.advance(800 * MS // messages)
        call.finish(14)
        conv.settle()
    path = tmp_path / "route.pcap"
    path.write_bytes(write_pcap(scene(conv).packets))
    assert bool(found(detector, [str(path)])) == fires


def test_a_default_that_is_near_is_named() -> None:
    assert {r.knob for r in timers.list_timers(SILENCE, 60.02e9, None)} >= {"grpc_read_timeout"}
    assert [r.knob for r in timers.list_timers(DURATION, 15.02e9, None)] == ["route.timeout"]
    assert {r.implementation for r in timers.list_timers(SILENCE, 3e9, "haproxy")} == {"haproxy"}
    assert len(timers.list_timers(DURATION, 3e9, None)) > 3


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        (1, ["client_body_timeout", "send_timeout"]),
        (2, ["grpc_read_timeout", "grpc_send_timeout"]),
        (None, ["grpc_read_timeout", "grpc_send_timeout", "client_body_timeout", "send_timeout"]),
    ],
)
def test_the_error_code_tells_which_side_of_nginx_timed_out(code: int | None, settings: list[str]) -> None:
    assert [r.knob for r in timers.list_timers(SILENCE, 3e9, "nginx", code)] == settings


def test_every_timer_has_a_source_and_a_version() -> None:
    for software, source, timer in timers.list_all():
        assert source
        assert timer.measures in (SILENCE, DURATION, CONNECT)
        assert read_all()[software].tokens  # others would never be shown


def edges(folder: Path) -> Iterator[Tables]:
    for silences_ms in ([500, 500], [500, 500, 500, 700, 900, 1_100, 1_300], [98, 98, 98]):
        yield decode([play(folder, silences_ms)])
    yield end_together([500, 505, 510, 520], [0, 20, 40, 59])
    yield end_together([500, 500, 500, 500], [0, 10, 20, 29])
    tables = decode([synthetic("stream-timeout-fires").file])
    yield changed(tables, "connections", min_rtt_ns=tables.connections.min_rtt_ns * 0 + 180 * MS)
