"""`connect-failure`: connections that failed before they could carry an RPC."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from detecting import evidence_is_in_the_packets, found, the_finding
from judging import changed, must
from msgspec.structs import replace
from support import recorded, run_here, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import connect_failure as detector
from grpcdiag.analyzer.facts import attempts
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.summary import figures
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import in_time_order
from grpcdiag.fixtures.synthetic.noise import icmp_error
from grpcdiag.fixtures.synthetic.packet import ACK, FIN, SYN, Captured
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_connect import METHOD, answer, beside, packet, refuse, shake_hands
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, RTT_NS, START_NS

FIRES_ON = ["wild/connect-refused", "wild/connect-dead-first", "wild/connect-v6-first", "wild/rolling-restart-ok"]
QUIET_ON = ["impl-go", "wild/connect-settings-slow", "wild/connect-dns-slow", "wild/nginx-goaway50"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
CLIENT_HELLO = bytes.fromhex("16030100f8010000f40303") + bytes(241)
S = 1_000 * MS


def file_of(folder: Path, packets: Sequence[Captured]) -> str:
    path = folder / "attempts.pcap"
    path.write_bytes(write_pcap(packets))
    return str(path)


def test_a_refused_connection_is_reported_without_rpcs() -> None:
    """ghz opened two connections to a port without a listener, and reported the refusal."""
    path = recorded("wild/refused.pcap.zst")
    outcome = run_here("analyze", path, "--json")
    analysis = json.loads(outcome.text)
    assert outcome.code == 4
    assert analysis["verdict"]["finding"] == "connect-failure"
    assert [connection["server"] for connection in analysis["connections"]] == ["10.91.3.2:8020"] * 2
    finding = the_finding(detector, [path])
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert finding.metrics["refused_attempts"] == 2
    assert "2 attempts (by client 10.91.3.1)" in finding.verdict


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grpcio-to-web-page", '127.0.0.1:8111 answered the HTTP/2 preface with a web page: "<!DOCTYPE HTML>"'),
        ("grpcio-to-redis", """127.0.0.1:7007 answered the HTTP/2 preface as Redis: "-ERR unknown command 'PRI'"""),
        ("grpc-go-no-alpn", "127.0.0.1:7001 selected no ALPN protocol although the client offers h2"),
        ("grpcio-no-alpn", "127.0.0.1:9443 selected no ALPN protocol although the client offers h2"),
        ("grpcio-tls-to-cleartext", "127.0.0.1:8113 answered the ClientHello with HTTP/2 in the clear"),
        ("grpcio-cleartext-to-tls", "127.0.0.1:8112 closed the connection (FIN) after the HTTP/2 preface"),
        ("grpcio-untrusted-certificate", "the client closed at once without finishing it"),
        ("haproxy-tcp-no-backend", "attempts (by client 127.0.0.1): it closes what it accepts, as a proxy without a"),
        ("haproxy-tcp-no-backend", "127.0.0.1:7011 closed the connection (FIN) before the HTTP/2 preface"),
    ],
)
def test_a_set_up_that_fails_behind_the_handshake_of_tcp(name: str, words: str) -> None:
    """Not the refusal of `::1` that comes before: the client went on with the next address."""
    path = recorded(f"wild/{name}.pcap.zst")
    analysis = json.loads(run_here("analyze", path, "--json").text)
    assert analysis["verdict"]["finding"] == "connect-failure"
    assert words in analysis["verdict"]["text"]
    assert "secrets" not in analysis["verdict"]["text"]
    assert "--keylog" not in run_here("rpcs", path).err
    finding = the_finding(detector, [path])
    assert finding.severity == "critical"


def test_a_title_counts_the_attempts_that_it_names() -> None:
    finding = the_finding(detector, [recorded("wild/grpcio-cleartext-to-tls.pcap.zst")])
    assert finding.title.startswith("1 connection attempt failed: 127.0.0.1:8112 closed the connection")
    assert finding.title.endswith("; 1 more failed at another address or in another way")
    assert finding.metrics["attempts"] == 2


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("tls-client-certificate", "rejected", "it may want a client certificate"),
        ("tls-untrusted", "abandoned", "certificate"),
    ],
)
def test_an_end_that_refuses_the_other_in_tls_1_3(name: str, kind: str, words: str) -> None:
    """A server that wants the client's certificate, and a client that does not trust the server's.

    Of that client's three connections the server closed two first, so their end may be its doing.
    """
    path = recorded(f"wild/{name}.pcap.zst")
    finding = the_finding(detector, [path])
    assert finding.severity == "critical"
    assert finding.metrics[f"{kind}_attempts"] == finding.metrics["attempts"]
    assert words in finding.verdict
    assert len(finding.verdict.split()) <= 30
    assert words in json.loads(run_here("analyze", path, "--json").text)["verdict"]["text"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grpc-go-no-alpn-tls13", "selected no ALPN protocol although the client offers h2"),
        (
            "grpc-go-no-certificate",
            "refused the client for lack of a certificate (TLS alert 116, certificate_required)",
        ),
    ],
)
def test_secrets_show_who_refused(name: str, words: str) -> None:
    keys = Path(recorded(f"wild/{name}.keys")).read_bytes()
    (finding,) = detector.detect(decode([recorded(f"wild/{name}.pcap.zst")], keylog=keys), detector.Limits())
    assert isinstance(finding, Finding)
    assert words in finding.verdict
    assert finding.confidence == "high"


