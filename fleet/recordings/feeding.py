"""Give a recording's files to the core; files of an object store come through named pipes and are not copied to disk.

The core opens each file twice: first to sort the files by their first packets, then to read them one after the other.
So each path is at first a file with the beginning of the capture, and a named pipe when reading begins.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ...interruption import scratch
from . import store
from .series import File

HEAD_BYTES = 1 << 16
"""Bytes from the beginning of each file, which show its format and its first packet's time."""
CHUNK_BYTES = 8 << 20
"""Bytes per request, after a first request of `HEAD_BYTES`."""
_AHEAD = 3
"""Most chunks in transit or waiting for the core: times `CHUNK_BYTES`, the most of a recording in memory."""
_POLL_S = 0.002
_PATIENCE_S = 0.5
"""Seconds between two checks whether the core still reads."""


class Feed:
    """Paths that can be read once, in order, after `begin`."""

    def __init__(self, paths: Sequence[str], reasons: dict[int, str], urls: Mapping[str, str] = {}) -> None:
        """Store `paths` of readable files, their `urls` by path, and why others cannot be read, by number."""
        self.paths, self.reasons, self._urls = list(paths), reasons, urls

    def named(self, text: str) -> str:
        """Replace paths by the files' URLs in a text of the core."""
        for path, url in self._urls.items():
            text = text.replace(path, url)
        return text

    def begin(self) -> None:
        """Begin to deliver the files: the core has sorted them and reads now."""

    def check(self) -> None:
        """Check that the core got all bytes that it read. Raises StoreError if not."""


@contextmanager
def feed(files: Sequence[File], folder: Path) -> Iterator[Feed]:
    """Yield the `Feed` of a recording. Raises StoreError."""
    local = [store.local_path(file.url) for file in files]
    if None not in local:
        paths = dict(enumerate(path for path in local if path))
        reasons = _unreadable(paths)
        yield Feed([path for number, path in paths.items() if number not in reasons], reasons)
        return
    heads = {number: str(folder / f"{number:05}") for number in range(len(files))}  # names of a store may be anything
    for number, head in enumerate(store.heads(files, HEAD_BYTES)):
        Path(heads[number]).write_bytes(head)
    reasons = _unreadable(heads)
    kept = [number for number in heads if number not in reasons]
    times = {number: _first_time(heads[number]) for number in kept} if len(kept) > 1 else {}
    if _tell_too_little(files, heads, reasons, times):
        for number, path in heads.items():
            store.get(files[number].url, Path(path))
        reasons = _unreadable(heads)
        whole = {path: files[number].named for number, path in heads.items() if number not in reasons}
        yield Feed(list(whole), reasons, whole)
        return
    kept.sort(key=lambda number: (times.get(number) is None, times.get(number)))
    pipes = _Pipes([files[number] for number in kept], [heads[number] for number in kept], reasons)
    try:
        yield pipes
    finally:
        pipes.close()


def _unreadable(paths: dict[int, str]) -> dict[int, str]:
    from ...analyzer.decode.runner import unreadable

    found = {number: unreadable(path) for number, path in paths.items()}
    return {number: reason.removeprefix(f"{paths[number]}: ") for number, reason in found.items() if reason}


def _tell_too_little(
    files: Sequence[File], heads: dict[int, str], reasons: dict[int, str], times: dict[int, int | None]
) -> bool:
    """Check whether files must be copied: their beginnings show too little, or the system has no pipes."""
    more = [number for number in heads if files[number].size > HEAD_BYTES]
    packed = [number for number in more if Path(heads[number]).read_bytes().startswith(_PACKED)]
    late = any(times.get(number, 0) is None for number in more)
    unknown = any(not file.size for number, file in enumerate(files) if Path(heads[number]).stat().st_size)
    return not hasattr(os, "mkfifo") or late or unknown or any(number in reasons for number in packed)


_PACKED = (bytes.fromhex("1f8b"), bytes.fromhex("28b52ffd"), bytes.fromhex("04224d18"))
"""First bytes of gzip, zstd and lz4 files."""


