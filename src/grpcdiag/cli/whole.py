"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..interruption import Unfinished


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once everything is written, and is gone after an error or a signal.

    What is no ordinary file, such as a pipe or /dev/stdout, is written as it is, and so is a file in a folder that
    takes no others. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        with target.open("wb") as out:
            yield out
        return
    part = target.with_name(f".grpcdiag-{os.getpid()}-{target.name[-200:]}")
    part.unlink(missing_ok=True)  # of a process that was killed and had the same number
    with Unfinished(lambda: part.open("xb"), lambda _: part.unlink(missing_ok=True)) as out:
        with out:
            yield out
        if target.exists():
            part.chmod(target.stat().st_mode & 0o7777)
        part.replace(target)
