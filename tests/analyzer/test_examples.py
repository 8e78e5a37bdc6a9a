"""Findings see the same examples whether all RPCs have rows or not; the longest of all have rows if they are wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.runner import THREADS_VARIABLE
from grpcdiag.analyzer.tables import COMPLETE, Tables
from grpcdiag.analyzer.views.sampling import read_overview

CAPTURES = (
    "ydb-unary-single-inflight1.pcap",
    "rpc-errors.pcap",
    "wild/hedging.pcap.zst",
    "wild/retry-storm.pcap.zst",
    "wild/ghz-lo-c50.pcap.zst",
    "client/otel-retries.pcap.zst",
)


@pytest.mark.parametrize("name", CAPTURES)
def test_examples_are_those_of_a_run_without_other_rows(name: str) -> None:
    paths = [recorded(name)]
    expected, overview = decode(paths, rpc_rows=False), read_overview(paths)
    assert (expected.connections.rpcs > _core.FIRST_RPCS).any()
    for table, rows in asdict(expected).items():
        assert_same(table, getattr(overview.examples, table), rows)
    assert_same("rpcs", overview.tables.rpcs, decode(paths).rpcs)


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
