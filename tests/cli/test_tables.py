"""The table commands: columns, types, formats that parse back to the same rows."""

from __future__ import annotations

import functools
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from support import REPOSITORY, recorded, run_here, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import tables_of
from grpcdiag.fixtures.bench import floods

# The columns that users may count on, in their order. More may stand between and behind them.
CONTRACT = {
    "connections": """connection client server opened_time_ns closed_time_ns handshake_rtt_ns min_rtt_ns vantage mss
        complete tls client_implementation server_implementation rpcs max_concurrent_rpcs peer_max_concurrent_streams
        packets_client packets_server bytes_client bytes_server retransmitted_packets missing_bytes""",
    "rpcs": """connection stream method start_time_ns duration_ns status request_messages response_messages
        request_bytes response_bytes first_packet last_packet complete budget""",
    "frames": """connection direction stream type flags length first_packet first_time_ns last_packet last_time_ns""",
    "messages": """connection stream direction index length compressed first_packet first_time_ns last_packet
        last_time_ns""",
    "waits": """connection stream direction start_time_ns duration_ns cause owed_bytes in_flight_bytes
        congestion_window_bytes receive_window_bytes stream_window_bytes connection_window_bytes stopped_at_packet
        released_by_packet resumed_at_packet""",
    "packets": "packet time_ns connection direction",
}
ROWS = {"connections": 1, "rpcs": 10, "frames": 231, "messages": 55, "packets": 119, "waits": None}
CAPTURE = "impl-go.pcap"


@functools.cache
def parquet(command: str, name: str = CAPTURE) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(run_here(command, recorded(name), "--format", "parquet").out))


@pytest.mark.parametrize("command", CONTRACT)
def test_contract_columns_in_their_order(command: str) -> None:
    frame, wanted = parquet(command), CONTRACT[command].split()
    assert [name for name in frame.columns if name in wanted] == wanted
    assert len(set(frame.columns)) == len(frame.columns)


@pytest.mark.parametrize("command", CONTRACT)
def test_types(command: str) -> None:
    """Durations and instants are 64-bit integers, sizes integers, names strings or enums."""
    for name, dtype in parquet(command, "rtt205-go-16000.pcap").schema.items():
        if name.endswith("_ns"):
            assert dtype == pl.Int64, name
        elif name.endswith(("_bytes", "_packets", "_packet")) or name in ("length", "stream", "connection", "packet"):
            assert dtype.is_integer(), name
        elif name in ("direction", "type", "status", "cause", "vantage", "method", "client", "server", "note"):
            assert dtype in (pl.String, pl.Enum, pl.Categorical), name
        elif name in ("complete", "tls", "compressed", "method_inferred"):
            assert dtype == pl.Boolean, name


@pytest.mark.parametrize("command", CONTRACT)
def test_jsonl_csv_and_parquet_hold_the_same(command: str) -> None:
    frame = parquet(command, "rtt205-go-16000.pcap")
    lines = run_here(command, recorded("rtt205-go-16000.pcap"), "--format", "jsonl").text.splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(json.dumps(row)) for row in frame.to_dicts()]
    text = run_here(command, recorded("rtt205-go-16000.pcap"), "--format", "csv").text
    csv = pl.read_csv(io.StringIO(text), infer_schema_length=None)
    flat = frame.unnest("budget") if "budget" in frame.columns else frame
    assert len(csv) == len(flat)
    for name in flat.columns:
        column = f"budget_{name}" if name in CAUSES and command == "rpcs" else name
        if flat[name].dtype.is_integer():
            assert csv[column].cast(pl.Int64).to_list() == flat[name].cast(pl.Int64).to_list(), name


@pytest.mark.parametrize("command", ["rpcs", "frames", "messages", "packets"])
def test_rows_are_all_there(command: str) -> None:
    truth = json.loads(Path(recorded(CAPTURE.replace(".pcap", ".truth.json"))).read_text())
    expected = {
        "rpcs": sum(truth["client_report"]["rpcs"].values()),
        "frames": sum(truth["raw_count"]["frames_by_type"].values()),
        "messages": truth["raw_count"]["grpc_messages_both_directions"],
        "packets": truth["captures"]["client"]["captured"],
    }
    assert len(parquet(command)) == expected[command]


def test_budgets_add_up_in_every_format() -> None:
    frame = parquet("rpcs")
    sums = [sum(row.values()) for row in frame["budget"].to_list()]
    assert sums == frame["duration_ns"].to_list()
    assert set(frame["budget"].to_list()[0]) == set(CAUSES)
    csv = pl.read_csv(io.StringIO(run_here("rpcs", recorded(CAPTURE), "--format", "csv").text))
    assert csv.select(pl.sum_horizontal(*(f"budget_{cause}" for cause in CAUSES))).to_series().to_list() == sums


