"""Runs over many captures: complete, resumable, the same in every engine and store."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest

pytest.importorskip("fsspec")
from fleets import captures, children, command, contents, download, fleet, held, many, markers, s3, upload
from fsspec.implementations.local import LocalFileSystem
from support import PATIENCE_S, SYNTHETIC, recorded, wait_until

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.fleet.dataset import catalog, sums
from grpcdiag.fleet.engines import local
from grpcdiag.fleet.engines.task import Outcome, Task, analyse
from grpcdiag.fleet.recordings import store
from grpcdiag.fleet.recordings.series import Recording


def ran(dataset: Path) -> dict[str, float]:
    """When each recording came into the dataset."""
    return {path.name: path.stat().st_mtime_ns for path in (dataset / "_recordings").iterdir()}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captures(tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="module")
def made(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The dataset of the sources by the local engine, and what the command said."""
    dataset = tmp_path_factory.mktemp("made") / "dataset"
    _, told = fleet("analyze", str(sources), "-o", str(dataset), "--workers", "2", code=3, processes=True)
    return dataset, told


def test_the_rows_are_those_of_the_captures(made: tuple[Path, str]) -> None:
    tables = decode([recorded("impl-go.pcap")])
    rows = _of("web-2", made[0], "rpcs", "start_time_ns, duration_ns, stream, budget")
    assert len(rows) == tables.rpc_count == 10
    assert sorted(row[:3] for row in rows) == sorted(
        zip(tables.rpcs.start_time_ns, tables.rpcs.duration_ns, tables.rpcs.stream, strict=True)
    )
    assert all(sum(row[3].values()) == row[1] for row in rows)


def test_findings_are_those_of_analyze(made: tuple[Path, str]) -> None:
    expected = analyze([recorded("rtt205-go-16000.pcap")]).findings
    rows = _of("web-1", made[0], "findings", "finding, id, lost_ns, part_of, remedy")
    assert [row[1:4] for row in sorted(rows)] == [(f.id, f.lost_ns, f.part_of) for f in expected]
    assert any("tcp_slow_start_after_idle=0" in (row[4] or "") for row in rows)


def test_the_sums_are_those_of_the_rows(made: tuple[Path, str]) -> None:
    sums = _all(made[0], "totals", "sum(rpcs)::BIGINT, sum(duration_ns)::BIGINT, sum(budget.server)::BIGINT")
    assert sums == _all(made[0], "rpcs", "count(*), sum(duration_ns)::BIGINT, sum(budget.server)::BIGINT")
    assert _all(made[0], "latencies", "sum(rpcs)::BIGINT") == _all(made[0], "rpcs", "count(*) FILTER (complete)")


