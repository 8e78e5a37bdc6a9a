"""`loss-recovery` on real and synthetic captures, and the time budgets it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as vary
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from judging import changed
from msgspec.structs import replace
from support import recorded, recording, rows, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.loss_recovery import ID, Limits, detect
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import Packets, Tables
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import data_indexes, in_time_order, retransmit
from grpcdiag.fixtures.synthetic.packet import Captured
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_loss import METHOD, RTT, be_cut_off
from grpcdiag.fixtures.synthetic.scenes_queues import same_connection
from grpcdiag.fixtures.synthetic.wire import CLIENT, Link

FIRES_ON = ["lab/loss-recovery", "wild/ghz-outage", "wild/grpcio-outage"]
QUIET_ON = ["impl-go", "rtt205-go-16000", "too-many-pings", "wild/ghz-clientpause", "wild/grpcio-frozen"]

LOSSY, CLEAN = "loss-1pct-rtt20", "loss-0pct-rtt20"
MS = 1_000_000


def finding(analysis: Analysis) -> Finding:
    (found,) = [f for f in analysis.findings if f.id == ID]
    return found


def fires(analysis: Analysis) -> bool:
    return any(f.id == ID for f in analysis.findings)


def test_costs_what_the_clients_measured() -> None:
    lossy, clean = (recording(name).report["latency_list_ms"] for name in (LOSSY, CLEAN))
    measured = (fmean(lossy) - fmean(clean)) * len(lossy) * MS
    found = finding(analyze(recording(LOSSY).files))
    assert found.lost_ns == pytest.approx(measured, rel=0.20)
    assert found.severity == "critical"
    repair, window = found.metrics["loss_recovery_ns"], found.metrics["congestion_window_after_loss_ns"]
    assert (repair, window) == (pytest.approx(3.6e9, rel=0.2), pytest.approx(10.4e9, rel=0.2))
    assert found.lost_ns == int(repair) + int(window)
    assert 70 <= int(found.metrics["retransmitted_packets"]) <= 90  # the emulator lost 85, some of them ACKs


def test_the_server_sees_it_too() -> None:
    found = finding(analyze(recording(LOSSY, "server").files))
    assert found.severity == "critical"
    assert "server 10.77.0.2" in found.explanation


def test_packets_that_the_capture_lacks_count_among_all() -> None:
    """A capture with a tenth of the packets has a tenth of the retransmissions, too: the share must not grow."""
    tables = decode(recording(LOSSY).files)
    c = tables.connections
    seen = int(c.packets_client.sum() + c.packets_server.sum())
    lacking = changed(tables, "connections", missing_bytes=c.mss_client.astype(np.int64) * seen)
    (whole,), (part,) = detect(tables, Limits()), detect(lacking, Limits())
    assert isinstance(whole, Finding)
    assert isinstance(part, Finding)
    share = float(whole.metrics["retransmitted_share"])
    assert part.metrics["retransmitted_share"] == pytest.approx(share / 2, rel=0.01)


def test_the_evidence_is_in_the_packets() -> None:
    capture = recording(LOSSY)
    evidence = finding(analyze(capture.files)).evidence
    packets = rows(Packets, capture.files)
    place = {number: row for row, number in enumerate(packets.packet.tolist())}
    assert len(evidence) == 2 + 3 * 3
    for item in evidence:
        assert int(packets.time_ns[place[item.packet]]) == item.time_ns
    assert int(packets.note[place[evidence[1].packet]]) == 1  # a retransmission
    for stopped, released, resumed in zip(*[iter(evidence[2:])] * 3, strict=True):
        sides = [int(packets.direction[place[e.packet]]) for e in (stopped, released, resumed)]
        assert sides[0] == sides[2] != sides[1]


def severity(tables: Tables, limits: Limits) -> str:
    (answer,) = detect(tables, limits)
    assert isinstance(answer, Finding)
    return answer.severity


def test_severity_follows_the_share() -> None:
    tables = decode([synthetic("loss-fires-request").file])
    (found,) = detect(tables, Limits())
    assert isinstance(found, Finding)
    share = found.share or 0.0
    assert 0.7 < share < 0.9  # 250 of some 300 ms
    assert severity(tables, Limits(critical_share=share)) == "critical"
    assert severity(tables, Limits(critical_share=share + 0.001)) == "warning"
    assert severity(tables, Limits(warning_share=share + 0.001, critical_share=1.0)) == "info"


def test_windows_concluded_are_less_certain_than_repairs_seen() -> None:
    tables = decode(recording(LOSSY).files)
    nothing = np.zeros_like(tables.connections.congestion_after_loss_ns)
    seen = replace(tables, connections=replace(tables.connections, congestion_after_loss_ns=nothing))
    confidences = [next(iter(detect(each, Limits()))) for each in (tables, seen)]
    assert [f.confidence for f in confidences if isinstance(f, Finding)] == ["medium", "high"]


def test_waits_after_a_loss_are_not_told_as_a_restart() -> None:
    waits = decode(recording(LOSSY).files).waits
    bound = waits.cause == CAUSES.index("congestion_window")
    assert waits.after_loss[bound].mean() > 0.95
    assert not waits.after_loss[~bound].any()
    for name in ("rtt205-go-16000", "rtt205-py-16000", CLEAN):
        assert not decode(recording(name).files).waits.after_loss.any()


def without_waiting(tables: Tables, retransmitted: int) -> Tables:
    """The tables as if no RPC were seen to wait for repairs: a server's view of answers that get lost on their way."""
    budgets = tables.connection_budgets.copy()
    budgets[:, CAUSES.index("loss_recovery")] = 0
    connections = tables.connections
    return replace(
        tables,
        connection_budgets=budgets,
        connections=replace(
            connections,
            congestion_after_loss_ns=np.zeros_like(connections.congestion_after_loss_ns),
            retransmitted_packets=np.full_like(connections.retransmitted_packets, retransmitted),
        ),
    )


