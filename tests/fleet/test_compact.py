"""Many small files become few, and every row stays in the dataset once: whoever is killed, and whoever else runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("fsspec")
import duckdb
import numpy as np
import polars as pl
from deltalake import DeltaTable
from fleets import contents, download, fleet, many, markers, s3, upload
from growing import Growing, in_parts, whole
from msgspec.structs import replace

from grpcdiag.fleet import run
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import batches, catalog, compaction, delta, frames, heads, pruning, summary
from grpcdiag.fleet.dataset.catalog import TABLES
from grpcdiag.fleet.recordings import store
from grpcdiag.reports.tables import writing
from grpcdiag.reports.tables.frame import Frame, Numbers

LATER_NS = 4_000_000_000 * 10**9


def rows_of(dataset: str) -> list[Path]:
    return [path for table in TABLES for path in (Path(dataset) / table).rglob("*.parquet")]


def published(dataset: str) -> list[Any]:
    """The RPCs of the Delta table."""
    table = DeltaTable(f"{dataset}/rpcs").to_pyarrow_table(columns=["start_time_ns", "stream", "method", "status"])
    return sorted(table.to_pylist(), key=repr)


def test_parts_become_one_file_per_hour_and_table() -> None:
    growing = in_parts()
    before, told = contents(Path(growing.dataset)), report(growing.dataset)
    assert "3 recordings compacted" in fleet("compact", growing.dataset)[1]
    assert summary.written(growing.dataset, catalog.read_contents(growing.dataset))
    assert contents(Path(growing.dataset)) == before
    assert replace(report(growing.dataset), slots=()) == replace(told, slots=())
    assert len(markers(Path(growing.dataset))) == 1  # the last part's
    batch = [path for path in rows_of(growing.dataset) if path.stem.startswith("batch-")]
    assert len(batch) == len({(path.parents[1], path.parent) for path in batch})
    growing.add(4)
    growing.analyze()
    growing.run("compact", growing.dataset, "--finished")
    assert growing.rows() == whole()
    assert all(path.stem.startswith("batch-") for path in rows_of(growing.dataset))
    assert "0 recordings compacted: 0 files into 0" in growing.run("compact", growing.dataset, "--finished")


@pytest.mark.parametrize("name", ["a b#c", "a b%20c"])
def test_a_dataset_may_be_in_a_folder_with_any_name(tmp_path: Path, name: str) -> None:
    """Deltalake decodes a percent sign once too often: such a dataset has no tables, and is not compacted."""
    growing = Growing(tmp_path / name, "impl-go.pcap", 1)
    growing.add(0)
    growing.analyze()
    assert report(growing.dataset).rpcs == len(growing.rows()) > 0
    told = growing.run("compact", growing.dataset, "--finished", code=3 if "%" in name else 0)
    assert "its path has a %" in told if "%" in name else "1 recording compacted" in told
    assert report(growing.dataset).rpcs == len(growing.rows()) > 0


def test_types_and_descriptions_of_columns_stay() -> None:
    growing = in_parts()
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
    growing.run("compact", growing.dataset, "--finished")
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
        options = {"aws_allow_http": "true"}
        table = DeltaTable("s3://fleet/dataset/rpcs", storage_options=options)
        assert len(table.file_uris()) == 1 and table.to_pyarrow_table().num_rows == len(before["rpcs"])
        assert fleet("report", "s3://fleet/dataset")[0]


def test_each_table_has_the_rows_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with polars, also if a later version adds a column."""
    growing, marked = in_parts(), frames._marked

    def check() -> None:
        files = contents(Path(growing.dataset))
        for name, rows in files.items():
            found = pl.scan_delta(f"{growing.dataset}/{name}").drop("recording").collect()
            assert found.height == len(rows) > 0
        names = ("start_time_ns", "stream", "method", "status")
        assert sorted(pl.read_delta(f"{growing.dataset}/rpcs").select(names).rows(), key=repr) == growing.rows(
            columns=", ".join(names)
        )

    def mark(*given: Any) -> Iterator[Frame]:
        for piece in marked(*given):
            yield Frame({**piece.columns, "novelty": Numbers(np.full(len(piece), 7))})

    check()
    monkeypatch.setattr(frames, "_marked", mark)
    monkeypatch.setattr(writing, "_describe", lambda *_: ([], {}))
    growing.add(4)
    growing.analyze()
    check()
    assert set(pl.read_delta(f"{growing.dataset}/rpcs")["novelty"]) == {None, 7}
    growing.run("compact", growing.dataset, "--finished")
    check()


@contextmanager
def before_changes(act: Callable[[str], object]) -> Iterator[None]:
    """Act before each change that a command makes in the store, with its kind."""
    real = {"put": store.put, "remove": store.remove, "commit": delta.commit}

    def change(name: str, *given: Any) -> Any:
        act(name)
        return real[name](*given)

    with (
        patch.object(store, "put", partial(change, "put")),
        patch.object(delta, "commit", partial(change, "commit")),
        patch.object(store, "remove", lambda urls: [change("remove", [url]) for url in urls]),
    ):
        yield


