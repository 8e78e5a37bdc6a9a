"""Select, sort and limit the rows of a written table while they pass by."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ...analyzer import _core
from ...analyzer.decode.runner import Origin
from ...analyzer.selection.selection import Moment, after_first, matches
from .frame import Frame, Parts, Texts, concatenate, sort_rows
from .headings import TIMES, VIEWS

ALL = "all"
"""Stands for all columns."""
MOST_SORTED = 250_000
"""Most rows that are sorted: some 100 MB of RPCs."""
SORTED_AT_ONCE = 50_000
"""Least rows that wait before the first ones of them are found."""


class ChoiceError(ValueError):
    """What is asked for is not in the table."""


class Choice(Struct, frozen=True, kw_only=True):
    """Which rows and columns of a table are written."""

    columns: tuple[str, ...] = ()
    """Their names, `ALL` among them for all; empty for those that the format usually has."""
    sort: str | None = None
    """Column by which rows are sorted; after a hyphen, largest first."""
    limit: int = 0
    """Most rows; 0 for all."""
    connections: tuple[int, ...] = ()
    stream: int | None = None
    method: str | None = None
    """See `Selection.method`."""
    statuses: tuple[str, ...] = ()
    """Names of statuses; `NOT_SEEN` for those not in the capture, `FAILED` for all but OK."""
    trace: int | None = None
    begin: Moment | None = None
    """Rows that begin then or later."""
    end: Moment | None = None
    """Rows that begin then or earlier."""


NOT_SEEN, FAILED = "not_seen", "failed"
STATUSES = (*_core.STATUSES, FAILED, NOT_SEEN)
"""What `Choice.statuses` may name."""


class Chosen:
    """The chosen rows of a table. Without sorting they are given as they come."""

    def __init__(self, pieces: Iterable[Frame], table: str, choice: Choice, origin: Origin, *, count: bool) -> None:
        """Rows beyond the limit are read only to `count` them. Iterating raises ChoiceError."""
        self._pieces, self._table, self._choice, self._origin, self._count = pieces, table, choice, origin, count
        self.rows = 0
        """Rows selected so far, before the limit."""

    def __iter__(self) -> Iterator[Frame]:
        """Give pieces of rows, at least one, with all columns."""
        if self._choice.sort is not None:
            yield from self._sort(self._choice.sort)
            return
        limit = self._choice.limit
        for number, piece in enumerate(self._select()):
            room = limit - (self.rows - len(piece)) if limit else len(piece)
            if room > 0 or not number:
                yield piece.take(slice(0, max(room, 0)))
            if limit and self.rows >= limit and not self._count:
                return

    def _select(self) -> Iterator[Frame]:
        for piece in self._pieces:
            conditions = list_conditions(piece, self._table, self._choice, self._origin)
            kept = piece.take(np.logical_and.reduce(conditions)) if conditions else piece
            self.rows += len(kept)
            yield kept

    def _sort(self, by: str) -> Iterator[Frame]:
        """Keep the first rows in that order: never many more than are given."""
        most = min(self._choice.limit or MOST_SORTED, MOST_SORTED)
        waiting: list[Frame] = []
        for piece in self._select():
            waiting.append(piece)
            if sum(map(len, waiting)) >= max(2 * most, SORTED_AT_ONCE):
                waiting = [self._find_first(waiting, by, most)]
        if self.rows > most != self._choice.limit:
            raise ChoiceError(f"{self.rows:,} rows are too many to sort: give --limit, {MOST_SORTED:,} at most")
        yield self._find_first(waiting, by, most)

    def _find_first(self, pieces: Sequence[Frame], by: str, most: int) -> Frame:
        rows = concatenate(pieces)
        key = find_column(rows, self._table, by.removeprefix("-"))[1]
        if isinstance(key, Parts):
            raise ChoiceError("rows cannot be sorted by all causes: name one, such as budget_server")
        return rows.take(sort_rows(key, descending=by.startswith("-"))[:most])


def list_conditions(piece: Frame, table: str, choice: Choice, origin: Origin) -> list[npt.NDArray[np.bool_]]:
    """List what a row of the piece must satisfy, each with its answer for every row."""
    columns, conditions = piece.columns, []
    if choice.connections:
        # numbers that no connection can have are compared as 64 bits, too
        known = np.isin(columns["connection"].cells.astype(np.int64), choice.connections)
        conditions.append(known & ~columns["connection"].is_null())
    if choice.stream is not None:
        conditions.append(columns["stream"].cells == choice.stream)
    if choice.method is not None:
        wanted = choice.method
        names, labels = (_match(columns[name], wanted) for name in ("method", "method_label"))
        conditions.append(np.where(columns["method"].is_null(), labels, names))
    if choice.statuses:
        status = columns["status"]
        chosen = [name in choice.statuses or (FAILED in choice.statuses and name != "OK") for name in status.texts]
        conditions.append(status.where(chosen) | (status.is_null() & (NOT_SEEN in choice.statuses)))
    if choice.trace is not None:
        words = columns["trace_id"].cells.T
        conditions.append((words[0] == choice.trace >> 64) & (words[1] == choice.trace & (1 << 64) - 1))
        conditions.append(~columns["trace_id"].is_null())
    if choice.begin is not None or choice.end is not None:
        column = columns[TIMES[table]]
        # connections and RPCs that began before the capture
        time = np.where(column.is_null(), origin.time_ns, column.cells)
        if choice.begin is not None:
            conditions.append(time >= origin.time_ns + after_first(choice.begin, origin.time_ns))
        if choice.end is not None:
            conditions.append(time <= origin.time_ns + after_first(choice.end, origin.time_ns))
    return conditions


def _match(names: Texts, wanted: str) -> npt.NDArray[np.bool_]:
    return names.where([name is not None and matches(name, wanted) for name in names.texts])


def find_column(piece: Frame, table: str, name: str) -> tuple[str, Any]:
    """Find a column by its name, without its unit too, its heading, or a cause of `budget`.

    Returns the name that it has in the output, and the column. Raises ChoiceError.
    """
    for known in (name, f"{name}_ns", VIEWS[table].columns.get(name, name)):
        if known in piece.columns:
            return known, piece.columns[known]
    cause, budget = name.removeprefix("budget_"), piece.columns.get("budget")
    if cause != name and isinstance(budget, Parts) and cause in budget.names:
        return name, budget.part(cause)
    raise ChoiceError(f"no column has the name {name!r}; known: {', '.join(piece.columns)}")


def select_columns(piece: Frame, table: str, names: Sequence[str]) -> Frame:
    """Take the columns of these names, all if there are none or `ALL` is among them. Raises ChoiceError."""
    if not names or ALL in names:
        return piece
    found = [find_column(piece, table, name) for name in dict.fromkeys(names)]
    if len(dict(found)) < len(found):
        raise ChoiceError("a column is named twice")
    return Frame(dict(found))
