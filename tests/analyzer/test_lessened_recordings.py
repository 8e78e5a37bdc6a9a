"""Captures of other software of which a part is taken away: nothing is found that the whole capture does not show."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from lessened import Capture, capture_of, some
from support import RECORDED
from tampered import keep_direction, server_port, tamper, tcp_header

from grpcdiag.analyzer.analysis import analyze, of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.tables import NOT_SEEN
from grpcdiag.fixtures.synthetic.packet import Captured
from grpcdiag.fixtures.synthetic.words import MS, S

WILD = RECORDED / "wild"
NAMES = (
    "armeria-header-limit",
    "connect-go-connect-errors",
    "connect-node-idle",
    "connect-refused",
    "curl-timer",
    "ghz-lo-c50",
    "grpc-go-firewall-forgot",
    "grpc-go-nagle-slow-handler",
    "grpc-go-rejected-midway",
    "grpc-js-downlink-restored",
    "grpc-js-firewall-reset",
    "grpc-js-host-gone",
    "grpc-js-idle-drop",
    "grpc-js-watch-forgotten",
    "grpcio-age-grace",
    "grpcio-mtu",
    "grpcio-mtu-first",
    "grpcio-request-lost",
    "half-open-keepalive",
    "icmp-host-gone",
    "idle-drop",
    "idle-finrace",
    "kitex-deadline",
    "kitex-grpc-go-deadline",
    "mtu-blackhole",
    "rst-thirdparty",
    "rst-thirdparty-server",
    "server-kill",
    "tonic-flow-forgotten",
    "tonic-rebooted",
    "watch-limit-full",
)


@cache
def whole(name: str) -> Capture:
    return capture_of([str(WILD / f"{name}.pcap.zst")])


def write(data: bytes, folder: Path) -> str:
    path = folder / "less.pcap"
    path.write_bytes(data)
    return str(path)


def begin_late(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(1, len(capture) * 45 // 100)), folder)


def begin_later(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(1, len(capture) * 7 // 10)), folder)


def end_early(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(len(capture) * 3 // 4, len(capture) + 1)), folder)


def snap(capture: Capture, folder: Path) -> str:
    return write(capture.snapped(96), folder)


def keep_requests(capture: Capture, folder: Path) -> str:
    source = write(capture.data, folder)
    return tamper(source, folder / "requests.pcap", keep_direction(source, "client"))


def double(capture: Capture, folder: Path) -> str:
    """Each packet twice, as on a bridge or the device `any`."""
    records = (bytes(capture.record(number)) for number in range(1, len(capture) + 1))
    return write(capture.data[:24] + b"".join(record * 2 for record in records), folder)


def lose(capture: Capture, folder: Path) -> str:
    """Without one packet in fifty, as the recording host drops them."""
    return write(capture.without(some(len(capture), 0.02, seed=1)), folder)


def mix(capture: Capture, folder: Path, seed: int = 1) -> str:
    """With neighbours in the other order that came within a millisecond, as several queues of a device leave them."""
    chance, records = random.Random(seed), [bytes(capture.record(number)) for number in range(1, len(capture) + 1)]
    for first, second in pairwise(range(len(records))):
        if read_time(records[second]) - read_time(records[first]) < MS and chance.random() < 0.3:
            times = records[first][:8], records[second][:8]
            records[first], records[second] = times[0] + records[second][8:], times[1] + records[first][8:]
    return write(capture.data[:24] + b"".join(records), folder)


def read_time(record: bytes) -> int:
    seconds, microseconds = struct.unpack_from("<II", record)
    return int(seconds) * S + int(microseconds) * 1000


def hide_server(capture: Capture, folder: Path) -> str:
    """Begin late, with a server's port from which nobody can tell that it is one."""
    source = write(capture.data, folder)
    find, server = tcp_header(source), server_port(source)

    def change(number: int, packet: Captured) -> Captured | None:
        at, data = find(packet), bytearray(packet.data)
        for place in () if at is None else (at, at + 2):
            if struct.unpack_from(">H", data, place)[0] == server:
                struct.pack_into(">H", data, place, 60_999)
        return replace(packet, data=bytes(data)) if number > len(capture) * 45 // 100 else None

    return tamper(source, folder / "hidden.pcap", change)


Rpc = tuple[str, str, int]


def client_of(rpc: Rpc) -> tuple[str, int]:
    """The client and the stream of a call, of which the server's port may have been hidden."""
    return rpc[0], rpc[2]


class Report(NamedTuple):
    grave: set[str]
    certain: set[str]
    known: set[str]
    statuses: dict[Rpc, int]
    budget: Mapping[str, int]


@cache
def report(path: str) -> Report:
    try:
        tables = decode([path], rpc_rows=True)
        analysis = of_tables(tables)
    except NoGrpcError:
        return Report(set(), set(), set(), {}, {})
    r, findings = tables.rpcs, analysis.findings
    names = [(tables.client(row), tables.server(row)) for row in range(len(tables.connections.rpcs))]
    return Report(
        {finding.id for finding in findings if finding.severity != "info"} - {"capture-quality"},
        {finding.id for finding in findings if finding.confidence == "high"},
        {finding.id for finding in findings},
        {
            (*names[on], stream): status
            for on, stream, status in zip(r.connection.tolist(), r.stream.tolist(), r.status.tolist(), strict=True)
        },
        analysis.budget,
    )


