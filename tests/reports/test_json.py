"""The JSON of `analyze`: valid against the published schema, and consistent in itself, for every capture."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from msgspec.structs import replace
from support import budgeted, recorded, rows

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.summary import figures
from grpcdiag.analyzer.tables import BEGUN_BEFORE, COMPLETE, Frames, Messages, Tables
from grpcdiag.reports import analysis_json

HEADERS, END_STREAM = 1, 1
"""The larger type of those whose frames may end a stream, and their flag (RFC 9113 sections 6.1 and 6.2)."""
END, MS = 2, 1_000_000
"""The end of a request, where 0 and 1 are the directions of messages; nanoseconds of a millisecond."""
VALIDATOR = jsonschema.Draft202012Validator(analysis_json.schema())


def document(files: tuple[str, ...]) -> dict[str, Any]:
    """Through text, as a user gets it."""
    try:
        return read_back(analyze(files))
    except NoGrpcError as error:
        pytest.skip(f"no gRPC: {error}")


def read_back(analysis: Analysis) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(analysis_json.render(analysis))
    return loaded


def rank(ordered: list[int], share: float) -> int:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def test_connections_described_in_parts_are_those_described_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = decode([recorded("wild/connect-node-idle.pcap.zst")])
    whole = figures.connection_facts(tables)
    assert [one.connection for one in whole] == list(range(10))
    monkeypatch.setattr(figures, "_AT_ONCE", 3)  # the last part is shorter
    assert figures.connection_facts(tables) == whole


def test_the_schema_is_a_schema_and_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(analysis_json.schema())
    whole = document((recorded("rtt205-go-16000.pcap"),))
    for key in ("schema", "totals", "budget", "verdict", "connections", "methods", "findings", "quality", "capture"):
        assert list(VALIDATOR.iter_errors({k: v for k, v in whole.items() if k != key})), f"{key} may be left out"
    assert list(VALIDATOR.iter_errors(whole | {"schema": "grpcdiag.analysis/2"}))
    assert list(VALIDATOR.iter_errors(whole | {"budget": {"coffee": 1}}))
    assert list(VALIDATOR.iter_errors(whole | {"budget": {"client": 0.5}}))
    finding = whole["findings"][0]
    assert list(VALIDATOR.iter_errors(whole | {"findings": [finding | {"evidence": []}]}))
    assert list(VALIDATOR.iter_errors(whole | {"findings": [finding | {"severity": "horrible"}]}))


@pytest.mark.parametrize("total", [7, 2**63, 2**64 + 1])
def test_any_text_and_any_sum_come_back_from_ascii(total: int) -> None:
    analysis = analyze([recorded("rtt205-go-16000.pcap")])
    odd = replace(analysis, budget={"client": total}, files=("caf\u00e9 \x1b[31m \U0001f600 <script>.pcap",))
    text = analysis_json.render(odd)
    assert text.isascii()
    assert (json.loads(text)["files"], json.loads(text)["budget"]) == (list(odd.files), odd.budget)


def test_the_contracts_keys_are_there() -> None:
    whole = document((recorded("rtt205-go-16000.pcap"),))
    assert whole["schema"] == "grpcdiag.analysis/1"
    assert {"packets", "bytes", "first_time_ns", "last_time_ns", "link_types", "snaplen", "dropped_packets"} <= set(
        whole["capture"]
    )
    assert {"truncated_packets", "missing_bytes", "undecoded_bytes", "warnings"} <= set(whole["quality"])
    assert {"connections", "rpcs", "frames", "messages"} <= set(whole["totals"])
    assert {"text", "finding"} <= set(whole["verdict"])
    method = {"method", "rpcs", "latency_ns", "statuses", "messages", "messages_per_s", "turnaround_ns", "budget"}
    assert method <= set(whole["methods"][0])
    assert set(whole["methods"][0]["latency_ns"]) == {"min", "p50", "p90", "p99", "p999", "max", "mean"}
    finding = {"id", "title", "severity", "confidence", "scope", "lost_ns", "share", "metrics", "evidence"}
    assert finding | {"explanation", "remedies", "references"} <= set(whole["findings"][0])
    assert set(whole["findings"][0]["evidence"][0]) >= {"packet", "time_ns", "what"}
    assert set(whole["findings"][0]["remedies"][0]) >= {"implementation", "knob", "note"}
    columns = """connection client server opened_time_ns closed_time_ns handshake_rtt_ns min_rtt_ns vantage mss complete
        tls client_implementation server_implementation rpcs max_concurrent_rpcs peer_max_concurrent_streams
        packets_client packets_server bytes_client bytes_server retransmitted_packets missing_bytes"""
    assert set(columns.split()) <= set(whole["connections"][0])


def check_document(whole: dict[str, Any], files: tuple[str, ...]) -> None:
    """What holds for the document of any capture (`test_every_capture`)."""
    tables = budgeted(files)
    assert [f"{list(error.absolute_path)}: {error.message}" for error in VALIDATOR.iter_errors(whole)] == []
    check_sums(whole, tables)
    check_latencies(whole, tables)
    check_traffic(whole, rows(Messages, files))


def check_sums(whole: dict[str, Any], tables: Tables) -> None:
    """Budgets of methods, of connections and of the capture, and the durations of the RPCs, are one sum."""
    total = int(tables.rpcs.duration_ns.sum())
    assert sum(whole["budget"].values()) == total
    for cause, ns in whole["budget"].items():
        assert sum(method["budget"].get(cause, 0) for method in whole["methods"]) == ns
        assert sum(connection["budget"].get(cause, 0) for connection in whole["connections"]) == ns
    totals = whole["totals"]
    assert totals["rpcs"] == sum(method["rpcs"] for method in whole["methods"]) == len(tables.rpcs.stream)
    assert totals["rpcs"] == sum(connection["rpcs"] for connection in whole["connections"])
    assert totals["messages"] == tables.message_count
    assert totals["messages"] == sum(method["messages"] for method in whole["methods"])
    for method in whole["methods"]:
        assert sum(method["statuses"].values()) == method["rpcs"]
    for finding in whole["findings"]:
        if finding["lost_ns"] is not None:
            assert 0 < finding["lost_ns"] <= total
            assert finding["share"] == pytest.approx(finding["lost_ns"] / total)


def check_latencies(whole: dict[str, Any], tables: Tables) -> None:
    names = {m.number: (m.name, m.label) for m in tables.methods}
    by_name: dict[tuple[str | None, str | None], list[int]] = {}
    done = tables.rpcs.flags & (COMPLETE | BEGUN_BEFORE) == COMPLETE
    for number, ns in zip(tables.rpcs.method[done].tolist(), tables.rpcs.duration_ns[done].tolist(), strict=True):
        by_name.setdefault(names[number], []).append(ns)
    for method in whole["methods"]:
        ordered = sorted(by_name.get((method["method"], method["label"]), []))
        if not ordered:
            assert method["latency_ns"] is None
            continue
        assert method["latency_ns"] == {
            "min": ordered[0],
            "p50": rank(ordered, 0.5),
            "p90": rank(ordered, 0.9),
            "p99": rank(ordered, 0.99),
            "p999": rank(ordered, 0.999),
            "max": ordered[-1],
            "mean": sum(ordered) // len(ordered),
        }
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert method["latency_intervals_ns"][name] == ends(ordered, share), name


def ends(ordered: list[int], share: float) -> list[int | None]:
    """Between which values a quantile lies: their ranks leave it 2.5 % on either side at most, by the binomial."""
    count = len(ordered)
    logarithms = [
        math.lgamma(count + 1)
        - math.lgamma(below + 1)
        - math.lgamma(count - below + 1)
        + below * math.log(share)
        + (count - below) * math.log(1 - share)
        for below in range(count)
    ]
    up_to = np.cumsum(np.exp(logarithms))  # as many values as counted, or fewer, lie below the quantile
    low, high = np.flatnonzero(up_to <= 0.025), np.flatnonzero(up_to >= 0.975)
    return [ordered[low[-1]] if len(low) else None, ordered[high[0]] if len(high) else None]


def check_traffic(whole: dict[str, Any], messages: Any) -> None:
    """Packets, frames and messages of HTTP/2 connections, counted from their rows."""
    http2 = {c["connection"] for c in whole["connections"] if c["protocol"] == "http2"}
    for number, side in enumerate(("client", "server")):
        told = whole["traffic"][side]
        assert told["packets"] == sum(c[f"packets_{side}"] for c in whole["connections"] if c["connection"] in http2)
        assert told["payload_bytes"] == sum(
            c[f"bytes_{side}"] for c in whole["connections"] if c["connection"] in http2
        )
        assert told["messages"] == int((messages.direction == number).sum())
        assert told["message_bytes"] == int(messages.length[messages.direction == number].sum())
    sent = [whole["traffic"][side] for side in ("client", "server")]
    frames = whole["totals"]["frames"]
    assert sum(s["data_frames"] for s in sent) == frames.get("DATA", 0)
    assert sum(s["pings"] + s["ping_acks"] for s in sent) == frames.get("PING", 0)
    assert sum(s["window_updates"] for s in sent) == frames.get("WINDOW_UPDATE", 0)


def turnarounds(files: tuple[str, ...]) -> dict[int, list[int]]:
    """By stream: from a request message's last byte to the first byte of the next response message.

    Of several requests before one response the last counts, of several responses after one request the first. The
    request's END_STREAM counts as well if it comes later by more than 1 ms, and more than a round trip.
    """
    m, f = rows(Messages, files), rows(Frames, files)
    round_trips = budgeted(files).connections.near_server_rtt_ns
    events: dict[int, list[tuple[int, ...]]] = {}
    for stream, direction, first, last, packet in zip(
        m.stream.tolist(),
        m.direction.tolist(),
        m.first_time_ns.tolist(),
        m.last_time_ns.tolist(),
        np.where(m.direction == 0, m.last_packet, m.first_packet).tolist(),
        strict=True,
    ):
        events.setdefault(stream, []).append((packet, direction, first if direction else last))
    for row in np.flatnonzero((f.direction == 0) & (f.kind <= HEADERS) & (f.flags & END_STREAM != 0)).tolist():
        at = int(f.last_packet[row]), END, int(f.last_time_ns[row]), int(round_trips[f.connection[row]])
        events.setdefault(int(f.stream[row]), []).append(at)
    found: dict[int, list[int]] = {}
    for stream, listed in events.items():
        since: int | None = None
        for _, what, time_ns, *round_trip in sorted(listed):
            if what == 0:
                since = time_ns
            elif what == END:
                since = time_ns if since is not None and time_ns - since > max(*round_trip, MS) else since
            elif since is not None:
                found.setdefault(stream, []).append(time_ns - since)
                since = None
    return found


@pytest.mark.parametrize(
    "name", ["any", "ipv6", "impl-go", "impl-py", "rpc-errors", "rtt205-go-16000", "ydb-unary-single-inflight1"]
)
def test_turnarounds_against_the_messages(name: str) -> None:
    """Quantiles come from a histogram of three significant digits; least, most and mean are exact."""
    files = (recorded(f"{name}.pcap"),)
    tables, by_stream = budgeted(files), turnarounds(files)
    names = {m.number: m.name for m in tables.methods}
    samples: dict[str | None, list[int]] = {}
    for stream, number in zip(tables.rpcs.stream.tolist(), tables.rpcs.method.tolist(), strict=True):
        samples.setdefault(names[number], []).extend(by_stream.get(stream, []))
    for method in document(files)["methods"]:
        ordered = sorted(samples[method["method"]])
        told = method["turnaround_ns"]
        if not ordered:
            assert told is None
            continue
        assert (told["min"], told["max"], told["mean"]) == (ordered[0], ordered[-1], sum(ordered) // len(ordered))
        for key, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert told[key] == pytest.approx(rank(ordered, share), rel=0.002), (method["method"], key)


def test_rates_are_messages_by_time() -> None:
    files = (recorded("any.pcap"),)
    (method,), tables = document(files)["methods"], budgeted(files)
    start = tables.rpcs.start_time_ns
    span = int((start + tables.rpcs.duration_ns).max() - start.min())
    assert method["messages_per_s"] == pytest.approx(600 / (span / 1e9))


def test_text_is_ascii_and_ends_with_a_newline() -> None:
    text = analysis_json.render(analyze([recorded("impl-java.pcap")]))
    assert text.isascii()
    assert text.endswith("}\n")


def test_findings_come_by_time_lost() -> None:
    whole = document((recorded("rtt205-go-16000.pcap"),))
    lost = [finding["lost_ns"] or 0 for finding in whole["findings"]]
    assert lost == sorted(lost, reverse=True)
    assert np.isclose(whole["findings"][0]["share"], 0.40, atol=0.01)
