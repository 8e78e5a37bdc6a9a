"""`flow-control-deadlock`: a window that stays used up; never a slow reader that gives credit again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import changed, must, played, repeated, tables_of_scene, told
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import flow_control_deadlock as detector
from grpcdiag.analyzer.facts import methods
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = ["wild/h2-pending-open", "wild/window-deadlock", "wild/window-deadlock-others"]
QUIET_ON = [
    "wild/client-paused-mid-message",
    "wild/grpclib-slowreader2",
    "wild/hung-rpc",
    "wild/okhttp-win64k",
    "wild/window-slowreader-control",
]


def test_the_stream_that_nobody_reads_is_named() -> None:
    """The handler reads one message of the upload; unary calls go on beside it."""
    analysis = analyze([recorded("wild/window-deadlock.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence, finding.metrics["stream_window_bytes"]) == ("critical", "high", 0)
    assert finding.metrics["longest_wait_ns"] == pytest.approx(10.88 * S, rel=0.01)
    assert analysis.verdict.finding == detector.ID
    assert "connection 0, stream 19" in finding.explanation
    assert analysis.budget["stream_window"] == pytest.approx(10.9 * S, rel=0.02)
    assert analysis.budget.get("client", 0) < 0.01 * S  # calls beside it are no waits of the client


def test_thresholds() -> None:
    tables = tables_of_scene("flow-control-deadlock-fires")
    assert must(detector, tables).metrics["blocked_rpcs"] == 1
    assert told(detector, tables, least_ns=2 * S) is None
    heard = changed(tables, "open_rpcs", heard_time_ns=tables.open_rpcs.since_time_ns)
    assert told(detector, heard) is None  # nothing shows that the receiver is there


def test_a_client_that_keeps_back_what_both_windows_allow_is_named() -> None:
    """300 calls at once, 100 allowed: the library gives the window to calls that have no stream, until they give up."""
    analysis = analyze([recorded("wild/h2-pending-open.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence, finding.metrics["blocked_rpcs"]) == ("critical", "medium", 100)
    assert finding.metrics["longest_wait_ns"] == pytest.approx(11.64 * S, rel=0.01)
    assert finding.metrics["connection_window_bytes"] > finding.metrics["stream_window_bytes"] > 10**6
    assert [item.packet for item in finding.evidence] == [1641, 1643]
    assert analysis.verdict.finding == detector.ID
    assert "although the windows are open" in analysis.verdict.text
    assert "server 127.0.0.1 owed nothing" in finding.explanation.lower()
    assert "in vain" not in finding.verdict
    assert analysis.budget["client"] > 0.95 * sum(analysis.budget.values())


def test_what_a_client_keeps_back_needs_open_windows_and_all_streams() -> None:
    tables = decode([recorded("wild/h2-pending-open.pcap.zst")])
    limits, waits = tables.connections.peer_max_concurrent_streams, tables.waits
    assert told(detector, changed(tables, "connections", peer_max_concurrent_streams=limits + 1)) is None
    assert told(detector, changed(tables, "connections", peer_max_concurrent_streams=limits * 0 - 1)) is None
    assert told(detector, tables, streams=101) is None
    assert told(detector, tables, least_ns=12 * S) is None
    for window in ("stream_window_bytes", "connection_window_bytes"):
        assert told(detector, changed(tables, "waits", **{window: waits.stream * 0})) is None
        assert told(detector, changed(tables, "waits", **{window: np.full(len(waits.stream), -(2**63))})) is None


def test_a_client_that_is_stopped_inside_its_uploads_is_waited_for() -> None:
    """The connection's window was used up when it stopped, and open again 1 ms later, for 8 s."""
    analysis = analyze([recorded("wild/client-paused-mid-message.pcap.zst")])
    assert analysis.budget["client"] > 0.98 * sum(analysis.budget.values())
    assert all(finding.severity == "info" for finding in analysis.findings)


def test_a_window_that_others_use_up_at_the_end_was_open_before(tmp_path: Path) -> None:
    """The first call stops with half of the connection's window left; the second one takes that 3 s later."""
    conv = opened(auto_window=False)
    first, second = (conv.start_rpc("/demo.Store/Export", timeout="3S", end_stream=True) for _ in range(2))
    conv.settle()
    for call, owed, sent, later in ((first, 94_486, 30_000, 3 * S), (second, 35_525, 35_525, 50 * MS)):
        call.reply_headers()
        call._data("server", b"\0" + owed.to_bytes(4) + bytes(sent), False, (), None)
        conv.advance(later)
    first.cancel("client")
    tables = played(conv, tmp_path)
    assert told(detector, tables) is None
    budgets = tables.connection_budgets.sum(axis=0)
    assert 0 < budgets[CAUSES.index("connection_window")] < 0.2 * S


