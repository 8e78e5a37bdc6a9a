"""Write the summary of a dataset, a few files that reports read: sums of all recordings, each RPC counted once.

The files are in `_summary/`. Their names contain a hash of the dataset's contents, so old files are recognised. A run
writes them at its end; after an unfinished run, a report makes them for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ... import interruption
from ..recordings import store
from . import catalog, joining, sums
from .catalog import Contents, Marker

TABLES = ("recordings", "addresses", "totals", "latencies", "findings", "ends", "ways")
FOLDER = "_summary"

_TOTAL_KEYS = (
    "host, recording, slot_time_ns, method, client, server, client_implementation, server_implementation, vantage, "
    "proxy"
)
_STEP_KEYS = (
    "host, recording, method, client, server, client_implementation, server_implementation, vantage, proxy, step"
)
_MEMORY = "2GB"
_READ_AT_ONCE = 5_000
"""Markers read at once."""

EMPTY: Mapping[str, str] = {
    "connections": "SELECT NULL::VARCHAR recording, NULL::BIGINT AS connection, NULL::VARCHAR client, "
    "NULL::VARCHAR server, NULL::BOOLEAN complete, 0::BIGINT first_time_ns, 0::BIGINT last_time_ns, "
    "NULL::VARCHAR vantage, 0::BIGINT client_sequence, 0::BIGINT server_sequence, 0::BIGINT bytes_client, "
    "0::BIGINT bytes_server, 0::BIGINT rpcs, NULL::VARCHAR client_implementation, NULL::VARCHAR server_implementation, "
    "NULL::BIGINT[] marks WHERE false",
    "rpcs": "SELECT NULL::VARCHAR recording, NULL::BIGINT AS connection, NULL::BIGINT stream, NULL::VARCHAR method,"
    " 0::BIGINT start_time_ns, 0::BIGINT duration_ns, NULL::VARCHAR status, false complete, false touches_gap, "
    "0::BIGINT request_messages, 0::BIGINT response_messages, 0::BIGINT request_bytes, 0::BIGINT response_bytes,"
    f" NULL::VARCHAR proxy, {sums.budget('0::BIGINT')} AS budget WHERE false",
    "totals": "SELECT NULL::VARCHAR recording, NULL::VARCHAR method, NULL::VARCHAR client, NULL::VARCHAR server, "
    "NULL::VARCHAR client_implementation, NULL::VARCHAR server_implementation, NULL::VARCHAR vantage, "
    "NULL::VARCHAR proxy, 0::BIGINT slot_time_ns, 0::BIGINT rpcs, 0::BIGINT failed_rpcs, 0::BIGINT duration_ns, "
    "0::BIGINT longest_ns, "
    f"{sums.budget('0::BIGINT')} AS budget WHERE false",
    "latencies": "SELECT NULL::VARCHAR recording, NULL::VARCHAR method, NULL::VARCHAR client, NULL::VARCHAR server, "
    "NULL::VARCHAR client_implementation, NULL::VARCHAR server_implementation, NULL::VARCHAR vantage, "
    "NULL::VARCHAR proxy, 0::SMALLINT step, 0::BIGINT rpcs WHERE false",
    "findings": "SELECT NULL::VARCHAR recording, 0::BIGINT finding, NULL::VARCHAR id, NULL::VARCHAR title, "
    "NULL::VARCHAR severity, NULL::VARCHAR confidence, 0::BIGINT lost_ns, 0::DOUBLE share, "
    "NULL::BIGINT[] connections, NULL::VARCHAR[] methods, NULL::VARCHAR part_of, NULL::VARCHAR explanation, "
    "NULL::VARCHAR verdict, 0::BIGINT first_time_ns, 0::BIGINT last_time_ns, 0::BIGINT first_packet, "
    "NULL::VARCHAR remedy WHERE false",
}
"""SQL of tables without rows, for datasets that lack files of a table, or columns that older versions lack."""


def written(target: str, contents: Contents) -> dict[str, str] | None:
    """Find the summary's files for the present contents, by table; None if any is missing. Raises StoreError."""
    state = catalog.state(contents)
    there = {url.rpartition("/")[2]: url for url in store.names(f"{target.rstrip('/')}/{FOLDER}")}
    named = {table: there.get(f"{table}.{state}.parquet") for table in TABLES}
    if any(url is None for url in named.values()):
        return None
    return {table: url for table, url in named.items() if url}