def test_without_secrets_a_client_that_refused_may_have_had_two_reasons() -> None:
    finding = the_finding(detector, [recorded("wild/grpc-go-no-alpn-tls13.pcap.zst")])
    assert finding.metrics["no_request_attempts"] == 2
    assert finding.confidence == "medium"
    assert "ALPN or the certificate" in finding.verdict


def test_a_client_that_speaks_what_the_server_selected_is_not_refused() -> None:
    assert found(detector, [recorded("wild/curl-http1-chosen.pcap.zst")]) is None


@pytest.mark.parametrize(("column", "value"), [("records", 2), ("bytes", 41)])
def test_a_client_that_sent_more_than_an_alert_had_spoken(column: str, value: int) -> None:
    tables = decode([recorded("wild/grpcio-no-alpn.pcap.zst")])
    more = changed(tables, "records", **{column: np.full(len(tables.records.records), value)})
    kinds = {attempts.KINDS[kind] for kind in attempts.find_failures(more, S).kind.tolist()}
    assert kinds == {"refused"}  # of the other address


def test_a_client_that_closes_long_after_the_handshake_refused_nothing() -> None:
    tables = decode([recorded("wild/grpcio-no-alpn.pcap.zst")])
    late = changed(tables, "connections", closed_time_ns=tables.connections.closed_time_ns + 2 * S)
    assert "no_alpn" not in [attempts.KINDS[kind] for kind in attempts.find_failures(late, S).kind.tolist()]


def test_a_client_that_was_silent_in_the_handshake_was_held_up() -> None:
    """Not one that refused the certificate: it closes at once."""
    tables = decode([recorded("wild/tls-untrusted.pcap.zst")])
    late = changed(tables, "connections", closed_time_ns=tables.connections.closed_time_ns + 10 * S)
    (finding,) = detector.detect(late, detector.Limits())
    assert isinstance(finding, Finding)
    assert finding.metrics["paused_attempts"] == finding.metrics["attempts"]
    assert "closed after 10.0 s of silence" in finding.verdict
    assert "trust" not in finding.verdict


def test_a_server_that_answers_health_checks_with_another_status_gets_no_calls() -> None:
    path = recorded("wild/grpc-go-health-unknown.pcap.zst")
    verdict = json.loads(run_here("analyze", path, "--json").text)["verdict"]
    assert verdict["finding"] == "connect-failure"
    assert "answers health checks with SERVICE_UNKNOWN" in verdict["text"]
    tables = decode([path])
    assert tables.setups.health_packet.tolist() == [15]
    serving = changed(tables, "setups", health=np.ones(1, dtype=np.uint8))
    assert not list(detector.detect(serving, detector.Limits()))


@pytest.mark.parametrize(("apart_ns", "fires"), [(100 * MS, True), (101 * MS, False)])
def test_an_address_that_refuses_beside_one_that_works(apart_ns: int, fires: bool) -> None:
    """Another port of the same client: of the same channel only where both were tried at once."""
    tables = decode([recorded("wild/grpc-go-one-address-dead.pcap.zst")])
    times = tables.connections.first_time_ns.copy()
    times[1] = times[0] + apart_ns
    findings = list(detector.detect(changed(tables, "connections", first_time_ns=times), detector.Limits()))
    assert bool(findings) == fires
    for finding in findings:
        assert isinstance(finding, Finding)
        assert finding.severity == "info"
        assert "127.0.0.1:7012 refused" in finding.title


@pytest.mark.parametrize(("records", "fires"), [(1, True), (2, False)])
def test_a_server_that_sent_more_than_an_alert_had_spoken_http2(records: int, fires: bool) -> None:
    tables = decode([recorded("wild/tls-client-certificate.pcap.zst")])
    server = tables.records.direction == 1
    more = changed(tables, "records", records=np.where(server, records, tables.records.records))
    assert bool(list(detector.detect(more, detector.Limits()))) == fires


