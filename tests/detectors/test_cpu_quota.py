"""`cpu-quota`: a cgroup that was throttled, by the record of the scheduler; never by packets alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from process_tables import answers, finding, tables

from grpcdiag.analyzer.detectors import cpu_quota as detector
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["processes/cpu-quota"]
QUIET_ON = ["processes/one-connection", "processes/own-connections", "impl-go"]


@pytest.mark.parametrize("direction", [0, 1])
def test_its_share_decides(direction: int) -> None:
    side = {"direction": direction, "idle": 1 - direction}
    some = finding(detector, tables(**side, throttled=10, running=90))
    assert some is not None
    assert some.metrics["waited_share"] == 10 / 100
    assert len(some.evidence) == 3
    assert finding(detector, tables(**side, throttled=9, running=91)) is None


def test_few_intervals_show_no_pattern() -> None:
    assert finding(detector, tables(intervals=50, throttled=100)) is not None
    assert finding(detector, tables(intervals=49, throttled=100)) is None


def test_intervals_without_a_thread_do_not_count() -> None:
    assert finding(detector, tables(known=False, throttled=100)) is None


def test_what_the_record_lacks_lowers_the_confidence() -> None:
    sure = finding(detector, tables(throttled=95, unknown=5))
    unsure = finding(detector, tables(throttled=80, unknown=20))
    assert sure is not None
    assert unsure is not None
    assert (sure.confidence, unsure.confidence) == ("high", "medium")


def test_without_a_record_nothing_is_said() -> None:
    assert answers(detector, replace(tables(throttled=100), processes=None)) == []


def test_what_cpu_stat_counted_is_said_if_the_record_has_it() -> None:
    some = tables(throttled=100)
    assert some.processes is not None
    said = finding(detector, some)
    assert said is not None
    assert said.metrics["cgroup_throttled_ns"] == 1_000
    assert "since the look before, 1.00 µs of all processors together." in said.explanation
    older = finding(
        detector,
        replace(
            some, processes=replace(some.processes, quotas={7: replace(some.processes.quotas[7], throttled_ns=None)})
        ),
    )
    assert older is not None
    assert "cgroup_throttled_ns" not in older.metrics
    assert "since the look before." in older.explanation


def test_throttled_pauses_count() -> None:
    assert finding(detector, tables(idle=2, throttled=100)) is not None


def edges(_folder: Path) -> Iterator[Tables]:
    """Few intervals, a small share of them, and a large and a small one of the RPCs' time."""
    yield tables(intervals=49, throttled=100)
    yield tables(throttled=1, running=99)
    for us in (1, 100_000):
        yield tables(idle=0, throttled=us)
