"""Reading a capture in the background: imports nothing that takes long, so that reading begins at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from .. import _core

if TYPE_CHECKING:
    from .rpc_columns import RpcColumns

_T = TypeVar("_T")

Progress = Callable[[int, int | None], None]
"""Told the bytes read and, for files, the bytes of all files together."""

STEP = 100_000
"""Packets between two reports of progress."""

MOST_THREADS = 2
"""Threads between which the core divides a capture's connections."""
THREADS_VARIABLE = "GRPCDIAG_THREADS"
"""Environment variable with the number of threads; what is no number is ignored."""

KEY_LOG_BYTES = 256 << 20
"""Bytes of a key log that are read: some 280,000 connections, more than are kept."""

PATIENCE_S = 0.1
"""Seconds between two looks at progress and at signals, which wake nobody once polars has been imported."""


STOP_S = 1.0
"""Seconds that a thread in the core may take to come back from it: it must not meet an interpreter that finalises."""


def threads() -> int:
    """Threads the core uses: one per core this process may use, or as many as GRPCDIAG_THREADS says.

    The result is the same whatever their number.
    """
    said = os.environ.get(THREADS_VARIABLE, "")
    if said.isdecimal() and int(said) > 0:
        return min(int(said), MOST_THREADS)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


class DecodeOptions(TypedDict, total=False):
    """How captures are read, besides their paths."""

    ports: list[int]
    """Ports whose connections are HTTP/2 whatever they look like."""
    keylog: bytes
    """TLS secrets in the format of SSLKEYLOGFILE; those that a pcapng file holds are used too."""
    own_secrets: bool
    """Whether those are; they are unless it says otherwise."""
    memory: int
    """Bytes that this process may take, as the operating system counts them; MemoryLimitError tells of more."""
    spill: int
    """Durations of a method that are kept in memory before they go to a temporary file; 0 keeps all."""


class Reading:
    """A run of the core over one capture, in a thread of its own."""

    def __init__(self, paths: Sequence[str], *, rpc_rows: bool = False, **how: Unpack[DecodeOptions]) -> None:
        """Begin to open the files and to read."""
        self._found: dict[str, Any] | None = None
        self._wanted: dict[str, Any] = {"rpc_rows": rpc_rows, "threads": threads(), **how}
        self._kept: RpcColumns | None = None
        if rpc_rows:
            from .rpc_columns import RpcColumns

            self._kept = RpcColumns()
        self._total: int | None = None
        self._read = 0
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._step, args=(list(paths),), name="grpcdiag-read", daemon=True)
        self._thread.start()

    def _step(self, paths: list[str]) -> None:
        try:
            run = _core.Run(paths, **self._wanted)
            self._total = run.bytes_total
            while not self._stopped and run.step(STEP):
                self._read = run.bytes_read
                if self._kept:
                    self._kept.take(run)
            if not self._stopped:  # here, for Ctrl-C would be raised in the middle of the core
                self._found = self._kept.finish(run) if self._kept else run.finish()
        except BaseException as error:  # told to whoever waits
            self._error = error

    def finish(self, progress: Progress | None = None) -> dict[str, Any]:
        """Wait for the end and give what the core found; `tables.tables_of` makes tables of it. Raises CaptureError."""
        try:
            while self._thread.is_alive():
                self._thread.join(PATIENCE_S)
                if progress:
                    progress(self._read, self._total)
        except BaseException:
            self._stopped = True
            self._thread.join(STOP_S)
            raise
        if self._found is None:
            raise self._error or AssertionError
        return self._found


class Run:
    """A run of the core that is stepped through, as `_core.Run` is, but Ctrl-C ends it even where a pipe stalls.

    The core works in other threads than the main one, in which Ctrl-C would be raised in the middle of it.
    """

    def __init__(self, paths: Sequence[str], **wanted: Any) -> None:
        """Open the files. Raises CaptureError."""
        self._run = _heard(lambda: _core.Run(list(paths), **wanted))
        self.bytes_total = self._run.bytes_total
        self.bytes_read = 0

    def step(self, packets: int = STEP) -> bool:
        """Read up to that many packets; False at the end."""
        going = _heard(lambda: self._run.step(packets))
        self.bytes_read = self._run.bytes_read
        return going

    def take(self, table: str) -> dict[str, Any]:
        """See `_core.Run.take`."""
        return _heard(lambda: self._run.take(table))

    def take_rpcs(self, least: int, most: int) -> dict[str, Any]:
        """See `_core.Run.take_rpcs`."""
        return _heard(lambda: self._run.take_rpcs(least, most))

    def take_settled(self) -> dict[str, Any]:
        """See `_core.Run.take_settled`."""
        return _heard(lambda: self._run.take_settled())

    def finish(self) -> dict[str, Any]:
        """See `_core.Run.finish`."""
        return _heard(lambda: self._run.finish())


def _heard(work: Callable[[], _T]) -> _T:
    """Do what blocks outside Python in a thread and wait for it, so that signals are heard meanwhile."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(work())
        except BaseException as error:  # told to the caller
            errors.append(error)

    thread = threading.Thread(target=call, name="grpcdiag-read", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(PATIENCE_S)
    except BaseException:
        thread.join(STOP_S)
        raise
    if errors:
        raise errors[0]
    return results[0]


def unreadable(path: str) -> str | None:
    """Why a file cannot be read as a capture; None when it can, be it damaged further on."""
    from .errors import CaptureError

    try:
        _core.Run([path]).step(1)
    except CaptureError as error:
        return str(error)
    return None
