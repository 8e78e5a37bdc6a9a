"""SQL for the sums of RPCs that reports read; their size does not grow with the number of RPCs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...analyzer.model.budget import CAUSES
from ...analyzer.model.text import safe
from ...analyzer.tables.durations import MOST_NS

SLOT_NS = 300_000_000_000
"""Width of the intervals of `totals`: five minutes."""
HOUR_NS, DAY_NS = 3_600_000_000_000, 86_400_000_000_000
STEPS_PER_OCTAVE = 4
"""Steps of `latencies` per doubling of the duration: a quantile is exact within 19 %."""

_KEYS = "recording, method, client, server, client_implementation, server_implementation, vantage, proxy"


def budget(of: str = "coalesce(total_ns(budget.{cause}), 0)", causes: Sequence[str] = CAUSES) -> str:
    """Make SQL for a budget from an expression per cause."""
    return "{" + ", ".join(f"'{cause}': {of.format(cause=cause)}" for cause in causes) + "}"


def clipped(nanoseconds: str) -> str:
    """Make SQL that limits a sum to 64 bits, as `analyzer.tables.durations`; unlike with `least`, NULL stays NULL."""
    sides = f"WHEN {nanoseconds} > {MOST_NS} THEN {MOST_NS} WHEN {nanoseconds} < -{MOST_NS} THEN -{MOST_NS}"
    return f"(CASE {sides} ELSE {nanoseconds} END)::BIGINT"


def rpcs_of_connections(rpcs: str, connections: str) -> str:
    """Make SQL for RPCs that have a duration, with columns of their connections."""
    return f"""
        SELECT r.recording, r.method, r.start_time_ns, r.duration_ns, r.status, r.complete, r.budget, r.proxy,
               {address("c.client")} AS client, c.server, c.client_implementation, c.server_implementation, c.vantage
        FROM {rpcs} r JOIN {connections} c USING (recording, connection)
        WHERE r.duration_ns IS NOT NULL"""


def address(end: str) -> str:
    """Make SQL that removes the port from `address:port`."""
    return f"regexp_replace({end}, ':\\d+$', '')"


def totals(rpcs: str) -> str:
    """Make SQL for the sums of RPCs by interval of `SLOT_NS`."""
    return f"""
        SELECT {_KEYS}, start_time_ns // {SLOT_NS} * {SLOT_NS} AS slot_time_ns, count(*) AS rpcs,
               count(*) FILTER (status IS NOT NULL AND status <> 'OK') AS failed_rpcs,
               total_ns(duration_ns) AS duration_ns, max(duration_ns) AS longest_ns, {budget()} AS budget
        FROM ({rpcs}) GROUP BY ALL ORDER BY ALL"""


def latencies(rpcs: str) -> str:
    """Make SQL that counts complete RPCs by step of duration: step s holds 2^(s/4) to 2^((s+1)/4) ns."""
    return f"""
        SELECT {_KEYS}, floor({STEPS_PER_OCTAVE} * log2(greatest(duration_ns, 1)))::SMALLINT AS step, count(*) AS rpcs
        FROM ({rpcs}) WHERE complete GROUP BY ALL ORDER BY ALL"""


def quantiles(steps: str, keys: str) -> str:
    """Make SQL for a table `quantiles` of a WITH clause, from RPCs by `keys` and step: the steps of p50 and p99."""
    quantile = "min(step) FILTER (until >= {} * every)"
    return f"""steps AS (
            {steps}
        ), ranked AS (
            SELECT *, sum(rpcs) OVER (PARTITION BY {keys} ORDER BY step) AS until,
                   sum(rpcs) OVER (PARTITION BY {keys}) AS every
            FROM steps
        ), quantiles AS (
            SELECT {keys}, {quantile.format(0.5)} AS p50, {quantile.format(0.99)} AS p99 FROM ranked GROUP BY ALL
        )"""


def find_middle(step: int | None) -> int | None:
    """Compute the middle of a step of `latencies`, in nanoseconds."""
    return None if step is None else round(2 ** ((step + 0.5) / STEPS_PER_OCTAVE))


def add_host(query: str, host: str) -> str:
    """Make SQL that adds the host as second column."""
    return f"SELECT recording, {text(safe(host))} AS host, * EXCLUDE recording FROM ({query})"


def files(paths: Sequence[str], empty: str = "") -> str:
    """Make SQL that reads Parquet files; columns of `empty` that older versions did not write are NULL."""
    listed = ", ".join(text(name) for name in paths)
    read = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
    return f"(SELECT * FROM {read} UNION ALL BY NAME {empty})" if empty else read


def text(value: str) -> str:
    """Quote a string for SQL."""
    return "'" + value.replace("'", "''") + "'"


def connect(memory: str = "512MB", threads: int = 1, scratch: Path | None = None) -> Any:
    """Open a DuckDB database in memory; beyond the limit `memory` it uses files in `scratch`."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "threads": threads,
        "temp_directory": str(scratch) if scratch else "",
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"CREATE TEMP MACRO total_ns(column_ns) AS {clipped('sum(column_ns)')}")
    return connection


FEW_RPCS = 100_000
"""Most RPCs whose sums need no files beyond the limit of memory (heuristic: some 20 MB)."""
_OWN = threading.local()


@contextmanager
def connect_for_few() -> Iterator[Any]:
    """Yield this thread's database, which stays open: to open one takes longer than the sums of few RPCs."""
    connection = getattr(_OWN, "connection", None) or connect()
    _OWN.connection = None
    yield connection
    _OWN.connection = connection  # not after an error, which may have made it useless


def write(connection: Any, query: str, path: Path, metadata: Mapping[str, str] = {}) -> int:
    """Write a query's rows to a Parquet file; return their number."""
    options = "FORMAT parquet, COMPRESSION zstd"
    if metadata:
        pairs = ", ".join(f"{text(name)}: {text(value)}" for name, value in metadata.items())
        options += f", KV_METADATA {{{pairs}}}"
    done = connection.execute(f"COPY ({query}) TO {text(str(path))} ({options})").fetchone()
    return int(done[0])
