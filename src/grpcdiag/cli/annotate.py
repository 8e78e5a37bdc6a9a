"""`grpcdiag annotate`: write a capture with the findings as packet comments."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing, replacing_in
from .support.common import NO_GRPC, decoding, fail, how, one_place, progress, refuse_own_input, say, spooled, writing
from .support.options import Files, Quiet, ReadOptions
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ..analyzer.decode.annotate import Annotating
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.model.analysis import Analysis
    from ..analyzer.tables import Tables

PROFILE = ("colorfilters", "dfilter_buttons", "preferences")
"""Files of the Wireshark profile."""

Written = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File for the annotated capture.")]


def command(
    files: Files,
    output: Written,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", metavar="DIR", help="Also write a Wireshark profile there: colours, buttons, columns."
        ),
    ] = None,
    *,
    read: ReadOptions,
    quiet: Quiet = False,
) -> None:
    """Write a capture as pcapng with grpcdiag's findings as packet comments, for Wireshark.

    Packets, times, interfaces, secrets and other comments stay as they are. The display filter
    frame.comment contains "grpcdiag" lists the comments.
    """
    chosen = how(files, read)
    with spooled(files) as paths, decoding():
        one_place(paths, chosen)
        refuse_own_input(output, paths)
        analysis, tables, why = _analyze(paths, chosen, quiet)
        with writing(output), replacing(output) as out:
            written = _write(paths, analysis, tables, out, quiet)
    if profile:
        _write_profile(profile)
    if not quiet:
        say(
            "\n  ".join(
                [
                    f"{output}: {written.packets:,} packets, {written.commented:,} with comments",
                    *_notes(tables, written),
                ]
            )
        )
    if why:
        fail(f"no gRPC traffic found: {why}", NO_GRPC)


def _analyze(paths: list[str], chosen: DecodeOptions, quiet: bool) -> tuple[Analysis, Tables, str]:
    """Analyze the capture. Without gRPC give what its connections show, and why there is none. Raises NoGrpcError."""
    from ..analyzer.analysis import of_capture
    from ..analyzer.decode.decode import decode
    from ..analyzer.decode.errors import NoGrpcError

    with progress(quiet) as report_progress:
        tables = decode(paths, rpc_rows=False, progress=report_progress, **chosen)
        try:
            return of_capture(paths, tables, *find_sidecar(paths), report_progress, **chosen), tables, ""
        except NoGrpcError as error:
            if error.analysis is None or not error.analysis.findings:
                raise
            return error.analysis, tables, str(error)


def _write(paths: list[str], analysis: Analysis, tables: Tables, out: IO[bytes], quiet: bool) -> Annotating:
    """Write the annotated capture. Raises CaptureError and OSError."""
    from ..analyzer.decode.annotate import Annotating
    from ..reports.wireshark.comments import list_comments

    annotating = Annotating(paths, list_comments(analysis, tables))
    with progress(quiet) as report_progress:
        for piece in annotating.pieces(report_progress):
            out.write(piece)
    return annotating


def _notes(tables: Tables, written: Annotating) -> list[str]:
    from ..reports.wireshark.comments import count_uncommented

    notes = []
    if more := count_uncommented(tables):
        notes.append(f"{more:,} shorter blocked intervals have no comments")
    if written.without_room:
        notes.append(f"{written.without_room:,} packets have no room for comments (Simple Packet Blocks)")
    if tables.capture["damage"]:
        notes.append("damaged parts of the capture are left out: grpcdiag analyze lists them")
    return notes


def _write_profile(folder: Path) -> None:
    source = resources.files("grpcdiag.reports.wireshark") / "profile"
    with writing(folder), replacing_in(folder, parents=True) as make:
        for name in PROFILE:
            with make(name) as out:
                out.write((source / name).read_bytes())
