"""Remove old recordings from a dataset.

Removed are files that markers and the manifest name, and no others. Heads of series stay: they know which files were
analyzed, so the next run does not read these again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...interruption import scratch
from ..recordings import store
from . import catalog, compaction, manifest
from .catalog import MARKERS, OPEN, PRUNED, TABLES, Marker
from .manifest import Batch


class Pruned(Struct, frozen=True, kw_only=True):
    """What was removed."""

    recordings: int
    files: int
    """Files of rows."""


def prune(dataset: str, before_ns: int, *, finished: bool = False, dry_run: bool = False) -> Pruned:
    """Remove batches and parts with their last packets before a time, but no part that a run may go on with.

    With `finished`, no recording is continued any more: the last parts of series are removed, too. Raises StoreError.
    """
    contents, claimed = catalog.read_contents(dataset), manifest.read(dataset).claimed
    known = compaction.find_heads(dataset, contents.present)
    if finished:
        known = compaction.close(dataset, known, contents.present, before_ns, dry_run=dry_run)
    unclaimed = {name: one for name, one in contents.present.items() if one.url.rpartition("/")[2] not in claimed}
    headless = [one for name, one in unclaimed.items() if catalog.series_of(name) not in known]
    whole = [marker for marker in catalog.markers(headless) if (marker.last_time_ns or 0) < before_ns]
    parts = [*compaction.list_final(known, unclaimed, before_ns), *whole]
    batches = [batch for batch in contents.batches if batch.state == "clean" and batch.last_time_ns < before_ns]
    stems = {contents.present[one.recording].stem for one in parts}
    stems |= {f"{stem}{OPEN}" for stem in stems} | {batch.name for batch in batches}
    files = [url for table in TABLES for url in catalog.list_files(dataset, table) if catalog.stem_of(url) in stems]
    if not dry_run:
        _remove(dataset, batches, files, [contents.present[one.recording].url for one in parts], whole)
    return Pruned(recordings=len(parts) + sum(batch.recordings for batch in batches), files=len(files))


def _remove(
    dataset: str, batches: Sequence[Batch], files: Sequence[str], markers: Sequence[str], whole: Sequence[Marker]
) -> None:
    """Remove rows before markers: if the command is killed, the next one finds what is left. Raises StoreError."""
    base, names = f"{dataset.rstrip('/')}/{MARKERS}", {batch.name for batch in batches}
    manifest.update(dataset, lambda every: [batch for batch in every if batch.name not in names])
    with scratch("grpcdiag-") as folder:
        for marker in whole:
            store.put_bytes(b"", f"{base}/{marker.recording}.{marker.version}{PRUNED}", folder)
    store.remove([*files, *markers, *(f"{base}/{name}.jsonl" for name in names)])
