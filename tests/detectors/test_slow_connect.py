"""`slow-connect`: the set-up of a connection delayed its first RPC."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from detecting import found, the_finding
from judging import changed, must
from msgspec.structs import replace
from support import RECORDED, recorded, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import slow_connect as detector
from grpcdiag.analyzer.facts import lookups
from grpcdiag.analyzer.facts.attempts import KINDS
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.packet import SYN
from grpcdiag.fixtures.synthetic.scene import scene
from grpcdiag.fixtures.synthetic.scenes_connect import S, answer, beside, late_settings, packet, refuse
from grpcdiag.fixtures.synthetic.words import MS, START_NS

FIRES_ON = [
    "wild/connect-dead-first",
    "wild/connect-dns-nxdomain",
    "wild/connect-dns-slow",
    "wild/connect-dns-tcp",
    "wild/connect-refused",
    "wild/connect-settings-slow",
    "wild/connect-syn-retry",
    "wild/connect-v6-first",
]
QUIET_ON = [
    "impl-go",
    "ipv6",
    "rtt205-go-16000",
    "wild/connect-dns-tcp-ok",
    "wild/nginx-goaway50",
    "wild/rolling-restart-ok",
]


@pytest.mark.parametrize(
    ("name", "kind", "connections", "delay_ms", "says"),
    [
        ("connect-dead-first", "unanswered", 4, 250, "10.77.114.9:9000 did not answer the SYN"),
        ("connect-dns-nxdomain", "dns", 1, 1_625, "10 answered with no such name (NXDOMAIN)"),
        ("connect-dns-slow", "dns", 1, 3_054, "_grpc_config.svc.test (TXT)"),
        ("connect-dns-tcp", "dns", 2, 831, "4 questions, svc.lab.test (A), svc.lab.test (AAAA)"),
        ("connect-refused", "refused", 1, 5_117, "3 earlier attempts failed"),
        ("connect-settings-slow", "settings", 3, 702, "after the client's, at a round trip of 20.7 ms"),
        ("connect-syn-retry", "syn", 1, 3_056, "the SYN was sent 4 times"),
        ("connect-v6-first", "unanswered", 4, 250, "[2001:db8:60::2]:9000 did not answer the SYN"),
    ],
)
def test_recorded_captures(name: str, kind: str, connections: int, delay_ms: int, says: str) -> None:
    """The client measured first calls that took the delay and some 20 to 110 ms more."""
    finding = the_finding(detector, [recorded(f"wild/{name}.pcap.zst")])
    assert (finding.severity, finding.metrics[f"{kind}_connections"]) == ("warning", connections)
    assert int(finding.metrics["delay_p50_ns"]) == pytest.approx(delay_ms * MS, rel=0.01)
    assert says in finding.explanation


def test_a_server_that_had_been_there_had_stopped() -> None:
    tables = decode([recorded("wild/tonic-killed.pcap.zst")])
    assert "closed a connection, and then refused new ones" in must(detector, tables).verdict
    by = tables.connections.closed_by.copy()
    by[0] = 0  # the client
    other = changed(tables, "connections", closed_by=by)
    assert "Let clients start when the server listens" in must(detector, other).verdict


def test_tls_with_its_secrets() -> None:
    """The server sends its first bytes 500 ms late, on each of three connections."""
    secrets = (RECORDED / "wild/connect-tls-slow.keys").read_bytes()
    tables = decode([recorded("wild/connect-tls-slow.pcap.zst")], keylog=secrets)
    (finding,) = detector.detect(tables, detector.Limits())
    assert isinstance(finding, Finding)
    assert (finding.confidence, finding.metrics["tls_connections"]) == ("high", 3)
    assert int(finding.metrics["delay_p50_ns"]) == pytest.approx(500 * MS, rel=0.03)


def test_tls_without_its_secrets_is_less_certain() -> None:
    finding = the_finding(detector, [recorded("wild/connect-tls-slow.pcap.zst")])
    assert (finding.confidence, finding.metrics["tls_connections"]) == ("low", 3)
    assert "encrypted" in finding.explanation
    assert finding.verdict.startswith("The first RPC of 3 connections may have waited")


@pytest.mark.parametrize(("delay_ms", "fires"), [(199, False), (201, True)])
def test_a_step_counts_from_200_ms_beyond_its_round_trip(tmp_path: Path, delay_ms: int, fires: bool) -> None:
    """Half a round trip of the link is in the SETTINGS' time already."""
    conv = late_settings(delay_ms * MS)
    path = tmp_path / "late.pcap"
    path.write_bytes(write_pcap(scene(conv).packets))
    assert bool(found(detector, [str(path)])) == fires


