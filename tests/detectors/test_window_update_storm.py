"""`window-update-storm`: WINDOW_UPDATEs sent in separate packets, many a second and a large part of the packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from detecting import severity, the_finding
from judging import changed, tables_of_scene
from support import recording, synthetic

from grpcdiag.analyzer.detectors import window_update_storm as detector
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["rpc-errors", "lab/window-update-storm"]
QUIET_ON = ["impl-go", "ydb-unary-single-inflight1"]

STORM = "window-update-storm-fires"


def test_synthetic_captures() -> None:
    files = [synthetic(STORM).file]
    finding = the_finding(detector, files)
    assert finding.severity == "warning"
    assert finding.metrics["sender"] == "client"
    assert finding.metrics["window_update_only_packets"] == 520 + 2  # and two of h2's own
    assert finding.metrics["data_frames_received"] == 520


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"packets": 522}, "warning"),
        ({"packets": 523}, "info"),
        ({"per_second": 700.0}, "info"),
        ({"duration_ns": 1_300_000_000}, "info"),
        ({"share": 0.51}, "info"),
        ({"critical_share": 0.48}, "critical"),
        ({"told_packets": 523}, None),
        ({"told_share": 0.51}, None),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(STORM).file], **limits) == expected


@pytest.mark.parametrize(("limits", "expected"), [({}, "warning"), ({"streams": 201}, "info")])
def test_slow_streams_need_less(limits: dict[str, Any], expected: str) -> None:
    files = recording("ably-staggered-veth").files
    assert severity(detector, files) == "info"
    assert severity(detector, files, paced_share=0.14, **limits) == expected


def edges(_folder: Path) -> Iterator[Tables]:
    """The storm is shorter."""
    tables = tables_of_scene(STORM)
    c = tables.connections
    yield changed(tables, "connections", last_time_ns=c.first_time_ns + 900_000_000)
