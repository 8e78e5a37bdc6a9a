"""What the shell offers where typer cannot know it: ids of findings, cases of the lab, severities."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DETECTORS = Path(__file__).resolve().parents[1] / "analyzer" / "detectors"


def finding_ids(incomplete: str) -> list[str]:
    """Ids that begin so: the names of the detectors' files, for importing those takes longer than a key is pressed."""
    names = (path.stem.replace("_", "-") for path in DETECTORS.glob("*.py") if not path.stem.startswith("_"))
    return _beginning(sorted(names), incomplete)


def lab_cases(incomplete: str) -> list[str]:
    """Cases of the lab that begin so."""
    from ...fixtures.lab.cases import CASES

    return _beginning([case.name for case in CASES], incomplete)


def severities(incomplete: str) -> list[str]:
    """Severities that begin so: the rules of `compare --fail-on` that are one word."""
    return _beginning(["info", "warning", "critical"], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
