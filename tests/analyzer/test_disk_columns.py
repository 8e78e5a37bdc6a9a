"""Rows that wait in temporary files are the rows there are without, in their order, for every capture."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import COMMITTED, SYNTHETICS, recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.decode import disk_columns, rpc_columns, rpc_stream, runner
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.disk_columns import DiskColumns, gathered
from grpcdiag.analyzer.decode.errors import MemoryLimitError, NoGrpcError, SpillError
from grpcdiag.analyzer.selection.narrow import read as read_for_narrowing
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.fixtures.bench.kinds import KINDS
from grpcdiag.reports import analysis_json
from grpcdiag.reports.tables import rows
from grpcdiag.reports.tables.frame import Frame
from grpcdiag.reports.tables.writing import write_rows

UNARY = "ydb-unary-single-inflight1.pcap"
BUSY = "max-concurrent-streams-control.pcap"
"""1,000 RPCs, many at once."""
FEW = {s.file for s in SYNTHETICS if len(s.truth["rpcs"]) <= 3}
"""Captures whose rows are one piece (`little`)."""


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """So little is kept in memory that the smallest captures spill; gives the folder for temporary files."""
    monkeypatch.setattr(rpc_columns, "IN_MEMORY", 3)
    monkeypatch.setattr(runner, "STEP", 40)
    for name, value in {"STEP": 40, "LEAST": 3, "MOST": 6}.items():
        monkeypatch.setattr(rpc_stream, name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def lines(pieces: Iterable[Frame]) -> bytes:
    """Rows of RPCs as JSON lines: every cell of every column."""
    out = io.BytesIO()
    write_rows(pieces, "jsonl", out, "rpcs")
    return out.getvalue()


def whole(files: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The rows of RPCs as one run without any spilling gives them."""
    with monkeypatch.context() as patched:
        patched.setattr(rpc_columns, "IN_MEMORY", 1 << 40)
        return lines([rows.rpcs(decode(files))])


