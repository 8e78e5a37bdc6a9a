"""`processor-saturated`: threads were ready and did not run, by the scheduler's record; never by packets alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from process_tables import answers, finding, tables

from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.detectors import client_idle_gap, shared_connection
from grpcdiag.analyzer.detectors import processor_saturated as detector
from grpcdiag.analyzer.model.budget import of_cause
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.analyzer.tables import Tables

FIRES_ON = ["processes/processor-saturated"]
QUIET_ON = ["processes/one-connection", "processes/own-connections", "impl-go"]


@pytest.mark.parametrize("direction", [0, 1])
def test_its_share_decides(direction: int) -> None:
    side = {"direction": direction, "idle": 1 - direction}
    some = finding(detector, tables(**side, other_processes=50, running=50))
    assert some is not None
    assert some.metrics["waited_share"] == 50 / 100
    assert len(some.evidence) == 3
    assert finding(detector, tables(**side, other_processes=49, running=51)) is None


def test_only_time_inside_rpcs_is_lost() -> None:
    inside = finding(detector, tables(direction=1, idle=0, runnable=10))
    between = finding(detector, tables(idle=1, runnable=100))
    assert inside is not None
    assert between is not None
    assert (inside.lost_ns, between.lost_ns, between.share) == (1_000_000, 0, 0)
    assert (inside.metrics["waited_idle_ns"], between.metrics["waited_idle_ns"]) == (0, 10_000_000)
    assert "1.00 ms of it were inside RPCs, 0 ns between them" in inside.explanation


def test_no_more_is_lost_than_the_budget_gives_the_side() -> None:
    some = tables(direction=1, idle=0, runnable=1_000_000)
    found = finding(detector, some)
    assert found is not None
    assert found.lost_ns == of_cause(of_tables(some).budget, "server")


def test_few_intervals_show_no_pattern() -> None:
    assert finding(detector, tables(intervals=50, other_processes=100)) is not None
    assert finding(detector, tables(intervals=49, other_processes=100)) is None


def test_intervals_without_a_thread_do_not_count() -> None:
    assert finding(detector, tables(known=False, other_processes=100)) is None


def test_what_the_record_lacks_lowers_the_confidence() -> None:
    sure = finding(detector, tables(other_processes=95, unknown=5))
    unsure = finding(detector, tables(other_processes=80, unknown=20))
    assert sure is not None
    assert unsure is not None
    assert (sure.confidence, unsure.confidence) == ("high", "medium")


def test_without_a_record_nothing_is_said() -> None:
    assert answers(detector, replace(tables(other_processes=100), processes=None)) == []


@pytest.mark.parametrize(
    ("parts", "who"),
    [({"other_processes": 90}, "other processes"), ({"runnable": 90}, "other threads of the command")],
)
def test_it_says_who_took_the_processors(parts: dict[str, int], who: str) -> None:
    some = finding(detector, tables(**parts))
    assert some is not None
    assert who in some.verdict


def test_time_between_calls_that_a_timer_set_is_no_wait() -> None:
    assert finding(detector, tables(idle=2, timer=1, runnable=100)) is None
    assert finding(detector, tables(idle=2, unknown=1, runnable=100)) is None
    assert finding(detector, tables(idle=2, runnable=100)) is not None
    assert finding(detector, tables(idle=1, timer=1, runnable=100)) is not None


@pytest.mark.parametrize(("waiting", "withdrawn"), [(50, True), (49, False)])
def test_an_idle_client_without_processors_is_no_shared_connection(waiting: int, withdrawn: bool) -> None:
    some = tables(runnable=waiting, running=100 - waiting)
    said = [answer for module in (shared_connection, client_idle_gap) for answer in answers(module, some)]
    reasons = [answer.reason for answer in said if isinstance(answer, Skipped)]
    assert any("waited for a processor" in reason for reason in reasons) == withdrawn


def edges(_folder: Path) -> Iterator[Tables]:
    """Few intervals, a small share of them, and a large and a small one of the RPCs' time."""
    yield tables(intervals=49, other_processes=100)
    yield tables(other_processes=1, running=99)
    for us in (1, 100_000):
        yield tables(idle=0, other_processes=us)
