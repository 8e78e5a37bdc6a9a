"""Which RPCs somebody asks for; imports nothing that takes long."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct


class Selection(Struct, frozen=True):
    """Which RPCs are judged: those for which everything given holds."""

    connections: tuple[int, ...] = ()
    """Rows of the connections table; empty for all."""
    method: str | None = None
    """`*` and `?` stand for any text and any character; without them what begins with a slash is the whole name, and
    for anything else a part of the name is enough."""
    from_ns: int | None = None
    """RPCs begun then or later, after the capture's first packet."""
    to_ns: int | None = None
    """RPCs begun then or earlier."""


def matches(name: str, pattern: str) -> bool:
    """Whether a method's name is meant."""
    if any(c in pattern for c in "*?["):
        return fnmatchcase(name, pattern)
    return pattern == name if pattern.startswith("/") else pattern in name
