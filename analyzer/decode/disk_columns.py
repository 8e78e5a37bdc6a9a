"""Columns in a temporary file without a name: nothing of it is left behind, however the process ends."""

import math
import mmap
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .errors import SpillError

Columns = dict[str, npt.NDArray[Any]]
_Table = TypeVar("_Table", bound=Struct)


def nameless() -> BinaryIO:
    """Make a file without a name in the folder for temporary files. Raises SpillError."""
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(prefix="grpcdiag-"))
    except OSError as error:
        raise SpillError(str(error.strerror or error)) from error


def append(file: BinaryIO, offset: int, cells: npt.NDArray[Any]) -> int:
    """Write cells at an offset and give where they end. Raises SpillError."""
    try:
        file.seek(offset)
        file.write(np.ascontiguousarray(cells).data)
        file.flush()
    except OSError as error:
        raise SpillError(str(error.strerror or error)) from error
    return offset + cells.nbytes


def renumber(column: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> None:
    """Replace the numbers of methods in a column by those that the methods have at the end of the run."""
    known = column < len(numbers)
    column[known] = numbers[column[known]]


def gathered(column: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Take rows of a column, by a mask or by ascending numbers; give back the pages of a memory map."""
    if not isinstance(column.base, np.memmap):
        some: npt.NDArray[Any] = column[rows]
        return some
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    found = np.empty((len(rows), *column.shape[1:]), column.dtype)
    ends = np.searchsorted(rows, np.arange(0, len(column), _GATHERED)).tolist() if len(rows) else []
    for begin, end in pairwise([*ends, len(rows)]):
        if begin == end:
            continue
        found[begin:end] = column[rows[begin:end]]
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            column.base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return found


def gathered_rows(table: _Table, rows: npt.NDArray[Any]) -> _Table:
    """Take rows of a table, as `gathered` does for a column."""
    return type(table)(*(gathered(getattr(table, name), rows) for name in table.__struct_fields__))


_GATHERED = 65_536
"""Rows of a column from which some are gathered together."""


class Part(Struct, frozen=True):
    """Where rows are in the file."""

    first: int
    """Number of their first row."""
    rows: int
    places: Mapping[str, tuple[int, npt.DTypeLike, tuple[int, ...]]]
    """By column: offset in bytes, type, shape."""


class DiskColumns:
    """Rows that wait in the folder for temporary files (`TMPDIR`). Raises SpillError."""

    def __init__(self) -> None:
        """Nothing yet, and no file."""
        self._file: BinaryIO | None = None
        self._end = 0

    def add(self, first: int, columns: Columns) -> Part:
        """Write rows, of which the first has that number."""
        places = {}
        if self._file is None:
            self._file = nameless()
        for name, column in columns.items():
            places[name] = (self._end, column.dtype, column.shape)
            self._end = append(self._file, self._end, column)
        return Part(first, len(next(iter(columns.values()))), places)

    def correct(self, part: Part, numbers: npt.NDArray[Any], columns: Columns) -> None:
        """Write other values into rows of a part, by their numbers."""
        at = numbers.astype(np.int64) - part.first
        for name, (offset, dtype, shape) in part.places.items():
            if len(at):
                mapped = np.memmap(self._opened(), dtype, "r+", offset, shape)
                mapped[at] = columns[name]
                mapped.flush()

    def read(self, part: Part) -> Columns:
        """Read the rows of a part."""
        found: Columns = {}
        file = self._opened()
        for name, (offset, dtype, shape) in part.places.items():
            try:
                file.seek(offset)
                column = np.fromfile(file, dtype, math.prod(shape))
            except OSError as error:
                raise SpillError(str(error.strerror or error)) from error
            found[name] = column.reshape(shape)
        return found

    def clear(self) -> None:
        """Forget all rows."""
        self._end = 0
        if self._file is not None:
            self._file.truncate(0)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise SpillError("nothing was written")
        return self._file
