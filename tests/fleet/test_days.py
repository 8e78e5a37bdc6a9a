"""What is slower than a day before, against datasets of two days whose difference is known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("fsspec")
import duckdb

from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.fixtures.bench.fleet import rows
from grpcdiag.fleet.answers import html
from grpcdiag.fleet.answers.days import DAY_NS, Slower, _find_cause, find_slower
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.answers.terminal import render
from grpcdiag.fleet.answers.text import _say_what_got_slower
from grpcdiag.fleet.dataset import catalog, summary, sums

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
    assert "server grew most." in told and "20% of the additional time is on host-0002 -> " in told
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


MS = 1_000_000
DAYS = [(day, slot) for day in (0, 1) for slot in range(288)]


def compare(rows: Iterable[tuple[str, str, int, int, int]]) -> Slower | None:
    """Find the slower method in rows of method, pair, time, RPCs, and time per RPC, all of it the server's."""
    budget = sums.budget("if('{cause}' = 'server', ns, 0)::BIGINT")
    with sums.connect() as database:
        database.execute(
            f"""CREATE TEMP TABLE t AS SELECT method, pair, slot_time_ns, rpcs, ns AS duration_ns, {budget} AS budget
                FROM (SELECT unnest($1) AS method, unnest($2) AS pair, unnest($3)::BIGINT AS slot_time_ns,
                             unnest($4)::BIGINT AS rpcs, rpcs * unnest($5)::BIGINT AS ns)""",
            [list(column) for column in zip(*rows, strict=True)],
        )
        return find_slower(database, "method")


def at(day: int, slot: int) -> int:
    return BEGIN_NS + day * DAY_NS + slot * sums.SLOT_NS


def test_the_pair_that_grew_is_named_not_the_one_that_is_always_slow() -> None:
    near = [("List", "near -> b", at(day, slot), 1000, (1 + 9 * day) * MS) for day, slot in DAYS]
    far = [("List", "far -> b", at(day, slot), 100, 100 * MS) for day, slot in DAYS]
    found = compare([*near, *far])
    assert found and (found.pair, found.cause) == ("near -> b", "server") and found.share == pytest.approx(1)
    assert (found.before_ns, found.after_ns) == (10 * MS, 200 * MS // 11)


def test_a_new_pair_is_compared_with_the_method() -> None:
    old = [("List", "old -> b", at(day, slot), 100, 10 * MS) for day, slot in DAYS]
    new = [("List", "new -> b", at(1, slot), 100, 90 * MS) for slot in range(288)]
    found = compare([*old, *new])
    assert found and found.pair == "new -> b"


def test_pairs_that_did_not_grow_are_not_named() -> None:
    """More RPCs are on the slow one; no pair has become slower."""
    found = compare(
        ("List", f"{host} -> b", at(day, slot), 100 + 900 * (day == slow), (1 + 99 * slow) * MS)
        for host, slow in (("near", 0), ("far", 1))
        for day, slot in DAYS
    )
    assert found and found.share == 0 and found.pair not in _say_what_got_slower(found)


def test_the_share_of_a_pair_is_said() -> None:
    """Three pairs grew alike."""
    hosts = [(host, *one) for host in "xyz" for one in DAYS]
    found = compare(("List", f"{host} -> b", at(day, slot), 100, (1 + day) * MS) for host, day, slot in hosts)
    assert found and "33% of the additional time is on x -> b" in _say_what_got_slower(found)


def test_a_method_that_became_faster_at_last_did_not_get_slower_then() -> None:
    times = {0: [10] * 288, 1: [20] * 216 + [0] * 72}
    found = compare(("List", "a -> b", at(day, slot), 100, times[day][slot] * MS) for day, slot in DAYS)
    assert found and (found.before_ns, found.after_ns, found.since) == (10 * MS, 15 * MS, None)


def test_wrong_clocks_of_a_few_rpcs_change_nothing() -> None:
    """One is as the core clips it, the others are days ahead."""
    right = [("List", "a -> b", at(day, slot), 100, (10 + 10 * day) * MS) for day, slot in DAYS]
    expected = compare(right)
    earliest = -(1 << 63) // sums.SLOT_NS * sums.SLOT_NS + sums.SLOT_NS
    wrong = [("List", "a -> b", time, 1, MS) for time in (earliest, at(5, 0), at(6, 0))]
    assert expected and compare([*right, *wrong]) == expected
    assert compare(wrong) is None


def test_no_cause_is_named_where_none_grew() -> None:
    same = dict.fromkeys(CAUSES, 5)
    assert _find_cause([(0, 1, same, False), (1, 1, same, True)]) is None
    assert _find_cause([(0, 1, same, False), (1, 1, {**same, "client": 6}, True)]) == "client"


def test_a_pair_that_the_others_hide_is_named_with_its_hours() -> None:
    """One of twenty pairs is slow for six hours: the method as a whole is hardly slower."""
    hours = range(9 * 12, 15 * 12)
    found = compare(
        ("List", f"{host} -> b", at(day, slot), 4, (60 if day and host == 7 and slot in hours else 5) * MS)
        for host in range(20)
        for day, slot in DAYS
    )
    assert found and (found.method, found.others) == ("List on 7 -> b", 0)
    assert (found.first_ns - at(1, 0), found.last_ns - at(1, 0)) == tuple(n * sums.SLOT_NS for n in (9 * 12, 15 * 12))
    assert (found.before_ns, found.after_ns) == (5 * MS, (6 * 60 + 18 * 5) * MS // 24)
    told = _say_what_got_slower(found)
    assert "additional time" not in told and "more" not in told


def test_all_pairs_that_got_slower_are_counted() -> None:
    found = compare(
        ("List", f"{host} -> b", at(day, slot), 4, (60 if day and host in (3, 7) else 5) * MS)
        for host in range(60)
        for day, slot in DAYS
    )
    assert found and found.others == 1
    assert _say_what_got_slower(found).endswith(" 1 other became slower, too (by method and pair of hosts).")


@pytest.mark.parametrize(("first", "is_known"), [(15, True), (21, False)])
def test_a_change_with_few_rpcs_behind_it_has_hours_and_no_moment(first: int, is_known: bool) -> None:
    """Four RPCs in each of three hours are too few to know the moment; it is not moved to where they suffice."""
    hours = [(day, hour) for day in (0, 1) for hour in range(24)]
    found = compare(
        ("List", f"{host} -> b", at(day, 12 * hour), 4, (90 if day and host == 7 and hour >= first else 5) * MS)
        for host in range(40)
        for day, hour in hours
    )
    assert found and (found.since is not None) == is_known
    assert found.first_ns == at(1, 12 * first)
    if found.since:
        assert found.since.time_ns == at(1, 12 * first)
        assert found.since.latest_ns >= at(1, 12 * first + 12)
