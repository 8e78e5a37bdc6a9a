"""Series that grow: each run reads the new files alone, and calls go on from file to file."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
import duckdb
from fleets import fleet, markers, split
from msgspec import json
from support import recorded

from grpcdiag.fleet import planning, run
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import heads

ROWS = "stream, method, start_time_ns, duration_ns, status, complete, request_bytes, response_bytes, budget"


class Growing:
    """A folder into which the files of a series come one after the other."""

    def __init__(self, folder: Path, name: str, pieces: int, host: str = "web-1") -> None:
        (folder / "kept").mkdir(parents=True)
        split(Path(recorded(name)).read_bytes(), folder / "kept", "eth0.pcap", pieces)
        self.pieces = sorted((folder / "kept").iterdir())
        self.source, self.dataset = folder / "captures", str(folder / "dataset")
        self.host = self.source / host
        self.host.mkdir(parents=True)

    def add(self, number: int, name: str = "") -> Path:
        return Path(shutil.copy(self.pieces[number], self.host / (name or self.pieces[number].name)))

    def planned(self, **how: Any) -> run.Plan:
        return run.plan([str(self.source)], self.dataset, **how)

    def analyze(self, *options: str, code: int = 0) -> str:
        return fleet("analyze", str(self.source), "-o", self.dataset, *options, code=code)[1]

    def rows(self, table: str = "rpcs", columns: str = ROWS) -> list[Any]:
        with duckdb.connect() as database:
            files = f"read_parquet('{self.dataset}/{table}/**/*.parquet', union_by_name = true)"
            return sorted(database.execute(f"SELECT {columns} FROM {files}").fetchall(), key=repr)


def whole(folder: Path, name: str) -> list[Any]:
    """The rows of a capture that is one file."""
    one = Growing(folder, name, 1)
    one.add(0)
    one.analyze()
    return one.rows()


CAPTURES = ("impl-go.pcap", "impl-java.pcap", "rtt205-go-16000.pcap", "rpc-errors.pcap", "deadline-exceeded.pcap")


@pytest.mark.parametrize("name", CAPTURES)
def test_files_one_by_one_are_the_capture(tmp_path: Path, name: str) -> None:
    growing = Growing(tmp_path / "parts", name, 5)
    for number, piece in enumerate(growing.pieces):
        growing.add(number)
        assert growing.planned().size == piece.stat().st_size  # it costs its own reading
        growing.analyze(code=0 if number else fleet_code(growing))
    assert growing.rows() == whole(tmp_path / "whole", name)
    assert not growing.planned().tasks
    found = report(growing.dataset)
    assert (found.recordings, found.rpcs) == (1, len(growing.rows()))


def fleet_code(growing: Growing) -> int:
    """4 if the first file has no gRPC yet."""
    from grpcdiag.analyzer.decode.decode import decode

    return 0 if decode([str(growing.pieces[0])]).rpc_count else 4


def test_files_that_leave_a_ring_keep_their_results(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number)
        growing.analyze(code=0 if number else fleet_code(growing))
        if number:
            (growing.host / growing.pieces[number - 1].name).unlink()
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")


def test_names_that_a_ring_uses_again_are_new_files(tmp_path: Path) -> None:
    """As with `tcpdump -C 1 -W 2`: the later packets come into the file with the lower number."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number, f"eth0.pcap{number % 2}")
        assert growing.planned().size == growing.pieces[number].stat().st_size
        growing.analyze(code=0 if number else fleet_code(growing))
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")


