"""`peer-unreachable`: not one packet comes back; never loss that recovers, a slow server, or an idle connection."""

from __future__ import annotations

from dataclasses import replace as vary
from pathlib import Path

import numpy as np
import pytest
from detecting import the_finding
from judging import changed, must, repeated, tables_of_scene, told
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import peer_unreachable as detector
from grpcdiag.analyzer.tables.grouping import take_rows
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.packet import FIN, captured
from grpcdiag.fixtures.synthetic.scenes_dead import carry, repeat_last, up_to_the_request, work
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = [
    "wild/client-vanished",
    "wild/half-open-deadline",
    "wild/half-open-keepalive",
    "wild/half-open-nodeadline",
    "wild/icmp-host-gone",
]
QUIET_ON = [
    "wild/ghz-outage",
    "wild/half-open-control",
    "wild/hung-rpc",
    "wild/idle-drop",
    "wild/slow-stream-ok",
    "wild/watch-ok",
]


FIRES = "peer-unreachable-fires"


@pytest.mark.parametrize("name", ["half-open-deadline", "half-open-nodeadline"])
def test_a_vanished_server_is_named_and_not_accused_of_slowness(name: str) -> None:
    """The link dropped everything from 5 s on."""
    analysis = analyze([recorded(f"wild/{name}.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert analysis.verdict.finding == detector.ID
    assert analysis.verdict.text.startswith("Server 10.77.")
    assert "server-latency" not in {f.id for f in analysis.findings}
    assert "loss-recovery" not in {f.id for f in analysis.findings}  # nobody waits out of sight
    waited = analysis.budget["peer_unreachable"]
    assert finding.lost_ns == (pytest.approx(2 * S, rel=0.001) if name == "half-open-deadline" else waited)
    assert "capture_gap" not in analysis.budget


def test_a_router_without_an_answer_of_the_host_is_named() -> None:
    """The server's link is down when a call follows 1.8 s without one: no timer of the path cut the connection."""
    analysis = analyze([recorded("wild/icmp-host-gone.pcap.zst")])
    assert analysis.verdict.finding == detector.ID
    assert "find out why 10.71.1.1 reports host unreachable (ICMP type 3 code 1)" in analysis.verdict.text
    assert "idle-connection-cut" not in {f.id for f in analysis.findings}


@pytest.mark.parametrize(("code", "fires"), [(0, True), (1, True), (3, False), (10, False), (13, False)])
def test_a_firewall_that_rejects_may_have_forgotten_the_connection(code: int, fires: bool) -> None:
    tables = decode([recorded("wild/icmp-host-gone.pcap.zst")])
    codes = [code] * len(tables.icmp_errors.code)
    assert bool(told(detector, changed(tables, "icmp_errors", code=codes))) == fires


def test_what_nobody_asked_for_is_unexplained() -> None:
    """The server was heard at 3.7 s; the next PING left at 13.7 s, and got no answer for 1.9 s."""
    analysis = analyze([recorded("wild/half-open-keepalive.pcap.zst")])
    assert analysis.budget["unexplained"] == pytest.approx(2 * 10.0 * S, rel=0.01)
    assert analysis.budget["peer_unreachable"] == pytest.approx(2 * 1.94 * S, rel=0.01)
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert finding.metrics["rpcs_waiting"] == 2
    assert "a PING" in finding.evidence[1].what
    assert "Its keepalive sent a PING 10.0 s after the last packet of server 10.77.14.2." in finding.explanation
    assert ": shorten the keepalive time, and" in finding.verdict
    assert not any("after that time" in remedy.note for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("purpose", "after_ns", "fires"),
    [
        ("keepalive", S, True),
        ("unknown", S, True),
        ("bdp", S, False),
        ("drain", S, False),
        ("keepalive", S - 1, False),
    ],
)
def test_only_a_ping_after_a_silence_is_of_a_keepalive(purpose: str, after_ns: int, *, fires: bool) -> None:
    tables = decode([recorded("wild/half-open-keepalive.pcap.zst")])
    u, number = tables.unanswered, _core.PING_PURPOSES.index(purpose)
    tables = changed(tables, "unanswered", ping_time_ns=u.heard_time_ns + after_ns)
    tables = replace(tables, pings=take_rows(tables.pings, np.array([0])))
    tables = changed(tables, "pings", packet=u.ping_packet, direction=u.direction, purpose=[number])
    assert ("shorten the keepalive time" in must(detector, tables).verdict) == fires


def test_a_vanished_client_is_named_at_the_server() -> None:
    finding = the_finding(detector, [recorded("wild/client-vanished.pcap.zst")])
    assert finding.title.startswith("client 10.77.95.1 did not answer any more")
    assert finding.metrics["rpcs_waiting"] == 3
    assert finding.remedies[0].implementation == "grpc-go"


def test_calls_that_pass_their_deadline_are_counted() -> None:
    finding = the_finding(detector, [recorded("wild/half-open-deadline.pcap.zst")])
    assert "2 open RPCs passed their deadline meanwhile; their ends are not on the wire" in finding.explanation
    assert "2 RPCs waited (2.00 s, 29% of RPC time): check that keepalive is set, and" in finding.verdict


def test_the_threshold_is_three_timeouts() -> None:
    tables = tables_of_scene(FIRES)
    assert tables.unanswered.timeouts.tolist() == [3]
    assert must(detector, tables).lost_ns == pytest.approx(1_750 * MS, rel=0.01)
    assert told(detector, changed(tables, "unanswered", timeouts=[2])) is None
    assert told(detector, tables, timeouts=4) is None


def test_a_host_that_answers_a_new_connection_lives() -> None:
    tables = tables_of_scene(FIRES)
    assert "a device that forgot this connection may be the cause" in must(detector, tables).explanation
    two = repeated(repeated(tables, "connections", 0, 2), "setups", 0, 2)
    since = int(tables.unanswered.first_time_ns[0])
    tried = changed(two, "connections", first_time_ns=[0, since + 1], packets_server=[9, 0])
    tried = changed(tried, "setups", syns=[1, 3], syn_ack_packet=[2, 0], syn_ack_time_ns=[0, -1])
    assert "not heard on a new connection" in must(detector, tried).explanation
    refused = changed(tried, "setups", reset_packet=[0, 70])  # which is heard
    assert "not heard on a new connection" not in must(detector, refused).explanation
    late = changed(tables, "setups", syn_ack_time_ns=tables.unanswered.first_time_ns + 1)
    assert "it lives, or another host has its address" in must(detector, late).explanation
    assert "answered new connections, but nothing on 1 older one" in must(detector, late).verdict
    behind = changed(tables, "setups", syn_ack_time_ns=tables.unanswered.last_time_ns + 1)
    assert "was unreachable" in must(detector, behind).verdict


def test_calls_that_nobody_sees_may_have_waited() -> None:
    """No RPC time was lost: harmless if RPCs are seen, unknown if there may be some inside TLS."""
    tables = tables_of_scene("peer-unreachable-fires")
    tables = replace(tables, connection_budgets=tables.connection_budgets * 0)
    assert must(detector, tables).severity == "warning", "an RPC is open"
    harmless = changed(tables, "open_rpcs", closed=[1])
    assert must(detector, harmless).severity == "info"
    hidden = must(detector, changed(harmless, "connections", rpcs=[0]))
    assert (hidden.severity, hidden.lost_ns, hidden.share) == ("warning", None, None)
    assert (must(detector, harmless).lost_ns, must(detector, harmless).share) == (0, 0.0)


def test_a_fin_without_an_answer() -> None:
    """A client closes a watch that was silent for 60 s, and nothing comes back."""
    tables = tables_of_scene("peer-unreachable-fires-fin")
    assert tables.unanswered.timeouts.tolist() == [3]
    finding = must(detector, tables)
    assert (finding.severity, finding.metrics["rpcs_waiting"]) == ("warning", 1)
    assert "closed with a FIN, and retransmitted it until" in finding.explanation
    assert "sends a FIN that gets no answer" in finding.evidence[1].what
    hidden = changed(tables, "connections", rpcs=[0])  # nothing shows that anybody waited
    hidden = changed(hidden, "open_rpcs", closed=[1])
    hidden = replace(hidden, connection_budgets=hidden.connection_budgets * 0)
    assert must(detector, changed(hidden, "rpcs", duration_ns=[0])).severity == "info"


def test_a_fin_behind_bytes_in_one_packet(tmp_path: Path) -> None:
    """Linux sends the FIN with the last segment that waits to be sent: its bytes got no answer either."""
    packets = up_to_the_request(carry(work()))
    last = packets[-1].segment
    assert last
    packets[-1] = captured(packets[-1].time_ns, vary(last, flags=last.flags | FIN))
    path = tmp_path / "fin.pcap"
    path.write_bytes(write_pcap(repeat_last(packets, 3)))
    tables = decode([str(path)])
    assert tables.unanswered.first_packet.tolist() == tables.closings.packet.tolist()
    finding = must(detector, tables)
    assert "closed with a FIN, and retransmitted the bytes before it until" in finding.explanation
    whats = [item.what for item in finding.evidence]
    assert "client 10.0.0.1 sends bytes that get no answer" in whats
    assert not any("gives up" in what for what in whats)
    hidden = changed(tables, "connections", rpcs=[0])
    hidden = changed(hidden, "open_rpcs", closed=[1] * len(tables.open_rpcs.closed))
    hidden = replace(hidden, connection_budgets=hidden.connection_budgets * 0)
    hidden = changed(hidden, "rpcs", duration_ns=[0] * len(tables.rpcs.duration_ns))
    assert must(detector, hidden).severity == "warning", "nothing shows that nobody waited"
