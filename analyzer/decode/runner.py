"""Read a capture in the background; imports nothing slow, so that reading begins at once."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

from .. import _core

if TYPE_CHECKING:
    from .rpc_columns import RpcColumns

_T = TypeVar("_T")

Progress = Callable[[int, int | None], None]
"""Called with the bytes read and, for files, the bytes of all files."""

STEP = 100_000
"""Packets between two reports of progress."""

LARGE = 64 << 20
"""Bytes of a capture after which memory that the core freed goes back to the system; that takes some milliseconds."""

MOST_THREADS = 2
"""Threads between which the core divides a capture's connections."""
THREADS_VARIABLE = "GRPCDIAG_THREADS"
"""Environment variable with the number of threads; other text is ignored."""

KEY_LOG_BYTES = 256 << 20
"""Bytes of a key log that are read: some 280,000 connections, more than the core keeps."""

PATIENCE_S = 0.1
"""Seconds between two checks of progress and signals."""


STOP_S = 1.0
"""Seconds to wait for a thread to leave the core, which must not happen while the interpreter finalises."""


def threads() -> int:
    """Return the number of threads for the core: one per available CPU core, or GRPCDIAG_THREADS.

    The result is the same whatever their number.
    """
    wanted = os.environ.get(THREADS_VARIABLE, "")
    if wanted.isdecimal() and int(wanted) > 0:
        return min(int(wanted), MOST_THREADS)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


class DecodeOptions(TypedDict, total=False):
    """How captures are read, besides their paths."""

    errors: bool
    """Whether all texts of `grpc-message` are kept, which may hold anything; false by default."""
    ports: list[int]
    """Ports whose connections are HTTP/2 whatever they look like."""
    labels: list[tuple[int, str]]
    """Names of methods that the capture does not name, by the numbers of their labels."""
    keylog: bytes
    """TLS secrets in the format of SSLKEYLOGFILE; those that a pcapng file holds are used too."""
    as_scrubbed: bool
    """Whether no more is read than a scrubbed copy holds: without secrets in the file, and without HTTP/1.1; false by
    default."""
    memory: int
    """Bytes that this process may use, as the operating system counts them; above it MemoryLimitError is raised."""
    spill: int
    """Durations of a method that are kept in memory before they go to a temporary file; 0 keeps all."""


class Origin:
    """The time from which relative times count."""

    time_ns = 0
    """Time of the capture's first packet; known when the first piece of rows is given."""


Wanted: TypeAlias = tuple[int, tuple[int, int], tuple[int, int], int | None]
"""Packets and frames that get rows: connection; first and last packet, and time; the only stream of the frames."""


class Reading:
    """A run of the core over one capture, in a thread of its own."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        rpc_rows: bool = False,
        marks_examples: bool = False,
        slowest: int = 0,
        **how: Unpack[DecodeOptions],
    ) -> None:
        """Begin to open the files and to read."""
        self._found: dict[str, Any] | None = None
        rows = {"rpc_rows": rpc_rows, "marks_examples": marks_examples, "slowest": slowest}
        self._wanted: dict[str, Any] = {**rows, "threads": threads(), **how}
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
            if not self._stopped:  # in this thread, because Ctrl-C would interrupt the core in the main one
                self._found = self._kept.finish(run) if self._kept else run.finish()
        except BaseException as error:  # raised again in the waiting thread
            self._error = error

    def stop(self) -> None:
        """Stop reading: nobody needs the result."""
        self._stopped = True

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
        _return_freed_memory(self._read)
        return self._found


class Run:
    """A run of the core that is stepped through, as `_core.Run` is, but Ctrl-C ends it even where a pipe stalls.

    The core works in other threads than the main one, in which Ctrl-C would be raised in the middle of it.
    """

    def __init__(self, paths: Sequence[str], **wanted: Any) -> None:
        """Open the files. Raises CaptureError."""
        self._run = _run_interruptibly(lambda: _core.Run(list(paths), **wanted))
        self.bytes_total = self._run.bytes_total
        self.bytes_read = 0
        self.first_time_ns: int | None = None
        self.result: dict[str, Any] = {}

    def report(self, progress: Progress | None) -> None:
        """Tell how far the capture is read."""
        if progress:
            progress(self.bytes_read, self.bytes_total)

    def step(self, packets: int = STEP) -> bool:
        """Read up to that many packets; False at the end."""
        going = _run_interruptibly(lambda: self._run.step(packets))
        self.bytes_read = self._run.bytes_read
        self.first_time_ns = self._run.first_time_ns
        return going

    def read(self, progress: Progress | None, kept: RpcColumns | None = None) -> Iterator[Callable[[str], Any]]:
        """Read to the end; yield for each piece, the last one too, what gives the columns of a table.

        `kept` takes the rows of RPCs. `result` has what the core found when the last piece is given.
        """
        while self.step(STEP):
            if kept:
                kept.take(self)
            yield self.take
            self.report(progress)
        self.result = kept.finish(self) if kept else self.finish()
        yield self.result.__getitem__

    def take(self, table: str) -> dict[str, Any]:
        """See `_core.Run.take`."""
        return _run_interruptibly(lambda: self._run.take(table))

    def take_rpcs(self, least: int, most: int) -> list[dict[str, Any]]:
        """See `_core.Run.take_rpcs`."""
        return _run_interruptibly(lambda: self._run.take_rpcs(least, most))

    def finish(self) -> dict[str, Any]:
        """See `_core.Run.finish`."""
        found = _run_interruptibly(lambda: self._run.finish())
        _return_freed_memory(self.bytes_read)
        return found


def _return_freed_memory(read: int) -> None:
    """Return to the system what the core freed: thousands of connections leave gaps between rows (malloc_trim(3))."""
    if read < LARGE:
        return
    import ctypes

    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _run_interruptibly(work: Callable[[], _T]) -> _T:
    """Run a blocking call outside Python in a thread and wait for it, so that signals are handled meanwhile.

    Signals are handled in the main thread alone: another one makes the call itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[_T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again by the caller
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


def read_ahead(pieces: Iterable[_T | None], meanwhile: Callable[[], None]) -> Iterator[_T]:
    """Make each piece in a thread of its own while the one before is used; `meanwhile` is called every now and then.

    None is no piece: where none comes for long, `pieces` yields it, so that the thread ends soon if nobody needs more.
    """
    found: queue.Queue[tuple[_T | None, BaseException | None]] = queue.Queue(1)
    stopped = threading.Event()

    def give(piece: _T | None, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                found.put((piece, error), timeout=PATIENCE_S)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for piece in pieces:
                if piece is not None:
                    give(piece)
                if stopped.is_set():
                    return
            give(None)
        except BaseException as error:  # raised again by the caller
            give(None, error)

    thread = threading.Thread(target=read, name="grpcdiag-read", daemon=True)
    thread.start()
    try:
        while True:
            meanwhile()
            try:
                piece, error = found.get(timeout=PATIENCE_S)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            if piece is None:
                return
            yield piece
    finally:
        stopped.set()
        thread.join(STOP_S)


def unreadable(path: str) -> str | None:
    """Say why a file cannot be read as a capture; None when it can, even if it is damaged later."""
    from .errors import CaptureError

    try:
        _core.Run([path]).step(1)
    except CaptureError as error:
        return str(error)
    return None