@pytest.mark.parametrize(
    ("retransmitted", "severity"), [(4, None), (5, None), (10, "info"), (75, "info"), (200, "warning")]
)
def test_told_where_no_rpc_is_seen_to_wait(retransmitted: int, severity: str | None) -> None:
    tables = without_waiting(decode(recording(LOSSY).files), retransmitted)
    found = [answer for answer in detect(tables, Limits()) if isinstance(answer, Finding)]
    assert [(f.severity, f.lost_ns, f.confidence) for f in found] == ([(severity, None, "medium")] if severity else [])


@pytest.mark.parametrize(("retransmitted", "told"), [(5, False), (8, False), (9, True)])
def test_packets_that_a_router_reported_as_too_big_are_not_lost(retransmitted: int, told: bool) -> None:
    """Four were reported; the sender sends their bytes again in smaller packets at once."""
    tables = decode([recorded("wild/icmp-mtu-obeyed.pcap.zst")])
    more = np.full_like(tables.connections.retransmitted_packets, retransmitted)
    tables = replace(tables, connections=replace(tables.connections, retransmitted_packets=more))
    assert any(isinstance(answer, Finding) for answer in detect(tables, Limits())) == told


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("loss-fires-one-timeout", "RPCs waited for 1 retransmitted packet"),
        ("loss-fires-outage", "No packet of server 10.0.0.2 arrived for 800 ms (from 0.151 s on)"),
    ],
)
def test_an_outage_takes_two_timeouts_without_a_packet_of_the_peer(name: str, title: str) -> None:
    assert finding(analyze([synthetic(name).file])).title == title


def test_answers_that_could_not_arrive_in_an_outage_are_not_the_servers_time() -> None:
    """ghz counted 388 OK and 12 DeadlineExceeded; the link was down for 2.5 s. Eight calls had ended when they left."""
    analysis = analyze([recorded("wild/ghz-outage.pcap.zst")])
    assert analysis.methods[0].statuses == {"OK": 388, "CANCELLED": 8, "DEADLINE_EXCEEDED": 4}
    assert analysis.verdict.text.startswith("No packet of server 10.91.2.2 arrived for 3.26 s (from 1.130 s on).")
    late = "3.29 s after the RPC began (connection 0, stream 221)"
    texts = [e.what for f in analysis.findings if f.id == "deadline-exceeded" for e in f.evidence]
    assert f"a response that came after its grpc-timeout, {late}" in texts
    (cancelled,) = [f for f in analysis.findings if f.id == "cancelled"]
    assert "8 of them were reset in the packet that began them" in cancelled.explanation
    assert analysis.budget["server"] < 3e9  # 6 s with the outage


