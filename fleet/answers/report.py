"""Report on a dataset: what is slow, why, and since when, by DuckDB queries over the dataset's summary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ...interruption import scratch
from ..dataset import catalog, heads, summary, sums
from ..dataset.catalog import Contents
from ..dataset.joining import SERIES
from ..recordings import store
from ..recordings.credentials import without_credentials
from .changes import since
from .days import find_slower
from .edges import ServiceMap, find_blocked, read_map
from .losses import WAITING, Case, Cause, Loser
from .text import Answers, Failing, answers

if TYPE_CHECKING:
    from collections.abc import Iterator

DIMENSIONS: Mapping[str, str] = {
    "services": "service",
    "methods": "coalesce(method, '(not in the captures)')",
    "pairs": "pair",
    "implementations": "coalesce(client_implementation, '(unknown)')",
}
"""Dimensions by which time is divided, with their SQL expressions."""

_SEVERITIES = ("info", "warning", "critical")


class Way(Struct, frozen=True, kw_only=True):
    """One-way delays between two hosts that both recorded."""

    client_host: str
    server_host: str
    rpcs: int
    up_p50_ns: int
    down_p50_ns: int
    clock_uncertainty_ns: int


class Slot(Struct, frozen=True):
    """Sums over an interval of five minutes."""

    time_ns: int
    rpcs: int
    duration_ns: int
    lost_ns: int
    budget: dict[str, int]


class Report(Struct, frozen=True, kw_only=True):
    """The report on a dataset."""

    schema: str = "grpcdiag.fleet/1"
    dataset: str
    recordings: int
    hosts: int
    bytes: int
    packets: int
    first_time_ns: int | None
    last_time_ns: int | None
    rpcs: int
    failed_rpcs: int
    duration_ns: int
    lost_ns: int
    budget: dict[str, int]
    left_out: int
    """Files that could not be read."""
    without_grpc: int
    """Number of recordings without gRPC."""
    answers: Answers
    slots: tuple[Slot, ...]
    services: tuple[Loser, ...]
    methods: tuple[Loser, ...]
    pairs: tuple[Loser, ...]
    implementations: tuple[Loser, ...]
    service_map: ServiceMap
    causes: tuple[Cause, ...]
    ways: tuple[Way, ...]


def report(target: str, most: int | None = 10, names: Mapping[str, str] = {}) -> Report:
    """Report on a dataset with at most `most` rows of each kind; `names` are shown for addresses and hosts.

    Raises StoreError.
    """
    return catalog.read_steadily(target, lambda contents: _report(target, contents, most, names))


def _report(target: str, contents: Contents, most: int | None, names: Mapping[str, str]) -> Report:
    with (
        _fetch_summary(target, contents) as (files, scratch),
        sums.connect("2GB", threads=2, scratch=scratch) as database,
    ):
        _create_views(database, files, names)
        row = database.execute(
            f"SELECT count(DISTINCT {SERIES}), count(DISTINCT host), sum(size), sum(packets), min(first_time_ns), "
            "max(last_time_ns), sum(left_out), count(*) FILTER (rpcs = 0) FROM recordings"
        ).fetchone()
        slots = tuple(_read_slots(database))
        query = f"SELECT sum(failed_rpcs)::BIGINT, {sums.budget()} FROM t"
        failed, budget = database.execute(query).fetchone()
        causes = tuple(_read_causes(database, target))
        losers = {name: _read_losers(database, expression, most) for name, expression in DIMENSIONS.items()}
        service_map = read_map(database, most)
        # the one that lost most, and the one that took most time
        named = losers["methods"] if most != 1 else _read_losers(database, DIMENSIONS["methods"], 2)
        history = [(slot.time_ns, slot.rpcs, {c: slot.budget.get(c, 0) for c in CAUSES}) for slot in slots]
        return Report(
            dataset=without_credentials(target),
            recordings=row[0],
            hosts=row[1],
            bytes=int(row[2] or 0),
            packets=int(row[3] or 0),
            first_time_ns=row[4],
            last_time_ns=row[5],
            left_out=int(row[6] or 0),
            without_grpc=row[7],
            rpcs=sum(slot.rpcs for slot in slots),
            failed_rpcs=failed or 0,
            duration_ns=sum(slot.duration_ns for slot in slots),
            lost_ns=sum(slot.lost_ns for slot in slots),
            budget=_drop_zeros(budget),
            slots=slots,
            causes=causes,
            service_map=service_map,
            ways=tuple(_read_delays(database, most)),
            answers=answers(
                named,
                losers["pairs"],
                causes,
                _drop_zeros(budget),
                since(history),
                len(slots),
                _find_failing(database),
                find_slower(database, DIMENSIONS["methods"]),
                find_blocked(database),
            ),
            services=losers["services"],
            methods=losers["methods"],
            pairs=losers["pairs"],
            implementations=losers["implementations"],
        )


def _read_slots(database: Any) -> Iterator[Slot]:
    query = f"""
        SELECT slot_time_ns, sum(rpcs)::BIGINT, total_ns(duration_ns), total_ns(lost_ns), {sums.budget()}
        FROM t GROUP BY ALL ORDER BY ALL"""
    for time, rpcs, duration, lost, budget in database.execute(query).fetchall():
        yield Slot(time, rpcs, duration, lost, _drop_zeros(budget))


@contextmanager
def _fetch_summary(target: str, contents: Contents) -> Iterator[tuple[dict[str, str], Path]]:
    """Return the summary's files and a folder for temporary ones; make the summary if an unfinished run left none.

    Raises StoreError.
    """
    if not contents:
        reason = "all of it was pruned" if heads.exist(target) else "not a dataset of grpcdiag fleet analyze"
        raise store.StoreError(f"{target}: {reason}", target)
    catalog.check(contents)
    there = summary.written(target, contents)
    with scratch("grpcdiag-fleet-") as folder:
        if there:
            paths = store.fetch_all(list(there.values()), folder / "summary")
            yield dict(zip(there, paths, strict=True)), folder / "spill"
            return
        made = summary.make(target, contents, folder)
        yield {table: str(path) for table, path in made.items()}, folder / "spill"


_HOSTS = {"findings": ("host",), "ways": ("client_host", "server_host"), "totals": ("host",), "latencies": ("host",)}
"""Columns of the summary with hosts that are shown."""


def _create_views(database: Any, files: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Create tables with the dimensions of totals (`t`) and latencies (`l`), and a view per file.

    `all_t` and `all_l` have the RPCs behind proxies, too, whose calls are counted before the proxy.
    """
    database.execute(
        "CREATE TEMP TABLE given AS SELECT unnest(?) AS key, unnest(?) AS name", [[*given], [*given.values()]]
    )
    named = "coalesce((SELECT any_value(name) FROM given WHERE key = {0}), {0})"
    for table, url in files.items():
        read = sums.files([url], summary.EMPTY.get(table, ""))
        hosts = ", ".join(f"{named.format(column)} AS {column}" for column in _HOSTS.get(table, ()))
        query = f"SELECT * {f'REPLACE ({hosts})' if hosts and given else ''} FROM {read}"
        if table == "addresses" and given:
            query = f"""
                SELECT key AS address, name AS host FROM given UNION ALL
                SELECT address, {named.format("host")} FROM {read} WHERE address NOT IN (SELECT key FROM given)"""
        database.execute(f"CREATE TEMP VIEW {table} AS {query}")
    sums_of = "slot_time_ns, method, client_implementation, rpcs, failed_rpcs, duration_ns, budget"
    lost = sums.clipped(" + ".join(f"coalesce(budget.{cause}, 0)::HUGEINT" for cause in WAITING))
    ends = f"""{_name_host("client", "c")} AS client_host, {_name_host("server", "s")} AS server_host,
               {_name_host("proxy", "p")} || regexp_extract(proxy, ':\\d+$') AS proxy,
               server_host || regexp_extract(server, ':\\d+$') AS server_name,
               client_host || ' -> ' || server_name AS pair, recording,
               coalesce(regexp_extract(method, '^/(.*)/[^/]*$', 1), '(not in the captures)') AS service"""
    names = f"""LEFT JOIN addresses c ON c.address = client
               LEFT JOIN addresses s ON s.address = {sums.address("server")}
               LEFT JOIN addresses p ON p.address = {sums.address("proxy")}"""
    database.execute(f"CREATE TEMP TABLE all_t AS SELECT {sums_of}, {lost} AS lost_ns, {ends} FROM totals a {names}")
    database.execute(
        f"CREATE TEMP TABLE all_l AS SELECT method, client_implementation, step, rpcs, {ends} FROM latencies a {names}"
    )
    for table in ("t", "l"):
        database.execute(f"CREATE TEMP VIEW {table} AS FROM all_{table} WHERE proxy IS NULL")


