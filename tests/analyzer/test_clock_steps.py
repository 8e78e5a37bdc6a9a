"""Forward steps of the capture's clock: told, and charged to nobody, where both hosts' TCP timestamps disprove them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lessened import capture_of
from support import recorded
from tampered import delay, remove_timestamps, step_clock, suspend_host, tamper

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode, stream
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.tables import Packets

MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9
# where the clock steps: an answer is owed, or the connection is idle
CASES = [
    ("rtt205-go-16000", 60),
    ("rtt205-go-16000", 75),
    ("rtt205-py-16000", 81),
    ("ydb-unary-single-inflight1", 3000),
    ("impl-cpp", 51),
    ("impl-java", 50),
    ("impl-js", 52),
    ("impl-py", 53),
    ("impl-tonic", 70),
    ("any", 400),
    ("ipv6", 400),
]
TOLERANCE_NS = 5_000_000
"""Timestamps count milliseconds, and each flow of a step is off by one at the most."""


def told(analysis: Analysis) -> list[tuple[str, str, int]]:
    return [(f.id, f.severity, (f.lost_ns or 0) // (4 * TOLERANCE_NS)) for f in analysis.findings]


def steps(analysis: Analysis) -> list[str]:
    return [warning for warning in analysis.quality.warnings if "clock stepped" in warning]


@pytest.mark.parametrize("by_ns", [SECOND, HOUR], ids=["1s", "1h"])
@pytest.mark.parametrize(("name", "after"), CASES)
def test_a_step_is_told_and_changes_nothing_else(name: str, after: int, by_ns: int, tmp_path: Path) -> None:
    plain = analyze([recorded(f"{name}.pcap")])
    stepped = analyze([tamper(recorded(f"{name}.pcap"), tmp_path / "stepped.pcap", step_clock(after, by_ns))])
    (warning,) = steps(stepped)
    assert f"before packet {after + 1:,}" in warning
    assert not steps(plain)
    assert told(stepped) == told(plain)
    for cause, ns in plain.budget.items():
        assert abs(stepped.budget[cause] - ns) <= TOLERANCE_NS * plain.totals.rpcs**0.5, cause
    assert [m.statuses for m in stepped.methods] == [m.statuses for m in plain.methods]


def test_packets_keep_the_times_of_the_file(tmp_path: Path) -> None:
    path = tamper(recorded("impl-go.pcap"), tmp_path / "stepped.pcap", step_clock(50, HOUR))
    (before,) = stream(Packets, [recorded("impl-go.pcap")])
    (after,) = stream(Packets, [path])
    later = np.where(before.packet > 50, HOUR, 0)
    assert (after.time_ns == before.time_ns + later).all()


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_a_host_that_was_suspended_is_no_step(server: bool, tmp_path: Path) -> None:
    source = recorded("rtt205-go-16000.pcap")
    path = tamper(source, tmp_path / "suspended.pcap", suspend_host(source, server, 60, HOUR, 3_600_000))
    analysis = analyze([path])
    assert not steps(analysis)
    assert sum(analysis.budget.values()) > HOUR, "time did pass"


@pytest.mark.parametrize(("name", "after"), [("rtt205-go-16000", 60), ("impl-java", 50), ("impl-tonic", 70)])
def test_packets_that_stood_in_a_queue_are_no_step(name: str, after: int, tmp_path: Path) -> None:
    source = recorded(f"{name}.pcap")
    path = tamper(source, tmp_path / "queued.pcap", delay(source, after, 1, SECOND, 1000))
    assert not steps(analyze([path]))


@pytest.mark.parametrize("name", ["rtt205-go-16000", "impl-tonic"])
def test_without_timestamps_nobody_knows(name: str, tmp_path: Path) -> None:
    plain = tamper(recorded(f"{name}.pcap"), tmp_path / "plain.pcap", remove_timestamps(recorded(f"{name}.pcap")))
    assert not steps(analyze([tamper(plain, tmp_path / "stepped.pcap", step_clock(60, HOUR))]))


def test_two_steps(tmp_path: Path) -> None:
    once = tamper(recorded("rtt205-go-16000.pcap"), tmp_path / "once.pcap", step_clock(60, HOUR))
    twice = tamper(once, tmp_path / "twice.pcap", step_clock(100, 10 * SECOND))
    capture = decode([twice]).capture
    assert [packet for packet, _ns in capture["clock_steps"]] == [61, 101]
    assert [round(ns / SECOND) for _packet, ns in capture["clock_steps"]] == [3600, 10]


@pytest.mark.parametrize(
    ("name", "packet", "by_ms"),
    [
        ("wild/ghz-plain.pcap.zst", 400, 50),
        ("wild/ghz-plain.pcap.zst", 900, 30),
        ("wild/grpcio-slow-answers.pcap.zst", 195, 30),
        ("wild/grpcio-slow-answers.pcap.zst", 195, 80),
        ("wild/grpcio-slow-answers.pcap.zst", 780, 50),
        ("ydb-unary-single-inflight1.pcap", 3017, 80),
    ],
)
def test_a_short_step_is_no_queue(name: str, packet: int, by_ms: int, tmp_path: Path) -> None:
    """Both directions are late by the same from there on, which no queue is: their packets soon count as in time."""
    source = tmp_path / "whole.pcap"
    source.write_bytes(capture_of([recorded(name)]).data)
    plain, step = analyze([str(source)]), step_clock(packet, by_ms * MS)
    analysis = analyze([tamper(source, tmp_path / "stepped.pcap", step)])
    assert "network-queueing" not in [finding.id for finding in analysis.findings]
    assert any("the capture's clock may have been set" in warning for warning in analysis.quality.warnings)
    spread = 100 * MS * sum(connection.max_concurrent_rpcs for connection in plain.connections)
    assert analysis.budget.get("network_queue", 0) <= plain.budget.get("network_queue", 0) + spread


@pytest.mark.parametrize(
    "name", ["lab/network-queueing.pcap.gz", "wild/bloat-same.pcap.zst", "wild/grpcio-uplink-held.pcap.zst"]
)
def test_a_queue_is_no_set_clock(name: str) -> None:
    assert not any("may have been set" in warning for warning in analyze([recorded(name)]).quality.warnings)


@pytest.mark.parametrize("name", ["lab/network-queueing.pcap.gz", "wild/bloat-same.pcap.zst"])
def test_a_queue_is_no_step(name: str) -> None:
    finding = next(one for one in analyze([recorded(name)]).findings if one.id == "network-queueing")
    assert finding.confidence == "high"
