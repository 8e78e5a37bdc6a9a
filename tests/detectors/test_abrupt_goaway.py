"""`abrupt-goaway`: calls that a GOAWAY refused or a fast close lost; never a graceful end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from detecting import the_finding
from judging import changed, must, played, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import abrupt_goaway as detector
from grpcdiag.analyzer.detectors import connection_closed_early
from grpcdiag.fixtures.synthetic.scene import opened, side_by_side
from grpcdiag.fixtures.synthetic.scenes_restarts import METHOD, RTT, restarted, send
from grpcdiag.fixtures.synthetic.wire import CLIENT, Link
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/goaway-low", "wild/nginx-goaway50"]
QUIET_ON = [
    "wild/goaway-clientdrops",
    "wild/goaway-graceful",
    "wild/idle-goaway",
    "wild/rolling-restart-ok",
    "wild/server-kill",
]


def test_calls_above_the_last_stream_are_not_lost() -> None:
    """The client had sent streams up to 127, the GOAWAY has 111; it reports that all its 150 calls succeeded."""
    analysis = analyze([recorded("wild/goaway-low.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.metrics["refused_rpcs"], finding.metrics["lost_rpcs"], finding.metrics["rpcs"]) == (8, 0, 158)
    assert (finding.metrics["safe_to_retry_rpcs"], finding.metrics["begun_again_rpcs"]) == (8, 8)
    assert analysis.verdict.finding == detector.ID
    assert "safe to retry" in analysis.verdict.text
    closed = [f for f in analysis.findings if f.id == "connection-closed-early"]
    assert [f.metrics["lost_rpcs"] for f in closed] == [0] * len(closed)


def test_a_limit_of_a_proxy_refuses_calls() -> None:
    """nginx with `keepalive_requests 50`; ghz reports 594 of 600 calls OK, and 6 attempts UNAVAILABLE."""
    finding = the_finding(detector, [recorded("wild/nginx-goaway50.pcap.zst")])
    assert (finding.metrics["refused_rpcs"], finding.metrics["lost_rpcs"], finding.severity) == (6, 0, "info")
    assert "after exactly 50 requests each" in finding.explanation
    assert finding.remedies[0].knob == "keepalive_requests 100000"
    assert finding.verdict.endswith(
        "raise that limit (keepalive_requests 100000); the refused calls are safe to retry."
    )


def test_an_error_right_behind_the_servers_own_goaway_blames_nobody() -> None:
    """python-hyper's h2 takes no frame behind its own GOAWAY, and says PROTOCOL_ERROR of one that crossed it."""
    tables = decode([recorded("wild/hypercorn-requests.pcap.zst")])
    assert must(connection_closed_early, tables).metrics["goaways"] == "NO_ERROR"
    later = changed(tables, "connections", min_rtt_ns=0 * tables.connections.min_rtt_ns)
    assert must(connection_closed_early, later).metrics["goaways"] == "PROTOCOL_ERROR"


def test_few_connections_show_no_limit() -> None:
    files = [recorded("wild/nginx-goaway50.pcap.zst")]
    assert "after exactly" not in the_finding(detector, files, drained=13).explanation


def test_calls_that_the_server_had_accepted_are_lost() -> None:
    finding = must(detector, tables_of_scene("abrupt-goaway-closes"))
    assert (finding.metrics["refused_rpcs"], finding.metrics["lost_rpcs"], finding.severity) == (0, 3, "critical")
    assert "may have been processed" in finding.explanation


@pytest.mark.parametrize(("after_ms", "late"), [(5, False), (100, True)])
def test_calls_begun_after_goaway_had_notice(tmp_path: Path, after_ms: int, late: bool) -> None:
    """A round trip takes 20 ms: a call 5 ms after the GOAWAY was on its way, one 100 ms after it was not."""
    conv = restarted(refused=0)
    conv.advance(after_ms * MS - RTT)
    send(conv, 1)
    finding = must(detector, played(conv, tmp_path, close="server"))
    assert (finding.metrics["refused_rpcs"], finding.metrics["begun_after_goaway_rpcs"]) == (1, int(late))
    assert ("without notice" in finding.title) == ("without notice" in finding.verdict) == (not late)
    assert finding.title == (
        "1 call begun after GOAWAY: refused" if late else "GOAWAY without notice: 1 call refused, 0 lost"
    )


@pytest.mark.parametrize(
    ("limits", "severity"), [({}, "critical"), ({"few": 4}, "warning"), ({"critical_share": 0.5}, "warning")]
)
def test_lost_calls_weigh_more(limits: dict[str, float], severity: str) -> None:
    assert must(detector, tables_of_scene("abrupt-goaway-closes"), **limits).severity == severity


@pytest.mark.parametrize(
    ("refused", "limits", "severity"), [(2, {}, "info"), (3, {}, "warning"), (3, {"warning_share": 0.3}, "info")]
)
def test_few_refused_calls_are_info(tmp_path: Path, refused: int, limits: dict[str, float], severity: str) -> None:
    assert must(detector, played(restarted(refused=refused), tmp_path), **limits).severity == severity


@pytest.mark.parametrize(("again_ns", "calls"), [(0, 0), (1_000_000_000, 8)])
def test_calls_that_begin_again_soon(again_ns: int, calls: int) -> None:
    finding = the_finding(detector, [recorded("wild/goaway-low.pcap.zst")], again_ns=again_ns)
    assert finding.metrics["begun_again_rpcs"] == calls


@pytest.mark.parametrize(("other", "again"), [("10.0.0.1", 4), ("10.0.0.3", 3)])
def test_a_call_that_begins_again_is_counted_once(tmp_path: Path, other: str, again: int) -> None:
    """Each of two connections refuses three calls; four calls begin after both GOAWAYs, from one client or from two."""
    conv, after = restarted(refused=3), opened(rtt_ns=RTT)
    after.advance(500 * MS)
    for _ in range(4):
        after.unary(METHOD)
    links = [
        Link(rtt_ns=RTT, client=replace(CLIENT, ip=ip, port=4000 + number), close="server")
        for number, ip in enumerate((CLIENT.ip, CLIENT.ip, other))
    ]
    path = tmp_path / "played.pcap"
    path.write_bytes(side_by_side([conv, after, conv], links).file())
    finding = must(detector, decode([str(path)]))
    assert (finding.metrics["refused_rpcs"], finding.metrics["begun_again_rpcs"]) == (6, again)


def test_a_goaway_of_the_client_or_with_an_error_is_another_finding() -> None:
    tables = tables_of_scene("abrupt-goaway-refuses")
    assert told(detector, changed(tables, "goaways", direction=[0])) is None
    assert told(detector, changed(tables, "goaways", code=[2])) is None
