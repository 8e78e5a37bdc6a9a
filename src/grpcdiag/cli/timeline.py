"""`grpcdiag timeline`: one connection or stream against time."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, fail, how, one_place, progress, wants_colour, write

if TYPE_CHECKING:
    from ..analyzer.excerpt import Excerpt

NAME = "timeline"

_UNITS = {"": 1_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
_LISTED = 10
"""Connections or streams that a message names."""


def _nanoseconds(text: str) -> int:
    """A time after the capture's first packet: `1.5`, `1.5s`, `800ms`. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d*)?|\.\d+)\s*(s|ms|us|µs|ns|)", text.strip())
    if not match:
        raise typer.BadParameter(f"{text!r} is no time: write seconds such as 1.5 or 1.5s, or 800ms, 250us")
    return round(float(match[1]) * _UNITS[match[2]])


def command(
    files: Files,
    connection: Annotated[
        int, typer.Option("--connection", "-c", min=0, help="The connection, as `grpcdiag connections` numbers it.")
    ],
    stream: Annotated[
        int | None, typer.Option("--stream", "-s", min=0, help="Only this HTTP/2 stream; 0 is the connection's own.")
    ] = None,
    from_: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="TIME", parser=_nanoseconds, help="Begin here: 1.5, 1.5s, 800ms after the first packet."
        ),
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="TIME", parser=_nanoseconds, help="End here, written the same way.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Lines drawn; 0 for all, with nothing folded.")] = 200,
    output: Output = None,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Draw one connection or stream against time: both directions, bursts, silences, waits with their cause."""
    if from_ is not None and to is not None and from_ > to:
        raise typer.BadParameter("--from lies behind --to")
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

    to_terminal = output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if to_terminal else 100
    write(timeline.render(part, width=width, colour=to_terminal and wants_colour(), limit=limit), output)


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
