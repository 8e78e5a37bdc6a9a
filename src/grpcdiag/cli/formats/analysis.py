"""What `grpcdiag analyze` does with one capture. Without options that need it, typer is not imported."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from ...ahead import begun
from ..support.common import decoding, fail_without_rpcs, has_content, how, progress, write
from ..support.config import announce, hide_methods
from ..support.measured import Records, add_client
from ..support.sidecar import find_sidecar
from ..support.terminal import coloured, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
    reading = begun(files, chosen) or Reading(files, rpc_rows=bool(records), **chosen)
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


def analyze_plainly(arguments: Sequence[str]) -> None:
    """Run `grpcdiag analyze` with one file and options that `ahead` knows, as the command does without others."""
    files = [argument for argument in arguments if not argument.startswith("-")]
    quiet = not {"-q", "--quiet"}.isdisjoint(arguments)
    format_ = Format.json if "--json" in arguments else Format.terminal
    options = how(files, None, None)
    announce(quiet=quiet)
    report = partial(report_analysis, format_=format_, output=None, top=None, details=False, rules=[])
    with decoding(), progress(quiet) as report_progress:

        def analyse(files: list[str], chosen: DecodeOptions, report_progress: Progress | None) -> Analysis:
            return hide_methods(analyze_capture(files, chosen, report_progress))

        analysis = analyze_whole(files, options, report_progress, report, format_, analyse)
    report(analysis)
