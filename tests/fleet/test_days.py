"""What is slower than a day before, against datasets of two days whose difference is known."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fsspec")
import duckdb

from grpcdiag.fixtures.bench.fleet import rows
from grpcdiag.fleet.answers import html
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.answers.terminal import render
from grpcdiag.fleet.dataset import catalog, summary

METHOD = "/shop.v1.Users/List1"
BEGIN_NS = 1_782_900_000_000_000_000


def two_days(folder: Path, when: str) -> str:
    """The synthetic hour on two days: on one of them a method takes 0.3 s longer on one of four hosts."""
    dataset = folder / "dataset"
    rows(dataset, 4_000, recordings=4)
    slow = f"if(method = '{METHOD}' AND host = 'host-0002' AND slot_time_ns {when} {BEGIN_NS}, 300000000 * rpcs, 0)"
    changed = f"""
        SELECT * REPLACE ((duration_ns + {slow})::BIGINT AS duration_ns,
                          struct_update(budget, server := (budget.server + {slow})::BIGINT) AS budget)
        FROM (FROM read UNION ALL BY NAME
              SELECT * REPLACE (slot_time_ns - 86400000000000 AS slot_time_ns) FROM read)"""
    with duckdb.connect() as database:
        for path in (dataset / "totals").rglob("*.parquet"):
            database.execute(f"CREATE OR REPLACE TEMP TABLE read AS FROM '{path}'")
            database.execute(f"COPY ({changed}) TO '{path}'")
    for path in (dataset / "_summary").iterdir():
        path.unlink()
    summary.write(str(dataset), catalog.read_contents(str(dataset)))
    return str(dataset)


def test_a_method_that_got_slower_is_told_with_its_hosts_and_its_cause(tmp_path: Path) -> None:
    found = report(two_days(tmp_path, ">="), 1)
    told = found.answers.slower or ""
    assert told.startswith(f"{METHOD}: ") and "x as long as a day before" in told
    assert "server grew most." in told and "on host-0002 -> " in told
    # nothing was recorded in between
    when = "(between 2026-06-30 10:55 and 2026-07-01 10:05; by chance: less than 1 in 1,000)"
    assert f", since 2026-07-01 10:00 UTC {when}. " in told
    assert told[:30] in render(found, width=200) and told[:30] in html.render(found)


def test_a_method_that_got_faster_is_not(tmp_path: Path) -> None:
    found = report(two_days(tmp_path, "<"))
    assert found.answers.slower is None and "a day before" not in render(found)


def test_times_that_one_day_lacks_are_not_compared(tmp_path: Path) -> None:
    """The synthetic hour has one slow half, which is not the other half's day before."""
    rows(tmp_path / "dataset", 4_000, recordings=4)
    assert report(str(tmp_path / "dataset")).answers.slower is None
