"""`grpcdiag export --format otlp`: spans of RPCs, read back by OpenTelemetry's own types and by `analyze --client`."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from measured import find_capture
from support import PATIENCE_S, as_polars, grpcdiag, recorded, run_here, synthetic
from test_hostile_names import NASTY, OBEYED

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.hops.look import find_legs
from grpcdiag.analyzer.views import span_data
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS
from grpcdiag.reports.otlp.spans import MOST_EVENTS
from grpcdiag.reports.tables import rows

WITH_IDS = [find_capture("otel-retries"), find_capture("otel-busy-client")]
WITHOUT_IDS = [
    find_capture("ghz-stream-limit"),
    recorded("rtt205-go-16000.pcap"),
    recorded("rtt205-go-16000.server.pcap"),
]
CAPTURES = [*WITH_IDS, *WITHOUT_IDS, recorded("rpc-errors.pcap"), synthetic("begun_late").file]
LIMIT = 1 << 20
"""The Collector's receiver of files cuts lines at 1 MiB."""

Span = dict[str, Any]


def export(capture: str, path: Path) -> list[Span]:
    """The spans of a capture as JSON, in order."""
    outcome = run_here("export", capture, "--format", "otlp", "-o", str(path))
    assert outcome.code == 0, outcome.err
    spans = list(read_lines(path.read_bytes()))
    assert outcome.err == f"grpcdiag: {path}: {len(spans):,} spans\n"
    return spans


def read_lines(data: bytes) -> Iterator[Span]:
    lines = data.splitlines(keepends=True)
    assert max(map(len, lines)) < LIMIT and all(line.endswith(b"\n") for line in lines)
    for line in lines:
        (resource,) = json.loads(line)["resourceSpans"]
        assert values(resource["resource"])["service.name"] == "grpcdiag"
        (scope,) = resource["scopeSpans"]
        assert scope["scope"]["name"] == "grpcdiag"
        yield from scope["spans"]


def values(span: Span) -> dict[str, Any]:
    found = {one["key"]: next(iter(one["value"].items())) for one in span["attributes"]}
    return {key: int(value) if kind == "intValue" else value for key, (kind, value) in found.items()}


def split(spans: list[Span]) -> tuple[list[Span], dict[str, list[Span]]]:
    """The spans of RPCs, and the others by the id of the span above them."""
    rpcs = [span for span in spans if span["kind"] != 1]
    children: dict[str, list[Span]] = {}
    for span in spans:
        if span["kind"] == 1:
            children.setdefault(span["parentSpanId"], []).append(span)
    return rpcs, children


def times(span: Span) -> tuple[int, int]:
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_rpc_is_a_span(capture: str, tmp_path: Path) -> None:
    spans = export(capture, tmp_path / "spans.json")
    found, _ = split(spans)
    tables = decode([capture])
    table = as_polars([rows.rpcs(tables)])
    assert len(found) == len(table)
    assert len({span["spanId"] for span in spans}) == len(spans)
    for span, rpc in zip(found, table.to_dicts(), strict=True):
        facts = values(span)
        assert span["traceId"] == rpc["trace_id"] or not rpc["trace_id"]
        assert span.get("parentSpanId") == rpc["span_id"]
        assert span["name"] == (rpc["method"] or "/grpc")[1:]
        start, end = times(span)
        if rpc["start_time_ns"] is not None:
            assert (start, end - start) == (rpc["start_time_ns"], rpc["duration_ns"])
            budget = {name: ns for name, ns in facts.items() if name.startswith("grpcdiag.budget.")}
            assert sum(budget.values()) == end - start
        assert facts.get("grpcdiag.begun_before", False) == rpc["begun_before"]
        assert facts["grpcdiag.complete"] == rpc["complete"]
        assert facts.get("rpc.method") == (rpc["method"] and span["name"])
        assert facts.get("rpc.response.status_code") == rpc["status"]
        client, server = tables.client(rpc["connection"]), tables.server(rpc["connection"])
        peer = f"{facts['network.peer.address']}:{facts['network.peer.port']}"
        assert (peer, span["kind"]) == ((client, 2) if facts["grpcdiag.vantage"] == "server" else (server, 3))
        assert f"{facts['server.address']}:{facts['server.port']}" == server


@pytest.mark.parametrize("capture", CAPTURES)
def test_blocked_intervals_lie_inside_their_rpc(capture: str, tmp_path: Path) -> None:
    found, children = split(export(capture, tmp_path / "spans.json"))
    of_stream = {(values(span)["grpcdiag.connection"], values(span)["grpcdiag.stream"]) for span in found}
    waits = as_polars([rows.waits(decode([capture]))], "waits")
    mine = waits.filter(
        pl.struct("connection", "stream").map_elements(lambda x: tuple(x.values()) in of_stream, pl.Boolean)
    )
    shown: Counter[str] = Counter()
    for span in found:
        (start, end), last = times(span), 0
        for child in sorted(children.get(span["spanId"], []), key=times):
            begin, stop = times(child)
            assert start <= begin < stop <= end
            assert child["traceId"] == span["traceId"]
            if "grpcdiag.stopped_at_packet" in values(child):
                shown[child["name"]] += stop - begin
            else:
                assert child["name"] == "server" and begin >= last
                assert stop - begin <= values(span)["grpcdiag.budget.server_ns"]
    sums = mine.group_by("cause").agg(pl.col("duration_ns").sum())
    assert shown == dict(sums.rows())


