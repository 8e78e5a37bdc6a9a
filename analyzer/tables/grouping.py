"""Group rows with one sort: a search per group would cost groups times rows, and both may be many."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from . import Ints

_Table = TypeVar("_Table", bound=Struct)


def take_rows(table: _Table, rows: Any) -> _Table:
    """Take some rows of a table: a slice, their numbers, or a mask."""
    return type(table)(*(getattr(table, name)[rows] for name in table.__struct_fields__))


def group_rows(numbers: npt.NDArray[Any]) -> dict[int, Ints]:
    """Group the rows of a column by its number; each group keeps the order of its rows."""
    if not len(numbers):
        return {}
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    bounds = [*first.tolist(), len(order)]
    return {
        number: order[begin:end]
        for number, begin, end in zip(ordered[first].tolist(), bounds[:-1], bounds[1:], strict=True)
    }


def number_rows(*columns: npt.NDArray[Any]) -> Ints:
    """Give rows with equal columns the same number, from 1."""
    rows = np.stack([column.astype(np.uint64) for column in columns])
    order = np.lexsort(rows)
    differs = np.r_[False, (np.diff(rows[:, order]) != 0).any(axis=0)] if len(order) else np.zeros(0, dtype=bool)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(differs) + 1
    return numbers


def distinct(values: npt.NDArray[np.integer[Any]]) -> Ints:
    """Sort values and remove duplicates."""
    # without the counts, numpy 2.4 imports its masked arrays to do the same: 10 ms
    return np.unique(values.astype(np.int64), return_counts=True)[0]