@pytest.mark.parametrize(("closed_by", "later_ns", "fires"), [(1, 0, True), (0, 0, False), (1, 2_000_000_000, False)])
def test_an_alert_behind_the_client_s_end_or_later_says_goodbye(closed_by: int, later_ns: int, fires: bool) -> None:
    tables = decode([recorded("wild/tls-client-certificate.pcap.zst")])
    c = tables.connections
    other = changed(
        tables,
        "connections",
        closed_by=np.full(len(c.closed_by), closed_by),
        closed_time_ns=c.closed_time_ns + later_ns,
    )
    assert bool(list(detector.detect(other, detector.Limits()))) == fires


def test_a_server_that_answers_the_client_s_goodbye_rejected_nothing() -> None:
    tables = decode([recorded("wild/tls-client-certificate.pcap.zst")])
    r = tables.records
    of_client = r.direction == 0
    assert of_client.any()
    goodbye = changed(
        tables, "records", records=np.where(of_client, 1, r.records), bytes=np.where(of_client, 19, r.bytes)
    )
    assert not list(detector.detect(goodbye, detector.Limits()))


def test_tls_that_carried_anything_is_no_failure() -> None:
    assert found(detector, [recorded("tls13-go.pcap")]) is None


@pytest.mark.parametrize("name", FIRES_ON)
def test_a_port_that_works_later_is_info(name: str) -> None:
    path = recorded(f"{name}.pcap.zst")
    finding = the_finding(detector, [path])
    assert finding.severity == "info"
    assert "A later connection to the same port succeeded." in finding.explanation


def test_a_server_that_is_gone_is_a_warning() -> None:
    capture = synthetic("connect-failure-fires")
    finding = the_finding(detector, [capture.file])
    assert (finding.severity, finding.metrics["attempts"]) == ("warning", 2)
    assert "from 1.001 s to 2.001 s of the capture" in finding.explanation


@pytest.mark.parametrize(("later", "severity"), [(False, "warning"), (True, "info")])
def test_an_older_connection_that_is_still_open_is_no_later_success(tmp_path: Path, later: bool, severity: str) -> None:
    """The first connection carries a call at the end of the capture; a later one may answer the SYN."""
    conv = opened()
    conv.unary(METHOD)
    conv.advance(3 * S)
    conv.unary(METHOD)
    again = shake_hands(START_NS + 2 * S, 41_001) if later else []
    packets = [*Link().carry(conv), *refuse(START_NS + S, 41_000), *again]
    finding = the_finding(detector, [file_of(tmp_path, in_time_order(packets))])
    assert finding.severity == severity
    assert ("A later connection" in finding.explanation) == later


@pytest.mark.parametrize(
    ("request_", "response", "kind", "says"),
    [
        (PREFACE, b"HTTP/1.1 400 Bad Request\r\n\r\n", "http1", "in HTTP/1.1 with status 400"),
        (CLIENT_HELLO, b"HTTP/1.0 400 Bad Request\r\n\r\n", "http1", "the ClientHello in HTTP/1.1 with status 400"),
        (CLIENT_HELLO, bytes.fromhex("15030300020228"), "alert", "TLS alert 40 (handshake_failure)"),
        (CLIENT_HELLO, bytes.fromhex("15030300020278"), "alert", "TLS alert 120, no_application_protocol)"),
        (PREFACE, bytes.fromhex("15030100020246"), "alert", "the HTTP/2 preface with TLS alert 70 (protocol_version)"),
        (PREFACE, b"", "closed", "closed the connection (RST) after the HTTP/2 preface and sent nothing"),
        (CLIENT_HELLO, b"", "closed", "closed the connection (RST) after the ClientHello and sent nothing"),
    ],
)
def test_ways_to_fail(tmp_path: Path, request_: bytes, response: bytes, kind: str, says: str) -> None:
    path = file_of(tmp_path, answer(START_NS, 41_000, request_, response))
    finding = the_finding(detector, [path])
    assert (finding.severity, finding.metrics["attempts"]) == ("critical", 1)
    assert finding.metrics[f"{kind}_attempts"] == 1
    assert says in finding.explanation
    evidence_is_in_the_packets(finding, [path])


