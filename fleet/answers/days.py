"""Find the method that is slower than a day before."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ..dataset import sums
from .changes import FACTOR, LEAST_RPCS, Since, since

DAY_NS = 86_400_000_000_000


class Slower(Struct, frozen=True, kw_only=True):
    """A method of which RPCs of the last day took longer than those at the same times of the day before."""

    method: str
    before_ns: int
    """Per RPC."""
    after_ns: int
    pair: str
    """The pair of hosts with most of the additional time."""
    cause: str
    """The cause that grew most."""
    since: Since | None
    """When it began, if it did at a single moment of these two days."""


def find_slower(database: Any, method: str) -> Slower | None:
    """Find the method with most additional time; `method` is its SQL expression. None if none is much slower."""
    database.execute(f"""
        CREATE TEMP TABLE days AS
        WITH recent AS (
            SELECT {method} AS name, pair, slot_time_ns AS slot, sum(rpcs)::BIGINT AS rpcs, {sums.budget()} AS budget,
                   total_ns(duration_ns) AS ns
            FROM t WHERE slot_time_ns > (SELECT max(slot_time_ns) FROM t) - 2 * {DAY_NS} GROUP BY ALL
        )
        -- times of day that only one of the days has would compare peaks with nights
        SELECT *, slot > (SELECT max(slot) FROM recent) - {DAY_NS} AS is_after FROM recent r
        WHERE EXISTS (FROM recent o WHERE o.name = r.name AND abs(o.slot - r.slot) = {DAY_NS})""")
    mean = "sum(ns) FILTER ({0}) / sum(rpcs) FILTER ({0})"
    before, after = mean.format("NOT is_after"), mean.format("is_after")
    found = database.execute(f"""
        SELECT name, ({before})::BIGINT, ({after})::BIGINT FROM days GROUP BY name
        HAVING least(sum(rpcs) FILTER (is_after), sum(rpcs) FILTER (NOT is_after)) >= {LEAST_RPCS}
           AND {after} >= {FACTOR} * greatest({before}, 1)
        ORDER BY ({after} - {before}) * sum(rpcs) FILTER (is_after) DESC, name LIMIT 1""").fetchone()
    if found is None:
        return None
    name, before_ns, after_ns = found
    (pair,) = database.execute(
        f"SELECT pair FROM days WHERE name = ? GROUP BY pair "
        f"ORDER BY coalesce(sum(ns - {before_ns}::HUGEINT * rpcs) FILTER (is_after), 0) DESC, pair LIMIT 1",
        [name],
    ).fetchone()
    columns = f"slot, sum(rpcs)::BIGINT, {sums.budget()}, is_after"
    query = f"SELECT {columns} FROM days WHERE name = ? GROUP BY ALL ORDER BY slot"
    history = database.execute(query, [name]).fetchall()
    return Slower(
        method=name,
        before_ns=before_ns,
        after_ns=after_ns,
        pair=pair,
        cause=_find_cause(history),
        since=since([row[:3] for row in history]),
    )


def _find_cause(history: list[tuple[Any, ...]]) -> str:
    """Find the cause whose time per RPC grew most."""

    def mean(cause: str, *, after: bool) -> float:
        rows = [row for row in history if row[3] == after]
        return float(sum(row[2][cause] or 0 for row in rows) / max(sum(row[1] for row in rows), 1))

    return max(CAUSES, key=lambda cause: mean(cause, after=True) - mean(cause, after=False))
