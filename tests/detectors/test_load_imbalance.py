"""`load-imbalance`: one of several servers gets most of the RPCs; never an even spread, few RPCs, or other services."""

from __future__ import annotations

from detecting import the_finding
from judging import changed, must, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import load_imbalance as detector

FIRES_ON = ["wild/lb-allonone"]
QUIET_ON = ["wild/connect-dead-first", "wild/lb-even-control", "wild/lb-slow-backend", "wild/rolling-restart-ok"]


def test_servers_that_dns_gives_and_nobody_uses_are_counted() -> None:
    """DNS gives three addresses, and all 810 calls go to one."""
    analysis = analyze([recorded("wild/lb-allonone.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.metrics["rpcs"], finding.metrics["largest_share"]) == ("info", 810, 1.0)
    assert (finding.metrics["servers"], finding.metrics["unused_servers"]) == (3, 2)
    assert "10.77.118.2" in finding.title
    assert finding.evidence[0].what == "DNS answers with 3 addresses"


def test_a_name_is_not_needed_where_all_servers_are_used() -> None:
    tables = tables_of_scene("load-imbalance-fires")
    finding = must(detector, tables)
    assert (finding.metrics["servers"], finding.metrics["unused_servers"]) == (3, 0)
    assert "10.0.0.2 82, 10.0.0.3 19, 10.0.0.4 19" in finding.explanation


def test_servers_of_other_services_or_times_are_no_pool() -> None:
    tables = tables_of_scene("load-imbalance-fires")
    assert told(detector, changed(tables, "connections", server_port=[1, 2, 3])) is None
    assert told(detector, changed(tables, "connection_methods", method=[0, 1, 2])) is None
    times = tables.connections.last_time_ns
    assert told(detector, changed(tables, "connections", first_time_ns=[0, 0, times.max() + 1])) is None


def test_thresholds_can_be_changed() -> None:
    assert the_finding(detector, [recorded("wild/lb-even-control.pcap.zst")], excess=0.0).metrics["rpcs"] == 1063
