"""Traces for Perfetto: parsed back and held against the tables."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ALL_CAPTURES, RECORDED, as_polars, recorded, run_here, synthetic
from traces import COUNTER, Event, Parsed, parse

from grpcdiag.analyzer.analysis import analyze, of_tables
from grpcdiag.analyzer.decode import runner
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.views import trace_data as tracing
from grpcdiag.analyzer.views.events import in_flight
from grpcdiag.analyzer.views.excerpt import excerpt
from grpcdiag.analyzer.views.trace_data import FLIGHT, Points, TraceData, read_trace_data, thin_points
from grpcdiag.reports import analysis_json
from grpcdiag.reports.perfetto import document
from grpcdiag.reports.tables.rows import rpcs, waits

WIDE = os.environ.get("GRPCDIAG_WIDE") == "1"
LARGE = 400_000
EXAMPLE = recorded("rtt205-go-16000.pcap")


def read_and_drawn(files: tuple[str, ...]) -> tuple[Analysis, TraceData, Parsed]:
    read = read_trace_data(list(files))
    analysis = of_tables(read.tables)
    return analysis, read, parse(b"".join(document.render(analysis, read)))


@functools.cache
def example() -> tuple[Analysis, TraceData, Parsed]:
    return read_and_drawn((EXAMPLE,))


@pytest.mark.parametrize("files", ALL_CAPTURES)
def test_every_capture_gives_a_trace_that_holds_together(files: tuple[str, ...]) -> None:
    """`parse` asserts what every trace must keep; here: that nothing is left out."""
    if not WIDE and sum(Path(file).stat().st_size for file in files) > LARGE:
        pytest.skip("large: set GRPCDIAG_WIDE=1")
    try:
        analysis, read, trace = read_and_drawn(files)
    except NoGrpcError:
        return
    calls = trace.of("rpc")
    assert len(calls) == len(read.tables.rpcs.stream)
    assert sorted(call.duration for call in calls) == sorted(read.tables.rpcs.duration_ns.tolist())
    assert sorted(wait.duration for wait in trace.of("wait")) == sorted(read.tables.waits.duration_ns.tolist())
    released = int((read.tables.waits.released_by_packet > 0).sum())
    assert len(trace.of("release")) == 2 * released == 2 * sum(len(event.starts) for event in trace.events)
    shown = {(event.notes["finding"], event.notes["packet"]) for event in trace.of("finding")}
    assert shown == {(finding.id, evidence.packet) for finding in analysis.findings for evidence in finding.evidence}
    assert len(trace.of("connection")) == len(analysis.connections)
    for call in calls:
        assert sum(call.notes.get("budget_ns", {}).values()) == call.duration


@pytest.mark.parametrize("name", ["rtt205-go-16000.pcap", "impl-java.pcap", "rpc-errors.pcap", "truncated.pcap"])
def test_the_findings_are_those_of_analyze(name: str) -> None:
    """Which reads the capture another way, with fewer rows."""
    assert analysis_json.render(of_tables(read_trace_data([recorded(name)]).tables)) == analysis_json.render(
        analyze([recorded(name)])
    )


def test_tracks_have_names_and_an_order() -> None:
    _, _, trace = example()
    (connection,) = (uuid for uuid in trace.tracks if trace.name(uuid).startswith("connection 0"))
    assert trace.name(connection) == "connection 0: 10.77.0.1:55078 -> 10.77.0.2:50051"
    inside = [track for track in trace.tracks.values() if track.parent_uuid == connection]
    assert [track.name for track in sorted(inside, key=lambda track: track.sibling_order_rank)] == [
        "client blocked",
        "server releases",
        "client resumes",
        "open RPCs",
        "client bytes in flight",
        "server receive window",
        "server bytes in flight",
        "client receive window",
        "client windows at stops",
        *(f"stream {number}" for number in (1, 3, 5, 7, 9)),
    ]
    assert len({track.sibling_order_rank for track in inside}) == len(inside)
    assert trace.tracks[connection].child_ordering == trace.tracks[connection].EXPLICIT
    tops = [track.name for track in trace.tracks.values() if not track.parent_uuid]
    assert tops[:2] == ["0. capture", "1. critical: slow-start-after-idle"]


def test_what_the_viewer_sorts_by_name_sorts_by_number() -> None:
    _, _, trace = read_and_drawn((str(RECORDED / "lab" / "connection-churn.pcap"),))
    names = [trace.name(uuid) for uuid in trace.tracks if not trace.tracks[uuid].parent_uuid]
    names = [name for name in names if name.startswith("connection ")]
    assert len(names) == 20
    assert names == sorted(names)


def test_rpcs_carry_what_the_table_says() -> None:
    _, read, trace = example()
    zero = read.tables.capture["first_time_ns"]
    for call, row in zip(trace.of("rpc"), as_polars([rpcs(read.tables)]).to_dicts(), strict=True):
        assert (call.name, call.at + zero, call.duration) == (row["method"], row["start_time_ns"], row["duration_ns"])
        for key in ("status", "stream", "request_bytes", "response_bytes", "first_packet", "last_packet", "complete"):
            assert call.notes[key] == row[key], key
        assert call.notes["budget_ns"] == {cause: ns for cause, ns in row["budget"].items() if ns}


def test_waits_carry_their_windows_and_packets() -> None:
    _, read, trace = example()
    for wait, row in zip(trace.of("wait"), as_polars([waits(read.tables)], "waits").to_dicts(), strict=True):
        assert wait.name == row["cause"]
        for key in set(wait.notes) - {"congestion_window_measured"}:
            assert wait.notes[key] == row[key], key
    arrows = [(event.notes["packet"], event.name) for event in trace.of("release")]
    expected = as_polars([waits(read.tables)], "waits").select("released_by_packet", "resumed_at_packet").rows()
    assert arrows == [pair for a, b in expected for pair in ((a, "releases"), (b, "resumes"))]


def test_phases_divide_the_call_and_hold_its_waits() -> None:
    """The first call: 16,003 bytes in two flights, one round trip apart; the answer is one packet."""
    _, _, trace = example()
    call = trace.of("rpc")[0]
    phases = [event for event in trace.of("phase") if event.parent is call]
    assert [phase.name for phase in phases] == ["request", "waiting for the response"]
    assert phases[0].at == call.at and phases[0].end == phases[1].at and phases[1].end == call.end
    (wait,) = (event for event in trace.of("rpc wait") if event.parent is phases[0])
    assert wait.name == "congestion_window"
    assert wait.duration == 205_177_000


def test_the_trace_begins_with_the_capture_and_knows_the_time_of_day() -> None:
    analysis, _, trace = example()
    (capture,) = trace.of("capture")
    assert capture.at == 0
    assert capture.name == analysis.verdict.text
    assert trace.clocks == {6: 0, 1: analysis.capture.first_time_ns}  # boot time, time of day
    assert analysis.capture.last_time_ns is not None and analysis.capture.first_time_ns is not None
    assert capture.duration == analysis.capture.last_time_ns - analysis.capture.first_time_ns


# counters


def at(points: list[tuple[int, int]], time: int) -> int:
    """What a counter shows right after an instant."""
    return [value for when, value in points if when <= time][-1]


def test_bytes_in_flight_are_those_of_the_waits() -> None:
    _, _, trace = example()
    flight = trace.values("client bytes in flight")
    found = [at(flight, wait.at) for wait in trace.of("wait")]
    assert found == [wait.notes["in_flight_bytes"] for wait in trace.of("wait")]
    assert len(found) == 5


@pytest.mark.parametrize("name", ["rtt205-go-32000.pcap", "impl-cpp.pcap", "ipv6.pcap", "truncated.pcap"])
def test_bytes_in_flight_are_those_of_the_time_line(name: str) -> None:
    """Counted another way there, of the whole connection at once."""
    read = read_trace_data([recorded(name)])
    for connection in np.unique(read.tables.rpcs.connection).tolist():
        part = excerpt([recorded(name)], connection)
        for direction in (0, 1):
            mine = read.points.counter == 4 * connection + 2 * FLIGHT + direction
            assert read.points.value[mine].max() == in_flight(part.packets, direction, 1)[0]


def test_pieces_of_the_capture_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace_data([recorded("impl-go.pcap")])
    monkeypatch.setattr(runner, "STEP", 7)
    pieces = read_trace_data([recorded("impl-go.pcap")])
    assert (whole.request_end_ns == pieces.request_end_ns).all()
    assert (whole.response_start_ns == pieces.response_start_ns).all()
    for counter in np.unique(whole.points.counter):
        assert changes(whole.points, counter) == changes(pieces.points, counter)


def changes(points: Points, counter: int) -> list[tuple[int, int]]:
    mine = points.counter == counter
    time, value = points.time_ns[mine].tolist(), points.value[mine].tolist()
    return [(t, v) for i, (t, v) in enumerate(zip(time, value, strict=True)) if i == 0 or value[i - 1] != v]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 9)), max_size=60), st.integers(1, 20))
def test_thinning_keeps_the_largest_and_the_last_value(rows: list[tuple[int, int, int]], width: int) -> None:
    rows.sort(key=lambda row: row[0])
    counter, time, value = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    kept = list(zip(*(column.tolist() for column in thin_points(Points(counter, time, value), width)), strict=True))
    left = Counter(rows)
    left.subtract(Counter(kept))
    assert min(left.values(), default=0) >= 0, "no point is made up"
    for bucket in {(c, t // width) for c, t, _ in rows}:
        before, after = ([row for row in some if (row[0], row[1] // width) == bucket] for some in (rows, kept))
        assert max(v for _, _, v in after) == max(v for _, _, v in before)
        assert after[-1] == before[-1]
        assert len(after) <= 2


def test_counters_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_POINTS", 1000)
    read = read_trace_data([recorded("ydb-unary-single-inflight1.pcap")])
    assert len(read.points.counter) <= 1000
    assert read.width_ns > 0
    trace = parse(b"".join(document.render(of_tables(read.tables), read)))
    (counter,) = (track for track in trace.tracks.values() if track.name == "client bytes in flight")
    assert "The largest and the last value of each" in counter.description


def test_counters_of_long_captures_are_thinned_no_more_than_they_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_POINTS", 1000)
    counters, packets = tracing._Counters(), 200
    for piece in range(500):
        number = np.arange(piece * packets, (piece + 1) * packets, dtype=np.int64)
        counters.add(
            {
                "packet": number,
                "time_ns": number * 1_000_000,
                "connection": np.zeros(packets, dtype=np.uint32),
                "direction": (number % 2).astype(np.uint8),
                "flags": np.full(packets, 0x10),
                "seq": number // 2 * 100,
                "ack": number // 2 * 100,
                "window": number % 7,
                "payload_bytes": np.full(packets, 100),
            }
        )
    assert 100 < counters.count <= 1000 + 4 * packets
    assert counters.width_ns < 10_000_000_000, "100 s are divided into a few hundred intervals"


def test_open_rpcs_are_counted() -> None:
    read, trace = read_and_drawn((recorded("max-concurrent-streams.pcap"),))[1:]
    shown = trace.values("open RPCs")
    assert max(value for _, value in shown) == int(read.tables.connections.max_concurrent_rpcs.max())
    assert shown[-1][1] == 0


def test_windows_of_a_connection_begun_before_are_not_drawn() -> None:
    """Their scale is not known."""
    _, _, trace = read_and_drawn((synthetic("begun_late").file,))
    names = {trace.name(event.track) for event in trace.events if event.kind == COUNTER}
    assert any(name.endswith("bytes in flight") for name in names)
    assert not any("receive window" in name for name in names)


# streams


def test_many_streams_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a track of its own, which the viewer puts together by their name."""
    monkeypatch.setattr(document, "OWN_TRACKS", 4)
    read = read_trace_data([EXAMPLE])
    trace = parse(b"".join(document.render(of_tables(read.tables), read)))
    calls = trace.of("rpc")
    assert {trace.name(call.track) for call in calls} == {"streams"}
    assert len({call.track for call in calls}) == len(calls) == 5
    assert [call.notes["stream"] for call in calls] == [1, 3, 5, 7, 9]


