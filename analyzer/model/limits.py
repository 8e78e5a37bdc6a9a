"""Limits of detectors that a configuration changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

if TYPE_CHECKING:  # numpy is late
    from .detector import Detector

CHANGED: ContextVar[Mapping[str, Any]] = ContextVar("CHANGED", default={})  # noqa: B039 nobody changes it
"""The `Limits` of detectors, by finding, that take the place of their defaults."""


class LimitError(ValueError):
    """A limit is unknown or out of range; the message says why."""

    def __init__(self, message: str, name: str = "", known: list[str] | None = None) -> None:
        """`known` are the names among which `name` was looked for."""
        super().__init__(message)
        self.name, self.known = name, known


MOST_FACTOR = 1000
"""Factor by which a configuration may change a limit (heuristic: enough for any use, too little to overflow)."""


def change_limits(detectors: Sequence[Detector], finding: str, values: Mapping[str, float]) -> Any:
    """Make the limits of a detector with other values, which keep the type of the default. Raises LimitError."""
    known = {detector.id: detector for detector in detectors}
    if finding not in known:
        raise LimitError("no such finding", finding, list(known))
    detector = known[finding]
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
