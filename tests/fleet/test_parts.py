"""Series that grow: each run reads the new files alone, and calls go on from file to file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import markers, split
from growing import Growing, fleet_code, in_parts, whole
from support import recorded

from grpcdiag.fleet import planning
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import heads

CAPTURES = ("impl-go.pcap", "rpc-errors.pcap", "deadline-exceeded.pcap")


@pytest.mark.parametrize("name", CAPTURES)
def test_files_one_by_one_are_the_capture(tmp_path: Path, name: str) -> None:
    growing = Growing(tmp_path / "parts", name, 5)
    for number, piece in enumerate(growing.pieces):
        growing.add(number)
        assert growing.planned().size == piece.stat().st_size  # it costs its own reading
        growing.analyze_share(code=0 if number else fleet_code(growing))
    growing.run("summarise", growing.dataset)
    assert growing.rows() == whole(name)
    assert not growing.planned().tasks
    found = report(growing.dataset)
    assert (found.recordings, found.rpcs) == (1, len(growing.rows()))


def test_files_that_leave_a_ring_keep_their_results(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number)
        growing.analyze_share(code=0 if number else fleet_code(growing))
        if number:
            (growing.host / growing.pieces[number - 1].name).unlink()
    growing.run("summarise", growing.dataset)
    assert growing.rows() == whole()


def test_names_that_a_ring_uses_again_are_new_files(tmp_path: Path) -> None:
    """As with `tcpdump -C 1 -W 2`: the later packets come into the file with the lower number."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number, f"eth0.pcap{number % 2}")
        assert growing.planned().size == growing.pieces[number].stat().st_size
        growing.analyze(code=0 if number else fleet_code(growing))
    assert growing.rows() == whole()


def test_a_last_file_that_grew_is_read_from_its_beginning() -> None:
    growing = in_parts(4, 3)
    last = growing.host / growing.pieces[2].name
    last.write_bytes(last.read_bytes() + growing.pieces[3].read_bytes()[24:])
    assert growing.planned().size == last.stat().st_size
    growing.analyze()
    assert growing.rows() == whole()
    assert len(markers(Path(growing.dataset))) == 3


def test_a_run_that_was_killed_before_its_head_does_its_part_again() -> None:
    growing = in_parts(4, 1)
    (head,) = (Path(growing.dataset) / "_series").glob("*.json")
    before = head.read_bytes()
    growing.add(1)
    growing.analyze_share()
    head.write_bytes(before)
    for number in (2, 3):
        growing.add(number)
        growing.analyze()
    assert growing.rows() == whole()
    assert len(markers(Path(growing.dataset))) == 3


def test_a_file_that_came_late_is_read_alone_and_the_others_go_on() -> None:
    growing = in_parts(4, 1)
    growing.add(2)
    growing.analyze_share()
    growing.add(1)
    assert growing.planned().size == growing.pieces[1].stat().st_size
    growing.analyze_share()
    assert not growing.planned().tasks
    growing.add(3)
    assert growing.planned().size == growing.pieces[3].stat().st_size
    growing.analyze()
    calls = [(row[0], row[2]) for row in growing.rows() if row[5]]
    assert calls and len(set(calls)) == len(calls)
    assert set(calls) <= {(row[0], row[2]) for row in whole()}


def test_what_could_not_be_read_is_tried_again_when_it_changes_or_on_demand() -> None:
    growing = in_parts(3, 1)
    cut = growing.host / growing.pieces[1].name
    cut.write_bytes(b"an upload that was cut")
    assert "skipped: web-1" in growing.analyze(code=3)
    assert not growing.planned().tasks and growing.planned(retry=True).size == cut.stat().st_size
    assert "skipped: web-1" in growing.analyze(code=3)  # it is still told
    assert "skipped: web-1" in growing.analyze("--retry", code=3)
    growing.add(1)
    growing.analyze_share()
    growing.add(2)
    growing.analyze()
    assert growing.rows() == whole()


