"""Columns of a table on their way from the core to a file or terminal: numpy arrays, with texts by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ...analyzer.model.text import safe

Array: TypeAlias = npt.NDArray[Any]
Packed: TypeAlias = tuple[str, Any, list[str | None] | None, bool, int | None]
"""A column for `_core.RowWriter`: name; cells; texts, or names of parts; whether they are an enum; what means null."""


class Column(Struct, frozen=True, eq=False):
    """Cells of one kind."""

    cells: Any
    """One for each row, along the first axis."""

    def __len__(self) -> int:
        """Count the cells."""
        return len(self.cells)

    def take(self, rows: Any) -> Self:
        """Take some rows: a slice, their numbers, or a mask."""
        return replace(self, cells=self.cells[rows])

    def is_null(self) -> npt.NDArray[np.bool_]:
        """Tell which cells are null."""
        return np.zeros(len(self), bool)

    def sort_keys(self) -> tuple[Array, ...]:
        """Give arrays that order the cells as a whole, the first one being the least significant."""
        return tuple(np.atleast_2d(self.cells.T)[::-1])

    def to_list(self) -> list[Any]:
        """Give the cells as Python values; None for null."""
        return [None if null else cell for cell, null in zip(self.cells.tolist(), self.is_null().tolist(), strict=True)]

    def append(self, others: Sequence[Self]) -> Self:
        """Put the cells of other columns of this kind behind these."""
        return replace(self, cells=np.concatenate([self.cells, *(other.cells for other in others)]))

    def escape(self) -> Self:
        """Escape foreign text with `safe`."""
        return self

    def pack(self, name: str) -> Packed:
        """Give the column as the core's writer takes it."""
        return name, np.ascontiguousarray(self.cells), None, False, None


class Numbers(Column, frozen=True, eq=False):
    """Integers, booleans, or floating-point numbers, of which not-a-number is null."""

    null: int | None = None
    """The number that means null."""

    def is_null(self) -> npt.NDArray[np.bool_]:
        if self.cells.dtype == np.float64:
            return np.asarray(np.isnan(self.cells))
        return super().is_null() if self.null is None else np.asarray(self.cells == self.null)

    def pack(self, name: str) -> Packed:
        return *super().pack(name)[:-1], self.null


class Texts(Column, frozen=True, eq=False):
    """Texts by number; a number without a text is null."""

    texts: Sequence[str | None]
    is_enum: bool = False
    """Whether the texts are all that may occur, none of them from a capture."""

    def is_null(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.where([text is None for text in self.texts]) | (self.cells >= len(self.texts)))

    def where(self, chosen: Sequence[bool]) -> npt.NDArray[np.bool_]:
        """Tell which cells have a text that is chosen, given one answer for each text."""
        answers = np.append(np.asarray(chosen, bool), False)  # the last one is for numbers without a text
        return np.asarray(answers[self.clip()])

    def sort_keys(self) -> tuple[Array, ...]:
        ranks = {text: rank for rank, text in enumerate(sorted({text for text in self.texts if text is not None}))}
        by_code = np.array([ranks.get(text, 0) for text in (*self.texts, None)])  # type: ignore[arg-type]
        return (by_code[self.clip()],)

    def clip(self) -> npt.NDArray[np.int64]:
        """Give the codes with the number of texts for each that has none: narrow codes cannot hold the number 256."""
        return np.asarray(np.minimum(self.cells.astype(np.int64), len(self.texts)))

    def to_list(self) -> list[str | None]:
        texts = [*self.texts, None]
        return [texts[min(code, len(self.texts))] for code in self.cells.tolist()]

    def append(self, others: Sequence[Texts]) -> Texts:
        if all(other.texts == self.texts for other in others):
            return super().append(others)
        return number_texts([text for part in (self, *others) for text in part.to_list()])

    def escape(self) -> Texts:
        if self.is_enum or all(text is None or text.isprintable() for text in self.texts):
            return self
        return replace(self, texts=[text if text is None else safe(text) for text in self.texts])

    def pack(self, name: str) -> Packed:
        return name, np.ascontiguousarray(self.cells), list(self.texts), self.is_enum, None


class Hex(Column, frozen=True, eq=False):
    """Identifiers of 64 bits a word, with a row of words each, written in hexadecimal; null where all are zero."""

    def is_null(self) -> npt.NDArray[np.bool_]:
        return np.asarray(~self.cells.any(axis=1))

    def to_list(self) -> list[str | None]:
        return ["".join(f"{word:016x}" for word in row) if any(row) else None for row in self.cells.tolist()]

    def pack(self, name: str) -> Packed:
        return name, [np.ascontiguousarray(word) for word in self.cells.T], None, False, None


