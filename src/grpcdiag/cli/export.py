"""`grpcdiag export`: every table into a folder, for SQL and data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing_in
from .support.common import Files, KeyLog, Memory, Ports, Quiet, decoding, fail, how, one_place, progress, say, spooled
from .support.sidecar import find_sidecar
from .support.tables import Format as RowFormat
from .support.tables import write_rows

if TYPE_CHECKING:
    import polars as pl

    from ..analyzer.decode.runner import DecodeOptions, Progress

NAME = "export"


class Format(StrEnum):
    """File formats."""

    parquet = "parquet"
    csv = "csv"


class Table(StrEnum):
    """The tables, in the order in which they are written."""

    connections = "connections"
    rpcs = "rpcs"
    waits = "waits"
    problems = "problems"
    methods = "methods"
    findings = "findings"
    evidence = "evidence"
    messages = "messages"
    frames = "frames"
    packets = "packets"


_STREAMED = (Table.rpcs, Table.messages, Table.frames, Table.packets)
"""Tables that are written while the capture is read, each in a pass of its own."""
_ANALYSED = (Table.methods, Table.findings, Table.evidence)
_WITHOUT_GRPC = (Table.connections, Table.waits, Table.problems, Table.packets)
"""Tables that a capture without gRPC has too."""


def command(
    files: Files,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder; made if need be.")],
    format_: Annotated[Format, typer.Option("--format", help="File format.")] = Format.parquet,
    table: Annotated[
        list[Table] | None, typer.Option("--table", help="Only this table; may be given several times.")
    ] = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Write every table to a folder as Parquet or CSV, with units and the meaning of columns.

    The file named columns says what they mean; in Parquet the metadata of each column does too.
    """
    chosen = tuple(dict.fromkeys(table)) if table else tuple(Table)
    if output.exists() and not output.is_dir():
        fail(f"cannot write {output}: it is no folder", 2)
    with decoding(), spooled(files) as paths:
        one_place(paths, how(port, keylog, memory))
        written = _export(paths, how(port, keylog, memory), output, format_, chosen, quiet)
    if not quiet:
        say(f"{output}: " + ", ".join(f"{name} {rows:,}" for name, rows in written.items()) + " rows")


def _export(
    files: list[str], chosen: DecodeOptions, output: Path, format_: Format, tables: tuple[Table, ...], quiet: bool
) -> dict[str, int]:
    """Write the tables and give their numbers of rows; exits with 2 when a file cannot be written."""
    written: dict[str, int] = {}
    described: dict[str, list[str]] = {}

    def write(table: str, pieces: Iterable[pl.DataFrame], make: Callable[[str], IO[bytes]]) -> None:
        with make(f"{table}.{format_}") as out:
            names, written[table] = write_rows(pieces, RowFormat(format_), out, table)
        described[table] = names

    try:
        with replacing_in(output, parents=True) as make:
            with progress(quiet) as told:
                for table, frame in _whole(files, chosen, tables, told):
                    write(table, [frame], make)
            for table in (table for table in tables if table in _STREAMED):
                with progress(quiet) as told:
                    write(table, _STREAMS[table](files, chosen, told), make)
            rows = {str(table): written[table] for table in Table if table in written}
            write("columns", [_columns({table: described[table] for table in rows})], make)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror or error}", 2)
    return rows


def _whole(
    files: list[str], chosen: DecodeOptions, tables: tuple[Table, ...], told: Progress | None
) -> Iterator[tuple[Table, pl.DataFrame]]:
    """Tables that are complete only at the end of the capture; also says when there is no gRPC. Raises NoGrpcError."""
    from ..analyzer.analysis import of_tables
    from ..analyzer.decode.decode import decode
    from ..analyzer.decode.errors import NoGrpcError
    from ..analyzer.summary.figures import why_no_grpc
    from ..reports.tables import rows

    if all(table in (Table.rpcs, Table.packets) for table in tables):
        return
    decoded = decode(files, rpc_rows=False, progress=told, **chosen)
    if not decoded.rpc_count and any(table not in _WITHOUT_GRPC for table in tables):
        raise NoGrpcError(why_no_grpc(decoded))
    of_decoded = {
        Table.connections: rows.connections,
        Table.waits: rows.waits,
        Table.problems: rows.problems,
    }
    yield from ((table, of_decoded[table](decoded)) for table in tables if table in of_decoded)
    if any(table in _ANALYSED for table in tables):
        analysis = of_tables(decoded, *find_sidecar(files))
        of_analysis = {Table.methods: rows.methods, Table.findings: rows.findings, Table.evidence: rows.evidence}
        yield from ((table, of_analysis[table](analysis)) for table in tables if table in of_analysis)


def _rpcs(files: list[str], chosen: DecodeOptions, told: Progress | None) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.rpc_stream import stream_rpcs
    from ..reports.tables import rows

    return map(rows.rpcs_of, stream_rpcs(files, progress=told, **chosen))


def _messages(files: list[str], chosen: DecodeOptions, told: Progress | None) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import stream
    from ..analyzer.tables import Messages
    from ..reports.tables import rows

    return map(rows.messages, stream(Messages, files, progress=told, **chosen))


def _frames(files: list[str], chosen: DecodeOptions, told: Progress | None) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import stream
    from ..analyzer.tables import Frames
    from ..reports.tables import rows

    return map(rows.frames, stream(Frames, files, progress=told, **chosen))


def _packets(files: list[str], chosen: DecodeOptions, told: Progress | None) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import stream
    from ..analyzer.tables import Packets
    from ..reports.tables import rows

    return map(rows.packets, stream(Packets, files, progress=told, **chosen))


_STREAMS: dict[Table, Callable[[list[str], DecodeOptions, Progress | None], Iterable[pl.DataFrame]]] = {
    Table.rpcs: _rpcs,
    Table.messages: _messages,
    Table.frames: _frames,
    Table.packets: _packets,
}


def _columns(described: dict[str, list[str]]) -> pl.DataFrame:
    """What the columns that were written mean."""
    import polars as pl

    from ..reports.tables.columns import columns

    told = [(table, *column) for table, names in described.items() for column in columns(table, names)]
    return pl.DataFrame(told, schema=dict.fromkeys(("table", "column", "unit", "description"), pl.String), orient="row")