def test_a_small_outage_does_not_name_the_loss() -> None:
    tables = decode([synthetic("loss-fires-outage").file])
    (lost,) = tables.connection_budgets[:, CAUSES.index("loss_recovery")].tolist()
    assert tables.connections.loss_recovery_in_outages_ns.tolist() == [lost]
    for in_outages, title in ((lost // 2, "No packet of server"), (lost // 2 - 1, "RPCs waited for 2 retransmitted")):
        column = np.array([in_outages], dtype=np.uint64)
        part = replace(tables.connections, loss_recovery_in_outages_ns=column)
        (found,) = detect(replace(tables, connections=part), Limits())
        assert isinstance(found, Finding)
        assert found.title.startswith(title)


def saved(packets: Sequence[Captured], folder: Path) -> list[str]:
    path = folder / "made.pcap"
    path.write_bytes(write_pcap(packets))
    return [str(path)]


def test_an_outage_is_named_whatever_rows_are_kept(tmp_path: Path) -> None:
    """18 calls wait in it, behind 40 that were answered: more than a connection has rows for."""
    files = saved(be_cut_off(2, 0, before=40, waiting=18).packets, tmp_path)
    assert finding(analyze(files)).title.startswith("No packet of server 10.0.0.2 arrived for 800 ms")


def lose_requests(calls: int) -> Sequence[Captured]:
    """A second connection, on which a packet of each call's request is lost and retransmitted 250 ms later."""
    conv = opened(rtt_ns=RTT)
    for _ in range(calls):
        conv.unary(METHOD, request=3000, response=50, server_delay_ns=270 * MS)
    client = vary(CLIENT, port=CLIENT.port + 1)
    packets = Link(rtt_ns=RTT, close="none", connection=1, client=client).carry(conv)
    return retransmit(packets, data_indexes(packets, "client", 1448)[::2], 250 * MS)


def test_an_idle_stream_does_not_wait_in_an_outage(tmp_path: Path) -> None:
    """On one connection a single call waits in an outage, on another one 60 calls wait for lost packets."""
    cut_off = be_cut_off(2, 0, watches=30, waiting=0)
    found = finding(analyze(saved(in_time_order([*cut_off.packets, *lose_requests(60)]), tmp_path)))
    assert found.lost_ns == pytest.approx((750 + 60 * 250) * MS, rel=0.01)
    assert found.title == "RPCs waited for 62 retransmitted packets"


@pytest.mark.parametrize(("name", "direction"), [("loss-fires-request", 0), ("loss-fires-response", 1)])
def test_who_retransmitted(name: str, direction: int) -> None:
    assert decode([synthetic(name).file]).connections.recovery_direction.tolist() == [direction]


def test_a_queue_of_the_other_direction_drops_no_packet(tmp_path: Path) -> None:
    """What the server sends is queued, and a request of the client is lost."""
    packets = same_connection().packets
    number = data_indexes(packets, "client")[-40]  # in the middle of the transfer
    lossy = list(retransmit(packets, [number], 50 * MS))
    again = max(i for i, packet in enumerate(lossy) if packet.segment.seq == packets[number].segment.seq)
    lossy[again] = vary(lossy[again], time_ns=lossy[again].time_ns - 20 * MS)  # its ACK comes a round trip later
    tables = decode(saved(in_time_order(lossy), tmp_path))
    assert tables.connections.recovery_direction.tolist() == [0]
    assert set(tables.queues.direction.tolist()) == {1}
    (found,) = detect(tables, Limits())
    assert isinstance(found, Finding)
    assert "queue" not in found.verdict
    other = replace(tables.connections, recovery_direction=np.array([1], dtype=np.uint8))
    (found,) = detect(replace(tables, connections=other), Limits())
    assert isinstance(found, Finding)
    assert "with packets queued for up to 39.0 ms" in found.verdict


@pytest.mark.parametrize("name", ["wild/bloat-same-lossy", "wild/ghz-outage", "wild/grpcio-outage"])
def test_the_verdict_has_at_most_30_words(name: str) -> None:
    assert len(finding(analyze([recorded(f"{name}.pcap.zst")])).verdict.split()) <= 30
