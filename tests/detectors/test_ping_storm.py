"""`ping-storm`: PINGs sent in separate packets, many a second and most of the packets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detecting import severity, the_finding
from judging import changed, must, tables_of_scene
from support import recorded, recording, rows, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import ping_storm as detector
from grpcdiag.analyzer.tables import Frames, Tables

FIRES_ON = ["rpc-errors", "lab/ping-storm"]
QUIET_ON = ["impl-go", "rtt205-go-16000"]

STORM = "ping-storm-fires"
PING, ACK = 6, 1
"""Type and flag (RFC 9113 section 6.7)."""


def test_synthetic_captures() -> None:
    files = [synthetic(STORM).file]
    finding = the_finding(detector, files)
    assert finding.severity == "critical"
    assert finding.metrics["ping_only_packets"] == 2 * 400  # PINGs and their acknowledgements
    assert finding.metrics["ping_packets_per_s"] == pytest.approx(2 * 1000 / 3, rel=0.05)


def test_a_rate_and_a_share() -> None:
    """As large a share, but ten PINGs where the storm has a hundred: told, no warning."""
    assert severity(detector, [synthetic("ping-storm-slow").file]) == "info"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"packets": 800}, "critical"),
        ({"packets": 801}, "info"),
        ({"per_second": 700.0}, "info"),
        ({"duration_ns": 1_300_000_000}, "info"),
        ({"share": 0.999}, "info"),
        ({"critical_share": 0.999}, "warning"),
        ({"told_packets": 801}, None),
        ({"told_share": 0.999}, None),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(STORM).file], **limits) == expected


def test_real_captures() -> None:
    """Loud only where 200 slow streams are each answered by PINGs; an estimator at work between two ends is told."""
    finding = the_finding(detector, recording("mid-connection-go").files)
    assert finding.severity == "info"
    assert int(finding.metrics["bdp_pings"]) == 1055 + 1008


@pytest.mark.parametrize(
    "limits", [{"streams": 201}, {"paced_share": 0.3}, {"messages_per_stream": 30}, {"stream_interval_ns": 300_000_000}]
)
def test_slow_streams_on_the_other_side_of_each_limit(limits: dict[str, Any]) -> None:
    files = recording("ably-staggered-veth").files
    assert severity(detector, files) == "warning"
    assert severity(detector, files, **limits) == "info"


@pytest.mark.parametrize(
    "file", ["lab/ping-storm.pcap.gz", "field-cases/ably-staggered-veth.pcap.zst", "rpc-errors.pcap"]
)
def test_the_frames_of_the_capture_have_the_stated_source(file: str) -> None:
    """PINGs in packets with data count, acknowledgements do not; the verdict names no end of two that send alike."""
    frames = rows(Frames, [recorded(file)])
    sent = (frames.connection == 0) & (frames.kind == PING) & (frames.flags & ACK == 0)
    pings = np.bincount(frames.direction[sent], minlength=2).tolist()
    finding = the_finding(detector, [recorded(file)])
    counts = r"Of ([\d,]+) PINGs of both ends, ([\d,]+) come from (client|server) \S+ Their"
    stated = re.search(counts, finding.explanation)
    assert stated
    assert [int(n.replace(",", "")) for n in stated.groups()[:2]] == [sum(pings), max(pings)]
    source = ["client", "server"][pings.index(max(pings))]
    assert stated[3] == source
    assert (f"most PINGs from {source} " in finding.verdict) == (max(pings) > 0.6 * sum(pings))


def test_purposes_of_pings_are_counted_in_words() -> None:
    tables = decode([synthetic(STORM).file])
    d = tables.directions
    sent = int(d.pings.sum())
    assert f"All {sent:,} PINGs come from " in must(detector, tables).explanation
    few = changed(tables, "directions", bdp_pings=[1, 0], keepalive_pings=[0, 0], drain_pings=[0, 2])
    words = f"1 BDP probe, 2 PINGs of a graceful end, {sent - 3} PINGs of other or unknown purpose."
    assert f"Their payloads show {words}" in must(detector, few).explanation
    none = changed(tables, "directions", **{f"{name}pings": [0, 0] for name in ("", "bdp_", "keepalive_", "drain_")})
    assert "The PINGs themselves are not in the capture." in must(detector, none).explanation


def edges(_folder: Path) -> Iterator[Tables]:
    """The storm is shorter."""
    tables = tables_of_scene(STORM)
    c = tables.connections
    yield changed(tables, "connections", last_time_ns=c.first_time_ns + 900_000_000)
