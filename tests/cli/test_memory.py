"""`--memory SIZE`: the same output, temporary files that are gone however it ends, clear words when it cannot be."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support import PATIENCE_S, grpcdiag, recorded

from grpcdiag.cli.common import LEAST_MEMORY, memory_size
from grpcdiag.fixtures.bench.kinds import KINDS
from grpcdiag.fixtures.bench.measure import apart, run

CAPTURE = "max-concurrent-streams-control.pcap"
LITTLE = """
import sys
from grpcdiag.analyzer import kept_rpcs, rpc_stream
from grpcdiag.cli import common, rows
kept_rpcs.IN_MEMORY, rows.ROWS_AT_ONCE, rows._Waiting.MOST = 5, 100, 1_000
rpc_stream.STEP, rpc_stream.LEAST, rpc_stream.MOST = 40, 3, 6
common.SPILL = 2
{also}
from grpcdiag.__main__ import main
main()
"""
"""The command with so little kept in memory that a small capture spills."""


def little(*arguments: str, tmpdir: Path, also: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"TMPDIR": str(tmpdir), "COLUMNS": "100"}
    command = [sys.executable, "-c", LITTLE.format(also=also), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


@pytest.mark.parametrize(
    "command",
    [
        ["analyze"],
        ["analyze", "--json", "--from", "0.01"],
        ["rpcs", "--format", "csv"],
        ["rpcs", "--format", "parquet"],
        ["rpcs", "--limit", "0"],
        ["rpcs", "--limit", "107"],
        ["timeline", "--worst", "2"],
    ],
    ids=" ".join,
)
def test_the_same_output_and_nothing_left(command: list[str], tmp_path: Path) -> None:
    plain = grpcdiag(*command, recorded(CAPTURE), env={"COLUMNS": "100"})
    process = little(*command, "--memory", "1GiB", recorded(CAPTURE), tmpdir=tmp_path)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err.decode()) == (plain.code, plain.out, plain.err)
    assert not list(tmp_path.iterdir())


def test_the_same_tables(tmp_path: Path) -> None:
    for folder, options in (("plain", []), ("memory", ["--memory", "1G"])):
        done = grpcdiag("export", recorded(CAPTURE), "-o", str(tmp_path / folder), "--format", "csv", *options)
        assert done.code == 0, done.err
    plain = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    assert plain == {path.name: path.read_bytes() for path in (tmp_path / "memory").iterdir()}
    assert len(plain["rpcs.csv"].splitlines()) == 1001


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """Files may have no more than 1,000 bytes here."""
    also = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    also += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    for command in (["rpcs", "--format", "csv"], ["analyze"], ["timeline", "--worst", "2"], ["rpcs", "--limit", "0"]):
        process = little(*command, "--memory", "1G", recorded(CAPTURE), tmpdir=tmp_path, also=also)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2
        assert "cannot write temporary files: File too large" in err.decode()
        assert "TMPDIR" in err.decode()
        assert "Traceback" not in err.decode()
        assert not list(tmp_path.iterdir())


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    """Standard input that does not end keeps it waiting, after it has written temporary files."""
    whole = Path(recorded(CAPTURE)).read_bytes()
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LITTLE.format(also=""), "rpcs", "--format", "csv", "--memory", "1G", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(whole[: len(whole) // 2])
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"connection,stream")
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        said = process.stderr.read() if process.stderr else b""
        assert (process.returncode, said) == (130, b"")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("200M", 200_000_000),
        ("1G", 1_000_000_000),
        ("1g", 1_000_000_000),
        ("1.5 GB", 1_500_000_000),
        ("1GiB", 1 << 30),
        ("512mib", 512 << 20),
        ("300000000", 300_000_000),
        (".5T", 500_000_000_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "1X", "1GG", "G", "1e9", "1,5G", "nan", "1 0G", "٣G", "0x10M"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no size"):
        memory_size(text)


@pytest.mark.parametrize("text", ["0", "1", "199M", "199999k"])
def test_too_little(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"at least {LEAST_MEMORY // 1_000_000}M"):
        memory_size(text)


def test_wrong_sizes_are_wrong_usage() -> None:
    for size in ("much", "10M"):
        done = grpcdiag("analyze", "--memory", size, recorded(CAPTURE))
        assert done.code == 2
        assert "--memory" in done.err


def test_more_than_is_allowed_is_told() -> None:
    """Of the memory that the command takes here a part is its own: what is allowed is lowered to less than that."""
    also = "common.memory_size = lambda text: 20_000_000"
    process = little("analyze", "--memory", "1G", recorded(CAPTURE), tmpdir=Path.cwd(), also=also)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "--memory is too little for this command and capture" in err.decode()


@pytest.mark.skipif(os.environ.get("GRPCDIAG_WIDE") != "1", reason="makes a capture of 400 MB: set GRPCDIAG_WIDE=1")
@pytest.mark.parametrize("kind", ["unary", "unary-many"])
@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "--json"],
        ["rpcs", "--format", "csv"],
        ["waits", "--format", "csv"],
        ["analyze", "--json", "--connection", "3"],
    ],
    ids=" ".join,
)
def test_a_capture_larger_than_the_memory(kind: str, command: list[str], tmp_path: Path) -> None:
    """As the operating system counts it."""
    capture = tmp_path / "large.pcap"
    apart(KINDS[kind].build, capture, 400_000_000)  # a process counts what the one before it held
    plain = [sys.executable, "-m", "grpcdiag", *command, str(capture)]
    assert run([*plain, "--memory", "300M"]).peak_bytes < 300_000_000
    outputs = [tmp_path / "plain", tmp_path / "memory"]
    for path, options in zip(outputs, ([], ["--memory", "300M"]), strict=True):
        with path.open("wb") as out:
            subprocess.run([*plain, *options], stdout=out, check=True)
    assert filecmp.cmp(*outputs, shallow=False)
    for path in (capture, *outputs):
        path.unlink()