@pytest.mark.parametrize(("pause_ms", "fires"), [(99, True), (103, False)])
def test_the_first_rpc_must_follow_at_once(tmp_path: Path, pause_ms: int, fires: bool) -> None:
    path = tmp_path / "pause.pcap"
    path.write_bytes(write_pcap(scene(late_settings(250 * MS, pause_ns=pause_ms * MS)).packets))
    assert bool(found(detector, [str(path)])) == fires


def test_a_small_share_of_the_time_is_info() -> None:
    finding = the_finding(detector, [synthetic("slow-connect-fires").file], warning_share=0.999, critical_share=1.0)
    assert finding.severity == "info"


def test_few_connections_are_never_critical() -> None:
    files = [synthetic("slow-connect-fires").file]
    assert the_finding(detector, files).severity == "warning"
    assert the_finding(detector, files, critical_connections=1).severity == "critical"


@pytest.mark.parametrize(("pause_s", "fires"), [(143, True), (145, False)])
def test_a_client_that_tries_for_hours(tmp_path: Path, pause_s: int, fires: bool) -> None:
    """It tries 2,000 times, once a second, and then after a pause: gRPC's back-off is 120 s and 20 % at most."""
    path, last = tmp_path / "hours.pcap", START_NS - pause_s * S
    attempts = [refuse(last - number * S, 1_024 + number) for number in reversed(range(2_000))]
    path.write_bytes(write_pcap(beside(list(chain.from_iterable(attempts))).packets))
    finding = found(detector, [str(path)])
    assert (finding is not None) == fires
    if finding:
        assert len(finding.scope.connections) == 2_001


@pytest.mark.parametrize(("pause_ms", "fires"), [(21_100, True), (21_300, False)])
def test_an_attempt_without_an_answer_lasts_20_s(tmp_path: Path, pause_ms: int, fires: bool) -> None:
    """Then the client waits for its first back-off of 1 s, and 20 % at most."""
    path = tmp_path / "unanswered.pcap"
    path.write_bytes(write_pcap(beside([packet(START_NS - pause_ms * MS, 41_000, SYN)]).packets))
    finding = found(detector, [str(path)])
    assert (finding is not None) == fires
    if finding:
        assert finding.metrics["unanswered_connections"] == 1


