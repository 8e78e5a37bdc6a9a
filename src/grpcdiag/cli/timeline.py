"""`grpcdiag timeline`: draw one connection or stream as a timeline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from .support.common import decoding, fail, how, one_place, progress, refuse_mixed_input, refuse_own_input, say, write
from .support.options import (
    Color,
    Files,
    From,
    Method,
    NamingOptions,
    Output,
    Quiet,
    To,
    Trace,
    one_after_the_other,
)
from .support.sidecar import find_sidecar
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.selection.selection import Moment, Selection
    from ..analyzer.views.excerpt import Excerpt

_OF_A_TRACE = 100
"""Most RPCs of a trace that are drawn."""
_LISTED = 10
"""Most connections or streams that a message names."""


def command(
    files: Files,
    connection: Annotated[
        int | None,
        typer.Option(
            "--connection", "-c", metavar="N", min=0, help="Number of the connection in `grpcdiag connections`."
        ),
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option("--stream", "-s", metavar="N", min=0, help="Only this HTTP/2 stream; 0 for connection frames."),
    ] = None,
    from_: From = None,
    to: To = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst",
            metavar="N",
            min=1,
            max=100,
            help="Draw the N slowest RPCs, of all connections or of --connection.",
        ),
    ] = None,
    method: Method = None,
    trace: Trace = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Draw at most N lines; 0 for all events, unfolded.")
    ] = 200,
    output: Output = None,
    *,
    read: NamingOptions,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Draw a timeline of one connection or stream: bursts of both directions, silences, blocked intervals by cause."""
    refuse_own_input(output, files)
    refuse_mixed_input(files)
    one_after_the_other(from_, to)
    from ..analyzer.selection.selection import Selection

    if trace is not None and worst is None:
        worst = _OF_A_TRACE
    if worst is not None:
        if stream is not None:
            raise typer.BadParameter("--worst and --trace select streams: use --stream only with --connection")
        chosen = Selection(() if connection is None else (connection,), method, from_, to, trace)
        parts = _read_slowest(files, worst, chosen, how(files, read), quiet)
    elif connection is None:
        raise typer.BadParameter("give --connection N, --worst N for the slowest RPCs, or --trace ID")
    elif method is not None:
        raise typer.BadParameter("--method needs --worst")
    else:
        parts = [_read_one(files, connection, stream, (from_, to), how(files, read), quiet)]
    from ..reports import timeline

    width, colour = columns(output), coloured(output)
    if worst is not None:
        write(timeline.slowest(parts, width=width, colour=colour, limit=limit), output)
    else:
        write(timeline.render(parts[0], width=width, colour=colour, limit=limit), output)


def _read_one(
    files: list[str],
    connection: int,
    stream: int | None,
    span: tuple[Moment | None, Moment | None],
    chosen: DecodeOptions,
    quiet: bool,
) -> Excerpt:
    """Read one connection or stream; exit if it does not exist."""
    from ..analyzer.decode.errors import NoGrpcError
    from ..analyzer.summary.figures import why_no_grpc
    from ..analyzer.views.excerpt import excerpt

    with decoding(), progress(quiet) as report_progress:
        one_place(files, chosen)
        part = excerpt(files, connection, stream=stream, begin=span[0], end=span[1], **chosen, progress=report_progress)
        if not len(part.tables.rpcs.connection):
            raise NoGrpcError(why_no_grpc(part.tables))
    _check(part)
    return part


def _read_slowest(
    files: list[str], number: int, chosen: Selection, reading: DecodeOptions, quiet: bool
) -> list[Excerpt]:
    """Read the slowest RPCs; exit if there are none."""
    from ..analyzer.decode.errors import NarrowError
    from ..analyzer.views.excerpt import slowest

    if "-" in files:
        fail("--worst reads the capture twice, so it needs a file, not standard input", 2)
    with decoding(), progress(quiet) as report_progress:
        one_place(files, reading)
        try:
            parts = slowest(files, number, chosen, progress=report_progress, **reading)
        except NarrowError as error:
            fail(str(error), 2)
        return _add_threads(files, parts, reading)


def _add_threads(files: list[str], parts: list[Excerpt], reading: DecodeOptions) -> list[Excerpt]:
    """Add what the recorded host's threads did, if they were recorded."""
    sidecar, notes = find_sidecar(files)
    if sidecar is not None and sidecar.processes is not None:
        from ..analyzer.analysis import add_processes

        tables, notes = add_processes(files, parts[0].tables, sidecar, notes, **reading)
        parts = [replace(part, tables=tables) for part in parts]
    for note in notes:
        say(f"note: {note}")
    return parts


def _check(part: Excerpt) -> None:
    """Exit with 2 if the connection or stream does not exist, and list those that do."""
    if not part.exists:
        tables = part.tables
        number = len(tables.connections.protocol)
        ends = [f"{row} ({tables.client(row)} -> {tables.server(row)})" for row in range(min(number, _LISTED))]
        fail(f"there is no connection {part.connection}; the capture has {_list_names(ends, number)}", 2)
    if part.stream is not None and part.stream not in part.streams:
        named = [str(stream) for stream in part.streams[:_LISTED]]
        listed = _list_names(named, len(part.streams)) if named else "no readable streams"
        fail(f"connection {part.connection} has no stream {part.stream}; it has {listed}", 2)


def _list_names(names: list[str], number: int) -> str:
    return ", ".join(names) + (f" and {number - len(names):,} more" if number > len(names) else "")
