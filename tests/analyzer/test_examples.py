"""Where all RPCs have rows, the examples that findings see are those of a run without such rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
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


def assert_same(what: str, found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, what
        assert np.array_equal(found, expected), what
    elif hasattr(expected, "__struct_fields__"):
        for name in expected.__struct_fields__:
            assert_same(f"{what}.{name}", getattr(found, name), getattr(expected, name))
    else:
        assert found == expected, what