def test_the_captures_have_blocked_intervals_and_server_times(tmp_path: Path) -> None:
    _, children = split(export(WITHOUT_IDS[1], tmp_path / "spans.json"))
    assert Counter(span["name"] for some in children.values() for span in some)["congestion_window"] >= 5
    _, children = split(export(WITH_IDS[0], tmp_path / "others.json"))
    assert Counter(span["name"] for some in children.values() for span in some) == {"server": 190}


def test_server_time_is_what_the_server_took(tmp_path: Path) -> None:
    """A capture in the middle of the path knows how long the server took, and not exactly when."""
    conversation = opened()
    conversation.unary("/demo.Echo/Say", server_delay_ns=40 * MS)
    path = tmp_path / "run.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=conversation.rtt_ns).carry(conversation)))
    (rpc,), children = split(export(str(path), tmp_path / "spans.json"))
    (child,) = children[rpc["spanId"]]
    begin, end = times(child)
    assert child["name"] == "server"
    assert end - begin == pytest.approx(40 * MS, abs=MS)
    assert end - begin == values(rpc)["grpcdiag.budget.server_ns"]
    assert values(child)["grpcdiag.uncertainty_ns"] == pytest.approx(conversation.rtt_ns / 2, abs=MS)


@pytest.mark.parametrize("capture", [WITH_IDS[0], WITHOUT_IDS[1]])
def test_opentelemetry_reads_json_and_protobuf_alike(capture: str, tmp_path: Path) -> None:
    trace_pb2 = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    spans = export(capture, tmp_path / "spans.json")
    for suffix in (".pb", ".bin"):
        path = tmp_path / f"spans{suffix}"
        assert run_here("export", capture, "--format", "otlp", "-o", str(path), "-q").code == 0
        message = trace_pb2.TracesData.FromString(path.read_bytes())
        scopes = [scope for resource in message.resource_spans for scope in resource.scope_spans]
        assert {scope.scope.name for scope in scopes} == {"grpcdiag"}
        found = [span for scope in scopes for span in scope.spans]
        for span, text in zip(found, spans, strict=True):
            ids = {key: base64.b64encode(bytes.fromhex(text[key])).decode() for key in text if key.endswith("Id")}
            assert span == json_format.ParseDict({**text, **ids}, trace_pb2.Span())


