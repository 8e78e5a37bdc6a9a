"""Detectors: one file per finding id, each with `ID`, `ABOUT`, `Limits` and `detect(tables, limits)`.

A file in this folder is a detector unless its name begins with `_`; nothing else registers it.
"""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module
from typing import Any

from ..model.detector import Detector

HEADINGS = (
    "What it finds",
    "How it is decided",
    "When it cannot tell",
    "What would refute it",
    "What to do",
    "References",
)
"""The sections of every detector's docstring, in this order."""


def _load_detector(name: str) -> Detector:
    module: Any = import_module(f"{__name__}.{name}")
    return Detector(module.ID, module.__doc__, functools.partial(module.detect, limits=module.Limits()), module.ABOUT)


DETECTORS: tuple[Detector, ...] = tuple(
    _load_detector(name) for name in sorted(file.name for file in pkgutil.iter_modules(__path__)) if name[0] != "_"
)
"""All detectors, in the order of their names."""


def by_id(finding: str) -> Detector | None:
    """Find the detector of a finding id."""
    return next((detector for detector in DETECTORS if detector.id == finding), None)
