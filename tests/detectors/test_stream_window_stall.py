"""`stream-window-stall`: small window against slow reader, and neither."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from stalls import check_evidence, firing, found, relabelled, with_waits, written
from support import recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.stream_window_stall import Limits, detect
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.scene import scene
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/stream-window-stall"]
QUIET_ON = ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]

PROMPT, SLOW = "stream-window-fires", "stream-window-slow-reader"


def test_a_small_window_costs_a_round_trip_each_time() -> None:
    file = synthetic(PROMPT).file
    finding = firing(detect(decode([file]), Limits()))
    assert finding.lost_ns == pytest.approx(2 * scenes.RTT, rel=0.01)
    assert (finding.severity, finding.confidence, finding.scope.methods) == ("critical", "high", (scenes.PUT,))
    assert finding.metrics["waits"] == finding.metrics["waits_of_clients"] == 2
    assert finding.metrics["late_credit_share"] == 0
    assert "client 10.0.0.1 stopped" in finding.explanation
    assert "too small" in finding.explanation
    assert "enlarge the window on server 10.0.0.2" in finding.verdict
    check_evidence(finding, [file], "client", 99 * MS)


def test_a_late_credit_names_the_reader() -> None:
    finding = firing(detect(decode([synthetic(SLOW).file]), Limits()))
    assert finding.lost_ns == pytest.approx(500 * MS, rel=0.01)
    assert "server 10.0.0.2 reads slowly" in finding.verdict
    assert finding.remedies[0].implementation == "application"


@pytest.mark.parametrize(("reads_after_ms", "slow"), [(45, False), (60, True)])
def test_credit_is_late_after_one_and_a_half_round_trips(tmp_path: Path, reads_after_ms: int, slow: bool) -> None:
    """The limit is 1.5 round trips of 100 ms and 1 ms: credit 51 ms after the round trip is late."""
    file = written(scene(scenes.read_late(reads_after_ms * MS)), tmp_path)
    finding = firing(detect(decode([file]), Limits()))
    assert ("reads slowly" in finding.verdict) is slow


@pytest.mark.parametrize(
    ("later_ns", "cause"),
    [
        (0, "connection_window"),
        (1_900_000, "connection_window"),
        (2_100_000, "stream_window"),
        (MS * 100, "stream_window"),
    ],
)
def test_of_two_windows_that_were_used_up_the_last_to_open_is_named(tmp_path: Path, later_ns: int, cause: str) -> None:
    """A host reacts within 2 ms: what opened longer before was not what the sender waited for."""
    waits = decode([written(scene(scenes.opened_apart(later_ns)), tmp_path)]).waits
    assert [CAUSES[number] for number in waits.cause.tolist()] == [cause]
    assert waits.connection_window_bytes.tolist() == waits.stream_window_bytes.tolist() == [0]


@pytest.mark.parametrize(("gap_ns", "joined"), [(0, True), (1, False)])
def test_frames_that_are_none_of_the_message_do_not_end_an_interval(tmp_path: Path, gap_ns: int, joined: bool) -> None:
    """160 ms in two halves, as when a PING is acknowledged in between: half of it is not late at 100 ms."""
    tables = decode([written(scene(scenes.read_late(60 * MS)), tmp_path)])
    waits = tables.waits
    columns = {name: np.repeat(getattr(waits, name), 2) for name in waits.__struct_fields__}
    columns["duration_ns"] = columns["duration_ns"] // 2
    columns["start_time_ns"] = columns["start_time_ns"] + np.array([0, int(columns["duration_ns"][0]) + gap_ns])
    finding = firing(detect(with_waits(tables, **columns), Limits()))
    assert ("reads slowly" in finding.verdict) is joined
    assert finding.metrics["waits"] == (1 if joined else 2)
    columns["owed_bytes"] = columns["owed_bytes"] - np.array([0, 1], dtype=columns["owed_bytes"].dtype)
    assert "reads slowly" not in firing(detect(with_waits(tables, **columns), Limits())).verdict


@pytest.mark.parametrize(("early_ns", "queued"), [(0, True), (-1, True), (1, False)])
def test_a_queue_meanwhile_may_have_delayed_the_credit(early_ns: int, queued: bool) -> None:
    """A queue of 30 ms, in which packets waited for 10 ms at the most: it is over when the sender stops, or is not."""
    tables = decode([synthetic(SLOW).file])
    none = tables.queues
    row = {name: np.zeros(1, getattr(none, name).dtype) for name in none.__struct_fields__}
    begin = tables.waits.start_time_ns[:1] - 40 * MS + 1 - early_ns
    row |= {"start_time_ns": begin, "duration_ns": np.array([30 * MS]), "longest_ns": np.array([10 * MS])}
    finding = firing(detect(replace(tables, queues=type(none)(**row)), Limits()))
    assert ("Packets were queued on the path meanwhile" in finding.explanation) is queued
    assert ("a queue on the path delayed the WINDOW_UPDATE" in finding.verdict) is queued
    assert (finding.remedies[0].implementation == "application") is not queued


def test_prompt_credits_beside_late_ones_are_told() -> None:
    tables = decode([recording("lab/stream-window-stall").file])
    longer = np.where(np.arange(len(tables.waits.cause)) == 0, 10**11, tables.waits.duration_ns)
    finding = firing(detect(with_waits(tables, duration_ns=longer), Limits()))
    assert re.search(
        r"1 of \d+ waits for the WINDOW_UPDATE took longer than the round trip of .* explains", finding.explanation
    )
    assert "ended the others promptly" in finding.explanation


def test_without_a_round_trip_neither_is_blamed() -> None:
    tables = decode([synthetic(SLOW).file])
    finding = firing(detect(with_waits(tables, rtt_ns=np.full_like(tables.waits.rtt_ns, -1)), Limits()))
    assert "may be a small window or a slow reader" in finding.explanation
    assert finding.metrics["round_trip_ns"] == -1


def test_the_servers_messages_blame_the_client() -> None:
    tables = decode([synthetic(PROMPT).file])
    finding = firing(detect(with_waits(tables, direction=1 - tables.waits.direction), Limits()))
    assert "server 10.0.0.2 stopped" in finding.explanation
    assert any("grpc.WithInitialWindowSize" in remedy.knob for remedy in finding.remedies)


def test_a_connection_begun_before_the_capture_is_not_judged() -> None:
    tables = relabelled(decode([synthetic(PROMPT).file]), "stream_window", "unexplained")
    late = replace(tables, connections=replace(tables.connections, complete=np.zeros_like(tables.connections.complete)))
    (answer,) = detect(late, Limits())
    assert isinstance(answer, Skipped)
    assert "2 blocked intervals" in answer.reason
    assert found(detect(tables, Limits())) is None


def test_severity_follows_the_limits() -> None:
    tables = decode([synthetic(PROMPT).file])
    share = firing(detect(tables, Limits())).share or 0.0
    above = Limits(critical_share=share + 0.001, warning_share=share)
    assert firing(detect(tables, above)).severity == "warning"
    assert firing(detect(tables, Limits(critical_share=1, warning_share=share + 0.001))).severity == "info"


def test_the_readers_implementation_gives_the_first_option() -> None:
    """grpc-go against grpc-go: the server's options, not those of seven implementations."""
    tables = relabelled(decode(recording("rtt205-go-16000").files), "congestion_window", "stream_window")
    finding = firing(detect(tables, Limits()))
    assert finding.remedies[0].knob == "grpc.InitialWindowSize(n)"
    assert {remedy.implementation for remedy in finding.remedies} == {"grpc-go", "envoy", "application"}
