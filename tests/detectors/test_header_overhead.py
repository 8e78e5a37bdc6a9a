"""`header-overhead`: header blocks that stay large call by call, beside small messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from detecting import severity, the_finding
from judging import changed, tables_of_scene
from support import synthetic

from grpcdiag.analyzer.detectors import header_overhead as detector
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["lab/header-overhead"]
QUIET_ON = ["impl-go", "ydb-unary-single-inflight1"]

LARGE = "header-overhead-fires"


def test_synthetic_captures() -> None:
    files = [synthetic(LARGE).file]
    finding = the_finding(detector, files)
    assert (finding.severity, finding.lost_ns) == ("warning", None)
    assert finding.metrics["rpcs"] == 25
    assert 3_000 < int(finding.metrics["header_bytes_per_rpc"]) < 5_120  # hexadecimal in Huffman code
    assert finding.metrics["message_bytes_per_rpc"] == 40
    assert finding.metrics["segments_per_rpc"] == 3


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"rpcs": 25}, "warning"),
        ({"rpcs": 26}, None),
        ({"told_bytes": 5_000}, None),
        ({"told_share": 0.99}, None),
        ({"share": 0.99}, "info"),
        ({"warning_factor": 3.1}, "info"),
        ({"critical_factor": 3.0}, "critical"),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(LARGE).file], **limits) == expected


def edges(_folder: Path) -> Iterator[Tables]:
    """Segments of unknown length, and headers that are two fifths and a fifth of the bytes, and ten times as many."""
    tables = tables_of_scene(LARGE)
    d = tables.directions
    yield changed(tables, "connections", mss_client=[0], mss_server=[0])
    for times in (2.5, 5):
        yield changed(tables, "connections", bytes_client=[int(d.header_block_bytes.sum() * times)], bytes_server=[0])
    yield changed(tables, "directions", header_block_bytes=d.header_block_bytes * 10)
