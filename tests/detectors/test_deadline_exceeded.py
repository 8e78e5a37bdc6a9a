"""`deadline-exceeded`: as many as the client counted, and where their time went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from judging import changed, must, played, tables_of_scene, told
from msgspec.structs import replace
from support import recorded, recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import cancelled, deadline_exceeded, rpc_errors
from grpcdiag.analyzer.facts.failures import CANCELLED, DEADLINE_EXCEEDED
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import HEADERS_UNKNOWN, Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_failures import METHOD, given_up
from grpcdiag.fixtures.synthetic.words import MS, RTT_NS, S, Side

FIRES_ON = ["deadline-exceeded", "wild/grpcio-deadline-in-flight"]
QUIET_ON = ["rpc-errors", "impl-go"]


def test_as_many_as_the_client_counted() -> None:
    capture = recording("deadline-exceeded")
    found = must(deadline_exceeded, decode(capture.files))
    assert found.metrics["deadline_exceeded_rpcs"] == capture.report["status"]["DeadlineExceeded"] == 20
    assert found.metrics["deadline_p50_ns"] == pytest.approx(50e6, rel=0.01)
    late = sorted(capture.report["latency_ms"])[-20:]
    assert found.metrics["time_in_vain_ns"] == pytest.approx(sum(late) * 1e6, rel=0.02)
    assert found.metrics["time_in_vain_server_ns"] > 0.99 * found.metrics["time_in_vain_ns"]
    assert (found.severity, found.confidence, found.lost_ns) == ("critical", "high", None)
    assert "server 100%" in found.verdict
    assert found.remedies[1].implementation == "grpc-go"


@pytest.mark.parametrize("client", ["grpcio", "grpc-go", "grpc-js"])
def test_responses_that_were_on_their_way(client: str) -> None:
    """Each caller saw DEADLINE_EXCEEDED for 6 of 14 calls, which the server had answered with OK after 240 ms."""
    tables = decode([recorded(f"wild/{client}-deadline-in-flight.pcap.zst")])
    found = must(deadline_exceeded, tables)
    assert (found.metrics["deadline_exceeded_rpcs"], found.metrics["reset_by_client_rpcs"]) == (6, 6)
    assert found.metrics["time_in_vain_network_ns"] == pytest.approx(6 * 60 * MS, rel=0.05)
    assert (tables.failures.response_messages == 1).all()


def test_a_status_without_a_deadline_is_the_servers_own() -> None:
    tables = decode([recorded("wild/grpcio-own-deadline.pcap.zst")])
    assert "without a grpc-timeout" in must(deadline_exceeded, tables).title
    flags = tables.rpcs.flags | HEADERS_UNKNOWN
    for other in (
        changed(tables, "rpcs", flags=flags),  # a deadline may have been among what is unknown
        replace(tables, deadlines=np.full(tables.rpc_count, 100 * MS)),
    ):
        assert "reached their deadline" in must(deadline_exceeded, other).title


def test_synthetic() -> None:
    capture = synthetic("failures-deadline")
    found = must(deadline_exceeded, decode([capture.file]))
    assert found.metrics["deadline_exceeded_rpcs"] == 6
    assert found.metrics["time_in_vain_ns"] == 6 * (50 * MS + 400_000)


def _silent_after_one_message(by: Side, half_closed: bool) -> Conversation:
    """Streams with one message each way, then 50 ms of silence until one side resets them."""
    conv = opened()
    conv.unary(METHOD)
    for _ in range(3):
        call = conv.start_rpc(METHOD, timeout="50m")
        call.send_message(20, end_stream=half_closed)
        conv.settle()
        call.reply_message(20)
        conv.settle()
        conv.advance(50 * MS)
        call.cancel(by)
        conv.advance(20 * MS)
    return conv


@pytest.mark.parametrize(("half_closed", "waited_for"), [(True, "server"), (False, "client")])
def test_a_client_that_has_ended_its_request_is_not_waited_for(
    tmp_path: Path, half_closed: bool, waited_for: str
) -> None:
    found = must(deadline_exceeded, played(_silent_after_one_message("client", half_closed), tmp_path))
    assert found.metrics[f"time_in_vain_{waited_for}_ns"] == pytest.approx(3 * 50 * MS, rel=0.02)
    knob = found.remedies[0].knob
    assert (knob.startswith("look at the remaining time"), knob.startswith("end the request")) == (
        half_closed,
        not half_closed,
    )


@pytest.mark.parametrize(("half_closed", "cause"), [(True, "server"), (False, "unexplained")])
def test_whom_a_server_waited_for_that_resets_an_answered_stream_is_not_known(
    tmp_path: Path, half_closed: bool, cause: str
) -> None:
    tables = played(_silent_after_one_message("server", half_closed), tmp_path)
    spent = tables.connection_budgets.sum(axis=0)
    assert spent[CAUSES.index(cause)] >= 3 * 50 * MS
    assert spent[CAUSES.index("client")] < MS


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize(
    ("timeout", "early_ns"), [("4m", MS), ("50m", MS), ("1S", 20 * MS), ("5S", 100 * MS), ("10S", 100 * MS)]
)
def test_a_reset_at_the_deadline_or_a_little_earlier_is_its(
    tmp_path: Path, side: Side, timeout: str, early_ns: int
) -> None:
    """2 % of the deadline, at least 1 ms and at most 100 ms; each RPC has one of the two statuses and findings."""
    unit_ns = {"m": MS, "S": S}[timeout[-1]]
    way_ns = RTT_NS // 2 if side == "server" else 0  # the capture is taken at the client
    least_ns = int(timeout[:-1]) * unit_ns - early_ns - way_ns
    for after_ns, fires in ((least_ns - 10_000, False), (least_ns, True), (least_ns + 2 * early_ns, True)):
        tables = played(given_up(after_ns, timeout=timeout, side=side), tmp_path)
        assert set(tables.rpcs.status[1:].tolist()) == {DEADLINE_EXCEEDED if fires else CANCELLED}
        assert (told(deadline_exceeded, tables) is not None) is fires
        assert (told(cancelled, tables) is not None) is not fires


@pytest.mark.parametrize(("timeout", "fires"), [("1500u", True), (None, False), ("5m", False)])
def test_short_and_unknown_deadlines(tmp_path: Path, timeout: str | None, fires: bool) -> None:
    """After 1 ms: of 1.5 ms half at the most is tolerance; without `grpc-timeout` it is a cancel."""
    assert (told(deadline_exceeded, played(given_up(MS, timeout=timeout), tmp_path)) is not None) is fires


def test_the_status_on_the_wire_counts_without_a_deadline(tmp_path: Path) -> None:
    conv = opened()
    for status in (0, 4, 4, 4):
        conv.unary(METHOD, status=status)
    found = must(deadline_exceeded, played(conv, tmp_path))
    assert (found.metrics["status_on_wire_rpcs"], found.metrics["deadline_exceeded_rpcs"]) == (3, 3)
    assert "deadline_p50_ns" not in found.metrics


@pytest.mark.parametrize(
    ("side", "code", "missed"), [("client", 0, 6), ("client", 2, 6), ("server", 8, 6), ("server", 2, 0)]
)
def test_the_code_decides_only_about_a_reset_of_the_server(tmp_path: Path, side: Side, code: int, missed: int) -> None:
    """grpclib resets with NO_ERROR at its deadline, connect-es with INTERNAL_ERROR."""
    found = told(deadline_exceeded, played(given_up(51 * MS, side=side, code=code), tmp_path))
    assert (found.metrics["deadline_exceeded_rpcs"] if found else 0) == missed


def test_a_late_reset_of_the_server_is_no_response(tmp_path: Path) -> None:
    found = must(deadline_exceeded, played(given_up(90 * MS, side="server", code=2), tmp_path))
    ends = [shown.what for shown in found.evidence if "grpc-timeout" in shown.what]
    assert ends
    assert all("RST_STREAM INTERNAL_ERROR from the server after its grpc-timeout" in end for end in ends)


def test_a_deadline_of_grpclib() -> None:
    """Of 20 calls 5 were reset with NO_ERROR when their `grpc-timeout` had passed."""
    tables = decode([recorded("wild/grpclib-deadline.pcap.zst")])
    assert must(deadline_exceeded, tables).metrics["deadline_exceeded_rpcs"] == 5
    assert told(rpc_errors, tables) is None
    assert told(cancelled, tables) is None


def test_severity() -> None:
    tables = tables_of_scene("failures-deadline")
    assert must(deadline_exceeded, tables, few=7).severity == "info"
    assert must(deadline_exceeded, tables, critical_share=6 / 7 + 0.01).severity == "warning"


def late(folder: Path, status: int = 0, work_ns: int = 74 * MS) -> Tables:
    """Four calls with a deadline of 50 ms, answered after so much work and a round trip of 1 ms."""
    conv = opened(rtt_ns=MS)
    for _ in range(4):
        conv.unary(METHOD, timeout="50m", server_delay_ns=work_ns, status=status)
        conv.advance(5 * MS)
    return played(conv, folder)


@pytest.mark.parametrize("status", [0, 13])
def test_an_answer_after_the_deadline_is_a_warning(tmp_path: Path, status: int) -> None:
    found = must(deadline_exceeded, late(tmp_path, status))
    assert (found.severity, found.metrics["answered_late_rpcs"]) == ("warning", 4)
    assert "deadline_exceeded_rpcs" not in found.metrics
    assert "had given up without telling the server" in found.verdict
    assert "after their deadline of 50.0 ms" in found.title


@pytest.mark.parametrize("status", [1, 4])
def test_an_answer_that_ends_it_at_its_deadline_is_not_late(tmp_path: Path, status: int) -> None:
    found = told(deadline_exceeded, late(tmp_path, status))
    assert found is None or "answered_late_rpcs" not in found.metrics


def test_an_answer_that_is_not_so_late_may_have_been_in_time(tmp_path: Path) -> None:
    assert told(deadline_exceeded, late(tmp_path, work_ns=68 * MS)) is None


def test_an_answer_that_was_in_time_by_the_servers_clock_is_not_late(tmp_path: Path) -> None:
    """The capture is taken at the client: the way to the server and back is no part of the time there."""
    tables = late(tmp_path)
    far = changed(tables, "connections", near_server_rtt_ns=np.full(len(tables.connections.rpcs), 30 * MS))
    assert told(deadline_exceeded, far) is None


def test_an_answer_after_the_client_has_left_is_not_told_as_late(tmp_path: Path) -> None:
    tables = late(tmp_path)
    assert len(tables.closings.time_ns)
    left = changed(tables, "closings", time_ns=np.zeros(len(tables.closings.time_ns)))
    assert told(deadline_exceeded, left) is None


def test_a_reset_shortly_before_the_deadline_is_not_called_later(tmp_path: Path) -> None:
    found = must(deadline_exceeded, played(given_up(49 * MS + 500_000), tmp_path))
    assert any("when its grpc-timeout was about to pass" in shown.what for shown in found.evidence)
    assert not any("after its grpc-timeout" in shown.what for shown in found.evidence)


def unlike(tables: Tables) -> Iterator[Tables]:
    """Change what tells a silence from others: it is shorter, or answers come late behind it."""
    stalls = tables.stalls
    yield changed(tables, "stalls", answers_ns=stalls.duration_ns // 5)
    yield changed(tables, "stalls", duration_ns=np.minimum(stalls.duration_ns, 199 * MS))


STOPPED = "wild/grpc-go-stopped-deadline.pcap.zst"


def test_a_silence_is_named_if_two_calls_were_answered_at_once_behind_it() -> None:
    """Long polls without an event end while their server sends nothing, and none is answered behind that."""
    tables = decode([recorded(STOPPED)])
    stalls = tables.stalls
    assert "sent nothing for 2.20 s" in must(deadline_exceeded, tables).verdict
    for lacking in (
        changed(tables, "stalls", answers_ns=np.full(len(stalls.waiting), -1)),
        changed(tables, "stalls", waiting=stalls.unanswered + 1),
        *unlike(tables),
    ):
        found = must(deadline_exceeded, lacking)
        assert "sent nothing" not in found.verdict and "Trace these calls" in found.verdict


def test_a_proxy_that_is_silent_may_wait_for_the_server_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_exceeded, "recognise_proxy", lambda tables, connections: "nginx")
    found = must(deadline_exceeded, decode([recorded(STOPPED)]))
    assert "look for what stopped its process, or the server behind it." in found.verdict


def test_streams_that_delivered_are_told_apart_from_calls_without_a_response() -> None:
    """Four streams of 9 s occupied the server for five calls with a deadline of 1 s."""
    found = must(deadline_exceeded, decode([recorded("wild/grpcio-workers-held.pcap.zst")]))
    assert found.title == "5 of 11 RPCs reached their deadline of about 1.01 s"
    assert found.metrics["deadline_exceeded_rpcs"] == 9
    assert "4 streams had delivered messages until their deadline of 9.00 s" in found.explanation
    assert [remedy.knob.partition(" ")[0] for remedy in found.remedies] == ["more"]


@pytest.mark.parametrize(("scene", "waits"), [("streams", True), ("beside-streams", False)])
def test_what_most_calls_waited_for_is_named(scene: str, waits: bool) -> None:
    found = must(deadline_exceeded, tables_of_scene(f"concurrency-limit-{scene}"))
    assert ("seem to occupy all workers" in found.verdict) is waits
    assert found.remedies[0].knob.startswith("look at the remaining time") is not waits


@pytest.mark.parametrize(("share", "waits"), [(0.99, True), (1.01, False)])
def test_what_fewer_calls_waited_for_is_not_named(share: float, waits: bool) -> None:
    tables = decode([recorded("wild/tonic-rate-limit.pcap.zst")])
    assert ("limit of 50 calls per second" in must(deadline_exceeded, tables, in_silences=share).verdict) is waits


@pytest.mark.parametrize(
    ("deadlines", "expected"),
    [
        ([50_000_000, 50_000_000], " of 50.0 ms"),
        ([49_000_000, 50_000_000], " of about 50.0 ms"),
        ([48_900_000, 50_000_000], " of 48.9 ms to 50.0 ms"),
        ([-1, -1], ""),
    ],
)
def test_what_is_left_of_one_deadline_is_one(deadlines: list[int], expected: str) -> None:
    assert deadline_exceeded._describe_deadlines(np.array(deadlines)) == expected


def edges(_folder: Path) -> Iterator[Tables]:
    """Silences that are shorter, behind which answers come later, or in which few of the calls ended."""
    tables = decode([recorded(STOPPED)])
    yield from unlike(tables)
    short = np.minimum(tables.stalls.duration_ns, 199 * MS)
    since = tables.stalls.start_time_ns + tables.stalls.duration_ns - short
    yield changed(tables, "stalls", start_time_ns=since, duration_ns=short, answers_ns=short // 100)
    yield changed(tables, "stalls", stopped_time_ns=tables.stalls.start_time_ns + tables.stalls.duration_ns // 2)
    slow = np.where(tables.rpcs.status == DEADLINE_EXCEEDED, tables.rpcs.duration_ns, tables.stalls.duration_ns.max())
    yield changed(tables, "rpcs", duration_ns=slow)
