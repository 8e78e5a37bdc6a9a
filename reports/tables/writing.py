"""Write rows piece by piece as CSV, JSON lines, or Parquet with the meaning of each column in its metadata."""

import json
from collections.abc import Iterable
from typing import IO

from ...analyzer import _core
from .columns import TABLES, Column, columns
from .frame import Frame

ROWS_AT_ONCE = 10_000
"""Rows whose bytes are in memory at once."""


def can_write_parquet() -> bool:
    """Say whether this build of the core has what writes Parquet."""
    return "parquet" in _core.__features__


def write_rows(pieces: Iterable[Frame], format_: str, out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write a table as csv, jsonl or parquet; return the names of its columns and its number of rows.

    At least one piece is needed, and few are in memory at once. In Parquet units and descriptions are in the metadata
    of the Arrow schema's fields (`unit`, `description`), where pyarrow and polars show them, and in the file's metadata
    (`grpcdiag.columns`), where DuckDB's parquet_kv_metadata shows them. Raises OSError.
    """
    writer = TableWriter(format_, out, table)
    for piece in pieces:
        writer.add(piece)
    writer.finish()
    return writer.names, writer.rows


class TableWriter:
    """A table that is written as `write_rows` says."""

    def __init__(self, format_: str, out: IO[bytes], table: str) -> None:
        """Begin with nothing: the first piece has the names of the columns."""
        self.names = list[str]()
        self.rows = 0
        self._format, self._out, self._table = format_, out, table
        self._writer: _core.RowWriter | None = None

    def add(self, frame: Frame) -> None:
        """Write rows. Raises OSError."""
        for piece in frame.split(ROWS_AT_ONCE):
            given = piece.flatten() if self._format == "csv" else piece
            if self._writer is None:
                self.names = given.list_names() if self._format == "csv" else list(given.columns)
                described = _describe(self._table, self.names) if self._format == "parquet" else ()
                self._writer = _core.RowWriter(self._format, *described)
            if self._format != "jsonl":  # JSON escapes what controls a terminal
                given = given.escape()
            columns = [column.pack(name) for name, column in given.columns.items()]
            self._out.write(self._writer.write(columns).data)
            self._out.flush()
            self.rows += len(piece)

    def finish(self) -> None:
        """Write what belongs behind the rows. Raises OSError."""
        if self._writer is not None:
            self._out.write(self._writer.finish())
            self._out.flush()


def _describe(table: str, names: Iterable[str]) -> tuple[list[tuple[str, str]], dict[str, dict[str, str]]]:
    """Make the metadata of a Parquet file, and of its columns by name."""
    described = columns(table, names)
    of_file = {
        "grpcdiag.version": _core.__version__,
        "grpcdiag.table": table,
        "grpcdiag.description": TABLES[table],
        "grpcdiag.columns": json.dumps([column._asdict() for column in described]),
    }
    return list(of_file.items()), {column.name: _describe_column(column) for column in described}


def _describe_column(column: Column) -> dict[str, str]:
    noted = {"unit": column.unit, "description": column.description}
    return {name: text for name, text in noted.items() if text}
