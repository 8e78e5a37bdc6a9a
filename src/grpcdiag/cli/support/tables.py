"""Commands that write one table: as text, JSON lines, CSV or Parquet, piece by piece where the table allows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from ...analyzer.decode.runner import Origin
from ...files.atomic_file import replacing
from .clock import Clock
from .common import (
    decoding,
    fail,
    how,
    one_place,
    progress,
    refuse_mixed_input,
    refuse_own_input,
    require_parquet,
    writing,
)
from .gather import gather_options
from .options import (
    TIMES_HELP,
    Color,
    Files,
    FilesOfEnds,
    Method,
    NamingOptions,
    Output,
    Quiet,
    ShowMessages,
    Trace,
    moment,
    one_after_the_other,
)
from .terminal import When
from .text_table import write_text

if TYPE_CHECKING:
    from ...reports.tables.choose import Choice
    from ...reports.tables.frame import Frame


Format = StrEnum("Format", ["table", "jsonl", "csv", "parquet"])
"""Table formats."""


def parse_status(text: str) -> str:
    """Parse the name of a gRPC status, in either case. Raises BadParameter."""
    from ...reports.tables.choose import STATUSES

    known = {name.lower(): name for name in STATUSES}
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is no gRPC status; known: {', '.join(known.values())}")
    return known[text.lower()]


class RowOptions(Struct, frozen=True):
    """Which rows and columns of a table are written, and how."""

    format_: Annotated[Format, typer.Option("--format", help="Format of the rows.")] = Format.table
    output: Output = None
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAMES", help="Columns to write, separated by commas; all for every column."),
    ] = None
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="COLUMN", help="Sort by this column; with a hyphen before it (-duration), largest first."
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="Write at most N rows; 0 for all. Default: 100 in a table, all in other formats.",
        ),
    ] = None
    worst: Annotated[
        int | None,
        typer.Option("--worst", metavar="N", min=1, help="Only the N longest, as --sort -duration --limit N."),
    ] = None
    connection: Annotated[
        list[int] | None,
        typer.Option("--connection", "-c", metavar="N", min=0, help="Only rows of this connection; repeatable."),
    ] = None
    stream: Annotated[
        int | None, typer.Option("--stream", "-s", metavar="N", min=0, help="Only rows of this HTTP/2 stream.")
    ] = None
    method: Method = None
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            parser=parse_status,
            help="Only RPCs with this status; repeatable. failed: all but OK; not_seen: not in the capture.",
        ),
    ] = None
    from_: Annotated[
        Any,
        typer.Option(
            "--from", metavar="TIME", parser=moment, help=f"Only rows that begin at this time or later: {TIMES_HELP}"
        ),
    ] = None
    to: Annotated[
        Any,
        typer.Option("--to", metavar="TIME", parser=moment, help="Only rows that begin at this time or earlier."),
    ] = None
    trace: Trace = None
    clock: Clock = None
    color: Color = When.auto


ROWS_SHOWN = 100
"""Rows of a table shown by default."""
_OF_RPCS = ("method", "status", "trace", "clock", "label", "show_messages")
"""Options that only the table of RPCs has."""


def read_pieces(files: list[str], table: str, origin: Origin | None = None, **how: Any) -> Iterable[Frame]:
    """Read a table piece by piece, see `rows.read_pieces`."""
    from ...reports.tables import rows

    return rows.read_pieces(files, table, origin, **how)


def row_command(
    table: str,
    help_text: str,
    read_rows: Callable[..., Iterable[Frame]] = read_pieces,
    *,
    lacks: tuple[str, ...] = (),
    of_rpcs: bool = False,
    **more: Any,
) -> Callable[..., None]:
    """Make a command that writes the rows of `table`, from `read_rows(files, table, origin, progress, **how, **more)`.

    It refuses captures of the same connections at two places, except `of_rpcs`: then `read_rows` takes them, with
    `clock` and `quiet`. `lacks` are options that the table has no column for.
    """

    def command(
        files: Files,
        options: RowOptions,
        read: NamingOptions,
        show_messages: ShowMessages = False,
        quiet: Quiet = False,
    ) -> None:
        refuse_own_input(options.output, files)
        refuse_mixed_input(files)
        choice = choose(options)
        with decoding(), progress(quiet) as report_progress:
            chosen = how(files, read, show_messages=show_messages)
            ends = {"clock": options.clock, "quiet": quiet} if of_rpcs else {}
            if not of_rpcs:
                one_place(files, chosen)
            origin = Origin()
            pieces = read_rows(files, table, origin, progress=report_progress, **chosen, **ends, **more)
            write(pieces, options.format_, options.output, table, choice, origin, quiet=quiet)

    command.__doc__ = help_text
    if of_rpcs:
        command.__annotations__["files"] = FilesOfEnds
    return gather_options(command, lacks if of_rpcs else (*lacks, *_OF_RPCS))


def choose(options: RowOptions) -> Choice:
    """Choose rows and columns as the options say. Raises BadParameter."""
    from ...reports.tables.choose import Choice

    sort, limit = options.sort, options.limit
    if options.worst is not None and (sort is not None or limit is not None):
        raise typer.BadParameter("--worst N is --sort -duration --limit N: give no other --sort or --limit")
    one_after_the_other(options.from_, options.to)
    if options.format_ is Format.parquet:
        require_parquet()
    if options.worst is not None:
        sort, limit = "-duration_ns", options.worst
    elif limit is None:
        limit = ROWS_SHOWN if options.format_ is Format.table else 0
    return Choice(
        columns=tuple(name.strip() for name in options.columns.split(",")) if options.columns else (),
        sort=sort,
        limit=limit,
        connections=tuple(options.connection or ()),
        stream=options.stream,
        begin=options.from_,
        end=options.to,
        method=options.method,
        statuses=tuple(options.status or ()),
        trace=options.trace,
    )


def write(
    pieces: Iterable[Frame],
    format_: Format,
    output: Path | None,
    table: str,
    choice: Choice,
    origin: Origin,
    *,
    quiet: bool,
) -> None:
    """Write the chosen rows of one table; exit with 2 if they cannot be written or are not there."""
    from ...reports.tables.choose import ChoiceError, Chosen, select_columns
    from ...reports.tables.writing import write_rows

    chosen = Chosen(pieces, table, choice, origin, count=format_ is Format.table)

    def write_to(file: IO[bytes] | None) -> None:
        out = file or sys.stdout.buffer
        if format_ is Format.table:
            write_text(chosen, file, table, choice, origin, quiet=quiet)
        elif format_ is Format.parquet and out.isatty():
            fail("Parquet is binary: name a file with -o, or pipe it into one", 2)
        else:
            write_rows((select_columns(piece, table, choice.columns) for piece in chosen), format_, out, table)

    try:
        if output is None:
            write_to(None)
            sys.stdout.buffer.flush()
            return
        with writing(output), replacing(output) as out:
            write_to(out)
    except ChoiceError as error:
        fail(str(error), 2)
