"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once everything is written, and is gone after an error or Ctrl-C.

    What is no ordinary file, such as a pipe or /dev/stdout, is written as it is, and so is a file in a folder that
    takes no others. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        with target.open("wb") as out:
            yield out
        return
    part = target.with_name(f".grpcdiag-{os.getpid()}-{target.name[-200:]}")
    try:
        with part.open("xb") as out:
            yield out
        if target.exists():
            part.chmod(target.stat().st_mode & 0o7777)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