def record(capture: bytes, number: int) -> int:
    """Where a packet's record begins in a little-endian pcap."""
    place = 24
    for _ in range(number):
        place += 16 + int.from_bytes(capture[place + 8 : place + 12], "little")
    return place


def test_names_tell_what_failed_and_what_is_not_whole(tmp_path: Path) -> None:
    _, _, failed = read_and_drawn((recorded("rpc-errors.pcap"),))
    assert "/lab.v1.Lab/Down ABORTED" in {call.name for call in failed.of("rpc")}
    path = tmp_path / "late.pcap"
    capture = Path(recorded("impl-go.pcap")).read_bytes()
    path.write_bytes(capture[:24] + capture[record(capture, 50) :])
    _, read, late = read_and_drawn((str(path),))
    names = Counter(call.name for call in late.of("rpc"))
    assert sum(n for name, n in names.items() if "started before" in name) == read.tables.begun_before > 0
    assert all(call.notes["complete"] is False for call in late.of("rpc") if "started before" in call.name)


def test_a_cause_is_drawn_once_per_wait_and_within_its_stream() -> None:
    _, read, trace = read_and_drawn((synthetic("connection-window-fires").file,))
    inside: list[Event] = trace.of("rpc wait")
    assert inside
    assert {event.name for event in inside} <= set(CAUSES)
    table = read.tables.waits
    for event in inside:
        row = event.notes["wait"]
        call = event
        while call.parent is not None:
            call = call.parent
        assert call.notes["stream"] == int(table.stream[row])
        assert event.duration == int(table.duration_ns[row])


def test_recorded_threads_are_tracks(tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    done = run_here("analyze", recorded("processes/cpu-quota.pcap.zst"), "--format", "perfetto", "-o", str(output))
    assert done.code == 0, done.err
    trace = parse(output.read_bytes())
    spans = trace.of("thread")
    names = {trace.name(span.track) for span in spans}
    assert len(names) > 5
    assert sum(re.fullmatch(r"load \d+", name) is not None for name in names) > 3, names
    groups = {trace.name(trace.tracks[span.track].parent_uuid) for span in spans}
    assert any(re.fullmatch(r"threads of load \(\d+\)", group) for group in groups), groups
    throttled = [span for span in spans if span.name == "throttled"]
    assert max(span.duration for span in throttled) > 50_000_000, "80 of 100 ms"
    (rpc,) = (call for call in trace.of("rpc") if call.notes["stream"] == 4179)
    assert any(span.at < rpc.at + rpc.duration // 2 < span.end for span in throttled), "the clock is one"
