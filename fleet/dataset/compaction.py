"""Put the rows of many recordings into one file per hour and table.

Only parts that no run changes any more are moved: those that others continue, and all whose series is finished. See
`manifest` for how a batch becomes part of the dataset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from ...interruption import scratch
from ..recordings import store
from ..recordings.series import digest
from . import catalog, heads, manifest, sums
from .catalog import MARKERS, OPEN, TABLES, Committed, Marker
from .frames import HOUR_NS, hour_name
from .heads import Head
from .manifest import Batch

_AT_ONCE = 20
"""Batches that are committed together: a command that is killed loses the work for as many."""
MOST_RECORDINGS = 20_000
"""Most recordings of a batch (heuristic: DuckDB opens their files of an hour at once, some 100 kB of memory each)."""
_ORDER = {"rpcs": "method, start_time_ns"}
"""Order of rows, so that readers skip what they do not need; other tables are in the order of hosts."""
_MEMORY = "2GB"


class Compacted(Struct, frozen=True, kw_only=True):
    """What was compacted."""

    recordings: int
    files_before: int
    """Files of rows that these had."""
    files: int
    """Files of rows of the batches."""


def compact(dataset: str, now_ns: int, *, finished: bool = False) -> Compacted:
    """Move parts whose last packet is of an hour before that of `now_ns` into batches.

    With `finished`, no recording is continued any more: the last parts of series are moved, too. Raises StoreError.
    """
    done = []
    if left := [batch.name for batch in manifest.read(dataset).batches if batch.state != "clean"]:
        done.append(_finish(dataset, left, list_rows(dataset)))
    present = catalog.read_contents(dataset).present
    end = now_ns // HOUR_NS * HOUR_NS
    known = find_heads(dataset, present)
    if finished:
        known = close(dataset, known, present, end)
    every = list_final(known, present, end)
    files = list_rows(dataset) if every else {}
    # what was open at the end of a part is in the next one; only a run that was killed leaves it here
    continued = [
        f"{present[one.recording].stem}{OPEN}" for one in every if catalog.is_continued(one.recording, present)
    ]
    store.remove([url for stem in continued for _, url in files.pop(stem, ())])
    batches = list(_divide(every))
    for begin in range(0, len(batches), _AT_ONCE):
        some = batches[begin : begin + _AT_ONCE]
        _prepare(dataset, some)
        done.append(_finish(dataset, [batch.name for batch in some], files))
    sums_of = {name: sum(getattr(one, name) for one in done) for name in Compacted.__struct_fields__}
    return Compacted(**sums_of)


Files = dict[str, list[tuple[str, str]]]
"""Tables and URLs of files of rows, by their names without ending."""


def list_rows(dataset: str) -> Files:
    """List all files of rows. Raises StoreError."""
    found: Files = defaultdict(list)
    for table in TABLES:
        for url in catalog.list_files(dataset, table):
            found[catalog.stem_of(url)].append((table, url))
    return found


def find_heads(dataset: str, present: Mapping[str, Committed]) -> dict[str, Head]:
    """Read the heads of recordings. Raises StoreError."""
    return heads.read(dataset, {catalog.series_of(name) for name in present})


def list_final(known: Mapping[str, Head], present: Mapping[str, Committed], end_ns: int) -> list[Marker]:
    """Read the markers of parts that no run changes, with their last packets before `end_ns`. Raises StoreError."""
    final = [
        one
        for name, one in present.items()
        if (head := known.get(catalog.series_of(name))) and _is_final(catalog.place_of(name), head)
    ]
    return [marker for marker in catalog.markers(final) if (marker.last_time_ns or 0) < end_ns]


def _is_final(place: tuple[int, int], head: Head) -> bool:
    """Check that no run analyzes this part again: it is not the last part, nor one of a run that was killed."""
    epoch, number = place
    if epoch != head.part.epoch:
        return epoch < head.next_epoch
    return number < head.part.number or (number == head.part.number and not head.last)


def close(
    dataset: str, known: Mapping[str, Head], present: Mapping[str, Committed], end_ns: int, *, dry_run: bool = False
) -> dict[str, Head]:
    """Close series with their last packets before `end_ns`: files that come later begin an epoch. Raises StoreError."""
    closed = {}
    for name, head in known.items():
        is_last = head.part.id in present and not catalog.is_continued(head.part.id, present)
        if head.last and is_last and (head.last_time_ns or 0) < end_ns:
            closed[name] = replace(head, state=None, before=None, last=(), open_files=())
            if not dry_run:
                heads.write(dataset, closed[name])
                store.remove([state for state in (head.state, head.before) if state])
    return {**known, **closed}


def _divide(markers: Sequence[Marker]) -> Iterator[Batch]:
    """Divide recordings into batches by the hour of their last packets."""
    hours: dict[int, list[Marker]] = defaultdict(list)
    for marker in markers:
        hours[(marker.last_time_ns or 0) // HOUR_NS].append(marker)
    for hour, those in sorted(hours.items()):
        those.sort(key=lambda marker: marker.recording)
        for begin in range(0, len(those), MOST_RECORDINGS):
            some = those[begin : begin + MOST_RECORDINGS]
            sources = tuple(map(catalog.name_of, some))
            yield Batch(
                name=f"batch-{hour_name(hour)}-{digest(repr(sources))}",
                state="prepared",
                recordings=len(some),
                last_time_ns=max(marker.last_time_ns or 0 for marker in some),
                sources=sources,
            )


def _prepare(dataset: str, wanted: Sequence[Batch]) -> None:
    """Claim the recordings of batches, but for those of which another command has any in its own. Raises StoreError."""

    def add(batches: Sequence[Batch]) -> Sequence[Batch]:
        claimed = {source for other in batches for source in other.sources}
        return [*batches, *(batch for batch in wanted if claimed.isdisjoint(batch.sources))]

    manifest.update(dataset, add)


def _finish(dataset: str, names: Collection[str], files: Files) -> Compacted:
    """Do what is left to do for batches, whichever command began them. Raises StoreError."""
    for batch in _list_complete(dataset, names):
        _write(dataset, batch, files)
    verified = {batch.name for batch in _list_complete(dataset, names)}
    _change(dataset, lambda one: one.name in names and one.state == "prepared", verified)
    done = [batch for batch in manifest.read(dataset).batches if batch.name in names and batch.state == "committed"]
    recordings = {catalog.named(source).recording for batch in done for source in batch.sources}
    stems = [stem for batch in done for stem in _list_stems(batch)]
    markers = [url for url in catalog.list_files(dataset, MARKERS) if url.endswith(".json")]
    store.remove([url for url in markers if catalog.named(url).recording in recordings])
    before = [url for stem in stems for _, url in files.get(stem, ())]
    store.remove(before)
    _change(dataset, lambda one: one.state == "committed", {batch.name for batch in done})
    written = sum(len(_group(batch, files)) for batch in done)
    return Compacted(recordings=len(recordings), files_before=len(before), files=written)


def _list_complete(dataset: str, names: Collection[str]) -> list[Batch]:
    """List the prepared batches all of whose recordings are still there. Raises StoreError."""
    batches = [one for one in manifest.read(dataset).batches if one.name in names and one.state == "prepared"]
    there = {url.rpartition("/")[2] for url in catalog.list_files(dataset, MARKERS)} if batches else set()
    return [batch for batch in batches if there.issuperset(batch.sources)]


def _change(dataset: str, which: Callable[[Batch], bool], onward: Collection[str]) -> None:
    """Let batches go on to the next state, and drop those that are not in `onward`. Raises StoreError."""

    def change(batches: Sequence[Batch]) -> Sequence[Batch]:
        return [one.follow() if which(one) else one for one in batches if not which(one) or one.name in onward]

    manifest.update(dataset, change)


def _list_stems(batch: Batch) -> list[str]:
    stems = [catalog.named(source).stem for source in batch.sources]
    return [*stems, *(f"{stem}{OPEN}" for stem in stems)]


def _group(batch: Batch, files: Files) -> dict[tuple[str, str], list[str]]:
    """List the files of a batch's recordings by table and hour."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for stem in _list_stems(batch):
        for table, url in files.get(stem, ()):
            groups[table, url.rsplit("/", 2)[1].removeprefix("hour=")].append(url)
    return groups


