"""Write rows piece by piece as CSV, JSON lines, or Parquet with the meaning of each column in its metadata."""

import json
from collections.abc import Iterable
from typing import IO

from ...analyzer import _core
from .columns import TABLES, Column, columns
from .frame import Frame

ROWS_AT_ONCE = 10_000
"""Rows whose bytes are in memory at once."""


def write_rows(pieces: Iterable[Frame], format_: str, out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write a table as csv, jsonl or parquet; return the names of its columns and its number of rows.

    At least one piece is needed, and few are in memory at once. In Parquet units and descriptions are in the metadata
    of the Arrow schema's fields (`unit`, `description`), where pyarrow and polars show them, and in the file's metadata
    (`grpcdiag.columns`), where DuckDB's parquet_kv_metadata shows them. Raises OSError.
    """
    writer: _core.RowWriter | None = None
    names, rows = list[str](), 0
    for piece in (part for some in pieces for part in some.split(ROWS_AT_ONCE)):
        given = piece.flatten() if format_ == "csv" else piece
        if writer is None:
            names = given.list_names() if format_ == "csv" else list(given.columns)
            writer = _core.RowWriter(format_, *(_describe(table, names) if format_ == "parquet" else ()))
        if format_ != "jsonl":  # JSON escapes what controls a terminal
            given = given.escape()
        out.write(writer.write([column.pack(name) for name, column in given.columns.items()]).data)
        out.flush()
        rows += len(piece)
    if writer is not None:
        out.write(writer.finish())
        out.flush()
    return names, rows


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
