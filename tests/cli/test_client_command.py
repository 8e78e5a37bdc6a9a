"""`analyze --client` and `--trace`: the JSON, what reports say, and what is refused."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from measured import find_capture, find_record, read_data
from support import RECORDED, recorded, run_here

from grpcdiag.fixtures.bench import floods
from grpcdiag.reports import analysis_json

VALIDATOR = jsonschema.Draft202012Validator(analysis_json.schema())
TRACE = "9f55110aec6ad1ea209e3440c86145fb"
GHZ = ["ghz-healthy", "ghz-stream-limit", "ghz-syn-lost"]


def record_of(name: str) -> str:
    return str(find_record(f"{name}.ghz.json.gz"))


def analyze(*arguments: str) -> dict[str, Any]:
    outcome = run_here("analyze", "--json", *arguments)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    VALIDATOR.validate(found)
    assert analysis_json.encode(analysis_json.read(outcome.out)) == outcome.text
    return found


@pytest.mark.parametrize("name", GHZ)
def test_the_rest_of_the_analysis_stays_what_it_is(name: str) -> None:
    with_client, without = analyze(find_capture(name), "--client", record_of(name)), analyze(find_capture(name))
    client = with_client.pop("client")
    assert client["calls"] == client["on_wire"] == without["totals"]["rpcs"]
    assert client["sources"] == [{"file": record_of(name), "format": "ghz", "calls": client["calls"]}]
    assert with_client["verdict"]["text"].endswith(without["verdict"]["text"])
    assert with_client | {"verdict": 0} == without | {"verdict": 0}


def test_the_verdict_begins_with_the_wait_where_it_is_most_of_the_time() -> None:
    def find_verdict(name: str) -> str:
        text: str = analyze(find_capture(name), "--client", record_of(name))["verdict"]["text"]
        return text

    limit = find_verdict("ghz-stream-limit")
    assert limit.startswith("Of 206 ms (p50) that the client measured, 172 ms pass before HEADERS leave: ")
    assert "while all 4 streams that connection 0 allows were open" in limit
    lost = find_verdict("ghz-syn-lost")
    assert lost.startswith("Of 21.5 s that the client's calls took, 16.7 s pass before HEADERS leave: 16 calls waited")
    assert find_verdict("ghz-healthy").startswith("No transport problem")


def test_several_records_of_one_capture(tmp_path: Path) -> None:
    """The record in two halves, as of two processes."""
    whole = json.loads(read_data("ghz-healthy.ghz.json.gz"))
    for number in (0, 1):
        half = {"options": whole["options"], "details": whole["details"][number::2]}
        (tmp_path / f"{number}.json").write_text(json.dumps(half))
    both = analyze(
        find_capture("ghz-healthy"), "--client", str(tmp_path / "0.json"), "--client", str(tmp_path / "1.json")
    )
    assert [source["calls"] for source in both["client"]["sources"]] == [150, 150]
    assert both["client"]["calls"] == 300 and both["client"]["never_on_wire"] == 0
    assert both["client"]["on_wire"] >= 290


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_reports_say_what_the_client_measured(form: str, tmp_path: Path) -> None:
    strange = tmp_path / "<b>\x1b[31mrun`|.json"
    strange.write_bytes(read_data("ghz-stream-limit.ghz.json.gz"))
    outcome = run_here("analyze", find_capture("ghz-stream-limit"), "--client", str(strange), "--format", form)
    text = outcome.text.lower()
    assert "what the client measured" in text
    for part in ("206 ms", "172 ms", "32.8 ms", "586 calls waited while all 4 streams", "clocks agree within"):
        assert part in " ".join(text.split()), part
    assert "\x1b" not in text
    assert form != "html" or "<b>" not in text
    assert form != "markdown" or str(tmp_path) not in text


def test_a_record_of_another_run_is_told_and_changes_no_verdict() -> None:
    arguments = (find_capture("ghz-healthy"), "--client", record_of("ghz-stream-limit"))
    assert analyze(*arguments)["verdict"] == analyze(find_capture("ghz-healthy"))["verdict"]
    text = run_here("analyze", *arguments).text
    assert "No call of the record fits an RPC of this capture: 640 calls, none joined." in text
    assert "never reached the wire" not in text


def test_the_front_leg_of_a_proxy_is_joined_by_ids() -> None:
    pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    record = str(find_record("otel-proxy.otlp.pb.gz"))
    front = analyze(find_capture("otel-proxy"), "--client", record)["client"]
    assert front["at_client"] and front["joined"] == {"exact": 240, "by_order": 0, "ambiguous": 0}


def test_a_server_s_capture_says_that_its_times_have_a_part_of_the_path(tmp_path: Path) -> None:
    capture = recorded("rtt205-go-16000.server.pcap")
    method = analyze(capture)["methods"][0]
    begin, end = method["first_start_time_ns"] - 300_000_000, method["last_end_time_ns"] + 300_000_000
    path = tmp_path / "calls.csv"
    path.write_text(f"start_ns,duration_ns,method,status\n{begin},{end - begin},Echo,OK\n")  # one call around the run
    assert not analyze(capture, "--client", str(path))["client"]["at_client"]
    text = run_here("analyze", capture, "--client", str(path)).text
    assert "The capture was not taken at the client" in " ".join(text.split())


def test_calls_to_a_server_that_never_answered(tmp_path: Path) -> None:
    """Without any RPC: the connection is refused, so the calls never reached the wire."""
    capture = str(RECORDED / "wild" / "connect-refused.pcap.zst")
    found = analyze(capture)
    start = found["capture"]["first_time_ns"] + 1_000_000
    path = tmp_path / "calls.csv"
    path.write_text(
        f"start_ns,duration_ns,method,status\n{start},2000000,/a.B/C,UNAVAILABLE\n{start},2000000,/a.B/C,OK\n"
    )
    client = analyze(capture, "--client", str(path))["client"]
    assert client["never_on_wire_statuses"] == {"UNAVAILABLE": 1}
    assert client["outside_capture"] == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\0\1\2", b"start_time,duration\n1,-1\n", b"start_time,duration\n", gzip.compress(b"", mtime=0)],
)
def test_what_is_no_record_ends_with_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd\x1b[2Jname"
    path.write_bytes(data)
    outcome = run_here("analyze", find_capture("ghz-healthy"), "--client", str(path))
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.count("\n") == 1 and outcome.err.startswith("grpcdiag: ") and "\x1b" not in outcome.err


def test_a_record_that_is_not_there_ends_with_one_line() -> None:
    outcome = run_here("analyze", find_capture("ghz-healthy"), "--client", "/nowhere/run.json")
    assert (outcome.code, outcome.err) == (
        3,
        "grpcdiag: /nowhere/run.json: cannot be read: No such file or directory\n",
    )


@pytest.mark.parametrize(
    "more", [("-c", "0"), ("--method", "Do"), ("--trace", TRACE), ("--format", "perfetto", "-o", "x")]
)
def test_the_client_is_compared_with_all_rpcs(more: tuple[str, ...]) -> None:
    outcome = run_here("analyze", find_capture("ghz-healthy"), "--client", record_of("ghz-healthy"), *more)
    assert outcome.code == 2
    assert "--client needs all RPCs" in outcome.err


# --trace


def test_a_trace_selects_its_rpcs() -> None:
    capture = find_capture("otel-retries")
    found = analyze(capture, "--trace", TRACE.upper())
    assert (found["totals"]["rpcs"], found["narrowed"]["trace_id"]) == (2, TRACE)
    rows = run_here("rpcs", capture, "--trace", TRACE, "--format", "jsonl").text.splitlines()
    assert [json.loads(row)["stream"] for row in rows] == [5, 21]
    drawn = run_here("timeline", capture, "--trace", TRACE).text
    assert "the 2 slowest RPCs of 190" in drawn and "stream 5" in drawn and "stream 21" in drawn


@pytest.mark.parametrize("command", ["analyze", "timeline"])
def test_a_trace_that_no_rpc_has(command: str) -> None:
    outcome = run_here(command, find_capture("otel-retries"), "--trace", "0" * 31 + "7")
    assert outcome.code == 2
    assert outcome.err.endswith("7; 190 of 190 RPCs have a traceparent\n")
    outcome = run_here(command, recorded("rtt205-go-16000.pcap"), "--trace", TRACE)
    assert outcome.err.endswith("; 0 of 5 RPCs have a traceparent\n")


@pytest.mark.parametrize("text", ["7", "g" * 32, TRACE + "0"])
def test_what_is_no_trace_id(text: str) -> None:
    outcome = run_here("rpcs", find_capture("otel-retries"), "--trace", text)
    assert outcome.code == 2
    assert "is not a trace-id" in outcome.err


# Extreme times


@pytest.mark.parametrize("name", sorted(floods.TIMES))
def test_extreme_times_of_captures_and_calls_do_not_go_round(name: str, tmp_path: Path) -> None:
    path = floods.write(name, tmp_path)
    usual = run_here("analyze", "--json", str(path))
    begin = json.loads(usual.out)["capture"]["first_time_ns"] or 0
    starts = [0, 1, 2**62 - 10**9, *(max(0, min(begin + step, 2**62 - 10**9)) for step in range(-3, 4))]
    rows = [f"{start},{10**9},,{status}" for start in starts for status in ("OK", "DEADLINE_EXCEEDED", "")]
    rows.append(f"0,{2**62},,OK")
    record = tmp_path / "calls.csv"
    record.write_text("\n".join(["start_ns,duration_ns,method,status", *rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = run_here("analyze", "--json", str(path), "--client", str(record))
    assert outcome.code == usual.code
    found = json.loads(outcome.out)
    VALIDATOR.validate(found)
    client = found["client"]
    assert client["on_wire"] + client["never_on_wire"] + client["outside_capture"] == client["calls"] == len(rows)
