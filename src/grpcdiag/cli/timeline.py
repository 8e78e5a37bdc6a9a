"""`grpcdiag timeline`: one connection or stream against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .support.common import (
    Files,
    From,
    KeyLog,
    Memory,
    Method,
    Output,
    Ports,
    Quiet,
    To,
    coloured,
    columns,
    decoding,
    fail,
    how,
    one_after_the_other,
    one_place,
    progress,
    write,
)

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.selection.selection import Selection
    from ..analyzer.views.excerpt import Excerpt

NAME = "timeline"

_LISTED = 10
"""Connections or streams that a message names."""


def command(
    files: Files,
    connection: Annotated[
        int | None,
        typer.Option("--connection", "-c", min=0, help="The connection, as `grpcdiag connections` numbers it."),
    ] = None,
    stream: Annotated[
        int | None, typer.Option("--stream", "-s", min=0, help="Only this HTTP/2 stream; 0 is the connection's own.")
    ] = None,
    from_: From = None,
    to: To = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst", min=1, max=100, help="The slowest RPCs, of all connections unless --connection names one."
        ),
    ] = None,
    method: Method = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Lines drawn; 0 for all, with nothing folded.")] = 200,
    output: Output = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Draw one connection or stream against time: both directions, bursts, silences, waits with their cause."""
    one_after_the_other(from_, to)
    from ..analyzer.selection.selection import Selection

    if worst is not None:
        if stream is not None:
            raise typer.BadParameter("--worst picks streams: --stream is for --connection alone")
        chosen = Selection(() if connection is None else (connection,), method, from_, to)
        parts = _slowest(files, worst, chosen, how(port, keylog, memory), quiet)
    elif connection is None:
        raise typer.BadParameter("--connection N, or --worst N for the slowest RPCs")
    elif method is not None:
        raise typer.BadParameter("--method is for --worst")
    else:
        parts = [_one(files, connection, stream, (from_, to), how(port, keylog, memory), quiet)]
    from ..reports import timeline

    width, colour = columns(output), coloured(output)
    if worst is not None:
        write(timeline.slowest(parts, width=width, colour=colour, limit=limit), output)
    else:
        write(timeline.render(parts[0], width=width, colour=colour, limit=limit), output)


def _one(
    files: list[str],
    connection: int,
    stream: int | None,
    span: tuple[int | None, int | None],
    chosen: DecodeOptions,
    quiet: bool,
) -> Excerpt:
    """One connection or stream; exits when there is none."""
    from ..analyzer.decode.errors import NoGrpcError
    from ..analyzer.summary.figures import why_no_grpc
    from ..analyzer.views.excerpt import excerpt

    with decoding(), progress(quiet) as told:
        one_place(files, chosen)
        part = excerpt(files, connection, stream=stream, from_ns=span[0], to_ns=span[1], **chosen, progress=told)
        if not len(part.tables.rpcs.connection):
            raise NoGrpcError(why_no_grpc(part.tables))
    _check(part)
    return part


def _slowest(files: list[str], number: int, chosen: Selection, reading: DecodeOptions, quiet: bool) -> list[Excerpt]:
    """The slowest RPCs; exits when there is none."""
    from ..analyzer.decode.errors import NarrowError
    from ..analyzer.views.excerpt import slowest

    if "-" in files:
        fail("--worst reads the capture twice, which standard input does not allow: give a file", 2)
    with decoding(), progress(quiet) as told:
        one_place(files, reading)
        try:
            return slowest(files, number, chosen, progress=told, **reading)
        except NarrowError as error:
            fail(str(error), 2)


def _check(part: Excerpt) -> None:
    """Exits with 2 when the connection or stream does not exist, and says which do."""
    if not part.exists:
        tables = part.tables
        number = len(tables.connections.protocol)
        ends = [f"{row} ({tables.client(row)} -> {tables.server(row)})" for row in range(min(number, _LISTED))]
        fail(f"there is no connection {part.connection}; the capture has {_listed(ends, number)}", 2)
    if part.stream is not None and part.stream not in part.streams:
        named = [str(stream) for stream in part.streams[:_LISTED]]
        listed = _listed(named, len(part.streams)) if named else "no streams that could be read"
        fail(f"connection {part.connection} has no stream {part.stream}; it has {listed}", 2)


def _listed(names: list[str], number: int) -> str:
    return ", ".join(names) + (f" and {number - len(names):,} more" if number > len(names) else "")
