"""Format figures and foreign text for readers."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

_DAY_NS = 86_400_000_000_000
_HOST_FIRST = re.compile(r"(?:^|(?<!e\.g)(?<!i\.e)[.?!] )[cs](?=(?:lient|erver) )")


def safe(text: str) -> str:
    """Escape control and invisible characters in text from a capture, which a terminal could obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def capitalise(text: str) -> str:
    """Begin sentences that begin with a host with a capital: `Server 10.0.0.2 ...`."""
    return _HOST_FIRST.sub(lambda found: found[0][:-1] + found[0][-1].upper(), text)


def duration(ns: float | None) -> str:
    """Format a duration with three significant digits, `-` when not known."""
    if ns is None:
        return "-"
    return _format_with_unit(ns, ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")))


def utc(ns: int, day_of: int | None = None) -> str:
    """Format a time since the epoch: `2026-11-21 02:19:02.273847`; without its date if `day_of` is on the same day."""
    text = str(datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=ns // 1000))
    text += "" if "." in text else ".000000"
    same = day_of is not None and ns // _DAY_NS == day_of // _DAY_NS
    return text.partition(" ")[2] if same else text


def size(count: float) -> str:
    """Format a number of bytes in decimal units, with three significant digits."""
    return _format_with_unit(count, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))


def _format_with_unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    rounded = float(f"{value:.3g}")  # rounded before the unit is chosen, so that 999.6 becomes 1,000
    unit, name = next((unit for unit in units if abs(rounded) >= unit[0]), units[-1])
    shown = rounded / unit
    digits = 0 if unit == 1 or abs(shown) >= 100 else 1 if abs(shown) >= 10 else 2
    if abs(shown) >= 1000:
        shown = value / unit  # beyond the largest unit all integer digits are shown
    return f"{shown:,.{digits}f} {name}"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_number(value: float) -> str:
    """Format a number with three significant digits, or with all digits before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.4f}"


def format_times(number: int) -> str:
    """Format a number of times: `once`, `12 times`."""
    return "once" if number == 1 else f"{number:,} times"


def list_first(names: Sequence[str], most: int) -> str:
    """List the first names, and say how many more there are: `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def packet_filter(packets: Iterable[int]) -> str:
    """Write the Wireshark display filter that shows these packets: `frame.number in {45, 54..56}`."""
    runs: list[list[int]] = []
    for packet in sorted(set(packets)):
        if runs and packet == runs[-1][-1] + 1:
            runs[-1].append(packet)
        else:
            runs.append([packet])
    said = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if said == [str(runs[0][0])]:
        return f"frame.number == {said[0]}"
    return f"frame.number in {{{', '.join(said)}}}"