def read_slowly(longer_ns: int = 0, **columns: Any) -> Tables:
    """Make a wait for the same cause, a fifth as long or a little longer, that ended."""
    tables = tables_of_scene("flow-control-deadlock-fires")
    wait = int((tables.open_rpcs.end_time_ns - tables.open_rpcs.since_time_ns)[0])
    empty = {name: np.zeros(1, dtype=getattr(tables.waits, name).dtype) for name in tables.waits.__struct_fields__}
    row = {"cause": tables.open_rpcs.cause[:1], "duration_ns": [wait // 5 + longer_ns], **columns}
    return changed(replace(tables, waits=type(tables.waits)(**empty)), "waits", **row)


def test_a_slow_reader_is_told_by_its_earlier_waits() -> None:
    assert told(detector, read_slowly()) is not None
    assert told(detector, read_slowly(1)) is None
    assert told(detector, read_slowly(1, cause=[0])) is not None


def test_waits_of_centuries_are_no_more_than_all_rpc_time() -> None:
    """A damaged clock lets three RPCs wait 127 years each, more together than 64 bits hold."""
    tables = repeated(tables_of_scene("flow-control-deadlock-fires"), "open_rpcs", 0, 3)
    late = changed(tables, "open_rpcs", end_time_ns=tables.open_rpcs.since_time_ns + 4 * 10**18)
    finding = must(detector, late)
    assert finding.share == 1.0
    assert finding.lost_ns == methods.rpc_time(late)


def _given_up(*sizes: int, after_ns: int = 3 * S, sent: int = 65_530, pings: int = 0) -> Conversation:
    """A stream window of 65,535 bytes, messages of which so much is sent, and a client that gives up."""
    conv = opened(auto_window=False)
    conv.window_update("client", 1_000_000)
    call = conv.start_rpc("/demo.Store/Export", timeout="3S", end_stream=True)
    conv.settle()
    call.reply_headers()
    for size in sizes:
        call._data("server", b"\0" + size.to_bytes(4) + bytes(min(size, sent)), False, (), None)
    for _ in range(pings):
        conv.advance(S // 2)
        conv.ping("server")
    conv.advance(after_ns - pings * S // 2)
    call.cancel("client")
    return conv


def test_a_deadline_ends_a_call_whose_window_is_used_up(tmp_path: Path) -> None:
    tables = played(_given_up(94_486), tmp_path)
    finding = must(detector, tables)
    assert finding.metrics["longest_wait_ns"] == pytest.approx(3 * S, rel=0.02)
    assert "until the client reset the stream" in finding.explanation
    assert finding.share == pytest.approx(1.0, abs=0.02)
    assert told(detector, played(_given_up(94_486, after_ns=S - 50 * MS), tmp_path)) is None


@pytest.mark.parametrize("pings", [0, 3])
@pytest.mark.parametrize(("left", "words"), [(1, "has 1 byte left"), (1_023, "has 1,023 bytes left"), (1_024, "")])
def test_what_is_left_of_a_window_is_too_little_for_a_frame(tmp_path: Path, left: int, words: str, pings: int) -> None:
    """Other packets of the server show that it could send, and its windows allow no DATA that is worth a frame."""
    tables = played(_given_up(94_486, sent=65_530 - left, pings=pings), tmp_path)
    finding, blocked = told(detector, tables), tables.connection_budgets[:, CAUSES.index("stream_window")].sum()
    assert (finding is not None, blocked > 2.9 * S) == (bool(words), bool(words))
    if finding:
        assert finding.title.endswith(f"the stream window {words}")


@pytest.mark.parametrize("sizes", [(65_530,), (60_000,), ()], ids=["whole", "room left", "no answer"])
def test_a_call_that_is_given_up_without_a_message_that_waits(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Whether the server had more to send is not in the capture."""
    assert told(detector, played(_given_up(*sizes), tmp_path)) is None


def test_why_a_message_stops_within_its_window_is_unknown(tmp_path: Path) -> None:
    """Nothing blocks the rest, and everything before it has arrived: it is no transmission."""
    tables = played(_given_up(94_486, sent=60_000), tmp_path)
    assert told(detector, tables) is None
    unexplained = tables.connection_budgets[:, CAUSES.index("unexplained")].sum()
    assert unexplained == pytest.approx(3 * S, rel=0.02)


def test_a_call_that_sent_headers_alone_sent_no_data(tmp_path: Path) -> None:
    """Unread requests of other calls used up the connection window."""
    conv = opened(rtt_ns=20 * MS, auto_window=False)
    for size in (16_379, 16_379, 16_379, 16_378):
        conv.unary("/demo.Store/Get", request=size)
    conv.start_rpc("/demo.Store/Get")
    for _ in range(4):
        conv.advance(600 * MS)
        conv.ping("server")
    finding = must(detector, played(conv, tmp_path, close="none"))
    assert "connection window" in finding.title
    assert "DATA" not in finding.explanation + " ".join(item.what for item in finding.evidence)


def edges(_folder: Path) -> Iterator[Tables]:
    yield read_slowly()
    yield read_slowly(1)