def kill_anywhere(dataset: str, command: Callable[[str], object], folder: Path) -> dict[int, str]:
    """Copies of a dataset as a command leaves it that is killed before its n-th change, by n."""
    made: list[str] = []

    def copy(name: str) -> None:
        shutil.copytree(dataset, folder / str(len(made)))
        made.append(name)

    with before_changes(copy):
        command(dataset)
    return {place: str(folder / str(place)) for place in places(made)}


def places(made: list[str]) -> list[int]:
    """Where a command is worth killing: at each commit, which readers see; other changes of a kind that follow each
    other are one kind of state, so at the first two and the last of them."""
    ends = [place for place in range(len(made)) if made[place : place + 2] != made[place : place + 1] * 2]
    begins = [0, *(end + 1 for end in ends[:-1])]
    changes = {place for begin, end in zip(begins, ends, strict=True) for place in (begin, min(begin + 1, end), end)}
    return sorted(changes | {place for place, name in enumerate(made) if name == "commit"})


def read_rows(dataset: str) -> dict[str, list[Any]]:
    """Every table's rows in the files that a report reads, and the recordings of which it tells."""
    found = catalog.read_contents(dataset)
    listed = {table: catalog.pieces(dataset, table, found) for table in TABLES}
    tables = {table: pl.read_parquet(files) for table, files in listed.items() if files}
    moved = catalog.markers_in(dataset, found.batches).values()
    told = [*catalog.markers(found.present.values()), *(marker for markers in moved for marker in markers)]
    return {name: sorted(rows.rows(), key=repr) for name, rows in tables.items()} | {"": sorted(told, key=repr)}


def is_new(dataset: str, known: set[Any]) -> bool:
    """Whether the dataset has other recordings and batches than those known, for which a report is made once."""
    found = catalog.read_contents(dataset)
    before = len(known)
    known.add((frozenset(found.present), len(found.batches)))
    return len(known) > before


def test_a_command_that_is_killed_anywhere_loses_and_doubles_nothing(tmp_path: Path) -> None:
    growing = in_parts(pieces=3)
    expected, rows, read = vars_of(growing.dataset), published(growing.dataset), read_rows(growing.dataset)
    lying, told = contents(Path(growing.dataset), ["rpcs"]), set[Any]()

    killed = kill_anywhere(growing.dataset, partial(run.compact, finished=True), tmp_path)
    for dataset in killed.values():
        assert read_rows(dataset) == read
        assert not is_new(dataset, told) or vars_of(dataset) == expected
        assert published(dataset) == rows  # as other engines read it
        compaction.compact(dataset, LATER_NS, finished=True)
        assert published(dataset) == rows
        assert contents(Path(dataset), ["rpcs"]) == lying  # as the files lie
        assert not batches.read(dataset).moved
    assert vars_of(dataset) == expected
    assert max(killed) >= 20 and len(killed) >= 10 and len(told) == 2


def test_a_command_that_fails_on_its_way_is_made_good_by_the_next() -> None:
    """Errors leave the command by its own way out, which a killed one has not; the next one writes the summary, too."""
    growing = in_parts(pieces=3)
    rows, lying = published(growing.dataset), contents(Path(growing.dataset), ["rpcs"])
    commits: list[str] = []

    def fail(kind: str) -> None:
        commits.extend([kind] if kind == "commit" else [])
        if len(commits) == 3:
            raise ZeroDivisionError("of no part of the command")

    with before_changes(fail), pytest.raises(ZeroDivisionError):
        run.compact(growing.dataset, finished=True)
    assert published(growing.dataset) == rows
    run.compact(growing.dataset, finished=True)
    assert published(growing.dataset) == rows
    assert contents(Path(growing.dataset), ["rpcs"]) == lying
    assert not batches.read(growing.dataset).moved
    assert summary.written(growing.dataset, catalog.read_contents(growing.dataset))


def vars_of(dataset: str) -> dict[str, Any]:
    shutil.rmtree(Path(dataset) / "_summary", ignore_errors=True)  # which may be that of before
    found = report(dataset)
    return {name: getattr(found, name) for name in ("recordings", "rpcs", "failed_rpcs", "budget", "slots", "packets")}


@pytest.mark.parametrize("place", range(7))
def test_two_commands_at_once_move_a_recording_once(place: int) -> None:
    """The other one runs completely before a commit of the first one."""
    growing = in_parts(pieces=4)
    before, rows, real = contents(Path(growing.dataset)), published(growing.dataset), delta.commit
    commits, others = [], []

    def late(table: Any) -> Any:
        commits.append(table)
        if len(commits) == place + 1:
            with patch.object(delta, "commit", real):
                others.append(compaction.compact(growing.dataset, LATER_NS))
        return real(table)

    with patch.object(delta, "commit", late):
        first = compaction.compact(growing.dataset, LATER_NS)
    assert others and first.recordings + others[0].recordings == 2
    growing.run("compact", growing.dataset)
    assert contents(Path(growing.dataset)) == before and published(growing.dataset) == rows
    assert not batches.read(growing.dataset).moved


