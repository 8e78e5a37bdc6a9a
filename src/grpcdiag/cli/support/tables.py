"""Commands that write one table: as text, JSON lines, CSV or Parquet, piece by piece where the table allows it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

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
from .options import (
    TIMES_HELP,
    Color,
    Files,
    FilesOfEnds,
    KeyLog,
    Memory,
    Method,
    Output,
    Ports,
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


FormatOption = Annotated[Format, typer.Option("--format", help="Format of the rows.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAMES", help="Columns to write, separated by commas; all for every column."),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort", metavar="COLUMN", help="Sort by this column; with a hyphen before it (-duration), largest first."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        help="Write at most N rows; 0 for all. Default: 100 in a table, all in other formats.",
    ),
]
Worst = Annotated[
    int | None,
    typer.Option("--worst", metavar="N", min=1, help="Only the N longest, as --sort -duration --limit N."),
]
OnConnections = Annotated[
    list[int] | None,
    typer.Option("--connection", "-c", metavar="N", min=0, help="Only rows of this connection; repeatable."),
]
OnStream = Annotated[
    int | None, typer.Option("--stream", "-s", metavar="N", min=0, help="Only rows of this HTTP/2 stream.")
]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        parser=lambda text: parse_status(text),
        help="Only RPCs with this status; repeatable. failed: all but OK; not_seen: not in the capture.",
    ),
]
RowsFrom = Annotated[
    Any,
    typer.Option(
        "--from", metavar="TIME", parser=moment, help=f"Only rows that begin at this time or later: {TIMES_HELP}"
    ),
]
RowsTo = Annotated[
    Any,
    typer.Option("--to", metavar="TIME", parser=moment, help="Only rows that begin at this time or earlier."),
]

ROWS_SHOWN = 100
"""Rows of a table shown by default."""
_OF_RPCS = ("method", "status", "trace", "clock", "show_messages")
"""Options that only the table of RPCs has."""


def parse_status(text: str) -> str:
    """Parse the name of a gRPC status, in either case. Raises BadParameter."""
    from ...reports.tables.choose import STATUSES

    known = {name.lower(): name for name in STATUSES}
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is no gRPC status; known: {', '.join(known.values())}")
    return known[text.lower()]


def read_pieces(files: list[str], table: str, origin: Origin | None = None, **how: Any) -> Iterable[Frame]:
    """Read a table piece by piece, see `rows.read_pieces`."""
    from ...reports.tables import rows

    return rows.read_pieces(files, table, origin, **how)


def row_command(
    table: str,
    help_text: str,
    read: Callable[..., Iterable[Frame]] = read_pieces,
    *,
    lacks: tuple[str, ...] = (),
    of_rpcs: bool = False,
    **more: Any,
) -> Callable[..., None]:
    """Make a command that writes the rows of `table` from `read(files, table, origin, progress=..., **how, **more)`.

    It refuses captures of the same connections at two places, except `of_rpcs`: then `read` takes them, with `clock`
    and `quiet`. `lacks` are options that the table has no column for.
    """

    def command(
        files: Files,
        format_: FormatOption = Format.table,
        output: Output = None,
        columns: Columns = None,
        sort: Sort = None,
        limit: Limit = None,
        worst: Worst = None,
        connection: OnConnections = None,
        stream: OnStream = None,
        method: Method = None,
        status: Statuses = None,
        from_: RowsFrom = None,
        to: RowsTo = None,
        trace: Trace = None,
        clock: Clock = None,
        color: Color = When.auto,
        port: Ports = None,
        keylog: KeyLog = None,
        memory: Memory = None,
        show_messages: ShowMessages = False,
        quiet: Quiet = False,
    ) -> None:
        refuse_own_input(output, files)
        refuse_mixed_input(files)
        rows = {"connections": tuple(connection or ()), "stream": stream, "begin": from_, "end": to}
        rows |= {"method": method, "statuses": tuple(status or ()), "trace": trace}
        wanted = choose(format_, columns, sort, limit, worst, **rows)
        with decoding(), progress(quiet) as report_progress:
            chosen = how(files, port, keylog, memory, show_messages=show_messages)
            ends = {"clock": clock, "quiet": quiet} if of_rpcs else {}
            if not of_rpcs:
                one_place(files, chosen)
            origin = Origin()
            pieces = read(files, table, origin, progress=report_progress, **chosen, **ends, **more)
            write(pieces, format_, output, table, wanted, origin, quiet=quiet)

    command.__doc__ = help_text
    signature = inspect.signature(command, eval_str=True)
    parameters = dict(signature.parameters)
    if of_rpcs:
        parameters["files"] = parameters["files"].replace(annotation=FilesOfEnds)
    unknown = lacks if of_rpcs else (*lacks, *_OF_RPCS)
    offered = [parameter for name, parameter in parameters.items() if name not in unknown]
    vars(command)["__signature__"] = signature.replace(parameters=offered)
    return command


def choose(
    format_: Format,
    columns: str | None,
    sort: str | None,
    limit: int | None,
    worst: int | None,
    **rows: Any,
) -> Choice:
    """Put options together; `rows` say which are wanted. Raises BadParameter."""
    from ...reports.tables.choose import Choice

    if worst is not None and (sort is not None or limit is not None):
        raise typer.BadParameter("--worst N is --sort -duration --limit N: give no other --sort or --limit")
    one_after_the_other(rows["begin"], rows["end"])
    if format_ is Format.parquet:
        require_parquet()
    if worst is not None:
        sort, limit = "-duration_ns", worst
    elif limit is None:
        limit = ROWS_SHOWN if format_ is Format.table else 0
    names = tuple(name.strip() for name in columns.split(",")) if columns else ()
    return Choice(columns=names, sort=sort, limit=limit, **rows)


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
