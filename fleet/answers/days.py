"""Find the method, or the pair of hosts, that is slower than a day before."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ..dataset import sums
from ..dataset.sums import DAY_NS, HOUR_NS
from .changes import FACTOR, LEAST_RPCS, Since, since


class Slower(Struct, frozen=True, kw_only=True):
    """A method of which RPCs of the last day took longer than those at the same times of the day before."""

    method: str
    """With the pair of hosts, if RPCs between others hide it."""
    others: int
    """Number of others of which the same is true."""
    before_ns: int
    """Per RPC."""
    after_ns: int
    pair: str
    """The pair of hosts with most of the additional time."""
    share: float
    """Its share of that; more than 1 where other pairs got faster, 0 where RPCs only moved to slow pairs."""
    cause: str | None
    """The cause that grew most; None if none grew."""
    since: Since | None
    """When it began, if it did at a single moment of these two days."""
    first_ns: int
    """Begin of the first interval of the last day in which it was as much slower."""
    last_ns: int
    """End of the last one."""


def find_slower(database: Any, method: str) -> Slower | None:
    """Find the method with most additional time; `method` is its SQL expression. None if none is much slower.

    Where all RPCs of a method are not much slower together, those between one pair of hosts may be, by the hour.
    """
    methods = _find(database, method, sums.SLOT_NS, LEAST_RPCS)
    return methods or _find(database, f"{method} || ' on ' || pair", HOUR_NS, 1)


def _find(database: Any, method: str, width_ns: int, last_rpcs: int) -> Slower | None:
    _create_days(database, method, f"slot_time_ns::HUGEINT // {width_ns} * {width_ns}", last_rpcs)
    before, after = "sum(ns_before) // sum(rpcs_before)", "sum(ns) // sum(rpcs)"
    found = database.execute(f"""
        SELECT name, {before}, {after}, ({after} - {before}) * sum(rpcs) AS more, count(*) OVER () - 1,
               min(slot) FILTER (is_slower), max(slot) FILTER (is_slower) FROM days GROUP BY name
        HAVING least(sum(rpcs), sum(rpcs_before)) >= {LEAST_RPCS}
           AND {after} >= {FACTOR}::DOUBLE * greatest({before}, 1)
        ORDER BY more DESC, name LIMIT 1""").fetchone()
    if found is None:
        return None
    name, before_ns, after_ns, more_ns, others, first_ns, last_ns = found
    # budgets and pairs of one method alone: those of all would be many
    database.execute(
        f"""CREATE OR REPLACE TEMP TABLE slower AS
            SELECT pair, slot, is_after, rpcs, duration_ns, budget
            FROM (FROM t WHERE {method} = $1) t
            JOIN (SELECT slot - unnest([0, {DAY_NS}]) AS slot, unnest([true, false]) AS is_after
                  FROM days WHERE name = $1) d ON d.slot = t.slot_time_ns // {width_ns} * {width_ns}""",
        [name],
    )
    pair, more_of_pair_ns = _find_pair(database, before_ns)
    columns = f"slot, sum(rpcs)::BIGINT, {sums.budget()}, is_after"
    history = database.execute(f"SELECT {columns} FROM slower GROUP BY ALL ORDER BY slot").fetchall()
    began = since([row[:3] for row in history], width_ns)
    return Slower(
        method=name,
        before_ns=before_ns,
        after_ns=after_ns,
        pair=pair,
        share=more_of_pair_ns / more_ns,
        cause=_find_cause(history),
        since=began if began and began.after_ns > began.before_ns else None,
        others=others,
        first_ns=first_ns,
        last_ns=last_ns + width_ns,
    )


def _create_days(database: Any, method: str, slot: str, last_rpcs: int) -> None:
    """Create a table with the intervals of each method's last day, and those a day before them.

    Times of day that only one of the days has are left out: they would compare peaks with nights. A method's last day
    ends where it has `last_rpcs` such RPCs, so that a few of a host whose clock is days ahead do not move it.
    """
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE days AS
        WITH slots AS (  -- wide integers: times of hostile captures differ by more than 64 bits
            SELECT {method} AS name, {slot} AS slot, sum(rpcs)::HUGEINT AS rpcs,
                   total_ns(duration_ns)::HUGEINT AS ns
            FROM t GROUP BY ALL
        ), twice AS (
            SELECT a.*, b.rpcs AS rpcs_before, b.ns AS ns_before,
                   a.ns * b.rpcs >= {FACTOR}::DOUBLE * b.ns * a.rpcs AS is_slower,
                   sum(a.rpcs) OVER (PARTITION BY a.name ORDER BY a.slot DESC) AS later
            FROM slots a JOIN slots b ON b.name = a.name AND b.slot = a.slot - {DAY_NS}
        )
        SELECT *, max(slot) FILTER (later >= {last_rpcs}) OVER (PARTITION BY name) AS last FROM twice
        QUALIFY slot <= last AND slot > last - {DAY_NS}""")


def _find_pair(database: Any, before_ns: int) -> tuple[str, int]:
    """Find the pair of hosts whose own time grew most, and by how much; a new pair grew from the method's mean."""
    row = database.execute(f"""
        SELECT pair, coalesce(sum(rpcs) FILTER (is_after), 0)::HUGEINT AS rpcs_after,
               coalesce(sum(duration_ns) FILTER (is_after), 0)::HUGEINT - rpcs_after * coalesce(
                   sum(duration_ns) FILTER (NOT is_after) // sum(rpcs) FILTER (NOT is_after), {before_ns}) AS more
        FROM slower GROUP BY pair ORDER BY more DESC, pair LIMIT 1""").fetchone()
    return row[0], row[2]


def _find_cause(history: list[tuple[Any, ...]]) -> str | None:
    """Find the cause whose time per RPC grew most; None if none grew."""

    def mean(cause: str, *, after: bool) -> float:
        rows = [row for row in history if row[3] == after]
        return float(sum(row[2][cause] or 0 for row in rows) / max(sum(row[1] for row in rows), 1))

    grown = {cause: mean(cause, after=True) - mean(cause, after=False) for cause in CAUSES}
    most = max(grown, key=grown.__getitem__)
    return most if grown[most] > 0 else None
