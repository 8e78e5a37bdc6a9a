"""`hung-rpc`: open at the end, far longer than others; never a watch, a slow call, or a dead connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import changed, must, played, tables_of_scene, told
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import hung_rpc as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_dead import METHOD, RTT
from grpcdiag.fixtures.synthetic.words import S

FIRES_ON = ["wild/hung-rpc", "wild/hung-rpc-grpcio"]
QUIET_ON = [
    "wild/etcd-late",
    "wild/etcd-watch-lease",
    "wild/half-open-nodeadline",
    "wild/slow-stream-ok",
    "wild/tail-calls",
    "wild/watch-ok",
    "wild/window-deadlock",
]


def test_the_call_that_nobody_answers_is_named() -> None:
    """The 30th call is never answered, 203 others take 42 ms."""
    analysis = analyze([recorded("wild/hung-rpc.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence, finding.metrics["hung_rpcs"]) == ("critical", "high", 1)
    assert finding.metrics["longest_wait_ns"] == pytest.approx(12.6 * S, rel=0.01)
    assert (analysis.verdict.finding, finding.evidence[0].packet) == (detector.ID, 125)
    assert "connection 0, stream 57" in finding.explanation
    assert "The hanging RPC has no grpc-timeout" in finding.explanation
    assert "capture_gap" not in analysis.budget


def test_each_side_is_told_apart(tmp_path: Path) -> None:
    """Two calls wait for the server, one for the client; a fourth one is the longest, of a method that is rare."""
    conv = opened(rtt_ns=RTT)
    conv.start_rpc("/demo.Store/Rare").send_message(16, end_stream=True)
    for _ in range(3):
        conv.unary(METHOD)
    for _ in range(2):
        conv.start_rpc(METHOD).send_message(16, end_stream=True)
    conv.start_rpc(METHOD)
    for _ in range(4):
        conv.advance(3 * S)
        conv.unary(METHOD)
    tables = played(conv, tmp_path, "none")
    finding = must(detector, tables)
    waits = tables.open_rpcs.end_time_ns - tables.open_rpcs.since_time_ns
    assert finding.title == "3 RPCs wait for server 10.0.0.2 until the end, the longest for 12.2 s"
    assert finding.verdict.startswith(finding.title)
    assert (finding.metrics["hung_rpcs"], finding.metrics["waiting_for_server_rpcs"]) == (3, 3)
    assert finding.metrics["waiting_for_other_side_rpcs"] == 1
    assert finding.metrics["longest_wait_ns"] == waits[0] == waits.max()
    assert finding.lost_ns == waits[1:3].sum()  # those that can be compared
    assert "1 other RPC waits for the client." in finding.explanation


@pytest.mark.parametrize(("ended", "words"), [(0, "No other RPC of"), (1, "Only 1 RPC of"), (2, "Only 2 RPCs of")])
def test_what_there_is_to_compare_with_is_counted(tmp_path: Path, ended: int, words: str) -> None:
    finding = must(detector, played(compared(ended, 11 * S), tmp_path, "none"))
    assert f"{words} this method ended, so it may be a watch" in finding.explanation


def compared(ended: int, wait_ns: int) -> Conversation:
    """A call waits until the end, and so many others of its method were answered before."""
    conv = opened(rtt_ns=RTT)
    for _ in range(ended):
        conv.unary(METHOD)
    conv.start_rpc(METHOD).send_message(16, end_stream=True)
    conv.advance(wait_ns)
    conv.unary("/demo.Store/Other")
    return conv


def test_thresholds() -> None:
    tables = tables_of_scene("hung-rpc-fires")
    assert must(detector, tables).metrics["waiting_for_server_rpcs"] == 1
    assert told(detector, tables, least_ns=2 * S) is None
    assert told(detector, tables, factor=100.0) is None
    assert told(detector, changed(tables, "unanswered", connection=[0])) is None


def test_a_call_alone_of_its_method_may_be_a_watch() -> None:
    tables = tables_of_scene("hung-rpc-fires")
    old = tables.open_rpcs.start_time_ns
    alone = must(detector, changed(tables, "open_rpcs", start_time_ns=old - 10 * S), others=100)
    assert (alone.severity, alone.confidence, alone.lost_ns) == ("info", "low", None)
    assert told(detector, tables, others=100) is None  # not 10 s old
    answered = changed(tables, "open_rpcs", start_time_ns=old - 10 * S, response_messages=[1])
    assert told(detector, answered, others=100) is None


def edges(folder: Path) -> Iterator[Tables]:
    """Calls alone of their method, and with two others."""
    for ended, wait_ns in ((0, 9 * S), (0, 11 * S), (2, 5 * S)):
        yield played(compared(ended, wait_ns), folder, "none")
