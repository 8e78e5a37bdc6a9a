"""What was looked for and not found, each with the figure that speaks against it."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyzer.detectors import DETECTORS
from ...analyzer.model.analysis import Analysis


def list_ruled_out(analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """Of each detector that stayed silent: its finding's id, what it looks for, and its figure as Markdown."""
    answered = {finding.id for finding in analysis.findings} | {skipped.id for skipped in analysis.skipped}
    for detector in DETECTORS:
        if detector.id not in answered:
            yield detector.id, _first_sentence(detector.page), detector.about.figure(analysis)


def _first_sentence(page: str) -> str:
    return page.strip().split("\n\n")[0].replace("\n", " ")
