"""The selection of RPCs that a user asks for; imports nothing slow."""

from fnmatch import fnmatchcase

from msgspec import Struct


class WallTime(Struct, frozen=True, order=True):
    """A time by the clock, in UTC."""

    ns: int
    """Since the epoch; without a date since midnight."""
    dated: bool

    def after(self, first_ns: int) -> int:
        """Return the time after a capture's first packet.

        Without a date it is on the day of that packet, or on the next day if it would be 12 hours or more before.
        """
        if self.dated:
            return self.ns - first_ns
        after = self.ns - first_ns % _DAY_NS
        return after + _DAY_NS if after <= -_DAY_NS // 2 else after


_DAY_NS = 86_400_000_000_000
Moment = int | WallTime
"""When something is: nanoseconds after the capture's first packet, or a time by the clock."""


def after_first(moment: Moment, first_ns: int) -> int:
    """Return a moment in nanoseconds after a capture's first packet."""
    return moment.after(first_ns) if isinstance(moment, WallTime) else moment


class Selection(Struct, frozen=True):
    """Which RPCs are judged: those that match every given condition."""

    connections: tuple[int, ...] = ()
    """Rows of the connections table; empty for all."""
    method: str | None = None
    """`*` and `?` stand for any text and any character. Without them a pattern that begins with a slash is the whole
    name, and any other one is a part of the name."""
    begin: Moment | None = None
    """RPCs begun then or later."""
    end: Moment | None = None
    """RPCs begun then or earlier."""
    trace: int | None = None
    """RPCs of this trace, by the trace-id of `traceparent`."""


def matches(name: str, pattern: str) -> bool:
    """Check whether a method's name matches."""
    if any(c in pattern for c in "*?["):
        return fnmatchcase(name, pattern)
    return pattern == name if pattern.startswith("/") else pattern in name
