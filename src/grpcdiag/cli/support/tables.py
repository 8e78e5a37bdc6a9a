"""Commands that write one table: as text, JSON lines, CSV or Parquet, piece by piece where the table allows it."""

from __future__ import annotations

import io
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Self, TypeVar, cast

import typer

from ...files.atomic_file import replacing
from .common import (
    Files,
    KeyLog,
    Memory,
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

if TYPE_CHECKING:
    import polars as pl


T = TypeVar("T")


class Format(StrEnum):
    """Table formats."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


FormatOption = Annotated[Format, typer.Option("--format", help="How to write the rows.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Rows shown as a table; 0 for all.")]

ROWS_AT_ONCE = 10_000
"""Rows whose text is in memory at once."""

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
        memory: Memory = None,
        quiet: Quiet = False,
    ) -> None:
        with decoding(), progress(quiet) as told:
            if not both_ends:
                one_place(files, how(port, keylog, memory))
            write(pieces(files, progress=told, **how(port, keylog, memory)), format_, output, limit, table)

    command.__doc__ = help_text
    return command


def write(pieces: Iterable[pl.DataFrame], format_: Format, output: Path | None, limit: int, table: str) -> None:
    """Write the pieces of one table; exits with 2 when the output cannot be written."""
    if output is None:
        _write(pieces, format_, sys.stdout.buffer, limit, table)
        sys.stdout.buffer.flush()
        return
    try:
        with replacing(output) as out:
            _write(pieces, format_, out, limit, table)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror or error}", 2)


def _write(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], limit: int, table: str) -> None:
    if format_ is Format.table:
        _write_text(pieces, out, limit)
        return
    if format_ is Format.parquet and out.isatty():
        fail("Parquet is binary: name a file with -o, or pipe it into one", 2)
    write_rows(pieces, format_, out, table)


def write_rows(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write all rows of a table and give the names of its columns and their number. Not for `Format.table`."""
    from ...reports.tables.parquet import escaped, write_parquet

    if format_ is Format.parquet:
        with _telling(out) as told:
            return write_parquet(map(escaped, pieces), told, table)
    names, rows = list[str](), 0
    for number, piece in enumerate(_small(pieces)):
        if format_ is Format.jsonl:
            text = piece.write_ndjson()
        else:
            flat = escaped(_flat(piece))
            names, text = flat.columns, flat.write_csv(include_header=number == 0)
        out.write(text.encode())
        out.flush()
        rows += len(piece)
    return names, rows


@contextmanager
def _telling(out: IO[bytes]) -> Iterator[IO[bytes]]:
    """A file that raises its OSError itself: polars raises an error of its own, which does not name the cause."""
    told = _Telling(out)
    try:
        yield cast("IO[bytes]", told)
    except Exception:
        if told.error is not None:
            raise told.error from None
        raise


class _Telling:
    """A file for writing that keeps its error."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write it all. Raises OSError."""
        return self._kept(lambda: self._out.write(data))

    def flush(self) -> None:
        """Write what waits. Raises OSError."""
        self._kept(self._out.flush)

    def _kept(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            self.error = error
            raise


def _small(pieces: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows in pieces whose text takes little memory."""
    for piece in pieces:
        yield from piece.iter_slices(ROWS_AT_ONCE) if len(piece) else (piece,)


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
    """Write rows as a table. Its columns are as wide as the widest cell, so that all rows are seen twice."""
    from ...analyzer.model.text import safe

    shown = safe if shows_unicode() or out is not sys.stdout.buffer else lambda text: plain(safe(text))
    rows, kept = 0, 0
    widths: list[int] = []
    with _Waiting() as waiting:
        for piece in pieces:
            rows += len(piece)
            some = piece if limit == 0 else piece.head(limit - kept)
            if len(some) or not widths:
                kept += len(some)
                for part in _small([_flat(some)]):
                    wide = [max(lengths) for _, lengths in _cells(part, shown)]
                    widths = list(map(max, widths, wide)) if widths else wide
                    waiting.add(part)
        for number, part in enumerate(waiting.all()):
            out.write(_lines(part, shown, widths, header=number == 0))
    if rows > kept:
        typer.echo(f"{rows - kept:,} more rows: --limit 0 shows all, --format csv or jsonl streams them", err=True)


def _cells(piece: pl.DataFrame, shown: Callable[[str], str]) -> Iterator[tuple[list[str], list[int]]]:
    """Per column its name and its cells, and how wide they are: characters may take two columns or none."""
    from rich.cells import cell_len

    for name in piece.columns:
        cells = [name, *("-" if v is None else shown(str(v)) for v in piece[name])]
        yield cells, [cell_len(cell) for cell in cells]


def _lines(piece: pl.DataFrame, shown: Callable[[str], str], widths: list[int], *, header: bool) -> bytes:
    import polars as pl

    padded = []
    for name, width, (cells, lengths) in zip(piece.columns, widths, _cells(piece, shown), strict=True):
        left = piece[name].dtype in (pl.String, pl.Enum, pl.Categorical)
        spaces = (" " * (width - long) for long in lengths)
        padded.append([c + space if left else space + c for c, space in zip(cells, spaces, strict=True)])
    lines = ["  ".join(line).rstrip() + os.linesep for line in zip(*padded, strict=True)]
    return "".join(lines if header else lines[1:]).encode()


class _Waiting:
    """Pieces that are needed once more: in memory, or in a temporary file without a name when they are large."""

    MOST = 8_000_000
    """Bytes in memory."""

    def __enter__(self) -> Self:
        self._file = tempfile.SpooledTemporaryFile(self.MOST, prefix="grpcdiag-")
        self._ends = [0]
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, piece: pl.DataFrame) -> None:
        """Put a piece by. Raises SpillError."""
        from ...analyzer.decode.errors import SpillError

        try:
            self._file.write(piece.write_ipc_stream(None).getvalue())
        except OSError as error:
            raise SpillError(error.strerror or str(error)) from error
        self._ends.append(self._file.tell())

    def all(self) -> Iterator[pl.DataFrame]:
        """All pieces, in order."""
        import polars as pl

        for begin, end in itertools.pairwise(self._ends):
            self._file.seek(begin)
            yield pl.read_ipc_stream(io.BytesIO(self._file.read(end - begin)))
