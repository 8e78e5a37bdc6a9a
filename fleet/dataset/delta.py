"""Delta Lake tables in the folders of a dataset.

The library deltalake writes their logs. Each commit takes the next number of one application transaction, so of two
that began with the same version of a table only one succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..recordings import store
from ..recordings.credentials import without_credentials

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyarrow import Schema

LOG = "_delta_log"
_SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Stores of which deltalake and fsspec have the same URLs."""
TRIES = 20
"""Attempts to commit, each after another command has (heuristic: a store that refuses all commits ends there, too)."""
_APPLICATION = "grpcdiag"
_COMMIT = re.compile(r"(\d{20})\.json")
"""Names of commits in a log, with the version of the table."""
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class ConflictError(Exception):
    """Another command has changed the table since it was read."""


def is_supported(dataset: str) -> bool:
    """Check whether deltalake can write into this store; it decodes `%` in paths once too often. Raises StoreError."""
    system, path = store.opened(dataset)
    place = str(system.unstrip_protocol(path))
    return place.partition("://")[0] in _SCHEMES and "%" not in place


def _locate(url: str) -> str:
    """Return the URL as deltalake takes it, with what is special in URLs quoted in paths."""
    system, path = store.opened(url)
    place = str(system.unstrip_protocol(path)).rstrip("/")
    local = store.local_path(place)
    return place if local is None else Path(local).as_uri()


@contextmanager
def told(url: str) -> Iterator[None]:
    """Turn errors of the library into StoreError and ConflictError."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise ConflictError(str(error)) from None
    except (DeltaError, OSError, ValueError) as error:
        reason = " ".join(_COLORS.sub("", str(error)).split())
        raise store.StoreError(f"{without_credentials(url)}: {without_credentials(reason, url)}", url) from None


def _options(place: str) -> dict[str, str]:
    """Make options of the store; others come from the environment, which also chooses servers without TLS."""
    return {"aws_allow_http": "true"} if place.startswith("s3") else {}


def read(dataset: str, folder: str) -> DeltaTable | None:
    """Read the newest version of a table; None if there is none. Raises StoreError."""
    url = f"{dataset.rstrip('/')}/{folder}"
    if not is_supported(url) or not any(name.endswith(".json") for name in store.names(f"{url}/{LOG}")):
        return None
    from deltalake import DeltaTable

    place = _locate(url)
    with told(url):
        return DeltaTable(place, storage_options=_options(place))


def find_version(dataset: str, folder: str) -> int | None:
    """Find the newest version of a table without opening it; None if there is none. Raises StoreError."""
    url = f"{dataset.rstrip('/')}/{folder}"
    if not is_supported(url):
        return None
    names = (name.rpartition("/")[2] for name in store.names(f"{url}/{LOG}"))
    return max((int(match[1]) for match in map(_COMMIT.fullmatch, names) if match), default=None)


def create(dataset: str, folder: str, schema: Schema, partition: str) -> DeltaTable:
    """Create a table. Raises StoreError, ConflictError."""
    from deltalake import DeltaTable

    url = f"{dataset.rstrip('/')}/{folder}"
    if not is_supported(url):
        raise store.StoreError(
            f"{without_credentials(url)}: deltalake cannot write into this store, or its path has a %", url
        )
    place = _locate(url)
    with told(url):
        table = DeltaTable.create(
            place,
            schema,
            mode="ignore",
            partition_by=[partition],
            storage_options=_options(place),
        )
    if count_commits(table):
        raise ConflictError(f"{url}: another command has created it")
    return table


def add_columns(table: DeltaTable, schema: Schema) -> None:
    """Add the columns of a schema that the table lacks. Raises StoreError, ConflictError."""
    from deltalake import Schema as DeltaSchema

    known = {field.name for field in table.schema().fields}
    if new := [field for field in DeltaSchema.from_arrow(schema).fields if field.name not in known]:
        with told(table.table_uri):
            table.alter.add_columns(new)


def count_commits(table: DeltaTable) -> int:
    """Return the number of our last commit in this version of the table."""
    return table.transaction_version(_APPLICATION) or 0


@contextmanager
def commit(table: DeltaTable) -> Iterator[CommitProperties]:
    """Yield the properties of a commit that fails if there was another one since `table` was read.

    Raises StoreError, ConflictError.
    """
    from deltalake import CommitProperties, Transaction

    number = count_commits(table) + 1
    with told(table.table_uri):
        yield CommitProperties(app_transactions=[Transaction(_APPLICATION, number)])
        table.update_incremental()
    if count_commits(table) != number:
        raise ConflictError(f"{table.table_uri}: another command has changed it")


def change_files(table: DeltaTable, added: Sequence[tuple[str, int, str]], removed: Sequence[tuple[str, str]]) -> None:
    """Add files, given by path, size and partition, and remove others by path and partition, in one commit.

    Raises StoreError, ConflictError.
    """
    from deltalake.transaction import AddAction, RemoveAction

    (by,) = table.metadata().partition_columns
    now = 0  # readers do not use it
    actions: list[AddAction | RemoveAction] = [
        AddAction(path, size, {by: value}, now, True, "{}") for path, size, value in added
    ]
    actions += [RemoveAction(path, True, now, partition_values={by: value}) for path, value in removed]
    with commit(table) as properties:
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by=[by], commit_properties=properties
        )
