"""Many small files become few, and every row stays in the dataset once: whoever is killed, and whoever else runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("fsspec")
import duckdb
from fleets import contents, download, fleet, many, markers, s3, upload
from growing import Growing, fleet_code, in_parts, whole
from msgspec.structs import replace

from grpcdiag.fleet import run
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import catalog, compaction, heads, manifest
from grpcdiag.fleet.dataset.catalog import TABLES
from grpcdiag.fleet.recordings import store

LATER_NS = 4_000_000_000 * 10**9


def rows_of(dataset: str) -> list[Path]:
    return [path for table in TABLES for path in (Path(dataset) / table).rglob("*.parquet")]


def states(dataset: str) -> list[str]:
    return [batch.state for batch in manifest.read(dataset).batches]


def test_parts_become_one_file_per_hour_and_table(tmp_path: Path) -> None:
    growing = in_parts(tmp_path / "parts")
    before, told = contents(Path(growing.dataset)), report(growing.dataset)
    assert "3 recordings compacted" in fleet("compact", growing.dataset)[1]
    assert contents(Path(growing.dataset)) == before
    assert replace(report(growing.dataset), slots=()) == replace(told, slots=())
    assert len(markers(Path(growing.dataset))) == 2  # the last part's, and the batch's
    batch = [path for path in rows_of(growing.dataset) if path.stem.startswith("batch-")]
    assert len(batch) == len({(path.parents[1], path.parent) for path in batch})
    growing.add(4)
    growing.analyze()
    fleet("compact", growing.dataset, "--finished")
    assert growing.rows() == whole(tmp_path / "whole", "impl-go.pcap")
    assert all(path.stem.startswith("batch-") for path in rows_of(growing.dataset))
    assert "0 recordings compacted: 0 files into 0" in fleet("compact", growing.dataset, "--finished")[1]


def test_types_and_descriptions_of_columns_stay(tmp_path: Path) -> None:
    growing = in_parts(tmp_path)
    query = "SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet('{}'))"
    about = "SELECT value FROM parquet_kv_metadata('{}') WHERE key = 'grpcdiag.columns'"

    def look() -> dict[str, Any]:
        with duckdb.connect() as database:
            some = {path.parents[1].name: path for path in rows_of(growing.dataset) if ".open." not in path.name}
            return {
                table: [database.execute(text.format(path)).fetchall() for text in (query, about)]
                for table, path in some.items()
            }

    before = look()
    fleet("compact", growing.dataset, "--finished")
    assert look() == before and before["rpcs"][1]


def test_a_dataset_in_an_object_store_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = many(tmp_path / "captures", 3)
    with s3(monkeypatch) as (system, _):
        url = upload(system, sources, "captures")
        fleet("analyze", url, "-o", "s3://fleet/dataset")
        before = contents(download(system, "dataset", tmp_path / "before"))
        assert "3 recordings compacted" in fleet("compact", "s3://fleet/dataset", "--finished")[1]
        assert contents(download(system, "dataset", tmp_path / "after")) == before
        assert len(rows_of(str(tmp_path / "after"))) < len(rows_of(str(tmp_path / "before")))
        assert not store.put_new(b"", "s3://fleet/dataset/_compacted/000000000001.json")
        assert fleet("report", "s3://fleet/dataset")[0]


class Killed(Exception):
    pass


def kill_at(place: int) -> Callable[..., Any]:
    """Let the command be killed at its n-th change of the store."""
    calls = 0

    def die(real: Callable[..., Any], *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > place:
            raise Killed
        return real(*given)

    return die


@pytest.mark.parametrize("finished", [False, True])
def test_a_command_that_is_killed_anywhere_loses_and_doubles_nothing(tmp_path: Path, finished: bool) -> None:
    growing = in_parts(tmp_path / "parts", pieces=3)
    expected = vars_of(growing.dataset)
    for place in range(100):
        dataset = tmp_path / f"killed-{place}"
        shutil.copytree(growing.dataset, dataset)
        real = {name: getattr(store, name) for name in ("put", "put_new", "remove")}
        die = kill_at(place)

        def one_by_one(urls: list[str], die: Any = die, real: Any = real) -> None:
            for url in urls:
                die(real["remove"], [url])

        with (
            patch.object(store, "put", lambda *given, die=die, real=real: die(real["put"], *given)),
            patch.object(store, "put_new", lambda *given, die=die, real=real: die(real["put_new"], *given)),
            patch.object(store, "remove", one_by_one),
        ):
            try:
                run.compact(str(dataset), finished=finished)
                break
            except Killed:
                pass
        assert vars_of(str(dataset)) == expected  # as the report reads it
        run.compact(str(dataset), finished=finished)
        assert vars_of(str(dataset)) == expected
        assert contents(dataset)["rpcs"] == contents(Path(growing.dataset))["rpcs"]  # as others read it
        assert set(states(str(dataset))) == {"clean"}
    else:
        raise AssertionError("it never ended")
    assert place >= 20


def vars_of(dataset: str) -> dict[str, Any]:
    shutil.rmtree(Path(dataset) / "_summary", ignore_errors=True)  # which may be that of before
    found = report(dataset)
    return {name: getattr(found, name) for name in ("recordings", "rpcs", "failed_rpcs", "budget", "slots", "packets")}


def test_two_commands_at_once_move_a_recording_once(tmp_path: Path) -> None:
    """The other one runs completely before each change of the manifest by the first one."""
    growing = in_parts(tmp_path, pieces=4)
    before, real = contents(Path(growing.dataset)), manifest.update
    others = []

    def late(dataset: str, change: Any) -> Any:
        with patch.object(manifest, "update", real):
            others.append(compaction.compact(dataset, LATER_NS))
        return real(dataset, change)

    with patch.object(manifest, "update", late):
        first = compaction.compact(growing.dataset, LATER_NS)
    assert len(others) == 1 + 2 and first.recordings + sum(one.recordings for one in others) == 2
    assert contents(Path(growing.dataset)) == before and states(growing.dataset) == ["clean"]


def test_of_two_changes_of_the_manifest_at_once_none_is_lost(tmp_path: Path) -> None:
    batches = [
        manifest.Batch(name=f"batch-1970-01-01T00-{n:010x}", state="clean", recordings=1, last_time_ns=n)
        for n in range(40)
    ]
    real, left = store.put_new, list(batches)

    def busy(content: bytes, url: str) -> bool:
        if left:
            batch = left.pop()
            manifest.update(str(tmp_path), lambda every: [*every, batch])
        return real(content, url)

    with patch.object(store, "put_new", busy):
        batch = left.pop()
        manifest.update(str(tmp_path), lambda every: [*every, batch])
    assert sorted(manifest.read(str(tmp_path)).batches, key=lambda one: one.last_time_ns) == batches
    assert len(list((tmp_path / "_compacted").iterdir())) <= 10


def test_a_number_that_was_removed_as_old_is_not_written_again(tmp_path: Path) -> None:
    """A slow command read the manifest long ago."""
    dataset, real = str(tmp_path), store.put_new
    batches = [
        manifest.Batch(name=f"batch-1970-01-01T00-{n:010x}", state="clean", recordings=1, last_time_ns=n)
        for n in range(30)
    ]

    def slow(content: bytes, url: str) -> bool:
        with patch.object(store, "put_new", real):
            while left := [one for one in batches[:-1] if one not in manifest.read(dataset).batches]:
                manifest.update(dataset, lambda every, one=left[0]: [*every, one])  # type: ignore[misc]
        return real(content, url)

    with patch.object(store, "put_new", slow):
        manifest.update(dataset, lambda every: [*every, batches[-1]])
    assert set(manifest.read(dataset).batches) == set(batches)


def test_recordings_that_a_run_replaced_meanwhile_are_not_compacted(tmp_path: Path) -> None:
    growing = in_parts(tmp_path)
    real = compaction._write

    def replaced(*given: Any) -> None:
        real(*given)
        growing.analyze("--port", "50051")

    before = len(growing.rows())
    with patch.object(compaction, "_write", replaced):
        assert compaction.compact(growing.dataset, LATER_NS).recordings == 0
    growing.analyze("--port", "50051")
    calls = [(row[0], row[2]) for row in growing.rows()]
    assert len(set(calls)) == len(calls) == before


def test_the_last_part_is_not_compacted_while_others_may_continue_it(tmp_path: Path) -> None:
    growing = Growing(tmp_path, "impl-go.pcap", 2)
    growing.add(0)
    growing.analyze(code=fleet_code(growing))
    assert compaction.compact(growing.dataset, LATER_NS).recordings == 0
    assert compaction.compact(growing.dataset, 0, finished=True).recordings == 0  # its hour has not ended
    assert compaction.compact(growing.dataset, LATER_NS, finished=True).recordings == 1
    assert not growing.planned().tasks
    (known,) = heads.read(growing.dataset, [growing.planned().recordings[0].id]).values()
    assert known.state is None and not list(Path(growing.dataset).rglob("*.state"))
    growing.add(1)
    growing.analyze()
    assert catalog.read_contents(growing.dataset).present.keys() == {f"{known.part.series}.1-0"}


def test_fetch_finds_a_recording_in_a_batch(tmp_path: Path) -> None:
    growing = in_parts(tmp_path)
    (name, *_) = catalog.read_contents(growing.dataset).present
    fleet("compact", growing.dataset, "--finished")
    fleet("fetch", growing.dataset, name, "-o", str(tmp_path / "got"))
    assert list((tmp_path / "got").iterdir())
    fleet("fetch", growing.dataset, "nobody", "-o", str(tmp_path / "none"), code=2)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": "grpcdiag.fleet-manifest/9"}', b'{"batches": [{}]}'])
def test_a_manifest_that_is_none_is_told(tmp_path: Path, content: bytes) -> None:
    growing = in_parts(tmp_path, pieces=2)
    (tmp_path / "dataset" / "_compacted").mkdir()
    (tmp_path / "dataset" / "_compacted" / "000000000007.json").write_bytes(content)
    told = fleet("report", growing.dataset, code=3)[1]
    assert "000000000007.json" in told
