"""Rows of RPCs while a capture is read, in the order in which the RPCs began, with little of them in memory.

The core hands rows on once nothing more comes of them, and the next piece is read while one is written. A row that
holds up many others, of an RPC that lasts long, is handed on as it is and once more when it is complete; from it on
rows wait in a temporary file. So do rows of methods without a name, whose labels are known only at the end.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..summary.figures import why_no_grpc
from ..tables import NO_METHOD, Ints, Names, Rpcs, Tables, names_of, pad_deadlines, table_of, tables_of
from .disk_columns import Columns, DiskColumns, Part, renumber
from .errors import NoGrpcError
from .runner import DecodeOptions, Origin, Progress, Run, read_ahead, threads

STEP = 25_000
"""Packets between two looks at what is complete."""
LEAST = 16_384
"""Rows of a piece, as a rule."""
MOST = 131_072
"""Rows that one RPC may hold up in memory."""


class RpcRows(Struct, frozen=True, eq=False):
    """Rows of RPCs that follow one another."""

    rpcs: Rpcs
    deadlines: Ints
    """In nanoseconds, -1 without."""
    budgets: Ints
    """Nanoseconds per RPC and cause."""
    names: Names
    """Names of the methods of these RPCs, by number."""
    errors: Sequence[str] = ()
    """See `Tables.errors`."""
    parents: Ints | None = None
    """Row of each RPC's leg before a proxy, -1 for none; None when no legs were joined."""


class _Read(Struct):
    """What the core gave at one time."""

    rows: dict[str, Any]
    settled: dict[str, Any]
    names: list[str | None]
    """Names of methods not given before, in the order of their numbers."""
    errors: list[str]
    """Texts of `grpc-message` not known before."""
    first_time_ns: int | None = None
    """Time of the capture's first packet, as far as it was read; nanoseconds since the epoch."""
    end: Tables | None = None
    renumbered: npt.NDArray[np.uint32] | None = None
    """At the end: the numbers of methods by those that rows have which were given before."""


def _read(run: Run) -> Iterator[_Read | None]:
    """Read a capture, and yield what the core gives; None where that is nothing."""
    errors_known = 0

    def make(taken: dict[str, Any]) -> _Read | None:
        nonlocal errors_known
        rows, settled, names, errors = (taken[name] for name in ("rows", "settled", "methods", "errors"))
        errors_known += len(errors)
        is_anything = len(rows["connection"]) or len(settled["numbers"]) or names or errors
        return _Read(rows, settled, names, errors, run.first_time_ns) if is_anything else None

    more = True
    while more:
        more = run.step(STEP)
        yield None
        yield from map(make, run.take_rpcs(LEAST, MOST))
    end = run.finish()
    yield from map(make, end["taken"])
    rows = end["rpcs"] | {"deadlines": end["deadlines"], "budgets": end["rpc_budgets"]}
    errors = end["errors"][errors_known:]
    yield _Read(rows, end["settled"], [], errors, run.first_time_ns, tables_of(end), end["renumbered"])


