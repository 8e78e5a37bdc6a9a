"""Decide what a run analyzes: the files of each series that are not in the dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .dataset import catalog
from .dataset.catalog import Committed, LeftOut, Marker
from .dataset.heads import Head, Part, version_of
from .engines.task import Task
from .recordings import feeding
from .recordings.series import File, Recording, digest


class Wanted(Struct, frozen=True):
    """How recordings are to be analyzed."""

    dataset: str
    ports: tuple[int, ...] = ()
    keylog: File | None = None
    retry: bool = False
    """Whether files that could not be read are tried again, although they did not change."""
    number: int = 0
    """Number of the dataset's batches, where series may have to be analyzed again."""
    batched: Callable[[], Mapping[str, Sequence[Marker]]] = dict
    """Reads the markers that are in batches, by series; asked for once, if any series needs them."""

    @property
    def options(self) -> str:
        """Compute a hash of what rows depend on besides files."""
        secrets = [(self.keylog.named, *version_of(self.keylog))] if self.keylog else []
        return digest(repr([*sorted(self.ports), *secrets]))


class Step(Struct, frozen=True):
    """What is to be done for a series; without a task, nothing."""

    task: Task | None = None
    left_out: tuple[LeftOut, ...] = ()


def plan_series(recording: Recording, head: Head | None, present: Mapping[str, Committed], wanted: Wanted) -> Step:
    """Decide about a series. `present` are those of its parts that are in the dataset. Raises StoreError."""
    if head is None:  # one that is lost or cannot be used leaves its parts
        if recording.id in wanted.batched():
            return _refuse_series(recording, "its head in _series is gone, and rows of it are in batches")
        epochs = [catalog.place_of(one)[0] for one in present if one != recording.id]
        if not epochs:
            return _plan_whole(recording, present, wanted)
        return _plan_anew(recording, None, 1 + max(epochs), present, wanted)
    new = _list_new_files(recording, head, wanted)
    if head.options != wanted.options:
        if recording.id in wanted.batched():
            return _refuse_series(recording, "rows of it are in batches, which are not read again with other options")
        return _plan_anew(recording, head, head.next_epoch, present, wanted)
    finished = head.files.keys() - set(head.last)  # by `compact` or `prune`: these are not read again
    is_open = head.last and finished.isdisjoint(file.named for file in recording.files)
    if new and wanted.keylog and is_open:  # decrypted connections cannot go on behind a state
        return _plan_anew(recording, head, head.next_epoch, present, wanted)
    return _plan_new_files(recording, new, head, wanted)


def _refuse_series(recording: Recording, reason: str) -> Step:
    return Step(None, (LeftOut(recording.host, f"{reason}: use another dataset"),))


def _plan_whole(recording: Recording, present: Mapping[str, Committed], wanted: Wanted) -> Step:
    version = catalog.version(recording, wanted.ports, wanted.keylog)
    there = present.get(recording.id)
    if there and there.version == version and not (wanted.retry and there.partly):
        return Step()
    older = (there.url,) if there else ()
    return Step(_make_task(recording, recording.files, Part(recording.id), None, older, wanted))


def _plan_anew(
    recording: Recording, head: Head | None, epoch: int, present: Mapping[str, Committed], wanted: Wanted
) -> Step:
    """Analyze all files of a series again, in place of the parts that have any of them. Raises StoreError."""
    names = {file.named for file in recording.files}
    parts = [one for one in present.values() if not catalog.is_pruned(one)]
    older = tuple(one.url for one in parts if names & set(catalog.markers([one])[0].files))
    return Step(_make_task(recording, recording.files, Part(recording.id, epoch), head, older, wanted))


def _list_new_files(recording: Recording, head: Head, wanted: Wanted) -> list[File]:
    known = head.files if wanted.retry else {**head.files, **head.failed}
    return [file for file in recording.files if known.get(file.named) != version_of(file)]


def _plan_new_files(recording: Recording, new: Sequence[File], head: Head, wanted: Wanted) -> Step:
    """Decide about a series of which parts are in the dataset."""
    last = [file for file in recording.files if file.named in head.last]
    if not new:
        changed = bool(last) and _sidecar_version(recording) != head.sidecar and len(last) == len(head.last)
        return Step(_redo(recording, last, head, wanted) if changed else None)
    behind, early, again = _divide(recording, new, head, wanted)
    fresh = {file.named for file in (*behind, *again)}
    if any(file.named in head.last for file in early) and len(last) == len(head.last) and not fresh & set(head.last):
        return Step(_redo(recording, [*last, *behind], head, wanted), _refuse(early, head, head.last))
    refused = _refuse(early, head)
    if behind:
        if wanted.keylog and last and len(last) == len(head.last):
            return Step(_redo(recording, [*last, *behind], head, wanted), refused)
        part = head.part.successor if head.state else Part(recording.id, head.next_epoch)
        return Step(_make_task(recording, behind, part, head, (), wanted), refused)
    if again:
        return Step(_make_task(recording, again, Part(recording.id, head.next_epoch), head, (), wanted), refused)
    late = [file for file in early if file.named not in head.files]
    if not late:
        return Step(None, refused)
    task = _make_task(recording, late, Part(recording.id, head.next_epoch), head, (), wanted)
    # the files behind the last part continue that, not these
    if left := task.leaves:
        kept = replace(head, files=left.files, failed=left.failed, left_out=left.left_out)
        task = replace(task, leaves=replace(kept, next_epoch=head.next_epoch + 1))
    return Step(task, refused)


