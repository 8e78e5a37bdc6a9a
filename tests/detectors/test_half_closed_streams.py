"""`half-closed-streams`: the server ended them, the client never does; never streams that just ended."""

from __future__ import annotations

from judging import changed, must, tables_of_scene
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import half_closed_streams as detector

FIRES_ON = ["wild/half-closed-leak"]
QUIET_ON = [
    "wild/etcd-watch-lease",
    "wild/grpclib-deadline",
    "wild/idle-goaway",
    "wild/rolling-restart-ok",
    "wild/watch-ok",
]


def test_a_full_connection_is_critical() -> None:
    """30 streams fill the limit of 30: 22 further calls could not begin."""
    analysis = analyze([recorded("wild/half-closed-leak.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.metrics["half_closed_streams"]) == ("critical", 30)
    assert (finding.metrics["max_concurrent_streams"], finding.metrics["share_of_limit"]) == (30, 1.0)
    assert (analysis.verdict.finding, finding.evidence[0].packet) == (detector.ID, 26)
    assert "no further call can begin" in finding.verdict


def test_the_share_of_the_limit_decides() -> None:
    tables = tables_of_scene("half-closed-streams-fires")
    assert must(detector, tables).severity == "info"
    unlimited = changed(tables, "connections", peer_max_concurrent_streams=[2**31 - 1])  # C-core's default
    assert "allows" not in must(detector, unlimited).title + must(detector, unlimited).explanation
    for limit, severity in ((3, "critical"), (6, "warning"), (7, "info")):
        assert must(detector, changed(tables, "connections", peer_max_concurrent_streams=[limit])).severity == severity
