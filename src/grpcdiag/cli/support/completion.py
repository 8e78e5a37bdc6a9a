"""Shell completion of values that typer does not know: ids of findings, cases of the lab, severities."""

from collections.abc import Iterable
from pathlib import Path

DETECTORS = Path(__file__).resolve().parents[2] / "analyzer" / "detectors"


def finding_ids(incomplete: str) -> list[str]:
    """List ids with this beginning from the names of the detectors' files: importing these is too slow here."""
    names = (path.stem.replace("_", "-") for path in DETECTORS.glob("[!_.]*.py"))
    return _filter(sorted(names), incomplete)


def lab_cases(incomplete: str) -> list[str]:
    """List cases of the lab with this beginning."""
    from ...fixtures.lab.cases import CASES

    return _filter([case.name for case in CASES], incomplete)


def severities(incomplete: str) -> list[str]:
    """List severities with this beginning: the one-word rules of `compare --fail-on`."""
    return _filter(["info", "warning", "critical"], incomplete)


def _filter(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