def _of(host: str, dataset: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        files = f"'{dataset}/{table}/*/*.parquet' WHERE host = '{host}'"
        return database.execute(f"SELECT {columns} FROM {files}").fetchall()


def _all(dataset: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        return database.execute(f"SELECT {columns} FROM '{dataset}/{table}/**/*.parquet'").fetchall()


def test_what_is_unreadable_is_told_and_stops_nothing(made: tuple[Path, str]) -> None:
    told = [line for line in made[1].splitlines() if "skipped: " in line]
    assert len(told) == 2
    assert "web-3: " in told[0] and "101000.pcap: is not a capture" in told[0]
    assert "web-4: " in told[1]
    markers = [json.loads(path.read_text()) for path in (made[0] / "_recordings").iterdir()]
    assert {marker["host"] for marker in markers} == {"web-1", "db-1", "web-2", "web-3", "web-4"}
    assert next(m["rpcs"] for m in markers if m["host"] == "web-3") > 0


def test_a_recording_done_is_not_done_again(made: tuple[Path, str], sources: Path) -> None:
    before = ran(made[0])
    _, told = fleet("analyze", str(sources), "-o", str(made[0]), code=3)
    assert "0 to analyze" in told and "5 already in the dataset" in told
    assert "101000.pcap: is not a capture" in told  # what was left out is told again
    assert ran(made[0]) == before


def test_new_files_add_to_the_rows_of_their_recording(sources: Path, tmp_path: Path) -> None:
    grown = tmp_path / "captures"
    grown.mkdir()
    pieces = sorted(sources.glob("web-2_eth0.pcap*"))
    for piece in pieces[:2]:
        shutil.copy(piece, grown)
    fleet("analyze", str(grown), "-o", str(tmp_path / "dataset"))
    for piece in pieces[2:]:
        shutil.copy(piece, grown)
    fleet("analyze", str(grown), "-o", str(tmp_path / "dataset"))
    fleet("analyze", str(grown), "-o", str(tmp_path / "at-once"))
    assert contents(tmp_path / "dataset")["rpcs"] == contents(tmp_path / "at-once")["rpcs"]
    assert len(contents(tmp_path / "dataset")["rpcs"]) == 10
    assert len(list((tmp_path / "dataset" / "_recordings").iterdir())) == 2


def test_no_captures_and_no_grpc_have_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, told = fleet("analyze", str(tmp_path / "empty"), "-o", str(tmp_path / "dataset"), code=3)
    assert "the sources contain no captures" in told
    _, told = fleet("analyze", str(tmp_path / "missing"), "-o", str(tmp_path / "dataset"), code=3)
    assert "missing: no such file or folder" in told
    shutil.copy(SYNTHETIC / "not_grpc.pcap", tmp_path / "empty")
    fleet("analyze", str(tmp_path / "empty"), "-o", str(tmp_path / "dataset"), code=4)
    assert "with" not in fleet("report", str(tmp_path / "dataset"))[1]


def test_an_unknown_engine_is_refused(sources: Path, tmp_path: Path) -> None:
    _, told = fleet("analyze", str(sources), "-o", str(tmp_path), "--engine", "abacus", code=2)
    assert "unknown engine" in told


def test_an_object_store_gives_the_same(
    made: tuple[Path, str], sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3(monkeypatch) as (system, _):
        url = upload(system, sources, "captures")
        _, told = fleet("analyze", url, "-o", "s3://fleet/dataset", "--workers", "1", code=3, processes=True)
        assert "skipped: web-4: s3://fleet/captures/web-4_eth0.pcap: is not a capture" in told
        assert contents(download(system, "dataset", tmp_path / "downloaded")) == contents(made[0])
        out, _ = fleet("report", "s3://fleet/dataset", "--json")
        fleet(
            "fetch", "s3://fleet/dataset", json.loads(out)["causes"][0]["worst"]["recording"], "-o", str(tmp_path / "f")
        )
        assert [path.name for path in (tmp_path / "f").iterdir()] == ["eth0.pcap"]
        fleet("analyze", url, "-o", "s3://fleet/dataset", code=3)
        local = json.loads(fleet("report", str(made[0]), "--json")[0])
        same = ("rpcs", "duration_ns", "budget", "hosts", "slots", "methods", "pairs")
        assert {name: local[name] for name in same} == {name: json.loads(out)[name] for name in same}


def test_a_store_that_fails_for_a_while_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def unsteady() -> str:
        calls.append("call")
        if len(calls) < 4:
            raise OSError("503 Slow Down")
        return "answer"

    monkeypatch.setenv("GRPCDIAG_STORE_WAIT_S", "0")
    assert store.tried(unsteady, "it") == "answer"
    assert len(calls) == 4

    def refusing() -> str:
        calls.append("refused")
        raise PermissionError("denied")

    with pytest.raises(store.StoreError, match="denied"):
        store.tried(refusing, "it")
    assert calls.count("refused") == 1

    def broken() -> str:
        calls.append("broken")
        raise OSError("503 Slow Down")

    with pytest.raises(store.StoreError, match="Slow Down"):
        store.tried(broken, "it")
    assert calls.count("broken") == store.TRIES


@pytest.mark.parametrize("pattern", ["", "/*"])
def test_a_folder_that_a_store_does_not_list_is_not_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pattern: str
) -> None:
    """fsspec's walk passes over folders whose listing failed."""
    many(tmp_path / "captures", 1)
    listing, failed = LocalFileSystem.ls, []

    def unsteady(self: Any, path: str, *rest: Any, **how: Any) -> Any:
        if not failed:
            failed.append(path)
            raise OSError("503 Slow Down")
        return listing(self, path, *rest, **how)

    monkeypatch.setattr(LocalFileSystem, "ls", unsteady)
    monkeypatch.setenv("GRPCDIAG_STORE_WAIT_S", "0")
    assert len(list(store.search(f"{tmp_path}{pattern}"))) == 1
    assert failed
    failed.clear()
    assert len(store.names(f"{tmp_path}/captures")) == 1


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Six recordings, and their dataset of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("six")
    fleet("analyze", str(many(folder / "captures", 6)), "-o", str(folder / "dataset"))
    return folder / "captures", folder / "dataset"


@pytest.fixture
def unending(six: tuple[Path, Path]) -> Iterator[tuple[list[str], Event]]:
    """The six as sources, and the event without which a run over them does not end: a worker has half of the last."""
    *files, last = sorted(six[0].iterdir())
    with held(last) as (url, released):
        yield [*map(str, files), url], released


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
def test_a_killed_worker_costs_its_recording_only(
    six: tuple[Path, Path], unending: tuple[list[str], Event], tmp_path: Path
) -> None:
    running = command("analyze", *unending[0], "-o", str(tmp_path / "dataset"), "--workers", "2")
    wait_until(lambda: len(markers(tmp_path / "dataset")) == 5 and len(children(running.pid)) == 1)
    os.kill(children(running.pid)[0], signal.SIGKILL)
    unending[1].set()
    _, told = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, told
    assert contents(tmp_path / "dataset") == contents(six[1])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_killed_goes_on(
    six: tuple[Path, Path], unending: tuple[list[str], Event], tmp_path: Path, number: signal.Signals
) -> None:
    dataset = tmp_path / "dataset"
    running = command("analyze", *unending[0], "-o", str(dataset), "--workers", "2")
    wait_until(lambda: len(markers(dataset)) >= 2)
    workers = children(running.pid)
    assert workers
    running.send_signal(number)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == (130 if number is signal.SIGINT else -number)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))  # they end with their parent
    done = ran(dataset)
    assert 2 <= len(done) < 6
    unending[1].set()
    fleet("analyze", *unending[0], "-o", str(dataset))
    assert {name: when for name, when in ran(dataset).items() if name in done} == done  # none was done twice
    assert contents(dataset) == contents(six[1])
    assert not list(dataset.rglob(".*"))


