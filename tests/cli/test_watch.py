"""`grpcdiag watch`: lines of JSON, the flight recorder, the terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE_S, recorded, require_tool, run_here
from terminals import Terminal

from grpcdiag.capture import tcpdump
from grpcdiag.capture.errors import RecordingError

FILE = Path(recorded("rpc-errors.pcap"))
WATCH = [sys.executable, "-m", "grpcdiag", "watch"]


def watch(*words: str, stream: bytes) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[bytes]]:
    done = subprocess.run([*WATCH, "--json", "-", *words], input=stream, capture_output=True, timeout=PATIENCE_S)
    assert b"Traceback" not in done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done


def totals(path: Path) -> Any:
    return json.loads(run_here("analyze", "--json", str(path)).text)


def test_a_stream_is_reported_and_the_moment_is_written(tmp_path: Path) -> None:
    """One condition is met and another is not; the capture tells what the stream tells."""
    out = tmp_path / "flight"
    triggers = ["--trigger", "status=failed rate > 0%", "--trigger", "p99(/no.Such/*) > 1us"]
    intervals, done = watch("-o", str(out), "--keep", "1h", *triggers, stream=FILE.read_bytes())
    assert done.returncode == 0, done.stderr
    last, whole = intervals[-1], totals(FILE)
    assert last["packets"] == whole["capture"]["packets"]
    assert [one["id"] for one in last["findings"]] == [one["id"] for one in whole["findings"]]
    assert {one["method"] for one in last["methods"]} == {one["method"] for one in whole["methods"]}
    assert all(met.startswith("status=failed rate > 0%: ") for one in intervals for met in one["met"])
    (written,) = [text for one in intervals for text in one["written"]]
    (file,) = out.glob("*.pcapng")
    assert written.startswith(f"{file}: ")
    again = totals(file)
    assert (again["totals"], again["methods"]) == (whole["totals"], whole["methods"])
    assert b"grpcdiag watch: status=failed rate > 0%" in file.read_bytes()
    assert out.stat().st_mode & 0o777 == 0o700 and file.stat().st_mode & 0o777 == 0o600
    assert sum(path.stat().st_size for path in out.glob("ring-*.pcap")) >= FILE.stat().st_size


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--json", "--trigger", "p99 > 1", "-o", "x"], 2, "--trigger 'p99 > 1' is not a trigger: write p99 > 50ms"),
        (["--json", "--trigger", "finding:info"], 2, "name their folder with -o"),
        (["--json", "--keep", "1x"], 2, "'1x' is not what to keep"),
        (["--json", "--filter", "no filter"], 2, "filter"),
        (["--json", "-i", "no-such-if"], 2, "no interface has the name 'no-such-if'"),
        (["run.pcap"], 2, "for a file use grpcdiag analyze"),
        ([], 2, "watch draws on a terminal: use --json elsewhere"),
    ],
)
def test_wrong_usage(words: list[str], code: int, why: str) -> None:
    done = run_here("watch", *words)
    assert (done.code, why in done.err) == (code, True), done.err


def test_what_is_no_capture() -> None:
    _, done = watch(stream=b"GET / HTTP/1.1\r\n\r\n" * 10)
    assert done.returncode == 3
    assert b"standard input: " in done.stderr


def test_q_ends_it_and_the_terminal_is_as_before() -> None:
    require_tool("tcpdump")
    try:
        running = tcpdump.Tcpdump(
            tcpdump.arguments(tcpdump.find(), interface="lo", expression="less 1", output="-", buffer_kib=1024)
        )
        running.listen()
        running.stop()
    except RecordingError as error:
        pytest.skip(f"tcpdump may not record here: {error}")
    with Terminal([*WATCH, "-i", "lo", "-p", "1"]) as terminal:
        before = termios.tcgetattr(terminal.leader)
        terminal.read_until("by method")
        assert termios.tcgetattr(terminal.leader) != before
        terminal.type("xq")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(terminal.leader) == before