def test_a_last_file_that_grew_is_read_from_its_beginning(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    for number in range(3):
        growing.add(number)
        growing.analyze(code=0 if number else fleet_code(growing))
    last = growing.host / growing.pieces[2].name
    last.write_bytes(last.read_bytes() + growing.pieces[3].read_bytes()[24:])
    assert growing.planned().size == last.stat().st_size
    growing.analyze()
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")
    assert len(markers(Path(growing.dataset))) == 3


def test_a_run_that_was_killed_before_its_head_does_its_part_again(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    growing.add(0)
    growing.analyze(code=fleet_code(growing))
    (head,) = (Path(growing.dataset) / "_series").glob("*.json")
    before = head.read_bytes()
    growing.add(1)
    growing.analyze()
    head.write_bytes(before)
    for number in (2, 3):
        growing.add(number)
        growing.analyze()
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")
    assert len(markers(Path(growing.dataset))) == 3


def test_a_file_that_came_late_is_read_alone_and_the_others_go_on(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    growing.add(0)
    growing.analyze(code=fleet_code(growing))
    growing.add(2)
    growing.analyze()
    growing.add(1)
    assert growing.planned().size == growing.pieces[1].stat().st_size
    growing.analyze()
    assert not growing.planned().tasks
    growing.add(3)
    assert growing.planned().size == growing.pieces[3].stat().st_size
    growing.analyze()
    calls = [(row[0], row[2]) for row in growing.rows() if row[5]]
    assert calls and len(set(calls)) == len(calls)
    assert set(calls) <= {(row[0], row[2]) for row in whole(tmp_path / "whole", "impl-go.pcap")}


def test_what_could_not_be_read_is_tried_again_when_it_changes_or_on_demand(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 3)
    growing.add(0)
    growing.analyze(code=fleet_code(growing))
    cut = growing.host / growing.pieces[1].name
    cut.write_bytes(b"an upload that was cut")
    assert "skipped: web-1" in growing.analyze(code=3)
    assert not growing.planned().tasks and growing.planned(retry=True).size == cut.stat().st_size
    assert "skipped: web-1" in growing.analyze(code=3)  # it is still told
    assert "skipped: web-1" in growing.analyze("--retry", code=3)
    growing.add(1)
    growing.analyze()
    growing.add(2)
    growing.analyze()
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")


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


def test_other_options_read_what_is_there_again(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 3)
    for number in range(3):
        growing.add(number)
        growing.analyze(code=0 if number else fleet_code(growing))
    assert growing.planned(ports=[50051]).size == sum(piece.stat().st_size for piece in growing.pieces)
    growing.analyze("--port", "50051")
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")
    assert len(markers(Path(growing.dataset))) == 1


def state_of(growing: Growing) -> Path:
    (path,) = (Path(growing.dataset) / "_series").glob("*.json")
    state = json.decode(path.read_bytes(), type=heads.Head).state
    assert state
    return Path(state.removeprefix("file://"))


@pytest.mark.parametrize("content", [b"", b"\x01\x02\x03", zlib.compress(b"\x01\x050.0.1" + bytes(100))])
def test_a_state_that_cannot_be_used_is_told(tmp_path: Path, content: bytes) -> None:
    """Rows stay, and later files continue what was read without it."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    for number in range(2):
        growing.add(number)
        growing.analyze(code=0 if number else fleet_code(growing))
    before = growing.rows()
    state_of(growing).write_bytes(content)
    growing.add(2)
    growing.analyze()
    assert [row for row in before if row in growing.rows()] == before
    texts = [json.decode(path.read_bytes())["warnings"] for path in markers(Path(growing.dataset))]
    assert sum("read without what was open before them" in text for some in texts for text in some) == 1
    growing.add(3)
    assert growing.planned().size == growing.pieces[3].stat().st_size
    growing.analyze()


def test_states_have_no_values_of_header_fields_and_do_not_add_up(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number)
        growing.analyze(code=0 if number else fleet_code(growing))
        assert len(list((Path(growing.dataset) / "_series").glob("*.state"))) <= 2
    state = zlib.decompress(state_of(growing).read_bytes())
    assert b"content-type" not in state or b"application/grpc" not in state
    assert b"user-agent" in state and b"127.0.0.1:" not in state and b"application/grpc" not in state


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
        near.analyze(code=0 if number else fleet_code(near))
    found = report(near.dataset)
    assert (found.recordings, found.rpcs) == (2, 5)
    (way,) = found.ways
    assert (way.client_host, way.server_host, way.rpcs) == ("web-1", "db-1", 5)


def test_parts_are_named_after_their_series() -> None:
    part = heads.Part("web-1-eth0-5e1bffcd85")
    assert part.id == part.series
    assert part.successor.id == f"{part.series}.0-1"
    assert planning.Wanted("dataset", (1, 2)).options == planning.Wanted("dataset", (2, 1)).options
