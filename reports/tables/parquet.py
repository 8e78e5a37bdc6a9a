"""Parquet files written piece by piece, with what columns mean in their metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

ROW_GROUP = 50_000
"""Rows of a group, which readers can skip as a whole."""


def write_parquet(pieces: Iterable[pl.DataFrame], out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write a table and give the names of its columns and the number of rows; a few pieces at most are in memory.

    Units and sentences stand in the metadata of the Arrow schema's fields (`unit`, `description`), as pyarrow and
    polars show them, and in the file's own (`grpcdiag.columns`), as DuckDB's parquet_kv_metadata shows them.
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
        arrow_schema=_arrow(first.schema, {c.name: {"unit": c.unit, "description": c.description} for c in described}),
        metadata={
            "grpcdiag.version": _core.__version__,
            "grpcdiag.table": table,
            "grpcdiag.description": TABLES[table],
            "grpcdiag.columns": json.dumps([column._asdict() for column in described]),
        },
    )
    return first.columns, rows


def escaped(piece: pl.DataFrame) -> pl.DataFrame:
    """Text of strangers as `safe` shows it: CSV and Parquet do not escape what commands a terminal."""
    import polars as pl

    from ...analyzer.model.text import safe

    for name in (name for name, dtype in piece.schema.items() if dtype == pl.String):
        texts = {text: safe(text) for text in piece[name].unique() if text is not None and not text.isprintable()}
        if texts:
            piece = piece.with_columns(pl.col(name).replace(texts))
    return piece


def _arrow(schema: pl.Schema, told: dict[str, dict[str, str]]) -> Any:
    """The Arrow schema of a table with metadata for its fields; what polars itself notes there is kept."""
    import nanoarrow

    bare = nanoarrow.c_schema(schema)
    fields = []
    for field in bare.children:
        noted = dict(field.metadata.items()) if field.metadata else {}
        noted |= {key.encode(): value.encode() for key, value in told[field.name].items() if value}
        fields.append(field.modify(metadata=noted))
    return bare.modify(children=fields)
