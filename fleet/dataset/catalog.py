"""The dataset: Parquet files by table and hour, and one marker per recording, written last.

    DATASET/rpcs/hour=2026-07-01T10/<recording>.<version>.parquet
    DATASET/_recordings/<recording>.<version>.json

The rows of many recordings are later put into batches, see `batches`:

    DATASET/rpcs/hour=2026-07-01T10/<batch>.parquet

Object stores cannot rename files, so a recording is in the dataset once its marker is: readers use only files whose
names have the recording and version of a marker. Both are the same in every run over the same files: two workers that
analyze the same recording write the same files, and files of a killed run are overwritten or removed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import MsgspecError, Struct, json

from ...interruption import scratch
from ..recordings import store
from ..recordings.credentials import without_credentials
from ..recordings.series import File, Recording, digest
from . import batches, delta
from .batches import Batch

TABLES = ("connections", "rpcs", "waits", "findings", "problems", "totals", "latencies")
"""Tables, one folder each; `totals` and `latencies` are sums of `rpcs`."""
MARKERS = "_recordings"
SCHEMA = "grpcdiag.fleet-recording/3"
_PART = re.compile(r"(?P<series>.*)\.(?P<epoch>\d+)-(?P<number>\d+)")
OPEN = ".open"
"""Part of the names of files with what was open at a part's end: they count while no part continues it."""
PRUNED = ".pruned"
"""Ending of what is left of the marker of a recording without a head, once it was pruned."""
_PARTLY = ".partly"
"""Part of the names of markers of recordings with skipped files, so that a listing finds them."""


_Result = TypeVar("_Result")


class LeftOut(Struct, frozen=True):
    """A file that was skipped."""

    file: str
    reason: str


class Marker(Struct, frozen=True, kw_only=True):
    """The marker of a recording in the dataset."""

    schema: str = SCHEMA
    recording: str
    version: str
    host: str
    interface: str | None
    files: tuple[str, ...]
    """Files in the order in which they were read."""
    sidecar: tuple[str, ...] = ()
    """Sidecar files of `grpcdiag capture` that were used."""
    size: int
    """Bytes of the files."""
    first_time_ns: int | None
    last_time_ns: int | None
    packets: int
    rpcs: int
    no_grpc: str | None
    """Why the recording has no RPCs; None if it has."""
    rows: dict[str, int]
    warnings: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    seconds: float
    """Elapsed time of the worker in seconds."""
    cpu_seconds: float = 0.0
    """Processor time of the worker in seconds."""
    peak_bytes: int
    """Peak memory of the worker so far."""
    grpcdiag: str
    """Version of grpcdiag that analyzed the recording."""


class Committed(Struct, frozen=True):
    """A marker, as far as its name shows it."""

    url: str
    recording: str
    version: str
    partly: bool

    @property
    def stem(self) -> str:
        """Return the common part of the names of the recording's files."""
        return f"{self.recording}.{self.version}"


class Contents(Struct, frozen=True):
    """What a dataset has."""

    present: dict[str, Committed]
    """Recordings with files of their own, by id."""
    batches: tuple[Batch, ...] = ()
    """Batches that have the rows of others."""
    number: int = 0
    """Number of the version of the batches."""

    def __bool__(self) -> bool:
        """Check whether the dataset has any recording."""
        return bool(self.present or self.batches)

    @property
    def stems(self) -> set[str]:
        """List the names of all files of rows, without their ending."""
        every = self.present
        stems = {one.stem for one in every.values()} | {batch.name for batch in self.batches}
        return stems | {f"{one.stem}{OPEN}" for one in every.values() if not is_continued(one.recording, every)}


def series_of(recording: str) -> str:
    """Return the series of which a recording is a part; without parts it is the recording."""
    return match["series"] if (match := _PART.fullmatch(recording)) else recording


def place_of(recording: str) -> tuple[int, int]:
    """Return the epoch of a part, and its number."""
    return (int(match["epoch"]), int(match["number"])) if (match := _PART.fullmatch(recording)) else (0, 0)


def is_continued(recording: str, present: Mapping[str, Committed]) -> bool:
    """Check whether the next part is there, and has what was open at the end of this one."""
    epoch, number = place_of(recording)
    return f"{series_of(recording)}.{epoch}-{number + 1}" in present


def version(recording: Recording, ports: Sequence[int], keylog: File | None = None) -> str:
    """Compute the version of a recording from what its rows depend on: files, sidecar, and options of decoding."""
    files = [*recording.files, *recording.sidecar, *([keylog] if keylog else [])]
    return digest(repr(([(file.named, file.size, file.version) for file in files], sorted(ports))))


def partition(dataset: str, table: str, hour: str, stem: str) -> str:
    """Make the URL of a recording's rows."""
    return f"{dataset.rstrip('/')}/{table}/hour={hour}/{stem}.parquet"


