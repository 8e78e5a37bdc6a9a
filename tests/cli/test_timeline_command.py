"""`grpcdiag timeline`: its arguments, exit codes, and that one pass over a pipe is enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import grpcdiag, recorded, run_here

CAPTURE = recorded("rtt205-go-16000.pcap")


def test_a_stream_of_a_connection() -> None:
    outcome = run_here("timeline", CAPTURE, "--connection", "0", "--stream", "3")
    assert (outcome.code, outcome.err) == (0, "")
    assert "BLOCKED 205 ms: congestion_window" in outcome.text
    assert "\x1b" not in outcome.text


def test_standard_input_is_enough() -> None:
    piped = grpcdiag("timeline", "-", "-c", "0", stdin=Path(CAPTURE).read_bytes())
    assert piped.code == 0
    assert piped.text == run_here("timeline", CAPTURE, "-c", "0").text


@pytest.mark.parametrize(
    ("start", "end"), [("2.8", "3.1"), ("2.8s", "3.1s"), ("2800ms", "3100 ms"), ("2800000us", "3100000000ns")]
)
def test_times(start: str, end: str) -> None:
    outcome = run_here("timeline", CAPTURE, "-c", "0", "--from", start, "--to", end)
    assert outcome.code == 0
    assert "2.800000 s to 3.100000 s" in outcome.text
    assert "#45-54" in outcome.text
    assert "#69" not in outcome.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--connection"),
        (["-c", "1"], "there is no connection 1; the capture has 0 (10.77.0.1:55078 -> 10.77.0.2:50051)"),
        (["-c", "0", "-s", "4"], "connection 0 has no stream 4; it has 0, 1, 3, 5, 7, 9"),
        (["-c", "-1"], "-1"),
        (["-c", "0", "--from", "later"], "'later' is not a time"),
        (["-c", "0", "--from", "-1s"], "is not a time"),
        (["-c", "0", "--from", "2", "--to", "1999ms"], "--from is after --to"),
    ],
)
def test_wrong_usage_is_2_and_says_what_there_is(arguments: list[str], says: str) -> None:
    outcome = run_here("timeline", CAPTURE, *arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert says in outcome.err


def test_a_stream_outside_the_range_is_no_mistake() -> None:
    outcome = run_here("timeline", CAPTURE, "-c", "0", "-s", "9", "--to", "1s")
    assert outcome.code == 0
    assert "no packets with data in this range" in outcome.text


def test_no_grpc_is_4() -> None:
    outcome = run_here("timeline", recorded("tls13-go.pcap"), "-c", "0")
    assert (outcome.code, outcome.out) == (4, b"")
    assert "TLS" in outcome.err


def test_no_capture_is_3(tmp_path: Path) -> None:
    outcome = run_here("timeline", str(tmp_path / "missing.pcap"), "-c", "0")
    assert outcome.code == 3
    assert "No such file" in outcome.err


def test_output_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    assert run_here("timeline", CAPTURE, "-c", "0", "-o", str(path)).out == b""
    assert path.read_text() == run_here("timeline", CAPTURE, "-c", "0").text


@pytest.mark.parametrize("width", ["60", "100"])
def test_recorded_threads_have_a_lane_under_their_rpc(width: str) -> None:
    file = recorded("processes/cpu-quota.pcap.zst")
    lines = run_here("timeline", "--worst", "1", file, env={"COLUMNS": width}).text.splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith("  threads, client"))
    lane = "".join(lines[place : place + 2]).removeprefix("  threads, client").split()[0]
    assert lane.count("q") > 0.9 * len(lane) > 30
    assert any(re.match(r"what led to its sends: q throttled 63\.9 ms, r runnable", line) for line in lines)
    assert max(map(len, lines)) <= int(width)


def test_without_a_record_there_is_no_lane() -> None:
    assert "threads" not in run_here("timeline", "--worst", "1", CAPTURE).text
