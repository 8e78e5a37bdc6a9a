"""Sums of nanoseconds stay within 64 bits with a sign, and are exact where they fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from grpcdiag.analyzer.model.budget import CAUSES, named, total
from grpcdiag.analyzer.tables.durations import MOST_NS, clip_ns, total_ns, totals_ns
from grpcdiag.analyzer.two_captures.clock import NoClock, fit

TIMES = st.one_of(st.integers(-MOST_NS - 1, MOST_NS), st.sampled_from([0, 1, MOST_NS, -MOST_NS - 1, 1 << 62]))


@given(arrays(np.int64, st.integers(0, 6), elements=TIMES))
def test_a_sum_is_exact_or_the_most(column: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    assert total_ns(column) == max(-MOST_NS, min(sum(column.tolist()), MOST_NS))


def test_columns_without_a_sign_and_tables() -> None:
    assert total_ns(np.array([1 << 63, 1 << 63], dtype=np.uint64)) == MOST_NS
    assert totals_ns(np.array([[1, MOST_NS], [2, 1]])) == (3, MOST_NS)
    assert totals_ns(np.zeros((0, 2), dtype=np.int64)) == (0, 0)
    assert clip_ns(-(1 << 70)) == -MOST_NS


def test_budgets_of_many_long_rpcs() -> None:
    assert total([[MOST_NS] * len(CAUSES)] * 2) == (MOST_NS,) * len(CAUSES)
    assert named([1 << 63, *[0] * (len(CAUSES) - 1)]) == {CAUSES[0]: MOST_NS}


def test_clocks_centuries_apart_are_not_put_in_relation() -> None:
    """The sum of two such differences would go round."""
    times = np.arange(4, dtype=np.int64)
    for apart in (MOST_NS, -MOST_NS - 1, 1 << 62):
        with pytest.raises(NoClock, match="73 years"):
            fit((times, np.full(4, apart)), (times, np.full(4, apart)))
