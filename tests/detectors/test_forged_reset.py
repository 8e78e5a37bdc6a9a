"""`forged-reset`: a RST that passed another number of routers, or after which its side goes on; never a host's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from judging import changed, must, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import forged_reset as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/idle-rst", "wild/rst-thirdparty", "wild/rst-thirdparty-server"]
QUIET_ON = ["wild/idle-finrace", "wild/ka-too-short", "wild/nghttpx-backendkill", "wild/server-kill"]


def test_a_third_host_is_recognised_from_both_ends() -> None:
    """One RST in the server's name: TTL 44 at the client, where the server's is 61; 47 and 64 at the server."""
    ttls = {"wild/rst-thirdparty": (44, 61), "wild/rst-thirdparty-server": (47, 64)}
    for name, (ttl, usual) in ttls.items():
        analysis = analyze([recorded(f"{name}.pcap.zst")])
        finding = next(f for f in analysis.findings if f.id == detector.ID)
        assert (finding.severity, finding.confidence, finding.metrics["resets"]) == ("warning", "high", 1)
        assert (finding.metrics["ttl"], finding.metrics["ttl_of_that_side"]) == (ttl, usual)
        assert analysis.verdict.finding == detector.ID
        assert [method.statuses for method in analysis.methods] == [{"OK": 23, "UNAVAILABLE": 1}]
        assert analysis.verdict.text.endswith("1 failed.")  # its answer came to a closed socket
        assert "as if it had sent no RST" in finding.explanation


def test_a_side_that_goes_on_is_proof_without_another_ttl() -> None:
    tables = tables_of_scene("forged-reset-quiet")
    (row,) = tables.closings.packet.nonzero()[0].tolist()
    later = int(tables.closings.time_ns[row])
    on = changed(tables, "closings", later_packets=[1], later_packet=[99], later_time_ns=[later + 30 * MS])
    finding = must(detector, on)
    assert finding.confidence == "medium"
    assert "did not come from its connection, which goes on" in finding.title  # its host may have sent it
    unknown = changed(on, "connections", min_rtt_ns=[-1])
    assert told(detector, unknown) is None  # the packet may have left before the RST
    soon = changed(on, "closings", later_time_ns=[later + 19 * MS])
    assert told(detector, soon) is None  # reordered on the way


def test_one_router_more_is_another_route() -> None:
    tables = tables_of_scene("forged-reset-fires")
    assert must(detector, tables).metrics["ttl"] == 60
    assert told(detector, changed(tables, "closings", ttl=[61])) is None


def edges(_folder: Path) -> Iterator[Tables]:
    """The RST ended three RPCs."""
    yield changed(tables_of_scene("forged-reset-fires"), "closings", open_rpcs=[3])
