"""A part of the RPCs judged alone: nothing is lost or counted twice, and what cannot be told of a part is not told."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from support import RECORDINGS, budgeted, recorded, recording

from grpcdiag.analyzer.analysis import analyze, of_part
from grpcdiag.analyzer.decode.errors import NarrowError, NoGrpcError
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import named
from grpcdiag.analyzer.selection.narrow import read
from grpcdiag.analyzer.selection.selection import Selection, matches

WHOLE_CONNECTIONS = {detector.id for detector in DETECTORS if detector.about.whole_connections}
RTT205 = recorded("rtt205-go-16000.pcap")
EVERYTHING = Selection(begin=-(10**15))
"""Narrows to all RPCs, so that everything is counted anew and nothing may change."""


def part(files: Sequence[str], chosen: Selection) -> Analysis:
    return of_part(files, read(files, chosen), chosen)


def ids(analysis: Analysis) -> set[str]:
    return {finding.id for finding in analysis.findings}


@pytest.mark.parametrize("name", [r.id for r in RECORDINGS])
def test_narrowed_to_everything_nothing_changes(name: str) -> None:
    """The core counts per method while packets pass; the part counts anew from rows."""
    files = next(r.files for r in RECORDINGS if r.id == name)
    try:
        whole = analyze(files)
    except NoGrpcError:
        return
    again = part(files, EVERYTHING)
    assert again.narrowed
    assert (again.narrowed.rpcs, again.narrowed.connections_in_part) == (whole.totals.rpcs, ())
    for field in ("capture", "quality", "totals", "traffic", "budget", "verdict", "connections", "skipped"):
        assert getattr(again, field) == getattr(whole, field), field
    for mine, theirs in zip(again.methods, whole.methods, strict=True):
        exact = {"turnaround_ns": None, "turnaround_intervals_ns": None}
        assert msgspec.structs.replace(mine, **exact) == msgspec.structs.replace(theirs, **exact)
        if theirs.turnaround_ns and not whole.quality.missing_bytes:
            assert mine.turnaround_ns
            for quantile in mine.turnaround_ns.__struct_fields__:
                near = pytest.approx(getattr(theirs.turnaround_ns, quantile), rel=2e-3, abs=2)
                assert getattr(mine.turnaround_ns, quantile) == near, quantile
    for finding, theirs_ in zip(again.findings, whole.findings, strict=True):
        near_enough = msgspec.structs.replace(finding, metrics=theirs_.metrics)  # of turnarounds, see above
        assert near_enough == theirs_


def added(analyses: Sequence[Analysis]) -> dict[str, Counter[str]]:
    """Budgets, statuses, frames and counts of several analyses together."""
    sums: dict[str, Counter[str]] = {name: Counter() for name in ("budget", "statuses", "frames", "totals")}
    for analysis in analyses:
        sums["budget"].update(analysis.budget)
        sums["frames"].update(analysis.totals.frames)
        sums["totals"].update({n: getattr(analysis.totals, n) for n in ("rpcs", "messages", "rpcs_begun_before")})
        for method in analysis.methods:
            sums["statuses"].update(method.statuses)
    return sums


@pytest.mark.parametrize("name", ["roguedb-channels-4", "ydb-unary-multi-inflight8", "snaplen-128"])
def test_all_connections_one_by_one_are_the_whole(name: str) -> None:
    files = recording(name).files
    whole = analyze(files)
    parts = [part(files, Selection(connections=(c.connection,))) for c in whole.connections]
    assert len(parts) > 3
    assert added(parts) == added([whole])
    for facts, alone in zip(whole.connections, parts, strict=True):
        assert alone.connections == (facts,), "with its number in the capture, and nothing else of it changed"
    for side in ("client", "server"):
        sent = getattr(whole.traffic, side)
        for field in sent.__struct_fields__:
            total = sum(getattr(getattr(alone.traffic, side), field) for alone in parts)
            assert total == getattr(sent, field), field


@pytest.mark.parametrize("name", ["impl-go.pcap", "impl-java.pcap", "rpc-errors.pcap"])
def test_all_methods_one_by_one_are_the_whole(name: str) -> None:
    files = [recorded(name)]
    whole = analyze(files)
    parts = [part(files, Selection(method=method.method)) for method in whole.methods]
    assert len(parts) > 2
    sums, wanted = added(parts), added([whole])
    for key in ("budget", "statuses", "totals"):
        assert sums[key] == wanted[key], key
    for alone, method in zip(parts, whole.methods, strict=True):
        assert [m.method for m in alone.methods] == [method.method]
        assert alone.methods[0].latency_ns == method.latency_ns
    frames = sums["frames"]
    assert frames["DATA"] == wanted["frames"]["DATA"]
    assert frames["SETTINGS"] == 0, "a connection's own frames belong to no part of it"


@pytest.mark.parametrize("name", ["rtt205-go-32000", "loss-1pct-rtt20", "max-concurrent-streams", "deadline-exceeded"])
def test_all_times_one_after_the_other_are_the_whole(name: str) -> None:
    files = recording(name).files
    whole = analyze(files)
    assert whole.capture.first_time_ns
    assert whole.capture.last_time_ns
    span = whole.capture.last_time_ns - whole.capture.first_time_ns
    ends = [-1, span // 5, span // 2, span]
    chosen = [Selection(begin=begin + 1, end=end) for begin, end in itertools.pairwise(ends)]
    parts = []
    for one in chosen:
        try:
            parts.append(part(files, one))
        except NarrowError:
            continue
    sums, wanted = added(parts), added([whole])
    assert sums["budget"] == wanted["budget"]
    assert sums["totals"] == wanted["totals"]
    assert sums["statuses"] == wanted["statuses"]


def test_figures_are_those_of_the_rpcs_table() -> None:
    """Counted here by hand, from a table that has nothing to do with narrowing."""
    files = recording("loss-1pct-rtt20").files
    tables = budgeted(files)
    start = tables.rpcs.start_time_ns - tables.capture["first_time_ns"]
    mine = (start >= 2_000_000_000) & (start <= 3_000_000_000)
    assert 50 < mine.sum() < 200
    found = part(files, Selection(begin=2_000_000_000, end=3_000_000_000))
    assert found.budget == named(tables.rpc_budgets[mine].sum(axis=0))
    assert found.totals.rpcs == mine.sum()
    latency = found.methods[0].latency_ns
    assert latency
    assert latency.p50 == np.sort(tables.rpcs.duration_ns[mine])[(int(mine.sum()) + 1) // 2 - 1]
    assert found.connections[0].budget == found.budget
    assert found.narrowed
    assert found.narrowed.rpc_time_ns == tables.rpcs.duration_ns[mine].sum()


def test_the_first_call_waits_for_the_initial_window_and_the_others_for_a_restarted_one() -> None:
    """As the client measured it: each call takes two round trips, the first one on a new connection."""
    first = part([RTT205], Selection(end=2_000_000_000))
    assert first.totals.rpcs == 1
    assert "initial-congestion-window" in ids(first)
    assert "slow-start-after-idle" not in ids(first)
    later = part([RTT205], Selection(begin=2_000_000_000))
    assert later.totals.rpcs == 4
    assert "slow-start-after-idle" in ids(later)
    assert "initial-congestion-window" not in ids(later)
    whole = next(f for f in analyze([RTT205]).findings if f.id == "slow-start-after-idle")
    mine = next(f for f in later.findings if f.id == "slow-start-after-idle")
    assert mine.lost_ns == whole.lost_ns, "what came before still tells how large the window was"
    assert mine.evidence == whole.evidence


def test_one_call_alone_knows_what_came_before_it() -> None:
    for begin in (2, 4, 5, 7):
        alone = part([RTT205], Selection(begin=begin * 10**9, end=(begin + 1) * 10**9))
        assert alone.totals.rpcs == 1
        restart = next(f for f in alone.findings if f.id == "slow-start-after-idle")
        assert restart.lost_ns == pytest.approx(205_000_000, rel=0.01)
        assert {begin} == {(e.time_ns - (alone.capture.first_time_ns or 0)) // 10**9 for e in restart.evidence[:1]}


def test_what_is_counted_over_whole_connections_is_not_told_of_a_part() -> None:
    files = recording("ably-staggered-veth").files
    whole = analyze(files)
    assert {"small-packets", "ping-storm"} <= ids(whole)
    some = part(files, Selection(end=20_000_000))
    assert some.narrowed
    assert some.narrowed.connections_in_part == (0,)
    assert not ids(some) & WHOLE_CONNECTIONS
    reasons = {skipped.id: skipped.reason for skipped in some.skipped}
    assert set(reasons) >= WHOLE_CONNECTIONS
    assert "connection 0, where only a part of the RPCs" in reasons["small-packets"]
    assert some.verdict.finding is None


def test_connections_all_of_whose_rpcs_are_judged_are_judged_whole() -> None:
    files = recording("ydb-stream-single-inflight8").files
    whole, mine = analyze(files), part(files, Selection(method="PingStream"))
    assert mine.findings == whole.findings
    assert mine.skipped == whole.skipped


def test_errors_are_those_of_the_method() -> None:
    down = part([recorded("rpc-errors.pcap")], Selection(method="/lab.v1.Lab/Down"))
    assert down.methods[0].statuses == {"ABORTED": 1}
    errors = next(f for f in down.findings if f.id == "rpc-errors")
    assert errors.scope.methods == ("/lab.v1.Lab/Down",)
    assert errors.metrics["rpcs"] == 1


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (Selection(connections=(0, 7)), "there is no connection 7; the capture has 1"),
        (Selection(method="Nothing"), "no method matches 'Nothing'; the capture has /lab.v1.Lab/Echo"),
        (Selection(begin=10**12), "none of 5 RPCs is selected; RPCs begin from 1.412240 s to 7.057732 s"),
    ],
)
def test_nothing_left_says_what_there_is(chosen: Selection, says: str) -> None:
    with pytest.raises(NarrowError) as error:
        part([RTT205], chosen)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("Echo", "/lab.v1.Lab/Echo", True),
        ("echo", "/lab.v1.Lab/Echo", False),
        ("/lab.*", "/lab.v1.Lab/Echo", True),
        ("Lab/*", "/lab.v1.Lab/Echo", False),
        ("/lab.v1.Lab/Do", "/lab.v1.Lab/Do", True),
        ("/lab.v1.Lab/Do", "/lab.v1.Lab/Down", False),
        ("Lab/Do", "/lab.v1.Lab/Down", True),
        ("*/Ech?", "/lab.v1.Lab/Echo", True),
        ("method #1", "method #1", True),
    ],
)
def test_patterns(pattern: str, name: str, meant: bool) -> None:
    assert matches(name, pattern) is meant


@pytest.mark.parametrize(
    ("chosen", "calls"),
    [(Selection(method="*"), 177), (Selection(end=1_000_000_000), 27), (Selection(begin=1_000_000_000), 150)],
)
def test_calls_through_a_proxy_count_once(chosen: Selection, calls: int) -> None:
    files = [recorded("wild/hop-proxy-slow-a.pcap.zst")]
    whole, some = analyze(files), part(files, chosen)
    assert some.narrowed
    assert (some.totals.rpcs, some.narrowed.rpcs, some.narrowed.of_rpcs) == (calls, calls, 177)
    assert [hop.calls for hop in some.hops] == [calls]
    assert some.hops[0].verdict in some.verdict.text
    if calls == whole.totals.rpcs:
        assert (some.methods, some.budget) == (whole.methods, whole.budget)
    assert some.budget["proxy"] > some.budget["server"]
    assert "server-latency" not in {finding.id for finding in some.findings}