def _write(dataset: str, batch: Batch, files: Files) -> None:
    """Write the files of a batch: rows, and at last markers. Raises StoreError."""
    with scratch("grpcdiag-fleet-") as folder:
        for (table, hour), urls in sorted(_group(batch, files).items()):
            with scratch("grpcdiag-fleet-") as inner:
                merged = inner / "merged.parquet"
                _merge(table, store.fetch_all(sorted(urls), inner / "parts"), merged, inner)
                store.put(merged, catalog.partition(dataset, table, hour, batch.name))
        names = [f"{dataset.rstrip('/')}/{MARKERS}/{source}" for source in batch.sources]
        lines = [json.encode(marker) for marker in catalog.read_markers(names)]
        store.put_bytes(b"\n".join([*lines, b""]), f"{dataset.rstrip('/')}/{MARKERS}/{batch.name}.jsonl", folder)


def _merge(table: str, paths: Sequence[str], target: Path, folder: Path) -> None:
    """Merge files of rows, with the descriptions of their columns."""
    with sums.connect(_MEMORY, threads=2, scratch=folder / "spill") as database:
        query = f"SELECT value FROM parquet_kv_metadata({sums.text(paths[0])}) WHERE key = 'grpcdiag.columns'"
        told = database.execute(query).fetchone()
        metadata = {"grpcdiag.columns": bytes(told[0]).decode()} if told else {}
        rows = f"SELECT * FROM {sums.files(paths)} ORDER BY {_ORDER.get(table, 'host, recording')}"
        sums.write(database, rows, target, metadata)
