"""Detectors: one file per finding id, each with `ID`, `ABOUT`, `Limits` and `detect(tables, limits)`.

A file in this folder is a detector unless its name begins with `_` or `.`; nothing else registers it.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from ..facts.hosts import describe_part
from ..model.detector import About, Detector
from ..model.finding import Finding, Skipped
from ..model.limits import CHANGED
from ..tables import Tables


def _load_detector(name: str) -> Detector:
    module: Any = import_module(f"{__name__}.{name}")
    return Detector(module.ID, module.__doc__, functools.partial(_detect, module), module.ABOUT, module.Limits())


def _detect(module: Any, tables: Tables) -> Iterator[Finding | Skipped]:
    for answer in module.detect(tables, CHANGED.get().get(module.ID) or module.Limits()):
        yield _add_part(tables, answer) if isinstance(answer, Finding) else answer


def _add_part(tables: Tables, finding: Finding) -> Finding:
    """Say which hosts a finding is about, and of how many, where it is not about all."""
    part = describe_part(tables, finding.scope.connections) if finding.scope.connections else ""
    return replace(finding, explanation=f"{finding.explanation} It concerns {part}.") if part else finding


DETECTORS: tuple[Detector, ...] = tuple(
    _load_detector(file[:-3])
    for file in sorted(os.listdir(__path__[0]))  # noqa: PTH208 pathlib is late
    if file.endswith(".py") and file[0] not in "_."  # hidden ones are of editors and archives
)
"""All detectors, in the order of their names."""

ABOUTS: Mapping[str, About] = {detector.id: detector.about for detector in DETECTORS}
"""How each detector's finding is treated, by id."""