def test_values_have_the_contracts_words() -> None:
    frames = parquet("frames")
    assert set(frames["direction"].to_list()) == {"client", "server"}
    assert set(frames["type"].to_list()) == {"DATA", "HEADERS", "SETTINGS", "PING", "GOAWAY", "WINDOW_UPDATE"}
    rpcs = parquet("rpcs", "rpc-errors.pcap")
    assert {"OK", "UNAUTHENTICATED", "FAILED_PRECONDITION"} <= set(rpcs["status"].to_list())
    assert set(rpcs["method"].to_list()) == {f"/lab.v1.Lab/{name}" for name in ("Do", "Down", "NoSuchMethod")}
    waits = parquet("waits", "rtt205-go-16000.pcap")
    assert set(waits["cause"].to_list()) <= set(CAUSES)


def test_what_is_not_known_is_null() -> None:
    rpcs = parquet("rpcs", "deadline-exceeded.pcap")
    assert rpcs["deadline_ns"].null_count() == 0
    assert parquet("rpcs")["deadline_ns"].dtype == pl.Int64
    late = run_here("connections", synthetic("begun_late").file, "--format", "jsonl")
    row = json.loads(late.text)
    assert (row["opened_time_ns"], row["handshake_rtt_ns"], row["complete"]) == (None, None, False)


def test_unknown_frame_types_have_a_name() -> None:
    found = run_here("frames", synthetic("unknown_frame").file, "--format", "jsonl").text.splitlines()
    assert any(re.fullmatch(r"UNKNOWN_0x[0-9a-f]{2}", json.loads(line)["type"]) for line in found)


@pytest.mark.parametrize(("limit", "rows"), [(1, 1), (5, 5), (0, 10), (100, 10)])
def test_limit(limit: int, rows: int) -> None:
    outcome = run_here("rpcs", recorded(CAPTURE), "--limit", str(limit))
    assert len(outcome.text.splitlines()) == 1 + rows
    assert ("more rows" in outcome.err) == (rows < 10)


def test_a_table_is_aligned() -> None:
    lines = run_here("rpcs", recorded(CAPTURE)).text.splitlines()
    start = lines[0].index("method")
    assert all(line[start] == "/" for line in lines[1:])
    assert all(line == line.rstrip() for line in lines)


def test_jsonl_is_streamed_whole() -> None:
    """More packets than one step of the decoder reads."""
    outcome = run_here("frames", recorded("ydb-unary-single-inflight1.pcap"), "--format", "csv")
    header, *lines = outcome.text.splitlines()
    assert header.startswith("connection,direction,stream,type")
    assert len(lines) == 9000 + 6000 + 4 + 14 + 9002


def test_the_contract_is_documented() -> None:
    page = REPOSITORY / "docs" / "tables.md"
    text = page.read_text()
    for command in CONTRACT:
        assert command in text


def failing(folder: Path) -> Path:
    """Calls on two connections that fail with texts of their own, between others that stay open."""
    flood = floods.Flood()
    for connection in (0, 1):
        flood.open(connection)
        flood.send(0, floods.request(1, b"/flood.Service/Open"), connection)
    for n in range(600):
        flood.call(
            2 * n + 3, b"/flood.Service/M", connection=n % 2, status=b"%d" % (n % 3 * 2), text=b"number %%23%d" % n
        )
    (folder / "failing.pcap").write_bytes(flood.pcap())
    return folder / "failing.pcap"


def test_texts_of_errors_are_shown_on_request_only(tmp_path: Path) -> None:
    """In the rows each with its own call, decoded; in the report as evidence and by number."""
    path = str(failing(tmp_path))
    shown = pl.read_csv(run_here("rpcs", path, "--format", "csv", "--show-messages").out)
    calls = shown.filter(pl.col("method") == "/flood.Service/M").sort("stream")["grpc_message"].to_list()
    assert calls == [f"number #{n}" for n in range(600)]
    assert shown.filter(pl.col("method") != "/flood.Service/M")["grpc_message"].to_list() == [None, None]
    for command in (("rpcs", "--format", "csv"), ("analyze", "--json"), ("analyze", "--format", "html")):
        assert not re.search(rb"number (#|%23)", run_here(command[0], path, *command[1:]).out)
    for threads in ("1", "2"):
        report = run_here("analyze", path, "--show-messages", env={"GRPCDIAG_THREADS": threads}).out
        assert b'Most frequent texts: "number #' in report.replace(b"\n  ", b"")
        assert b'stream 7): "number #2"' in b" ".join(report.split())


@pytest.mark.parametrize("threads", [1, 2])
def test_texts_of_errors_are_those_of_their_calls_whatever_thread_read_them(tmp_path: Path, threads: int) -> None:
    run = _core.Run([str(failing(tmp_path))], rpc_rows=True, errors=True, threads=threads)
    while run.step(1_000):
        pass
    tables = tables_of(run.finish())
    texts = dict(zip(tables.rpcs.stream.tolist(), tables.rpcs.grpc_message.tolist(), strict=True))
    assert {stream: tables.errors[text] for stream, text in texts.items() if stream > 1} == {
        2 * n + 3: f"number %23{n}" for n in range(600)
    }
