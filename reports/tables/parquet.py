"""Write Parquet files piece by piece, with the meaning of each column in their metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

ROW_GROUP = 50_000
"""Rows of a row group; readers can skip a whole group."""


def write_parquet(pieces: Iterable[pl.DataFrame], out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write a table, and give the names of its columns and the number of rows; few pieces are in memory at once.

    Units and descriptions are in the metadata of the Arrow schema's fields (`unit`, `description`), where pyarrow and
    polars show them, and in the file's metadata (`grpcdiag.columns`), where DuckDB's parquet_kv_metadata shows them.
    """
    from polars.io.plugins import register_io_source

    from ...analyzer import _core
    from .columns import TABLES, columns

    rest = iter(pieces)
    first = next(rest)
    described = columns(table, first.columns)
    rows = 0

    def source(*_: object) -> Iterator[pl.DataFrame]:
        nonlocal rows
        for piece in chain([first], rest):
            rows += len(piece)
            yield piece

    register_io_source(source, schema=first.schema).sink_parquet(
        out,
        row_group_size=ROW_GROUP,
        arrow_schema=_build_schema(
            first.schema, {c.name: {"unit": c.unit, "description": c.description} for c in described}
        ),
        metadata={
            "grpcdiag.version": _core.__version__,
            "grpcdiag.table": table,
            "grpcdiag.description": TABLES[table],
            "grpcdiag.columns": json.dumps([column._asdict() for column in described]),
        },
    )
    return first.columns, rows


def escaped(piece: pl.DataFrame) -> pl.DataFrame:
    """Escape foreign text with `safe`: CSV and Parquet do not escape characters that control a terminal."""
    import polars as pl

    from ...analyzer.model.text import safe

    for name in (name for name, dtype in piece.schema.items() if dtype == pl.String):
        texts = {text: safe(text) for text in piece[name].unique() if text is not None and not text.isprintable()}
        if texts:
            piece = piece.with_columns(pl.col(name).replace(texts))
    return piece


def _build_schema(schema: pl.Schema, metadata: dict[str, dict[str, str]]) -> Any:
    """Build the Arrow schema of a table with metadata for its fields; polars' own metadata stays."""
    import nanoarrow

    bare = nanoarrow.c_schema(schema)
    fields = []
    for field in bare.children:
        noted = dict(field.metadata.items()) if field.metadata else {}
        noted |= {key.encode(): value.encode() for key, value in metadata[field.name].items() if value}
        fields.append(field.modify(metadata=noted))
    return bare.modify(children=fields)
