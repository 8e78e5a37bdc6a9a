"""Figures of the last seconds: connections, single calls, findings, and what was counted since the beginning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from exact_pieces import read_until
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.live import LiveCapture, Window
from grpcdiag.analyzer.live.calls import list_calls
from grpcdiag.analyzer.live.connections import ConnectionSamples
from grpcdiag.analyzer.live.findings import FindingsLog
from grpcdiag.analyzer.live.interval import RATES_S, SPANS_S
from grpcdiag.analyzer.live.totals import Totals
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.summary.quantiles import quantiles_of
from grpcdiag.analyzer.tables import COMPLETE

PATH = recorded("rpc-errors.pcap")


def cut(path: str, pieces: int, samples: ConnectionSamples, totals: Totals) -> dict[int, Window]:
    """Cut a capture into pieces of the same length, and give the windows at its end."""
    capture = decode([path], rpc_rows=False).capture
    first, last = capture["first_time_ns"], capture["last_time_ns"]
    with LiveCapture(path, history=60) as live:
        for piece in range(1, pieces + 1):
            if piece == pieces:
                while live.read(60):
                    pass
            else:
                read_until(live, first + (last - first) * piece // pieces)
            live.cut()
            samples.add(live.window(1))
            totals.add(live.window(1))
        return {span: live.window(span) for span in SPANS_S}


def test_a_connection_has_the_quantiles_of_its_first_calls_of_each_second() -> None:
    """In one piece they are those of the first 32 calls, whatever others took; in small pieces those of all."""
    rpcs = decode([PATH], rpc_rows=True).rpcs
    by_start = np.argsort(rpcs.start_time_ns, kind="stable")
    first = rpcs.duration_ns[by_start[:32]]
    assert len(rpcs.duration_ns) > 64 and rpcs.duration_ns.max() > first.max()
    samples = ConnectionSamples()
    windows = cut(PATH, 1, samples, Totals())
    ((one,), more) = samples.measure(windows)
    expected = quantiles_of(first)
    assert expected is not None
    assert (one.p50_ns["60s"], one.p99_ns["60s"], more) == (expected["p50"], expected["p99"], 0)

    samples = ConnectionSamples()
    ((one,), _) = samples.measure(cut(PATH, 50, samples, Totals()))
    expected = quantiles_of(rpcs.duration_ns)
    assert expected is not None
    assert (one.p50_ns["60s"], one.p99_ns["60s"]) == (expected["p50"], expected["p99"])


def test_the_figures_of_a_connection_add_up_to_those_of_the_capture() -> None:
    samples = ConnectionSamples()
    windows = cut(PATH, 1, samples, Totals())
    ((one,), _) = samples.measure(windows)
    tables = decode([PATH], rpc_rows=True)
    assert one.calls_per_s == pytest.approx(len(tables.rpcs.stream) / windows[RATES_S].seconds)
    assert one.failed == np.count_nonzero(tables.rpcs.status)
    assert sum(one.budget.values()) == tables.rpcs.duration_ns.sum()
    assert (one.client, one.server) == (tables.client(0), tables.server(0))


def test_calls_are_the_longest_and_say_whether_they_are_open() -> None:
    live = LiveCapture(recorded("lab/hung-rpc.pcap"), history=1)
    while live.read(60):
        pass
    live.cut()
    window = live.window()
    calls = list_calls(window)
    assert [one.duration_ns for one in calls] == sorted((one.duration_ns for one in calls), reverse=True)
    open_ones = [one for one in calls if one.is_open]
    assert open_ones and all(one.status is None for one in open_ones)
    assert all(one.start_ns + one.duration_ns == window.end_ns for one in open_ones)
    flags = window.tables.rpcs.flags
    assert len(open_ones) == np.count_nonzero((flags & COMPLETE) == 0)


def test_every_call_is_counted_once_however_the_capture_is_cut() -> None:
    whole, pieces = Totals(), Totals()
    cut(PATH, 1, ConnectionSamples(), whole)
    cut(PATH, 37, ConnectionSamples(), pieces)
    assert whole.methods == pieces.methods
    tables = decode([PATH], rpc_rows=False)
    assert sum(of.total() for of in whole.methods.values()) == sum(method.complete for method in tables.methods)


def test_methods_without_end_make_no_series_without_end() -> None:
    totals = Totals()
    statuses = (1, *[0] * len(_core.STATUSES))
    for number in range(1_000):
        one = SimpleNamespace(name=f"/a.B/{number}", statuses=statuses, complete=1)
        totals.add(cast(Any, SimpleNamespace(tables=SimpleNamespace(methods=[one]))))
    assert len(totals.methods) == 51
    assert totals.methods["other"] == {"OK": 950}


def found(*names: str) -> Analysis:
    findings = [SimpleNamespace(id=name, severity="warning", title="what happened") for name in names]
    return cast(Analysis, SimpleNamespace(findings=findings))


def test_findings_appear_and_go() -> None:
    log, second = FindingsLog(), 10**9
    assert [one.since_ns for one in log.take(found("a"), 1 * second)] == [second]
    assert [(one.id, one.since_ns) for one in log.take(found("a", "b", "b"), 2 * second)] == [
        ("a", second),
        ("b", 2 * second),
        ("b", 2 * second),
    ]
    log.take(found("b"), 3 * second)
    assert [(one.id, one.since_ns, one.gone_ns) for one in log.list_gone()] == [("a", second, 3 * second)]
    log.take(found(), 4 * second)
    assert [one.id for one in log.list_gone()] == ["b", "a"]
    assert [one.since_ns for one in log.take(found("a"), 5 * second)] == [5 * second]
    assert [one.id for one in log.list_gone()] == ["b"]
    log.take(found("a"), 65 * second)
    assert log.list_gone() == ()
