"""Records of clients in all formats: what is read from them, and that what is no record is refused in one sentence."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest
from measured import read_data

from grpcdiag.analyzer.measured import otlp_protobuf
from grpcdiag.analyzer.measured.read import read_record
from grpcdiag.analyzer.measured.record import MOST_BYTES, Call, Record, RecordError, parse_method, parse_status

NOON = 1_795_348_800 * 10**9
"""2026-11-22T12:00:00Z."""
SPANS = ["otlp.jsonl.gz", "base64ids.otlp.jsonl.gz", "otlp.pb.gz", "bare.otlp.pb.gz", "jaeger.json.gz"]
RECORDS = [
    *(f"otel-busy-client.{form}" for form in SPANS),
    "ghz-healthy.ghz.json.gz",
    "ghz-healthy.csv.gz",
    "otel-retries.otlp.pb",
]


def read(name: str) -> Record:
    if ".pb" in name:
        pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    return read_record(read_data(name))


def ghz(*rows: dict[str, Any], call: str = "a.v1.B.C") -> bytes:
    return json.dumps({"options": {"call": call, "host": "h:1"}, "details": list(rows)}).encode()


def span(**changed: Any) -> dict[str, Any]:
    usual = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "a.B/C",
        "kind": 3,
        "startTimeUnixNano": str(NOON),
        "endTimeUnixNano": str(NOON + 5),
        "attributes": [{"key": "rpc.system", "value": {"stringValue": "grpc"}}],
    }
    return usual | changed


def otlp(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def by_span(call: Call) -> int:
    return call.span


@pytest.mark.parametrize("form", SPANS[1:])
def test_all_forms_of_the_same_spans_say_the_same(form: str) -> None:
    usual = read("otel-busy-client.otlp.jsonl.gz").calls
    found = read(f"otel-busy-client.{form}").calls
    unit = 1_000 if "jaeger" in form else 1  # Jaeger cuts off at microseconds
    for one, other in zip(sorted(usual, key=by_span), sorted(found, key=by_span), strict=True):
        assert (one.trace, one.span, one.method, one.status) == (other.trace, other.span, other.method, other.status)
        assert other.start_ns == one.start_ns // unit * unit
        assert 0 <= one.end_ns - other.end_ns < 2 * unit


def test_the_times_of_ghz_are_ends() -> None:
    row = {
        "timestamp": "2026-11-22T17:30:00.25+05:30",
        "latency": 250_000_001,
        "status": "DeadlineExceeded",
        "error": "x",
    }
    found = read_record(ghz(row))
    assert found == Record("ghz", [Call(NOON - 1, NOON + 250_000_000, "/a.v1.B/C", "DEADLINE_EXCEEDED")], "h:1")
    assert not read_record(ghz(row, row | {"timestamp": "2026-11-22T12:00:00"})).has_zone


def test_k6() -> None:
    data = {
        "time": "2026-11-22T12:00:00.0125Z",
        "value": 12.5,
        "tags": {"service": "a.B", "method": "C", "status": "14"},
    }
    lines = [
        {"type": "Metric", "metric": "grpc_req_duration", "data": {"name": "grpc_req_duration"}},
        {"type": "Point", "metric": "iterations", "data": {"time": "x", "value": "y"}},
        {"type": "Point", "metric": "grpc_req_duration", "data": data},
    ]
    found = read_record("\n".join(map(json.dumps, lines)).encode())
    assert found == Record("k6", [Call(NOON, NOON + 12_500_000, "/a.B/C", "UNAVAILABLE")])


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("start_time,duration,method,status", "2026-11-22T12:00:00Z,0.5,/a.B/C,OK"),
        ("start_time,duration,method,status", "2026-11-22 12:00:00Z,500ms,a.B/C,0"),
        ("start_time,duration,method,status", f"{NOON},500000000,a.B.C,StatusCode.OK"),
        ("start_time,duration,method,status", f"{NOON // 10**6},500,a.B.C,ok"),
        ("start_ns,duration_ms,Method,Status", f"{NOON},500.0,/a.B/C,OK"),
        ("start_time_unix_nano,end_time_unix_nano,rpc,code", f"{NOON},{NOON + 5 * 10**8},/a.B/C,0"),
        ("timestamp,latency_us,method,status", "2026-11-22T12:00:00+00:00,5e5,/a.B/C,OK"),
    ],
)
def test_csv_in_several_units(header: str, row: str) -> None:
    found = read_record(f"{header},trace_id,span_id\r\n{row},0x{5:032x},{7:016x}\r\n\r\n".encode())
    assert found == Record("csv", [Call(NOON, NOON + 5 * 10**8, "/a.B/C", "OK", 5, 7)])


@pytest.mark.parametrize(("trace", "span"), [("", "0" * 15 + "7"), ("0" * 31 + "5", "")])
def test_csv_with_ids_that_are_too_long_is_refused(trace: str, span: str) -> None:
    """A trace has 32 hexadecimal digits, a span 16 (W3C Trace Context section 3.2.2)."""
    head = "start_time,duration,trace_id,span_id\n1,2,"
    (call,) = read_record(f"{head}{trace},{span}\n".encode()).calls
    assert (call.trace, call.span) == (5 if trace else 0, 7 if span else 0)
    with pytest.raises(RecordError, match=f"is not an id of {32 if trace else 16} hexadecimal digits"):
        read_record(f"{head}{trace and '0' + trace + '0'},{span and '0' + span + '0'}\n".encode())


@pytest.mark.parametrize("name", [name for name in RECORDS if ".json" in name])
@pytest.mark.parametrize("before", [b"\n", b"\n\n  "])
def test_json_after_a_line_feed_is_read(name: str, before: bytes) -> None:
    """A line feed is also the first octet of OTLP protobuf."""
    assert read_record(before + read_data(name)).format == read_record(read_data(name)).format


def test_a_list_after_a_line_feed_is_json() -> None:
    with pytest.raises(RecordError) as error:
        read_record(b"\n[1]")
    assert "protobuf" not in str(error.value)


@pytest.mark.parametrize("length", [0x5B, 0x7B])
def test_protobuf_whose_length_is_a_bracket_is_read(length: int) -> None:
    """Its first two octets are a line feed and `[` or `{`."""
    key, value = b"\x0a\x03key", b"v" * (length - 13)
    value = b"\x12" + bytes([len(value) + 2]) + b"\x0a" + bytes([len(value)]) + value
    data = key + value
    for _ in range(3):
        data = b"\x0a" + bytes([len(data)]) + data
    assert data[1] == length
    assert otlp_protobuf.looks_like(data)


def test_ids_in_base64_are_those_in_hexadecimal() -> None:
    raw = bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes.fromhex("b7ad6b7169203331")
    text = [base64.b64encode(one).decode() for one in raw]
    assert read_record(otlp(span())).calls == read_record(otlp(span(traceId=text[0], spanId=text[1]))).calls


def test_only_spans_of_grpc_clients_are_calls() -> None:
    others = [span(kind=2, spanId="00000000000000aa"), span(attributes=[], spanId="00000000000000bb")]
    new = [
        {"key": "rpc.system.name", "value": {"stringValue": "grpc"}},
        {"key": "rpc.response.status_code", "value": {"stringValue": "ABORTED"}},
    ]
    found = read_record(otlp(span(kind="SPAN_KIND_CLIENT", attributes=new), *others))
    assert [(call.method, call.status) for call in found.calls] == [("/a.B/C", "ABORTED")]


def test_attempts_are_part_of_their_call() -> None:
    """As gRPC's own plugins write them (gRFC A72): the wire has the ids of the attempts."""
    sent = span(name="Sent.a.B/C", attributes=[], status={"code": 2, "message": "UNAVAILABLE, down"})
    tries = [
        span(name="Attempt.a.B/C", kind=1, attributes=[], spanId=f"{number:016x}", parentSpanId=sent["spanId"])
        for number in (1, 2)
    ]
    inner = span(name="Attempt.other.B/C", attributes=[], spanId=f"{3:016x}", parentSpanId=sent["spanId"])
    calls = read_record(otlp(*tries, sent, inner)).calls
    assert [(call.method, call.status, sorted(call.attempts)) for call in calls] == [
        ("/a.B/C", "UNAVAILABLE", [1, 2]),
        ("/other.B/C", None, []),
    ]


