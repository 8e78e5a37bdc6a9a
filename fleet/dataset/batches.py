"""Batches: files with the rows of many recordings, and the table of their markers.

    DATASET/_compacted/        a Delta table, with a partition per batch

A batch is in the dataset once its markers are in this table. Its recordings' own files count no more from then on.
Until they are removed, the table also has a partition `moving-...` with their names. So a killed command leaves
nothing undone: the next one removes them. Recordings that are pruned have only such a partition.

A command that begins to change the table lets the changes of all commands that began before fail.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct

from ..recordings import store
from . import delta

if TYPE_CHECKING:
    from deltalake import DeltaTable

FOLDER = "_compacted"
BATCH = re.compile(r"batch-[0-9T-]{1,30}-[0-9a-f]{10}")
"""Names of batches: their hour, and a random number. Names of recordings' files have a dot."""
_MOVING = "moving-"


class Batch(Struct, frozen=True):
    """Rows of many recordings."""

    name: str
    recordings: int
    last_time_ns: int
    """Time of the last packet of all its recordings."""


class Row(Struct, frozen=True):
    """A marker in the table."""

    recording: str
    stem: str
    """Common part of the names of the recording's own files."""
    last_time_ns: int
    marker: str


class Batches(Struct, frozen=True):
    """The batches of a dataset."""

    number: int = 0
    """Number of the version of the table; 0 if there is none."""
    every: tuple[Batch, ...] = ()
    moving: Mapping[str, Sequence[Row]] = {}
    """Recordings whose own files count no more and may still be there, by partition."""

    @property
    def moved(self) -> dict[str, str]:
        """Return the names of these recordings' files, by id."""
        return {row.recording: row.stem for rows in self.moving.values() for row in rows}


def read(dataset: str) -> Batches:
    """Read the batches. Raises StoreError."""
    table = delta.read(dataset, FOLDER)
    return look(table) if table else Batches()


def look(table: DeltaTable) -> Batches:
    """List the batches in this version of the table. Raises StoreError."""
    import pyarrow as pa

    files = pa.table(table.get_add_actions(flatten=True)).to_pylist() if table.file_uris() else []
    named = [(str(file["partition.batch"]), file) for file in files]
    every = tuple(
        Batch(name, int(file["num_records"]), int(file["max.last_time_ns"]))
        for name, file in sorted(named, key=lambda one: one[0])
        if BATCH.fullmatch(name)
    )
    moving = read_rows(table, [name for name, _ in named if name.startswith(_MOVING)])
    return Batches(table.version() + 1, every, moving)


def read_rows(table: DeltaTable, names: Collection[str]) -> dict[str, list[Row]]:
    """Read the rows of some batches. Raises StoreError."""
    found: dict[str, list[Row]] = defaultdict(list)
    if names:
        with delta.told(table.table_uri):
            for row in table.to_pyarrow_table(filters=[("batch", "in", sorted(names))]).to_pylist():
                found[row.pop("batch")].append(Row(**row))
    return found


def read_version(dataset: str) -> int:
    """Return the number of the newest version. Raises StoreError."""
    version = delta.find_version(dataset, FOLDER)
    return 0 if version is None else version + 1


def begin(dataset: str) -> DeltaTable:
    """Open the table for changes; those of commands that began before fail from now on. Raises StoreError."""
    import pyarrow as pa

    kinds = {"batch": pa.string(), "recording": pa.string(), "stem": pa.string()}
    schema = pa.schema([*kinds.items(), ("last_time_ns", pa.int64()), ("marker", pa.string())])
    for left in reversed(range(delta.TRIES)):
        try:
            table = delta.read(dataset, FOLDER) or delta.create(dataset, FOLDER, schema, "batch")
            delta.change_files(table, (), ())
        except delta.ConflictError as error:
            if not left:
                raise store.StoreError(f"{dataset}: {error}", dataset) from None
            continue
        return table
    raise AssertionError


def is_newest(dataset: str, table: DeltaTable) -> bool:
    """Check that no other command has begun. Raises StoreError."""
    newest = delta.read(dataset, FOLDER)
    return newest is not None and delta.count_commits(newest) == delta.count_commits(table)


def add(table: DeltaTable, name: str | None, rows: Sequence[Row]) -> None:
    """Add a batch, whose recordings' own files count no more; without a name these are pruned.

    Raises StoreError, ConflictError.
    """
    import pyarrow as pa
    from deltalake import write_deltalake

    moving = f"{_MOVING}{name or uuid4().hex[:10]}"
    listed = [(batch, row) for batch in (moving, name) if batch for row in rows]
    columns = {"batch": [batch for batch, _ in listed]} | {
        field: [getattr(row, field) for _, row in listed] for field in Row.__struct_fields__
    }
    with delta.commit(table) as properties:
        write_deltalake(table, pa.table(columns), mode="append", partition_by=["batch"], commit_properties=properties)


def drop(table: DeltaTable, names: Iterable[str]) -> None:
    """Drop batches, or what is moving. Raises StoreError, ConflictError."""
    if listed := ", ".join(f"'{name}'" for name in names):
        with delta.commit(table) as properties:
            table.delete(f"batch IN ({listed})", commit_properties=properties)


def clean(dataset: str) -> None:
    """Remove files of the table that were dropped a week ago. Raises StoreError."""
    if table := delta.read(dataset, FOLDER):  # which commits, but says nothing about who began last
        with delta.told(table.table_uri):
            table.vacuum(dry_run=False)