def write(target: str, contents: Contents) -> int:
    """Update the dataset's summary; return the number of RPCs that both ends recorded. Raises StoreError."""
    state, folder = catalog.state(contents), f"{target.rstrip('/')}/{FOLDER}"
    if not contents:
        store.remove(store.names(folder))
        return 0
    with interruption.scratch("grpcdiag-fleet-") as scratch:
        there = written(target, contents)
        if there:
            return _rows(store.fetch_all([there["ends"]], scratch / "ends")[0])
        made = make(target, contents, scratch)
        before = store.names(folder)
        for table, path in made.items():
            store.put(path, f"{folder}/{table}.{state}.parquet")
        store.remove([url for url in before if f".{state}." not in url])
        return _rows(str(made["ends"]))


def _rows(path: str) -> int:
    from pyarrow import parquet

    return int(parquet.read_metadata(path).num_rows)


def make(target: str, contents: Contents, scratch: Path) -> dict[str, Path]:
    """Write the summary's files to `scratch`; return them by table. Raises StoreError."""
    made = {table: scratch / f"{table}.parquet" for table in TABLES}
    batches = _recordings(target, contents, made["recordings"])
    with sums.connect(_MEMORY, threads=2, scratch=scratch / "spill") as database:
        hosts = sums.files([str(made["recordings"])])
        relations = {
            table: _relation(target, table, contents, scratch)
            for table in ("connections", "totals", "latencies", "findings")
        }
        database.execute(f"CREATE TEMP TABLE candidates AS {joining.candidates(relations['connections'])}")
        # read RPCs only of recordings that may have connections in common
        names = "SELECT a_recording FROM candidates UNION SELECT b_recording FROM candidates"
        joined = {row[0] for row in database.execute(names).fetchall()}
        some = {recording: one for recording, one in contents.present.items() if recording in joined}
        within = tuple(batch for batch in contents.batches if not joined.isdisjoint(batches[batch.name]))
        relations["rpcs"] = _relation(target, "rpcs", Contents(some, within), scratch)
        database.execute(f"CREATE TEMP TABLE pairs AS {joining.agreed(relations['rpcs'])}")
        database.execute(f"CREATE TEMP TABLE twice AS {joining.counted_twice(relations['rpcs'])}")
        sums.write(database, joining.ends(relations["rpcs"], hosts), made["ends"])
        sums.write(database, _ways(sums.files([str(made["ends"])])), made["ways"])
        sums.write(database, _totals(relations, hosts), made["totals"])
        sums.write(database, _latencies(relations, hosts), made["latencies"])
        sums.write(database, _findings(relations["findings"], hosts), made["findings"])
        sums.write(database, _addresses(relations["connections"], hosts), made["addresses"])
    return made


def _relation(target: str, table: str, contents: Contents, scratch: Path) -> str:
    """Fetch a table of recordings to this machine; return SQL that reads it. Raises StoreError."""
    files = store.fetch_all(catalog.pieces(target, table, contents), scratch / f"{table}.pieces")
    # hosts come from the markers
    return f"(SELECT * EXCLUDE host FROM {sums.files(files, EMPTY[table])})" if files else f"({EMPTY[table]})"


def _counted_twice(relations: Mapping[str, str]) -> str:
    rpcs = f"(SELECT * FROM {relations['rpcs']} SEMI JOIN twice USING (recording, connection, stream))"
    return sums.rpcs_of_connections(rpcs, relations["connections"])


def _totals(relations: Mapping[str, str], hosts: str) -> str:
    less = sums.totals(_counted_twice(relations))
    return f"""
        SELECT {_TOTAL_KEYS}, sum(rpcs)::BIGINT AS rpcs, sum(failed_rpcs)::BIGINT AS failed_rpcs,
               total_ns(duration_ns) AS duration_ns, max(longest_ns) AS longest_ns, {sums.budget()} AS budget
        FROM (
            SELECT * FROM {relations["totals"]}
            UNION ALL BY NAME
            SELECT * REPLACE (-rpcs AS rpcs, -failed_rpcs AS failed_rpcs, -duration_ns AS duration_ns,
                              {sums.budget("-budget.{cause}")} AS budget) FROM ({less})
        ) JOIN (SELECT recording, host FROM {hosts}) USING (recording)
        GROUP BY ALL HAVING sum(rpcs) > 0 ORDER BY ALL"""