def _name_host(end: str, short: str) -> str:
    """Make SQL for the host of an end; a loopback address is the recording host's own."""
    loopback = f"starts_with({end}, '127.') OR starts_with({end}, '[::1]')"
    return f"CASE WHEN {loopback} THEN a.host ELSE coalesce({short}.host, {sums.address(end)}) END"


def _read_losers(database: Any, expression: str, most: int | None) -> tuple[Loser, ...]:
    """Select rows alternately by most lost time and by most time; sort them by lost time."""
    steps = f"SELECT {expression} AS name, step, sum(rpcs) AS rpcs FROM l GROUP BY ALL"
    rows = database.execute(f"""
        WITH {sums.quantiles(steps, "name")}, losers AS (
            SELECT {expression} AS name, sum(rpcs)::BIGINT AS rpcs, sum(failed_rpcs)::BIGINT AS failed_rpcs,
                   total_ns(duration_ns) AS duration_ns, total_ns(lost_ns) AS lost_ns, {sums.budget()} AS budget
            FROM t GROUP BY ALL
        ), placed AS (
            SELECT *, least(2 * row_number() OVER (ORDER BY lost_ns DESC, duration_ns DESC, name) - 1,
                            2 * row_number() OVER (ORDER BY duration_ns DESC, name)) AS place
            FROM losers
        )
        SELECT name, rpcs, failed_rpcs, duration_ns, lost_ns, budget, p50, p99
        FROM (SELECT * FROM placed ORDER BY place {f"LIMIT {most}" if most else ""}) LEFT JOIN quantiles USING (name)
        ORDER BY lost_ns DESC, duration_ns DESC, name""").fetchall()
    history = _read_history(database, expression, [row[0] for row in rows])
    return tuple(
        Loser(
            name=name,
            rpcs=rpcs,
            failed_rpcs=failed,
            duration_ns=duration,
            p50_ns=sums.find_middle(p50),
            p99_ns=sums.find_middle(p99),
            lost_ns=lost,
            cause=max(WAITING, key=budget.__getitem__) if lost else None,
            budget=_drop_zeros(budget),
            since=since(history.get(name, ())),
        )
        for name, rpcs, failed, duration, lost, budget, p50, p99 in rows
    )