@pytest.mark.parametrize("files", [capture for capture in COMMITTED if capture.values[0][0] not in FEW])
def test_rows_come_piece_by_piece_as_they_are_together(
    files: Sequence[str], little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(files, monkeypatch)
    pieces = [rows.rpcs_of(piece) for piece in rpc_stream.stream_rpcs(files, require_rows=False)]
    assert lines(pieces) == expected
    assert lines([rows.rpcs(decode(files))]) == expected
    assert not list(little.iterdir())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A capture of so many connections at once that the core reads it connection by connection."""
    path = tmp_path_factory.mktemp("mixed") / "mixed.pcap"
    replace(KINDS["unary-many"], together=400, piece=120_000).build(path, 48_000_000)
    return [str(path)]


@pytest.mark.parametrize(("step", "least", "most"), [(25_000, 16_384, 131_072), (1_000, 1, 0)])
def test_rows_of_many_connections_come_in_the_order_of_the_capture(
    mixed: list[str], monkeypatch: pytest.MonkeyPatch, step: int, least: int, most: int
) -> None:
    for name, value in {"STEP": step, "LEAST": least, "MOST": most}.items():
        monkeypatch.setattr(rpc_stream, name, value)
    expected = whole(mixed, monkeypatch)  # read in the order of the capture
    pieces = [rows.rpcs_of(piece) for piece in rpc_stream.stream_rpcs(mixed)]
    assert len(pieces) > 1
    assert lines(pieces) == expected


@pytest.mark.parametrize("files", COMMITTED)
def test_analyses_are_the_same(files: Sequence[str], little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runner.THREADS_VARIABLE, "2")

    def analysis(**how: int) -> str:
        try:
            return analysis_json.render(of_tables(decode(files, rpc_rows=False, **how)))  # type: ignore[arg-type]
        except NoGrpcError as error:
            return str(error)

    assert analysis(spill=2, memory=1 << 40) == analysis()


def test_captures_here_have_rows_that_are_taken_too_early(little: Path) -> None:
    """Else the test above would prove nothing of them."""
    assert _taken_too_early(recorded(BUSY)) > 500


def _taken_too_early(path: str) -> int:
    run = _core.Run([path], rpc_rows=True)
    early = 0
    while run.step(40):
        early += sum(len(taken["settled"]["numbers"]) for taken in run.take_rpcs(3, 6))
    return early + len(run.finish()["settled"]["numbers"])


def test_rpcs_that_last_hold_up_no_memory() -> None:
    """Rows are handed on unfinished, and each of these exactly once more."""
    run = _core.Run([recorded(BUSY)], rpc_rows=True)
    taken, unsettled, again = 0, 0, 0
    while run.step(10):
        for columns in run.take_rpcs(1, 0):
            taken += len(columns["rows"]["connection"])
            unsettled += int(np.count_nonzero(columns["rows"]["settled"] == 0))
            again += len(columns["settled"]["numbers"])
    end = run.finish()
    assert unsettled == again + len(end["settled"]["numbers"]) > 0
    assert taken + len(end["rpcs"]["connection"]) == sum(method["rpcs"] for method in end["methods"])


def test_narrowing_reads_the_same_rows(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [recorded(BUSY)]
    expected = whole(files, monkeypatch)
    read = read_for_narrowing(files, Selection((), None, None, None))
    assert lines([rows.rpcs(read.tables)]) == expected


def test_a_full_disk_is_told(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(SpillError, match="No space left on device"):
        decode([recorded(UNARY)])
    with pytest.raises(SpillError, match="No space left on device"):
        DiskColumns().add(0, {"connection": np.zeros(3, dtype=np.uint32)})


def test_no_folder_for_temporary_files_is_told(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(little / "nowhere"))
    with pytest.raises(SpillError, match="No such file"):
        decode([recorded(UNARY)], rpc_rows=False, spill=2)


def test_more_memory_than_allowed_is_told() -> None:
    with pytest.raises(
        MemoryLimitError, match=r"^\d+ MB were taken after \d+ packets, and \d+ connections may need \d+ MB more$"
    ):
        decode([recorded(UNARY)], rpc_rows=False, memory=1_000_000)


def test_rows_of_a_memory_map_are_gathered(little: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_columns, "_GATHERED", 7)
    budgets = decode([recorded(BUSY)]).rpc_budgets
    assert isinstance(budgets.base, np.memmap)
    some = np.array([0, 2, 3, 3, 17, 20, 500, 501, 502, 999])
    assert gathered(budgets, some).tolist() == np.array(budgets)[some].tolist()
    assert gathered(budgets, some[:0]).shape == (0, budgets.shape[1])
    assert gathered(np.arange(5), np.array([4, 1])).tolist() == [4, 1]


def test_parts_are_read_as_they_were_written_and_corrected() -> None:
    spilled = DiskColumns()
    first = {"a": np.arange(5, dtype=np.uint32), "b": np.arange(10, dtype=np.int64).reshape(5, 2)}
    second = {"a": np.arange(2, dtype=np.uint32), "b": np.zeros((2, 2), dtype=np.int64)}
    parts = [spilled.add(0, first), spilled.add(5, second)]
    other = {"a": np.array([7, 8], dtype=np.uint32), "b": np.full((2, 2), 9)}
    spilled.correct(parts[0], np.array([1, 4], dtype=np.uint32), other)
    read = spilled.read(parts[0])
    assert read["a"].tolist() == [0, 7, 2, 3, 8]
    assert read["b"].tolist() == [[0, 1], [9, 9], [4, 5], [6, 7], [9, 9]]
    assert {name: column.tolist() for name, column in spilled.read(parts[1]).items()} == {
        name: column.tolist() for name, column in second.items()
    }
    spilled.clear()
    assert spilled.read(spilled.add(0, second))["a"].tolist() == [0, 1]
