"""The selection of RPCs that a user asks for; imports nothing slow."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct


class Selection(Struct, frozen=True):
    """Which RPCs are judged: those that match every given condition."""

    connections: tuple[int, ...] = ()
    """Rows of the connections table; empty for all."""
    method: str | None = None
    """`*` and `?` stand for any text and any character. Without them a pattern that begins with a slash is the whole
    name, and any other one is a part of the name."""
    from_ns: int | None = None
    """RPCs begun then or later, after the capture's first packet."""
    to_ns: int | None = None
    """RPCs begun then or earlier."""
    trace: int | None = None
    """RPCs of this trace, by the trace-id of `traceparent`."""


def matches(name: str, pattern: str) -> bool:
    """Check whether a method's name matches."""
    if any(c in pattern for c in "*?["):
        return fnmatchcase(name, pattern)
    return pattern == name if pattern.startswith("/") else pattern in name
