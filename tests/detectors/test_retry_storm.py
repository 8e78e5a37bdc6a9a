"""`retry-storm`: retries as a share of the load; never hedging, and never failures that nobody retries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from detecting import the_finding
from judging import changed, played, tables_of_scene, told
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import retry_storm as detector
from grpcdiag.analyzer.facts import retries
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_retries import METHOD, hedged, number_attempt, repeated, retried
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = [
    "wild/retry-storm",
    "wild/grpcio-retries",
    "wild/grpc-js-app-retries",
    "wild/grpcio-app-retries",
    "wild/envoy-retries",
]
QUIET_ON = [
    "wild/hedging",
    "wild/otlp-unavail",
    "wild/nginx-goaway50",
    "wild/grpcio-failing-loop",
    "wild/grpcio-batch-ids",
]


def test_calls_that_all_fail_at_their_fifth_attempt() -> None:
    """The client reports 45 failed calls; its retryPolicy has 5 attempts, and a back-off of 50 ms that doubles."""
    analysis = analyze([recorded("wild/retry-storm.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", "high")
    assert (finding.metrics["requests"], finding.metrics["retries"], finding.metrics["hedges"]) == (225, 180, 0)
    assert (finding.metrics["attempts_per_call"], finding.metrics["most_attempts"]) == (5.0, 5)
    for number, ms in ((1, 50), (2, 100), (3, 200), (4, 400)):  # varied by 20 % each way (gRFC A6)
        assert 0.8 * ms * MS < int(finding.metrics[f"back_off_{number}_p50_ns"]) < 1.2 * ms * MS
    assert "45 of 45 retried calls failed in the end" in finding.explanation
    assert analysis.verdict.finding == detector.ID
    assert "45 calls caused 225 requests" in analysis.verdict.text
    assert next(f for f in analysis.findings if f.id == "rpc-errors").part_of == detector.ID


def test_calls_that_succeed_at_their_third_attempt() -> None:
    """The server fails each call twice; the client reports that all 20 succeeded."""
    finding = the_finding(detector, [recorded("wild/grpcio-retries.pcap.zst")])
    assert (finding.metrics["requests"], finding.metrics["retries"]) == (60, 40)
    assert (finding.metrics["retries_answered_ok"], finding.metrics["most_attempts"]) == (20, 3)
    assert "0 of 20 retried calls failed" in finding.explanation


def test_retries_of_an_application_have_no_number() -> None:
    """The client reports 30 calls and 60 attempts, and that all succeeded; it waits 50, 100 and 200 ms."""
    analysis = analyze([recorded("wild/grpcio-app-retries.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", "medium")
    figures = {name: finding.metrics[name] for name in ("requests", "retries", "attempts_per_call", "calls_failed")}
    assert figures == {"requests": 60, "retries": 30, "attempts_per_call": 2.0, "calls_failed": 0}
    assert 50 * MS < int(finding.metrics["back_off_p50_ns"]) < 55 * MS
    assert "30 calls caused 60 requests: retries are 50% of the load" in analysis.verdict.text


@pytest.mark.parametrize(("name", "library"), [("grpc-js-app-retries", False), ("retry-storm", True)])
def test_settings_of_the_library_are_for_its_own_retries(name: str, library: bool) -> None:
    (found,) = (f for f in analyze([recorded(f"wild/{name}.pcap.zst")]).findings if f.id == detector.ID)
    assert any("retryPolicy" in remedy.knob for remedy in found.remedies) == library
    assert any("retryThrottling" in remedy.knob for remedy in found.remedies) == library


def test_retries_of_envoy_keep_the_request_id() -> None:
    """Three clients in a loop made 18 calls, each of four attempts; by size alone their next calls are the same."""
    (found,) = (f for f in analyze([recorded("wild/envoy-retries.pcap.zst")]).findings if f.id == detector.ID)
    assert (found.metrics["retries"], found.metrics["most_attempts"], found.metrics["attempts_per_call"]) == (
        54,
        4,
        4.0,
    )
    assert "method, size and x-request-id again" in found.explanation
    assert found.remedies[0].implementation == "envoy"


@pytest.mark.parametrize(
    ("conversation", "fires"),
    [
        (repeated(10), True),
        (repeated(9), False),
        (repeated(10, ends=1), True),  # after a tenth of the answers the same request follows
        (repeated(10, ends=2), False),
    ],
)
def test_what_follows_a_failure_does_not_follow_an_answer(
    tmp_path: Path, conversation: Conversation, fires: bool
) -> None:
    assert bool(told(detector, played(conversation, tmp_path))) == fires


def test_which_failures_are_sent_again() -> None:
    tables = tables_of_scene("retry-storm-fires-unnumbered")
    r, failed = tables.repeats, tables.repeats.status != 0
    for status, confidence in ((14, "medium"), (4, "low"), (5, None)):  # a deadline may end a long poll
        finding = told(detector, changed(tables, "repeats", status=failed * status))
        assert (finding.confidence if finding else None) == confidence
    never = np.tile(np.flatnonzero(failed)[:1], 11)  # more calls that fail once, and are not repeated
    for more, fires in ((10, True), (11, False)):
        rows = np.r_[np.arange(len(failed)), never[:more]]
        alone = np.r_[r.next_stream, np.zeros(more)]
        columns = {name: getattr(r, name)[rows] for name in r.__struct_fields__}
        again = changed(tables, "repeats", **columns | {"next_stream": alone})
        assert bool(told(detector, again)) == fires


def test_a_number_may_be_in_header_fields_that_the_capture_does_not_hold(tmp_path: Path) -> None:
    """The capture begins when HPACK's dynamic table has the number of the attempts, and not yet their status."""
    conv = opened()
    begin_ns = conv.clock_ns + MS // 2
    conv.unary(METHOD, response=None, status=14, metadata=number_attempt(1))
    packets = Link(close="none").carry(repeated(12, conv, numbered=True))
    path = tmp_path / "late.pcap"
    path.write_bytes(write_pcap([packet for packet in packets if packet.time_ns > begin_ns]))
    tables = decode([str(path)])
    assert (tables.rpcs.status == 14).sum() == 12
    assert not tables.rpcs.previous_attempts.any()
    assert told(detector, tables) is None


