"""`grpcdiag export`: the tables of the other commands in files that say what they mean, whole or not there."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pyarrow.parquet import ParquetFile
from support import ALL_CAPTURES, PATIENCE_S, grpcdiag, invoke, recorded, run_here, synthetic, wait_until
from test_hostile_names import NASTY, OBEYED

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.cli.export import Table
from grpcdiag.files.atomic_file import replacing_in
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports.tables.columns import TABLES, columns
from grpcdiag.reports.tables.frame import Frame, Numbers
from grpcdiag.reports.tables.writing import write_rows

COMMANDS = ("connections", "rpcs", "messages", "frames", "packets", "waits")
EXAMPLE = recorded("rtt205-go-16000.pcap")
WIDE = os.environ.get("GRPCDIAG_WIDE") == "1"


def exported(folder: Path, *arguments: str) -> dict[str, pl.DataFrame]:
    outcome = run_here("export", *arguments, "-o", str(folder))
    assert outcome.code == 0, outcome.err
    return {path.stem: pl.read_parquet(path) for path in folder.iterdir()}


@pytest.mark.parametrize("capture", [EXAMPLE, synthetic("begun_late").file])
def test_tables_are_those_of_the_commands(tmp_path: Path, capture: str) -> None:
    tables = exported(tmp_path / "tables", capture)
    assert set(tables) == {*Table, "columns"} == set(TABLES)
    for command in COMMANDS:
        alone = pl.read_parquet(io.BytesIO(run_here(command, capture, "--format", "parquet").out))
        assert tables[command].schema == alone.schema
        assert tables[command].equals(alone), command


def test_findings_and_methods_are_those_of_analyze(tmp_path: Path) -> None:
    tables = exported(tmp_path / "tables", EXAMPLE)
    analysis = json.loads(run_here("analyze", "--json", EXAMPLE).text)
    for row, finding in zip(tables["findings"].to_dicts(), analysis["findings"], strict=True):
        for key in ("id", "title", "severity", "confidence", "lost_ns", "share", "explanation"):
            assert row[key] == finding[key]
        assert {key: row[key] for key in ("connections", "methods")} == finding["scope"]
    evidence = [(e["packet"], e["time_ns"], e["what"]) for f in analysis["findings"] for e in f["evidence"]]
    assert tables["evidence"].select("packet", "time_ns", "what").rows() == evidence
    for row, method in zip(tables["methods"].to_dicts(), analysis["methods"], strict=True):
        assert {cause: ns for cause, ns in row["budget"].items() if ns} == method["budget"]
        assert row["p99_ns"] == method["latency_ns"]["p99"]


def metadata(path: Path) -> dict[str, dict[str, str]]:
    """Of each field, as another reader shows it."""
    parquet = pytest.importorskip("pyarrow.parquet")
    return {
        field.name: {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        for field in parquet.read_schema(path)
    }


def test_columns_say_their_unit_and_meaning(tmp_path: Path) -> None:
    tables = exported(tmp_path, EXAMPLE)
    for path in tmp_path.iterdir():
        fields, frame = metadata(path), tables[path.stem]
        assert list(fields) == frame.columns
        assert all(len(field["description"]) > 2 for field in fields.values())
        for name, field in fields.items():
            if name.endswith("_time_ns") or name == "time_ns":
                assert field["unit"] == "nanoseconds since 1970-01-01T00:00:00Z"
            elif name.endswith("_ns") or name == "budget":
                assert field["unit"] == "nanoseconds"
            elif name.endswith("_bytes") or name == "length":
                assert field["unit"] == "bytes"
        kept = pl.read_parquet_metadata(path)
        assert kept["grpcdiag.table"] == path.stem
        assert kept["grpcdiag.description"] == TABLES[path.stem]
        assert [column["name"] for column in json.loads(kept["grpcdiag.columns"])] == frame.columns
    told = tables["columns"].select("table", "column").rows()
    assert told == [(name, column) for name in Table for column in tables[name].columns]


def test_csv_holds_the_same(tmp_path: Path) -> None:
    tables = exported(tmp_path / "parquet", EXAMPLE)
    assert run_here("export", EXAMPLE, "-o", str(tmp_path / "csv"), "--format", "csv").code == 0
    for name in Table:
        csv = pl.read_csv(tmp_path / "csv" / f"{name}.csv", infer_schema_length=None)
        assert len(csv) == len(tables[name])
        for column in set(csv.columns) & set(tables[name].columns):
            if tables[name][column].dtype.is_integer():
                assert csv[column].cast(pl.Int64).to_list() == tables[name][column].cast(pl.Int64).to_list()
    budget = pl.read_csv(tmp_path / "csv" / "rpcs.csv").select(f"budget_{cause}" for cause in CAUSES)
    assert budget.sum_horizontal().to_list() == tables["rpcs"]["duration_ns"].to_list()
    described = pl.read_csv(tmp_path / "csv" / "columns.csv").filter(pl.col("table") == "rpcs")
    assert f"budget_{CAUSES[0]}" in described["column"].to_list()


SOME = [
    pytest.param((file,), id=Path(file).stem)
    for file in (EXAMPLE, synthetic("not_grpc").file, synthetic("failures-none").file)
]


@pytest.mark.parametrize("files", ALL_CAPTURES if WIDE else SOME)
def test_every_capture_is_exported(tmp_path: Path, files: tuple[str, ...]) -> None:
    """Types do not depend on what a capture holds. GRPCDIAG_WIDE=1 takes all captures, and minutes."""
    names = ("connections", "waits", "problems", "packets")
    outcome = invoke(["export", *files, "-o", str(tmp_path), *(f"--table={name}" for name in names)])
    assert outcome.exit_code == 0
    schema = pl.read_parquet_schema(tmp_path / "connections.parquet")
    assert pl.Null not in schema.values()
    assert schema["opened_time_ns"] == pl.Int64 and schema["client_implementation"] == pl.String
    all_of_it = invoke(["export", *files, "-o", str(tmp_path / "all")])
    assert all_of_it.exit_code in (0, 4), all_of_it.exception
    assert (tmp_path / "all").exists() == (all_of_it.exit_code == 0)
    if all_of_it.exit_code == 0:
        assert pl.read_parquet(tmp_path / "all" / "rpcs.parquet")["method"].dtype == pl.String


def test_one_table_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "waits.parquet").write_text("of another run")
    outcome = grpcdiag(
        "export", "-", "-o", str(tmp_path), "--table", "rpcs", "--table", "frames", stdin=Path(EXAMPLE).read_bytes()
    )
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err == f"grpcdiag: {tmp_path}: rpcs 5, frames 60 rows\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "columns.parquet",
        "frames.parquet",
        "rpcs.parquet",
        "waits.parquet",
    ]
    assert (tmp_path / "waits.parquet").read_text() == "of another run"


def test_without_grpc_there_is_no_folder(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    assert run_here("export", recorded("tls13-go.pcap"), "-o", str(target)).code == 4
    assert run_here("export", __file__, "-o", str(target)).code == 3
    assert run_here("export", EXAMPLE, "-o", str(target), "--table", "nothing").code == 2
    assert not target.exists()
    tables = exported(target, recorded("tls13-go.pcap"), "--table", "connections", "--table", "packets")
    assert tables["connections"]["tls"].to_list() == [True]
    assert len(tables["packets"]) == 300
    (tmp_path / "file").write_text("")
    assert run_here("export", EXAMPLE, "-o", str(tmp_path / "file")).code == 2
    keys = recorded("tls13-go.keys")
    assert len(exported(target, recorded("tls13-go.pcap"), "--keylog", keys)["rpcs"]) > 0


def test_errors_leave_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "rpcs.parquet").write_text("old")
    for folder, left in ((tmp_path, ["rpcs.parquet"]), (tmp_path / "new" / "er", None)):
        with pytest.raises(KeyboardInterrupt), replacing_in(folder, parents=True) as make:
            with make("rpcs.parquet") as out:
                out.write(b"half")
            raise KeyboardInterrupt
        assert (sorted(path.name for path in folder.iterdir()) if folder.exists() else None) == left
    assert (tmp_path / "rpcs.parquet").read_text() == "old"


def test_ctrl_c_while_reading(tmp_path: Path) -> None:
    """The capture is a pipe that nobody ends."""
    pipe, target = tmp_path / "pipe", tmp_path / "tables"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "grpcdiag", "export", str(pipe), "-o", str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    with pipe.open("wb") as writer:
        writer.write(Path(EXAMPLE).read_bytes()[:10_000])
        writer.flush()
        wait_until(lambda: target.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert not target.exists()


def test_names_of_strangers_are_escaped(tmp_path: Path) -> None:
    conversation = opened()
    conversation.unary("/" + NASTY, status=13, message=NASTY, metadata=[(b"user-agent", NASTY.encode())])
    conversation.goaway("server", 11, 0, debug=NASTY.encode())
    path = tmp_path / "names.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    for table in exported(tmp_path / "parquet", str(path)).values():
        assert not any(OBEYED.search(str(value)) for row in table.rows() for value in row)
    assert run_here("export", str(path), "-o", str(tmp_path / "csv"), "--format", "csv").code == 0
    texts = [file.read_text() for file in (tmp_path / "csv").iterdir()]
    assert not any(OBEYED.search(text) for text in texts)
    assert any(r"/\x1b[31mred" in text for text in texts)


def test_pieces_become_row_groups_and_nothing_is_lost() -> None:
    numbers = np.arange(200_000, dtype=np.uint32)
    pieces = [Frame({"packet": Numbers(numbers[n : n + 1000])}) for n in range(0, len(numbers), 1000)]
    out = io.BytesIO()
    names, rows = write_rows(iter(pieces), "parquet", out, "packets")
    assert (names, rows) == (["packet"], 200_000)
    file = ParquetFile(out)
    assert file.metadata.num_row_groups == 4
    assert file.read()["packet"].to_pylist() == numbers.tolist()


def test_an_error_while_rows_are_made_comes_through() -> None:
    def broken() -> Iterator[Frame]:
        yield Frame({"packet": Numbers(np.array([1]))})
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        write_rows(broken(), "parquet", io.BytesIO(), "packets")


def test_a_column_without_a_sentence_is_refused() -> None:
    with pytest.raises(KeyError, match=r"rpcs\.made_up"):
        columns("rpcs", ["made_up"])


@pytest.mark.parametrize("arguments", [("export", "-o"), ("rpcs", "--format", "parquet", "-o")], ids=" ".join)
def test_a_build_without_parquet_says_so(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "__features__", [])
    outcome = run_here(*arguments, str(tmp_path / "out"), EXAMPLE)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "this quick build cannot write Parquet" in outcome.err and "make dev" in outcome.err
    assert not (tmp_path / "out").exists()
    assert run_here("rpcs", "--format", "csv", EXAMPLE).code == 0
