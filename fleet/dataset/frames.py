"""Make the dataset's rows: the tables of `reports.tables.rows` with recording and host, divided by hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...analyzer.model.analysis import Analysis
from ...analyzer.tables import Ints, Rpcs, Tables, Waits
from ...analyzer.tables.grouping import take_rows
from ...reports.tables import rows
from ...reports.tables.frame import Column, Frame, Lists, Numbers, Texts, number_texts
from . import sums
from .packet_marks import Marks

Pieces = Callable[[], Iterator[Frame]]
"""Rows of one table and hour, made when they are written."""

AT_ONCE = 100_000
"""Rows made at once, so that data frames need little memory."""
MOST_HOURS = 1_000
"""Most hours of one recording; with more, as in a damaged or hostile capture, all rows are in the first hour."""


def divided(
    tables: Tables,
    analysis: Analysis | None,
    recording: str,
    host: str,
    marks: Sequence[Marks] | None = None,
    open_at_end: Tables | None = None,
    fronts: Ints | None = None,
) -> Iterator[tuple[str, str, bool, Pieces]]:
    """Yield table, hour, whether rows were open at the end, and rows, for all that have rows.

    `fronts` has, for RPCs behind a proxy whose calls are joined, a connection to that proxy, and -1 for others.
    `open_at_end` has the rows of `tables` that were open at the end of a file behind which others may come.
    """
    waits, rpcs = tables.waits, tables.rpcs
    proxies = _name_proxies(tables, fronts if fronts is not None else np.full(len(rpcs.stream), -1))
    is_open = (
        (_find_open(rpcs, open_at_end.rpcs), _find_open(waits, open_at_end.waits)) if open_at_end else (None, None)
    )
    for table, times, which, make in (
        ("connections", tables.connections.first_time_ns, None, _all(lambda: connections(tables, marks))),
        ("rpcs", rpcs.start_time_ns, is_open[0], lambda at: _rpcs(tables, proxies, at)),
        ("waits", waits.start_time_ns, is_open[1], lambda at: _waits(tables, at)),
        ("problems", tables.problems.time_ns, None, _all(lambda: rows.problems(tables))),
    ):
        yield from _by_hour(table, times, make, (recording, host), which)
    if analysis and analysis.findings:
        first = np.array([min(e.time_ns for e in f.evidence) for f in analysis.findings], dtype=np.int64)
        yield from _by_hour("findings", first, _all(lambda: findings(analysis)), (recording, host))


def _find_open(every: Rpcs | Waits, some: Rpcs | Waits) -> npt.NDArray[np.bool_] | None:
    """Mark the rows that are in `some` too: of the same stream, with the same start."""
    if not len(some.stream):
        return None
    kind = np.dtype([("connection", np.uint32), ("stream", np.uint32), ("start", np.int64)])
    keys = []
    for table in (every, some):
        key = np.empty(len(table.stream), dtype=kind)
        key["connection"], key["stream"], key["start"] = table.connection, table.stream, table.start_time_ns
        keys.append(key)
    return np.isin(keys[0], keys[1])


def _by_hour(
    table: str,
    times: Ints,
    make: Callable[[Ints], Iterator[Frame]],
    origin: tuple[str, str],
    is_open: npt.NDArray[np.bool_] | None = None,
) -> Iterator[tuple[str, str, bool, Pieces]]:
    hours = times // sums.HOUR_NS
    different = np.unique(hours)
    if len(different) > MOST_HOURS:
        hours, different = np.full(len(hours), different[0]), different[:1]
    order = np.argsort(hours, kind="stable")
    ends = np.searchsorted(hours[order], different, side="right")
    for hour, chosen in zip(different, np.split(order, ends[:-1]), strict=False):  # without rows, one empty part
        for which in (False, True):
            at = chosen[is_open[chosen] == which] if is_open is not None else chosen[: 0 if which else None]
            if len(at):
                yield table, hour_name(int(hour)), which, lambda at=at: _marked(make(at), *origin)  # type: ignore[misc]


def hour_name(hour: int) -> str:
    """Format an hour, counted from 1970, as `2026-07-01T10` (UTC)."""
    return str(np.datetime_as_string(np.datetime64(hour, "h")))


def _marked(pieces: Iterator[Frame], recording: str, host: str) -> Iterator[Frame]:
    """Add recording and host as first columns, and convert enums to text: their values differ between captures."""
    for piece in pieces:
        named = {name: _convert(column) for name, column in piece.columns.items()}
        first = np.zeros(len(piece), np.uint8)
        yield Frame({"recording": Texts(first, [recording]), "host": Texts(first, [host])} | named)


def _convert(column: Column) -> Column:
    """Convert enums to text, and unsigned integers to signed ones of 64 bits: Delta Lake has no unsigned integers."""
    if isinstance(column, Texts):
        return replace(_drop_unused(column), is_enum=False)
    if isinstance(column, Numbers) and column.cells.dtype.kind == "u":
        return Numbers(column.cells.astype(np.int64), column.null)
    if isinstance(column, Lists) and column.dtype and np.dtype(column.dtype).kind == "u":
        lists = [one if one is None else np.asarray(one, column.dtype).astype(np.int64) for one in column.cells]
        return Lists(lists, np.int64)
    return column


def _drop_unused(column: Texts) -> Texts:
    """Drop texts of other rows: each hour's file would cost those of all hours."""
    if len(column.texts) <= len(column):
        return column
    used, codes = np.unique(column.clip(), return_inverse=True)
    # a number without a text is null, and so is the text None
    texts = [column.texts[number] if number < len(column.texts) else None for number in used.tolist()]
    return replace(column, cells=codes.astype(np.uint32), texts=texts)


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


def _name_proxies(tables: Tables, fronts: Ints) -> Texts:
    """Make the column with the proxy, as `address:port`, behind which an RPC is."""
    connections, codes = np.unique(fronts, return_inverse=True)
    names = [tables.server(one) if one >= 0 else None for one in connections.tolist()]
    return Texts(codes.astype(np.uint32), names)


def _rpcs(tables: Tables, proxies: Texts, at: Ints) -> Iterator[Frame]:
    r = tables.rpcs
    at = at[np.lexsort((r.stream[at], r.start_time_ns[at], r.connection[at]))]
    for some in _some(at):
        part = replace(tables, rpcs=take_rows(r, some), deadlines=tables.deadlines[some])
        frame = rows.rpcs(part, tables.rpc_budgets[some])
        yield Frame({**frame.columns, "proxy": proxies.take(some)})


def _waits(tables: Tables, at: Ints) -> Iterator[Frame]:
    for some in _some(at):
        yield rows.waits(replace(tables, waits=take_rows(tables.waits, some)))


def _some(at: Ints) -> Iterator[Ints]:
    for begin in range(0, len(at), AT_ONCE):
        yield at[begin : begin + AT_ONCE]


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