def test_commands_that_began_before_another_one_change_nothing(tmp_path: Path) -> None:
    row = batches.Row("web-1", "web-1.1", 1, "{}")
    old = batches.begin(str(tmp_path))
    new = batches.begin(str(tmp_path))
    assert batches.is_newest(str(tmp_path), new) and not batches.is_newest(str(tmp_path), old)
    with pytest.raises(delta.ConflictError):
        batches.add(old, "batch-1970-01-01T00-0123456789", [row])
    batches.add(new, "batch-1970-01-01T00-9876543210", [row])
    with pytest.raises(delta.ConflictError):
        batches.drop(old, ["batch-1970-01-01T00-9876543210"])
    assert [one.name for one in batches.read(str(tmp_path)).every] == ["batch-1970-01-01T00-9876543210"]


@pytest.mark.parametrize("command", ["compact", "prune"])
@pytest.mark.parametrize("reader", ["report", "summarise"])
def test_a_reader_that_others_overtake_begins_again(reader: str, command: str) -> None:
    growing = in_parts()
    before, real = report(growing.dataset), summary.make
    overtaken = []

    def late(*given: Any) -> Any:
        if not overtaken:
            overtaken.append(real)
            (compaction.compact if command == "compact" else pruning.prune)(growing.dataset, LATER_NS)
        return real(*given)

    with patch.object(summary, "make", late):
        if reader == "report":
            found = report(growing.dataset)
        else:
            run.summarise(growing.dataset)
    if reader == "summarise":
        found = report(growing.dataset)
    assert overtaken and found.rpcs == (before.rpcs if command == "compact" else len(growing.rows())) > 0


@pytest.mark.parametrize("command", ["compact", "prune"])
def test_a_command_that_another_one_overtakes_at_once_goes_on(command: str) -> None:
    growing = in_parts()
    real, others = catalog.markers, []

    def late(*given: Any) -> Any:
        if not others:
            others.append(command)
            pruning.prune(growing.dataset, LATER_NS, finished=True)
        return real(*given)

    with patch.object(catalog, "markers", late):
        told = fleet(command, growing.dataset, *(("--older", "1d") if command == "prune" else ()))[1]
    assert others and "0 recordings" in told


def test_compact_ends_quietly_if_prune_overtakes_it() -> None:
    growing = in_parts()
    real = compaction._merge

    def late(*given: Any) -> None:
        with patch.object(compaction, "_merge", real):
            pruning.prune(growing.dataset, LATER_NS)
        real(*given)

    with patch.object(compaction, "_merge", late):
        assert compaction.compact(growing.dataset, LATER_NS).recordings == 0
    growing.run("compact", growing.dataset)
    assert len(published(growing.dataset)) == len(growing.rows()) == report(growing.dataset).rpcs


def test_recordings_that_a_run_replaced_meanwhile_are_not_compacted() -> None:
    growing = in_parts()
    real = compaction._group

    def replaced(*given: Any) -> Any:
        growing.analyze("--port", "50051")
        return real(*given)

    before = len(growing.rows())
    with patch.object(compaction, "_group", replaced):
        assert compaction.compact(growing.dataset, LATER_NS).recordings == 0
    growing.analyze("--port", "50051")
    calls = [(row[0], row[2]) for row in growing.rows()]
    assert len(set(calls)) == len(calls) == before


def test_the_last_part_is_not_compacted_while_others_may_continue_it() -> None:
    growing = in_parts(2, 1)
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
    growing = in_parts()
    (name, *_) = catalog.read_contents(growing.dataset).present
    growing.run("compact", growing.dataset, "--finished")
    fleet("fetch", growing.dataset, name, "-o", str(tmp_path / "got"))
    assert list((tmp_path / "got").iterdir())
    fleet("fetch", growing.dataset, "nobody", "-o", str(tmp_path / "none"), code=2)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}'])
def test_a_table_that_is_none_is_told(content: bytes) -> None:
    growing = in_parts(pieces=2)
    log = Path(growing.dataset) / "_compacted" / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
    assert "_compacted" in fleet("report", growing.dataset, code=3)[1]


def test_a_store_that_refuses_every_commit_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise delta.ConflictError("refused")

    monkeypatch.setattr(delta, "change_files", refuse)
    with pytest.raises(store.StoreError, match="refused"):
        batches.begin(str(tmp_path))
    fleet("analyze", str(many(tmp_path / "captures", 1)), "-o", str(tmp_path / "dataset"), code=3)
