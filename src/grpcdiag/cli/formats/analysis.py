"""What `grpcdiag analyze` does with one capture."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ..support.common import fail_without_rpcs, has_content, write
from ..support.measured import Records, add_client
from ..support.sidecar import find_sidecar
from ..support.terminal import coloured, columns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...analyzer.decode.runner import DecodeOptions, Progress
    from ...analyzer.model.analysis import Analysis
    from ...analyzer.views.sampling import Overview
    from ...reports.compare.rules import Rule
    from .html import Analyse


class Format(StrEnum):
    """Report formats."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"
    html = "html"
    perfetto = "perfetto"
    openmetrics = "openmetrics"
    sarif = "sarif"
    junit = "junit"


FOR_CI = (Format.sarif, Format.junit)


def analyze_whole(
    files: list[str],
    chosen: DecodeOptions,
    report_progress: Progress | None,
    report: Callable[[Analysis], None],
    format_: Format,
    analyse: Analyse,
) -> Analysis:
    """Analyze the capture. Without RPCs report what its connections show, and end the command."""
    from ...analyzer.decode.errors import NoGrpcError

    try:
        return analyse(files, chosen, report_progress)
    except NoGrpcError as error:
        seen = error.analysis
        shown = format_ in (Format.json, *FOR_CI) or (format_ is Format.terminal and has_content(seen))
        if seen is None or not shown:
            raise
        report(seen)
        fail_without_rpcs(error)


def report_analysis(
    analysis: Analysis, format_: Format, output: Path | None, top: int | None, *, details: bool, rules: list[Rule]
) -> None:
    """Write the report of an analysis in this format."""
    if format_ is Format.json:
        from ...reports import analysis_json

        write(analysis_json.render_pieces(analysis), output)
    elif format_ is Format.markdown:
        from ...analyzer import _core
        from ...reports import markdown

        write(markdown.render(analysis, version=_core.__version__), output)
    elif format_ is Format.openmetrics:
        from ...reports import openmetrics

        write(openmetrics.render(analysis), output)
    elif format_ in FOR_CI:
        from .ci import render_analysis

        write(render_analysis(analysis, rules, junit=format_ is Format.junit), output)
    else:
        from ...reports import terminal

        width, colour = columns(output), coloured(output)
        if details or top or output or analysis.apart:
            write(terminal.render(analysis, width=width, colour=colour, top=top), output)
        else:
            write(terminal.render_screen(analysis, width=width, colour=colour), output)


def analyze_capture(
    files: list[str],
    chosen: DecodeOptions,
    report_progress: Progress | None,
    records: Records = (),
    overviews: list[Overview] | None = None,
) -> Analysis:
    """Analyze the files of one capture, with what clients measured. Raises CaptureError, NoGrpcError.

    What a drawing of the same capture needs is added to `overviews`, if it is asked for.
    """
    from ...analyzer.decode.runner import Reading

    if overviews is not None and not records:
        from ...analyzer.analysis import of_capture
        from ...analyzer.views.sampling import read_overview

        overviews.append(read_overview(files, report_progress, **chosen))
        return of_capture(files, overviews[0].examples, *find_sidecar(files), report_progress, **chosen)
    reading = Reading(files, rpc_rows=bool(records), **chosen)
    # numpy and other libraries are imported while the core reads the capture
    from ...analyzer.analysis import of_capture
    from ...analyzer.decode.errors import NoGrpcError
    from ...analyzer.tables import tables_of

    sidecar, notes = find_sidecar(files)
    tables = tables_of(reading.finish(report_progress))
    try:
        return add_client(of_capture(files, tables, sidecar, notes, report_progress, **chosen), tables, records)
    except NoGrpcError as error:
        if error.analysis is not None:
            error.analysis = add_client(error.analysis, tables, records)
        raise
