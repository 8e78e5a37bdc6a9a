"""`lock-contention`: threads that wait for each other, by the record of the scheduler; never by packets alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from process_tables import answers, finding, tables

from grpcdiag.analyzer.detectors import lock_contention as detector
from grpcdiag.analyzer.model.finding import Skipped

FIRES_ON = ["processes/lock-contention"]
"""Recorded captures on which the finding fires."""
QUIET_ON = ["processes/one-connection", "processes/own-connections", "impl-go"]
"""Recorded captures on which it must not."""


@pytest.mark.parametrize("direction", [0, 1])
def test_its_share_decides(direction: int) -> None:
    side = {"direction": direction, "idle": 1 - direction}
    some = finding(detector, tables(**side, lock=20, running=80))
    assert some is not None
    assert some.metrics["waited_share"] == 20 / 100
    assert len(some.evidence) == 3
    assert finding(detector, tables(**side, lock=19, running=81)) is None


def test_few_intervals_show_no_pattern() -> None:
    assert finding(detector, tables(intervals=50, lock=100)) is not None
    assert finding(detector, tables(intervals=49, lock=100)) is None


def test_intervals_without_a_thread_do_not_count() -> None:
    assert finding(detector, tables(known=False, lock=100)) is None


def test_what_the_record_lacks_lowers_the_confidence() -> None:
    sure = finding(detector, tables(lock=95, unknown=5))
    unsure = finding(detector, tables(lock=80, unknown=20))
    assert sure is not None
    assert unsure is not None
    assert (sure.confidence, unsure.confidence) == ("high", "medium")


def test_without_a_record_nothing_is_said() -> None:
    assert answers(detector, replace(tables(lock=100), processes=None)) == []


def test_without_waits_for_locks_it_cannot_tell() -> None:
    (answer,) = answers(detector, tables(locks=False, other_rpc=100))
    assert isinstance(answer, Skipped)
    assert "--processes full" in answer.reason
