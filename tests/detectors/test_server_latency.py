"""`server-latency`: handlers that are slow alike, and long tails; never the network, and never a fast server."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import changed, check_evidence, must, played, skipped, tables_of_scene, told
from msgspec.structs import replace
from support import RECORDINGS, Recording, recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import server_latency
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scenes_failures import answering
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["max-concurrent-streams-control"]
"""Recorded captures on which the finding fires."""
QUIET_ON = ["impl-java", "rtt205-go-14000", "rpc-errors"]
"""Recorded captures on which it must not."""

SLOW = ("max-concurrent-streams", "max-concurrent-streams-control")


@pytest.mark.parametrize("name", SLOW)
def test_a_handler_of_20_ms_is_for_information(name: str) -> None:
    capture = recording(name)
    found = must(server_latency, decode(capture.files))
    assert (found.severity, found.lost_ns, found.metrics["long_tail"]) == ("info", None, 0)
    assert found.metrics["server_p50_ns"] == pytest.approx(20.9e6, rel=0.05)
    assert found.metrics["answers"] == 1000
    check_evidence(found, capture.files)


@pytest.mark.parametrize("capture", [pytest.param(r, id=r.id) for r in RECORDINGS if r.name not in SLOW])
def test_quiet_elsewhere(capture: Recording) -> None:
    """Long links, windows, loss, a server that is slow at first, fast servers that are most of the time."""
    answers = list(server_latency.detect(decode(capture.files), server_latency.Limits()))
    assert not [answer for answer in answers if not hasattr(answer, "reason")]


def test_synthetic_tail() -> None:
    capture = synthetic("failures-slow-tail")
    found = must(server_latency, decode([capture.file]))
    assert (found.severity, found.confidence, found.metrics["long_tail"]) == ("warning", "medium", 1)
    assert found.metrics["server_p50_ns"] == pytest.approx(2 * MS, rel=0.05)
    assert found.metrics["server_p99_ns"] == pytest.approx(300 * MS, rel=0.02)
    check_evidence(found, [capture.file])
    ends = found.evidence[1::2]
    assert all("301 ms after the RPC began" in item.what for item in ends)


def test_a_tail_that_the_networks_queue_may_explain_is_not_judged() -> None:
    tables = decode([synthetic("failures-slow-tail").file])
    (method,) = tables.methods
    figures = method.turnaround or {}
    explains = int(0.01 * figures["count"] * (figures["p99"] - figures["p50"]))
    for queued, reasons in ((explains // 2, 0), (explains + 1, 1)):
        budget = tuple(
            queued if cause == "network_queue" else ns for cause, ns in zip(CAUSES, method.budget, strict=True)
        )
        changed_tables = replace(tables, methods=(replace(method, budget=budget),))
        answers = list(server_latency.detect(changed_tables, server_latency.Limits(of_method=0.0)))
        assert sum("network's queue" in getattr(answer, "reason", "") for answer in answers) == reasons


@pytest.mark.parametrize(
    ("delays", "severity"),
    [
        ([9 * MS] * 20, None),
        ([11 * MS] * 20, "info"),
        ([11 * MS] * 19, None),
        ([2 * MS] * 97 + [45 * MS] * 3, None),
        ([2 * MS] * 97 + [55 * MS] * 3, "warning"),
        ([2 * MS] * 96 + [55 * MS] * 3, None),
        ([12 * MS] * 97 + [55 * MS] * 3, "info"),
        ([10 * MS + 500_000] * 97 + [55 * MS] * 3, "warning"),
    ],
    ids=["short", "long", "few", "short-tail", "long-tail", "few-for-a-tail", "less-than-five-medians", "more"],
)
def test_limits(tmp_path: Path, delays: list[int], severity: str | None) -> None:
    found = told(server_latency, played(answering(delays), tmp_path))
    assert (found.severity if found else None) == severity


def tail() -> Tables:
    return tables_of_scene("failures-slow-tail")


def test_the_round_trip_must_be_small_against_it() -> None:
    """Turnarounds of 300 ms are two round trips of 150 ms, and less than two of 151 ms."""
    p99 = must(server_latency, tail()).metrics["server_p99_ns"]
    assert isinstance(p99, int)
    assert told(server_latency, changed(tail(), "connections", handshake_rtt_ns=[p99 // 2])) is not None
    assert told(server_latency, changed(tail(), "connections", handshake_rtt_ns=[p99 // 2 + MS])) is None


def test_the_way_to_the_server_is_taken_off() -> None:
    near = must(server_latency, changed(tail(), "connections", near_server_rtt_ns=[100 * MS]))
    whole = must(server_latency, changed(tail(), "connections", near_server_rtt_ns=[0]))
    assert int(whole.metrics["server_p99_ns"]) - int(near.metrics["server_p99_ns"]) == 100 * MS


def test_lost_packets_leave_a_tail_open() -> None:
    assert "lost or reordered" in skipped(server_latency, changed(tail(), "connections", retransmitted_packets=[1]))
    assert told(server_latency, changed(tail(), "connections", retransmitted_packets=[1]), disturbed=1.0) is not None


def test_without_a_round_trip_it_is_not_known() -> None:
    unknown = changed(tail(), "connections", handshake_rtt_ns=[-1], min_rtt_ns=[-1])
    assert "no round-trip time" in skipped(server_latency, unknown)


def test_a_method_whose_time_is_not_the_servers_is_not_told() -> None:
    (method,) = tail().methods
    budget = [0] * len(CAUSES)
    server = budget[CAUSES.index("server")] = method.budget[CAUSES.index("server")]
    for other, fires in ((server - MS, True), (server + MS, False)):
        budget[CAUSES.index("stream_window")] = other
        tables = replace(tail(), methods=(replace(method, budget=tuple(budget)),))
        assert (told(server_latency, tables) is not None) is fires


def test_a_stream_may_be_silent() -> None:
    """The same turnaround of a streaming method is no long tail."""
    (method,) = tail().methods
    assert told(server_latency, replace(tail(), methods=(replace(method, messages=220),))) is None
    assert told(server_latency, replace(tail(), methods=(replace(method, messages=210),))) is not None
