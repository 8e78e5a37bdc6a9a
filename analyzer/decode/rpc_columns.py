"""Rows of RPCs that are more than memory should hold: numpy's memory maps of temporary files without a name."""

import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..tables import pad_deadlines
from .disk_columns import append, nameless, renumber

IN_MEMORY = 65_536
"""Rows of RPCs, some 200 bytes each, that go to the files together; a capture with fewer needs none."""

_OF_THEIR_OWN = ("deadlines", "budgets")
"""Columns that are no part of the table."""


class RpcRun(Protocol):
    """A run of the core, as far as rows of RPCs are taken from it."""

    def take_rpcs(self, least: int, most: int) -> list[dict[str, Any]]:
        """Take complete rows if there are `least` or more; with more than `most` rows behind it, also an open one.

        An open row is given again when it is complete.
        """

    def finish(self) -> dict[str, Any]:
        """End the run and give its tables, without the rows taken before."""


class RpcColumns:
    """The rows that a run gives, piece by piece, written while the next ones are read. Raises SpillError."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._columns: dict[str, _Column] = {}
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None

    def take(self, run: RpcRun) -> None:
        """Take the rows that are complete when they are many; called after each step."""
        for taken in run.take_rpcs(IN_MEMORY, 2 * IN_MEMORY):
            self._take(taken)

    def finish(self, run: RpcRun) -> dict[str, Any]:
        """End the run and give what it found, with all rows of RPCs."""
        result = run.finish()
        for taken in result["taken"]:
            self._take(taken)
        if self._columns:
            self._correct(result["settled"])
            self._wait()
            self._columns["method"].renumber(result["renumbered"])
            self._add(result["rpcs"] | {"deadlines": result["deadlines"], "budgets": result["rpc_budgets"]})
            self._wait()
            result["rpcs"] = {name: column.mapped() for name, column in self._columns.items()}
            result["deadlines"], result["rpc_budgets"] = (result["rpcs"].pop(name) for name in _OF_THEIR_OWN)
        return result

    def _take(self, taken: dict[str, Any]) -> None:
        self._add(taken["rows"])
        self._correct(taken["settled"])

    def _add(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        rows = len(columns["connection"])
        if not rows:
            return
        cells = columns | {"deadlines": pad_deadlines(columns["deadlines"], rows)}
        if not self._columns:
            self._columns = {name: _Column(column) for name, column in cells.items()}
        self._wait()
        self._writer = threading.Thread(target=self._write, args=(cells,), name="grpcdiag-write", daemon=True)
        self._writer.start()

    def _write(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        try:
            for name, column in self._columns.items():
                column.add(columns[name])
        except BaseException as error:  # raised again in the waiting thread
            self._error = error

    def _wait(self) -> None:
        """Wait for the rows that are being written."""
        if self._writer:
            self._writer.join()
            self._writer = None
        if self._error:
            raise self._error

    def _correct(self, settled: dict[str, npt.NDArray[Any]]) -> None:
        """Write rows again that were taken before they were complete."""
        numbers = settled["numbers"]
        if len(numbers):
            self._wait()
            for name, column in self._columns.items():
                column.mapped()[numbers] = settled[name]


class _Column:
    """One column in a file."""

    def __init__(self, like: npt.NDArray[Any]) -> None:
        """Of the type and width of such cells."""
        self._dtype, self._width = like.dtype, like.shape[1:]
        self._rows, self._end = 0, 0
        self._file = nameless()

    def add(self, cells: npt.NDArray[Any]) -> None:
        self._end = append(self._file, self._end, cells)
        self._rows += len(cells)

    def renumber(self, numbers: npt.NDArray[Any]) -> None:
        """Put other numbers in the place of those that have any."""
        for begin in range(0, self._rows if len(numbers) else 0, IN_MEMORY):
            renumber(self.mapped()[begin : begin + IN_MEMORY], numbers)

    def mapped(self) -> npt.NDArray[Any]:
        """Map the whole column into memory: what is written there is in the file."""
        return np.asarray(np.memmap(self._file, self._dtype, "r+", shape=(self._rows, *self._width)))
