"""What a detector says of itself beside its page: how its finding relates to others, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from ..tables import Tables
from .analysis import Analysis
from .finding import Finding, Skipped


class About(Struct, frozen=True, eq=False):
    """How a detector's finding is treated; every detector's file has one, named `ABOUT`."""

    example: str
    """The capture, below fixtures/, whose finding its page shows."""
    figure: Callable[[Analysis], str]
    """Writes the figure that speaks against the finding when the detector stays silent, as Markdown."""
    caused_by: tuple[str, ...] = ()
    """Findings of which this one is a part when both hold on one connection; the likeliest first."""
    counts_own_time: bool = False
    """No other finding counts the time that this one counts: it keeps that time even as a part of another."""
    precedence: int = 100
    """Rank among findings that are equally severe and lost no time: the verdict names the lowest."""
    whole_connections: bool = False
    """It counts all that a connection carries: it cannot judge some of a connection's RPCs alone."""
    one_direction: bool = False
    """It judges what one side sent: it needs no packet of the other side."""


class Detector(Struct, frozen=True, eq=False):
    """A detector as the analysis runs it."""

    id: str
    """The finding's id, also the name of its file, fixtures, test and docs page."""
    page: str
    """Its explanation, with the headings of `HEADINGS`."""
    detect: Callable[[Tables], Iterator[Finding | Skipped]]
    """Runs it with its default limits."""
    about: About
    """How its finding is treated."""
