"""TLS with and without its secrets: what is said without them does not contradict what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from support import RECORDED, recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.tls import TlsFacts
from grpcdiag.analyzer.summary import tls
from grpcdiag.analyzer.tables import COMPLETE, Tables
from grpcdiag.reports import analysis_json, terminal

FOLDER = RECORDED / "tls"
NAMES = ("slow-start", "warm", "churn")
VALIDATOR = jsonschema.Draft202012Validator(analysis_json.schema())


def tls_of(analysis: Analysis) -> tuple[TlsFacts, ...]:
    """Its TLS connections without secrets."""
    assert analysis.tls
    return analysis.tls.connections


def truth_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return found


def keys_of(name: str) -> bytes:
    return (FOLDER / f"{name}.keys").read_bytes()


def read(name: str) -> Tables:
    return decode([str(FOLDER / f"{name}.pcap")], keylog=keys_of(name))


def without(path: str) -> Analysis:
    """What is told of a capture without its secrets."""
    with pytest.raises(NoGrpcError) as told:
        analyze([path])
    assert told.value.analysis is not None
    return told.value.analysis


def unread(name: str) -> Analysis:
    return without(str(FOLDER / f"{name}.pcap"))


@pytest.mark.parametrize("name", NAMES)
def test_with_secrets_rpcs_last_as_long_as_their_client_says(name: str) -> None:
    """Requests of 32 kB lie in records of 16 kB over a dozen packets, and begin with the first of them."""
    tables, truth = read(name), truth_of(name)
    latencies = truth["latency_ms"]
    assert len(tables.rpcs.stream) == len(latencies)
    assert (tables.rpcs.flags & COMPLETE).all()
    assert (tables.rpc_budgets.sum(axis=1) == tables.rpcs.duration_ns).all()
    durations = sorted(zip(tables.rpcs.start_time_ns.tolist(), tables.rpcs.duration_ns.tolist(), strict=True))
    for number, ((_, ns), by_client) in enumerate(zip(durations, latencies, strict=True)):
        assert ns / 1e6 < by_client
        if number % truth["calls"]:  # a connection's first call waits for its handshakes, too
            assert by_client - ns / 1e6 < 1.0, f"call {number}"


def test_with_secrets_a_restarted_window_is_told_of_every_call() -> None:
    """Four of five calls took two round trips after idle time, by the client's clock."""
    analysis = analyze([str(FOLDER / "slow-start.pcap")], keylog=keys_of("slow-start"))
    found = next(f for f in analysis.findings if f.id == "slow-start-after-idle")
    assert found.metrics["bursts"] == sum(ms > 150 for ms in truth_of("slow-start")["latency_ms"][1:]) == 4
    assert analysis.verdict.finding == "slow-start-after-idle"
    assert not analysis.tls


def test_without_secrets_a_restarted_window_is_told_by_bytes_and_acks() -> None:
    analysis = unread("slow-start")
    found = next(f for f in analysis.findings if f.id == "slow-start-after-idle")
    assert (found.lost_ns, found.share, found.confidence, found.severity) == (None, None, "medium", "warning")
    assert found.scope.connections == (0,)
    assert 1 <= int(found.metrics["waits"]) <= 4, "a stop between two records is not proved to owe bytes"
    assert abs(int(found.metrics["median_wait_ns"]) - 100e6) < 2e6
    keyed = read("slow-start")
    stops = set(keyed.waits.stopped_at_packet.tolist())
    shown = [e.packet for e in found.evidence if "the sender stops" in e.what]
    assert shown
    assert set(shown) <= stops, "they are stops of the keyed analysis too"
    assert analysis.verdict.finding == "slow-start-after-idle"
    assert "--keylog" in analysis.verdict.text


def test_without_secrets_nothing_is_said_of_a_warm_connection() -> None:
    analysis = unread("warm")
    assert [finding.id for finding in analysis.findings] == ["capture-quality"]
    assert analysis.verdict.finding == "capture-quality"


