"""`cancelled`: who gave up, after how long, and whether a timer did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judging import changed, must, played, tables_of_scene
from msgspec import structs
from support import recorded, synthetic

from grpcdiag.analyzer._core import STATUS_SOURCES
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import cancelled
from grpcdiag.analyzer.summary.figures import summarize_calls
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scene import opened, side_by_side
from grpcdiag.fixtures.synthetic.scenes_failures import METHOD, given_up
from grpcdiag.fixtures.synthetic.scenes_retries import METHOD as ATTEMPTED
from grpcdiag.fixtures.synthetic.scenes_retries import attempt, hedged
from grpcdiag.fixtures.synthetic.wire import CLIENT, Link
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/cancelled", "wild/grpcio-message-refused", "wild/grpcio-metadata-refused"]
QUIET_ON = [
    "deadline-exceeded",
    "rpc-errors",
    "wild/retry-storm",
    "wild/connect-go-early-answer",
    "wild/connect-node-pings",
    "wild/grpc-js-message-refused",
]


def test_a_timer() -> None:
    """Six calls, one after the other, cancelled after 40 ms each; the deadline was 50 ms."""
    capture = synthetic("failures-cancel")
    found = must(cancelled, decode([capture.file]))
    assert (found.severity, found.confidence, found.lost_ns) == ("warning", "medium", None)
    assert found.metrics["cancelled_rpcs"] == found.metrics["reset_by_client_rpcs"] == 6
    assert found.metrics["duration_p50_ns"] == 40 * MS
    assert "a timer" in found.verdict


def test_a_timer_of_the_server() -> None:
    """`Server::timeout` of 300 ms in tonic: the server responds CANCELLED, and the client cancels nothing."""
    files = [recorded("wild/tonic-server-timeout.pcap.zst")]
    found = must(cancelled, decode(files))
    assert (found.metrics["cancelled_rpcs"], found.metrics["reset_by_client_rpcs"]) == (12, 0)
    assert found.metrics["duration_p50_ns"] == pytest.approx(302 * MS, rel=0.01)
    assert "find that timer in the server or a proxy" in found.verdict
    assert "client" not in found.remedies[0].knob


def timed(tables: Tables, messages: list[int], since_ms: list[int], last_ms: int = 20) -> str:
    """The severity of six calls that lasted equally long, with so many messages, and times since other bytes."""
    failures = {"response_messages": messages, "since_answer_ns": np.array(since_ms) * MS}
    return must(cancelled, changed(tables, "failures", since_bytes_ns=np.full(6, last_ms * MS), **failures)).severity


def test_what_else_than_a_timer_may_end_calls() -> None:
    tables = decode([synthetic("failures-cancel").file])
    never = [-1] * 6
    assert timed(tables, [0] * 6, never) == "warning"
    assert timed(tables, [3] * 5 + [4], never) == "info"  # a client that wants no more
    assert timed(tables, [3] * 4 + [4] * 2, never) == "warning"
    assert timed(tables, [3] * 6, never, last_ms=24) == "warning"  # the way to the client takes no 4 ms
    assert timed(tables, [0] * 6, [20] * 5 + [-1]) == "info"  # a second call that was answered first
    assert timed(tables, [0] * 6, [20] * 4 + [-1] * 2) == "warning"
    assert timed(tables, [0] * 6, [24] * 6) == "warning"  # the way to the client takes no 4 ms
    busy = changed(tables, "connections", rpcs=[100])
    assert timed(busy, [0] * 6, [20] * 6) == "warning"  # by chance, with so many answers on that connection
    by_server = changed(tables, "failures", reset_by=[1] * 6)
    assert timed(by_server, [3] * 6, never) == "warning"


def test_a_client_refuses_complete_responses() -> None:
    """`max_receive_message_length`: grpcio saw RESOURCE_EXHAUSTED for 6 of 10 calls, whose trailers say OK."""
    tables = decode([recorded("wild/grpcio-message-refused.pcap.zst")])
    found = must(cancelled, tables)
    assert (found.severity, found.metrics["refused_responses"], found.metrics["rpcs"]) == ("warning", 6, 10)
    assert found.verdict == (
        "client 10.77.0.1 refused the response of 6 of 10 RPCs with ENHANCE_YOUR_CALM: check its limits on received "
        "messages and metadata."
    )
    (_, reset, *_) = found.evidence
    assert (reset.packet, reset.time_ns) == (28, int(tables.failures.refused_time_ns[0]))
    assert must(cancelled, tables, refused_rpcs=7).severity == "info"
    assert must(cancelled, tables, warning_share=0.61).severity == "info"
    others = changed(tables, "failures", reset_code=[11, 11, 11, 8, 8, 8])
    mixed = must(cancelled, others)
    assert (mixed.severity, mixed.title) == ("warning", "6 of 10 RPCs were cancelled")
    assert "refused 3 responses with ENHANCE_YOUR_CALM" in mixed.explanation


def test_cancelled_rpcs_are_not_called_failed(tmp_path: Path) -> None:
    assert summarize_calls(played(given_up(40 * MS, calls=4), tmp_path)).endswith("5 RPCs, 4 cancelled.")


@pytest.mark.parametrize(("calls", "severity"), [(4, "info"), (5, "warning")])
def test_few_are_no_timer(tmp_path: Path, calls: int, severity: str) -> None:
    assert must(cancelled, played(given_up(40 * MS, calls=calls), tmp_path)).severity == severity


@pytest.mark.parametrize(("after_ns", "severity"), [(9 * MS, "info"), (11 * MS, "warning")])
def test_short_ones_are_no_timer(tmp_path: Path, after_ns: int, severity: str) -> None:
    assert must(cancelled, played(given_up(after_ns), tmp_path)).severity == severity


def test_unlike_durations_are_no_timer(tmp_path: Path) -> None:
    conv = opened()
    for number in range(8):
        call = conv.start_rpc(METHOD)
        call.send_message(20, end_stream=True)
        conv.advance((20 + 4 * number) * MS)
        call.cancel()
    found = must(cancelled, played(conv, tmp_path))
    assert found.severity == "info"
    assert "timer" not in found.verdict


def test_streams_stopped_together_are_no_timer(tmp_path: Path) -> None:
    """Subscriptions begun and cancelled together, as at the end of a program."""
    conv = opened()
    calls = [conv.start_rpc(METHOD, end_stream=True) for _ in range(10)]
    conv.advance(400 * MS)
    for call in calls:
        call.cancel()
    found = must(cancelled, played(conv, tmp_path))
    assert (found.metrics["cancelled_rpcs"], found.severity) == (10, "info")


def test_the_server_may_cancel_and_trailers_may_say_so(tmp_path: Path) -> None:
    conv = opened()
    conv.unary(METHOD, status=1)
    call = conv.start_rpc(METHOD)
    call.cancel("server")
    found = must(cancelled, played(conv, tmp_path))
    assert (found.metrics["reset_by_server_rpcs"], found.metrics["cancelled_rpcs"]) == (1, 2)
    assert "1 by the server, 1 with status CANCELLED" in found.verdict


def test_the_share_decides() -> None:
    assert must(cancelled, tables_of_scene("failures-cancel"), warning_share=0.9).severity == "info"


@pytest.mark.parametrize("others", [0, 10])
def test_hedged_attempts_are_no_timer(tmp_path: Path, others: int) -> None:
    """The client resets the first attempt of each call when the second is answered; other calls it resets itself."""
    conv = hedged(12)
    for _ in range(others):
        call = conv.start_rpc(METHOD)
        call.send_message(20, end_stream=True)
        conv.advance(40 * MS)
        call.cancel()
        conv.advance(20 * MS)
    found = must(cancelled, played(conv, tmp_path))
    assert (found.metrics["hedged_rpcs"], found.metrics["cancelled_rpcs"]) == (12, 12 + others)
    assert found.severity == ("warning" if others else "info")
    assert ("timer" in found.verdict) == bool(others)
    assert "12 of them are hedged attempts" in found.explanation


def test_attempts_that_the_application_cancels_are_not_answered(tmp_path: Path) -> None:
    """Both attempts of each call are cancelled; other calls are answered before and after."""
    conv = opened()
    for number in range(12):
        conv.unary(ATTEMPTED)
        calls = [attempt(conv, 0)]
        conv.advance(20 * MS)
        calls.append(attempt(conv, 1))
        conv.advance((5 + number % 3) * MS)
        for call in calls:
            call.cancel()
        conv.settle()
    found = must(cancelled, played(conv, tmp_path))
    assert "hedged_rpcs" not in found.metrics
    assert "another attempt" not in found.explanation + found.verdict


def test_attempts_before_which_nothing_is_open_are_no_hedges(tmp_path: Path) -> None:
    """The first attempts went to another server."""
    conv = opened()
    for _ in range(12):
        conv.unary(ATTEMPTED)
        call = attempt(conv, 1)
        conv.advance(5 * MS)
        call.cancel()
        conv.settle()
    assert "hedged_rpcs" not in must(cancelled, played(conv, tmp_path)).metrics


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_all_attempts_but_the_one_that_is_answered_are_hedged(tmp_path: Path, winner: int) -> None:
    """Three attempts 20 ms apart, one is answered; the calls of two applications overlap."""
    conv = opened()
    for _ in range(4):
        attempts = []
        for number in range(3):
            attempts += [(number, attempt(conv, number)), (number, attempt(conv, number))]
            conv.advance(20 * MS)
        for number, call in attempts:
            if number == winner:
                call.reply_message(16)
                call.finish()
        conv.settle()
        for number, call in attempts:
            if number != winner:
                call.cancel()
        conv.settle()
    assert must(cancelled, played(conv, tmp_path)).metrics["hedged_rpcs"] == 4 * 2 * 2


@pytest.mark.parametrize(
    ("timeout", "agent", "says"),
    [
        ("500u", "grpc-go/1.85", "with a grpc-timeout of only 500 µs: their deadline passed as they were sent."),
        ("5S", "grpc-c++/1.66", "Their grpc-timeout is what was left when C-core wrote it, 5.00 s"),
        ("5S", "grpc-go/1.85", "their deadline of 5.00 s may have passed."),
        (None, "grpc-go/1.85", None),
    ],
)
def test_a_reset_in_the_packet_of_the_request(
    timeout: str | None, agent: str, says: str | None, tmp_path: Path
) -> None:
    conv = opened()
    for _ in range(3):
        with conv.batch("client"):
            conv.start_rpc(METHOD, timeout=timeout).cancel()
        conv.advance(7 * MS)
    tables = played(conv, tmp_path)
    tables = structs.replace(tables, agents=(*tables.agents, agent))
    tables = changed(tables, "connections", client_agent=[len(tables.agents) - 1])
    found = must(cancelled, tables)
    assert ("in the packet that began them" in found.explanation) == (says is not None)
    assert says is None or says in found.explanation


def test_the_evidence_of_a_timer_is_of_calls_that_it_ended(tmp_path: Path) -> None:
    """One call of eight is given up sooner: it is no example of a timer of 40 ms."""
    conv = opened()
    for number in range(8):
        call = conv.start_rpc(METHOD)
        conv.advance((18 if number == 0 else 40) * MS)
        call.cancel()
        conv.advance(7 * MS)
    found = must(cancelled, played(conv, tmp_path))
    assert " timer of about 40.0 ms" in found.verdict
    assert len(found.evidence) == 6
    assert all("40.0 ms after the RPC began" in item.what for item in found.evidence[1::2])


def test_hedging_of_a_recorded_client() -> None:
    """220 of 220 calls ended with OK; 58 requests lost against another attempt of their call."""
    found = must(cancelled, decode([recorded("wild/hedging.pcap.zst")]))
    assert (found.severity, found.metrics["hedged_rpcs"], found.metrics["cancelled_rpcs"]) == ("info", 58, 58)


def hedged_in_vain(conv: Conversation, other: Conversation, calls: int) -> None:
    """Make calls whose second attempt begins 20 ms after the first, and is reset when the first is answered.

    `other` carries second attempts.
    """
    for number in range(calls):
        first = attempt(conv, 0)
        conv.advance(20 * MS)
        other.advance_to(conv.clock_ns)
        second = attempt(other, 1)
        conv.advance((40 + number % 3) * MS)
        first.reply_message(16)
        first.finish()
        conv.settle()
        other.advance_to(conv.clock_ns)
        second.cancel()
        other.settle()
        conv.advance_to(other.clock_ns + (number % 5) * 50 * MS)


def test_hedged_attempts_are_known_where_few_rpcs_have_rows(tmp_path: Path) -> None:
    """The answered first attempts are behind those that have rows anyway."""
    conv = opened()
    for _ in range(40):
        conv.unary(ATTEMPTED)
    hedged_in_vain(conv, conv, 12)
    for rows in (True, False):
        found = must(cancelled, played(conv, tmp_path, rpc_rows=rows))
        assert (found.severity, found.metrics["hedged_rpcs"], found.metrics["cancelled_rpcs"]) == ("info", 12, 12)


def test_attempts_on_other_connections_are_no_timer_where_few_rpcs_have_rows(tmp_path: Path) -> None:
    conv, other = opened(), opened()
    for _ in range(40):
        conv.unary(ATTEMPTED)
    hedged_in_vain(conv, other, 12)
    path = tmp_path / "two.pcap"
    link = Link(connection=1, client=replace(CLIENT, port=40_002), client_isn=77, server_isn=88)
    path.write_bytes(side_by_side((conv, other), (Link(), link)).file())
    assert must(cancelled, decode([str(path)])).metrics["hedged_rpcs"] == 12
    found = must(cancelled, decode([str(path)], rpc_rows=False))
    assert (found.severity, found.metrics["cancelled_rpcs"]) == ("info", 12)
    assert "carry grpc-previous-rpc-attempts" in found.explanation


def answered_cancelled(folder: Path, number: int = 6, others: int = 0, timeout: str | None = None) -> Tables:
    """Calls of different lengths that their server ends with CANCELLED in its trailers, and calls with OK."""
    conv = opened()
    for call in range(number):
        conv.unary(METHOD, status=1, timeout=timeout, server_delay_ns=(1 + 3 * call) * MS)
    for _ in range(others):
        conv.unary(METHOD)
    return played(conv, folder)


def test_a_server_that_cancels_what_nobody_gave_up_is_a_warning(tmp_path: Path) -> None:
    found = must(cancelled, answered_cancelled(tmp_path))
    assert found.severity == "warning"
    assert "the server ended them, though their clients had neither reset them nor set a deadline" in found.verdict
    assert "The server ended them of its own accord, though their clients" in found.explanation
    assert [remedy.knob for remedy in found.remedies] == ["the server's log"]


@pytest.mark.parametrize(
    ("number", "others", "timeout", "severity"),
    [(4, 0, None, "info"), (5, 45, None, "warning"), (5, 46, None, "info"), (6, 0, "1S", "info")],
)
def test_few_and_those_with_a_deadline_are_no_warning(
    tmp_path: Path, number: int, others: int, timeout: str | None, severity: str
) -> None:
    found = must(cancelled, answered_cancelled(tmp_path, number, others, timeout))
    assert found.severity == severity
    assert ("the server ended" in found.verdict) is (number >= 5 and timeout is None)


def test_what_may_have_been_a_deadline_is_not_the_servers(tmp_path: Path) -> None:
    """The capture may lack the name of grpc-timeout."""
    tables = answered_cancelled(tmp_path)
    hidden = changed(tables, "connections", complete=[0] * len(tables.connections.complete))
    found = must(cancelled, hidden)
    assert (found.severity, found.confidence) == ("info", "low")
    assert "the server ended" not in found.verdict + found.explanation


def test_those_that_the_client_reset_are_not_counted_with_the_servers(tmp_path: Path) -> None:
    tables = answered_cancelled(tmp_path, 7)
    rows = np.arange(len(tables.rpcs.status)) < 2
    source = np.where(rows, STATUS_SOURCES.index("client_reset"), tables.rpcs.status_source)
    found = must(cancelled, changed(tables, "rpcs", status_source=source))
    assert "the server ended 5 of them, though their clients" in found.verdict


@pytest.mark.parametrize(("later_ms", "says"), [(0, True), (15, True), (21, False)])
def test_a_shutdown_ends_calls_with_their_connection(later_ms: int, says: bool) -> None:
    """`shutdownNow()` of grpc-java reset four calls, and closed about 2 ms later."""
    tables = decode([recorded("wild/grpc-java-shutdown-now.pcap.zst")])
    closed = np.where(
        tables.connections.closed_by == 1,
        tables.connections.closed_time_ns + later_ms * MS,
        tables.connections.closed_time_ns,
    )
    finding = must(cancelled, changed(tables, "connections", closed_time_ns=closed))
    assert ("its shutdown ended them" in finding.verdict) == says
    assert finding.severity == ("warning" if says else "info")
    assert ("Server.shutdown(), awaitTermination(...)" in {remedy.knob for remedy in finding.remedies}) == says


def test_calls_that_a_goaway_refuses_are_not_cancelled() -> None:
    """Bun resets them with REFUSED_STREAM."""
    assert list(cancelled.detect(decode([recorded("wild/bun-age.pcap.zst")]), cancelled.Limits())) == []


def edges(_folder: Path) -> Iterator[Tables]:
    """Calls that may have ended with another one's answer: most and few of them, seldom and often, and short ones."""
    tables = decode([synthetic("failures-cancel").file])
    for since_ms, rpcs in (([20] * 4 + [-1] * 2, 7), ([20] * 6, 7), ([20] * 6, 100)):
        answered = changed(tables, "failures", since_answer_ns=np.array(since_ms) * MS)
        yield changed(answered, "connections", rpcs=[rpcs])
    yield changed(tables, "rpcs", duration_ns=np.minimum(tables.rpcs.duration_ns, 9 * MS))
    refused = decode([recorded("wild/grpcio-message-refused.pcap.zst")])
    yield changed(refused, "failures", reset_code=[11, 11, 8, 8, 8, 8])
