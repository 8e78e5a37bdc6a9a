"""`grpcdiag timeline`: one connection or stream against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    Files,
    From,
    KeyLog,
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
    from ..analyzer.excerpt import Excerpt

NAME = "timeline"

_LISTED = 10
"""Connections or streams that a message names."""


def command(
    files: Files,
    connection: Annotated[
        int, typer.Option("--connection", "-c", min=0, help="The connection, as `grpcdiag connections` numbers it.")
    ],
    stream: Annotated[
        int | None, typer.Option("--stream", "-s", min=0, help="Only this HTTP/2 stream; 0 is the connection's own.")
    ] = None,
    from_: From = None,
    to: To = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Lines drawn; 0 for all, with nothing folded.")] = 200,
    output: Output = None,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Draw one connection or stream against time: both directions, bursts, silences, waits with their cause."""
    one_after_the_other(from_, to)
    from ..analyzer.errors import NoGrpcError
    from ..analyzer.excerpt import excerpt
    from ..analyzer.facts import why_no_grpc

    with decoding(), progress(quiet) as told:
        one_place(files, how(port, keylog))
        part = excerpt(files, connection, stream=stream, from_ns=from_, to_ns=to, **how(port, keylog), progress=told)
        if not len(part.tables.rpcs.connection):
            raise NoGrpcError(why_no_grpc(part.tables))
    _check(part)
    from ..reports import timeline

    write(timeline.render(part, width=columns(output), colour=coloured(output), limit=limit), output)


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
