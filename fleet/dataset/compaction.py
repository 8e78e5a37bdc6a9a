"""Put the rows of many recordings into one file per hour and table.

Only parts that no run changes any more are moved: those that others continue, and all whose series is finished. See
`batches` for how a batch becomes part of the dataset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import Struct, json
from msgspec.structs import replace

from ...interruption import scratch
from ..recordings import store
from . import batches, catalog, delta, heads, publishing, sums
from .batches import Row
from .catalog import MARKERS, OPEN, TABLES, Committed, Contents, Marker
from .frames import hour_name
from .heads import Head
from .sums import HOUR_NS

if TYPE_CHECKING:
    from deltalake import DeltaTable

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

    With `finished`, no recording is continued any more: the last parts of series are moved, too. If another command
    begins, that one goes on with what is left. Raises StoreError.
    """
    table, done = batches.begin(dataset), list[Compacted]()

    def work(contents: Contents) -> None:
        remove_moved(dataset, table)
        for batch, files in _divide(dataset, contents.present, now_ns // HOUR_NS * HOUR_NS, finished=finished):
            done.extend(_move(dataset, table, batch, files))
        remove_moved(dataset, table)

    try:
        catalog.read_steadily(dataset, work)
        batches.clean(dataset)
    except delta.ConflictError:
        pass
    except Exception as error:
        if not catalog.is_of_reading(error) or batches.is_newest(dataset, table):
            raise
    return Compacted(**{name: sum(getattr(one, name) for one in done) for name in Compacted.__struct_fields__})


def remove_moved(dataset: str, table: DeltaTable) -> None:
    """Remove the own files of recordings that are in batches, and batches that never became part of the dataset.

    Raises StoreError, ConflictError.
    """
    contents = catalog.read_contents(dataset)  # earlier than the logs: what is removed is in none
    publishing.publish(dataset)
    catalog.sweep(dataset, contents, ())
    known, files = batches.look(table), list_rows(dataset)
    # those of a command that began later are not listed yet
    if not batches.is_newest(dataset, table):
        raise delta.ConflictError(f"{dataset}: another command has changed it")
    moved = known.moved
    stems = {f"{stem}{ending}" for stem in moved.values() for ending in ("", OPEN)}
    stems |= {stem for stem in files if batches.BATCH.fullmatch(stem)} - {one.name for one in known.every}
    store.remove([one.url for one in catalog.committed(dataset).values() if one.recording in moved])
    store.remove([url for stem in stems for _, url in files.get(stem, ())])
    batches.drop(table, known.moving)


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
            closed[name] = replace(head, state=None, before=None, last=())
            if not dry_run:
                heads.write(dataset, closed[name])
                store.remove([state for state in (head.state, head.before) if state])
    return {**known, **closed}


def _divide(
    dataset: str, present: Mapping[str, Committed], end_ns: int, *, finished: bool
) -> Iterator[tuple[list[Marker], Files]]:
    """Divide recordings into batches by the hour of their last packets; yield them with all files of rows.

    Raises StoreError.
    """
    known = find_heads(dataset, present)
    if finished:
        known = close(dataset, known, present, end_ns)
    hours: dict[int, list[Marker]] = defaultdict(list)
    for marker in list_final(known, present, end_ns):
        hours[(marker.last_time_ns or 0) // HOUR_NS].append(marker)
    files = list_rows(dataset) if hours else {}
    for _, those in sorted(hours.items()):
        those.sort(key=lambda marker: marker.recording)
        for begin in range(0, len(those), MOST_RECORDINGS):
            yield those[begin : begin + MOST_RECORDINGS], files


def _move(dataset: str, table: DeltaTable, markers: Sequence[Marker], files: Files) -> Iterator[Compacted]:
    """Write a batch, and add it to the dataset if its recordings are still there. Raises StoreError, ConflictError."""
    name = f"batch-{hour_name((markers[0].last_time_ns or 0) // HOUR_NS)}-{uuid4().hex[:10]}"
    groups = _group(markers, files)
    with (
        scratch("grpcdiag-fleet-") as folder,
        sums.connect(_MEMORY, threads=2, scratch=folder / "spill") as database,
    ):
        for number, ((kind, hour), urls) in enumerate(sorted(groups.items())):
            inner = folder / str(number)
            inner.mkdir()
            _merge(database, kind, store.fetch_all(sorted(urls), inner / "parts"), inner / "merged.parquet")
            store.put(inner / "merged.parquet", catalog.partition(dataset, kind, hour, name))
    there = {url.rpartition("/")[2] for url in store.names(f"{dataset.rstrip('/')}/{MARKERS}")}
    if there.issuperset(map(catalog.name_of, markers)):
        batches.add(table, name, make_rows(markers))
        yield Compacted(recordings=len(markers), files_before=sum(map(len, groups.values())), files=len(groups))


def make_rows(markers: Sequence[Marker]) -> list[Row]:
    """Make the rows of a batch's table."""
    return [
        Row(one.recording, f"{one.recording}.{one.version}", one.last_time_ns or 0, json.encode(one).decode())
        for one in markers
    ]


def _group(markers: Collection[Marker], files: Files) -> dict[tuple[str, str], list[str]]:
    """List the files of recordings by table and hour."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for stem in (f"{one.recording}.{one.version}{ending}" for one in markers for ending in ("", OPEN)):
        for table, url in files.get(stem, ()):
            groups[table, url.rsplit("/", 2)[1].removeprefix("hour=")].append(url)
    return groups


def _merge(database: Any, table: str, paths: Sequence[str], target: Path) -> None:
    """Merge files of rows, with the descriptions of their columns."""
    query = f"SELECT value FROM parquet_kv_metadata({sums.text(paths[0])}) WHERE key = 'grpcdiag.columns'"
    told = database.execute(query).fetchone()
    metadata = {"grpcdiag.columns": bytes(told[0]).decode()} if told else {}
    rows = f"SELECT * FROM {sums.files(paths)} ORDER BY {_ORDER.get(table, 'host, recording')}"
    sums.write(database, rows, target, metadata)
