"""`grpcdiag export`: write every table to a folder, for SQL and data frames, or RPCs as OpenTelemetry spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing_in
from .support.common import decoding, fail, how, one_place, progress, require_parquet, say, spooled, writing
from .support.options import Files, NamingOptions, Quiet
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions, Progress
    from ..reports.tables.frame import Frame


Format = StrEnum("Format", ["parquet", "csv", "otlp"])
"""File formats."""
Table = StrEnum(
    "Table",
    ["connections", "rpcs", "waits", "problems", "methods", "findings", "evidence", "messages", "frames", "packets"],
)
"""The tables, in the order in which they are written."""


_TOGETHER = (Table.messages, Table.frames, Table.packets)
"""Tables that are written together while the capture is read."""
_ANALYSED = (Table.methods, Table.findings, Table.evidence)
_WITHOUT_GRPC = (Table.connections, Table.waits, Table.problems, Table.packets)
"""Tables that also exist for a capture without gRPC."""


def command(
    files: Files,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="Folder of the tables, created if missing; for otlp a file instead of standard output.",
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", help="Format of the tables; otlp: OpenTelemetry spans, protobuf if PATH ends in .pb or .bin."
        ),
    ] = Format.parquet,
    table: Annotated[list[Table] | None, typer.Option("--table", help="Write only this table; repeatable.")] = None,
    *,
    read: NamingOptions,
    quiet: Quiet = False,
) -> None:
    """Write every table to a folder as Parquet or CSV, with units and meanings of the columns, or RPCs as spans.

    The file named columns has units and meanings; in Parquet the metadata of each column has them too.
    """
    if format_ is Format.otlp:
        if table:
            fail("--format otlp writes spans, not tables: omit --table", 2)
        _export_spans(files, how(files, read), output, quiet)
        return
    if output is None:
        fail("tables need a folder: name one with -o", 2)
    if format_ is Format.parquet:
        require_parquet()
    chosen = tuple(dict.fromkeys(table)) if table else tuple(Table)
    if output.exists() and not output.is_dir():
        fail(f"cannot write {output}: it is not a folder", 2)
    with decoding(), spooled(files) as paths:
        one_place(paths, how(files, read))
        written = _export(paths, how(files, read), output, format_, chosen, quiet)
    if not quiet:
        say(f"{output}: " + ", ".join(f"{name} {rows:,}" for name, rows in written.items()) + " rows")


def _export_spans(files: list[str], chosen: DecodeOptions, output: Path | None, quiet: bool) -> None:
    from .formats.otlp import write_spans

    with decoding(), spooled(files) as paths:
        one_place(paths, chosen)
        write_spans(paths, chosen, output, quiet)


def _export(
    files: list[str], chosen: DecodeOptions, output: Path, format_: Format, tables: tuple[Table, ...], quiet: bool
) -> dict[str, int]:
    """Write the tables and return their numbers of rows; exit with 2 if a file cannot be written."""
    from ..reports.tables.rows import read_together
    from ..reports.tables.writing import TableWriter

    written: dict[str, TableWriter] = {}

    def write_together(
        tables: Sequence[str], pieces: Iterable[dict[str, Frame]], make: Callable[[str], IO[bytes]]
    ) -> None:
        with ExitStack() as opened:
            for table in tables:
                written[table] = TableWriter(format_, opened.enter_context(make(f"{table}.{format_}")), table)
            for together in pieces:
                for table, piece in together.items():
                    written[table].add(piece)
            for table in tables:
                written[table].finish()

    with writing(output), replacing_in(output, parents=True) as make:
        with progress(quiet) as report_progress:
            for table, pieces in _read_whole(files, chosen, tables, report_progress):
                write_together([table], ({table: piece} for piece in pieces), make)
        if together := [table for table in _TOGETHER if table in tables]:
            with progress(quiet) as report_progress:
                write_together(together, read_together(files, together, progress=report_progress, **chosen), make)
        rows = {str(table): written[table].rows for table in Table if table in written}
        described = _describe_columns({table: written[table].names for table in rows})
        write_together(["columns"], [{"columns": described}], make)
    return rows


def _read_whole(
    files: list[str], chosen: DecodeOptions, tables: tuple[Table, ...], report_progress: Progress | None
) -> Iterator[tuple[Table, Iterable[Frame]]]:
    """Read the tables that are complete only at the end of the capture, and RPCs. Raises NoGrpcError without gRPC."""
    from ..analyzer.analysis import of_capture
    from ..analyzer.decode.decode import decode, decode_examples
    from ..analyzer.decode.errors import NoGrpcError
    from ..analyzer.summary.figures import why_no_grpc
    from ..reports.tables import rows

    every = None
    if all(table in (Table.rpcs, Table.packets) for table in tables):
        if Table.rpcs in tables:
            yield Table.rpcs, rows.read_pieces(files, Table.rpcs, progress=report_progress, **chosen)
        return
    if Table.rpcs in tables:
        decoded, every = decode_examples(files, report_progress, **chosen)
    else:
        decoded = decode(files, rpc_rows=False, progress=report_progress, **chosen)
    if not decoded.rpc_count and any(table not in _WITHOUT_GRPC for table in tables):
        raise NoGrpcError(why_no_grpc(decoded))
    of_decoded = {
        Table.connections: rows.connections,
        Table.waits: rows.waits,
        Table.problems: rows.problems,
    }
    yield from ((table, [of_decoded[table](decoded)]) for table in tables if table in of_decoded)
    if every is not None:
        yield Table.rpcs, rows.read_pieces(files, Table.rpcs, decoded=every, progress=report_progress, **chosen)
    if any(table in _ANALYSED for table in tables):
        analysis = of_capture(files, decoded, *find_sidecar(files), report_progress, **chosen)
        of_analysis = {Table.methods: rows.methods, Table.findings: rows.findings, Table.evidence: rows.evidence}
        yield from ((table, [of_analysis[table](analysis)]) for table in tables if table in of_analysis)


def _describe_columns(described: dict[str, list[str]]) -> Frame:
    """Describe the columns that were written."""
    from ..reports.tables.columns import Column, columns
    from ..reports.tables.frame import Frame, number_texts

    rows = [(table, *column) for table, names in described.items() for column in columns(table, names)]
    names = ("table", "column", *Column._fields[1:])
    return Frame({name: number_texts([row[at] for row in rows]) for at, name in enumerate(names)})
