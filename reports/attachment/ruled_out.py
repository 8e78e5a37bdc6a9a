"""List what was looked for and not found, each with the figure that rules it out."""

from collections.abc import Iterator

from ...analyzer.detectors import DETECTORS
from ...analyzer.model.analysis import Analysis


def list_ruled_out(analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """Give, for each detector without a finding, its id, what it looks for, and its figure as Markdown."""
    answered = {finding.id for finding in analysis.findings} | {skipped.id for skipped in analysis.skipped}
    for detector in DETECTORS:
        judged = bool(analysis.processes) or not detector.about.needs_processes
        if judged and detector.id not in answered:
            first = detector.page.strip().split("\n\n")[0].replace("\n", " ")
            yield detector.id, first, detector.about.figure(analysis)
