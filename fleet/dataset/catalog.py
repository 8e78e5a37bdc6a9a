"""The dataset: Parquet files by table, host and hour, and one marker per recording, written last.

    DATASET/rpcs/host=web-17/hour=2026-07-01T10/<recording>.<version>.parquet
    DATASET/_recordings/<recording>.<version>.json

Object stores cannot rename files, so a recording is in the dataset once its marker is: readers use only files whose
names have the recording and version of a marker. Both are the same in every run over the same files: two workers that
analyze the same recording write the same files, and files of a killed run are overwritten or removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

from msgspec import MsgspecError, Struct, json

from ...interruption import scratch
from ..recordings import store
from ..recordings.credentials import without_credentials
from ..recordings.series import File, Recording, digest

TABLES = ("connections", "rpcs", "waits", "findings", "problems", "totals", "latencies")
"""Tables, one folder each; `totals` and `latencies` are sums of `rpcs`."""
MARKERS = "_recordings"
SCHEMA = "grpcdiag.fleet-recording/1"
_PART = re.compile(r"(?P<series>.*)\.(?P<epoch>\d+)-(?P<number>\d+)")
OPEN = ".open"
"""Part of the names of files with what was open at a part's end: they count while no part continues it."""
_PARTLY = ".partly"
"""Part of the names of markers of recordings with skipped files, so that a listing finds them."""


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


def series_of(recording: str) -> str:
    """Return the series of which a recording is a part; without parts it is the recording."""
    return match["series"] if (match := _PART.fullmatch(recording)) else recording


def _is_continued(recording: str, present: Mapping[str, Committed]) -> bool:
    match = _PART.fullmatch(recording)
    series, epoch, number = (match["series"], match["epoch"], int(match["number"])) if match else (recording, 0, 0)
    return f"{series}.{epoch}-{number + 1}" in present


def _stems(present: Mapping[str, Committed]) -> set[str]:
    """List the names of all files of the dataset, without their ending."""
    stems = {one.stem for one in present.values()}
    return stems | {f"{one.stem}{OPEN}" for one in present.values() if not _is_continued(one.recording, present)}


def version(recording: Recording, ports: Sequence[int], keylog: File | None = None) -> str:
    """Compute the version of a recording from what its rows depend on: files, sidecar, and options of decoding."""
    files = [*recording.files, *recording.sidecar, *([keylog] if keylog else [])]
    return digest(repr(([(file.named, file.size, file.version) for file in files], sorted(ports))))


def partition(dataset: str, table: str, host: str, hour: str, stem: str) -> str:
    """Make the URL of a recording's rows."""
    return f"{dataset.rstrip('/')}/{table}/host={quote(host, safe='')}/hour={hour}/{stem}.parquet"


def committed(dataset: str) -> dict[str, Committed]:
    """List the recordings of a dataset by id; of two versions, the one with the later name. Raises StoreError."""
    found = {}
    for url in store.names(f"{dataset.rstrip('/')}/{MARKERS}"):
        name = url.rpartition("/")[2]
        if not name.endswith(".json") or name.startswith("."):
            continue
        one = named(url)
        found[one.recording] = one
    return found


def markers_of(dataset: str, recording: str) -> list[str]:
    """List the markers of a recording, also those that runs left which were killed. Raises StoreError."""
    urls = store.matching(f"{dataset.rstrip('/')}/{MARKERS}/{recording}.*.json")
    return [url for url in urls if named(url).recording == recording]


def named(url: str) -> Committed:
    """Read the name of a marker."""
    stem = url.rpartition("/")[2].removesuffix(".json")
    recording, _, of = stem.removesuffix(_PARTLY).rpartition(".")
    return Committed(url, recording, of, stem.endswith(_PARTLY))


def commit(dataset: str, marker: Marker, older: Sequence[str]) -> str:
    """Add a recording to the dataset, and replace those of the `older` markers; return its URL. Raises StoreError."""
    name = f"{marker.recording}.{marker.version}{_PARTLY if marker.left_out else ''}.json"
    url = f"{dataset.rstrip('/')}/{MARKERS}/{name}"
    # remove before adding: two versions of a recording are never in the dataset together
    store.remove([other for other in older if other != url])
    with scratch("grpcdiag-") as folder:
        store.put_bytes(json.encode(marker), url, folder)
    return url


def markers(found: Iterable[Committed]) -> list[Marker]:
    """Read markers. Raises StoreError."""
    contents = store.read([one.url for one in found])
    return [_marker(url, content) for url, content in contents.items()]


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
        "is not understood here: upgrade grpcdiag, or write another dataset"
    )


def check(present: Mapping[str, Committed]) -> None:
    """Check with one marker that this version can read the dataset. Raises StoreError."""
    if present:
        markers([max(present.values(), key=lambda one: one.stem)])


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


def sweep(dataset: str, present: dict[str, Committed], mine: Iterable[str] | None) -> int:
    """Remove files of `mine` recordings, None for all, that no marker names; killed runs leave such files.

    Raises StoreError.
    """
    wanted, stems = None if mine is None else set(mine), _stems(present)
    stale = []
    for table in TABLES:
        for url in store.names(f"{dataset.rstrip('/')}/{table}"):
            stem = url.rpartition("/")[2].removesuffix(".parquet")
            recording = stem.removesuffix(OPEN).rpartition(".")[0]
            if stem not in stems and (wanted is None or recording in wanted):
                stale.append(url)
    store.remove(stale)
    return len(stale)


def pieces(dataset: str, table: str, present: dict[str, Committed]) -> list[str]:
    """List the files of a table that are part of the dataset. Raises StoreError."""
    stems = _stems(present)
    urls = store.names(f"{dataset.rstrip('/')}/{table}")
    return [url for url in urls if url.rpartition("/")[2].removesuffix(".parquet") in stems]


def state(present: dict[str, Committed]) -> str:
    """Compute a hash of the contents of a dataset."""
    return digest(repr(sorted(one.stem for one in present.values())))