@pytest.mark.parametrize("ends", [2, 3])
def test_a_worker_that_ends_while_it_starts_is_lost(ends: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its pipe is broken before it has a task."""
    starts = iter([BrokenPipeError(errno.EPIPE, "Broken pipe")] * ends)

    class Worker:
        connection = process = Mock()

        def __init__(self, *_: object) -> None:
            for error in starts:
                raise error

        def do(self, task: Task) -> Outcome:
            return Outcome(recording=task.recording.id, host="", size=0, done=True)

    monkeypatch.setattr(local, "_Worker", Worker)
    task = Task(Recording("web-1", "web-1", None, ()), "1", str(tmp_path))
    with local.Local(1) as engine:
        (outcome,) = engine.run(analyse, [task])
    reason = None if ends == 2 else "3 workers ended while they had it: out of memory?"
    assert (outcome.done, outcome.reason) == (ends == 2, reason)


INTERRUPTED = """
import os, signal
from grpcdiag.fleet.engines.engine import lost

if os.getpid() != {parent}:  # a worker, which has begun nothing but imports
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # calls, between which signals are heard

def work(task):
    return lost(task, "it was not interrupted")
"""


def test_ctrl_c_does_not_reach_a_worker_that_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal sends it to every process: each would end with a traceback."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(parent=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    task = Task(Recording("web-1", "web-1", None, ()), "1", str(tmp_path))
    with local.Local(1) as engine:
        (outcome,) = engine.run(importlib.import_module("interrupted").work, [task])
    assert outcome.reason == "it was not interrupted"


def test_a_worker_that_starts_while_the_run_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none starts afterwards: it would find its parent gone."""
    begun = Event()

    class Worker:
        connection, process = Mock(), Mock()

        def __init__(self, *_: object) -> None:
            begun.set()
            engine._stopped.wait()

    monkeypatch.setattr(local, "_Worker", Worker)
    with local.Local(1) as engine:
        starting = Thread(target=engine._start, args=(analyse,))
        starting.start()
        begun.wait()
    starting.join()
    Worker.process.terminate.assert_called_once_with()
    with pytest.raises(local._StoppedError):
        engine._start(analyse)


def test_a_worker_that_cannot_be_started_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "_Worker", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    task = Task(Recording("web-1", "web-1", None, ()), "1", str(tmp_path))
    with local.Local(1) as engine, pytest.raises(OSError, match="Too many open files"):
        list(engine.run(analyse, [task]))


@pytest.mark.skipif(sys.platform == "win32", reason="has no flock")
def test_unfinished_files_of_killed_runs_are_removed(
    six: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every folder of the dataset; the one that another process writes, and files of others, stay."""
    dataset = tmp_path / "dataset"
    shutil.copytree(six[1], dataset)
    for name in ("_series/.host-1.json.999999", "rpcs/.part.parquet.12", "_series/.note"):
        (dataset / name).write_bytes(b"left")
    fleet("summarise", str(dataset))
    assert [path.name for path in dataset.rglob(".*")] == [".note"]

    def copy(_: object, source: str, part: str) -> None:
        store.remove_parts(str(dataset))  # as another run does meanwhile
        assert Path(part).exists()
        shutil.copyfile(source, part)

    monkeypatch.setattr(LocalFileSystem, "copy", copy)
    store.put(dataset / "_series" / ".note", f"{dataset}/_series/other.json")
    assert (dataset / "_series" / "other.json").read_bytes() == b"left"
    assert [path.name for path in dataset.rglob(".*")] == [".note"]


def test_the_database_for_sums_stays_open_until_an_error() -> None:
    with pytest.raises(ValueError), sums.connect_for_few() as first:
        raise ValueError
    with sums.connect_for_few() as second:
        assert second is not first
    with sums.connect_for_few() as third:
        assert third is second


def test_first_recordings_of_hosts_are_not_each_listed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing names all recordings, so one for each would be quadratic."""
    sources = many(tmp_path / "captures", 3)
    monkeypatch.delattr(catalog, "markers_of")
    fleet("analyze", str(sources), "-o", str(tmp_path / "dataset"))
    assert len(catalog.committed(str(tmp_path / "dataset"))) == 3
