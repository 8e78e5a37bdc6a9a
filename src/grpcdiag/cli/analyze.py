"""`grpcdiag analyze`: the main job."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..ahead import begun
from .support.common import (
    NO_GRPC,
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
    progress,
    write,
)
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from pathlib import Path

    from ..analyzer.decode.runner import DecodeOptions, Progress
    from ..analyzer.model.analysis import Analysis
    from ..analyzer.selection.selection import Selection

NAME = "analyze"

FAIL_ON = 1
"""Exit code: `--fail-on` is met."""


class Format(StrEnum):
    """Report formats."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"
    html = "html"
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
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Findings, methods and connections shown in the text.")
    ] = None,
    connection: Annotated[
        list[int] | None,
        typer.Option("--connection", "-c", min=0, help="Judge the RPCs of this connection; may be given again."),
    ] = None,
    method: Method = None,
    from_: From = None,
    to: To = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Say where the time of the RPCs went, why, which packets prove it, and which knob fixes it.

    --connection, --method, --from and --to judge a part of the RPCs, those that begin in the time.
    """
    one_after_the_other(from_, to)
    narrowed = bool(connection) or method is not None or from_ is not None or to is not None
    chosen_format = Format.json if as_json else format_
    if chosen_format in (Format.html, Format.perfetto):
        if narrowed:
            fail(
                f"--format {chosen_format} shows whole captures: without --connection, --method, --from, --to",
                2,
            )
        analysis = _drawn(files, how(port, keylog, memory), chosen_format, output, quiet)
    else:
        with decoding(), progress(quiet) as told:
            if narrowed:
                from ..analyzer.selection.selection import Selection

                chosen = Selection(tuple(sorted(set(connection or ()))), method, from_, to)
                analysis = _part(files, chosen, how(port, keylog, memory), told)
            else:
                analysis = _read(files, how(port, keylog, memory), told, chosen_format, output)
        _report(analysis, chosen_format, output, top)
    if fail_on and _has(analysis, fail_on.value):
        raise typer.Exit(FAIL_ON)


def _read(
    files: list[str], chosen: DecodeOptions, told: Progress | None, format_: Format, output: Path | None
) -> Analysis:
    """The analysis. Without gRPC, what TLS without secrets shows is reported all the same, and the command ends."""
    from ..analyzer.decode.errors import NoGrpcError

    try:
        return _analysis(files, chosen, told)
    except NoGrpcError as error:
        if error.analysis is None or format_ not in (Format.terminal, Format.json):
            raise
        _report(error.analysis, format_, output, None)
        text = "the connections that offer HTTP/2 are TLS, for which there are no secrets; what shows all the same is "
        fail(f"no gRPC traffic found: {text}in the report", NO_GRPC)


def _drawn(files: list[str], chosen: DecodeOptions, format_: Format, output: Path | None, quiet: bool) -> Analysis:
    """Write a report that shows packets against time and give the analysis."""
    if format_ is Format.perfetto:
        from .formats.trace import write_trace

        return write_trace(files, chosen, output, quiet)
    from .formats import html

    return html.write_page(files, chosen, output, quiet, _analysis)


def _report(analysis: Analysis, format_: Format, output: Path | None, top: int | None) -> None:
    if format_ is Format.json:
        from ..reports import analysis_json

        write(analysis_json.render_pieces(analysis), output)
    elif format_ is Format.markdown:
        from ..analyzer import _core
        from ..reports import markdown

        write(markdown.render(analysis, version=_core.__version__), output)
    else:
        from ..reports import terminal

        write(terminal.render(analysis, width=columns(output), colour=coloured(output), top=top), output)


def _analysis(files: list[str], chosen: DecodeOptions, told: Progress | None) -> Analysis:
    if len(files) > 1:
        from ..analyzer.two_captures import analyze_files

        return analyze_files(files, described=find_sidecar, progress=told, **chosen)
    from ..analyzer.decode.runner import Reading

    reading = begun(files, chosen) or Reading(files, **chosen)
    # numpy and the rest are imported while the core reads
    from ..analyzer.analysis import of_tables
    from ..analyzer.tables import tables_of

    sidecar, notes = find_sidecar(files)
    return of_tables(tables_of(reading.finish(told)), sidecar, notes)


def _part(files: list[str], chosen: Selection, how: DecodeOptions, told: Progress | None) -> Analysis:
    """The analysis of some of the RPCs; exits with 2 when there are none."""
    from ..analyzer.analysis import of_part
    from ..analyzer.decode.errors import NarrowError
    from ..analyzer.selection import narrow
    from ..analyzer.two_captures import vantages

    if len(files) > 1:
        places = vantages(files, **how)
        if len(places) > 1:
            names = " and ".join(place[0] for place in places[:2])
            fail(f"{names} are captures of the same connections at two places: a part of the RPCs is judged in one", 2)
    try:
        return of_part(narrow.read(files, chosen, told, **how), chosen, *find_sidecar(files))
    except NarrowError as error:
        fail(str(error), 2)


def _has(analysis: Analysis, severity: str) -> bool:
    from ..analyzer.model.finding import SEVERITIES

    grave = [str(name) for name in SEVERITIES]
    grave = grave[grave.index(severity) :]
    analyses = [analysis, *(analysis.apart.analyses if analysis.apart else ())]
    return any(finding.severity in grave for one in analyses for finding in one.findings)