def test_an_attempt_fails_in_one_way(tmp_path: Path) -> None:
    """A client that gets HTTP/2 in the clear for its ClientHello may send an alert (10, unexpected_message)."""
    path = file_of(tmp_path, answer(START_NS, 41_000, CLIENT_HELLO, bytes.fromhex("000000040000000000")))
    tables = changed(decode([path]), "setups", alert=[10], alert_by=[0], alert_packet=[6], alert_time_ns=[START_NS])
    finding = must(detector, tables)
    assert (finding.metrics["attempts"], finding.metrics["cleartext_attempts"]) == (1, 1)
    assert "alert_attempts" not in finding.metrics


def test_other_answers_are_no_failure(tmp_path: Path) -> None:
    settings = bytes.fromhex("000000040000000000")
    assert found(detector, [file_of(tmp_path, answer(START_NS, 41_000, PREFACE, settings))]) is None
    assert found(detector, [file_of(tmp_path, answer(START_NS, 41_000, b"SSH-2.0-x\r\n", b"SSH-2.0-y\r\n"))]) is None


@pytest.mark.parametrize(
    ("code", "says"),
    [(1, "10.0.0.9 reports host unreachable (ICMP type 3 code 1)"), (13, "prohibited (ICMP type 3 code 13)")],
)
def test_an_icmp_error_for_a_syn_counts_at_once(tmp_path: Path, code: int, says: str) -> None:
    syn = packet(START_NS, 41_000, SYN)
    path = file_of(tmp_path, [syn, icmp_error(syn, MS, code)])
    finding = the_finding(detector, [path])
    assert (finding.severity, finding.metrics["unreachable_attempts"]) == ("critical", 1)
    assert says in finding.verdict
    assert [e.packet for e in finding.evidence] == [1, 2]


