"""`capture-quality`: what is wrong with a capture, how grave it is, and silence where nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import changed, must, tables_of_scene, told
from msgspec.structs import replace
from support import recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import capture_quality
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["truncated"]
QUIET_ON = ["impl-go", "rpc-errors", "max-concurrent-streams"]

TROUBLED = {
    "truncated": {"damaged_places": 1},
    "mid-connection-go": {"late_connections": 1, "rpcs_without_method": 2012, "rpcs_without_status": 2012},
    "snaplen-128": {"truncated_packets": 26, "missing_bytes": 2321, "rpcs_without_status": 8000},
}


@pytest.mark.parametrize("name", TROUBLED)
def test_real_trouble_is_told_for_information(name: str) -> None:
    capture = recording(name)
    found = must(capture_quality, decode(capture.files))
    assert (found.severity, found.confidence, found.lost_ns) == ("info", "high", None)
    assert {key: found.metrics[key] for key in TROUBLED[name]} == TROUBLED[name]


def test_a_hole_is_grave() -> None:
    capture = synthetic("failures-hole")
    found = must(capture_quality, decode([capture.file]))
    assert (found.severity, found.metrics["missing_bytes"]) == ("warning", 4 * 1448)


@pytest.mark.parametrize(
    ("name", "metric", "count"),
    [
        ("pcapng", "dropped_packets", 3),
        ("duplicate_any", "duplicate_packets", 23),
        ("begun_late", "late_connections", 1),
        ("time_steps_back", "time_steps_back", 1),
        ("snaplen_96", "truncated_packets", 10),
        ("other_traffic", "encrypted_bytes", 255),
    ],
)
def test_each_trouble_is_counted(name: str, metric: str, count: int) -> None:
    capture = synthetic(name)
    found = must(capture_quality, decode([capture.file]))
    assert found.metrics[metric] == count


def test_missing_bytes_are_grave_from_their_share_on() -> None:
    tables = tables_of_scene("capture_hole")
    table = tables.connections
    share = int(table.missing_bytes.sum()) / int(table.missing_bytes.sum() + table.payload_bytes.sum())
    assert must(capture_quality, tables, hidden_bytes=share).severity == "warning"
    assert must(capture_quality, tables, hidden_bytes=share + 0.001).severity == "info"


@pytest.mark.parametrize(("dropped", "severity"), [(9, "info"), (10, "warning")])
def test_dropped_packets_are_grave_from_their_share_on(dropped: int, severity: str) -> None:
    tables = tables_of_scene("failures-none")
    capture = {**tables.capture, "packets": 990, "dropped_packets": dropped}
    assert must(capture_quality, replace(tables, capture=capture)).severity == severity


@pytest.mark.parametrize(
    ("received", "words"), [(8_604, "757 of 9,361 packets were dropped while capturing (8.1%)"), (None, "(75.2%)")]
)
def test_dropped_packets_are_a_share_of_what_their_interface_received(received: int | None, words: str) -> None:
    """The file may hold a part of what was captured."""
    tables = tables_of_scene("failures-none")
    capture = {**tables.capture, "packets": 250, "dropped_packets": 757, "received_packets": received}
    assert words in must(capture_quality, replace(tables, capture=capture)).title


@pytest.mark.parametrize(("packets", "fires"), [(99, True), (100, False)])
def test_one_step_of_the_clock_is_nothing_among_many_packets(packets: int, fires: bool) -> None:
    tables = tables_of_scene("failures-none")
    capture = {**tables.capture, "packets": packets, "time_steps_back": 1}
    assert (told(capture_quality, replace(tables, capture=capture)) is not None) is fires


def test_what_was_not_meant_alone_is_grave() -> None:
    """The same hole in a capture with a snaplen, or on a connection that began before the capture."""
    tables = tables_of_scene("capture_hole")
    assert must(capture_quality, tables).severity == "warning"
    cut = {**tables.capture, "truncated_packets": 3}
    assert must(capture_quality, replace(tables, capture=cut)).severity == "info"
    assert must(capture_quality, changed(tables, "connections", complete=[0])).severity == "info"


@pytest.mark.parametrize(("bytes_", "severity"), [(1000, "info"), (1001, "warning")])
def test_encrypted_bytes_are_grave_when_they_are_most(bytes_: int, severity: str) -> None:
    tables = tables_of_scene("failures-none")
    some = changed(tables, "connections", payload_bytes=[2001], encrypted_bytes=[bytes_])
    assert must(capture_quality, some).severity == severity


def test_a_cut_packet_asks_for_whole_ones_first() -> None:
    found = must(capture_quality, tables_of_scene("snaplen_96"))
    assert found.severity == "info"
    assert found.remedies[0].knob == "-s 0"


def edges(_folder: Path) -> Iterator[Tables]:
    """Few bytes that are missing, few packets that were dropped, and most bytes encrypted."""
    hole, whole = tables_of_scene("capture_hole"), tables_of_scene("failures-none")
    yield changed(hole, "connections", payload_bytes=[100 * int(hole.connections.missing_bytes[0])])
    yield replace(whole, capture={**whole.capture, "packets": 990, "dropped_packets": 9})
    yield changed(whole, "connections", payload_bytes=[2001], encrypted_bytes=[1001])
