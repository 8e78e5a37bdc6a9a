"""Write the Perfetto trace of `grpcdiag analyze --format perfetto` piece by piece."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.common import decoding, fail, one_place, progress, say, write_pieces
from ..support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions
    from ...analyzer.model.analysis import Analysis
    from ...analyzer.views.trace_data import TraceData

LARGE_BYTES = 500_000_000
"""From this size the browser's memory may be too small."""


def write_trace(files: list[str], chosen: DecodeOptions, output: Path | None, quiet: bool) -> Analysis:
    """Analyze a capture, write it as a Perfetto trace and return the analysis; exit with 2 if that is impossible."""
    if output == Path("-"):
        output = None
    if output is None and sys.stdout.isatty():
        fail(f"a Perfetto trace is binary: name a file, -o {_suggest_name(files)}, or pipe it into one", 2)
    try:
        from ...reports.perfetto import document
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in ("perfetto", "google"):
            raise
        fail("--format perfetto needs the perfetto package: pip install 'grpcdiag[perfetto]'", 2)
    analysis, read = _read(files, chosen, quiet)
    size = write_pieces(document.render(analysis, read), output)
    if output is not None and not quiet:
        say(f"{output}: {_describe(size)}")
    return analysis


def _suggest_name(files: list[str]) -> str:
    name = "run" if files[0] == "-" else Path(files[0]).name.split(".")[0] or "run"
    return f"{name}.pftrace"


def _describe(size: int) -> str:
    from ...analyzer.model.text import size as shown

    where = "open it at https://ui.perfetto.dev"
    if size > LARGE_BYTES:
        where += " with `trace_processor_shell --httpd` running, because the browser's memory may be too small"
    return f"{shown(size)}, {where}"


def _read(files: list[str], chosen: DecodeOptions, quiet: bool) -> tuple[Analysis, TraceData]:
    from ...analyzer.analysis import add_processes, of_tables
    from ...analyzer.views.trace_data import read_trace_data

    with decoding(), progress(quiet) as report_progress:
        one_place(files, chosen)
        read = read_trace_data(files, progress=report_progress, **chosen)
        sidecar, notes = find_sidecar(files)
        if sidecar is not None and sidecar.processes is not None:
            tables, notes = add_processes(files, read.tables, sidecar, notes, report_progress, **chosen)
            read = replace(read, tables=tables)
        analysis = of_tables(read.tables, sidecar, notes)
    if sidecar is not None and analysis.recording is not None:
        from ...analyzer.sidecar.read import apply_sidecar

        read = replace(read, tables=apply_sidecar(read.tables, sidecar)[1])
    return analysis, read
