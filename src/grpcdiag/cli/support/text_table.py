"""Write a table for people: as wide as the terminal, and through a pager when it is longer."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Self

import typer
from msgspec import msgpack

from .common import end_progress, plain, shows_unicode
from .pager import paged
from .terminal import WIDTH, columns, wants_colour

if TYPE_CHECKING:
    from ...analyzer.decode.runner import Origin
    from ...reports.tables.choose import Choice, Chosen
    from ...reports.tables.glance import Cells, Glance

ROWS_AT_ONCE = 10_000
"""Rows whose text is in memory at once."""


def write_text(
    chosen: Chosen, file: IO[bytes] | None, table: str, choice: Choice, origin: Origin, *, quiet: bool
) -> None:
    """Write rows as a table to a file or standard output. Cells wait until the widest one of each column is known.

    On a terminal the meanings of the letters are above the table, where they stay with it in a pager.
    """
    from ...analyzer.model.text import safe
    from ...reports.tables.glance import Glance

    ascii_only = file is None and not shows_unicode()
    glance = Glance(table, choice, origin, safe, columns(None) if file is None else WIDTH)
    written = all_columns = 0
    with _Buffer() as buffer:
        for part in (part for piece in chosen for part in piece.split(ROWS_AT_ONCE)):
            all_columns, written = len(part.columns), written + len(part)
            buffer.add(glance.make_cells(part))
        end_progress()
        glance.fit(all_columns)
        colour = file is None and wants_colour()
        lines = (
            plain(line) if ascii_only else line
            for number, cells in enumerate(buffer.read_all())
            for line in glance.write_lines(cells, header=number == 0, colour=colour)
        )
        legend = [] if quiet else _list_legend(glance, file)
        _write_lines(itertools.chain(legend, lines), written + 1 + len(legend), file)
    if quiet:
        return
    if glance.columns_left_out:
        typer.echo(f"{glance.columns_left_out} more columns: --columns all, or --format csv", err=True)
    if chosen.rows > written:
        more = f"{chosen.rows - written:,} more rows"
        typer.echo(f"{more}: --limit 0 shows all, --format csv or jsonl streams them", err=True)


def _list_legend(glance: Glance, file: IO[bytes] | None) -> list[str]:
    """List what the letters mean: in lines above the table on a terminal, else on standard error."""
    causes = glance.list_causes()
    if not causes:
        return []
    if file is None and sys.stdout.isatty():
        return textwrap.wrap(f"causes: {causes}", columns(None))
    typer.echo(f"causes: {causes}", err=True)
    return []


def _write_lines(lines: Iterable[str], number: int, file: IO[bytes] | None) -> None:
    if file is None and sys.stdout.isatty() and number >= shutil.get_terminal_size().lines:
        with paged() as out:
            out.writelines((line + os.linesep).encode() for line in lines)
        return
    out = file or sys.stdout.buffer
    out.writelines((line + os.linesep).encode() for line in lines)
    out.flush()  # messages follow


class _Buffer:
    """Cells that are read again later: in memory, or in an unnamed temporary file if they are many."""

    MOST = 8_000_000
    """Most bytes in memory."""

    def __enter__(self) -> Self:
        self._file = tempfile.SpooledTemporaryFile(self.MOST, prefix="grpcdiag-")
        self._ends = [0]
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, cells: Cells) -> None:
        """Store a piece. Raises SpillError."""
        from ...analyzer.decode.errors import SpillError

        try:
            self._file.write(msgpack.encode(cells))
        except OSError as error:
            raise SpillError(error.strerror or str(error)) from error
        self._ends.append(self._file.tell())

    def read_all(self) -> Iterator[Cells]:
        """Read all pieces in order."""
        from ...reports.tables.glance import Cells

        for begin, end in itertools.pairwise(self._ends):
            self._file.seek(begin)
            yield msgpack.decode(self._file.read(end - begin), type=Cells)
