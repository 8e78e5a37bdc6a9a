"""The head of a series: what the next run needs to go on behind the files that were analyzed.

    DATASET/_series/<series>.json
    DATASET/_series/<part>.<version>.state

A series of files is analyzed in parts: each run adds one with the files that are new. A state is what the core saves at
the end of a part: sequence numbers, header tables without values, open calls. With it, a part costs the reading of its
own files.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from msgspec import MsgspecError, Struct, json

from ...interruption import scratch
from ..recordings import store
from ..recordings.series import File
from .catalog import LeftOut

FOLDER = "_series"
SCHEMA = "grpcdiag.fleet-series/1"
MOST_STATE_BYTES = 1 << 30
"""Most bytes of a state: a larger one is not used (heuristic: 32,768 connections of 30 kB)."""

Version = tuple[int, str]
"""Size of a file and the store's mark of its contents."""


class Part(Struct, frozen=True):
    """The place of a part: parts of one epoch continue each other, and each epoch begins without a state."""

    series: str
    epoch: int = 0
    number: int = 0

    @property
    def id(self) -> str:
        """Return the name of its recording in the dataset."""
        return f"{self.series}.{self.epoch}-{self.number}" if self.epoch or self.number else self.series

    @property
    def successor(self) -> Part:
        """Return the part that continues this one."""
        return Part(self.series, self.epoch, self.number + 1)


class Head(Struct, frozen=True, kw_only=True):
    """The head of a series."""

    schema: str = SCHEMA
    options: str
    """Hash of the options of decoding; with other options all files are analyzed again."""
    sidecar: str = ""
    """Hash of the versions of the sidecar's files."""
    part: Part
    """The last part that others may continue."""
    marker: str
    """URL of its marker."""
    next_epoch: int = 1
    state: str | None = None
    """URL of the state at its end."""
    before: str | None = None
    """URL of the state at its beginning."""
    last_time_ns: int | None = None
    """Time of its last packet."""
    files: dict[str, Version]
    """Files that are in the dataset, as far as the last run found them."""
    last: tuple[str, ...]
    """Files of `part`."""
    failed: dict[str, Version] = {}
    """Files that could not be read."""
    left_out: tuple[LeftOut, ...] = ()
    """Why not."""
    open_files: tuple[str, ...] = ()
    """URLs of the rows of calls that were open at its end: the next part has them anew."""


def version_of(file: File) -> Version:
    """Return the size of a file and its mark."""
    return file.size, file.version


def url_of(dataset: str, name: str) -> str:
    """Make the URL of a file of the folder of heads."""
    return f"{dataset.rstrip('/')}/{FOLDER}/{name}"


def read(dataset: str, series: Iterable[str]) -> dict[str, Head]:
    """Read the heads of those series that have one. Raises StoreError."""
    wanted = {url_of(dataset, f"{one}.json").rpartition("/")[2] for one in series}
    there = [url for url in store.names(url_of(dataset, "")) if url.rpartition("/")[2] in wanted]
    found = {}
    for url, content in store.read(there).items():
        try:
            head = json.decode(content, type=Head)
        except (MsgspecError, UnicodeDecodeError) as error:
            raise store.StoreError(f"{url}: it is no head of a series: {error}") from None
        if head.schema != SCHEMA:
            raise store.StoreError(f"{url}: its structure {head.schema!r} is not understood: upgrade grpcdiag")
        found[head.part.series] = head
    return found


def write(dataset: str, head: Head) -> None:
    """Write a head. Raises StoreError."""
    with scratch("grpcdiag-") as folder:
        store.put_bytes(json.encode(head), url_of(dataset, f"{head.part.series}.json"), folder)


def write_state(dataset: str, stem: str, state: bytes) -> str:
    """Write the state at the end of a part; return its URL. Raises StoreError."""
    url = url_of(dataset, f"{stem}.state")
    with scratch("grpcdiag-") as folder:
        store.put_bytes(zlib.compress(state, 1), url, folder)
    return url


def read_state(url: str) -> bytes:
    """Read a state. Raises StoreError."""
    content = store.read([url])[url]
    unpacker = zlib.decompressobj()
    try:
        state = unpacker.decompress(content, MOST_STATE_BYTES)
    except zlib.error as error:
        raise store.StoreError(f"{url}: {error}", lasting=True) from None
    if not unpacker.eof:
        raise store.StoreError(f"{url}: it is larger than {MOST_STATE_BYTES >> 20} MiB, or cut", lasting=True)
    return state
