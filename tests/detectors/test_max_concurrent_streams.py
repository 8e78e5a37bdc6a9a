"""`max-concurrent-streams`: places that are taken at once, so somebody was waiting for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from detecting import found, severity, the_finding
from h2.settings import SettingCodes
from judging import changed, must, played, skipped, told
from support import recorded, recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import max_concurrent_streams as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_turns import queue
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = ["max-concurrent-streams", "wild/grpc-java-limit-cold"]
QUIET_ON = ["max-concurrent-streams-control"]

QUEUE = "max-concurrent-streams-fires"


def test_fires_on_a_limit_of_ten() -> None:
    capture = recording("max-concurrent-streams")
    finding = the_finding(detector, capture.files)
    assert finding.severity == "critical"
    assert finding.metrics["max_concurrent_streams"] == 10
    assert int(finding.metrics["places_taken_at_once"]) > 900  # of 1,000 calls, 50 at once
    assert finding.lost_ns == pytest.approx(2.06e9, rel=0.05)  # of 2.14 s in which 50 callers always had a call
    assert finding.share == pytest.approx((finding.lost_ns or 0) / sum(analyze(capture.files).budget.values()))
    assert finding.remedies[0].knob == "grpc.MaxConcurrentStreams(n)"


def test_synthetic_captures() -> None:
    finding = the_finding(detector, [synthetic(QUEUE).file])
    assert finding.metrics["max_concurrent_streams"] == 4
    assert finding.metrics["places_taken_at_once"] == 36  # forty calls, the first four found room


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"refills": 36, "certain_limit": 4}, "critical"),
        ({"refills": 36, "certain_limit": 5}, "warning"),
        ({"refills": 37}, None),
        ({"refilled": 0.85}, "warning"),
        ({"refilled": 1.01}, None),
        ({"critical_share": 0.95}, "warning"),
        ({"warning_share": 0.95, "critical_share": 0.96}, "info"),
    ],
)
def test_each_limit_on_both_sides(limits: dict[str, Any], expected: str | None) -> None:
    assert severity(detector, [synthetic(QUEUE).file], **limits) == expected


def test_the_stream_that_ended_is_shown_at_the_time_of_its_packet() -> None:
    ended, opened = the_finding(detector, recording("max-concurrent-streams").files).evidence
    assert 0 < opened.time_ns - ended.time_ns < 2_000_000


@pytest.mark.parametrize(("limit", "expected"), [(1, "low"), (4, "medium"), (10, "high")])
def test_a_small_limit_is_less_certain(limit: int, expected: str, tmp_path: Path) -> None:
    """One caller that calls again at once looks like a queue for one stream."""
    finding = must(detector, played(queue(limit, 40, 5_000), tmp_path))
    assert finding.confidence == expected
    assert finding.severity == ("critical" if limit == 10 else "warning")
    assert (finding.lost_ns is not None) == (limit == 10)
    assert ("1 streams" in finding.verdict) is False


def test_a_limit_that_was_not_seen_is_named() -> None:
    tables = decode(recording("max-concurrent-streams").files)
    begun_late = changed(tables, "connections", complete=[0], peer_max_concurrent_streams=[-1])
    assert skipped(detector, changed(begun_late, "turns", refills=[0])).startswith("1 connection with many streams")


@pytest.mark.parametrize(("name", "limit", "last"), [("watch-limit-full", 10, 19), ("watch-limit-full-h2", 16, 31)])
def test_a_limit_that_open_streams_fill_is_a_warning(name: str, limit: int, last: int) -> None:
    """As many watches are open as allowed; the client has more of them."""
    finding = the_finding(detector, [recorded(f"wild/{name}.pcap.zst")])
    assert (finding.severity, finding.confidence, finding.lost_ns) == ("warning", "medium", None)
    assert finding.metrics["max_concurrent_streams"] == limit
    assert finding.evidence[0].what == f"stream {last} begins: {limit} are open, as many as allowed"


def test_streams_that_are_busy_until_the_end_fill_a_limit(tmp_path: Path) -> None:
    """All streams have a message every 260 ms for 5.2 s: none is silent at the end."""
    conv = opened(server_settings={SettingCodes.MAX_CONCURRENT_STREAMS: 10})
    calls = [conv.start_rpc("/demo.Store/Watch") for _ in range(10)]
    conv.settle()
    for _ in range(21):
        for call in calls:
            call.reply_message(5)
        conv.advance(260 * MS)
    for call in calls:
        call.reply_message(5)
    tables = played(conv, tmp_path, "none")
    assert len(tables.open_rpcs.stream) == 0
    assert must(detector, tables).evidence[0].what == "stream 19 begins: 10 are open, as many as allowed"
    without_a_row = changed(tables, "rpcs", connection=[1] + 9 * [0])
    assert "10 streams stay open, as many as allowed" in must(detector, without_a_row).evidence[0].what


def test_one_place_less_is_no_full_limit() -> None:
    assert found(detector, [recorded("wild/watch-below-limit.pcap.zst")]) is None


@pytest.mark.parametrize(
    ("limits", "fires"), [({"full_ns": 9_000_000_000}, False), ({"certain_limit": 11}, False), ({}, True)]
)
def test_a_full_limit_at_its_thresholds(limits: dict[str, Any], fires: bool) -> None:
    tables = decode([recorded("wild/watch-limit-full.pcap.zst")])
    assert (told(detector, tables, **limits) is not None) == fires


@pytest.mark.parametrize(("ended", "fires"), [(0, True), (1, True), (2, False)])
def test_a_full_limit_stays_one_when_a_stream_ends_now_and_then(ended: int, fires: bool) -> None:
    tables = decode([recorded("wild/watch-limit-full.pcap.zst")])
    tables = changed(tables, "turns", at_limit_ns=[14_000_000_000], ended_at_limit=[ended])
    finding = told(detector, tables)
    assert (finding is not None) == fires
    if finding and ended:
        assert "only 1 of them ended in 14.0 s" in finding.title


COLD = "wild/grpc-java-limit-cold.pcap.zst"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"refills": 43}, "warning"),
        ({"refills": 44}, None),
        ({"critical_share": 0.59}, "warning"),  # the limit was reached 59.05 % of the time
        ({"critical_share": 0.6}, None),
        ({"certain_limit": 12}, "warning"),
        ({"certain_limit": 13}, None),
    ],
)
def test_a_client_that_takes_places_late_may_have_a_queue(limits: dict[str, Any], expected: str | None) -> None:
    """A JVM that has just started took 43 of 242 places within 2 ms; 30 callers shared 12 streams."""
    assert severity(detector, [recorded(COLD)], **limits) == expected


def test_places_that_are_taken_late_prove_no_queue() -> None:
    finding = the_finding(detector, [recorded(COLD)])
    assert (finding.confidence, finding.lost_ns, finding.at_least) == ("medium", None, False)
    assert "if it has more than 12 callers" in finding.verdict


def edges(_folder: Path) -> Iterator[Tables]:
    """A limit that was not seen, few requests that waited for it, and streams that fill it for a shorter time."""
    tables = decode(recording("max-concurrent-streams").files)
    for open_rpcs in (5, 20):
        late = changed(tables, "connections", complete=[0], peer_max_concurrent_streams=[-1])
        yield changed(changed(late, "turns", refills=[0]), "connections", max_concurrent_rpcs=[open_rpcs])
    yield changed(tables, "turns", refills=[9])
    full = decode([recorded("wild/watch-limit-full.pcap.zst")])
    yield changed(full, "turns", at_limit_ns=[4 * S])
