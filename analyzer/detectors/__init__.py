"""Detectors: one file per finding id, each with `ID`, `ABOUT`, `Limits` and `detect(tables, limits)`.

A file in this folder is a detector unless its name begins with `_` or `.`; nothing else registers it.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from ..model.detector import Detector
from ..model.finding import Finding, Skipped
from ..model.limits import CHANGED, LimitError
from ..tables import Tables

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
    return Detector(module.ID, module.__doc__, functools.partial(_detect, module), module.ABOUT, module.Limits())


def _detect(module: Any, tables: Tables) -> Iterator[Finding | Skipped]:
    found: Iterator[Finding | Skipped] = module.detect(tables, CHANGED.get().get(module.ID) or module.Limits())
    return found


DETECTORS: tuple[Detector, ...] = tuple(
    _load_detector(file[:-3])
    for file in sorted(os.listdir(__path__[0]))  # noqa: PTH208 pathlib is late
    if file.endswith(".py") and file[0] not in "_."  # hidden ones are of editors and archives
)
"""All detectors, in the order of their names."""


def by_id(finding: str) -> Detector | None:
    """Find the detector of a finding id."""
    return next((detector for detector in DETECTORS if detector.id == finding), None)


MOST_FACTOR = 1000
"""Factor by which a configuration may change a limit (heuristic: enough for any use, too little to overflow)."""


def change_limits(finding: str, values: Mapping[str, float]) -> Any:
    """Make the limits of a detector with other values, which keep the type of the default. Raises LimitError."""
    detector = by_id(finding)
    if detector is None:
        raise LimitError("no such finding", finding, [one.id for one in DETECTORS])
    own = {name: getattr(detector.limits, name) for name in detector.limits.__struct_fields__}
    own = {name: value for name, value in own.items() if isinstance(value, int | float)}
    for name, value in values.items():
        if name not in own:
            raise LimitError(f"{finding} has no such limit", name, list(own))
        if isinstance(own[name], int) and not isinstance(value, int):
            raise LimitError(f"{finding}.{name} needs an integer")
        if not own[name] / MOST_FACTOR <= value <= own[name] * MOST_FACTOR:
            raise LimitError(f"{finding}.{name} may be changed by a factor of {MOST_FACTOR:,} from {own[name]:g}")
    return replace(detector.limits, **{name: type(own[name])(value) for name, value in values.items()})