def read_contents(dataset: str) -> Contents:
    """List the recordings of a dataset and its batches. Raises StoreError."""
    while True:
        known = batches.read(dataset)
        moved = known.moved
        present = {name: one for name, one in committed(dataset).items() if name not in moved}
        if batches.read_version(dataset) == known.number:  # else recordings may have moved into a batch meanwhile
            return Contents(present, known.every, known.number)


def read_steadily(dataset: str, work: Callable[[Contents], _Result]) -> _Result:
    """Call a function that reads the dataset, and again if the dataset changed before it failed. Raises StoreError."""
    while True:
        contents = read_contents(dataset)
        try:
            return work(contents)
        except Exception as error:
            if not is_of_reading(error) or read_contents(dataset) == contents:
                raise


def is_of_reading(error: Exception) -> bool:
    """Check whether it is an error of a store, or of DuckDB, which reads files of a folder itself."""
    return isinstance(error, store.StoreError) or "duckdb" in type(error).__module__


def committed(dataset: str) -> dict[str, Committed]:
    """List the markers of a dataset by id; of two versions, the one with the later name. Raises StoreError."""
    found = {}
    for url in store.names(f"{dataset.rstrip('/')}/{MARKERS}"):
        name = url.rpartition("/")[2]
        if not name.endswith(".json") or name.startswith("."):
            continue
        one = named(url)
        found[one.recording] = one
    return found


def list_pruned(dataset: str) -> dict[str, Committed]:
    """List recordings without a head that were pruned, by id, so that no run analyzes them again. Raises StoreError."""
    urls = [url for url in store.names(f"{dataset.rstrip('/')}/{MARKERS}") if url.endswith(PRUNED)]
    return {one.recording: one for one in map(named, urls)}


def is_pruned(one: Committed) -> bool:
    """Check whether a recording was pruned."""
    return one.url.endswith(PRUNED)


def markers_of(dataset: str, recording: str) -> list[str]:
    """List the markers of a recording, also those that runs left which were killed. Raises StoreError."""
    urls = store.matching(f"{dataset.rstrip('/')}/{MARKERS}/{recording}.*.json")
    return [url for url in urls if named(url).recording == recording]


def parts_of(dataset: str, series: str) -> list[Committed]:
    """List the parts of a series, the newest first. Raises StoreError."""
    found = map(named, store.matching(f"{dataset.rstrip('/')}/{MARKERS}/{series}.*.json"))
    parts = [one for one in found if series_of(one.recording) == series]
    return sorted(parts, key=lambda one: place_of(one.recording), reverse=True)


def named(url: str) -> Committed:
    """Read the name of a marker."""
    stem = url.rpartition("/")[2].removesuffix(PRUNED).removesuffix(".json")
    recording, _, of = stem.removesuffix(_PARTLY).rpartition(".")
    return Committed(url, recording, of, stem.endswith(_PARTLY))


def name_of(marker: Marker) -> str:
    """Return the name of a marker's file."""
    return f"{marker.recording}.{marker.version}{_PARTLY if marker.left_out else ''}.json"


def commit(dataset: str, marker: Marker, older: Sequence[str], last: str = "", number: int = 0) -> str:
    """Add a recording to the dataset, and replace those of the `older` markers; return its URL. Raises StoreError.

    They may be of the same recording, of the `last` part of the series, which is in no batch, or of any of its parts if
    the batches still have this `number`.
    """
    url = f"{dataset.rstrip('/')}/{MARKERS}/{name_of(marker)}"
    # remove before adding: two versions of a recording are never in the dataset together
    others = [other for other in older if other != url]
    if {named(other).recording for other in others} <= {marker.recording, last}:
        store.remove(others)
    else:
        _remove_unmoved(dataset, others, number)
    with scratch("grpcdiag-") as folder:
        store.put_bytes(json.encode(marker), url, folder)
    return url


def _remove_unmoved(dataset: str, urls: Sequence[str], number: int) -> None:
    """Remove markers of parts, unless another command puts parts into a batch meanwhile. Raises StoreError."""
    if batches.read_version(dataset) == number:
        store.remove(urls)
    if batches.read_version(dataset) != number:
        raise store.StoreError(f"{dataset}: it was compacted meanwhile; the next run analyzes this again", dataset)


def markers(found: Iterable[Committed]) -> list[Marker]:
    """Read markers. Raises StoreError."""
    return [_marker(url, content) for url, content in store.read([one.url for one in found]).items()]


def markers_in(dataset: str, some: Iterable[Batch]) -> dict[str, list[Marker]]:
    """Read the markers of batches, by their names. Raises StoreError."""
    table = delta.read(dataset, batches.FOLDER)
    found = batches.read_rows(table, [batch.name for batch in some]) if table else {}
    return {name: [_marker(row.stem, row.marker.encode()) for row in rows] for name, rows in found.items()}


