"""`initial-congestion-window`: beginnings of connections, as information; short-lived connections, as a warning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from stalls import check_evidence, firing, found, relabelled, with_waits, written
from support import recorded, recording, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.initial_congestion_window import ID, Limits, detect
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.scene import scene
from grpcdiag.fixtures.synthetic.words import MS, START_NS, S

FIRES_ON = [
    "rtt205-go-14000",
    "rtt205-go-16000",
    "rtt205-go-32000",
    "rtt205-go-32000-noslowstart",
    "rtt205-py-16000",
    "wild/grpclib-upload",
]
QUIET_ON = ["impl-go", "impl-java", "any", "ydb-unary-single-inflight1"]

RTT_205 = 205 * MS
BEGINNINGS = {
    "rtt205-go-14000": None,
    "rtt205-go-16000": "slow-start-after-idle",
    "rtt205-go-32000": "slow-start-after-idle",
    "rtt205-go-32000-noslowstart": None,
    "rtt205-py-16000": "slow-start-after-idle",
}
FIRES, SHORT_LIVED = "initial-window-fires", "initial-window-short-lived"


@pytest.mark.parametrize("name", BEGINNINGS)
def test_the_first_call_of_five_pays(name: str) -> None:
    """Its second round trip is told once, as information; the verdict speaks of what later calls suffer."""
    capture = recording(name)
    analysis = analyze(capture.files)
    finding = next(f for f in analysis.findings if f.id == ID)
    assert finding.lost_ns == pytest.approx(RTT_205, rel=0.02)
    assert (finding.severity, finding.confidence) == ("info", "high")
    assert (finding.metrics["rpcs_waiting"], finding.metrics["connections"], finding.metrics["waits"]) == (1, 1, 1)
    assert finding.metrics["segments_in_first_burst"] in (9, 10)
    assert analysis.verdict.finding == BEGINNINGS[name]
    assert finding.verdict.startswith("1 of 5 RPCs waited 20") and " on average" not in finding.verdict
    assert "The only connection began like this; 1 of 5 RPCs waited." in finding.explanation
    check_evidence(finding, capture.files, "client", RTT_205 - 2 * MS)


def test_waits_of_centuries_are_no_more_than_all_rpc_time() -> None:
    """A damaged clock lets an interval last 127 years; times the RPCs that it blocked it exceeds 64 bits."""
    tables = decode([synthetic(FIRES).file])
    waits = tables.waits
    long = with_waits(
        tables,
        duration_ns=np.full_like(waits.duration_ns, 4 * 10**18),
        rtt_ns=np.full_like(waits.rtt_ns, 4 * 10**18),
        streams=np.full_like(waits.streams, 5),
    )
    finding = found(detect(long, Limits()))
    assert finding is not None
    assert finding.share == 1.0


def test_a_beginning_is_information_however_large_its_share() -> None:
    finding = firing(detect(decode([synthetic(FIRES).file]), Limits()))
    assert (finding.severity, finding.lost_ns) == ("info", pytest.approx(scenes.RTT, rel=0.01))


def test_short_lived_connections_are_a_warning() -> None:
    tables = decode([synthetic(SHORT_LIVED).file])
    finding = firing(detect(tables, Limits()))
    assert finding.severity == "warning"
    assert finding.lost_ns == pytest.approx(3 * scenes.RTT, rel=0.01)
    assert (finding.metrics["rpcs_waiting"], finding.metrics["connections"]) == (3, 3)
    assert finding.scope.connections == (0, 1, 2)
    still_open = replace(tables.connections, closed_time_ns=np.full_like(tables.connections.closed_time_ns, -1))
    assert firing(detect(replace(tables, connections=still_open), Limits())).severity == "info"
    assert firing(detect(tables, Limits(short_lived=4))).severity == "info"


@pytest.mark.parametrize(("calls", "severity"), [(5, "warning"), (6, "info")])
def test_a_fifth_of_the_calls_is_a_habit(tmp_path: Path, calls: int, severity: str) -> None:
    built = scenes.several([scenes.first_call(START_NS + number * 3 * S, calls) for number in range(3)])
    assert firing(detect(decode([written(built, tmp_path)]), Limits())).severity == severity


@pytest.mark.parametrize("pause_ns", [scenes.RTT // 2, scenes.AFTER_ACK + 60 * MS])
def test_the_rest_must_follow_the_ack(tmp_path: Path, pause_ns: int) -> None:
    conv = scenes.opened(rtt_ns=scenes.RTT)
    conv.pause_after("client", scenes.INITIAL, pause_ns)
    conv.unary(scenes.PUT, request=20_000, response=10)
    assert found(detect(decode([written(scene(conv), tmp_path)]), Limits())) is None


def test_limits_of_a_beginning() -> None:
    """Late flights, grown windows, late ACKs and losses before are no beginnings."""
    tables = decode([synthetic(FIRES).file])
    waits, flight = tables.waits, int(tables.waits.flight[0])
    assert found(detect(tables, Limits(first_flights=flight))) is not None
    assert found(detect(tables, Limits(first_flights=flight - 1))) is None
    assert found(detect(with_waits(tables, duration_ns=waits.duration_ns * 2), Limits())) is not None
    assert found(detect(with_waits(tables, duration_ns=waits.duration_ns * 2 + 2 * MS), Limits())) is None
    grown = with_waits(tables, window_before_idle_bytes=waits.window_before_idle_bytes + 1)
    assert found(detect(grown, Limits())) is None
    later = with_waits(
        tables,
        congestion_window_bytes=waits.congestion_window_bytes + 3 * scenes.MSS,
        flight_start_time_ns=waits.start_time_ns - scenes.RTT // 4,
    )
    assert found(detect(later, Limits())) is not None  # the flight stopped before any ACK could be back
    acked = with_waits(later, flight_start_time_ns=waits.start_time_ns - scenes.RTT)
    assert found(detect(acked, Limits())) is None
    short = with_waits(acked, congestion_window_bytes=waits.congestion_window_bytes + 2 * scenes.MSS)
    assert found(detect(short, Limits())) is not None  # ACKs of preface and SETTINGS let it grow by so much
    lossy = with_waits(tables, retransmissions=np.ones_like(waits.retransmissions))
    assert found(detect(lossy, Limits())) is None
    reduced = with_waits(tables, after_loss=np.ones_like(waits.after_loss))
    assert found(detect(reduced, Limits())) is None


def test_other_causes_and_late_captures_are_not_judged() -> None:
    tables = decode([synthetic(FIRES).file])
    assert list(detect(relabelled(tables, "congestion_window", "unexplained"), Limits())) == []
    late = replace(tables, connections=replace(tables.connections, complete=np.zeros_like(tables.connections.complete)))
    (answer,) = detect(late, Limits())
    assert isinstance(answer, Skipped)


def test_slow_start_comes_before_a_smaller_window() -> None:
    """An upload of 263 ms on a new connection: 185 ms of slow start, 32 ms of a receive window that grew later."""
    analysis = analyze([recorded("wild/grpclib-upload.pcap.zst")])
    assert analysis.verdict.finding == "initial-congestion-window"
    assert "Less important: receive-window-stall costs 12%." in analysis.verdict.text
