"""The record of its calls that ghz or k6 writes while `grpcdiag capture` runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from recorder import capture, free_port, may_record

from grpcdiag.capture.records import expect_records

LOAD = str(Path(__file__).with_name("load.py"))


@pytest.mark.parametrize(
    "words",
    [
        "ghz -O json -o FILE localhost:50051",
        "ghz -Ojson -oFILE",
        "ghz --format json --output FILE",
        "/opt/bin/ghz --output=FILE --format=json --call a.B/C",
        "ghz -O pretty -o FILE",
        "taskset -c 0 ghz -O json -o FILE",
        "env A=b nice -n 5 ./ghz -o FILE -O json",
    ],
)
def test_the_file_of_ghz_is_found(words: str) -> None:
    assert [(one.tool, str(one.path)) for one in expect_records(words.split())] == [("ghz", "FILE")]


@pytest.mark.parametrize(
    "words",
    [
        "ghz -O json localhost:50051",
        "ghz -o FILE localhost:50051",
        "ghz -O csv -o FILE",
        "ghz --format=html --output=FILE",
        "./bench -O json -o FILE",
        "ghz2 -O json -o FILE",
        "./bench --ghz -O json -o FILE",
        "k6 run --out csv=FILE script.js",
        "k6 run script.js",
        "./bench --out json=FILE",
        "ghz -O json -o",
        "",
    ],
)
def test_other_commands_have_none(words: str) -> None:
    assert expect_records(words.split()) == []


def test_the_files_of_k6_are_found() -> None:
    words = "k6 run --out json=a.json -o json=b.gz --out=json=c -o csv=d script.js"
    assert [(one.tool, str(one.path)) for one in expect_records(words.split())] == [
        ("k6", name) for name in ("a.json", "b.gz", "c")
    ]


def test_commands_of_a_shell_are_read() -> None:
    text = "cd x && ghz -O json -o 'a b.json' host; ghz -O csv -o no.csv host | tee -o y; ghz -O json -o c.json&"
    assert [str(one.path) for one in expect_records(["sh", "-ec", text])] == ["a b.json", "c.json"]
    assert expect_records(["sh", "-c", "ghz -O json -o 'open"]) == []
    assert expect_records(["sh", "-c", "ghz -O json; cp -o b.json"]) == []


def test_only_a_file_that_the_run_wrote_counts(tmp_path: Path) -> None:
    old, new, pipe = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "pipe"
    old.write_text("{}")
    os.mkfifo(pipe)
    for path, change in ((old, None), (new, None), (tmp_path, None), (pipe, None), (Path("a\0b"), None)):
        assert not any(one.is_written() for one in expect_records(["ghz", "-Ojson", "-o", str(path)])), change
    (expected,) = expect_records(["ghz", "-Ojson", "-o", str(new)])
    new.write_text("{}")
    assert expected.is_written()
    (expected,) = expect_records(["ghz", "-Ojson", "-o", str(old)])
    old.write_text("{ }")
    assert expected.is_written()


def make_tool(folder: Path, name: str) -> str:
    """A program of this name that makes calls and writes ghz's report."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {LOAD} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("name", "format_", "joined"), [("ghz", "json", True), ("ghz", "csv", False), ("bench", "json", False)]
)
def test_then_analyze_joins_what_ghz_wrote(tmp_path: Path, name: str, format_: str, joined: bool) -> None:
    pytest.importorskip("grpc")
    may_record()
    port, report = str(free_port()), tmp_path / "report.json"
    tool = make_tool(tmp_path, name)
    command = [tool, port, "20", "-O", format_, "-o", str(report)]
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", port, "--then", "analyze", "--", *command)
    assert done.returncode == 0, done.stderr
    line = f"grpcdiag: {report}: 20 calls of ghz are joined with the RPCs (--client)\n"
    assert (line in done.stderr) == joined
    assert ("20 of 20 calls are on the wire" in done.stdout) == joined


def test_a_record_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    may_record()
    port, report = str(free_port()), tmp_path / "report.json"
    tool = make_tool(tmp_path, "ghz")
    text = f"{tool} {port} 5 -O json -o {report} && echo broken > {report}"
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", port, "--then", "analyze", "--", "sh", "-c", text)
    assert done.returncode == 0, done.stderr
    assert f"grpcdiag: {report}: ghz wrote it, but it is not joined with the RPCs: no record" in done.stderr
    assert "verdict" in done.stdout
