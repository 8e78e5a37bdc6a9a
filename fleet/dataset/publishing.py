"""Keep the logs of the Delta tables: other engines read the files that these name.

    DATASET/rpcs/_delta_log/        and so on for each table

Workers write no log. The command that ends a run compares each log with the markers, and commits the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...interruption import scratch
from ..recordings import store
from . import catalog, delta
from .catalog import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable


def publish(dataset: str) -> None:
    """Let the logs name the files that are part of the dataset. Raises StoreError."""
    if not delta.is_supported(dataset):
        return
    for left in reversed(range(delta.TRIES)):
        # before the contents are read: a commit with older contents than those of another command fails
        logs = {table: delta.read(dataset, table) for table in TABLES}
        stems = catalog.read_contents(dataset).stems
        try:
            for table, log in logs.items():
                every = catalog.list_sizes(dataset, table)
                wanted = {url: size for url, size in every.items() if catalog.stem_of(url) in stems}
                _publish_table(dataset, table, log, wanted)
        except delta.ConflictError as error:
            if not left:
                raise store.StoreError(f"{dataset}: {error}", dataset) from None
            continue
        return


def _publish_table(dataset: str, table: str, log: DeltaTable | None, wanted: Mapping[str, int]) -> None:
    """Commit what has changed. Raises StoreError, ConflictError."""
    files = {"/".join(url.rsplit("/", 2)[1:]): size for url, size in wanted.items()}
    known = _list_known(log) if log else {}
    added = [(path, size, _hour_of(path)) for path, size in files.items() if known.get(path) != size]
    removed = [(path, _hour_of(path)) for path in known if path not in files]
    if not added and not removed:
        return
    if added:
        url = next(url for url in wanted if url.endswith(f"/{added[-1][0]}"))
        log = _keep_schema(dataset, table, log, url)
    if log:
        delta.change_files(log, added, removed)


def _list_known(log: DeltaTable) -> dict[str, int]:
    import pyarrow as pa

    actions = pa.table(log.get_add_actions())
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _hour_of(path: str) -> str:
    return path.partition("/")[0].removeprefix("hour=")


def _keep_schema(dataset: str, table: str, log: DeltaTable | None, url: str) -> DeltaTable:
    """Create the table, or add columns of a later version of grpcdiag. Raises StoreError, ConflictError."""
    import pyarrow as pa
    from pyarrow import parquet

    with scratch("grpcdiag-") as folder:
        (path,) = store.fetch_all([url], folder / "files")
        fields = [field.with_nullable(True) for field in parquet.read_schema(path)]
    schema = pa.schema([*fields, pa.field("hour", pa.string())])
    if log is None:
        return delta.create(dataset, table, schema, "hour")
    delta.add_columns(log, schema)
    return log
