"""The head of a series: what the next run needs to go on behind the files that were analyzed.

    DATASET/_series/<series>.json
    DATASET/_series/<part>.<version>.state

A series of files is analyzed in parts: each run adds one with the files that are new. A state is what the core saves at
the end of a part: sequence numbers, header tables without values, open calls. With it, a part costs the reading of its
own files.

A head is written with names relative to the dataset, so that a dataset can be moved or copied, and read with URLs. The
files that it names are removed later, so a head that names any but its own series' files is not used.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from ...interruption import scratch
from ..recordings import store
from ..recordings.credentials import without_credentials
from ..recordings.series import File
from .catalog import MARKERS, LeftOut, advise, series_of

FOLDER = "_series"
SCHEMA = "grpcdiag.fleet-series/2"
MOST_STATE_BYTES = 256 << 20
"""Most bytes of a state: a larger one is neither written nor read (heuristic: 32,768 connections of 8 kB)."""
MOST_EXPANSION = 64
"""Most bytes of a state per byte of its file, beyond the first MiB (heuristic: states shrink to a quarter)."""

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

    @property
    def states(self) -> tuple[str, ...]:
        """List the URLs of its states."""
        return tuple(url for url in (self.state, self.before) if url)


def version_of(file: File) -> Version:
    """Return the size of a file and its mark."""
    return file.size, file.version


def url_of(dataset: str, name: str) -> str:
    """Make the URL of a file of the folder of heads."""
    return f"{dataset.rstrip('/')}/{FOLDER}/{name}"


def read(dataset: str, series: Iterable[str]) -> dict[str, Head]:
    """Read the heads of those series that have one which can be used. Raises StoreError."""
    wanted = {url_of(dataset, f"{one}.json").rpartition("/")[2] for one in series}
    there = [url for url in store.names(url_of(dataset, "")) if url.rpartition("/")[2] in wanted]
    found = {}
    for url, content in store.read(there).items():
        if head := _decode(dataset, url, content):
            found[head.part.series] = head
    return found


def exist(dataset: str) -> bool:
    """Check whether any series has a head. Raises StoreError."""
    return any(url.endswith(".json") for url in store.names(url_of(dataset, "")))


class _Written(Struct, frozen=True):
    """The property of heads of all versions."""

    schema: str


def _decode(dataset: str, url: str, content: bytes) -> Head | None:
    """Decode a head; None if it names files that are not its own. Raises StoreError."""
    try:
        schema = json.decode(content, type=_Written).schema
        head = json.decode(content, type=Head) if schema == SCHEMA else None
    except (MsgspecError, UnicodeDecodeError) as error:
        raise store.StoreError(f"{url}: it is no head of a series: {error}") from None
    if head is None:
        raise store.StoreError(f"{url}: its structure {schema!r} is not understood: {advise(schema, SCHEMA)}")
    if f"{head.part.series}.json" != url.rpartition("/")[2] or not _names_own_files(head):
        return None
    base = dataset.rstrip("/")
    return replace(
        head,
        marker=f"{base}/{head.marker}",
        state=head.state and f"{base}/{head.state}",
        before=head.before and f"{base}/{head.before}",
    )


def _names_own_files(head: Head) -> bool:
    """Check that all files that a head names are of its series, and inside the dataset."""
    states = [name for name in (head.state, head.before) if name]
    series = head.part.series
    return _is_own(head.marker, series, MARKERS, ".json") and all(
        _is_own(name, series, FOLDER, ".state") for name in states
    )


_NAME = re.compile(r"[\w.~%=-]+(?:/[\w.~%=-]+)+", re.ASCII)
"""Names as this version makes them: no scheme, drive, chain of file systems, pattern or empty part."""


def _is_own(name: str, series: str, folder: str, ending: str) -> bool:
    if not _NAME.fullmatch(name):
        return False
    parts = name.split("/")
    return (
        parts[0] == folder
        and not {".", ".."} & set(parts)
        and parts[-1].startswith(f"{series}.")
        and parts[-1].endswith(ending)
    )


def write(dataset: str, head: Head) -> None:
    """Write a head. Raises StoreError."""
    base = f"{dataset.rstrip('/')}/"
    named = replace(
        head,
        marker=head.marker.removeprefix(base),
        state=head.state and head.state.removeprefix(base),
        before=head.before and head.before.removeprefix(base),
    )
    with scratch("grpcdiag-") as folder:
        store.put_bytes(json.encode(named), url_of(dataset, f"{head.part.series}.json"), folder)


def write_state(dataset: str, stem: str, state: bytes) -> str:
    """Write the state at the end of a part; return its URL. Raises StoreError."""
    url = url_of(dataset, f"{stem}.state")
    with scratch("grpcdiag-") as folder:
        path = folder / "state"
        path.touch(0o600)  # it may have bytes of packets
        path.write_bytes(zlib.compress(state, 1))
        store.put(path, url)
    return url


def sweep(dataset: str, series: Iterable[str] | None) -> None:
    """Remove states that no head of these series names, which killed runs left; None for all. Raises StoreError."""
    urls = [url for url in store.names(url_of(dataset, "")) if url.endswith(".state")]
    of = {url: series_of(url.rpartition("/")[2].removesuffix(".state").rpartition(".")[0]) for url in urls}
    wanted = set(of.values()) if series is None else set(series)
    names = {url.rpartition("/")[2] for head in read(dataset, wanted).values() for url in head.states}
    store.remove([url for url in urls if of[url] in wanted and url.rpartition("/")[2] not in names])


class StateError(Exception):
    """A state cannot be used, and another attempt does not help."""


def read_state(url: str) -> bytes:
    """Read a state. Raises StoreError, StateError."""
    try:
        content = store.head(url, MOST_STATE_BYTES)
    except store.StoreError as error:
        if not error.lasting:
            raise
        raise StateError(str(error)) from None
    unpacker, most = zlib.decompressobj(), min(MOST_STATE_BYTES, (1 << 20) + MOST_EXPANSION * len(content))
    try:
        state = unpacker.decompress(content, most)
    except zlib.error as error:
        raise StateError(f"{without_credentials(url)}: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise StateError(f"{without_credentials(url)}: it is damaged, or too large")
    return state
