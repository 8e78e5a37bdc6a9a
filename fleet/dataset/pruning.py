"""Remove old recordings from a dataset.

Removed are files that markers and batches name, and no others. Heads of series stay: they know which files were
analyzed, so the next run does not read these again.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from ...interruption import scratch
from ..recordings import store
from . import batches, catalog, compaction, delta
from .catalog import MARKERS, OPEN, PRUNED, TABLES


class Pruned(Struct, frozen=True, kw_only=True):
    """What was removed."""

    recordings: int
    files: int
    """Files of rows."""


def prune(dataset: str, before_ns: int, *, finished: bool = False, dry_run: bool = False) -> Pruned:
    """Remove batches and parts with their last packets before a time, but no part that a run may go on with.

    With `finished`, no recording is continued any more: the last parts of series are removed, too. Raises StoreError.
    """
    work = partial(_prune, dataset, before_ns, finished=finished, dry_run=dry_run)
    for left in range(_TRIES - 1, -1, -1):
        try:
            return catalog.read_steadily(dataset, lambda _: work())
        except delta.ConflictError:
            if not left:
                raise store.StoreError(f"{dataset}: other commands change it all the time", dataset) from None
    raise AssertionError


_TRIES = 5
"""Most attempts, each of which another command ends that begins later."""


def _prune(dataset: str, before_ns: int, *, finished: bool, dry_run: bool) -> Pruned:
    table = None if dry_run else batches.begin(dataset)
    contents = catalog.read_contents(dataset)
    known = compaction.find_heads(dataset, contents.present)
    if finished:
        known = compaction.close(dataset, known, contents.present, before_ns, dry_run=dry_run)
    headless = [one for name, one in contents.present.items() if catalog.series_of(name) not in known]
    whole = [marker for marker in catalog.markers(headless) if (marker.last_time_ns or 0) < before_ns]
    parts = [*compaction.list_final(known, contents.present, before_ns), *whole]
    old = [batch for batch in contents.batches if batch.last_time_ns < before_ns]
    stems = {contents.present[one.recording].stem for one in parts}
    stems |= {f"{stem}{OPEN}" for stem in stems} | {batch.name for batch in old}
    files = [url for kind in TABLES for url in catalog.list_files(dataset, kind) if catalog.stem_of(url) in stems]
    if table is not None:
        with scratch("grpcdiag-") as folder:
            for one in whole:
                name = f"{one.recording}.{one.version}{PRUNED}"
                store.put_bytes(b"", f"{dataset.rstrip('/')}/{MARKERS}/{name}", folder)
        batches.drop(table, [batch.name for batch in old])
        if parts:
            batches.add(table, None, compaction.make_rows(parts))
        compaction.remove_moved(dataset, table)
    return Pruned(recordings=len(parts) + sum(batch.recordings for batch in old), files=len(files))