def test_spans_that_are_each_other_s_parents_end() -> None:
    one, two = span(parentSpanId="00000000000000aa"), span(spanId="00000000000000aa", parentSpanId="b7ad6b7169203331")
    assert read_record(otlp(one, two)).calls == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("OK", "OK"),
        ("NotFound", "NOT_FOUND"),
        ("Canceled", "CANCELLED"),
        ("4", "DEADLINE_EXCEEDED"),
        ("17", None),
        ("", None),
    ],
)
def test_statuses(text: str, name: str | None) -> None:
    assert parse_status(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("a.B.C", "/a.B/C"), ("/a.B/C", "/a.B/C"), ("C", "C"), ("/", None), ("", None)]
)
def test_methods(text: str, name: str | None) -> None:
    assert parse_method(text) == name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is not ghz JSON"),
        (b"\0" * 64, "it is not ghz JSON"),
        (b"{}", "it is not ghz JSON"),
        (b"{", "not readable, perhaps cut"),
        (b'{"details":' + b"[" * 100_000, "not readable"),
        (b'{"details":[{"timestamp":7,"latency":1}]}', "Expected `str`, got `int`"),
        (ghz({"timestamp": "2026-11-22T12:00:00Z", "latency": -1}), "call 1: the duration is negative"),
        (
            ghz({"timestamp": "0001-01-01T00:00:00Z", "latency": 1}),
            "call 1: the time is not between the years 1970 and 2116",
        ),
        (ghz({"timestamp": "2026-11-22T12:00:00Z", "latency": 10**30}), "the time is not between"),
        (ghz({"timestamp": "2026-02-30T12:00:00Z", "latency": 1}), "is not a time that exists"),
        (ghz({"timestamp": "\x1b[31mnoon", "latency": 1}), r"call 1: '\x1b[31mnoon' is not a time such as"),
        (otlp(span(traceId="xyz")), "span 1: 'xyz' is not an id of 16 octets"),
        (otlp(span(startTimeUnixNano="-5")), "span 1: '-5' is not a time in nanoseconds"),
        (otlp(span(endTimeUnixNano="5")), "span 1: the duration is negative"),
        (otlp(span()) + b'\n{"resourceSpans":[{', "line 2 is not readable, perhaps cut"),
        (b"start_time,duration\n5,-3\n", "line 2: '-3' is negative"),
        (b"start_time,duration\n5\n", "line 2: '' is not a number"),
        (b'start_time,duration\n"5,3\n', "line 2: unexpected end of data"),
        (b"duration (ms),status,error\n5,OK,\n", "names no start_time and duration"),
        (b"\x28\xb5\x2f\xfd\0\0", "zstd"),
        (gzip.compress(b"start_time,duration\n" * 99)[:-9], "gzip: the file is cut"),
    ],
    ids=range(21),
)
def test_what_is_no_record_is_refused(data: bytes, message: str) -> None:
    assert_refused(data, message)


