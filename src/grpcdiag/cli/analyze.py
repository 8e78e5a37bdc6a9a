"""`grpcdiag analyze`: the main job."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .beside import recorded_beside
from .common import (
    NO_GRPC,
    Files,
    KeyLog,
    Output,
    Ports,
    Quiet,
    decoding,
    fail,
    how,
    progress,
    wants_colour,
    write,
)

if TYPE_CHECKING:
    from ..analyzer.reading import How, Progress
    from ..analyzer.result import Analysis

NAME = "analyze"

FAIL_ON = 1
"""Exit code: `--fail-on` is met."""


class Format(StrEnum):
    """Report formats."""

    terminal = "terminal"
    json = "json"


class Severity(StrEnum):
    """Severities, from harmless to grave."""

    info = "info"
    warning = "warning"
    critical = "critical"


def command(
    files: Files,
    format_: Annotated[Format, typer.Option("--format", help="How to report.")] = Format.terminal,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    output: Output = None,
    fail_on: Annotated[
        Severity | None, typer.Option("--fail-on", help="Exit with 1 when a finding is at least this severe.")
    ] = None,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Say where the time of the RPCs went, why, which packets prove it, and which knob fixes it."""
    with decoding(), progress(quiet) as told:
        analysis, without_grpc = _told(files, how(port, keylog), told)
    if as_json or format_ is Format.json:
        from ..reports import json_v1

        write(json_v1.render(analysis), output)
    else:
        from ..reports import terminal

        to_terminal = output is None and sys.stdout.isatty()
        width = shutil.get_terminal_size((100, 24)).columns if to_terminal else 100
        write(terminal.render(analysis, width=width, colour=to_terminal and wants_colour()), output)
    if without_grpc:
        fail(f"no gRPC traffic found: {without_grpc}", NO_GRPC)
    if fail_on and _has(analysis, fail_on.value):
        raise typer.Exit(FAIL_ON)


def _told(files: list[str], chosen: How, told: Progress | None) -> tuple[Analysis, str | None]:
    """The analysis, and why it is of no gRPC if that is so: TLS without secrets. Raises NoGrpcError without either."""
    from ..analyzer.errors import NoGrpcError

    try:
        return _analysis(files, chosen, told), None
    except NoGrpcError as error:
        if error.analysis is None:
            raise
        read = "the connections that offer HTTP/2 are TLS, for which there are no secrets"
        return error.analysis, f"{read}; what shows all the same is in the report"


def _analysis(files: list[str], chosen: How, told: Progress | None) -> Analysis:
    if len(files) > 1:
        from ..analyzer.ends import analyze_files

        return analyze_files(files, described=recorded_beside, progress=told, **chosen)
    from ..analyzer.reading import Reading

    reading = Reading(files, **chosen)
    # numpy and the rest are imported while the core reads
    from ..analyzer.analysis import of_tables
    from ..analyzer.tables import tables_of

    beside, notes = recorded_beside(files)
    return of_tables(tables_of(reading.finish(told)), beside, notes)


def _has(analysis: Analysis, severity: str) -> bool:
    from ..analyzer.result import SEVERITIES

    grave = [str(name) for name in SEVERITIES]
    grave = grave[grave.index(severity) :]
    analyses = [analysis, *(analysis.apart.others if analysis.apart else ())]
    return any(finding.severity in grave for one in analyses for finding in one.findings)