def read_batched(dataset: str, series: Collection[str]) -> dict[str, list[Marker]]:
    """Read the markers of these series that are in batches, by series, the newest parts first. Raises StoreError."""
    found: dict[str, list[Marker]] = defaultdict(list)
    for those in markers_in(dataset, batches.read(dataset).every).values():
        for marker in those:
            if (name := series_of(marker.recording)) in series:
                found[name].append(marker)
    for those in found.values():
        those.sort(key=lambda marker: place_of(marker.recording), reverse=True)
    return dict(found)


def find_marker(dataset: str, recording: str) -> Marker | None:
    """Read the marker of a recording; None if the dataset has none. Raises StoreError."""
    contents = read_contents(dataset)
    if recording in contents.present:
        return markers([contents.present[recording]])[0]
    every = (marker for some in markers_in(dataset, contents.batches).values() for marker in some)
    return next((marker for marker in every if marker.recording == recording), None)


class _Written(Struct, frozen=True):
    """The properties of markers of all versions."""

    schema: str
    grpcdiag: str = "another version"


def _marker(url: str, content: bytes) -> Marker:
    try:
        written = json.decode(content, type=_Written)
        if written.schema == SCHEMA:
            return json.decode(content, type=Marker)
    except (MsgspecError, UnicodeDecodeError) as error:
        raise store.StoreError(f"{url}: it is no marker of a dataset: {error}") from None
    if not written.schema.startswith(SCHEMA.rpartition("/")[0]):
        raise store.StoreError(f"{url}: it is no marker of a dataset: its structure is {written.schema!r}")
    raise store.StoreError(
        f"{url}: the dataset was written by grpcdiag {written.grpcdiag}, whose structure {written.schema!r} "
        f"is not understood here: {advise(written.schema, SCHEMA)}"
    )


def advise(schema: str, known: str) -> str:
    """Say what to do with a file of another structure than the one that is known: its number shows which is older."""
    number = schema.rpartition("/")[2]
    if number.isdecimal() and int(number) < int(known.rpartition("/")[2]):
        return "it is older, so analyze the captures anew into another dataset"
    return "upgrade grpcdiag, or write another dataset"


def check(contents: Contents) -> Contents:
    """Check with one marker that this version can read the dataset; return its contents. Raises StoreError."""
    if contents.present:
        markers([max(contents.present.values(), key=lambda one: one.stem)])
    return contents


def prepare(dataset: str) -> None:
    """Check that the dataset can be written before hours of work. Raises WriteError."""
    url = f"{dataset.rstrip('/')}/{MARKERS}/.try"
    try:
        with scratch("grpcdiag-") as folder:
            store.put_bytes(b"", url, folder)
    except store.StoreError as error:
        reason = str(error).removeprefix(f"{without_credentials(url)}: ")
        raise store.WriteError(f"cannot write {dataset}: {reason}", dataset) from None
    with suppress(store.StoreError):  # some users may write but not delete
        store.remove([url])


def sweep(dataset: str, contents: Contents, mine: Iterable[str] | None) -> int:
    """Remove files that count no more, or that killed runs left, of `mine` series; None for all; return their number.

    What was open at the end of a part is removed with all series, once the next part has it. Raises StoreError.
    """
    store.remove_parts(dataset)
    wanted, stems = None if mine is None else set(mine), contents.stems
    stale = []
    for url in (url for table in TABLES for url in list_files(dataset, table)):
        stem = stem_of(url)
        recording = stem.removesuffix(OPEN).rpartition(".")[0]
        is_mine = wanted is None or series_of(recording) in wanted
        is_over = stem.endswith(OPEN) and is_continued(recording, contents.present)
        if stem not in stems and (is_mine or is_over) and not batches.BATCH.fullmatch(stem):
            stale.append(url)
    store.remove(stale)
    return len(stale)


def list_files(dataset: str, folder: str) -> list[str]:
    """List the files of a folder of the dataset. Raises StoreError."""
    return list(list_sizes(dataset, folder))


def list_sizes(dataset: str, table: str) -> dict[str, int]:
    """List the Parquet files of a table, with their sizes. Raises StoreError."""
    found = store.sizes(f"{dataset.rstrip('/')}/{table}")
    return {url: size for url, size in found.items() if url.endswith(".parquet") and f"/{delta.LOG}/" not in url}


def stem_of(url: str) -> str:
    """Return the name of a file of rows without its ending."""
    return url.rpartition("/")[2].removesuffix(".parquet")


def pieces(dataset: str, table: str, contents: Contents) -> list[str]:
    """List the files of a table that are part of the dataset. Raises StoreError."""
    stems = contents.stems
    return [url for url in list_files(dataset, table) if stem_of(url) in stems]


def state(contents: Contents) -> str:
    """Compute a hash of the contents of a dataset."""
    stems = (one.stem for one in contents.present.values())
    return digest(repr(sorted([*stems, *(batch.name for batch in contents.batches)])))
