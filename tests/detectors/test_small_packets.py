"""`small-packets`: many slow streams whose messages come spread, and messages in pieces; never a lone caller's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detecting import severity, the_finding
from judging import changed, tables_of_scene
from support import recording, synthetic

from grpcdiag.analyzer.detectors import small_packets as detector
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["lab/ping-storm"]
QUIET_ON = ["impl-tonic", "max-concurrent-streams-control"]

SPREAD, CUT = "small-packets-fires", "small-packets-fires-cut-up"


def test_fires_on_publishers_with_timers_of_their_own() -> None:
    capture = recording("ably-staggered-veth")
    finding = the_finding(detector, capture.files)
    assert (finding.severity, finding.lost_ns) == ("critical", None)
    m = finding.metrics
    assert m["streams"] == 200
    assert m["payload_packets"] == 8337
    assert m["control_packets"] == pytest.approx(2191, abs=2)  # as an independent count of frames per packet has it
    assert float(m["messages_per_packet"]) < 3
    assert float(m["packets_sent"]) / float(m["packets_needed"]) == pytest.approx(float(m["factor"]), rel=0.01)
    assert (m["mss"], m["estimator_pings"]) == (1448, 3894)
    assert m["data_frames_per_packet"] == pytest.approx(float(m["messages_per_packet"]), abs=0.1)  # small messages
    assert "spread" in finding.explanation
    assert "3,894 PINGs are BDP probes." in finding.explanation
    assert "a full segment holds 1,448" in finding.explanation


def test_synthetic_captures() -> None:
    finding = the_finding(detector, [synthetic(CUT).file])
    assert finding.metrics["sender"] == "client"
    assert int(finding.metrics["packets_sent"]) >= 500
    assert "pieces" in finding.title


@pytest.mark.parametrize(
    ("name", "limits", "expected"),
    [
        (SPREAD, {}, "warning"),
        (SPREAD, {"streams": 65}, None),
        (SPREAD, {"messages_per_stream": 9}, "warning"),
        (SPREAD, {"messages_per_stream": 10}, None),
        (SPREAD, {"stream_interval_ns": 95_000_000}, "warning"),
        (SPREAD, {"stream_interval_ns": 105_000_000}, None),
        (SPREAD, {"messages_per_second": 600.0}, "warning"),
        (SPREAD, {"messages_per_second": 700.0}, None),
        (SPREAD, {"messages_per_packet": 1.0}, None),
        (SPREAD, {"filled": 0.01}, None),
        (SPREAD, {"packets": 1000}, None),
        (SPREAD, {"critical_factor": 6.0}, "critical"),
        (SPREAD, {"warning_factor": 7.0}, None),
        (CUT, {}, "warning"),
        (CUT, {"messages": 101}, None),
        (CUT, {"critical_factor": 4.9}, "critical"),
        (CUT, {"warning_factor": 5.1}, None),
    ],
)
def test_each_limit_on_both_sides(name: str, limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(name).file], **limits) == expected


def edges(_folder: Path) -> Iterator[Tables]:
    """Segments of unknown length, and some and many bytes that could not be read."""
    tables = tables_of_scene("small-packets-fires")
    c, d = tables.connections, tables.directions
    yield changed(tables, "connections", mss_client=[0], mss_server=[0])
    for share in (0.005, 0.02):
        yield changed(tables, "connections", undecoded_bytes=c.payload_bytes * share)
    for share in (0.05, 0.2):
        lacking = changed(tables, "connections", missing_bytes=[1])
        sent = np.array([c.bytes_client[0], c.bytes_server[0]])
        yield changed(lacking, "directions", message_bytes=d.message_bytes - sent * share)
    spread, cut = tables_of_scene(SPREAD), tables_of_scene(CUT)
    d = spread.directions
    yield changed(spread, "directions", payload_packets=d.payload_packets * 0.7)
    lasting = d.first_message_time_ns + 10 * (d.last_message_time_ns - d.first_message_time_ns)
    yield changed(spread, "directions", last_message_time_ns=lasting)
    yield changed(spread, "connections", max_concurrent_rpcs=[20])
    yield changed(spread, "connections", rpcs=spread.connections.rpcs * 3)
    yield changed(cut, "directions", messages=cut.directions.messages * 0.9)
