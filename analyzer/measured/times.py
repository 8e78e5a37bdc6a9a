"""Parse instants and durations of records, to the nanosecond."""

import re
from calendar import timegm
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from .record import RecordError

_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d{0,9})?\s?(?:(Z|z)|([+-])(\d\d):?(\d\d))?", re.ASCII
)
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds of a unit."""
_NUMBER = re.compile(r"(\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d\d?)?)\s*(ns|us|µs|ms|s|)", re.ASCII)


@lru_cache(maxsize=4_096)
def _parse_second(text: str) -> int:
    return timegm(datetime.fromisoformat(text).timetuple())


def parse_instant(text: str, where: str) -> tuple[int, bool]:
    """Parse `2026-11-22T05:39:15.25+05:30`; say whether it has a zone (UTC if not). Raises RecordError."""
    match = _INSTANT.fullmatch(text.strip())
    if not match:
        raise RecordError(f"{where}: {text[:40]!r} is not a time such as 2026-11-22T05:39:15.25Z")
    second, fraction, utc, sign, hours, minutes = match.groups()
    try:
        seconds = _parse_second(second)
    except ValueError:
        raise RecordError(f"{where}: {text[:40]!r} is not a time that exists") from None
    if sign:
        seconds -= (int(hours) * 3600 + int(minutes) * 60) * (1 if sign == "+" else -1)
    return seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0")), bool(utc or sign)


def parse_number(text: str, unit: str, where: str) -> int:
    """Parse a number in `unit` as nanoseconds; a unit in the text takes precedence. Raises RecordError."""
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        negative = text.strip().startswith("-")
        raise RecordError(f"{where}: {text[:40]!r} is {'negative' if negative else 'not a number'}")
    try:
        return int(Decimal(match[1]) * UNITS[match[2] or unit])
    except InvalidOperation:
        raise RecordError(f"{where}: {text[:40]!r} is too large") from None


def guess_epoch_unit(text: str) -> str:
    """Find the unit of a time since the epoch by its number of digits: unambiguous from 1970-04-27 to 2286."""
    digits = len(text.strip().partition(".")[0])
    return "s" if digits <= 10 else "ms" if digits <= 13 else "us" if digits <= 16 else "ns"