@pytest.mark.parametrize("capture", [*WITH_IDS, *WITHOUT_IDS])
@pytest.mark.parametrize("suffix", ["json", "pb"])
def test_analyze_joins_every_exported_span_with_its_rpc(capture: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"spans.{suffix}"
    assert run_here("export", capture, "--format", "otlp", "-o", str(path), "-q").code == 0
    client = json.loads(run_here("analyze", capture, "--client", str(path), "--json").out)["client"]
    assert client["calls"] == client["on_wire"] > 0
    assert client["joined"] == {"exact": client["calls"], "by_order": 0, "ambiguous": 0}
    assert client["clock_offset_ns"] == {"least": 0, "most": 0}
    assert (client["before_wire_ns"]["max"], client["after_wire_ns"]["max"]) == (0, 0)


def test_spans_of_another_capture_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    export(WITHOUT_IDS[1], path)
    client = json.loads(run_here("analyze", WITHOUT_IDS[0], "--client", str(path), "--json").out)["client"]
    assert (client["calls"], client["on_wire"]) == (5, 0)


def test_the_leg_behind_a_proxy_is_below_the_leg_before_it(tmp_path: Path) -> None:
    capture = recorded("wild/hop-proxy-slow-a.pcap.zst")
    found, _ = split(export(capture, tmp_path / "spans.json"))
    legs = find_legs([capture])
    assert legs and (legs.parent >= 0).sum() > 10
    for span, parent in zip(found, legs.parent.tolist(), strict=True):
        if parent >= 0:
            assert (span["parentSpanId"], span["traceId"]) == (found[parent]["spanId"], found[parent]["traceId"])
    held = sum(values(span).get("grpcdiag.budget.proxy_ns", 0) for span in found)
    assert held == np.asarray(legs.tables.rpc_budgets).sum(axis=0)[13] > 0


def test_errors_follow_the_conventions_of_each_side(tmp_path: Path) -> None:
    found, _ = split(export(recorded("rpc-errors.pcap"), tmp_path / "spans.json"))
    statuses = Counter(values(span)["rpc.response.status_code"] for span in found)
    assert len(statuses) > 3
    for span in found:
        facts = values(span)
        status = facts["rpc.response.status_code"]
        by_server = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
        wrong = status in by_server if span["kind"] == 2 else status != "OK"
        assert span.get("status") == ({"code": 2} if wrong else None)
        assert facts.get("error.type") == (status if wrong else None)


def carry_pings(pings: int, folder: Path) -> str:
    conversation = opened()
    rpc = conversation.start_rpc("/demo.Echo/Say")
    for _ in range(pings):
        conversation.advance(MS)
        conversation.ping("client")
    conversation.settle()
    rpc.finish()
    path = folder / f"{pings}.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=conversation.rtt_ns).carry(conversation)))
    return str(path)


@pytest.mark.parametrize("pings", [0, MOST_EVENTS // 2, MOST_EVENTS // 2 + 1])
def test_events_are_bounded_and_the_others_counted(pings: int, tmp_path: Path) -> None:
    (span,), _ = split(export(carry_pings(pings, tmp_path), tmp_path / "spans.json"))
    events = span.get("events", [])
    assert len(events) == min(2 * pings, MOST_EVENTS)
    assert span.get("droppedEventsCount", 0) == max(0, 2 * pings - MOST_EVENTS)
    assert {event["name"] for event in events} == ({"PING", "PING ACK"} if pings else set())
    start, end = times(span)
    assert all(start <= int(event["timeUnixNano"]) <= end for event in events)


def test_events_beyond_the_first_ones_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_data, "MOST_EVENTS", 5)
    path = tmp_path / "spans.json"
    outcome = run_here("export", carry_pings(10, tmp_path), "--format", "otlp", "-o", str(path))
    (span,), _ = split(list(read_lines(path.read_bytes())))
    assert len(span["events"]) == 5
    assert "grpcdiag: 15 retransmissions and PINGs are left out: only the first ones become events\n" in outcome.err


def test_retransmissions_are_events_of_the_rpcs_that_they_happen_in(tmp_path: Path) -> None:
    capture = synthetic("loss-fires-response").file
    found, _ = split(export(capture, tmp_path / "spans.json"))
    packets = as_polars(rows.read_pieces([capture], "packets"), "packets").filter(pl.col("note") == "retransmission")
    assert len(packets) > 0
    for span in found:
        start, end = times(span)
        during = packets.filter(pl.col("time_ns").is_between(start, end))
        events = [event for event in span.get("events", []) if event["name"] == "retransmission"]
        assert [values(event)["grpcdiag.packet"] for event in events] == during["packet"].to_list()


def test_names_of_strangers_are_escaped(tmp_path: Path) -> None:
    conversation = opened()
    conversation.unary("/" + NASTY, status=13, message=NASTY, metadata=[(b"user-agent", NASTY.encode())])
    path = tmp_path / "names.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    spans = export(str(path), tmp_path / "spans.json")
    assert spans[0]["name"].startswith(r"\x1b[31mred")
    assert not OBEYED.search((tmp_path / "spans.json").read_text().replace("\n", ""))
    assert not any(OBEYED.search(str(value)) for span in spans for value in values(span).values())


def test_standard_input_and_output() -> None:
    data = Path(WITHOUT_IDS[1]).read_bytes()
    outcome = grpcdiag("export", "-", "--format", "otlp", "-o", "-", stdin=data)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == run_here("export", WITHOUT_IDS[1], "--format", "otlp").out
    assert len(split(list(read_lines(outcome.out)))[0]) == 5


def test_json_needs_no_package_and_protobuf_says_which(tmp_path: Path) -> None:
    """A module that is None in `sys.modules` cannot be imported."""
    program = "import sys; sys.modules['opentelemetry'] = sys.modules['google'] = None; sys.argv[1:] = {0!r}\n"
    program += "from grpcdiag.__main__ import run; sys.exit(run())"
    outcomes = []
    for name in ("spans.json", "spans.pb"):
        words = ["export", WITHOUT_IDS[1], "--format", "otlp", "-o", str(tmp_path / name)]
        command = [sys.executable, "-c", program.format(words)]
        outcomes.append(subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S))
    assert outcomes[0].returncode == 0, outcomes[0].stderr
    assert outcomes[1].returncode == 2
    assert "OTLP protobuf needs opentelemetry-proto: pip install 'grpcdiag[otlp]'" in outcomes[1].stderr
    assert [path.name for path in tmp_path.iterdir()] == ["spans.json"]


def test_what_is_refused_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    for capture, more, code in (
        (recorded("tls13-go.pcap"), (), 4),
        (__file__, (), 3),
        (WITHOUT_IDS[1], ("--table", "rpcs"), 2),
    ):
        assert run_here("export", capture, "--format", "otlp", "-o", str(path), *more).code == code
    refused = run_here("export", WITHOUT_IDS[1])
    assert (refused.code, refused.err) == (2, "grpcdiag: tables need a folder: name one with -o\n")
    refused = run_here("export", WITHOUT_IDS[1], "--format", "otlp", "-o", str(tmp_path))
    assert (refused.code, refused.err) == (2, f"grpcdiag: cannot write {tmp_path}: it is a folder\n")
    assert list(tmp_path.iterdir()) == []
