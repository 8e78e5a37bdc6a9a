"""`shared-connection`: fires where callers wait for a connection that their client leaves idle, nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detecting import severity, the_finding
from judging import must, played
from msgspec.structs import replace
from process_tables import tables as recorded_threads
from support import recorded, recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import client_idle_gap
from grpcdiag.analyzer.detectors import shared_connection as detector
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scenes_turns import callers, in_step, take_turn
from grpcdiag.fixtures.synthetic.words import MS, US

FIRES_ON = ["lab/shared-connection-single-8-grpc-go", "wild/ghz-lo-c50", "field-cases/roguedb-threads-4"]
QUIET_ON = ["any", "ydb-unary-single-inflight1"]

FIRING = ["ydb-stream-single-inflight8", "ydb-unary-single-inflight8"]
# measured by a script of its own: time from first to last message, share of it in gaps, number of gaps
MEASURED = {"ydb-unary-single-inflight8": (0.96, 0.25, 900), "ydb-stream-single-inflight8": (0.32, 0.33, 1050)}


@pytest.mark.parametrize("name", FIRING)
def test_fires_where_eight_callers_share(name: str) -> None:
    capture = recording(name)
    finding = the_finding(detector, capture.files)
    seconds, share, gaps = MEASURED[name]
    assert finding.severity == "warning"
    assert finding.metrics["callers"] == 8
    assert finding.metrics["active_ns"] == pytest.approx(seconds * 1e9, rel=0.03)
    assert finding.metrics["client_held_share"] == pytest.approx(share, abs=0.02)
    assert finding.metrics["gaps"] == pytest.approx(gaps, rel=0.02)
    assert 6 < float(finding.metrics["requests_per_round"]) < 10
    assert finding.lost_ns == finding.metrics["client_held_ns"]
    assert "GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL" in finding.remedies[0].knob
    assert "8 callers share one connection of client" in finding.verdict
    assert finding.confidence == "medium"  # a client without processor time left looks the same
    assert "processor time" in finding.verdict
    assert "times as high" not in finding.explanation


def test_the_median_gap_is_the_measured_one() -> None:
    gap = the_finding(detector, recording("ydb-unary-single-inflight8").files).metrics["gap_p50_ns"]
    assert int(gap) == pytest.approx(223_000, rel=0.1)  # measured; read off classes of lengths here


def test_four_callers_are_for_information() -> None:
    finding = the_finding(detector, recording("roguedb-threads-4").files)
    assert (finding.severity, finding.lost_ns, finding.metrics["callers"]) == ("info", None, 4)


def test_synthetic_captures() -> None:
    finding = the_finding(detector, [synthetic("shared-connection-fires").file])
    assert finding.metrics["gaps"] == 102
    assert finding.lost_ns == pytest.approx(102 * 300_000, rel=0.02)  # the silence after each round
    assert finding.metrics["requests_per_burst"] == 8


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, "critical"),
        ({"callers": 8}, "critical"),
        ({"callers": 9}, "info"),
        ({"gaps": 102}, "critical"),
        ({"gaps": 103}, None),
        ({"held_share": 0.70}, "critical"),
        ({"held_share": 0.80}, None),
        ({"critical_share": 0.80}, "warning"),
        ({"callers_per_round": 0.99}, "critical"),
        ({"callers_per_round": 1.05}, None),
        ({"most_paused": 0.0}, None),
        ({"request_ns": 36_000}, "critical"),  # 300 µs for 8 requests, and what the answers' packets take
        ({"request_ns": 46_000}, "info"),
        ({"gap_ns": 310_000}, "critical"),
        ({"gap_ns": 290_000}, "info"),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic("shared-connection-fires").file], **limits) == expected


def test_a_client_without_processor_time_is_not_accused_with_certainty() -> None:
    """Fifty callers on two busy cores: with ten and with fifty connections the rate was 0.93 and 0.77 times as high."""
    files = [recorded("wild/ghz-lo-c50.pcap.zst")]
    finding = the_finding(detector, files)
    assert (finding.severity, finding.confidence, finding.at_least) == ("warning", "medium", True)
    assert "without processor time left looks the same" in finding.explanation


def test_four_callers_are_not_left_out() -> None:
    """Four channels gave 1.53 times the throughput, so it may not be said that nothing was found."""
    finding = the_finding(detector, [recorded("field-cases/roguedb-threads-4.pcap.zst")])
    assert (finding.severity, finding.confidence) == ("info", "medium")


@pytest.mark.parametrize(("dispersion", "expected"), [(0.15, "critical"), (0.25, "info")])
def test_callers_with_timers_are_for_information(dispersion: float, expected: str) -> None:
    """Eight callers of grpc-go, each with a timer of 4 ms: the middle half of the intervals spans 0.6 ms."""
    files = [recorded("wild/go-paced-callers.pcap.zst")]
    finding = the_finding(detector, files, dispersion=dispersion)
    assert (finding.severity, finding.confidence) == (expected, "medium")
    assert ("at regular intervals" in finding.explanation) == (expected == "info")
    assert severity(client_idle_gap, files) == "info"


def test_few_callers_on_each_of_many_connections_are_no_sharing() -> None:
    tables = decode([synthetic("client-idle-gap-fires-on-two").file])
    assert list(detector.detect(tables, detector.Limits(callers=9))) == []


def test_a_connection_with_hardly_any_messages_beside_it_takes_no_work_off_it() -> None:
    tables = decode([synthetic("client-idle-gap-fires-on-two").file])
    messages = tables.directions.messages.copy()
    messages[2:] = messages[2:] // 20
    small = replace(tables, directions=replace(tables.directions, messages=messages))
    (finding,) = detector.detect(small, detector.Limits())
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.scope.connections) == ("critical", (0, 1))


def test_a_long_pause_in_a_run_changes_nothing(tmp_path: Path) -> None:
    """Two runs of the same callers, a minute apart: timers would pause at each turn, not once."""
    conv, calls = callers(8)
    for turn in range(120):
        conv.advance((1 + turn % 3) * 150 * US if turn != 60 else 60_000 * MS)
        take_turn(conv, calls)
    finding = must(detector, played(conv, tmp_path))
    assert finding.severity == "critical"
    assert finding.metrics["gaps"] == 119


def test_timers_that_fire_together_are_for_information(tmp_path: Path) -> None:
    tables = played(in_step(8, 5 * MS), tmp_path)
    finding = must(detector, tables)
    assert (finding.severity, finding.lost_ns) == ("info", None)
    assert "a timer's" in finding.explanation
    assert must(client_idle_gap, tables).severity == "info"


def test_silence_that_connections_of_their_own_would_not_save_is_for_information() -> None:
    finding = the_finding(detector, [synthetic("shared-connection-fires").file], request_ns=50_000)
    assert (finding.severity, finding.lost_ns) == ("info", None)
    assert "a separate packet" in finding.explanation


def test_a_capture_far_from_the_client_is_not_judged() -> None:
    """Gaps as long as the jitter of the way to the client could be the network's."""
    tables = decode([synthetic("shared-connection-fires").file])

    def seen_from(near_client_rtt_ns: int) -> list[object]:
        far = replace(tables.connections, near_client_rtt_ns=np.array([near_client_rtt_ns]))
        return list(detector.detect(replace(tables, connections=far), detector.Limits()))

    (near,), (far,) = seen_from(290_000), seen_from(310_000)
    assert isinstance(near, Finding)
    assert isinstance(far, Skipped)
    assert near.confidence == "low"
    assert "capture at the client" in far.reason


def edges(_folder: Path) -> Iterator[Tables]:
    """A client whose threads waited for a processor in most of its idle time, and in less of it."""
    for waiting in (10, 90):
        yield recorded_threads(runnable=waiting, running=100 - waiting)
