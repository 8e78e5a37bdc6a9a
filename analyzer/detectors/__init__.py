"""Detectors: one file per finding id, each with `ID`, `Limits` and `detect(tables, limits)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..result import Finding, Skipped
from ..tables import Tables
from . import (
    loss_recovery,
    slow_start_after_idle,
)

HEADINGS = (
    "What it finds",
    "How it is decided",
    "When it cannot tell",
    "What would refute it",
    "What to do",
    "References",
)
"""The sections of every detector's docstring, in this order."""


@dataclass(frozen=True, slots=True)
class Detector:
    """A detector as the analysis runs it."""

    id: str
    """The finding's id, also the name of its file, fixtures, test and docs page."""
    page: str
    """Its explanation."""
    detect: Callable[[Tables], Iterator[Finding | Skipped]]
    """Runs it with its default limits."""


def _detector(module: Any) -> Detector:
    return Detector(module.ID, module.__doc__, lambda tables: module.detect(tables, module.Limits()))


DETECTORS: tuple[Detector, ...] = (
    # one line each
    _detector(loss_recovery),
    _detector(slow_start_after_idle),
)
"""All detectors. The one place where a detector is registered."""


def by_id(finding: str) -> Detector | None:
    """The detector of a finding id."""
    return next((detector for detector in DETECTORS if detector.id == finding), None)
