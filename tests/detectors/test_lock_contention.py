"""`lock-contention`: threads that wait for each other, by the record of the scheduler; never by packets alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from process_tables import answers, finding, tables

from grpcdiag.analyzer.detectors import lock_contention as detector
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["processes/lock-contention"]
QUIET_ON = ["processes/one-connection", "processes/own-connections", "impl-go"]


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


@pytest.mark.parametrize(("idle", "severity"), [(0, "warning"), (1, "info")])
def test_a_queue_of_work_looks_the_same(idle: int, severity: str) -> None:
    waits = tables(lock=100_000)
    assert waits.processes is not None
    waits.processes.acts.idle[0] = idle
    some = finding(detector, waits)
    assert some is not None
    assert (some.severity, some.confidence) == (severity, "medium")
    assert "lock or queue that they share" in some.verdict


def test_without_a_record_nothing_is_said() -> None:
    assert answers(detector, replace(tables(lock=100), processes=None)) == []


def test_without_waits_for_locks_it_cannot_tell() -> None:
    (answer,) = answers(detector, tables(locks=False, other_rpc=100))
    assert isinstance(answer, Skipped)
    assert "--processes full" in answer.reason


def edges(_folder: Path) -> Iterator[Tables]:
    """Few intervals, a small share of them, and a large and a small one of the RPCs' time."""
    yield tables(intervals=49, lock=100)
    yield tables(lock=1, running=99)
    for us in (1, 100_000):
        yield tables(idle=0, lock=us)
