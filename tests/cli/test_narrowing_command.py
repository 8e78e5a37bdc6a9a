"""`analyze` and `timeline` of a part of the RPCs: arguments, exit codes, the JSON, and what refuses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import grpcdiag, recorded, recording, run_here

from grpcdiag.analyzer.selection.selection import WallTime, after_first
from grpcdiag.cli.support.options import moment
from grpcdiag.reports import analysis_json

RTT205 = recorded("rtt205-go-16000.pcap")
JAVA = recorded("impl-java.pcap")
VALIDATOR = jsonschema.Draft202012Validator(analysis_json.schema())


def document(*arguments: str) -> dict[str, Any]:
    outcome = run_here("analyze", "--json", *arguments)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    VALIDATOR.validate(found)
    return found


def test_the_json_says_what_was_narrowed() -> None:
    whole = document(RTT205)
    assert "narrowed" not in whole
    part = document(RTT205, "--from", "2s", "--to", "5s", "-c", "0", "--method", "Echo")
    narrowed = part["narrowed"]
    assert narrowed["connections"] == [0]
    assert (narrowed["method"], narrowed["from_ns"], narrowed["to_ns"]) == ("Echo", 2 * 10**9, 5 * 10**9)
    assert (narrowed["rpcs"], narrowed["of_rpcs"]) == (2, 5)
    assert part["totals"]["rpcs"] == part["methods"][0]["rpcs"] == part["connections"][0]["rpcs"] == 2
    assert narrowed["rpc_time_ns"] == sum(part["budget"].values())
    assert narrowed["of_rpc_time_ns"] == sum(whole["budget"].values())
    assert part["capture"] == whole["capture"]


@pytest.mark.parametrize("begin", ["02:27:11.622432", "02:27:11.622432000Z", "2026-11-21T02:27:11.622432Z"])
def test_times_by_the_clock_are_times_after_the_first_packet(begin: str) -> None:
    """The capture begins at 02:27:09.622432 UTC."""
    selected = ("--from", begin, "--to", "02:27:15"), ("--from", "2s", "--to", "5.377568s")
    by_clock, after = (document(RTT205, *options)["narrowed"] for options in selected)
    assert by_clock == after
    assert after["rpcs"] == 2
    tables = (run_here("waits", RTT205, *options, "--format", "csv").text for options in selected)
    assert len(set(tables)) == 1
    drawn = (run_here("timeline", RTT205, "-c", "0", *options).text for options in selected)
    assert len(set(drawn)) == 1


@pytest.mark.parametrize(
    ("first", "time", "after"),
    [("10:00:00", "10:00:01", 1), ("10:00:00", "09:00", -3600), ("23:59:00", "00:01", 120), ("14:00", "02:00", 43_200)],
)
def test_a_time_of_day_is_on_the_day_of_the_first_packet_or_on_the_next(first: str, time: str, after: int) -> None:
    wanted = moment(time)
    assert isinstance(wanted, WallTime)
    begin = moment(f"2026-11-21T{first}")
    assert isinstance(begin, WallTime)
    assert after_first(wanted, begin.ns) == after * 10**9
    assert after_first(begin, begin.ns - 5) == 5


def test_the_terminal_says_it_too() -> None:
    text = run_here("analyze", RTT205, "--to", "2s").text
    assert "selected: 1 of 5 RPCs (20.0% of RPC time), starting to 2 s; packets, bytes and notes" in " ".join(
        text.split()
    )
    assert "narrowed" not in run_here("analyze", RTT205).text


def test_markdown_says_it_and_what_draws_whole_captures_refuses(tmp_path: Path) -> None:
    text = run_here("analyze", RTT205, "--to", "2s", "--format", "markdown").text
    assert "Selected: 1 of 5 RPCs" in text.replace("\\", "")
    for name in ("html", "perfetto"):
        outcome = run_here("analyze", RTT205, "--to", "2s", "--format", name, "-o", str(tmp_path / name))
        assert outcome.code == 2
        assert "shows whole captures" in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--connection", "3"], "there is no connection 3; the capture has 1, numbered from 0"),
        (["--method", "/none"], "no method matches '/none'; the capture has /lab.v1.Lab/Echo"),
        (["--from", "100"], "none of 5 RPCs is selected"),
        (["--from", "2", "--to", "1"], "--from is after --to"),
        (["--from", "soon"], "'soon' is not a time"),
        (["--from", "24:00"], "'24:00' is not a time in UTC"),
        (["--from", "2026-02-30T10:00"], "is not a time in UTC"),
        (["--from", "10:00.5"], "is not a time in UTC"),
        (["--from", "2026-11-21T02:27:12Z", "--to", "2026-11-21 02:27:11.9"], "--from is after --to"),
        (["--connection", "-1"], "-1"),
        (["--top", "0"], "0"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], says: str) -> None:
    outcome = run_here("analyze", RTT205, *arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert says in outcome.err


def test_captures_of_both_ends_are_not_narrowed() -> None:
    client, server = recording("rtt205-go-16000").files[0], recording("rtt205-go-16000", "server").files[0]
    outcome = run_here("analyze", client, server, "--to", "3")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "two places" in outcome.err


def test_pieces_of_one_capture_are() -> None:
    found = document(*recording("rotated").files, "--to", "100ms")
    assert 0 < found["narrowed"]["rpcs"] < found["narrowed"]["of_rpcs"] == 3000


def test_standard_input_is() -> None:
    piped = grpcdiag("analyze", "-", "--to", "3", stdin=Path(RTT205).read_bytes())
    assert piped.code == 0
    assert "2 of 5 RPCs" in piped.text


def test_a_part_is_not_compared(tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    assert run_here("analyze", "--json", RTT205, "--to", "3", "-o", str(part)).code == 0
    outcome = run_here("compare", RTT205, str(part))
    assert outcome.code in (2, 3)
    assert "it covers selected RPCs only" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((RTT205, "--fail-on", "critical"), 1),
        ((RTT205, "--fail-on", "warning"), 1),
        ((RTT205, "--fail-on", "info"), 1),
        ((JAVA, "--fail-on", "critical"), 0),
        ((JAVA, "--fail-on", "warning"), 0),
        ((JAVA, "--fail-on", "info"), 1),
        ((JAVA, "--fail-on", "info", "--method", "Echo"), 0),
        ((RTT205, "--fail-on", "critical", "--from", "2"), 1),
        ((RTT205, "--fail-on", "warning", "--json"), 1),
    ],
    ids=str,
)
def test_fail_on_judges_what_is_told(arguments: tuple[str, ...], code: int) -> None:
    outcome = run_here("analyze", *arguments)
    assert outcome.code == code
    assert outcome.out, "the report is written all the same"


def test_top_bounds_findings_methods_and_connections() -> None:
    ydb = recording("ydb-unary-multi-inflight8").files[0]
    text = run_here("analyze", ydb, "--top", "2").text
    assert "... and 6 more connections" in text
    java = run_here("analyze", JAVA, "--top", "1").text
    assert "... and 4 more methods" in java
    errors = run_here("analyze", recording("too-many-pings").files[0], "--top", "1").text
    assert "1. warning too-many-pings" in errors
    assert "2. warning" not in errors
    assert "... and 1 more finding\n  warning connection-closed-early" in errors


def test_the_slowest_rpcs() -> None:
    text = run_here("timeline", RTT205, "--worst", "2").text
    assert text.startswith("the 2 slowest RPCs of 5\n\n1. 411 ms /lab.v1.Lab/Echo OK; connection 0, stream ")
    assert text.count("BLOCKED 205 ms: congestion_window") == 2
    assert text.count("\n2. ") == 1


def test_the_slowest_rpcs_are_those_of_the_rpcs_table() -> None:
    ydb = recording("ydb-unary-multi-inflight8").files[0]
    listed = run_here("rpcs", "--format", "jsonl", ydb).text.splitlines()
    longest = sorted((json.loads(line) for line in listed), key=lambda row: -row["duration_ns"])[:5]
    text = run_here("timeline", ydb, "--worst", "5").text
    heads = [line for line in text.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.")]
    wanted = [f"connection {row['connection']}, stream {row['stream']}" for row in longest]
    assert [head.split("; ")[1] for head in heads] == wanted
    of_one = run_here("timeline", ydb, "--worst", "1", "-c", "3").text
    first = max((json.loads(line) for line in listed if '"connection":3,' in line), key=lambda row: row["duration_ns"])
    assert f"connection 3, stream {first['stream']}" in of_one


def test_the_slowest_of_a_method_and_a_time() -> None:
    text = run_here("timeline", JAVA, "--worst", "3", "--method", "/lab.v1.Lab/Down").text
    assert text.startswith("the slowest RPC of 10")
    assert "/lab.v1.Lab/Down" in text.splitlines()[2]
    early = run_here("timeline", RTT205, "--worst", "9", "--to", "3").text
    assert early.startswith("the 2 slowest RPCs of 5")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--worst", "0"], "0"),
        (["--worst", "2", "--stream", "3"], "use --stream only with --connection"),
        (["--worst", "2", "--method", "None"], "no method matches 'None'"),
        (["--worst", "2", "-c", "9"], "there is no connection 9"),
        (["-c", "0", "--method", "Echo"], "--method needs --worst"),
    ],
)
def test_wrong_usage_of_worst_is_2(arguments: list[str], says: str) -> None:
    outcome = run_here("timeline", RTT205, *arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert says in outcome.err


def test_worst_needs_a_file() -> None:
    piped = grpcdiag("timeline", "-", "--worst", "1", stdin=b"")
    assert (piped.code, piped.out) == (2, b"")
    assert "reads the capture twice" in piped.err


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_as_wide_as_columns_says(columns: int) -> None:
    for command in (("analyze", RTT205), ("timeline", RTT205, "-c", "0")):
        lines = run_here(*command, env={"COLUMNS": str(columns)}).text.splitlines()
        assert max(map(len, lines)) <= columns
        assert max(map(len, lines)) > columns - 8