class Parts(Column, frozen=True, eq=False):
    """A structure of integers, with a row of parts each."""

    names: Sequence[str]

    def part(self, name: str) -> Numbers:
        """Take one part as a column."""
        return Numbers(self.cells[:, self.names.index(name)])

    def to_list(self) -> list[dict[str, int]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.cells.tolist()]

    def pack(self, name: str) -> Packed:
        return name, np.ascontiguousarray(self.cells, np.int64), list(self.names), False, None


class Lists(Column, frozen=True, eq=False):
    """Sequences in a list; None for null. CSV has their items joined by semicolons."""

    dtype: npt.DTypeLike | None = None
    """Type of the items, which are texts without one."""

    def take(self, rows: Any) -> Lists:
        numbered = isinstance(rows, np.ndarray) and rows.dtype != np.bool_
        numbers = rows if numbered else np.arange(len(self))[rows]
        return replace(self, cells=[self.cells[row] for row in numbers.tolist()])

    def is_null(self) -> npt.NDArray[np.bool_]:
        return np.array([one is None for one in self.cells], bool)

    def sort_keys(self) -> tuple[Array, ...]:
        """Lists have no order. Raises TypeError."""
        raise TypeError("lists have no order")

    def to_list(self) -> list[Sequence[Any] | None]:
        return list(self.cells)

    def append(self, others: Sequence[Lists]) -> Lists:
        return replace(self, cells=[one for part in (self, *others) for one in part.cells])

    def escape(self) -> Lists:
        if self.dtype is not None:
            return self
        return replace(self, cells=[one if one is None else list(map(safe, one)) for one in self.cells])

    def join(self) -> Texts:
        """Join the items by semicolons."""
        return number_texts([None if one is None else ";".join(map(str, one)) for one in self.cells])

    def pack(self, name: str) -> Packed:
        lengths = np.array([-1 if one is None else len(one) for one in self.cells], np.int64)
        items = [item for one in self.cells for item in (one if one is not None else ())]
        if self.dtype is not None:
            return name, (lengths, np.array(items, self.dtype)), None, False, None
        numbered = number_texts(items)
        return name, (lengths, numbered.cells), list(numbered.texts), False, None


def number_texts(values: Sequence[str | None]) -> Texts:
    """Make a column of texts; None for null."""
    numbers: dict[str | None, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.uint32)
    return Texts(codes, list(numbers))


class Frame(Struct, frozen=True, eq=False):
    """Rows of a table: columns of equal length by name."""

    columns: Mapping[str, Any]
    """See `Column`."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def take(self, rows: Any) -> Frame:
        """Take some rows: a slice, their numbers, or a mask."""
        return Frame({name: column.take(rows) for name, column in self.columns.items()})

    def split(self, rows: int) -> Iterator[Frame]:
        """Split into pieces of that many rows, at least one piece."""
        for begin in range(0, max(1, len(self)), rows):
            yield self.take(slice(begin, begin + rows))

    def escape(self) -> Frame:
        """Escape foreign text: CSV and Parquet do not escape characters that control a terminal."""
        return Frame({name: column.escape() for name, column in self.columns.items()})

    def flatten(self) -> Frame:
        """Flatten nested columns as CSV has them: a list as text; a structure last, whose parts become columns."""
        flat = {name: column.join() if isinstance(column, Lists) else column for name, column in self.columns.items()}
        nested = {name: column for name, column in flat.items() if isinstance(column, Parts)}
        return Frame({name: column for name, column in flat.items() if name not in nested} | nested)

    def list_names(self) -> list[str]:
        """List the names of the columns in CSV."""
        return [
            name
            for column, cells in self.columns.items()
            for name in ([f"{column}_{part}" for part in cells.names] if isinstance(cells, Parts) else [column])
        ]


def concatenate(frames: Sequence[Frame]) -> Frame:
    """Put frames with the same columns behind one another."""
    first, *rest = frames
    return Frame(
        {name: column.append([frame.columns[name] for frame in rest]) for name, column in first.columns.items()}
    )


def sort_rows(column: Column, *, descending: bool) -> Array:
    """Give the numbers of the rows in the order of a column: nulls last, and rows of equal cells in their order."""
    keys = column.sort_keys()
    if descending:
        keys = tuple(-key if key.dtype.kind == "f" else ~key for key in keys)  # ~ turns the order of integers around
    null = column.is_null()
    return np.lexsort((*(np.where(null, key[:1], key) for key in keys), null))