def _first_time(path: str) -> int | None:
    """Read the time of a file's first packet; None if its beginning holds none."""
    from ...analyzer import _core

    run = _core.Run([path])
    run.step(1)
    first: int | None = run.finish()["capture"]["first_time_ns"]
    return first


def first_time(file: File) -> int | None:
    """Read the time of a file's first packet; None if its beginning holds none, 0 if it is no capture.

    Raises StoreError.
    """
    from ...analyzer.decode.errors import CaptureError, EmptyCaptureError

    with scratch("grpcdiag-") as folder:
        path = store.local_path(file.url)
        if path is None:
            path = str(folder / "head")
            Path(path).write_bytes(store.head(file.url, HEAD_BYTES))
        try:
            return _first_time(path)
        except EmptyCaptureError:
            return None
        except CaptureError:
            return 0


class _Pipes(Feed):
    """Delivers the files of a store to the core, one after the other."""

    def __init__(self, files: Sequence[File], paths: Sequence[str], reasons: dict[int, str]) -> None:
        super().__init__(paths, reasons, {path: file.named for path, file in zip(paths, files, strict=True)})
        self._files = files
        self._error: store.StoreError | None = None
        self._begun, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="grpcdiag-feed", daemon=True)
        if self.paths:
            _pipe(self.paths[0])  # the core reads the first file at once; the others become pipes in `begin`
            self._thread.start()

    def begin(self) -> None:
        for path in self.paths[1:]:
            _pipe(path)
        self._begun.set()

    def check(self) -> None:
        if self._error:
            raise self._error

    def close(self) -> None:
        """Stop delivering."""
        self._closed.set()
        self._begun.set()
        if self.paths:
            self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(_AHEAD) as pool:
            for number, (file, path) in enumerate(zip(self._files, self.paths, strict=True)):
                pipe = self._opened(path)
                if pipe is None:
                    return
                try:
                    if not self._error:  # after an error, the remaining files are empty: `check` raises it
                        self._give(file, pipe, pool, number == 0)
                except BrokenPipeError:
                    pass  # the core stops reading a damaged file
                except store.StoreError as error:
                    self._error = error
                except BaseException as error:  # `check` raises it
                    self._error = store.StoreError(f"{file.url}: it could not be handed on: {error!r}", file.url)
                finally:
                    os.close(pipe)

    def _give(self, file: File, pipe: int, pool: ThreadPoolExecutor, first: bool) -> None:
        """Write one file into its pipe. Raises StoreError, BrokenPipeError."""
        waiting: list[Future[bytes]] = []
        try:
            for begin, end in _ranges(file.size):
                waiting.append(pool.submit(store.part, file.url, begin, end))
                if first and begin == 0:
                    self._write(pipe, waiting.pop(0).result())
                    self._begun.wait()
                elif len(waiting) == _AHEAD:
                    self._write(pipe, waiting.pop(0).result())
            while waiting:
                self._write(pipe, waiting.pop(0).result())
        finally:
            for one in waiting:
                one.cancel()

    def _write(self, pipe: int, content: bytes) -> None:
        rest = memoryview(content)
        while rest and not self._closed.is_set():
            if select.select((), (pipe,), (), _PATIENCE_S)[1]:
                rest = rest[os.write(pipe, rest) :]

    def _opened(self, path: str) -> int | None:
        """Open a pipe for writing once the core has opened it for reading; None after `close` or an error."""
        while not self._closed.is_set():
            try:
                return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    self._error = store.StoreError(f"{path}: {error.strerror}")
                    return None
            time.sleep(_POLL_S)
        return None


def _ranges(size: int) -> Iterator[tuple[int, int]]:
    """Yield byte ranges of a file, a small one first."""
    begin, end = 0, min(size, HEAD_BYTES)
    while begin < size:
        yield begin, end
        begin, end = end, min(end + CHUNK_BYTES, size)


def _pipe(path: str) -> None:
    """Replace a file by a named pipe."""
    made = f"{path}.pipe"
    os.mkfifo(made, 0o600)
    Path(made).replace(path)