@pytest.mark.parametrize(
    ("response", "kind"), [("000000040000000000", "cleartext"), ("5353482d322e302d780d0a", "foreign")]
)
def test_an_attempt_that_the_server_answers_in_another_protocol(tmp_path: Path, response: str, kind: str) -> None:
    """HTTP/2 in the clear, or a greeting of SSH, for the ClientHello; half a second later a connection works."""
    hello = bytes.fromhex("16030100f8010000f40303") + bytes(241)
    path = tmp_path / "answered.pcap"
    path.write_bytes(write_pcap(beside(answer(START_NS - S // 2, 41_000, hello, bytes.fromhex(response))).packets))
    finding = the_finding(detector, [str(path)])
    assert finding.metrics[f"{kind}_connections"] == 1
    assert detector.CAUSES[kind] in finding.verdict


def test_every_kind_is_described() -> None:
    kinds = {"dns", "syn", "syn_there", "syn_ack", "tls", "settings", *KINDS}
    assert set(detector.CAUSES) == set(detector.ADVICE) == set(detector.list_remedies()) == kinds


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        (("svc.test", "svc.test"), (0, 1)),
        (("svc.test", "svc.test.search.example"), (0, 1)),
        (("svc.test", "_grpc_config.svc.test"), (0, 1)),
        (("svc.test", "_grpclb._tcp.svc.test.search.example"), (0, 1)),
        (("svc.test", "svc.test2"), (0,)),
        (("svc.test", "svc"), (0,)),
        (("svc.test", "other.svc.test"), (0,)),
        (("_grpc_config.svc.test", "svc.test"), ()),
    ],
)
def test_lookups_of_a_name_and_of_what_the_resolver_makes_of_it(
    names: tuple[str, str], counts: tuple[int, ...]
) -> None:
    """Two questions 50 ms before the SYN: the first one gave the server's address."""
    found = find_lookups(names, client="10.0.0.1")
    assert (found.lookups if found else ()) == counts


@pytest.mark.parametrize(
    ("asked_by", "counts"),
    [("10.0.0.1", True), ("127.0.0.53", True), ("::1", True), ("2001:db8::1", True), ("10.0.0.9", False)],
)
def test_who_may_have_asked(asked_by: str, counts: bool) -> None:
    """The host itself, its own resolver, or the host by its other version of IP."""
    assert (find_lookups(("svc.test",), client=asked_by) is not None) == counts


def find_lookups(names: tuple[str, ...], client: str) -> lookups.Chain | None:
    """The lookups before a connection to the address that the first of some questions was answered with."""
    tables = decode([recorded("wild/connect-dns-slow.pcap.zst")])
    asked, given, c = tables.lookups, tables.lookup_addresses, tables.connections
    row = int(np.flatnonzero(c.server_ip == given.address[0])[0])
    count, syn = len(names), int(c.first_time_ns[row])
    columns = {field: np.repeat(getattr(asked, field)[:1], count) for field in asked.__struct_fields__}
    columns |= {"name": np.arange(count, dtype=np.uint32), "time_ns": np.full(count, syn - 50 * MS)}
    columns |= {"client_ip": np.full(count, len(tables.addresses) + 1, dtype=np.uint32)}
    columns |= {"answer_time_ns": np.full(count, syn - 20 * MS)}
    mine = np.where(np.arange(len(c.client_ip)) == row, len(tables.addresses), c.client_ip)
    changed_tables = replace(
        changed(tables, "connections", client_ip=mine),
        lookups=type(asked)(**columns),
        lookup_addresses=type(given)(
            **{f: getattr(given, f)[:1] for f in given.__struct_fields__} | {"lookup": np.zeros(1, dtype=np.uint32)}
        ),
        lookup_names=names,
        addresses=(*tables.addresses, "10.0.0.1", client),
    )
    return lookups.find_lookups_before(changed_tables, np.array([row]), {}, 100 * MS).get(row)


def test_questions_over_tcp_have_answers() -> None:
    """Each address is asked for over UDP, and after the truncated answer over TCP, both in one segment."""
    asked = decode([recorded("wild/connect-dns-tcp-ok.pcap.zst")]).lookups
    assert asked.packet.tolist() == [1, 2, 8, 8]
    assert asked.answer_packet.tolist() == [3, 4, 10, 12]


def test_lookups_of_another_host_do_not_count() -> None:
    tables = decode([recorded("wild/connect-dns-slow.pcap.zst")])
    other = tables.lookups.client_ip * 0 + tables.connections.server_ip[0]
    moved = changed(tables, "lookups", client_ip=other)
    assert list(detector.detect(moved, detector.Limits())) == []


def test_lookups_long_before_do_not_count() -> None:
    tables = decode([recorded("wild/connect-dns-slow.pcap.zst")])
    asked = tables.lookups
    earlier = changed(tables, "lookups", time_ns=asked.time_ns - S, answer_time_ns=asked.answer_time_ns - S)
    assert list(detector.detect(earlier, detector.Limits())) == []


def test_an_unanswered_lookup_counts_until_the_syn() -> None:
    """An AAAA question without an answer, asked again, keeps the resolver until it gives up."""
    tables = decode([recorded("wild/connect-dns-slow.pcap.zst")])
    asked = tables.lookups
    lost = asked.kind == 28
    packets, times = asked.answer_packet.copy(), asked.answer_time_ns.copy()
    packets[lost], times[lost] = 0, -1
    (finding,) = detector.detect(
        changed(tables, "lookups", answer_packet=packets, answer_time_ns=times), detector.Limits()
    )
    assert isinstance(finding, Finding)
    assert "1 not answered" in finding.explanation


def test_a_question_without_an_answer_is_shown_at_its_own_time() -> None:
    """Asked twice: the evidence is the first query, and its time."""
    tables = decode([recorded("wild/connect-dns-slow.pcap.zst")])
    asked = tables.lookups
    lost = changed(tables, "lookups", answer_packet=asked.answer_packet * 0)
    shown = lookups.show_end(lost, 0)
    assert (shown.packet, shown.time_ns) == (int(asked.packet[0]), int(asked.time_ns[0]))
