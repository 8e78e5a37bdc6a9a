"""`client-idle-gap`: tells the client's gaps, and accuses only where sharing does not explain them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from detecting import severity, the_finding
from msgspec.structs import replace
from process_tables import tables as recorded_threads
from support import recording, rows, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import client_idle_gap as detector
from grpcdiag.analyzer.tables import Packets, Tables

FIRES_ON = ["lab/client-idle-gap"]
QUIET_ON = ["any", "ydb-unary-single-inflight1"]

TWO = "client-idle-gap-fires-on-two"


def test_synthetic_captures() -> None:
    finding = the_finding(detector, [synthetic(TWO).file])
    assert finding.scope.connections == (0, 1)
    assert finding.metrics["gaps"] == 2 * 102
    assert finding.lost_ns == pytest.approx(2 * 102 * 300_000, rel=0.02)
    assert finding.metrics["gap_distribution"] == "128-256 µs: 68, 256-512 µs: 136"


def test_only_figures_where_sharing_explains_it() -> None:
    for files in (recording("ydb-unary-single-inflight8").files, [synthetic("shared-connection-fires").file]):
        finding = the_finding(detector, files)
        assert (finding.severity, finding.lost_ns, finding.share) == ("info", None, None)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, "critical"),
        ({"critical_share": 0.8}, "warning"),
        ({"warning_share": 0.8}, "info"),
        ({"callers": 9}, "info"),
        ({"held_share": 0.8}, None),
        ({"gaps": 103}, None),
        ({"callers_per_round": 1.05}, None),
        ({"most_paused": 0.0}, None),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(TWO).file], **limits) == expected


def test_the_client_is_silent_between_the_packets_shown() -> None:
    files = recording("ydb-stream-single-inflight8").files
    finding = the_finding(detector, files)
    packets = rows(Packets, files)
    place = {number: row for row, number in enumerate(packets.packet.tolist())}
    for before, after in zip(finding.evidence[::2], finding.evidence[1::2], strict=True):
        between = slice(place[before.packet] + 1, place[after.packet])
        assert packets.direction[place[before.packet]] == 1
        assert packets.direction[place[after.packet]] == 0
        assert not packets.payload_bytes[between].any(), "somebody sent something in the gap"


def edges(_folder: Path) -> Iterator[Tables]:
    """A client whose threads waited for a processor in most of its idle time, and in less of it."""
    for waiting in (10, 90):
        threads = recorded_threads(runnable=waiting, running=100 - waiting).processes
        yield replace(decode([synthetic(TWO).file]), processes=threads)
