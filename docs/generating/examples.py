"""A real finding for each page: what the terminal shows of it, from a capture in this repository."""

from __future__ import annotations

from pathlib import Path

from grpcdiag.analyzer.analysis import of_capture
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.detector import Detector
from grpcdiag.cli.support.sidecar import find_sidecar
from grpcdiag.reports import terminal

REPOSITORY = Path(__file__).resolve().parents[2]
SYNTHETIC = "fixtures/synthetic/captures"


def analyze_recorded(path: str) -> Analysis:
    """Analyze a capture with what was recorded beside it, as the command line does."""
    return of_capture([path], decode([path], rpc_rows=False), *find_sidecar([path]))


def example(detector: Detector) -> list[str]:
    """Lines of Markdown. Raises ValueError when the detector's example does not show its finding."""
    file = f"fixtures/{detector.about.example}"
    analysis = analyze_recorded(str(REPOSITORY / file))
    finding = next((f for f in analysis.findings if f.id == detector.id), None)
    if finding is None:
        raise ValueError(f"{detector.id}: {file} does not show it")
    shown = terminal.render_finding(analysis, finding).rstrip("\n")
    if finding.severity == "info":
        return [_origin(file), *_AT_INFO, "", "```text", shown, "```"]
    return [_origin(file), "", "```console", f"$ grpcdiag analyze {file}", "...", shown, "...", "```"]


_AT_INFO = ("The terminal shows a finding of severity `info` in one line; this is the whole finding.",)


def _origin(file: str) -> str:
    if file.startswith(SYNTHETIC):
        return (
            f"Synthetic: `{file}`, whose bytes and times a script made up, since no recorded\n"
            "capture in the repository shows it."
        )
    return f"From `{file}`, [recorded](../../fixtures/recorded/README.md)."