def _refuse(early: Sequence[File], head: Head, but: Collection[str] = ()) -> tuple[LeftOut, ...]:
    behind = "it changed after files behind it were analyzed: it is not read again"
    closed = "it changed after its recording was finished: it is not read again"
    gone = "it grew after it was analyzed together with files that are gone: its first rows stay"
    changed = [file.named for file in early if file.named in head.files and file.named not in but]
    other = behind if head.last else closed
    return tuple(LeftOut(name, gone if name in head.last else other) for name in changed)


def _redo(recording: Recording, files: Sequence[File], head: Head, wanted: Wanted) -> Task:
    """Analyze the last part once more."""
    return _make_task(recording, files, head.part, head, (head.marker,), wanted)


def _divide(
    recording: Recording, new: Sequence[File], head: Head, wanted: Wanted
) -> tuple[list[File], list[File], list[File]]:
    """Divide files into those behind what was analyzed, earlier ones, and new ones after a step back of the clock.

    Names tell that of files with new names. A name that a ring buffer uses again has later packets than all before, or
    such as its old file does not have. Files without packets are left out until they have some. Raises StoreError.
    """
    names = [file.named for file in recording.files]
    end = max((at for at, name in enumerate(names) if name in head.files), default=-1)
    by_name = all(names.index(file.named) > end for file in new)
    if by_name or head.last_time_ns is None:
        return list(new), [], []
    times = {file.named: time for file in new if (time := feeding.first_time(file)) is not None}
    ordered = [file for file in new if file.named in times]
    ordered.sort(key=lambda file: (times[file.named], names.index(file.named)))
    # a known file that begins with the last packet is the same file, and has grown
    early = [file for file in ordered if times[file.named] < head.last_time_ns + (file.named in head.files)]
    changed = {file.named: times[file.named] for file in early if file.named in head.files}
    again = _list_reused(recording.id, changed, wanted) if changed else ()
    behind = [file for file in ordered if file not in early]
    return behind, [file for file in early if file.named not in again], [one for one in early if one.named in again]


def _list_reused(series: str, times: Mapping[str, int], wanted: Wanted) -> set[str]:
    """List the files whose first packets are not in the newest parts that have files of these names.

    A file that is in no part that is left is not listed: it may be an old one that has grown. Raises StoreError.
    """
    reused, left = set(), {name: time for name, time in times.items() if time > 0}
    for marker in _read_parts(series, wanted) if left else ():
        first, last = marker.first_time_ns, marker.last_time_ns
        for name in left.keys() & set(marker.files):
            time = left.pop(name)
            if first is None or last is None or not first <= time <= last:
                reused.add(name)
        if not left:
            break
    return reused


def _read_parts(series: str, wanted: Wanted) -> Iterator[Marker]:
    """Read the markers of a series, the newest first; those in batches have older packets. Raises StoreError."""
    for part in catalog.parts_of(wanted.dataset, series):
        yield from catalog.markers([part])
    yield from wanted.batched().get(series, ())


def _sidecar_version(recording: Recording) -> str:
    return digest(repr([(file.named, *version_of(file)) for file in recording.sidecar]))


def _make_task(
    recording: Recording, files: Sequence[File], part: Part, head: Head | None, older: tuple[str, ...], wanted: Wanted
) -> Task:
    """Make the task of a part, with the head that it leaves."""
    own = replace(recording, id=part.id, files=tuple(files), missing=() if head else recording.missing)
    read = {file.named: version_of(file) for file in files}
    listed = {file.named for file in recording.files} - set(read)
    kept, failed = (
        {name: version for name, version in some.items() if name in listed}
        for some in ((head.files, head.failed) if head else ({}, {}))
    )
    continues = head is not None and part.epoch == head.part.epoch
    state = None
    if head and continues:
        state = head.state if part.number > head.part.number else head.before
    leaves = Head(
        options=wanted.options,
        sidecar=_sidecar_version(recording),
        part=part,
        marker="",
        next_epoch=max(head.next_epoch if head else 1, part.epoch + 1),
        before=state,
        files={**kept, **read},
        last=tuple(read),
        failed=failed,
        left_out=tuple(one for one in head.left_out if one.file in failed) if head else (),
    )
    return Task(
        recording=own,
        version=catalog.version(own, wanted.ports, wanted.keylog),
        dataset=wanted.dataset,
        ports=wanted.ports,
        older=older,
        keylog=wanted.keylog,
        state=state,
        leaves=leaves,
        replaces=head if continues else None,
        number=wanted.number,
        old_states=head.states if head else (),
    )
