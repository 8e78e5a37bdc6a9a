"""The manifest of a dataset: its batches, which have the rows of many recordings in one file per hour and table.

    DATASET/_compacted/000000000042.json

The newest manifest counts. A change writes the next number, unless another command has written it: then that one is
read, and the change is made again. Datasets that were never compacted have no manifest.

A batch is first prepared: its name and its recordings are known, and its files are being written. From then on any
command can finish it, so a killed one leaves nothing undone. Once it is committed, its files count and those of its
recordings do not. It is clean once these are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from ..recordings import store

FOLDER = "_compacted"
SCHEMA = "grpcdiag.fleet-manifest/1"
_KEPT = 10
"""Manifests kept, so that the last changes can be looked up."""
BATCH = re.compile(r"batch-[0-9T-]{1,30}-[0-9a-f]{10}")
"""Names of batches: their hour, and a hash of their recordings. Names of recordings' files have a dot."""


class Batch(Struct, frozen=True, kw_only=True):
    """Rows of many recordings."""

    name: str
    state: Literal["prepared", "committed", "clean"]
    recordings: int
    last_time_ns: int
    """Time of the last packet of all its recordings."""
    sources: tuple[str, ...] = ()
    """Names of the markers of its recordings, until these are removed."""

    def follow(self) -> Batch:
        """Return the batch in the next state."""
        if self.state == "prepared":
            return replace(self, state="committed")
        return replace(self, state="clean", sources=())


class Manifest(Struct, frozen=True, kw_only=True):
    """The batches of a dataset."""

    schema: str = SCHEMA
    number: int = 0
    batches: tuple[Batch, ...] = ()

    @property
    def claimed(self) -> frozenset[str]:
        """List the names of markers that are in batches, as far as these are not clean."""
        return frozenset(source for batch in self.batches for source in batch.sources)


class _Written(Struct, frozen=True):
    """The property of manifests of all versions."""

    schema: str


def read(dataset: str) -> Manifest:
    """Read the newest manifest; an empty one with the number 0 if there is none. Raises StoreError."""
    while True:
        there = _list(dataset)
        if not there:
            return Manifest()
        number, url = max(there.items())
        try:
            return _decode(number, url, store.read([url])[url])
        except store.StoreError:
            if max(_list(dataset), default=0) == number:  # else another command has removed it as old
                raise


def newest(dataset: str) -> int:
    """Return the number of the newest manifest; 0 if there is none. Raises StoreError."""
    return max(_list(dataset), default=0)


def _list(dataset: str) -> dict[int, str]:
    names = {url.rpartition("/")[2].removesuffix(".json"): url for url in store.names(_url(dataset, ""))}
    return {int(name): url for name, url in names.items() if name.isascii() and name.isdecimal()}


def _url(dataset: str, name: str) -> str:
    return f"{dataset.rstrip('/')}/{FOLDER}/{name}"


def _decode(number: int, url: str, content: bytes) -> Manifest:
    try:
        schema = json.decode(content, type=_Written).schema
        found = json.decode(content, type=Manifest) if schema == SCHEMA else None
    except (MsgspecError, UnicodeDecodeError) as error:
        raise store.StoreError(f"{url}: it is no manifest of a dataset: {error}") from None
    if found is None:
        raise store.StoreError(f"{url}: its structure {schema!r} is not understood: upgrade grpcdiag")
    if any(not BATCH.fullmatch(batch.name) for batch in found.batches):
        raise store.StoreError(f"{url}: it is no manifest of a dataset: names of its batches are others'")
    return Manifest(number=number, batches=found.batches)


def update(dataset: str, change: Callable[[Sequence[Batch]], Sequence[Batch]]) -> Manifest:
    """Change the batches by a function that can be called again; return the manifest. Raises StoreError."""
    while True:
        before = read(dataset)
        batches = tuple(change(before.batches))
        if batches == before.batches:
            return before
        after = Manifest(number=before.number + 1, batches=batches)
        if not store.put_new(json.encode(after), _url(dataset, f"{after.number:012}.json")):
            continue
        there = _list(dataset)
        if max(there) == after.number:
            store.remove([url for number, url in there.items() if number <= after.number - _KEPT])
            return after
        # a later one is there, based on this one or on another one of the same number that was removed as old