_MANY_FAILED = 0.01
"""Least share of a method's RPCs that failed to be named first (heuristic: some clients always cancel a few)."""


_MANY_IN_AN_HOUR, _LEAST_IN_AN_HOUR = 0.02, 10
"""Least share and number for an hour to be named (heuristic: fewer happen by chance in one of many hours)."""


def _find_failing(database: Any) -> Failing | None:
    """Find the method with most failed RPCs, or the hour of a method; None if few of each failed."""
    hour = f"slot_time_ns // {sums.HOUR_NS} * {sums.HOUR_NS}"
    for period, share, least in (("NULL", _MANY_FAILED, 1), (hour, _MANY_IN_AN_HOUR, _LEAST_IN_AN_HOUR)):
        row = database.execute(f"""
            WITH pairs AS (
                SELECT {DIMENSIONS["methods"]} AS name, pair, sum(rpcs)::BIGINT AS rpcs,
                       sum(failed_rpcs)::BIGINT AS failed, min(slot_time_ns) FILTER (failed_rpcs > 0) AS first,
                       {period} AS period
                FROM t GROUP BY ALL
            )
            SELECT name, sum(rpcs)::BIGINT, sum(failed)::BIGINT AS every, max_by(pair, (failed, pair)), max(failed),
                   count(*) FILTER (failed > 0), min(first), period
            FROM pairs GROUP BY name, period HAVING every >= {least} AND every >= {share} * sum(rpcs)
            ORDER BY every DESC, period DESC, name LIMIT 1""").fetchone()
        if row:
            return Failing(**dict(zip(Failing.__struct_fields__, row, strict=True)))
    return None


