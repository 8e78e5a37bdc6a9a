"""Plan and execute a run of `grpcdiag fleet analyze`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial

from msgspec import Struct
from msgspec.structs import replace

from . import planning
from .dataset import catalog, compaction, heads, pruning, publishing, summary
from .dataset.catalog import Committed, Contents, LeftOut
from .dataset.compaction import Compacted
from .dataset.pruning import Pruned
from .engines import Engine
from .engines.task import Outcome, Task, analyse
from .recordings import store
from .recordings.series import File, Found, Recording, digest, recordings

Told = Callable[[Outcome], None]
"""A function that is called with the outcome of each task."""


class Plan(Struct, frozen=True):
    """The work of a run."""

    recordings: tuple[Recording, ...]
    tasks: tuple[Task, ...]
    done: tuple[Committed, ...]
    """Recordings without new files that are not read in parts."""
    dataset: str
    keylog: File | None = None
    complete: int = 0
    """Number of recordings without new files, and without such as are refused."""
    left_out: dict[str, tuple[LeftOut, ...]] = {}
    """Files of these and folders that were skipped, by host; those of folders without one."""
    is_shard: bool = False
    """Whether other runs analyze the other recordings, and `summarise` follows them."""

    @property
    def size(self) -> int:
        """Count the bytes of the captures to read."""
        return sum(task.recording.size for task in self.tasks)


class Result(Struct, frozen=True):
    """The result of a run."""

    plan: Plan
    outcomes: tuple[Outcome, ...]
    left_out: dict[str, tuple[LeftOut, ...]]
    """Skipped files by host, of this run and of earlier runs."""
    joined_rpcs: int = 0

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """List the recordings that are not in the dataset; the next run retries them."""
        return tuple(outcome for outcome in self.outcomes if not outcome.done)


def plan(
    sources: Sequence[str],
    target: str,
    ports: Sequence[int] = (),
    layout: str | None = None,
    keylog: str | None = None,
    *,
    retry: bool = False,
    shard: tuple[int, int] | None = None,
) -> Plan:
    """Find the recordings of the sources, and make tasks for new files; `shard` is a share and the number of shares.

    Raises StoreError, LayoutError.
    """
    secrets = store.one(keylog) if keylog else None
    if secrets:
        store.head(secrets.url, 1)  # report a file that cannot be read before the work begins
    found: list[Found] = []
    unreadable: list[LeftOut] = []
    for source in sources:
        found += store.search(source, lambda folder, reason: unreadable.append(LeftOut(folder, reason)))
    series = recordings(found, layout)
    if shard:
        series = tuple(one for one in series if int(digest(one.id), 16) % shard[1] == shard[0])
    names = frozenset(one.id for one in series)
    known = heads.read(target, names)
    batched = cache(lambda: catalog.read_batched(target, names))
    wanted = planning.Wanted(target, tuple(ports), secrets, retry, batched=batched)
    # the names of all recordings are needed for those that no run of this version has analyzed
    is_told = all(one.id in known and known[one.id].options == wanted.options for one in series)
    present: dict[str, Committed] = {}
    if secrets or not is_told:
        contents = catalog.read_steadily(target, catalog.check)
        present = {**catalog.list_pruned(target), **contents.present}
        wanted = replace(wanted, number=contents.number)
    parts: dict[str, dict[str, Committed]] = defaultdict(dict)
    for recording, marker in present.items():
        parts[catalog.series_of(recording)][recording] = marker
    steps = {one.id: planning.plan_series(one, known.get(one.id), parts[one.id], wanted) for one in series}
    left_out = {one.host: steps[one.id].left_out for one in series if steps[one.id].left_out}
    for one in series:
        task = steps[one.id].task
        again = {file.named for file in task.recording.files} if task else set()
        still = tuple(left for left in known[one.id].left_out if left.file not in again) if one.id in known else ()
        if still:
            left_out[one.host] = (*left_out.get(one.host, ()), *still)
    done = tuple(one.id for one in series if not steps[one.id].task)
    return Plan(
        series,
        tuple(step.task for step in steps.values() if step.task),
        tuple(present[one] for one in done if one in present and one not in known),
        target,
        secrets,
        sum(not steps[one].left_out for one in done),
        left_out | ({"": tuple(unreadable)} if unreadable else {}),
        shard is not None,
    )


def summarise(dataset: str, unfinished: Collection[str] | None = ()) -> int:
    """Update the tables' logs and the summary; return the number of RPCs that both ends recorded. Raises StoreError.

    Files of killed runs are removed if they are of the series `unfinished`; with None all are.
    """
    return catalog.read_steadily(dataset, partial(_summarise, dataset, unfinished))


def _summarise(dataset: str, unfinished: Collection[str] | None, contents: Contents) -> int:
    catalog.check(contents)
    publishing.publish(dataset)
    catalog.sweep(dataset, contents, unfinished)
    if unfinished is None:
        heads.sweep(dataset, None)
    return summary.write(dataset, contents)


def compact(dataset: str, *, finished: bool = False) -> Compacted:
    """Move recordings into batches, and update the summary; see `compaction`. Raises StoreError."""
    _check_is_dataset(dataset)
    done = compaction.compact(dataset, time.time_ns(), finished=finished)
    _write_summary(dataset)
    return done


def prune(dataset: str, before_ns: int, *, finished: bool = False, dry_run: bool = False) -> Pruned:
    """Remove recordings with their last packets before a time, and update the summary; see `pruning`.

    Raises StoreError.
    """
    _check_is_dataset(dataset)
    done = pruning.prune(dataset, before_ns, finished=finished, dry_run=dry_run)
    if not dry_run:
        _write_summary(dataset)
    return done


def _write_summary(dataset: str) -> None:
    """Update the summary after a command that has updated the tables' logs itself. Raises StoreError."""
    catalog.read_steadily(dataset, partial(summary.write, dataset))


def _check_is_dataset(dataset: str) -> None:
    contents = catalog.read_steadily(dataset, catalog.check)
    if not contents and not heads.exist(dataset) and not catalog.list_pruned(dataset):
        raise store.StoreError(f"{dataset}: not a dataset of grpcdiag fleet analyze", dataset)


def execute(work: Plan, engine: Engine, told: Told) -> Result:
    """Run the tasks, pass each outcome to `told`, and update the dataset's summary. Raises StoreError, EngineError."""
    outcomes = []
    if work.tasks:
        catalog.prepare(work.dataset)
        for outcome in engine.run(analyse, work.tasks):
            outcomes.append(outcome)
            told(outcome)
        heads.sweep(work.dataset, {catalog.series_of(task.recording.id) for task in work.tasks})
    joined = 0
    if not work.is_shard:
        joined = summarise(work.dataset, {one.id for one in work.recordings})
    left_out: dict[str, list[LeftOut]] = defaultdict(list)
    for host, skipped in work.left_out.items():
        left_out[host] += skipped
    for outcome in outcomes:
        left_out[outcome.host] += outcome.left_out
        if not outcome.done:
            left_out[outcome.host].append(LeftOut(outcome.recording, outcome.reason or ""))
    for marker in catalog.markers([one for one in work.done if one.partly]):
        left_out[marker.host] += marker.left_out
    hosts = {host: tuple(files) for host, files in sorted(left_out.items()) if files}
    return Result(work, tuple(outcomes), hosts, joined)