def _latencies(relations: Mapping[str, str], hosts: str) -> str:
    less = sums.latencies(_counted_twice(relations))
    return f"""
        SELECT {_STEP_KEYS}, sum(rpcs)::BIGINT AS rpcs
        FROM (
            SELECT * FROM {relations["latencies"]}
            UNION ALL BY NAME SELECT * REPLACE (-rpcs AS rpcs) FROM ({less})
        ) JOIN (SELECT recording, host FROM {hosts}) USING (recording)
        GROUP BY ALL HAVING sum(rpcs) > 0 ORDER BY ALL"""


def _findings(findings: str, hosts: str) -> str:
    """Make SQL for findings with host and files; a finding that both ends' recordings have appears once."""
    return f"""
        WITH every AS (
            SELECT f.*, h.host, h.first_time_ns AS recording_time_ns, h.files
            FROM {findings} f JOIN {hosts} h USING (recording)
        ), scope AS (
            SELECT recording, finding, id, unnest(list_distinct(connections)) AS connection,
                   len(list_distinct(connections)) AS size FROM every
        ), told AS (
            SELECT e.recording, e.finding
            FROM scope e
            JOIN pairs p ON p.b_recording = e.recording AND p.b_connection = e.connection
            JOIN scope o ON o.recording = p.a_recording AND o.connection = p.a_connection AND o.id = e.id
            GROUP BY e.recording, e.finding, e.size HAVING count(DISTINCT e.connection) = e.size
        )
        SELECT * FROM every ANTI JOIN told USING (recording, finding) ORDER BY recording, finding"""


def _addresses(connections: str, hosts: str) -> str:
    """Make SQL for the host of each address, from recordings at the ends; addresses of several hosts are left out."""
    return f"""
        SELECT address, any_value(host) AS host FROM (
            SELECT {sums.address("client")} AS address, host FROM {connections} JOIN {hosts} USING (recording)
            WHERE vantage = 'client'
            UNION
            SELECT {sums.address("server")}, host FROM {connections} JOIN {hosts} USING (recording)
            WHERE vantage = 'server'
        ) GROUP BY address HAVING count(DISTINCT host) = 1 ORDER BY address"""


def _ways(ends: str) -> str:
    """Make SQL for one-way delays between hosts, by interval."""
    return f"""
        SELECT client_host, server_host, start_time_ns // {sums.SLOT_NS} * {sums.SLOT_NS} AS slot_time_ns,
               count(*) AS rpcs, quantile_disc(up_ns, 0.5) AS up_p50_ns, quantile_disc(down_ns, 0.5) AS down_p50_ns,
               max(clock_uncertainty_ns) AS clock_uncertainty_ns, {sums.budget(causes=joining.SPLIT_CAUSES)} AS budget
        FROM {ends} GROUP BY ALL ORDER BY ALL"""


def _recordings(target: str, contents: Contents, path: Path) -> dict[str, set[str]]:
    """Write the markers as a table; return the recordings of each batch. Raises StoreError."""
    import pyarrow as pa
    from pyarrow import parquet

    found = list(contents.present.values())
    moved = catalog.markers_in(target, contents.batches)
    told: list[Marker] = [marker for markers in moved.values() for marker in markers]
    for begin in range(0, len(found), _READ_AT_ONCE):
        told += catalog.markers(found[begin : begin + _READ_AT_ONCE])
    columns = {
        "recording": pa.array([m.recording for m in told], pa.string()),
        "host": pa.array([m.host for m in told], pa.string()),
        "interface": pa.array([m.interface for m in told], pa.string()),
        "files": pa.array([m.files for m in told], pa.list_(pa.string())),
        **{
            name: pa.array([getattr(m, name) for m in told], pa.int64())
            for name in ("size", "first_time_ns", "last_time_ns", "packets", "rpcs", "peak_bytes")
        },
        "seconds": pa.array([m.seconds for m in told], pa.float64()),
        "no_grpc": pa.array([m.no_grpc for m in told], pa.string()),
        "left_out": pa.array([len(m.left_out) for m in told], pa.int64()),
        "warnings": pa.array([m.warnings for m in told], pa.list_(pa.string())),
    }
    parquet.write_table(pa.table(columns), path)
    return {name: {marker.recording for marker in markers} for name, markers in moved.items()}
