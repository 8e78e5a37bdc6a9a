"""Decide what a run analyzes: the files of each series that are not in the dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .dataset import catalog
from .dataset.catalog import Committed, LeftOut
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

    @property
    def options(self) -> str:
        """Compute a hash of what rows depend on besides files."""
        return digest(repr(sorted(self.ports)))


class Step(Struct, frozen=True):
    """What is to be done for a series; without a task, nothing."""

    task: Task | None = None
    left_out: tuple[LeftOut, ...] = ()


def plan_series(recording: Recording, head: Head | None, present: Mapping[str, Committed], wanted: Wanted) -> Step:
    """Decide about a series. `present` are the recordings of the dataset that may be its parts. Raises StoreError."""
    if head is None or wanted.keylog:
        return _plan_whole(recording, Part(recording.id), present, wanted)
    if head.options != wanted.options:
        anew, older = Part(recording.id, head.next_epoch), _parts_of(recording, present)
        return Step(_make_task(recording, recording.files, anew, None, older, wanted))
    return _plan_new_files(recording, head, wanted)


def _plan_whole(recording: Recording, part: Part, present: Mapping[str, Committed], wanted: Wanted) -> Step:
    version = catalog.version(recording, wanted.ports, wanted.keylog)
    there = present.get(recording.id)
    if there and there.version == version and not (wanted.retry and there.partly):
        return Step()
    older = (there.url,) if there else ()
    return Step(_make_task(recording, recording.files, part, None, older, wanted))


def _parts_of(recording: Recording, present: Mapping[str, Committed]) -> tuple[str, ...]:
    """List the markers of the parts of a series that have one of its files. Raises StoreError."""
    own = [one for one in present.values() if catalog.series_of(one.recording) == recording.id]
    names = {file.named for file in recording.files}
    return tuple(one.url for one in own if names & set(catalog.markers([one])[0].files))


def _plan_new_files(recording: Recording, head: Head, wanted: Wanted) -> Step:
    """Decide about a series of which parts are in the dataset."""
    known = head.files if wanted.retry else {**head.files, **head.failed}
    new = [file for file in recording.files if known.get(file.named) != version_of(file)]
    last = [file for file in recording.files if file.named in head.last]
    if not new:
        changed = _sidecar_version(recording) != head.sidecar and len(last) == len(head.last)
        return Step(_redo(recording, last, head, wanted) if changed else None)
    behind, early = _divide(recording, new, head)
    grown = [file for file in early if file.named in head.last]
    if grown and len(last) == len(head.last):
        return Step(_redo(recording, [*last, *behind], head, wanted), _refuse(early, head, head.last))
    refused = _refuse(early, head)
    if behind:
        part = head.part.successor if head.state else Part(recording.id, head.next_epoch)
        return Step(_make_task(recording, behind, part, head, (), wanted), refused)
    late = [file for file in early if file.named not in head.files]
    if not late:
        return Step(None, refused)
    task = _make_task(recording, late, Part(recording.id, head.next_epoch), head, (), wanted)
    # the files behind the last part continue that, not these
    stays = replace(head, files=task.leaves.files, next_epoch=head.next_epoch + 1) if task.leaves else None
    return Step(replace(task, leaves=stays), refused)


def _refuse(early: Sequence[File], head: Head, but: Collection[str] = ()) -> tuple[LeftOut, ...]:
    reason = "it changed after files behind it were analyzed: its first rows stay"
    return tuple(LeftOut(file.named, reason) for file in early if file.named in head.files and file.named not in but)


def _redo(recording: Recording, files: Sequence[File], head: Head, wanted: Wanted) -> Task:
    """Analyze the last part once more."""
    return _make_task(recording, files, head.part, head, (head.marker,), wanted)


def _divide(recording: Recording, new: Sequence[File], head: Head) -> tuple[list[File], list[File]]:
    """Divide files into those behind what was analyzed, in order, and others.

    Names tell that of files with new names. A name that a ring buffer uses again has later packets than all before.
    """
    names = [file.named for file in recording.files]
    end = max((at for at, name in enumerate(names) if name in head.files), default=-1)
    by_name = all(names.index(file.named) > end for file in new)
    if by_name or head.last_time_ns is None:
        return list(new), []
    times = {file.named: feeding.first_time(file) for file in new}
    behind = [file for file in new if (times[file.named] or 0) >= head.last_time_ns]
    behind.sort(key=lambda file: (times[file.named] or 0, names.index(file.named)))
    return behind, [file for file in new if file not in behind]


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
        leaves=None if wanted.keylog else leaves,
        replaces=head if continues else None,
    )
