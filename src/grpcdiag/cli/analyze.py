"""`grpcdiag analyze`: find what costs time in a capture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

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
    KeyLog,
    Memory,
    Method,
    Output,
    Ports,
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
    from ..analyzer.selection.selection import Selection
    from ..analyzer.views.sampling import Overview
    from .formats.html import Analyse


def command(
    files: FilesOrStream,
    format_: Annotated[Format, typer.Option("--format", help="Format of the report.")] = Format.terminal,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    output: Output = None,
    fail_on: FailOn = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="Show at most N findings, methods and connections in the text."),
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Explain all findings, with all packets and remedies. Default: one screen."),
    ] = False,
    connection: Annotated[
        list[int] | None,
        typer.Option("--connection", "-c", metavar="N", min=0, help="Select RPCs of this connection; repeatable."),
    ] = None,
    method: Method = None,
    from_: From = None,
    to: To = None,
    trace: Trace = None,
    client: Client = None,
    clock: Clock = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    show_messages: ShowMessages = False,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Report what costs time in a capture: time by cause, findings with the packets that show them, and settings.

    --connection, --method, --trace, --from and --to select RPCs; --from and --to by their start time.
    """
    one_after_the_other(from_, to)
    narrowed = bool(connection) or any(given is not None for given in (method, trace, from_, to))
    chosen_format = Format.json if as_json else format_
    options = how(files, port, keylog, memory, show_messages=show_messages)
    announce(quiet=quiet)
    if client and (narrowed or chosen_format is Format.perfetto):
        fail("--client needs all RPCs: omit --connection, --method, --trace, --from, --to and --format perfetto", 2)
    if clock and (len(files) < 2 or narrowed):
        fail(ONE_CLOCK if not narrowed else "--clock needs all RPCs: omit the options that select some", 2)
    refuse_own_input(output, files)
    refuse_mixed_input(files)
    rules = parse_rules(fail_on or (), baseline=False)
    files = connect_stream(files)
    records = read_records(client or ())
    overviews: list[Overview] = []

    def analyse(files: list[str], chosen: DecodeOptions, report_progress: Progress | None) -> Analysis:
        several, draws = len(files) > 1, chosen_format is Format.html
        analysis = (
            _analyze_several(files, chosen, report_progress, records, clock)
            if several
            else analyze_capture(files, chosen, report_progress, records, overviews if draws else None)
        )
        return hide_methods(analysis)

    report = partial(
        report_analysis, format_=chosen_format, output=output, top=top, details=details or show_messages, rules=rules
    )
    if chosen_format in (Format.html, Format.perfetto):
        if narrowed:
            fail(
                f"--format {chosen_format} shows whole captures: omit --connection, --method, --trace, --from and --to",
                2,
            )
        analysis = _write_drawing(files, options, chosen_format, output, quiet, analyse, overviews)
    else:
        with decoding(), progress(quiet) as report_progress:
            if narrowed:
                from ..analyzer.selection.selection import Selection

                chosen = Selection(tuple(sorted(set(connection or ()))), method, from_, to, trace)
                analysis = hide_methods(_analyze_part(files, chosen, options, report_progress))
            else:
                analysis = analyze_whole(files, options, report_progress, report, chosen_format, analyse)
        report(analysis)
    if rules:
        end_if_met(judge_analysis(rules, analysis), quiet=quiet, several=analysis.apart is not None)


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
    files: list[str], chosen: Selection, how: DecodeOptions, report_progress: Progress | None
) -> Analysis:
    """Analyze the selected RPCs; exit with 2 if there are none."""
    from ..analyzer.analysis import of_part
    from ..analyzer.decode.errors import NarrowError
    from ..analyzer.selection import narrow
    from ..analyzer.two_captures import vantages

    if len(files) > 1:
        places = vantages(files, **how)
        if len(places) > 1:
            names = " and ".join(place[0] for place in places[:2])
            fail(f"{names} are captures of the same connections at two places: RPCs can be selected in one only", 2)
    try:
        seen = narrow.read(files, chosen, report_progress, **how)
        return of_part(files, seen, chosen, *find_sidecar(files), report_progress, **how)
    except NarrowError as error:
        fail(str(error), 2)
