"""Make the dataset's rows: the tables of `reports.tables.rows` with their recording, divided by hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...analyzer.model.analysis import Analysis
from ...analyzer.tables import Ints, Rpcs, Tables, Waits
from ...reports.tables import rows
from ...reports.tables.frame import Frame, Lists, Numbers, Texts, number_texts
from .packet_marks import Marks

Pieces = Callable[[], Iterator[Frame]]
"""Rows of one table and hour, made when they are written."""

AT_ONCE = 100_000
"""Rows made at once, so that data frames need little memory."""
HOUR_NS = 3_600_000_000_000
MOST_HOURS = 1_000
"""Most hours of one recording; with more, as in a damaged or hostile capture, all rows are in the first hour."""


def divided(
    tables: Tables, analysis: Analysis | None, recording: str, marks: Sequence[Marks] | None = None
) -> Iterator[tuple[str, str, Pieces]]:
    """Yield table, hour and rows, for every table and hour that has rows."""
    for table, times, make in (
        ("connections", tables.connections.first_time_ns, _all(lambda: connections(tables, marks))),
        ("rpcs", tables.rpcs.start_time_ns, lambda at: _rpcs(tables, at)),
        ("waits", tables.waits.start_time_ns, lambda at: _waits(tables, at)),
        ("problems", tables.problems.time_ns, _all(lambda: rows.problems(tables))),
    ):
        yield from _by_hour(table, times, make, recording)
    if analysis and analysis.findings:
        first = np.array([min(e.time_ns for e in f.evidence) for f in analysis.findings], dtype=np.int64)
        yield from _by_hour("findings", first, _all(lambda: findings(analysis)), recording)


def _by_hour(
    table: str, times: Ints, make: Callable[[Ints], Iterator[Frame]], recording: str
) -> Iterator[tuple[str, str, Pieces]]:
    hours = times // HOUR_NS
    different = np.unique(hours)
    if len(different) > MOST_HOURS:
        hours, different = np.full(len(hours), different[0]), different[:1]
    for hour in different:
        at = np.flatnonzero(hours == hour)
        yield table, hour_name(int(hour)), lambda at=at: _marked(make(at), recording)  # type: ignore[misc]


def hour_name(hour: int) -> str:
    """Format an hour, counted from 1970, as `2026-07-01T10` (UTC)."""
    return str(np.datetime_as_string(np.datetime64(hour, "h")))


def _marked(pieces: Iterator[Frame], recording: str) -> Iterator[Frame]:
    """Add the recording as first column, and convert enums to text: their values differ between captures."""
    for piece in pieces:
        named = {
            name: replace(column, is_enum=False) if isinstance(column, Texts) else column
            for name, column in piece.columns.items()
        }
        yield Frame({"recording": Texts(np.zeros(len(piece), np.uint8), [recording])} | named)


def _all(frame: Callable[[], Frame]) -> Callable[[Ints], Iterator[Frame]]:
    made: list[Frame] = []

    def rows_at(at: Ints) -> Iterator[Frame]:
        if not made:
            made.append(frame())
        yield made[0].take(at)

    return rows_at


def connections(tables: Tables, marks: Sequence[Marks] | None) -> Frame:
    """Make the rows of connections, with the columns by which both ends are joined."""
    c = tables.connections
    more = {
        name: Numbers(getattr(c, name))
        for name in ("first_time_ns", "last_time_ns", "client_sequence", "server_sequence")
    }
    listed = Lists(marks or [None] * len(c.client_sequence), np.uint64)
    return Frame({**rows.connections(tables).columns, **more, "marks": listed})


def _rpcs(tables: Tables, at: Ints) -> Iterator[Frame]:
    r = tables.rpcs
    at = at[np.lexsort((r.stream[at], r.start_time_ns[at], r.connection[at]))]
    deadlines = np.full(len(r.connection), -1, dtype=np.int64)
    deadlines[: len(tables.deadlines)] = tables.deadlines
    for some in _some(at):
        part = Rpcs(**_columns(r, some))
        yield rows.rpcs(replace(tables, rpcs=part, deadlines=deadlines[some]), tables.rpc_budgets[some])


def _waits(tables: Tables, at: Ints) -> Iterator[Frame]:
    for some in _some(at):
        yield rows.waits(replace(tables, waits=Waits(**_columns(tables.waits, some))))


def _some(at: Ints) -> Iterator[Ints]:
    for begin in range(0, len(at), AT_ONCE):
        yield at[begin : begin + AT_ONCE]


def _columns(table: Any, at: Ints) -> Mapping[str, npt.NDArray[Any]]:
    return {name: getattr(table, name)[at] for name in table.__struct_fields__}


def findings(analysis: Analysis) -> Frame:
    """Make the rows of findings, each with the times of its packets and the best remedy."""
    found = analysis.findings
    times = [[shown.time_ns for shown in finding.evidence] for finding in found]
    remedies = [f"{f.remedies[0].implementation}: {f.remedies[0].knob}" if f.remedies else None for f in found]
    more = {
        "first_time_ns": Numbers(np.array([min(t) for t in times], np.int64)),
        "last_time_ns": Numbers(np.array([max(t) for t in times], np.int64)),
        "first_packet": Numbers(np.array([f.evidence[0].packet for f in found], np.uint32)),
        "remedy": number_texts(remedies),
    }
    return Frame({**rows.findings(analysis).columns, **more})
