"""Select, sort and limit the rows of a written table while they pass by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl
from msgspec import Struct

from ...analyzer.decode.runner import Origin
from ...analyzer.selection.selection import Moment, after_first, matches
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


class Chosen:
    """The chosen rows of a table. Without sorting they are given as they come."""

    def __init__(
        self, pieces: Iterable[pl.DataFrame], table: str, choice: Choice, origin: Origin, *, count: bool
    ) -> None:
        """Rows beyond the limit are read only to `count` them. Iterating raises ChoiceError."""
        self._pieces, self._table, self._choice, self._origin, self._count = pieces, table, choice, origin, count
        self.rows = 0
        """Rows selected so far, before the limit."""

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """Give pieces of rows, at least one, with all columns."""
        if self._choice.sort is not None:
            yield from self._sort(self._choice.sort)
            return
        limit = self._choice.limit
        for number, piece in enumerate(self._select()):
            room = limit - (self.rows - len(piece)) if limit else len(piece)
            if room > 0 or not number:
                yield piece.head(min(max(room, 0), len(piece)))
            if limit and self.rows >= limit and not self._count:
                return

    def _select(self) -> Iterator[pl.DataFrame]:
        for piece in self._pieces:
            kept = piece.filter(*list_conditions(piece, self._table, self._choice, self._origin))
            self.rows += len(kept)
            yield kept

    def _sort(self, by: str) -> Iterator[pl.DataFrame]:
        """Keep the first rows in that order: never many more than are given."""
        most = min(self._choice.limit or MOST_SORTED, MOST_SORTED)
        waiting: list[pl.DataFrame] = []
        for piece in self._select():
            waiting.append(piece)
            if sum(map(len, waiting)) >= max(2 * most, SORTED_AT_ONCE):
                waiting = [self._find_first(waiting, by, most)]
        if self.rows > most != self._choice.limit:
            raise ChoiceError(f"{self.rows:,} rows are too many to sort: give --limit, {MOST_SORTED:,} at most")
        yield self._find_first(waiting, by, most)

    def _find_first(self, pieces: Sequence[pl.DataFrame], by: str, most: int) -> pl.DataFrame:
        rows = pl.concat(pieces)
        key = find_column(rows, self._table, by.removeprefix("-"))
        kind = rows.select(key).dtypes[0]
        if kind == pl.Struct:
            raise ChoiceError("rows cannot be sorted by all causes: name one, such as budget_server")
        if isinstance(kind, pl.Enum):
            key = key.cast(pl.String)
        return rows.sort(key, descending=by.startswith("-"), nulls_last=True, maintain_order=True).head(most)


def list_conditions(piece: pl.DataFrame, table: str, choice: Choice, origin: Origin) -> list[pl.Expr]:
    """List what a row of the piece must satisfy."""
    conditions = []
    if choice.connections:
        conditions.append(pl.col("connection").is_in(choice.connections))
    if choice.stream is not None:
        conditions.append(pl.col("stream") == choice.stream)
    if choice.method is not None:
        name = pl.coalesce("method", "method_label")
        names = piece.select(name).to_series().drop_nulls().unique()
        conditions.append(name.is_in([name for name in names if matches(name, choice.method)]))
    if choice.statuses:
        status, wanted = pl.col("status").cast(pl.String), [*choice.statuses]
        met = status.fill_null(NOT_SEEN).is_in(wanted)
        conditions.append(met | ((status != "OK") if FAILED in wanted else pl.lit(value=False)))
    if choice.trace is not None:
        conditions.append(pl.col("trace_id") == f"{choice.trace:032x}")
    time = pl.col(TIMES[table]).fill_null(origin.time_ns)  # connections and RPCs that began before the capture
    if choice.begin is not None:
        conditions.append(time >= origin.time_ns + after_first(choice.begin, origin.time_ns))
    if choice.end is not None:
        conditions.append(time <= origin.time_ns + after_first(choice.end, origin.time_ns))
    return conditions


def find_column(piece: pl.DataFrame, table: str, name: str) -> pl.Expr:
    """Find a column by its name, without its unit too, its heading, or a cause of `budget`. Raises ChoiceError."""
    for known in (name, f"{name}_ns", VIEWS[table].columns.get(name, name)):
        if known in piece.columns:
            return pl.col(known)
    cause, budget = name.removeprefix("budget_"), piece.schema.get("budget")
    if cause != name and isinstance(budget, pl.Struct) and cause in budget.to_schema():
        return pl.col("budget").struct.field(cause).alias(name)
    raise ChoiceError(f"no column has the name {name!r}; known: {', '.join(piece.columns)}")


def select_columns(piece: pl.DataFrame, table: str, names: Sequence[str]) -> pl.DataFrame:
    """Take the columns of these names, all if there are none or `ALL` is among them. Raises ChoiceError."""
    if not names or ALL in names:
        return piece
    try:
        return piece.select(find_column(piece, table, name) for name in dict.fromkeys(names))
    except pl.exceptions.DuplicateError:
        raise ChoiceError("a column is named twice") from None