Lessen = Callable[[Capture, Path], str]
LESSENED = (begin_late, begin_later, end_early, snap, keep_requests, double, lose, mix, hide_server)
LEFT_OUT = {
    ("icmp-host-gone", hide_server),  # ICMP quotes the port
    ("grpcio-request-lost", begin_late),  # the time until the retransmitted request arrives is the server's
    ("watch-limit-full", mix),  # answers to PINGs in another order look like a pause
}


@pytest.mark.parametrize("lessen", LESSENED)
@pytest.mark.parametrize("name", NAMES)
def test_less_shows_no_more(name: str, lessen: Lessen, tmp_path: Path) -> None:
    if (name, lessen) in LEFT_OUT:
        pytest.skip("see LEFT_OUT")
    before, after = report(str(WILD / f"{name}.pcap.zst")), report(lessen(whole(name), tmp_path))
    ends_before = lessen is end_early and name == "grpcio-request-lost"  # before the answer after 3.3 s
    # a part without short packets does not tell a path that drops long ones from a peer that is gone, and says so
    unsure = name.startswith("grpcio-mtu") and "peer-unreachable" not in after.certain
    allowed = {"idle-connection-cut"} if ends_before else {"peer-unreachable"} if unsure else set()
    assert after.grave <= before.known | allowed
    statuses = {client_of(rpc): status for rpc, status in before.statuses.items()}
    seen = {client_of(rpc): status for rpc, status in after.statuses.items()}
    assert {rpc: status for rpc, status in seen.items() if status not in (NOT_SEEN, statuses.get(rpc))} == {}
    most = sum(before.budget.values()) // 5 + 20 * MS
    charged = {cause: ns - before.budget.get(cause, 0) for cause, ns in after.budget.items()}
    accused = {cause for cause, ns in charged.items() if ns > most} - {"capture_gap", "unexplained"}
    assert accused <= ({"peer_unreachable"} if ends_before else set())


@pytest.mark.parametrize(("name", "seed"), [("grpclib-nagle", 2), ("node-http2-nagle", 3)])
def test_a_lost_ack_does_not_show_that_nagle_is_off(name: str, seed: int, tmp_path: Path) -> None:
    capture = whole(name)
    path = write(capture.without(some(len(capture), 0.02, seed)), tmp_path)
    before, after = report(str(WILD / f"{name}.pcap.zst")).budget, report(path).budget
    assert after["server"] <= before["server"]
    assert after["delayed_ack"] > 0.75 * before["delayed_ack"]


def test_a_cut_at_the_captures_end_may_be_an_outage(tmp_path: Path) -> None:
    path = end_early(whole("grpcio-request-lost"), tmp_path)
    finding = next(finding for finding in analyze([path]).findings if finding.id == "idle-connection-cut")
    assert (finding.severity, finding.confidence) == ("warning", "medium")
    assert "or packets were lost until the capture's end" in finding.title


@pytest.mark.parametrize("lessen", [begin_late, begin_later])
def test_long_packets_without_an_answer_prove_no_dead_peer(lessen: Lessen, tmp_path: Path) -> None:
    path = lessen(whole("grpcio-mtu-first"), tmp_path)
    finding = next(finding for finding in analyze([path]).findings if finding.id == "peer-unreachable")
    assert finding.confidence == "medium"
    assert "did not answer packets of 1,408 bytes or more" in finding.verdict
    assert "the path may drop long packets, or the peer is gone" in finding.explanation


def test_an_icmp_error_tells_that_a_host_is_gone_that_is_not_heard(tmp_path: Path) -> None:
    path = begin_later(whole("icmp-host-gone"), tmp_path)
    finding = next(finding for finding in analyze([path]).findings if finding.id == "peer-unreachable")
    assert "did not answer any more: no packet on connection 0 in this capture" in finding.title
    assert "find out why 10.71.1.1 reports host unreachable" in finding.verdict


@pytest.mark.parametrize("name", ["any-bridge", "any-bridge-cooked1", "any-nat"])
def test_packets_of_several_devices_count_once(name: str) -> None:
    """The device `any` gives what one device gives: the same calls, statuses and findings."""
    one, every = (analyze([str(WILD / f"{which}.pcap.zst")]) for which in ("any-bridge-one", name))
    facts = [[(m.method, m.rpcs, m.statuses, m.messages) for m in a.methods] for a in (one, every)]
    findings = [
        [(f.id, f.severity, f.confidence) for f in a.findings if f.id != "capture-quality"] for a in (one, every)
    ]
    assert sorted(facts[0], key=repr) == sorted(facts[1], key=repr)
    assert findings[0] == findings[1]
    assert not any(c.retransmitted_packets or c.out_of_order_packets for c in every.connections)


@pytest.mark.parametrize(("name", "seed"), [("helidon-nagle", 1), ("helidon-nagle", 4), ("node-http2-nagle", 3)])
def test_what_nagle_held_is_not_the_servers_where_packets_are_mixed(name: str, seed: int, tmp_path: Path) -> None:
    plain = analyze([write(whole(name).data, tmp_path)]).budget
    mixed = analyze([mix(whole(name), tmp_path, seed)]).budget
    assert mixed["server"] - plain["server"] < 0.1 * plain["delayed_ack"]