def stream_rpcs(
    paths: Sequence[str],
    *,
    require_rows: bool = True,
    origin: Origin | None = None,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Iterator[RpcRows]:
    """Decode a capture and yield the rows of all RPCs piece by piece; at least one piece.

    Raises CaptureError, SpillError, MemoryLimitError, and with `require_rows` NoGrpcError after a capture without RPCs.
    """
    run = Run(paths, rpc_rows=True, threads=threads(), **how)
    rows = _Rows()
    given, end = 0, None
    for read in read_ahead(_read(run), lambda: run.report(progress)):
        if origin and not given:
            origin.time_ns = read.first_time_ns or 0
        rows.add(read)
        for piece in rows.ready():
            given += 1
            yield piece
        end = read.end
    if end is None:
        raise AssertionError("what comes last has the end")
    if require_rows and not end.rpc_count:
        raise NoGrpcError(why_no_grpc(end))
    if not given:
        yield rows.nothing(end)


class _Waiting(Struct):
    """Rows in the temporary file."""

    part: Part
    changing: int
    """Number of rows that may still change."""
    unnamed: bool
    """Whether labels of their methods are not known yet."""
    before_end: bool
    """Whether they came before the end of the run, at which methods get other numbers."""


class _Rows:
    """Rows on their way: those that are final, and those that wait until they are."""

    def __init__(self) -> None:
        self._names: Names = {NO_METHOD: (None, None)}
        self._errors: list[str] = []
        self._unnamed: list[int] = []
        self._next = 0
        self._waiting: list[_Waiting] = []
        """Parts that wait, after those that wait no longer."""
        self._firsts: list[int] = []
        """Numbers of the first rows of these parts."""
        self._gone = 0
        """Number of parts that wait no longer."""
        self._spilled = DiskColumns()
        self._direct: Columns | None = None
        self._ended = False
        self._renumbered: npt.NDArray[np.uint32] | None = None

    def add(self, read: _Read) -> None:
        """Take in what came; `ready` is asked before the next."""
        self._errors += read.errors
        for number, name in enumerate(read.names, start=len(self._names) - 1):
            self._names[number] = (name, None)
            if name is None:
                self._unnamed.append(number)
        if read.end is not None:
            self._ended = True
            self._names = names_of(read.end.methods)
            self._renumbered = read.renumbered
            self._unnamed = []
        self._correct(read.settled)
        columns = {name: column for name, column in read.rows.items() if name in _WIDE or name in _COLUMNS}
        rows = len(columns["connection"])
        if not rows:
            return
        columns["deadlines"] = pad_deadlines(columns["deadlines"], rows)
        changing = 0 if self._ended else int(np.count_nonzero(read.rows["settled"] == 0))
        unnamed = bool(self._unnamed) and bool(np.isin(columns["method"], self._unnamed).any())
        if changing or unnamed or self._gone < len(self._waiting):
            self._waiting.append(_Waiting(self._spilled.add(self._next, columns), changing, unnamed, not self._ended))
            self._firsts.append(self._next)
        else:
            self._direct = columns
        self._next += rows

    def ready(self) -> Iterator[RpcRows]:
        """Yield the pieces that nothing changes any more, in order."""
        if self._direct is not None:
            columns, self._direct = self._direct, None
            yield self._rows(columns)
        while self._gone < len(self._waiting):
            waiting = self._waiting[self._gone]
            if (waiting.changing or waiting.unnamed) and not self._ended:
                return
            self._gone += 1
            columns = self._spilled.read(waiting.part)
            if self._renumbered is not None and waiting.before_end:
                renumber(columns["method"], self._renumbered)
            yield self._rows(columns)
        if self._waiting:
            self._waiting, self._firsts, self._gone = [], [], 0
            self._spilled.clear()

    def nothing(self, tables: Tables) -> RpcRows:
        """No row."""
        return RpcRows(tables.rpcs, tables.deadlines, tables.rpc_budgets, self._names)

    def _correct(self, settled: dict[str, Any]) -> None:
        """Write rows again that were handed on too early."""
        numbers, begin = settled["numbers"], 0
        while begin < len(numbers):  # ascending
            waiting = self._waiting[bisect_right(self._firsts, int(numbers[begin])) - 1]
            part = waiting.part
            end = int(np.searchsorted(numbers, part.first + part.rows))
            columns = {name: settled[name][begin:end] for name in part.places}
            self._spilled.correct(part, numbers[begin:end], columns)
            waiting.changing -= end - begin
            begin = end

    def _rows(self, columns: Columns) -> RpcRows:
        return RpcRows(table_of(Rpcs, columns), columns["deadlines"], columns["budgets"], self._names, self._errors)


_COLUMNS = frozenset(Rpcs.__struct_fields__)
_WIDE = frozenset(("deadlines", "budgets"))
