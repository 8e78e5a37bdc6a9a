"""Reading a capture in the background: imports nothing that takes long, so that reading begins at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

from . import _core

Progress = Callable[[int, int | None], None]
"""Told the bytes read and, for files, the bytes of all files together."""

STEP = 100_000
"""Packets between two reports of progress."""

THREADS = min(2, os.cpu_count() or 1)
"""Threads the core may use; the result is the same whatever their number."""

KEY_LOG_BYTES = 256 << 20
"""Bytes of a key log that are read: some 280,000 connections, more than are kept."""

_PATIENCE_S = 0.1
"""Seconds between two looks at progress and Ctrl-C."""


class How(TypedDict, total=False):
    """How captures are read, besides their paths."""

    ports: list[int]
    """Ports whose connections are HTTP/2 whatever they look like."""
    keylog: bytes
    """TLS secrets in the format of SSLKEYLOGFILE; those that a pcapng file holds are used too."""
    own_secrets: bool
    """Whether those are; they are unless it says otherwise."""


class Reading:
    """A run of the core over one capture, in a thread of its own."""

    def __init__(self, paths: Sequence[str], *, rpc_rows: bool = False, **how: Unpack[How]) -> None:
        """Open the files and begin to read. Raises CaptureError."""
        self._run = _core.Run(list(paths), rpc_rows=rpc_rows, threads=THREADS, **how)
        self._total = self._run.bytes_total
        self._read = 0
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._step, name="grpcdiag-read", daemon=True)
        self._thread.start()

    def _step(self) -> None:
        try:
            while not self._stopped and self._run.step(STEP):
                self._read = self._run.bytes_read
        except BaseException as error:  # told to whoever waits
            self._error = error

    def finish(self, progress: Progress | None = None) -> dict[str, Any]:
        """Wait for the end and give what the core found; `tables.tables_of` makes tables of it."""
        try:
            while self._thread.is_alive():
                self._thread.join(_PATIENCE_S if progress else None)
                if progress:
                    progress(self._read, self._total)
        except KeyboardInterrupt:
            self._stopped = True
            raise
        if self._error:
            raise self._error
        return self._run.finish()


def unreadable(path: str) -> str | None:
    """Why a file cannot be read as a capture; None when it can, be it damaged further on."""
    from .errors import CaptureError

    try:
        _core.Run([path]).step(1)
    except CaptureError as error:
        return str(error)
    return None
