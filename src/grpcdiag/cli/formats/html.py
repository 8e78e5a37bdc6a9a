"""Write the HTML report of `analyze`, which reads the capture again for its timeline."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.common import decoding, fail, fail_without_rpcs, has_content, progress, spooled, write
from ..support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions, Progress
    from ...analyzer.model.analysis import Analysis
    from ...analyzer.tables import Processes, Tables
    from ...analyzer.views.sampling import Overview

STANDARD_INPUT = "-"
_NAMED = "standard input"

Analyse = Callable[[list[str], "DecodeOptions", "Progress | None"], "Analysis"]


def write_page(
    files: list[str],
    chosen: DecodeOptions,
    output: Path | None,
    quiet: bool,
    analyse: Analyse,
    overviews: Sequence[Overview],
) -> Analysis:
    """Write the page and return its analysis. Without RPCs the page has what the connections show; the command ends.

    `overviews` has what was read for the analysis, once it is made, if that was one capture.
    """
    if output is None and sys.stdout.isatty():
        fail("an HTML report cannot be shown in a terminal: name a file with -o", 2)
    with spooled(files) as paths, decoding():
        from ...analyzer.decode.errors import NoGrpcError
        from ...analyzer.views.page_data import collect_page_data
        from ...reports import html

        prepared = threading.Thread(target=html.prepare, daemon=True)
        prepared.start()  # while the core reads the capture
        error = None
        with progress(quiet) as report_progress:
            try:
                analysis = analyse(paths, chosen, report_progress)
            except NoGrpcError as raised:
                if not has_content(raised.analysis):
                    raise
                analysis, error = raised.analysis, raised
        drawn = list(analysis.ends.client.files if analysis.ends else analysis.files)
        with progress(quiet) as report_progress:
            join = partial(_join_threads, files, chosen) if analysis.processes else None
            seen = overviews[0] if overviews else None
            rows = collect_page_data(drawn, analysis, progress=report_progress, join=join, overview=seen, **chosen)
        analysis = _restore_names(analysis, files, paths)
    prepared.join()
    write(html.render(analysis, rows), output)
    if error:
        fail_without_rpcs(error)
    return analysis


def _join_threads(files: list[str], chosen: DecodeOptions, tables: Tables) -> Processes | None:
    """Join the record of threads with the rows that were read again."""
    from ...analyzer.analysis import add_processes

    sidecar, notes = find_sidecar(files)
    if sidecar is None or sidecar.processes is None:
        return None
    return add_processes(files, tables, sidecar, notes, None, **chosen)[0].processes


def _restore_names(analysis: Analysis, files: list[str], paths: list[str]) -> Analysis:
    """Replace the path of the temporary copy by the name that the user gave."""
    if files == paths:
        return analysis
    from msgspec.structs import replace

    kept = next(path for file, path in zip(files, paths, strict=True) if file == STANDARD_INPUT)
    return replace(
        analysis,
        files=tuple(_NAMED if name == kept else name for name in analysis.files),
        quality=replace(analysis.quality, warnings=tuple(w.replace(kept, _NAMED) for w in analysis.quality.warnings)),
    )
