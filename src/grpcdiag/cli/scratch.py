"""Temporary folders."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder that is gone at the end. Ctrl-C while it is cleared away comes too late."""
    import tempfile

    folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    try:
        yield Path(folder.name)
    finally:
        before = signal.getsignal(signal.SIGINT)
        mine = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
        if mine:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        folder.cleanup()
        if mine:
            signal.signal(signal.SIGINT, before)