def test_folders_that_cannot_be_listed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 1)
    growing.add(0)
    (growing.source / "web-2").mkdir()
    listing = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).endswith("web-2"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", refusing)
    told = growing.analyze(code=3)
    assert f"skipped: {growing.source}/web-2: Permission denied" in told


def test_other_options_read_what_is_there_again() -> None:
    growing = in_parts(3, 3)
    assert growing.planned(ports=[50051]).size == sum(piece.stat().st_size for piece in growing.pieces)
    growing.analyze("--port", "50051")
    assert growing.rows() == whole()
    assert len(markers(Path(growing.dataset))) == 1


def shift(content: bytes, seconds: int) -> bytes:
    """Move the times of a pcap."""
    moved, at = bytearray(content), 24
    while at < len(moved):
        time = int.from_bytes(moved[at : at + 4], "little") + seconds
        moved[at : at + 4] = time.to_bytes(4, "little")
        at += 16 + int.from_bytes(moved[at + 8 : at + 12], "little")
    return bytes(moved)


@pytest.mark.parametrize("name", ["eth0.pcap0", "eth0.pcap1"])
def test_a_name_used_again_after_a_step_back_of_the_clock_is_a_new_file(tmp_path: Path, name: str) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    growing.add(0, "eth0.pcap0")
    growing.analyze_share(code=fleet_code(growing))
    growing.add(1, "eth0.pcap1")
    growing.analyze()
    before = growing.rows()
    again = growing.host / name
    again.write_bytes(shift(growing.pieces[2].read_bytes(), -7200))
    assert growing.planned().size == again.stat().st_size
    growing.analyze()
    assert not growing.planned().tasks
    rows = growing.rows()
    assert [row for row in before if row in rows] == before
    assert len(rows) > len(before)
    after = growing.host / "eth0.pcap2"
    after.write_bytes(shift(growing.pieces[3].read_bytes(), -7200))
    assert growing.planned().size == after.stat().st_size
    growing.analyze_share()
    assert any(".1-1." in path.name for path in markers(Path(growing.dataset))), "it continues the new epoch"


def test_a_file_of_a_ring_is_read_once_it_has_packets(tmp_path: Path) -> None:
    """tcpdump writes into the next file of the ring when its buffer is full."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    for number in range(2):
        growing.add(number, f"eth0.pcap{number}")
        growing.analyze_share(code=0 if number else fleet_code(growing))
    for content in (b"", growing.pieces[2].read_bytes()[:24]):
        (growing.host / "eth0.pcap0").write_bytes(content)
        assert not growing.planned().tasks
        growing.analyze_share()
    for number in (2, 3):
        growing.add(number, f"eth0.pcap{number % 2}")
        growing.analyze_share()
    growing.run("summarise", growing.dataset)
    assert growing.rows() == whole()


def test_an_earlier_file_that_changed_keeps_its_rows() -> None:
    growing = in_parts(3, 2)
    before, first = growing.rows(), growing.host / growing.pieces[0].name
    first.write_bytes(first.read_bytes() + growing.pieces[2].read_bytes()[24:])
    assert "it changed after files behind it were analyzed" in growing.analyze(code=3)
    assert growing.rows() == before


def test_a_last_file_of_one_packet_that_grew_is_read_again() -> None:
    growing = in_parts(2, 1)
    content = growing.pieces[1].read_bytes()
    last = growing.host / growing.pieces[1].name
    last.write_bytes(content[: 40 + int.from_bytes(content[32:36], "little")])
    growing.analyze(code=fleet_code(growing))
    growing.add(1)
    growing.analyze()
    assert growing.rows() == whole()


def test_a_key_log_for_a_recording_in_parts_counts_each_call_once() -> None:
    growing = in_parts(4, 3)
    (growing.host / growing.pieces[0].name).unlink()
    gone = [row for row in growing.rows(columns="stream, recording") if "." not in row[1]]
    keys = str(Path(recorded("tls13-go.keys")))
    for number in (2, 3):
        growing.add(number)
        growing.analyze("--keylog", keys)
        assert not growing.planned(keylog=keys).tasks
        streams = growing.rows(columns="connection, start_time_ns, stream")
        assert len(set(streams)) == len(streams) > len(gone)
    growing.analyze()
    streams = growing.rows(columns="connection, start_time_ns, stream")
    assert len(set(streams)) == len(streams)
    assert len(list((Path(growing.dataset) / "_series").glob("*.state"))) == 1


def test_both_ends_in_parts_are_counted_once(tmp_path: Path) -> None:
    """Files are cut elsewhere on the other host."""
    near = Growing(tmp_path / "parts", "rtt205-go-16000.pcap", 4)
    (tmp_path / "other").mkdir()
    split(Path(recorded("rtt205-go-16000.server.pcap")).read_bytes(), tmp_path / "other", "eth0.pcap", 3)
    (near.source / "db-1").mkdir()
    for number in range(4):
        near.add(number)
        if number:
            shutil.copy(tmp_path / "other" / f"eth0.pcap{number - 1:02}", near.source / "db-1")
        near.analyze_share(code=0 if number else fleet_code(near))
    near.run("summarise", near.dataset)
    found = report(near.dataset)
    assert (found.recordings, found.rpcs) == (2, 5)
    (way,) = found.ways
    assert (way.client_host, way.server_host, way.rpcs) == ("web-1", "db-1", 5)


def test_parts_are_named_after_their_series() -> None:
    part = heads.Part("web-1-eth0-5e1bffcd85")
    assert part.successor.id == f"{part.series}.0-1"
    assert planning.Wanted("dataset", (1, 2)).options == planning.Wanted("dataset", (2, 1)).options
