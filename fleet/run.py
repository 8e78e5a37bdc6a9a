"""Plan and execute a run of `grpcdiag fleet analyze`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from msgspec import Struct

from .dataset import catalog, summary
from .dataset.catalog import Committed, LeftOut
from .engines import Engine
from .engines.task import Outcome, Task, analyse
from .recordings import store
from .recordings.series import File, Found, Recording, recordings

Told = Callable[[Outcome], None]
"""A function that is called with the outcome of each task."""


class Plan(Struct, frozen=True):
    """The work of a run."""

    recordings: tuple[Recording, ...]
    tasks: tuple[Task, ...]
    done: tuple[Committed, ...]
    """Recordings that are already in the dataset."""
    dataset: str
    keylog: File | None = None

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
) -> Plan:
    """Find the recordings of the sources, and make tasks for new ones. Raises StoreError, LayoutError."""
    secrets = store.one(keylog) if keylog else None
    if secrets:
        store.head(secrets.url, 1)  # report a file that cannot be read before the work begins
    found: list[Found] = []
    for source in sources:
        found += store.search(source)
    wanted = recordings(found, layout)
    present = catalog.committed(target)
    catalog.check(present)
    done, tasks = [], []
    for recording in wanted:
        version = catalog.version(recording, ports, secrets)
        there = present.get(recording.id)
        if there and there.version == version:
            done.append(there)
        else:
            older = (there.url,) if there else ()
            tasks.append(Task(recording, version, target, tuple(ports), older, secrets))
    return Plan(wanted, tuple(tasks), tuple(done), target, secrets)


def execute(work: Plan, engine: Engine, told: Told) -> Result:
    """Run the tasks, pass each outcome to `told`, and update the dataset's summary. Raises StoreError, EngineError."""
    outcomes = []
    if work.tasks:
        catalog.prepare(work.dataset)
        for outcome in engine.run(analyse, work.tasks):
            outcomes.append(outcome)
            told(outcome)
    present = catalog.committed(work.dataset)
    catalog.sweep(work.dataset, present, (one.id for one in work.recordings))
    joined = summary.write(work.dataset, present) if present else 0
    left_out: dict[str, list[LeftOut]] = defaultdict(list)
    for outcome in outcomes:
        left_out[outcome.host] += outcome.left_out
        if not outcome.done:
            left_out[outcome.host].append(LeftOut(outcome.recording, outcome.reason or ""))
    for marker in catalog.markers([one for one in work.done if one.partly]):
        left_out[marker.host] += marker.left_out
    hosts = {host: tuple(files) for host, files in sorted(left_out.items()) if files}
    return Result(work, tuple(outcomes), hosts, joined)
