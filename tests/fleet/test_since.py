"""Since when time changed, and how certain that is, against histories whose change is known."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

import numpy as np
import pytest

pytest.importorskip("duckdb")

from grpcdiag.fleet.answers.changes import Since, since
from grpcdiag.fleet.answers.text import began
from grpcdiag.fleet.dataset.sums import SLOT_NS

MS = 1_000_000
HISTORIES = 60


def change_of(means: Iterable[float], slots: Iterable[int] | None = None, rpcs: int = 100) -> Since | None:
    """The change in intervals of equally many RPCs with these mean times in milliseconds."""
    values = list(means)
    places = list(slots) if slots is not None else list(range(len(values)))
    rows = zip(places, values, strict=True)
    return since([(place * SLOT_NS, rpcs, {"server": int(mean * rpcs * MS)}) for place, mean in rows])


def noise(seed: int, number: int, spread: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(seed).lognormal(0, spread, number)


def test_a_clear_step_has_its_time_and_its_chance() -> None:
    found = change_of([10] * 12 + [30] * 12)
    assert found == since([(k * SLOT_NS, 100, {"server": (10 if k < 12 else 30) * 100 * MS}) for k in range(24)])
    assert found and (found.time_ns, found.before_ns, found.after_ns) == (12 * SLOT_NS, 10 * MS, 30 * MS)
    assert (found.earliest_ns, found.latest_ns, found.chance) == (11 * SLOT_NS, 13 * SLOT_NS, 0.001)
    assert began(found) == "since 1970-01-01 01:00 UTC (± 5 min; by chance: less than 1 in 1,000)"


@pytest.mark.parametrize(("before", "after"), [(4, 4), (8, 2), (10, 2)])
def test_the_chance_is_the_share_of_orders_that_are_as_clear(before: int, after: int) -> None:
    """Of a perfect step: those with all slow intervals at the end, or all at the beginning."""
    found = change_of([10] * before + [30] * after)
    assert found and found.chance == pytest.approx(2 / comb(before + after, after), rel=0.4)


@pytest.mark.parametrize("slow", [0, 1])
def test_one_slow_interval_at_the_end_is_no_change(slow: int) -> None:
    """Each of twelve may be the slow one; two in a row at the end are rarer."""
    assert change_of([10] * (12 - slow) + [50] * slow) is None
    assert change_of([10] * 10 + [50] * 2) is not None


@pytest.mark.parametrize("intervals", [1, 2, 5])
def test_few_intervals_prove_nothing(intervals: int) -> None:
    assert change_of([10] * (intervals // 2) + [50] * (intervals - intervals // 2)) is None


def test_fluctuation_is_no_change() -> None:
    assert change_of([10 + k % 2 for k in range(12)]) is None
    told = sum(change_of(10 * noise(seed, 24, 0.7)) is not None for seed in range(HISTORIES))
    assert told <= HISTORIES // 20


@pytest.mark.parametrize("intervals", [12, 24, 288])
def test_a_slow_rise_and_a_day_have_no_moment(intervals: int) -> None:
    rise = np.linspace(10, 40, intervals)
    assert change_of(rise) is None
    assert change_of(20 + 10 * np.sin(np.linspace(0, 2 * np.pi, 288))) is None


def test_the_range_has_the_moment() -> None:
    """95 % of the ranges, less a few since the histories are few."""
    found = [change_of(np.r_[[10.0] * 15, [25.0] * 9] * noise(seed, 24, 0.3)) for seed in range(HISTORIES)]
    known = [one for one in found if one]
    assert len(known) > HISTORIES / 2
    assert sum(one.earliest_ns <= 15 * SLOT_NS <= one.latest_ns for one in known) >= 0.85 * len(known)
    assert any(one.latest_ns - one.earliest_ns > 2 * SLOT_NS for one in known)


def test_intervals_that_lack_rpcs_widen_the_range() -> None:
    found = change_of([10] * 12 + [30] * 12, [*range(12), *range(30, 42)])
    assert found and (found.time_ns, found.earliest_ns) == (30 * SLOT_NS, 11 * SLOT_NS)
    assert "(between 1970-01-01 00:55 and 1970-01-01 02:35; " in began(found)


def test_many_intervals_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on the memory that the draws may take, but for the draws themselves."""
    from grpcdiag.fleet.answers import changes

    at_once = change_of([10] * 12 + [30] * 12)
    monkeypatch.setattr(changes, "_MOST_CELLS", 100)
    assert change_of([10] * 12 + [30] * 12) == at_once
