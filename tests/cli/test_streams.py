"""Standard streams that take nothing, or are closed: one line, a documented exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE_S, recorded, run_here

import grpcdiag.__main__ as program

FILE = recorded("impl-go.pcap")
COMMANDS = {
    "analyze": ["analyze", FILE],
    "analyze json": ["analyze", "--json", FILE],
    "analyze html": ["analyze", FILE, "--format", "html"],
    "analyze perfetto": ["analyze", FILE, "--format", "perfetto"],
    "rpcs": ["rpcs", FILE],
    "rpcs csv": ["rpcs", FILE, "--format", "csv"],
    "rpcs jsonl": ["rpcs", FILE, "--format", "jsonl"],
    "rpcs parquet": ["rpcs", FILE, "--format", "parquet"],
    "compare": ["compare", FILE, FILE],
    "timeline": ["timeline", FILE, "-c", "0"],
    "explain": ["explain", "slow-start-after-idle"],
    "doctor": ["doctor"],
    "lab": ["lab"],
    "version": ["--version"],
    "help": ["--help"],
}


def run(words: list[str], redirected: str) -> tuple[int, str]:
    line = ["bash", "-c", f'"$@" {redirected}', "bash", sys.executable, "-m", "grpcdiag", *words]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stderr


CLOSED = (">&-", "Bad file desc")


@pytest.mark.parametrize(
    ("name", "redirected", "why"),
    [
        *((name, ">/dev/full", "No space left on device") for name in COMMANDS),
        *((name, *CLOSED) for name in ("analyze", "analyze json", "rpcs parquet", "version", "help")),
    ],
)
def test_standard_output_that_takes_nothing(name: str, redirected: str, why: str) -> None:
    if name == "analyze perfetto":
        pytest.importorskip("perfetto")
    code, said = run(COMMANDS[name], redirected)
    *before, last = said.splitlines()
    assert (code, all(line.startswith("causes: ") for line in before)) == (2, True), said
    assert last.startswith(f"grpcdiag: cannot write standard output: {why}")


def test_standard_error_that_takes_nothing_changes_no_exit_code(tmp_path: Path) -> None:
    for redirected in ("2>/dev/full", "2>&-"):
        assert run(["analyze", str(tmp_path / "none")], redirected)[0] == 3
        assert run(["analyze", FILE], redirected)[0] == 0


def test_a_closed_stream_is_no_file_of_ours(tmp_path: Path) -> None:
    """The report is not mixed with what is meant for standard output, and standard input is empty."""
    report = tmp_path / "report"
    assert run(["analyze", FILE, "-o", str(report)], "<&- >&- 2>&-")[0] == 0
    assert "verdict" in report.read_text()
    code, said = run(["analyze", "-"], "<&-")
    assert (code, "standard input: is empty" in said) == (3, True)


@pytest.mark.parametrize("command", ["scrub", "annotate", "attach", "analyze", "rpcs"])
def test_devices_pipes_and_links_stay_what_they_are(command: str, tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "out.zip", tmp_path / "link.zip", tmp_path / "target.zip"
    os.mkfifo(pipe)
    link.symlink_to(target.name)
    read = tmp_path / "read"
    with read.open("wb") as out, subprocess.Popen(["cat", str(pipe)], stdout=out):
        done = run_here(command, FILE, "-o", str(pipe))
        assert done.code == 0, done.err
    assert pipe.is_fifo() and read.stat().st_size > 100
    done = run_here(command, FILE, "-o", str(link))
    assert done.code == 0, done.err
    assert link.is_symlink() and target.stat().st_size > 100
    if command != "attach":  # which makes a folder of a name without .zip
        assert run_here(command, FILE, "-o", os.devnull).code == 0
        assert Path(os.devnull).is_char_device()


def test_a_reader_of_another_file_that_has_gone_is_an_error(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["frames", recorded("ydb-unary-single-inflight1.pcap"), "--format", "jsonl", "-o", str(pipe)]
    command = subprocess.Popen([sys.executable, "-m", "grpcdiag", *words], stderr=subprocess.PIPE, text=True)
    with pipe.open():
        pass
    _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (2, f"grpcdiag: cannot write {pipe}: Broken pipe\n")


def test_standard_output_may_be_named() -> None:
    words = ["frames", recorded("ydb-unary-single-inflight1.pcap"), "--format", "jsonl", "-o", "/dev/stdout"]
    assert run(words, "| head -c 1 >&2; echo ${PIPESTATUS[0]} >&2") == (0, "{0\n")


@pytest.mark.parametrize("through_typer", [False, True])
def test_a_broken_pipe_that_is_not_standard_output_is_an_error(
    through_typer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer() -> None:
        try:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        except BrokenPipeError:
            if through_typer:
                sys.exit(1)
            raise

    monkeypatch.setattr(program, "_answer", answer)
    assert (program.run(), capsys.readouterr().err) == (2, "grpcdiag: Broken pipe\n")
