"""`grpcdiag analyze`: find what costs time in a capture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from .formats.analysis import Format, analyze_capture, analyze_whole, report_analysis
from .support.clock import ONE_CLOCK, Clock, ClockChoice
from .support.common import (
    decoding,
    fail,
    how,
    progress,
    refuse_mixed_input,
    refuse_own_input,
)
from .support.config import announce, hide_methods
from .support.gate import FailOn, end_if_met, judge_analysis, parse_rules
from .support.measured import Records, add_client, read_records
from .support.options import (
    Client,
    Color,
    FilesOrStream,
    From,
    Method,
    NamingOptions,
    Output,
    Quiet,
    ShowMessages,
    To,
    Trace,
    one_after_the_other,
)
from .support.sidecar import find_sidecar
from .support.stream import connect_stream
from .support.terminal import When

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..analyzer.decode.runner import DecodeOptions, Progress
    from ..analyzer.model.analysis import Analysis
    from ..analyzer.views.sampling import Overview
    from .formats.html import Analyse

_DRAWN = (Format.html, Format.perfetto)
"""Formats that draw packets of a whole capture."""


class AnalyzeOptions(Struct, frozen=True):
    """What `grpcdiag analyze` reports of which RPCs."""

    files: FilesOrStream
    format_: Annotated[Format, typer.Option("--format", help="Format of the report.")] = Format.terminal
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False
    output: Output = None
    fail_on: FailOn = None
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="Show at most N findings, methods and connections in the text."),
    ] = None
    details: Annotated[
        bool,
        typer.Option("--details", help="Explain all findings, with all packets and remedies. Default: one screen."),
    ] = False
    connection: Annotated[
        list[int] | None,
        typer.Option("--connection", "-c", metavar="N", min=0, help="Select RPCs of this connection; repeatable."),
    ] = None
    method: Method = None
    from_: From = None
    to: To = None
    trace: Trace = None
    client: Client = None
    clock: Clock = None

    @property
    def chosen_format(self) -> Format:
        """Give the format that --json and --format ask for."""
        return Format.json if self.as_json else self.format_

    @property
    def is_narrowed(self) -> bool:
        """Say whether some RPCs are selected."""
        return bool(self.connection) or any(one is not None for one in (self.method, self.trace, self.from_, self.to))


def command(
    options: AnalyzeOptions,
    read: NamingOptions,
    show_messages: ShowMessages = False,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Report what costs time in a capture: time by cause, findings with the packets that show them, and settings.

    --connection, --method, --trace, --from and --to select RPCs; --from and --to by their start time.
    """
    one_after_the_other(options.from_, options.to)
    chosen = how(options.files, read, show_messages=show_messages)
    announce(quiet=quiet)
    _check(options)
    rules = parse_rules(options.fail_on or (), baseline=False)
    files = connect_stream(options.files)
    records = read_records(options.client or ())
    overviews: list[Overview] = []
    format_, output = options.chosen_format, options.output

    def analyse(files: list[str], chosen: DecodeOptions, report_progress: Progress | None) -> Analysis:
        analysis = (
            _analyze_several(files, chosen, report_progress, records, options.clock)
            if len(files) > 1
            else analyze_capture(files, chosen, report_progress, records, overviews if format_ is Format.html else None)
        )
        return hide_methods(analysis)

    report = partial(
        report_analysis,
        format_=format_,
        output=output,
        top=options.top,
        details=options.details or show_messages,
        rules=rules,
    )
    if format_ in _DRAWN:
        analysis = _write_drawing(files, chosen, format_, output, quiet, analyse, overviews)
    else:
        with decoding(), progress(quiet) as report_progress:
            if options.is_narrowed:
                analysis = hide_methods(_analyze_part(files, options, chosen, report_progress))
            else:
                analysis = analyze_whole(files, chosen, report_progress, report, format_, analyse)
        report(analysis)
    if rules:
        end_if_met(judge_analysis(rules, analysis), quiet=quiet, several=analysis.apart is not None)


def _check(options: AnalyzeOptions) -> None:
    """End the command if its options do not go together."""
    format_, narrowed = options.chosen_format, options.is_narrowed
    if options.client and (narrowed or format_ is Format.perfetto):
        fail("--client needs all RPCs: omit --connection, --method, --trace, --from, --to and --format perfetto", 2)
    if options.clock and narrowed:
        fail("--clock needs all RPCs: omit the options that select some", 2)
    if options.clock and len(options.files) < 2:
        fail(ONE_CLOCK, 2)
    refuse_own_input(options.output, options.files)
    refuse_mixed_input(options.files)
    if narrowed and format_ in _DRAWN:
        fail(f"--format {format_} shows whole captures: omit --connection, --method, --trace, --from and --to", 2)


def _write_drawing(
    files: list[str],
    chosen: DecodeOptions,
    format_: Format,
    output: Path | None,
    quiet: bool,
    analyse: Analyse,
    overviews: Sequence[Overview],
) -> Analysis:
    """Write a report that draws packets on a timeline, and return the analysis."""
    if format_ is Format.perfetto:
        from .formats.trace import write_trace

        return write_trace(files, chosen, output, quiet)
    from .formats import html

    return html.write_page(files, chosen, output, quiet, analyse, overviews)


def _analyze_several(
    files: list[str],
    chosen: DecodeOptions,
    report_progress: Progress | None,
    records: Records,
    clock: ClockChoice | None,
) -> Analysis:
    """Analyze several files; for `records` the client's capture is read again, with all RPCs."""
    from ..analyzer.decode.decode import decode
    from ..analyzer.two_captures import analyze_files

    synchronised = clock == ClockChoice.synchronised
    analysis = analyze_files(
        files, described=find_sidecar, synchronised=synchronised, progress=report_progress, **chosen
    )
    if clock and not analysis.ends and not analysis.apart:
        fail(ONE_CLOCK, 2)
    if not records:
        return analysis
    near = analysis.ends.client.files if analysis.ends else analysis.files
    return add_client(analysis, decode(near, progress=report_progress, **chosen), records)


def _analyze_part(
    files: list[str], options: AnalyzeOptions, how: DecodeOptions, report_progress: Progress | None
) -> Analysis:
    """Analyze the selected RPCs; exit with 2 if there are none."""
    from ..analyzer.analysis import of_part
    from ..analyzer.decode.errors import NarrowError
    from ..analyzer.selection import narrow
    from ..analyzer.selection.selection import Selection
    from ..analyzer.two_captures import vantages

    if len(files) > 1:
        places = vantages(files, **how)
        if len(places) > 1:
            names = " and ".join(place[0] for place in places[:2])
            fail(f"{names} are captures of the same connections at two places: RPCs can be selected in one only", 2)
    connections = tuple(sorted(set(options.connection or ())))
    chosen = Selection(connections, options.method, options.from_, options.to, options.trace)
    try:
        seen = narrow.read(files, chosen, report_progress, **how)
        return of_part(files, seen, chosen, *find_sidecar(files), report_progress, **how)
    except NarrowError as error:
        fail(str(error), 2)
