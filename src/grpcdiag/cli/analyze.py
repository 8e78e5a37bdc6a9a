"""`grpcdiag analyze`: the main job."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .beside import recorded_beside
from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress, wants_colour, write

if TYPE_CHECKING:
    from pathlib import Path

    from ..analyzer.reading import How, Progress
    from ..analyzer.result import Analysis

NAME = "analyze"

FAIL_ON = 1
"""Exit code: `--fail-on` is met."""


class Format(StrEnum):
    """Report formats."""

    terminal = "terminal"
    json = "json"
    perfetto = "perfetto"


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
    if format_ is Format.perfetto and not as_json:
        from .trace import write_trace

        analysis = write_trace(files, how(port, keylog), output, quiet)
    else:
        with decoding(), progress(quiet) as told:
            analysis = _analysis(files, how(port, keylog), told)
        _report(analysis, Format.json if as_json else format_, output)
    if fail_on and _has(analysis, fail_on.value):
        raise typer.Exit(FAIL_ON)


def _report(analysis: Analysis, format_: Format, output: Path | None) -> None:
    if format_ is Format.json:
        from ..reports import json_v1

        write(json_v1.render(analysis), output)
    else:
        from ..reports import terminal

        to_terminal = output is None and sys.stdout.isatty()
        width = shutil.get_terminal_size((100, 24)).columns if to_terminal else 100
        write(terminal.render(analysis, width=width, colour=to_terminal and wants_colour()), output)


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
