"""Plan and execute a run of `grpcdiag fleet analyze`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from . import planning
from .dataset import catalog, heads, summary
from .dataset.catalog import Committed, LeftOut
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
    """Number of recordings without new files."""
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
    known = heads.read(target, [one.id for one in series])
    wanted = planning.Wanted(target, tuple(ports), secrets, retry)
    # the names of all recordings are needed for those that no run of this version has analyzed
    is_told = all(one.id in known and known[one.id].options == wanted.options for one in series)
    present = {} if is_told and not secrets else catalog.committed(target)
    catalog.check(present)
    steps = {one.id: planning.plan_series(one, known.get(one.id), present, wanted) for one in series}
    left_out = {one.host: steps[one.id].left_out for one in series if steps[one.id].left_out}
    for one in series:
        if one.id in known and not steps[one.id].task:
            left_out[one.host] = (*left_out.get(one.host, ()), *known[one.id].left_out)
    done = tuple(one.id for one in series if not steps[one.id].task)
    return Plan(
        series,
        tuple(step.task for step in steps.values() if step.task),
        tuple(present[one] for one in done if one in present and one not in known),
        target,
        secrets,
        len(done),
        left_out | ({"": tuple(unreadable)} if unreadable else {}),
        shard is not None,
    )


def summarise(dataset: str, unfinished: Collection[str] | None = ()) -> int:
    """Update the summary; return the number of RPCs that both ends recorded. Raises StoreError.

    Files of killed runs are removed if they are of the recordings `unfinished`; with None all are.
    """
    present = catalog.committed(dataset)
    catalog.check(present)
    if unfinished is None or unfinished:
        catalog.sweep(dataset, present, unfinished)
    return summary.write(dataset, present) if present else 0


def execute(work: Plan, engine: Engine, told: Told) -> Result:
    """Run the tasks, pass each outcome to `told`, and update the dataset's summary. Raises StoreError, EngineError."""
    outcomes = []
    if work.tasks:
        catalog.prepare(work.dataset)
        for outcome in engine.run(analyse, work.tasks):
            outcomes.append(outcome)
            told(outcome)
    joined = 0
    if not work.is_shard:
        names = {one.id for one in work.recordings} | {task.recording.id for task in work.tasks}
        names |= {catalog.named(url).recording for task in work.tasks for url in task.older}
        joined = summarise(work.dataset, names)
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
