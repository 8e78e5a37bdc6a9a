"""Pictures of findings: each shows what its finding says, in few points."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.detector import PictureName
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import Ints
from grpcdiag.analyzer.views.page_data import Bounds, collect_page_data
from grpcdiag.analyzer.views.pictures import Picture, model
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link

KINDS = {
    "rtt205-go-16000.pcap": ("slow-start-after-idle", "flight"),
    "lab/stream-window-stall.pcap": ("stream-window-stall", "window"),
    "lab/connection-window-stall.pcap.gz": ("connection-window-stall", "window"),
    "lab/flow-control-deadlock.pcap.gz": ("flow-control-deadlock", "window"),
    "lab/receive-window-stall.pcap": ("receive-window-stall", "window"),
    "lab/delayed-ack-nagle.pcap": ("delayed-ack-nagle", "flight"),
    "lab/ping-storm.pcap.gz": ("ping-storm", "rates"),
    "lab/client-idle-gap.pcap.gz": ("client-idle-gap", "idle"),
    "lab/shared-connection-single-8-grpc-go.pcap.gz": ("shared-connection", "idle"),
    "lab/request-batching.pcap.gz": ("request-batching", "batches"),
    "lab/connection-churn.pcap": ("connection-churn", "handshakes"),
    "lab/slow-connect.pcap": ("slow-connect", "handshakes"),
    "lab/loss-recovery.pcap.gz": ("loss-recovery", "loss"),
    "lab/head-of-line-blocking.pcap.gz": ("head-of-line-blocking", "loss"),
    "max-concurrent-streams.pcap": ("max-concurrent-streams", "streams"),
    "lab/network-queueing.pcap.gz": ("network-queueing", "delay"),
    "deadline-exceeded.pcap": ("deadline-exceeded", "latency"),
}
"""Of each capture a finding, and the kind of its picture."""


@cache
def drawn(path: str) -> tuple[tuple[Finding, Picture | None], ...]:
    analysis = analyze([path])
    return tuple(zip(analysis.findings, collect_page_data([path], analysis).pictures, strict=True))


def picture_of(name: str) -> Picture:
    finding, kind = KINDS[name]
    picture = next(picture for found, picture in drawn(recorded(name)) if found.id == finding)
    assert picture is not None and picture.kind == kind
    return picture


def points(picture: Picture, place: int) -> Ints:
    return np.array([[-1 if value is None else value for value in point] for point in picture.series[place].points])


def count_packets(picture: Picture) -> dict[str, int]:
    """Packets of each kind in a picture of packets per second."""
    lines = {series.name: points(picture, place) for place, series in enumerate(picture.series)}
    return {name: round(line[:, 1].sum() * (line[1, 0] - line[0, 0]) / 1e9) for name, line in lines.items()}


def value_at(line: Ints, time: int) -> int:
    return int(line[np.searchsorted(line[:, 0], time, side="right") - 1, 1])


@pytest.mark.parametrize("name", KINDS)
def test_each_finding_has_its_kind_of_picture(name: str) -> None:
    picture = picture_of(name)
    assert picture.begin_ns < picture.end_ns
    assert all(0 < len(series.points) <= model.MOST_POINTS for series in picture.series)
    assert len(picture.lanes) <= model.MOST_LANES + 1


def test_every_picture_is_of_a_detector() -> None:
    assert {detector.about.picture for detector in DETECTORS} == set(get_args(PictureName))


def test_the_flight_touches_the_congestion_window_for_a_round_trip() -> None:
    picture = picture_of("rtt205-go-16000.pcap")
    flight, limit = points(picture, 0), points(picture, 1)
    assert value_at(flight, limit[0, 0]) == limit[0, 1] == 14_080  # 10 segments of 1,408 bytes
    (start, _), (first, _), *_ = picture.marks
    assert limit[1, 0] == pytest.approx(first, abs=1_000_000) and start < limit[0, 0]


def test_a_congestion_window_is_drawn_only_where_it_blocked() -> None:
    """A sender that waits for a delayed ACK has room in its window."""
    picture = picture_of("lab/delayed-ack-nagle.pcap")
    assert [series.form for series in picture.series] == ["step", "shade"]
    waits = points(picture, 1)
    assert (waits[:, 1] - waits[:, 0] > 40_000_000).all()  # the timer of a delayed ACK
    assert all(value_at(points(picture, 0), begin) == 16 for begin, _ in waits.tolist())  # as the evidence says


@pytest.mark.parametrize("name", ["lab/stream-window-stall.pcap", "lab/connection-window-stall.pcap.gz"])
def test_what_is_sent_touches_the_limit_of_the_window_and_never_exceeds_it(name: str) -> None:
    picture = picture_of(name)
    sent, limit = points(picture, 0), points(picture, 1)
    known = limit[limit[:, 1] >= 0]
    left = [value - value_at(sent, time) for time, value in known[::2].tolist()]
    assert min(left) == 0 and left.count(0) >= 3


def test_nothing_is_sent_after_the_window_is_used_up() -> None:
    picture = picture_of("lab/flow-control-deadlock.pcap.gz")
    sent, limit = points(picture, 0), points(picture, 1)
    assert limit[0, 0] == 9_243_207  # the evidence: "its last bytes; the stream window is used up"
    assert value_at(sent, limit[0, 0]) == limit[0, 1] == sent[-1, 1] == 20_000 + 10_005  # SETTINGS, and a WINDOW_UPDATE


def test_the_flight_touches_the_receive_window() -> None:
    picture = picture_of("lab/receive-window-stall.pcap")
    assert points(picture, 0)[:, 1].max() == 3_712  # the evidence's window
    assert value_at(points(picture, 1), picture.end_ns) == 3_712


def test_packets_per_second_add_up_to_the_packets() -> None:
    picture = picture_of("lab/ping-storm.pcap.gz")
    packets = count_packets(picture)
    assert sum(packets.values()) == pytest.approx(1_752, abs=3)  # of the capture, all of one connection
    assert packets["PING"] == pytest.approx(784, abs=3)  # as the evidence says


@pytest.mark.parametrize("name", [name for name, (_, kind) in KINDS.items() if kind == "idle"])
def test_an_idle_gap_is_where_no_rpc_is_open(name: str) -> None:
    picture = picture_of(name)
    line, gaps = points(picture, 0), points(picture, 1)
    assert all(value_at(line, (begin + end) // 2) == 0 for begin, end in gaps.tolist())
    assert len(gaps) >= 5


def test_a_burst_is_as_large_as_its_callers() -> None:
    picture = picture_of("lab/request-batching.pcap.gz")
    assert points(picture, 0)[:, 1].max() == 32  # callers of the client
    assert points(picture, 1)[:, 1].min() == -32


def test_each_connection_of_churn_has_its_bars() -> None:
    picture = picture_of("lab/connection-churn.pcap")
    opening, used = points(picture, 0), points(picture, 1)
    assert opening[0].tolist() == [0, 46_899_851, 0]  # the SYN, and the first RPC of the evidence
    assert len(opening) == len(picture.lanes) == 20
    assert (opening[:, 1] == used[:, 0]).all()


def test_the_time_before_a_connection_is_drawn() -> None:
    picture = picture_of("lab/slow-connect.pcap")
    assert picture.series[0].name == "before its first packet"
    assert points(picture, 0)[0, 1] > 1_210_000_000  # the answer to the question of its name


def test_an_arrow_leads_from_a_lost_packet_to_its_retransmission_above_its_calls() -> None:
    picture = picture_of("lab/loss-recovery.pcap.gz")
    arrows = points(picture, 0)
    calls = np.concatenate([points(picture, place) for place in range(1, len(picture.series))])
    assert (arrows[:, 1] - arrows[:, 0] >= 20_000_000).all()  # no sooner than a round trip
    begin, end, *_ = arrows[0].tolist()
    assert len(calls) and all(start <= end and stop >= begin for start, stop, _ in calls.tolist())


def test_open_rpcs_reach_the_limit_of_streams() -> None:
    picture = picture_of("max-concurrent-streams.pcap")
    assert points(picture, 0)[:, 1].max() == 10 == points(picture, 1)[0, 1]


def test_delays_are_those_of_the_evidence() -> None:
    picture = picture_of("lab/network-queueing.pcap.gz")
    server = points(picture, 1)
    assert server[:, 1].max() == pytest.approx(73_000_000, abs=2_000_000)  # the latest packet of the evidence
    assert server[:, 1].min() == 0


def test_a_frame_of_many_packets_names_all_of_them(tmp_path: Path) -> None:
    conversation = opened()
    for _ in range(150):
        conversation.unary("/lab.v1.Lab/Up", request=60, response=40, server_delay_ns=0)
        for _ in range(3):
            conversation.ping("client")
    conversation.unary("/lab.v1.Lab/Up", request=16_000)  # of one frame, in a dozen packets
    path = tmp_path / "storm.pcap"
    path.write_bytes(write_pcap(Link(mss=1_400).carry(conversation)))
    found = [picture for finding, picture in drawn(str(path)) if picture and picture.kind == "rates"]
    assert found, "the PINGs are a finding"
    counts = count_packets(found[0])
    assert counts["PING"] == pytest.approx(900, abs=3) and counts["DATA"] == pytest.approx(2 * 151 + 11, abs=3)


def test_a_part_of_a_large_capture_has_pictures_of_that_part() -> None:
    path = recorded("lab/ping-storm.pcap.gz")
    analysis = analyze([path])
    part = collect_page_data([path], analysis, bounds=Bounds(packets=400, around=40))
    found = next(p for p in part.pictures if p and p.kind == "rates")
    first, last = (analysis.findings[part.pictures.index(found)].evidence[place].time_ns for place in (0, -1))
    start = analysis.capture.first_time_ns
    assert not part.spans.whole and start is not None
    assert found.begin_ns <= first - start <= found.end_ns < last - start  # around the first evidence, not the last


@pytest.mark.parametrize("name", [*KINDS, "wild/window-deadlock.pcap.zst"])
def test_a_small_part_of_a_capture_has_pictures_too(name: str) -> None:
    """Their packets may be anywhere: before, within and after what the finding is about."""
    path, bounds = recorded(name), Bounds(packets=60, frames=400, rpcs=40, waits=5, around=10, slow_packets=8, begun=2)
    analysis = analyze([path])
    for picture in filter(None, collect_page_data([path], analysis, bounds=bounds).pictures):
        assert picture.begin_ns <= picture.end_ns
        assert all(0 < len(series.points) <= model.MOST_POINTS for series in picture.series)


@pytest.mark.parametrize(
    "name", ["max-concurrent-streams.pcap", "lab/request-batching.pcap.gz", "lab/connection-churn.pcap"]
)
def test_pictures_have_each_call_of_their_connections_though_the_page_has_few(name: str) -> None:
    path, bounds = recorded(name), Bounds(packets=300, rpcs=6, around=20, slow_rpcs=1, begun=0)
    analysis = analyze([path])
    part = collect_page_data([path], analysis, bounds=bounds)
    assert not part.spans.whole and len(part.rpcs.stream) <= bounds.rpcs
    finding, _ = KINDS[name]
    drawn_of = next(
        picture for found, picture in zip(analysis.findings, part.pictures, strict=True) if found.id == finding
    )
    assert drawn_of == picture_of(name)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=2_500))
def test_a_long_line_keeps_its_largest_and_its_last_value(values: list[tuple[int, int]]) -> None:
    columns = np.array(sorted(values), dtype=np.int64)
    line = np.array(model.make_line("line", "step", "flight", columns[:, 0], columns[:, 1]).points)
    assert len(line) <= model.MOST_POINTS
    assert line[:, 1].max() == columns[:, 1].max() and line[-1, 0] == columns[-1, 0]
    assert (np.diff(line[:, 0]) >= 0).all()