def test_attempts_at_the_end_of_the_capture_prove_nothing() -> None:
    """Within a second of its end the next request had no time to come."""
    tables = tables_of_scene("retry-storm-fires-unnumbered")
    r, last = tables.repeats, int(tables.capture["last_time_ns"])
    times = np.where(r.status == 0, last - 1_000 * MS + 1, r.time_ns)
    assert told(detector, changed(tables, "repeats", time_ns=times)) is None
    times[r.status == 0] -= 1
    open_ones = changed(changed(tables, "repeats", time_ns=times), "connections", closed_time_ns=[-1])
    assert told(detector, open_ones) is not None


def test_the_attempts_of_calls(tmp_path: Path) -> None:
    finding = told(detector, played(retried(6, 3, fails=True), tmp_path))
    assert finding is not None
    assert finding.metrics["attempts_per_call"] == 3.0
    back_offs = [round(int(finding.metrics[f"back_off_{number}_p50_ns"]) / MS) for number in (1, 2)]
    assert back_offs == [10, 20]


def attempts(calls: int, numbers: Sequence[int]) -> Conversation:
    """Calls of which only these attempts are in the capture; the last one is answered."""
    conv = opened()
    for _ in range(calls):
        for number in numbers:
            status = 0 if number == numbers[-1] else 14
            response = None if status else 16
            conv.unary(METHOD, response=response, status=status, metadata=number_attempt(number))
            conv.advance(20 * MS)
    return conv


def test_attempts_before_the_capture_or_at_another_server_are_not_paired(tmp_path: Path) -> None:
    """The third attempts fail, and the fourth ones are answered; nothing shows the first two."""
    finding = told(detector, played(attempts(12, (2, 3)), tmp_path))
    assert finding is not None
    assert (finding.metrics["retries"], finding.metrics["unpaired"], finding.metrics["hedges"]) == (24, 12, 0)
    assert (finding.title, finding.confidence) == ("24 of 24 requests are retries", "medium")
    assert "before retry 3 was 20.0 ms" in finding.explanation
    assert "For 12 requests no failed or open attempt before is known" in finding.explanation


@pytest.mark.parametrize(("calls", "fires"), [(9, False), (10, True)])
def test_attempts_without_any_before_them_may_be_hedged(tmp_path: Path, calls: int, fires: bool) -> None:
    finding = told(detector, played(attempts(calls, (1,)), tmp_path))
    assert (finding is not None) == fires
    if finding:
        assert (finding.severity, finding.metrics["unpaired"]) == ("info", 10)
        assert finding.title == "10 of 10 requests are retries or hedged attempts"
        assert "no failed or open one before" in finding.evidence[0].what


def test_hedges_are_no_part_of_the_retries(tmp_path: Path) -> None:
    """Ten calls of one method are retried, twelve of another one hedged: 10 of 44 requests are retries."""
    conv = retried(10, 2, method="/demo.Store/Put")
    finding = told(detector, played(hedged(12, conv), tmp_path))
    assert finding is not None
    assert (finding.metrics["retries"], finding.metrics["hedges"], finding.metrics["requests"]) == (10, 12, 20)
    assert (finding.severity, finding.metrics["attempts_per_call"]) == ("warning", 2.0)


def test_attempts_without_rows_count_as_those_with_rows_do(tmp_path: Path) -> None:
    """A connection has rows of its first 4,096 attempts; twelve of them were retries, and four hedged."""
    tables = played(hedged(4, retried(12, 2, method="/demo.Store/Put")), tmp_path)
    found = told(detector, changed(tables, "connections", retries=[16_000]))
    assert found is not None
    assert (found.metrics["retries"], found.metrics["hedges"]) == (12_000, 4)


@pytest.mark.parametrize(("calls", "fires"), [(9, False), (10, True)])
def test_few_retries_are_no_storm(tmp_path: Path, calls: int, fires: bool) -> None:
    assert bool(told(detector, played(retried(calls, 2), tmp_path))) == fires


@pytest.mark.parametrize(("others", "severity"), [(81, "info"), (80, "warning"), (0, "critical")])
def test_the_share_decides(tmp_path: Path, others: int, severity: str) -> None:
    """Ten retries of 101 requests and of 100; without others they are half."""
    finding = told(detector, played(retried(10, 2, others=others), tmp_path))
    assert finding is not None
    assert finding.severity == severity


def test_hedged_attempts_are_told_apart(tmp_path: Path) -> None:
    tables = played(hedged(12), tmp_path)
    found_rows = retries.find_retries(tables)
    assert (len(found_rows.retries), len(found_rows.hedges), len(found_rows.unpaired)) == (0, 12, 0)
    assert told(detector, tables) is None


def test_the_number_of_previous_attempts_is_read() -> None:
    attempts = decode([synthetic("retry-storm-fires").file]).rpcs.previous_attempts.tolist()
    assert attempts == [0, 1, 2] * 6
