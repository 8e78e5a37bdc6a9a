"""`--memory SIZE`: the same output, temporary files that are gone however it ends, clear words when it cannot be."""

from __future__ import annotations

import csv
import filecmp
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support import PATIENCE_S, recorded, run_here

from grpcdiag.cli.support.options import LEAST_MEMORY, memory_size
from grpcdiag.fixtures.bench.floods import open_connections
from grpcdiag.fixtures.bench.kinds import KINDS
from grpcdiag.fixtures.bench.measure import apart, run

CAPTURE = "max-concurrent-streams-control.pcap"
LITTLE = """
import sys
from grpcdiag.analyzer.decode import rpc_columns, rpc_stream
from grpcdiag.cli.support import common, options, text_table
rpc_columns.IN_MEMORY, text_table.ROWS_AT_ONCE, text_table._Buffer.MOST = 5, 100, 1_000
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
    plain = run_here(*command, recorded(CAPTURE), env={"COLUMNS": "100"})
    process = little(*command, "--memory", "1GiB", recorded(CAPTURE), tmpdir=tmp_path)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err.decode()) == (plain.code, plain.out, plain.err)
    assert not list(tmp_path.iterdir())


def test_the_same_tables(tmp_path: Path) -> None:
    for folder, options in (("plain", []), ("memory", ["--memory", "1G"])):
        done = run_here("export", recorded(CAPTURE), "-o", str(tmp_path / folder), "--format", "csv", *options)
        assert done.code == 0, done.err
    plain = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    assert plain == {path.name: path.read_bytes() for path in (tmp_path / "memory").iterdir()}
    assert len(plain["rpcs.csv"].splitlines()) == 1001


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """Files may have no more than 1,000 bytes here."""
    also = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    also += "sys.dont_write_bytecode = True\n"  # Python would keep the first 1,000 bytes of a compiled module
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
    """The command waits for standard input that does not end, after it has written temporary files."""
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
    with pytest.raises(typer.BadParameter, match="is not a size"):
        memory_size(text)


@pytest.mark.parametrize("text", ["0", "1", "199M", "199999k"])
def test_too_little(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"the minimum is {LEAST_MEMORY // 1_000_000}M"):
        memory_size(text)


def test_wrong_sizes_are_wrong_usage() -> None:
    for size in ("much", "10M"):
        done = run_here("analyze", "--memory", size, recorded(CAPTURE))
        assert done.code == 2
        assert "--memory" in done.err


def test_more_than_is_allowed_is_told() -> None:
    """Of the memory that the command takes here a part is its own: what is allowed is lowered to less than that."""
    also = "options.memory_size = lambda text: 20_000_000"
    process = little("analyze", "--memory", "1G", recorded(CAPTURE), tmpdir=Path.cwd(), also=also)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "--memory is too small for this command and capture" in err.decode()


def connections(path: Path, count: int, payload: bytes) -> None:
    """A capture of as many connections, each of a SYN and, if there is any, payload."""
    octets = bytearray(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101))
    for nth in range(count):
        for flags, content in ((0x02, b""), (0x18, payload)):
            if flags == 0x02 or content:
                ends = struct.pack(">4s4sHH", (0x0A000000 + nth).to_bytes(4), bytes([10, 99, 0, 1]), 40_000, 50_051)
                tcp = struct.pack(">IIBBHHH", 7 + (flags != 0x02), 0, 0x50, flags, 65_535, 0, 0)
                ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(content), nth & 0xFFFF, 0, 64, 6, 0)
                octets += struct.pack("<IIII", 1_700_000_000 + nth // 10_000, nth % 10_000, *[40 + len(content)] * 2)
                octets += ip + ends + tcp + content
    path.write_bytes(octets)


MEASURED = """
import json, resource, subprocess, sys
command = [sys.executable, "-m", "grpcdiag", *sys.argv[1:]]
done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([done.returncode, peak, done.stderr.decode()]))
"""
"""Runs the command out of a small process: its peak counts what the one before it held."""


def peak_of(*command: str) -> tuple[int, int, str]:
    """Exit code, largest resident set in bytes, and what a command says on standard error."""
    told = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, check=True).stdout
    code, peak, said = json.loads(told)
    return code, peak, said


@pytest.fixture(scope="module")
def syns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flood") / "syns.pcap"
    connections(path, 120_000, b"")
    return path


@pytest.mark.parametrize("command", [["analyze", "--json"], ["connections", "--format", "csv"], ["packets"]])
def test_a_flood_of_connections_stays_below(command: list[str], syns: Path) -> None:
    """Of 120,000 SYNs 16,384 are listed, and the others counted."""
    code, peak, said = peak_of(*command, "--memory", "220M", str(syns))
    assert peak < 220_000_000
    if command[0] == "analyze":
        assert (code, "no HTTP/2 was seen on 120,000 TCP connections" in said) == (4, True), said
    else:
        assert code == 0, said
    if command[0] == "connections":
        assert "103,616 more connections carried no payload" in said


def test_scrub_reuses_the_memory_of_its_passes(tmp_path: Path) -> None:
    """It reads the capture eight times; 10,000 connections that are open at once cost some 200 MB each time."""
    capture = tmp_path / "open.pcap"
    capture.write_bytes(open_connections(10_000))
    code, peak, said = peak_of("scrub", str(capture), "-o", str(tmp_path / "scrubbed.pcap"))
    assert code == 0, said
    assert peak < 330_000_000


def test_packets_of_connections_without_a_row_are_listed(tmp_path: Path) -> None:
    capture, out = tmp_path / "syns.pcap", tmp_path / "packets.csv"
    connections(capture, 17_000, b"")
    assert run_here("packets", "--format", "csv", "-o", str(out), str(capture)).code == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["packet"] for row in rows] == [str(number) for number in range(1, 17_001)]
    assert [row["connection"] for row in rows] == [str(n) for n in range(16_384)] + [""] * (17_000 - 16_384)
    assert {row["flags"] for row in rows} == {"SYN"}


def test_a_command_ends_before_it_takes_more(tmp_path: Path) -> None:
    """Connections that carry something cost some 16 kB each, these 500 MB."""
    capture = tmp_path / "open.pcap"
    connections(capture, 30_000, b"PRI * HTTP/2.0")
    code, peak, said = peak_of("analyze", "--memory", "200M", str(capture))
    assert code == 2
    assert "--memory is too small for this command and capture" in said
    assert "connections may need" in said
    assert peak < 200_000_000


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
