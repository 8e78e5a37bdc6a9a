"""Commands that write one table: as text, JSON lines, CSV or Parquet, piece by piece where the table allows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from .common import (
    Files,
    KeyLog,
    Output,
    Ports,
    Quiet,
    decoding,
    fail,
    how,
    one_place,
    plain,
    progress,
    shows_unicode,
)
from .whole import replacing

if TYPE_CHECKING:
    import polars as pl


class Format(StrEnum):
    """Table formats."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


FormatOption = Annotated[Format, typer.Option("--format", help="How to write the rows.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Rows shown as a table; 0 for all.")]

ROWS_SHOWN = 100
"""Rows of a table that a reader gets unasked."""


def row_command(
    table: str, help_text: str, pieces: Callable[..., Iterable[pl.DataFrame]], *, both_ends: bool = False
) -> Callable[..., None]:
    """A command that writes the rows of `table`, which `pieces(files, progress=..., **how)` gives.

    Without `both_ends` it refuses captures of the same connections at two places.
    """

    def command(
        files: Files,
        format_: FormatOption = Format.table,
        output: Output = None,
        limit: Limit = ROWS_SHOWN,
        port: Ports = None,
        keylog: KeyLog = None,
        quiet: Quiet = False,
    ) -> None:
        with decoding(), progress(quiet) as told:
            if not both_ends:
                one_place(files, how(port, keylog))
            write(pieces(files, progress=told, **how(port, keylog)), format_, output, limit, table)

    command.__doc__ = help_text
    return command


def write(pieces: Iterable[pl.DataFrame], format_: Format, output: Path | None, limit: int, table: str) -> None:
    """Write the pieces of one table; exits with 2 when the output cannot be written."""
    try:
        if output is None:
            _write(pieces, format_, sys.stdout.buffer, limit, table)
            sys.stdout.buffer.flush()
        else:
            with replacing(output) as out:
                _write(pieces, format_, out, limit, table)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write {output or 'standard output'}: {error.strerror or error}", 2)


def _write(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], limit: int, table: str) -> None:
    if format_ is Format.table:
        _write_text(pieces, out, limit)
        return
    if format_ is Format.parquet and out.isatty():
        fail("Parquet is binary: name a file with -o, or pipe it into one", 2)
    write_rows(pieces, format_, out, table)


def write_rows(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write all rows of a table and give the names of its columns and their number. Not for `Format.table`."""
    from ..reports.parquet import escaped, write_parquet

    if format_ is Format.parquet:
        return write_parquet(map(escaped, pieces), out, table)
    names, rows = list[str](), 0
    for number, piece in enumerate(pieces):
        if format_ is Format.jsonl:
            out.write(piece.write_ndjson().encode())
        else:
            flat = escaped(_flat(piece))
            names = flat.columns
            out.write(flat.write_csv(include_header=number == 0).encode())
        out.flush()
        rows += len(piece)
    return names, rows


def _flat(piece: pl.DataFrame) -> pl.DataFrame:
    """CSV has no nesting: `budget` becomes a column per cause, a list its items with a semicolon in between."""
    import polars as pl

    lists = [name for name, dtype in piece.schema.items() if dtype == pl.List]
    if lists:
        piece = piece.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(";") for name in lists)
    if "budget" not in piece.columns:
        return piece
    return piece.with_columns(pl.col("budget").struct.unnest().name.prefix("budget_")).drop("budget")


def _write_text(pieces: Iterable[pl.DataFrame], out: IO[bytes], limit: int) -> None:
    import polars as pl
    from rich.cells import cell_len

    from ..reports.text import safe

    kept: list[pl.DataFrame] = []
    rows = 0
    for piece in pieces:
        if limit == 0 or rows < limit:
            kept.append(piece if limit == 0 else piece.head(limit - rows))
        rows += len(piece)
    frame = _flat(pl.concat(kept)) if kept else pl.DataFrame()
    shown = safe if shows_unicode() or out is not sys.stdout.buffer else lambda text: plain(safe(text))
    cells = [[name, *("-" if v is None else shown(str(v)) for v in frame[name])] for name in frame.columns]
    # characters may take two columns or none
    lengths = [[cell_len(cell) for cell in column] for column in cells]
    widths = [max(column) for column in lengths]
    left = [frame[name].dtype in (pl.String, pl.Enum, pl.Categorical) for name in frame.columns]
    for row in range(len(frame) + 1):
        line = []
        for column, long, width, to_left in zip(cells, lengths, widths, left, strict=True):
            space = " " * (width - long[row])
            line.append(column[row] + space if to_left else space + column[row])
        out.write(("  ".join(line).rstrip() + os.linesep).encode())
    if rows > len(frame):
        typer.echo(
            f"{rows - len(frame):,} more rows: --limit 0 shows all, --format csv or jsonl streams them", err=True
        )