def test_without_secrets_churn_is_told_with_low_confidence() -> None:
    analysis = unread("churn")
    found = next(f for f in analysis.findings if f.id == "connection-churn")
    assert (found.confidence, found.severity, found.lost_ns) == ("low", "warning", None)
    assert found.metrics["connections"] == truth_of("churn")["connections"]
    keyed = analyze([str(FOLDER / "churn.pcap")], keylog=keys_of("churn"))
    assert "connection-churn" in {finding.id for finding in keyed.findings}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_found_without_secrets_is_found_with_them(name: str) -> None:
    keyed = analyze([str(FOLDER / f"{name}.pcap")], keylog=keys_of(name))
    known = {finding.id for finding in keyed.findings}
    assert {finding.id for finding in unread(name).findings} - {"capture-quality"} <= known


@pytest.mark.parametrize("path", [str(FOLDER / f"{name}.pcap") for name in NAMES] + [recorded("tls13-go.pcap")])
def test_documents_without_rpcs_follow_the_schema(path: str) -> None:
    analysis = without(path)
    document = json.loads(analysis_json.render(analysis))
    VALIDATOR.validate(document)
    assert (document["totals"]["rpcs"], document["methods"], document["budget"]) == (0, [], {})
    assert {one["connection"] for one in document["tls"]["connections"]} == {
        one["connection"] for one in document["connections"]
    }
    text = terminal.render(analysis)
    assert "how to get the secrets" in text
    for implementation in ("grpc-go", "C++", "Python", "grpc-java", "grpc-js", "tonic", "grpc-dotnet"):
        assert f"\n  {implementation}" in text


def test_records_are_those_of_the_keyed_reading() -> None:
    """The answers of a connection with one call at a time are its calls and what the transport says besides."""
    one = tls_of(without(recorded("tls13-go.pcap")))[0]
    assert (one.version, one.cipher_suite, one.offers_h2, one.h2) == ("TLS 1.3", "0x1301", True, None)
    assert (one.resumed, one.retried) == (False, False)
    assert (one.hello_packet, one.finished_packet) == (4, 8), "as Wireshark shows them"
    assert (one.handshake_ns, one.server_hello_ns) == (1_800_000, 904_000)
    keyed = decode([recorded("tls13-go.pcap")], keylog=Path(recorded("tls13-go.keys")).read_bytes())
    assert (one.client.records, one.server.records) == (86, 101)
    # the bytes of the records are those of the segments but for headers, handshakes and tags
    assert one.client.bytes < int(keyed.connections.bytes_client[0])
    assert one.client.answers is not None
    assert one.server.answers is not None
    assert abs(one.client.answers.count - one.server.answers.count) <= 1, "turns alternate"
    span = int(keyed.connections.last_time_ns[0] - keyed.connections.first_time_ns[0])
    assert one.client.answers.total_ns + one.server.answers.total_ns + (one.handshake_ns or 0) <= span


def test_a_connection_that_is_read_has_no_records() -> None:
    tables = decode([recorded("tls13-go.pcap")], keylog=Path(recorded("tls13-go.keys")).read_bytes())
    assert tls.find_facts(tables) == ()
    assert len(tables.records.connection) == len(tables.record_waits.cause) == 0


def test_read_and_unread_connections_of_one_capture() -> None:
    """The key log of some connections: their RPCs are analysed, and the others told."""
    keys = keys_of("churn").splitlines(keepends=True)
    randoms = list(dict.fromkeys(line.split()[1] for line in keys))
    some = b"".join(line for line in keys if line.split()[1] in randoms[:4])
    analysis = analyze([str(FOLDER / "churn.pcap")], keylog=some)
    assert analysis.totals.rpcs == 4
    assert len(tls_of(analysis)) == 8
    document = json.loads(analysis_json.render(analysis))
    VALIDATOR.validate(document)
    assert len(document["tls"]["connections"]) == 8
    text = terminal.render(analysis)
    assert "8 TLS connections without secrets" in text
    assert "how to get the secrets" not in text, "where RPCs are read that is a note"
    assert not [f for f in analysis.findings if f.id == "connection-churn" and f.confidence == "low"]


def test_who_cannot_be_grpc() -> None:
    one = tls_of(unread("warm"))[0]
    assert one.may_be_grpc
    assert not replace(one, offers_h2=False).may_be_grpc, "a browser's http/1.1"
    assert not replace(one, h2=False).may_be_grpc
    assert replace(one, offers_h2=None).may_be_grpc, "no ALPN at all"