def test_a_record_that_is_too_large_is_refused() -> None:
    """Made here: it takes a second."""
    assert_refused(gzip.compress(bytes(MOST_BYTES + 1), 1), "it is larger than 256 MiB")


def assert_refused(data: bytes, message: str) -> None:
    with pytest.raises(RecordError) as error:
        read_record(data)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_members_of_gzip_are_read_one_after_the_other() -> None:
    """RFC 1952 section 2.2."""
    data = gzip.compress(b"start_time,duration\n5,3\n") + gzip.compress(b"6,3\n")
    assert len(read_record(data).calls) == 2


def test_cut_protobuf_is_refused() -> None:
    pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    whole = read_data("otel-retries.otlp.pb")
    with pytest.raises(RecordError, match="the file ends inside the message at offset 0"):
        read_record(whole[:5_000])
    with pytest.raises(RecordError, match="offset 0 is not OTLP protobuf"):
        read_record(whole[4:5_000])


@pytest.mark.parametrize("name", RECORDS)
def test_changed_records_are_read_or_refused(name: str) -> None:
    whole = read(name) and read_data(name)[:20_000]
    rng = np.random.default_rng(11)
    for _ in range(60):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 5):
            data[place] = rng.integers(0, 256)
        try:
            calls = read_record(bytes(data)).calls
        except RecordError:
            continue
        assert all(0 <= call.start_ns <= call.end_ns <= 2**62 for call in calls)