def _read_history(database: Any, expression: str, names: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Read, for each name, the time, RPCs and budget of every interval."""
    if not names:
        return {}
    rows = database.execute(
        f"SELECT {expression} AS name, slot_time_ns, sum(rpcs)::BIGINT, {sums.budget()} FROM t "
        f"WHERE name IN ({', '.join(map(sums.text, names))}) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, slot, rpcs, budget in rows:
        found.setdefault(name, []).append((slot, rpcs, budget))
    return found


def _drop_zeros(budget: Mapping[str, int | None] | None) -> dict[str, int]:
    return {cause: int(budget[cause] or 0) for cause in CAUSES if budget and budget.get(cause)}


def _read_causes(database: Any, target: str) -> Iterator[Cause]:
    severity = "list_position(['info', 'warning', 'critical'], severity)"
    hour = "strftime(make_timestamp_ns(first_time_ns // 3600000000000 * 3600000000000), '%Y-%m-%dT%H')"
    alone = "if(part_of IS NULL, lost_ns, 0)"
    hours: dict[str, dict[str, int]] = {}
    for id_, name, count in database.execute(
        f"SELECT id, {hour}, count(*) FROM findings GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        hours.setdefault(id_, {})[name] = count
    groups = database.execute(f"""
        SELECT id, max({severity}), count(*), count(DISTINCT {SERIES}), count(DISTINCT host),
               coalesce(total_ns({alone}), 0) AS lost, min(first_time_ns), max(last_time_ns), mode(remedy)
        FROM findings GROUP BY id ORDER BY max({severity}) = 1, lost DESC, count(*) DESC, id""").fetchall()
    worst = _read_cases(database, target, f"{severity} DESC, coalesce(lost_ns, 0) DESC")
    typical = _read_cases(database, target, "abs(coalesce(lost_ns, 0) - middle)")
    for id_, grave, count, recordings, hosts, lost, first, last, remedy in groups:
        yield Cause(
            id=id_,
            severity=_SEVERITIES[grave - 1],
            findings=count,
            recordings=recordings,
            hosts=hosts,
            lost_ns=lost,
            first_time_ns=first,
            last_time_ns=last,
            by_hour=hours.get(id_, {}),
            remedy=remedy,
            worst=worst[id_],
            typical=typical[id_],
        )


def _read_cases(database: Any, target: str, order: str) -> dict[str, Case]:
    """Read the first finding of each id in the given SQL order."""
    columns = (
        "id, host, recording, title, severity, lost_ns, first_time_ns, last_time_ns, recording_time_ns, "
        "files, connections"
    )
    rows = database.execute(f"""
        SELECT {columns} FROM (SELECT *, median(coalesce(lost_ns, 0)) OVER (PARTITION BY id) AS middle FROM findings)
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY {order}, recording, finding) = 1""").fetchall()
    return {
        row[0]: Case(
            host=row[1],
            recording=row[2],
            title=row[3],
            severity=row[4],
            lost_ns=row[5],
            time_ns=row[6],
            commands=commands(target, row[2], row[9], row[10], (row[6], row[7], row[8])),
        )
        for row in rows
    }


_NAMED_FILES = 3


def commands(
    target: str, recording: str, files: Sequence[str], connections: Sequence[int], times: tuple[int, int, int | None]
) -> tuple[str, ...]:
    """List commands that show a finding; `times`: of its first and last packet, and of the recording's first packet."""
    paths = [store.local_path(url) for url in files]
    fetch: tuple[str, ...] = ()
    names = " ".join(shlex.quote(path) for path in paths if path)
    if None in paths:
        folder = shlex.quote(recording)
        fetch = (f"grpcdiag fleet fetch {shlex.quote(without_credentials(target))} {folder} -o {folder}",)
        names = f"{folder}/*"
    elif len(paths) > _NAMED_FILES:
        names = f"{shlex.quote(_find_common_prefix([path for path in paths if path]))}*"
    if not connections:
        return (*fetch, f"grpcdiag analyze {names}")
    first, last, begin = times
    window = ""
    if begin is not None and last >= first >= begin:
        window = f" --from {(first - begin) / 1e9 - 0.001:.3f} --to {(last - begin) / 1e9 + 0.001:.3f}"
        window = window.replace("--from -0", "--from 0")
    return (*fetch, f"grpcdiag timeline {names} --connection {connections[0]}{window}")


def _find_common_prefix(paths: Sequence[str]) -> str:
    """Find the common beginning of paths: files of one series differ at their ends."""
    first, last = min(paths), max(paths)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


def _read_delays(database: Any, most: int | None) -> Iterator[Way]:
    rows = database.execute(f"""
        SELECT client_host, server_host, sum(rpcs)::BIGINT AS every, arg_max(up_p50_ns, rpcs),
               arg_max(down_p50_ns, rpcs), max(clock_uncertainty_ns)
        FROM ways GROUP BY ALL ORDER BY every DESC, client_host, server_host
        {f"LIMIT {most}" if most else ""}""").fetchall()
    for row in rows:
        yield Way(**dict(zip(Way.__struct_fields__, row, strict=True)))
