"""Both legs of calls through a proxy are joined: each call counts once, and its time is divided by both legs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from legs import (
    CLIENT,
    OUTWARD,
    OUTWARD2,
    PROXY,
    SERVER,
    SERVER2,
    Leg,
    capture,
    nothing,
    pass_on,
    request_id,
    trace,
)
from msgspec.structs import replace
from support import RECORDED, recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.hops.legs import Legs, join_legs
from grpcdiag.analyzer.hops.look import find_legs
from grpcdiag.analyzer.model.analysis import Analysis, Hop
from grpcdiag.analyzer.scrub import Scrubbing, row_differences
from grpcdiag.analyzer.selection.reading import Read, read
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.summary.hops import find_proxies
from grpcdiag.analyzer.tables import Rpcs
from grpcdiag.analyzer.two_captures import analyze_files
from grpcdiag.fixtures.synthetic.packet import Endpoint
from grpcdiag.fixtures.synthetic.words import MS
from grpcdiag.reports.shared.quality import judge_verdict

LEGS = [recorded("wild/nginx-legs-front.pcap.zst"), recorded("wild/nginx-legs-back.pcap.zst")]


def only_hop(analysis: Analysis) -> Hop:
    (hop,) = analysis.hops
    return hop


def share(analysis: Analysis, cause: str) -> float:
    return analysis.budget.get(cause, 0) / sum(analysis.budget.values())


# Recorded


def test_a_slow_backend_is_named_and_its_proxy_is_not() -> None:
    analysis = analyze([recorded("wild/hop-backend-slow-a.pcap.zst")])
    hop = only_hop(analysis)
    assert (hop.proxy, hop.server, hop.calls, hop.exact) == ("10.77.238.2:8080", "10.78.238.2:9001", 191, 191)
    assert (hop.front, hop.back) == ((0,), (1, 2, 3, 4))
    assert analysis.totals.rpcs == 191
    assert share(analysis, "proxy") < 0.02
    assert share(analysis, "server") == pytest.approx(84 / 92, abs=0.02)
    assert analysis.verdict.finding == "server-latency"
    assert "server 10.78.238.2, which took 83.8 ms" in analysis.verdict.text
    (latency,) = (finding for finding in analysis.findings if finding.id == "server-latency")
    assert set(latency.scope.connections) <= set(hop.back)


def test_a_slow_proxy_is_named_with_its_rate() -> None:
    analysis = analyze([recorded("wild/hop-proxy-slow-a.pcap.zst")])
    hop = only_hop(analysis)
    assert hop.duration_ns
    assert hop.behind_ns
    assert hop.held_up_ns
    assert (round(hop.duration_ns.p50 / MS), round(hop.behind_ns.p50 / MS)) == (133, 16)
    assert round(hop.held_up_ns.p50 / MS) == 117
    assert hop.calls_per_second == pytest.approx(25, rel=0.01)
    assert share(analysis, "proxy") == pytest.approx(117 / 133, abs=0.02)
    assert "server-latency" not in {finding.id for finding in analysis.findings}
    assert [remedy.implementation for remedy in hop.remedies] == ["nginx"]
    assert hop.verdict in analysis.verdict.text
    assert judge_verdict(analysis) == analysis.verdict.severity == "warning"


@pytest.mark.parametrize("files", [["hop-buffering-a"], ["hop-buffering-a-front", "hop-buffering-a-back"]])
def test_a_proxy_that_waits_for_whole_requests_is_named(files: Sequence[str]) -> None:
    analysis = analyze_files([recorded(f"wild/{name}.pcap.zst") for name in files])
    hop = only_hop(analysis)
    assert (analysis.totals.rpcs, hop.calls, hop.whole_requests) == (12, 12, 12)
    assert share(analysis, "proxy") > 0.95
    assert share(analysis, "client") < 0.01
    assert "It waits for whole requests" in analysis.verdict.text
    assert [remedy.knob for remedy in hop.remedies] == ["no option http-buffer-request"]


@pytest.mark.parametrize(("name", "calls"), [("nghttpx-bothlegs", 100), ("nghttpx-bothlegs-cut", 60)])
def test_a_proxy_on_its_clients_host_counts_each_call_once(name: str, calls: int) -> None:
    """Its frames are another program's than the client's."""
    analysis = analyze([recorded(f"wild/{name}.pcap.zst")])
    hop = only_hop(analysis)
    assert (hop.proxy, hop.server, analysis.totals.rpcs) == ("127.0.0.1:9001", "127.0.0.2:9002", calls)
    assert (hop.exact, hop.ambiguous) == (0, 0)
    assert share(analysis, "proxy") < 0.04
    assert "server 127.0.0.2, which took" in analysis.verdict.text


BOTH_LEGS = ["hop-backend-slow-a", "hop-proxy-slow-a", "hop-buffering-a", "nginx-bothlegs-any", "nghttpx-bothlegs-cut"]


@pytest.mark.parametrize("name", BOTH_LEGS)
def test_budgets_add_up_and_are_never_negative(name: str) -> None:
    legs = find_legs([recorded(f"wild/{name}.pcap.zst")])
    assert legs
    budgets, rpcs = legs.tables.rpc_budgets, legs.tables.rpcs
    assert (budgets >= 0).all()
    assert (budgets.sum(axis=1) == rpcs.duration_ns).all()
    calls = int(rpcs.duration_ns[~np.isin(rpcs.connection, [row for hop in legs.hops for row in hop.back])].sum())
    assert sum(sum(method.budget) for method in legs.tables.methods) == calls


@pytest.fixture(scope="module")
def legs_read() -> Read:
    return read(LEGS, Selection())


def check_pairs(seen: Read, legs: Legs) -> int:
    """Hold joined pairs against the pairs that spans show; the number of pairs."""
    with (RECORDED / "wild" / "nginx-legs.csv").open() as file:
        rows = [{name: int(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    truth = {(row["back_port"], row["back_stream"]): (row["front_port"], row["front_stream"]) for row in rows}
    rpcs, ports = seen.tables.rpcs, seen.tables.connections.client_port
    ends = list(zip(ports[rpcs.connection].tolist(), rpcs.stream.tolist(), strict=True))
    found = {ends[row]: ends[parent] for row, parent in enumerate(legs.parent.tolist()) if parent >= 0}
    assert found == {end: truth[end] for end in found}
    return len(found)


def test_traceparents_join_each_leg_as_its_span_says(legs_read: Read) -> None:
    legs = join_legs(legs_read, find_proxies(legs_read.tables))
    assert legs
    assert check_pairs(legs_read, legs) == 240
    (hop,) = legs.hops
    assert (hop.exact, hop.by_order, hop.ambiguous) == (240, 0, 0)
    assert (hop.failed_behind, hop.answers_lost) == (8, 0)
    assert "8 calls of 240 failed with the status of the server behind" in hop.text


def without_ids(seen: Read) -> Read:
    """The same RPCs without identifiers."""
    rpcs = seen.tables.rpcs
    none = {name: np.zeros_like(rpcs.span_id) for name in ("trace_high", "trace_low", "span_id", "request_id")}
    return replace(seen, tables=replace(seen.tables, rpcs=replace(rpcs, **none)))


def test_without_identifiers_no_leg_is_joined_wrongly(legs_read: Read) -> None:
    """Eight callers and equal sizes leave many ways: those are counted, and no pair is claimed."""
    seen = without_ids(legs_read)
    legs = join_legs(seen, find_proxies(seen.tables))
    assert legs
    (hop,) = legs.hops
    assert (hop.exact, hop.by_order + hop.ambiguous) == (0, 240)
    assert check_pairs(seen, legs) == hop.by_order > 0
    assert sum(method.rpcs for method in legs.tables.methods) == 240


def test_the_sum_of_held_times_does_not_depend_on_identifiers(legs_read: Read) -> None:
    totals = []
    for seen in (legs_read, without_ids(legs_read)):
        legs = join_legs(seen, find_proxies(seen.tables))
        assert legs
        totals.append(np.sum([method.budget for method in legs.tables.methods], axis=0))
    assert np.abs(totals[0] - totals[1]).max() <= 0.02 * totals[0].sum()


def test_a_scrubbed_copy_joins_the_same_legs(tmp_path: Path) -> None:
    """Equal identifiers have equal replacements."""
    file, copy = recorded("wild/hop-proxy-slow-a.pcap.zst"), tmp_path / "scrubbed.pcap"
    copy.write_bytes(b"".join(Scrubbing([file], key=bytes(range(32))).pieces()))
    assert list(row_differences([file], [str(copy)])) == []
    before, after = find_legs([file]), find_legs([str(copy)])
    assert before
    assert after
    assert (before.tables.rpcs.span_id != after.tables.rpcs.span_id).all()
    assert [hop.exact for hop in (*before.hops, *after.hops)] == [177, 177]
    assert (before.parent == after.parent).all()


def test_one_leg_alone_is_an_ordinary_capture() -> None:
    analysis = analyze([LEGS[0]])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 240)


# Synthetic: a proxy at 10.0.0.2, whose server is at 10.0.0.3


@pytest.mark.parametrize(("ids", "exact"), [(trace, 6), (request_id, 6), (nothing, 0)])
def test_the_times_that_a_proxy_holds_are_its_own(tmp_path: Path, ids: object, exact: int) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, ids)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.exact, hop.by_order, hop.ambiguous) == (6, exact, 6 - exact, 0)
    assert hop.held_up_ns
    assert hop.held_down_ns
    assert hop.held_up_ns.p50 == pytest.approx(5 * MS, abs=MS / 10)
    assert hop.held_down_ns.p50 == pytest.approx(3 * MS, abs=MS / 10)
    assert analysis.budget["proxy"] == pytest.approx(6 * 8 * MS, abs=MS)
    assert analysis.budget["server"] == pytest.approx(6 * 10 * MS, abs=MS)
    assert analysis.totals.rpcs == 6


@pytest.mark.parametrize(("held", "named"), [(4, False), (7, True)])
def test_the_verdict_is_about_a_proxy_that_holds_5_ms_or_longer(tmp_path: Path, held: float, named: bool) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace, up=held, down=0)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (only_hop(analysis).verdict in analysis.verdict.text) == named


@pytest.mark.parametrize(("with_trace", "exact"), [(True, 6), (False, 0)])
def test_a_proxy_that_writes_its_own_span_and_request_id(tmp_path: Path, with_trace: bool, exact: int) -> None:
    front, back = Leg(), Leg()
    for number in range(6):
        ids = [
            [(b"traceparent", b"00-%032x-%016x-01" % (number + 1, span))] * with_trace + request_id(span)
            for span in (number + 1, number + 101)
        ]
        first = front.begin(20 + 100 * number, ids[0])
        back.end(35 + 100 * number, back.begin(25 + 100 * number, ids[1]))
        front.end(45 + 100 * number, first)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.exact, hop.by_order) == (6, exact, 6 - exact)


def test_legs_of_different_traces_are_not_joined(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    for number in range(6):
        first = front.begin(20 + 100 * number, trace(number))
        second = back.begin(25 + 100 * number, trace(100 + number))
        back.end(35 + 100 * number, second)
        front.end(45 + 100 * number, first)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 12)


def test_a_host_that_is_server_and_client_of_one_method_is_no_proxy(tmp_path: Path) -> None:
    """It answers calls of one size, and makes calls of another size while it does."""
    front, back = Leg(), Leg()
    for number in range(6):
        first = front.begin(20 + 100 * number)
        second = back.begin(25 + 100 * number, request=33)
        back.end(35 + 100 * number, second)
        front.end(45 + 100 * number, first)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 12)


@pytest.mark.parametrize(("calls", "joined"), [(10, True), (5, False)])
def test_calls_that_lie_inside_others_by_chance_are_not_joined(tmp_path: Path, calls: int, joined: bool) -> None:
    """A host answers ten equal calls in 80 ms each, and makes as many of the same size, or half as many."""
    front, back = Leg(), Leg()
    for number in range(10):
        first = front.begin(20 + 100 * number)
        if number < calls:
            back.end(70 + 100 * number, back.begin(60 + 100 * number))
        front.end(100 + 100 * number, first)
    if not joined:  # so that the last one is beside all of them
        back.end(955, back.begin(950))
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert bool(analysis.hops) == joined
    assert analysis.totals.rpcs == (10 if joined else 16)


def test_one_long_stream_is_not_the_front_of_many_calls(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    calls = [front.begin(20 + number) for number in range(3)]
    for number in range(8):
        back.end(40 + 20 * number, back.begin(30 + 20 * number))
    for number, call in enumerate(calls):
        front.end(300 + number, call)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 11)


def test_an_attempt_of_the_proxy_is_part_of_its_call(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back)
    first = front.begin(1020)
    back.end(1030, back.begin(1022), status=14)
    second = back.begin(1042)
    back.end(1053, second)
    front.end(1054, first)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.retried, analysis.totals.rpcs) == (7, 1, 7)
    assert "It retried 1 call on its own" in hop.text
    assert not {"rpc-errors", "retry-storm"} & {finding.id for finding in analysis.findings}


def test_a_reset_that_is_not_passed_on_is_told(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    first = front.begin(1020, trace(50))
    second = back.begin(1022, trace(50))
    front.at(1030)
    first.cancel("client")
    back.end(1080, second)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.resets_not_passed_on, hop.answers_lost, analysis.totals.rpcs) == (7, 1, 0, 7)


def test_an_answer_that_the_proxy_loses_is_told(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    first = front.begin(1020, trace(50))
    back.end(1040, back.begin(1022, trace(50)))
    front.end(1045, first, status=14)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (only_hop(analysis).answers_lost, analysis.totals.rpcs) == (1, 7)


@pytest.mark.parametrize("waits", [True, False])
def test_a_proxy_that_waits_for_whole_responses(tmp_path: Path, waits: bool) -> None:
    """The server sends five messages 20 ms apart, and the proxy passes them on at the end, or each at once."""
    front, back = Leg(), Leg()
    for number in range(6):
        start = 20 + 200 * number
        first, second = front.begin(start, trace(number)), back.begin(start + 2, trace(number))
        for message in range(5):
            back.at(start + 10 + 20 * message)
            second.reply_message(50)
            if not waits:
                front.at(start + 12 + 20 * message)
                first.reply_message(50)
        back.at(start + 91)
        second.finish()
        front.at(start + 95)
        if waits:
            for _ in range(5):
                first.reply_message(50)
        first.finish()
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.whole_responses) == (6, 6 if waits else 0)
    assert share(analysis, "proxy") > 0.85 if waits else share(analysis, "proxy") < 0.1
    assert ("whole responses" in analysis.verdict.text) == waits


def test_legs_by_clocks_that_differ_are_not_joined(tmp_path: Path) -> None:
    """The legs behind have the identifiers of calls that are a second older."""
    front, back = Leg(), Leg()
    for number in range(6):
        front.end(40 + 100 * number, front.begin(20 + 100 * number, trace(number)))
        back.end(1035 + 100 * number, back.begin(1025 + 100 * number, trace(number)))
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 12)
    (note,) = (warning for warning in analysis.quality.warnings if "traceparent" in warning)
    assert "the clocks of the captures differ" in note


def test_callers_of_equal_calls_leave_their_sum(tmp_path: Path) -> None:
    """Three equal calls begin and end together: which leg is whose is unknown, and what the proxy held is not."""
    front, back = Leg(), Leg()
    for number in range(4):
        start = 20 + 100 * number
        calls = [front.begin(start + one) for one in range(3)]
        behind = [back.begin(start + 20 + one) for one in range(3)]
        for one, call in enumerate(behind):
            back.end(start + 40 + one, call)
        for one, call in enumerate(calls):
            front.end(start + 50 + one, call)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    hop = only_hop(analysis)
    assert (hop.calls, hop.exact, hop.by_order, hop.ambiguous) == (12, 0, 0, 12)
    assert (hop.held_up_ns, hop.evidence) == (None, ())
    assert hop.held_ns == analysis.budget["proxy"] == pytest.approx(12 * (19 + 9) * MS, rel=0.02)
    assert "held calls for 28" in analysis.verdict.text
    assert analysis.totals.rpcs == 12


@pytest.mark.parametrize("ids", [trace, nothing])
def test_calls_divided_among_two_servers_behind_a_proxy(tmp_path: Path, ids: object) -> None:
    front, backs = Leg(), (Leg(), Leg())
    for number in range(8):
        start, metadata = 20 + 100 * number, ids(number)  # type: ignore[operator]
        first = front.begin(start, metadata)
        back = backs[number % 2]
        back.end(start + 20, back.begin(start + 5, metadata))
        front.end(start + 25, first)
    second = Endpoint("02:00:00:00:00:05", "10.0.0.5", 9000)
    outward = Endpoint("02:00:00:00:00:02", "10.0.0.2", 40005)
    legs = (backs[0], OUTWARD, SERVER, "client"), (backs[1], outward, second, "client")
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), *legs)])
    assert [(hop.server, hop.calls, hop.ambiguous) for hop in analysis.hops] == [
        ("10.0.0.3:9000", 4, 0),
        ("10.0.0.5:9000", 4, 0),
    ]
    assert analysis.totals.rpcs == 8


@pytest.mark.parametrize("ids", [trace, nothing])
def test_three_hops_make_one_call(tmp_path: Path, ids: object) -> None:
    """A proxy behind a proxy: each holds its own time, and the server's is the last one's."""
    front, middle, back = Leg(), Leg(), Leg()
    for number in range(6):
        start, metadata = 20 + 100 * number, ids(number)  # type: ignore[operator]
        first = front.begin(start, metadata)
        second = middle.begin(start + 1 + 20, metadata)
        third = back.begin(start + 23 + 7, metadata)
        back.end(start + 31 + 10, third)
        middle.end(start + 42, second)
        front.end(start + 44, first)
    analysis = analyze(
        [
            capture(
                tmp_path,
                (front, CLIENT, PROXY, "server"),
                (middle, OUTWARD, SERVER, "client"),
                (back, OUTWARD2, SERVER2, "client"),
            )
        ]
    )
    assert [(hop.proxy, hop.server, hop.calls) for hop in analysis.hops] == [
        ("10.0.0.2:8080", "10.0.0.3:9000", 6),
        ("10.0.0.3:9000", "10.0.0.4:9001", 6),
    ]
    held = [round(hop.held_up_ns.p50 / MS) for hop in analysis.hops if hop.held_up_ns]
    assert held == [20, 8]
    assert [round(hop.held_ns / 6 / MS) for hop in analysis.hops] == [21, 8]
    assert analysis.totals.rpcs == 6
    assert analysis.budget["server"] == pytest.approx(6 * 10 * MS, abs=MS)
    assert analysis.budget["proxy"] == pytest.approx(6 * (20 + 8 + 1) * MS, abs=MS)


def test_the_table_of_rpcs_has_the_rows_that_joining_reads() -> None:
    """`parent_rpc` is a row number of the table, whose order is that of a stream without joined legs."""
    from grpcdiag.analyzer.decode.rpc_stream import stream_rpcs

    file = recorded("wild/hop-proxy-slow-a.pcap.zst")
    legs = find_legs([file])
    assert legs
    pieces = [piece.rpcs for piece in stream_rpcs([file])]
    for name in Rpcs.__struct_fields__:
        if name not in ("method", "previous_attempts"):
            streamed = np.concatenate([getattr(piece, name) for piece in pieces])
            assert (streamed == getattr(legs.tables.rpcs, name)).all(), name
