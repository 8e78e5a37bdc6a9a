"""Figures and foreign text as a reader should see them."""

from __future__ import annotations


def safe(text: str) -> str:
    """Text from a capture without anything a terminal would obey: control and invisible characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(ns: float | None) -> str:
    """A duration with three significant digits, `-` when not known."""
    if ns is None:
        return "-"
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit:
            return f"{_three_digits(ns / unit)} {name}"
    return f"{ns:.0f} ns"


def _three_digits(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def size(count: float) -> str:
    """A number of bytes in decimal units."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{_three_digits(count / unit)} {name}"
    return f"{count:.0f} B"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
