"""The HTML report of `analyze`: the capture is read again for what is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.common import decoding, fail, progress, spooled, write

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions, Progress
    from ...analyzer.model.analysis import Analysis

STANDARD_INPUT = "-"
_NAMED = "standard input"

Analyse = Callable[[list[str], "DecodeOptions", "Progress | None"], "Analysis"]


def write_page(files: list[str], chosen: DecodeOptions, output: Path | None, quiet: bool, analyse: Analyse) -> Analysis:
    """Write the page and give the analysis it is about."""
    if output is None and sys.stdout.isatty():
        fail("an HTML report is nothing for a terminal: name a file with -o", 2)
    with spooled(files) as paths, decoding():
        from ...analyzer.views.page_data import collect_page_data

        with progress(quiet) as told:
            analysis = analyse(paths, chosen, told)
        drawn = list(analysis.ends.client.files if analysis.ends else analysis.files)
        with progress(quiet) as told:
            rows = collect_page_data(drawn, analysis, progress=told, **chosen)
        analysis = _named(analysis, files, paths)
    from ...reports import html

    write(html.render(analysis, rows), output)
    return analysis


def _named(analysis: Analysis, files: list[str], paths: list[str]) -> Analysis:
    """The analysis with the names that the user gave."""
    if files == paths:
        return analysis
    from msgspec.structs import replace

    kept = next(path for file, path in zip(files, paths, strict=True) if file == STANDARD_INPUT)
    return replace(
        analysis,
        files=tuple(_NAMED if name == kept else name for name in analysis.files),
        quality=replace(analysis.quality, warnings=tuple(w.replace(kept, _NAMED) for w in analysis.quality.warnings)),
    )
