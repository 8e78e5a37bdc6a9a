"""Read CSV with a row per call: `start_time`, `duration`, and if known `method`, `status`, `trace_id`, `span_id`.

A unit may end a column's name (`duration_ms`, `start_ns`) or its values (`12.5 ms`). Without one, a start is ISO 8601
or a number since the epoch, whose size gives its unit. A duration then has the unit of the start, or seconds.
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO

from msgspec import Struct

from .record import Call, Record, RecordError, make_call
from .times import UNITS, guess_epoch_unit, parse_instant, parse_number

_STARTS, _ENDS = ("start_time", "start", "timestamp"), ("end_time", "end")
_DURATIONS, _METHODS, _STATUSES = ("duration", "latency"), ("method", "rpc", "name"), ("status", "code")
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]+)", re.ASCII)
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16
"""Most digits of each id (W3C Trace Context section 3.2.2)."""


class Columns(Struct):
    """Number of each column, and the unit in its name."""

    start: tuple[int, str] | None
    end: tuple[int, str] | None
    duration: tuple[int, str] | None
    method: tuple[int, str] | None
    status: tuple[int, str] | None
    trace: tuple[int, str] | None
    span: tuple[int, str] | None

    @property
    def are_enough(self) -> bool:
        """Check whether they give the start and the end of a call."""
        return sum(known is not None for known in (self.start, self.end, self.duration)) >= 2


def find_columns(header: list[str]) -> Columns:
    """Find the columns by their names."""
    names: dict[str, tuple[int, str]] = {}
    for place, text in enumerate(header):
        name = text.strip().lower().lstrip("\ufeff").replace("unix_", "").replace("nano", "ns")
        stem, _, unit = name.rpartition("_")
        names.setdefault(*((stem, (place, unit)) if unit in UNITS else (name, (place, ""))))

    def find(*wanted: str) -> tuple[int, str] | None:
        return next((names[name] for name in wanted if name in names), None)

    return Columns(
        find(*_STARTS), find(*_ENDS), find(*_DURATIONS), find(*_METHODS), find(*_STATUSES), find("trace_id"),
        find("span_id"),
    )  # fmt: skip


def read(text: str) -> Record:
    """Read the calls. Raises RecordError."""
    record = Record("csv", [])
    rows = _read_rows(text)
    columns = find_columns(next(rows, (0, []))[1])
    if not columns.are_enough:
        raise RecordError("the first line of CSV names no start_time and duration")
    for line, row in rows:
        if row:
            call, has_zone = _read_row(row, columns, f"line {line}")
            record.calls.append(call)
            record.has_zone &= has_zone
    return record


def _read_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise RecordError(f"line {rows.line_num}: {error}") from None


def _read_row(row: list[str], columns: Columns, where: str) -> tuple[Call, bool]:
    def cell(column: tuple[int, str] | None) -> str:
        return row[column[0]].strip() if column and column[0] < len(row) else ""

    start = _read_instant(cell(columns.start), columns.start, where) if columns.start else None
    end = _read_instant(cell(columns.end), columns.end, where) if columns.end else None
    if columns.duration:
        unit = columns.duration[1] or (start or end or (0, "", True))[1]
        duration = parse_number(cell(columns.duration), unit or "s", where)
    else:
        duration = end[0] - start[0] if start and end else 0
    began = start[0] if start else end[0] - duration if end else 0
    call = make_call(began, duration, where, cell(columns.method), cell(columns.status))
    call.trace = _read_id(cell(columns.trace), _TRACE_DIGITS, where)
    call.span = _read_id(cell(columns.span), _SPAN_DIGITS, where)
    return call, (start or end or (0, "", True))[2]


def _read_instant(text: str, column: tuple[int, str] | None, where: str) -> tuple[int, str, bool]:
    """Return an instant, the unit of its number, and whether its time zone is known."""
    if "-" in text.lstrip("-") or ":" in text:
        instant, has_zone = parse_instant(text, where)
        return instant, "", has_zone
    unit = (column[1] if column else "") or guess_epoch_unit(text)
    return parse_number(text, unit, where), unit, True


def _read_id(text: str, digits: int, where: str) -> int:
    if not text:
        return 0
    match = _HEX.fullmatch(text)
    if not match or len(match[1]) > digits:
        raise RecordError(f"{where}: {text[:40]!r} is not an id of {digits} hexadecimal digits")
    return int(match[1], 16)
