"""Running the core over a capture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _core
from .tables import Frames, Messages, Packets, Table, Tables, table_of, tables_of

CaptureError = _core.CaptureError
"""A capture cannot be opened or is none; the message says which file, where, and what to do."""

Progress = Callable[[int, int | None], None]
"""Told the bytes read and, for files, the bytes of all files together."""

STEP = 100_000
"""Packets between two calls of the progress function, and between two looks at Ctrl-C."""

THREADS = min(2, os.cpu_count() or 1)
"""Threads the core may use; the result is the same whatever their number."""

_STREAMED: dict[type[Any], str] = {Frames: "frames", Messages: "messages", Packets: "packets"}


def decode(
    paths: Sequence[str], *, ports: Sequence[int] = (), rpc_budgets: bool = False, progress: Progress | None = None
) -> Tables:
    """Decode a capture into its tables; frames, messages and packets are counted only.

    `paths` are files of one capture in any order, or `-` for standard input; `ports` are HTTP/2 whatever they look
    like. Raises CaptureError.
    """
    run = _core.Run(list(paths), ports=list(ports), rpc_budgets=rpc_budgets, threads=THREADS)
    while run.step(STEP):
        if progress:
            progress(run.bytes_read, run.bytes_total)
    return tables_of(run.finish())


def stream(
    kind: type[Table], paths: Sequence[str], *, ports: Sequence[int] = (), progress: Progress | None = None
) -> Iterator[Table]:
    """Decode a capture and yield one of the tables `Frames`, `Messages`, `Packets` piece by piece.

    Raises CaptureError, and KeyError for tables that are complete only at the end.
    """
    name = _STREAMED[kind]
    run = _core.Run(
        list(paths), ports=list(ports), frames=name == "frames", messages=name == "messages", packets=name == "packets"
    )
    while run.step(STEP):
        yield table_of(kind, run.take(name))
        if progress:
            progress(run.bytes_read, run.bytes_total)
    yield table_of(kind, run.finish()[name])
