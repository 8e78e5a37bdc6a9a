"""`grpcdiag compare`: compare the same work in two or more captures."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import scratch
from .support.common import UNREADABLE, decoding, fail, how, progress, refuse_own_input, write
from .support.completion import severities
from .support.config import announce, hide_methods
from .support.gate import end_if_met, parse_rules
from .support.options import Color, Output, Quiet, ReadOptions
from .support.sidecar import find_sidecar
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.model.analysis import Analysis
    from ..reports.compare.comparison import Comparison

WRONG_USAGE = 2
"""Exit code: fewer than two captures, or an invalid rule."""
DOCUMENT_BYTES = 256 << 20
"""Largest saved document: analyses have some ten thousand bytes, and more for each connection and method."""


Format = StrEnum("Format", ["terminal", "json", "markdown", "html", "sarif", "junit"])
"""Report formats."""


def command(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]",
            help="Captures, or files written by analyze --json; all others are compared with the first. "
            "- for standard input. For rotated files, run analyze --json first.",
        ),
    ],
    format_: Annotated[Format, typer.Option("--format", help="Format of the report.")] = Format.terminal,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    output: Output = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            autocompletion=severities,
            help="Exit with 1 if a capture is worse than the first; repeatable. "
            "p99:1.2 or p99:1.2+5ms (also p50, p90, latency), throughput:1.2, packets:1.2, control:1.2 (per message), "
            "connections:1.2: worse by that factor; errors:0.01: 1% more RPCs fail; warning or finding:ID: a finding "
            "that severe, or that finding, appears or grows. Limits without a baseline: see analyze --fail-on.",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="One more capture of the same program as A; repeatable. Only what differs from all of them counts.",
        ),
    ] = None,
    *,
    read: ReadOptions,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Compare the same work in two captures: what differs, by how much, and why. With three or more: how it scales."""
    named = [*captures, *(baseline or [])]
    refuse_own_input(output, named)
    if len(captures) < 2:
        fail("compare needs two or more captures", WRONG_USAGE)
    if named.count("-") > 1:
        fail("standard input can be only one of the captures", WRONG_USAGE)
    rules = parse_rules(fail_on or [], baseline=True)
    chosen_format = Format.json if as_json else format_
    if chosen_format in (Format.sarif, Format.junit) and not rules:
        fail(f"--format {chosen_format} reports the rules of --fail-on: give one", WRONG_USAGE)
    from ..reports.compare.comparison import compare

    reading = how(named, read)
    announce(quiet=quiet)
    analyses = [_load(capture, reading, quiet) for capture in named]
    found = compare(analyses[: len(captures)], rules, analyses[len(captures) :])
    write(_render(found, chosen_format, output), output)
    end_if_met(found.outcomes, quiet=quiet, several=True)


def _render(found: Comparison, format_: Format, output: Path | None) -> str:
    if format_ is Format.json:
        from ..reports.compare import json

        return json.render(found)
    if format_ is Format.markdown:
        from ..reports.compare import markdown

        return markdown.render(found)
    if format_ is Format.html:
        from ..reports.compare import html

        return html.render(found)
    if format_ in (Format.sarif, Format.junit):
        from .formats.ci import render_comparison

        return render_comparison(found, junit=format_ is Format.junit)
    from ..reports.compare import terminal

    return terminal.render(found, width=columns(output), colour=coloured(output))


def _load(capture: str, reading: DecodeOptions, quiet: bool) -> Analysis:
    """Load a saved analysis, or analyze a capture."""
    from ..reports import analysis_json

    with scratch("grpcdiag-") as folder:
        path = capture
        if capture == "-" or Path(capture).is_fifo():  # it is opened twice, but a pipe can be read only once
            path = str(folder / "piped")
            _spool(capture, Path(path))
        try:
            saved = _read_saved(path)
            if saved is None:
                return _analyze(path, capture, reading, quiet)
            analysis = hide_methods(analysis_json.read(saved))
        except analysis_json.DocumentError as error:
            fail(f"{capture}: not an analysis that grpcdiag wrote: {error}", UNREADABLE)
    if analysis.narrowed:  # its packets are of all RPCs, its messages of some
        fail(f"{capture}: it covers selected RPCs only: save the analysis of the whole capture", UNREADABLE)
    return analysis


def _spool(pipe: str, path: Path) -> None:
    with ExitStack() as opened:
        source = sys.stdin.buffer if pipe == "-" else opened.enter_context(Path(pipe).open("rb"))
        shutil.copyfileobj(source, opened.enter_context(path.open("wb")))


def _read_saved(path: str) -> bytes | None:
    """Read a file that begins with the first character of a JSON object, as no capture does; None for other files."""
    try:
        with Path(path).open("rb") as file:
            if not file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").startswith(b"{"):
                return None
            file.seek(0)
            text = file.read(DOCUMENT_BYTES + 1)
    except OSError:
        return None  # reading it as a capture reports the error
    if len(text) > DOCUMENT_BYTES:
        fail(f"{path}: larger than {DOCUMENT_BYTES >> 20} MiB, the limit for a saved analysis", UNREADABLE)
    return text.removeprefix(b"\xef\xbb\xbf")


def _analyze(path: str, name: str, reading: DecodeOptions, quiet: bool) -> Analysis:
    from msgspec.structs import replace

    from ..analyzer.analysis import of_capture
    from ..analyzer.decode.decode import decode

    with decoding(), progress(quiet) as report_progress:
        tables = decode([path], rpc_rows=False, progress=report_progress, **reading)
        analysis = of_capture([path], tables, *find_sidecar([name]), report_progress, **reading)
    return hide_methods(replace(analysis, files=(name,)))
