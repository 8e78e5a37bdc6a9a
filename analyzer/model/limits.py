"""Limits of detectors that a configuration changes."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

CHANGED: ContextVar[Mapping[str, Any]] = ContextVar("CHANGED", default={})  # noqa: B039 nobody changes it
"""The `Limits` of detectors, by finding, that take the place of their defaults."""


class LimitError(ValueError):
    """A limit is unknown or out of range; the message says why."""

    def __init__(self, message: str, name: str = "", known: list[str] | None = None) -> None:
        """`known` are the names among which `name` was looked for."""
        super().__init__(message)
        self.name, self.known = name, known