def test_errors_of_different_words_are_told_apart(tmp_path: Path) -> None:
    """The first attempt fails for want of a route, two later ones at a firewall; the first error is recorded twice."""
    syns = [packet(START_NS + number * S, 41_000 + number, SYN) for number in range(3)]
    errors = [icmp_error(syn, MS, code) for syn, code in zip(syns, (1, 13, 13), strict=True)]
    again = Captured(errors[0].time_ns + MS // 100, errors[0].data)
    path = file_of(tmp_path, in_time_order([*syns, *errors, again]))
    finding = the_finding(detector, [path])
    assert finding.metrics["unreachable_attempts"] == 3
    assert "type 3 code 13) in 2 attempts" in finding.verdict
    assert "host unreachable (ICMP type 3 code 1) (1 attempt, client 10.0.0.1)" in finding.explanation
    tables = decode([path])
    assert tables.icmp_errors.messages.tolist() == [1, 1, 1]
    more = replace(tables, capture={**tables.capture, "icmp_errors_not_listed": 7})
    assert "7 ICMP errors are more than are reported" in figures.quality(more).warnings


def test_two_reports_about_one_attempt_are_named(tmp_path: Path) -> None:
    syn = packet(START_NS, 41_000, SYN)
    path = file_of(tmp_path, [syn, icmp_error(syn, MS, 1), icmp_error(syn, 2 * MS, 13)])
    finding = the_finding(detector, [path])
    assert finding.metrics["attempts"] == 1
    assert "host unreachable (ICMP type 3 code 1) and 10.0.0.9 reports communication" in finding.title
    assert [shown.packet for shown in finding.evidence] == [1, 2, 3]


def test_an_icmp_error_about_another_connection_or_the_size_is_none(tmp_path: Path) -> None:
    syn = packet(START_NS, 41_000, SYN)
    other, large = icmp_error(packet(START_NS, 41_001, SYN), MS, 1), icmp_error(syn, MS, 4, mtu=1_400)
    answer_ = icmp_error(packet(START_NS, 41_000, SYN | ACK, from_server=True), MS, 1)
    assert found(detector, [file_of(tmp_path, [syn, other, large, answer_])]) is None


def test_an_icmp_error_before_the_syn_is_answered_is_none(tmp_path: Path) -> None:
    syn, *rest = shake_hands(START_NS, 41_000)
    assert found(detector, [file_of(tmp_path, [syn, icmp_error(syn, MS // 100, 1), *rest])]) is None


def test_a_firewall_that_answers_for_the_server(tmp_path: Path) -> None:
    """Recorded at the client: a rule of the router rejects the port."""
    path = recorded("wild/icmp-rejected.pcap.zst")
    analysis = json.loads(run_here("analyze", path, "--json").text)
    assert analysis["verdict"]["finding"] == "connect-failure"
    assert "10.71.1.1 reports communication administratively prohibited" in analysis["verdict"]["text"]
    evidence_is_in_the_packets(the_finding(detector, [path]), [path])


@pytest.mark.parametrize(("after_ns", "fires"), [(S - MS, False), (S, True)])
def test_a_syn_without_an_answer_counts_after_a_second(tmp_path: Path, after_ns: int, fires: bool) -> None:
    """The capture goes on with a port check."""
    packets = [packet(START_NS, 41_000, SYN), *shake_hands(START_NS + after_ns - RTT_NS, 41_001)]
    finding = found(detector, [file_of(tmp_path, packets)])
    assert (finding is not None) == fires
    if finding:
        assert (finding.metrics["unanswered_attempts"], finding.confidence) == (1, "high")


def test_nothing_but_syns_proves_little(tmp_path: Path) -> None:
    """Without a packet of any server the capture may have one direction only."""
    finding = the_finding(detector, [file_of(tmp_path, [packet(START_NS + s * S, 41_000, SYN) for s in (0, 1, 3)])])
    assert (finding.metrics["unanswered_attempts"], finding.confidence) == (1, "low")
    assert "3 SYNs in all" in finding.explanation


@pytest.mark.parametrize("payload", [PREFACE, CLIENT_HELLO])
@pytest.mark.parametrize(("waited_ns", "fires"), [(S - MS, False), (S + 10 * MS, True)])
def test_a_silent_server_counts_after_a_second(tmp_path: Path, waited_ns: int, fires: bool, payload: bytes) -> None:
    """The path may have dropped its certificate, which fills packets; SETTINGS do not."""
    asked = START_NS + 2 * RTT_NS
    packets = [
        *shake_hands(START_NS, 41_000),
        packet(asked, 41_000, ACK, payload=payload),
        packet(asked + waited_ns, 41_000, FIN | ACK),
    ]
    finding = found(detector, [file_of(tmp_path, packets)])
    assert (finding is not None) == fires
    if finding:
        assert finding.metrics["silent_attempts"] == 1
        assert finding.verdict.endswith("or the path drops full-size packets.") == (payload == CLIENT_HELLO)


def test_other_ports_do_not_count_beside_grpc(tmp_path: Path) -> None:
    elsewhere = [packet_to(port, *refuse(START_NS + S, 41_000)) for port in (50051, 5432)]
    assert [found(detector, [file_of(tmp_path, beside(packets).packets)]) is None for packets in elsewhere] == [
        False,
        True,
    ]


def packet_to(port: int, *packets: Captured) -> list[Captured]:
    """The packets with another port of the server; checksums are not read."""
    old, new = (50051).to_bytes(2, "big"), port.to_bytes(2, "big")
    return [
        Captured(packet.time_ns, packet.data[:34] + packet.data[34:38].replace(old, new) + packet.data[38:])
        for packet in packets
    ]


def test_every_kind_is_described() -> None:
    tables = decode([recorded("wild/refused.pcap.zst")])
    assert {*detector.ADVICE, "alert"} == set(detector.REMEDIES) == set(attempts.KINDS)
    for kind in attempts.KINDS:
        assert attempts.describe(tables, 0, kind)
    assert len(_core.BEGINNINGS) == 8
    assert np.array_equal(attempts.find_grpc_ports(tables), [])


def test_names_without_an_address_where_no_connection_was_opened() -> None:
    """The questions of a resolver that all ended with NXDOMAIN, two of them made unanswered."""
    tables = decode([recorded("wild/connect-dns-nxdomain.pcap.zst")])
    empty = {
        name: type(table)(*[getattr(table, field)[:0] for field in table.__struct_fields__])
        for name in ("connections", "setups")
        for table in [getattr(tables, name)]
    }
    count = len(tables.lookups.kind)
    answered = np.where(np.arange(count) < 2, 0, tables.lookups.answer_packet)
    lost = changed(
        replace(tables, **empty, methods=()),
        "lookups",
        kind=np.ones(count),
        code=np.where(answered > 0, 3, 0),
        answer_packet=answered,
    )
    finding = must(detector, lost)
    assert (finding.severity, finding.metrics["questions"], finding.metrics["unanswered"]) == ("critical", count, 2)
    assert finding.verdict.startswith("DNS gave no address for ")
    assert finding.evidence[0].what.endswith("not answered")
    assert finding.evidence[2].what.endswith("with response code 3")


def edges(_folder: Path) -> Iterator[Tables]:
    """An address that refuses, 150 ms from one that works."""
    tables = decode([recorded("wild/grpc-go-one-address-dead.pcap.zst")])
    times = tables.connections.first_time_ns.copy()
    times[1] = times[0] + 150 * MS
    yield changed(tables, "connections", first_time_ns=times)
