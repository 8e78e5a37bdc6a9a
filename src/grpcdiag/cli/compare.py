"""`grpcdiag compare`: the same work in two or more captures side by side."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import scratch
from .support.common import (
    UNREADABLE,
    KeyLog,
    Memory,
    Output,
    Ports,
    Quiet,
    coloured,
    columns,
    decoding,
    fail,
    how,
    progress,
    say,
    write,
)
from .support.completion import severities
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.model.analysis import Analysis
    from ..reports.compare.regression import Rule

NAME = "compare"

REGRESSED = 1
"""Exit code: `--fail-on` is met."""
WRONG_USAGE = 2
"""Exit code: fewer than two captures, or a rule that cannot be read."""
DOCUMENT_BYTES = 256 << 20
"""Bytes of a saved document that are read: analyses have some ten thousand, and more per connection and method."""


def command(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]",
            help="Captures, or what analyze --json wrote of them; the others are held against the first. "
            "- for standard input. Of rotated files analyze --json makes one.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
    output: Output = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            autocompletion=severities,
            help="Exit with 1 when a capture is worse than the first, as often as wanted. "
            "latency:1.2 (also p50, p90, p99), throughput:1.2, packets:1.2, control:1.2 (per message): worse by that "
            "factor; errors:0.01: 1% more RPCs fail; warning or finding:warning: a finding that severe appears or "
            "grows; finding:ID: that one does.",
        ),
    ] = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Compare the same work in two captures: what differs, how much, why. With three or more: how it scales."""
    if len(captures) < 2:
        fail("compare needs two captures or more", WRONG_USAGE)
    if captures.count("-") > 1:
        fail("standard input can be only one of the captures", WRONG_USAGE)
    rules = _rules(fail_on or [])
    from ..reports.compare.comparison import compare

    reading = how(port, keylog, memory)
    found = compare([_document(capture, reading, quiet) for capture in captures], rules)
    if as_json:
        from ..reports.compare import json

        write(json.render(found), output)
    else:
        from ..reports.compare import terminal

        write(terminal.render(found, width=columns(output), colour=coloured(output)), output)
    met = [outcome for outcome in found.outcomes if outcome.met]
    if met:
        if not quiet:
            for outcome in met:
                say(f"--fail-on {outcome.rule}: {outcome.run}: {outcome.text}")
        raise typer.Exit(REGRESSED)


def _rules(texts: list[str]) -> list[Rule]:
    from ..analyzer.detectors import DETECTORS
    from ..reports.compare.regression import RuleError, parse

    try:
        return [parse(text, [detector.id for detector in DETECTORS]) for text in texts]
    except RuleError as error:
        fail(f"--fail-on {error}", WRONG_USAGE)


def _document(capture: str, reading: DecodeOptions, quiet: bool) -> Analysis:
    """One of the captures: read as it was saved, or analysed."""
    from ..reports import analysis_json

    with scratch("grpcdiag-") as folder:
        path = capture
        if capture == "-" or Path(capture).is_fifo():  # looked at before it is read, which a pipe allows once
            path = str(folder / "piped")
            _spool(capture, Path(path))
        try:
            saved = _saved_text(path)
            if saved is None:
                return _analyse(path, capture, reading, quiet)
            analysis = analysis_json.read(saved)
        except analysis_json.DocumentError as error:
            fail(f"{capture}: {error}", UNREADABLE)
    if analysis.narrowed:  # its packets are of all RPCs, its messages of some
        fail(f"{capture}: it is about a part of a capture's RPCs: save the whole analysis", UNREADABLE)
    return analysis


def _spool(pipe: str, path: Path) -> None:
    with ExitStack() as opened:
        source = sys.stdin.buffer if pipe == "-" else opened.enter_context(Path(pipe).open("rb"))
        shutil.copyfileobj(source, opened.enter_context(path.open("wb")))


def _saved_text(path: str) -> bytes | None:
    """The text of a file that is JSON by its first character, which no capture begins with; None for all others."""
    try:
        with Path(path).open("rb") as file:
            if not file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").startswith(b"{"):
                return None
            file.seek(0)
            text = file.read(DOCUMENT_BYTES + 1)
    except OSError:
        return None  # reading it as a capture tells why
    if len(text) > DOCUMENT_BYTES:
        fail(f"{path}: larger than {DOCUMENT_BYTES >> 20} MiB, which no analysis is", UNREADABLE)
    return text.removeprefix(b"\xef\xbb\xbf")


def _analyse(path: str, name: str, reading: DecodeOptions, quiet: bool) -> Analysis:
    from msgspec.structs import replace

    from ..analyzer.analysis import of_tables
    from ..analyzer.decode.decode import decode

    with decoding(), progress(quiet) as told:
        tables = decode([path], rpc_rows=False, progress=told, **reading)
        analysis = of_tables(tables, *find_sidecar([name]))
    return replace(analysis, files=(name,))
