"""Findings see the same examples whatever other RPCs have rows; the longest of all and a sample have them if wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict, replace
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.runner import THREADS_VARIABLE
from grpcdiag.analyzer.tables import COMPLETE, Ints, Tables
from grpcdiag.analyzer.views.sampling import BOUNDS, Bounds, read_overview

CAPTURES = (
    "ydb-unary-single-inflight1.pcap",
    "rpc-errors.pcap",
    "wild/hedging.pcap.zst",
    "wild/retry-storm.pcap.zst",
    "wild/ghz-lo-c50.pcap.zst",
    "client/otel-retries.pcap.zst",
)


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", CAPTURES)
def test_examples_are_those_of_a_run_without_other_rows(
    name: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, threads)
    paths = [recorded(name)]
    expected, every = decode(paths, rpc_rows=False), decode(paths)
    assert (expected.connections.rpcs > _core.FIRST_RPCS).any()
    for bounds in (BOUNDS, Bounds(rpcs=20)):
        overview = read_overview(paths, bounds=bounds)
        found = replace(
            overview.examples, methods=tuple(replace(m, distribution=()) for m in overview.examples.methods)
        )
        for table, rows in asdict(expected).items():
            assert_same(table, getattr(found, table), rows)
        assert overview.sampled.sum() == min(bounds.rpcs - bounds.rpcs // 3, len(every.rpcs.stream))
        rows = np.flatnonzero(np.isin(list_places(every), list_places(overview.tables)))
        assert bounds is not BOUNDS or len(rows) == len(every.rpcs.stream)
        some = overview.tables
        for name in ("stream", "duration_ns", "status", "flags", "first_packet", "last_packet"):
            assert_same(name, getattr(some.rpcs, name), getattr(every.rpcs, name)[rows])
        assert_same("budgets", some.rpc_budgets, every.rpc_budgets[rows])


OPEN_LONG = ("wild/half-open-nodeadline.pcap.zst", "wild/nghttpx-bothlegs-cut.pcap.zst", "wild/hung-rpc.pcap.zst")
"""Captures in which some of the longest RPCs have no end."""
MOST = 12


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", (*CAPTURES, *OPEN_LONG))
def test_the_longest_of_all_have_rows_with_budgets(name: str, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, threads)
    every, some = decode([recorded(name)]), decode([recorded(name)], rpc_rows=False, slowest=MOST)
    assert len(some.rpcs.stream) < len(every.rpcs.stream) or name != CAPTURES[0]
    longest = list_longest(every)
    assert (name in OPEN_LONG) == any(not flags & COMPLETE for _, _, flags, *_ in longest)
    assert list_longest(some) == longest


def list_places(tables: Tables) -> Ints:
    return np.asarray(tables.rpcs.first_packet.astype(np.int64) << 32 | tables.rpcs.stream)


def list_longest(tables: Tables) -> list[tuple[Any, ...]]:
    """List the longest RPCs: duration, place, flags, and budget."""
    rpcs = tables.rpcs
    rows = np.lexsort((rpcs.stream, rpcs.first_packet, -rpcs.duration_ns))[:MOST].tolist()
    columns = (rpcs.duration_ns, rpcs.connection, rpcs.flags, rpcs.stream, rpcs.status, tables.rpc_budgets)
    return [tuple(column[row].tolist() for column in columns) for row in rows]


def assert_same(what: str, found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, what
        assert np.array_equal(found, expected), what
    elif hasattr(expected, "__struct_fields__"):
        for name in expected.__struct_fields__:
            assert_same(f"{what}.{name}", getattr(found, name), getattr(expected, name))
    else:
        assert found == expected, what
