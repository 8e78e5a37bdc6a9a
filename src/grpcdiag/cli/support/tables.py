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
from typing import IO, TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast

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
    writing,
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


FormatOption = Annotated[Format, typer.Option("--format", help="Format of the rows.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Most rows of a table; 0 for all.")]

ROWS_AT_ONCE = 10_000
"""Rows whose text is in memory at once."""

ROWS_SHOWN = 100
"""Rows of a table shown by default."""


def read_pieces(files: list[str], table: str, **how: Any) -> Iterable[pl.DataFrame]:
    """Read a table piece by piece, see `rows.read_pieces`."""
    from ...reports.tables import rows  # polars is imported only here

    return rows.read_pieces(files, table, **how)


def row_command(
    table: str, help_text: str, read: Callable[..., Iterable[pl.DataFrame]] = read_pieces, **more: Any
) -> Callable[..., None]:
    """Make a command that writes the rows of `table` from `read(files, table, progress=..., **how, **more)`.

    It refuses captures of the same connections at two places.
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
        with decoding(), progress(quiet) as report_progress:
            chosen = how(port, keylog, memory)
            one_place(files, chosen)
            write(read(files, table, progress=report_progress, **chosen, **more), format_, output, limit, table)

    command.__doc__ = help_text
    return command


def write(pieces: Iterable[pl.DataFrame], format_: Format, output: Path | None, limit: int, table: str) -> None:
    """Write the pieces of one table; exit with 2 if the output cannot be written."""
    if output is None:
        _write(pieces, format_, sys.stdout.buffer, limit, table)
        sys.stdout.buffer.flush()
        return
    with writing(output), replacing(output) as out:
        _write(pieces, format_, out, limit, table)


def _write(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], limit: int, table: str) -> None:
    if format_ is Format.table:
        _write_text(pieces, out, limit)
        return
    if format_ is Format.parquet and out.isatty():
        fail("Parquet is binary: name a file with -o, or pipe it into one", 2)
    write_rows(pieces, format_, out, table)


def write_rows(pieces: Iterable[pl.DataFrame], format_: Format, out: IO[bytes], table: str) -> tuple[list[str], int]:
    """Write all rows of a table, and return the names of its columns and its number of rows. Not for `Format.table`."""
    from ...reports.tables.parquet import escaped, write_parquet

    if format_ is Format.parquet:
        with _keep_error(out) as file:
            return write_parquet(map(escaped, pieces), file, table)
    names, rows = list[str](), 0
    for number, piece in enumerate(_split(pieces)):
        if format_ is Format.jsonl:
            text = piece.write_ndjson()
        else:
            flat = escaped(_flatten(piece))
            names, text = flat.columns, flat.write_csv(include_header=number == 0)
        out.write(text.encode())
        out.flush()
        rows += len(piece)
    return names, rows


@contextmanager
def _keep_error(out: IO[bytes]) -> Iterator[IO[bytes]]:
    """Give a file whose OSError is raised instead of polars' own error, which does not name the cause."""
    file = _ErrorKeepingFile(out)
    try:
        yield cast("IO[bytes]", file)
    except Exception:
        if file.error is not None:
            raise file.error from None
        raise


class _ErrorKeepingFile:
    """A file for writing that remembers its error."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write all data. Raises OSError."""
        return self._run(lambda: self._out.write(data))

    def flush(self) -> None:
        """Write buffered data. Raises OSError."""
        self._run(self._out.flush)

    def _run(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            self.error = error
            raise


def _split(pieces: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Split the rows into pieces whose text needs little memory."""
    for piece in pieces:
        yield from piece.iter_slices(ROWS_AT_ONCE) if len(piece) else (piece,)


def _flatten(piece: pl.DataFrame) -> pl.DataFrame:
    """Flatten nested columns for CSV: `budget` becomes a column per cause, a list its items joined by semicolons."""
    import polars as pl

    lists = [name for name, dtype in piece.schema.items() if dtype == pl.List]
    if lists:
        piece = piece.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(";") for name in lists)
    if "budget" not in piece.columns:
        return piece
    return piece.with_columns(pl.col("budget").struct.unnest().name.prefix("budget_")).drop("budget")


def _write_text(pieces: Iterable[pl.DataFrame], out: IO[bytes], limit: int) -> None:
    """Write rows as a table. All rows are read twice, because columns are as wide as the widest cell."""
    from ...analyzer.model.text import safe

    shown = safe if shows_unicode() or out is not sys.stdout.buffer else lambda text: plain(safe(text))
    rows, written = 0, 0
    widths: list[int] = []
    with _Buffer() as buffer:
        for piece in pieces:
            rows += len(piece)
            some = piece if limit == 0 else piece.head(limit - written)
            if len(some) or not widths:
                written += len(some)
                for part in _split([_flatten(some)]):
                    wide = [max(lengths) for _, lengths in _list_cells(part, shown)]
                    widths = list(map(max, widths, wide)) if widths else wide
                    buffer.add(part)
        for number, part in enumerate(buffer.read_all()):
            out.write(_format_lines(part, shown, widths, header=number == 0))
    if rows > written:
        typer.echo(f"{rows - written:,} more rows: --limit 0 shows all, --format csv or jsonl streams them", err=True)


def _list_cells(piece: pl.DataFrame, shown: Callable[[str], str]) -> Iterator[tuple[list[str], list[int]]]:
    """List, for each column, its name and cells with their widths: a character can be zero, one or two columns wide."""
    from rich.cells import cell_len

    for name in piece.columns:
        cells = [name, *("-" if v is None else shown(str(v)) for v in piece[name])]
        yield cells, [cell_len(cell) for cell in cells]


def _format_lines(piece: pl.DataFrame, shown: Callable[[str], str], widths: list[int], *, header: bool) -> bytes:
    import polars as pl

    padded = []
    for name, width, (cells, lengths) in zip(piece.columns, widths, _list_cells(piece, shown), strict=True):
        left = piece[name].dtype in (pl.String, pl.Enum, pl.Categorical)
        spaces = (" " * (width - long) for long in lengths)
        padded.append([c + space if left else space + c for c, space in zip(cells, spaces, strict=True)])
    lines = ["  ".join(line).rstrip() + os.linesep for line in zip(*padded, strict=True)]
    return "".join(lines if header else lines[1:]).encode()


class _Buffer:
    """Pieces that are read again later: in memory, or in an unnamed temporary file if they are large."""

    MOST = 8_000_000
    """Most bytes in memory."""

    def __enter__(self) -> Self:
        self._file = tempfile.SpooledTemporaryFile(self.MOST, prefix="grpcdiag-")
        self._ends = [0]
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, piece: pl.DataFrame) -> None:
        """Store a piece. Raises SpillError."""
        from ...analyzer.decode.errors import SpillError

        try:
            self._file.write(piece.write_ipc_stream(None).getvalue())
        except OSError as error:
            raise SpillError(error.strerror or str(error)) from error
        self._ends.append(self._file.tell())

    def read_all(self) -> Iterator[pl.DataFrame]:
        """Read all pieces in order."""
        import polars as pl

        for begin, end in itertools.pairwise(self._ends):
            self._file.seek(begin)
            yield pl.read_ipc_stream(io.BytesIO(self._file.read(end - begin)))
