"""Analyze one recording into the dataset: the work of an engine's workers."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ... import interruption
from ...analyzer.sidecar.names import MOST_BYTES, MOST_SAMPLE_BYTES
from ..dataset import catalog, heads, sums
from ..dataset.catalog import LeftOut, Marker
from ..dataset.heads import Head, Part
from ..recordings import feeding, store
from ..recordings.credentials import without_credentials
from ..recordings.series import File, Recording

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions
    from ...analyzer.model.analysis import Analysis
    from ...analyzer.sidecar.read import Sidecar
    from ...analyzer.tables import Tables
    from ...reports.tables.frame import Frame
    from ..dataset.packet_marks import Marks


class Task(Struct, frozen=True):
    """A recording to analyze; small, because it is sent to workers."""

    recording: Recording
    version: str
    dataset: str
    ports: tuple[int, ...] = ()
    older: tuple[str, ...] = ()
    """Markers of other versions of the recording, which this version replaces."""
    keylog: File | None = None
    """File of TLS secrets: each worker reads it itself, and its contents are not sent."""
    state: str | None = None
    """URL of the state from which decoding goes on."""
    leaves: Head | None = None
    """Head of the series as this part leaves it, but for what reading shows; None if no part continues this one."""
    replaces: Head | None = None
    """Head of the series before, if this part continues its last one or takes its place."""
    last: str = ""
    """The last part of the series, if this one begins an epoch in its place."""
    number: int = 0
    """Number of the dataset's batches when this was planned."""
    old_states: tuple[str, ...] = ()
    """URLs of the states of the series before: those that its new head does not name are removed."""

    def __repr__(self) -> str:
        """Name the object for the logs of engines."""
        return f"Task({self.recording.id}.{self.version})"


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a task."""

    recording: str
    host: str
    size: int
    done: bool
    """Whether the recording is now in the dataset."""
    reason: str | None = None
    """Why it is not in the dataset."""
    left_out: tuple[LeftOut, ...] = ()
    rpcs: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0


def analyse(task: Task) -> Outcome:
    """Analyze a recording and add it to the dataset. Raises nothing: the outcome reports errors."""
    began = time.monotonic(), time.process_time()
    try:
        marker = _analyse(task, began)
    except store.StoreError as error:
        return _failed(task, str(error))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the core is not an Exception; other recordings must continue
        return _failed(task, f"internal error: {type(error).__name__}: {error}")
    return Outcome(
        recording=task.recording.id,
        host=task.recording.host,
        size=task.recording.size,
        done=True,
        left_out=marker.left_out,
        rpcs=marker.rpcs,
        seconds=marker.seconds,
        peak_bytes=marker.peak_bytes,
    )


def _failed(task: Task, reason: str) -> Outcome:
    recording = task.recording
    for url in (task.dataset, *(file.url for file in (*recording.files, *recording.sidecar))):
        reason = without_credentials(reason, url)
    return Outcome(
        recording=recording.id, host=recording.host, size=recording.size, done=False, reason=reason[:_REASON]
    )


_REASON = 1_000
"""Most characters of a stored error message."""


def _analyse(task: Task, began: tuple[float, float]) -> Marker:
    with interruption.scratch("grpcdiag-fleet-") as scratch:
        task, read = _read_behind(task)
        if read.tables is None and task.leaves and task.replaces:
            _note_failed(task.dataset, task.leaves, task.replaces, read.left_out)
            return _marker(task, read, {}, began)
        written, rows = _write(task, read, scratch)
        store.put_all(written)
        marker = _marker(task, read, rows, began)
        _commit(task, read, marker)
    return marker


def _note_failed(dataset: str, leaves: Head, before: Head, left_out: tuple[LeftOut, ...]) -> None:
    """Remember files behind a part of which none can be read; what is open stays open. Raises StoreError."""
    failed = {one.file: leaves.files[one.file] for one in left_out}
    told = tuple(one for one in before.left_out if one.file not in failed)
    heads.write(dataset, replace(before, failed={**before.failed, **failed}, left_out=(*told, *left_out)))


def _commit(task: Task, read: _Read, marker: Marker) -> None:
    """Add the part to the dataset, then what the next one needs. Raises StoreError."""
    leaves, before = task.leaves, task.replaces
    state = None
    # keys are not saved: all files are read again with the next one
    ends = not leaves or (read.is_decrypted and not (before or task.state or task.keylog))
    if leaves and not ends and read.state and leaves.part.id == marker.recording:
        state = heads.write_state(task.dataset, f"{marker.recording}.{marker.version}", read.state)
    # each listing is of all recordings: what a first part replaces was listed once for all when it was planned
    is_first = not before and catalog.place_of(marker.recording) == (0, 0)
    left = [] if is_first else catalog.markers_of(task.dataset, marker.recording)
    left += catalog.markers_of(task.dataset, task.last) if task.last else []
    url = catalog.commit(task.dataset, marker, (*task.older, *left), task.last, task.number)
    if not leaves or ends:
        return
    failed = {one.file: leaves.files[one.file] for one in marker.left_out if one.file in leaves.files}
    head = replace(
        leaves,
        files={name: version for name, version in leaves.files.items() if name not in failed},
        failed={**leaves.failed, **failed},
        left_out=(*leaves.left_out, *marker.left_out),
    )
    if leaves.part.id == marker.recording:
        last = max(marker.last_time_ns or 0, before.last_time_ns or 0 if before else 0)
        head = replace(head, marker=url, state=state, last_time_ns=last or None)
    heads.write(task.dataset, head)
    if leaves.part.id == marker.recording:
        store.remove([old for old in task.old_states if old not in head.states])


class _Read(Struct, frozen=True):
    """The analysis of a recording."""

    tables: Tables | None
    """None if no file is a capture."""
    analysis: Analysis | None
    marks: Sequence[Marks] | None
    no_grpc: str | None
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...] = ()
    open_at_end: Tables | None = None
    """Rows of what is open at the end."""
    state: bytes | None = None
    """What the next part goes on with."""

    @property
    def is_decrypted(self) -> bool:
        """Check whether any TLS was decrypted."""
        return self.tables is not None and bool(self.tables.connections.tls_decrypted.any())


def _read_behind(task: Task) -> tuple[Task, _Read]:
    """Read files behind those of the state; if it cannot be used, they begin an epoch. Raises StoreError."""
    leaves = task.leaves
    if not task.state or not leaves:
        return task, _read(task, None)
    try:
        return task, _read(task, heads.read_state(task.state))
    except (heads.StateError, _UnusableState) as error:
        reason = f"these files were read without what was open before them: {error}"
    part = Part(leaves.part.series, leaves.next_epoch)
    leaves = replace(leaves, part=part, next_epoch=part.epoch + 1, before=None)
    recording = replace(task.recording, id=part.id)
    # also in place of the same files behind the state, where a run was killed or they grew
    anew = replace(task, recording=recording, last=task.recording.id, state=None, leaves=leaves, replaces=None)
    read = _read(anew, None)
    return anew, replace(read, warnings=(*read.warnings, reason))


class _UnusableState(Exception):
    """A state was saved by another version, or is damaged."""


def _read(task: Task, state: bytes | None) -> _Read:
    """Analyze the recording's files. Raises StoreError, _UnusableState."""
    with interruption.scratch("grpcdiag-fleet-") as folder, feeding.feed(task.recording.files, folder) as feed:
        try:
            return _read_fed(task, feed, state)
        except BaseException as error:
            if state is not None and type(error).__name__ == "PanicException":  # it is no Exception and has no module
                raise _UnusableState("it is damaged") from None
            raise


def _read_fed(task: Task, feed: feeding.Feed, state: bytes | None) -> _Read:
    from ...analyzer.analysis import of_tables
    from ...analyzer.decode.errors import CaptureError, NoGrpcError

    files = task.recording.files
    left_out = tuple(LeftOut(files[number].named, reason) for number, reason in feed.reasons.items())
    if not feed.paths:
        return _Read(None, None, None, None, left_out)
    sidecar, notes = _beside(task.recording)
    try:
        resumes = task.leaves is not None and not task.keylog  # keys are not saved
        tables, marks, open_at_end, saved = _decoded(feed, _how(task), state, resumes=resumes)
    except CaptureError as error:
        feed.check()
        others = (file.named for number, file in enumerate(files) if number not in feed.reasons)
        reason = feed.named(str(error))
        return _Read(None, None, None, None, (*left_out, *(LeftOut(url, reason) for url in others)))
    feed.check()
    analysis: Analysis | None
    try:
        analysis, no_grpc = of_tables(tables, sidecar, notes), None
    except NoGrpcError as error:
        analysis, no_grpc = error.analysis, str(error)
    warnings = tuple(map(feed.named, analysis.quality.warnings)) if analysis else ()
    if saved is not None and len(saved) > heads.MOST_STATE_BYTES:
        saved = None
        warnings = (*warnings, "later files will be read without what is open here: the state is too large")
    return _Read(tables, analysis, marks, no_grpc, left_out, warnings, open_at_end, saved)


def _decoded(
    feed: feeding.Feed, how: DecodeOptions, state: bytes | None = None, *, resumes: bool = False
) -> tuple[Tables, Sequence[Marks], Tables | None, bytes | None]:
    """Decode the tables, the marks that identify connections, what is open at the end, and the state there.

    Without `resumes` there are neither. Raises CaptureError, _UnusableState.
    """
    from ...analyzer import _core
    from ...analyzer.decode.runner import STEP
    from ...analyzer.tables import Packets, table_of, tables_of
    from ..dataset.packet_marks import Pushed

    pushed = Pushed()
    try:
        run = _core.Run(feed.paths, rpc_rows=True, packets=True, resumes=resumes, saved=state, **how)
    except ValueError as error:
        raise _UnusableState(str(error)) from None
    feed.begin()
    while run.step(STEP):
        pushed.add(table_of(Packets, run.take("packets")))
    open_at_end, saved = None, None
    if resumes:
        result, rows, saved = run.finish_file()
        open_at_end = tables_of(rows)
    else:
        result = run.finish()
    pushed.add(table_of(Packets, result["packets"]))
    # packets, and columns used to match packets, are not needed any more: free their memory
    result["packets"] = {name: column[:0].copy() for name, column in result["packets"].items()}
    result |= {name: result[name][:0].copy() for name in ("request_budgets", "request_ends")}
    tables = tables_of(result)
    return tables, pushed.marks(tables, result.get("places")), open_at_end, saved


def _write(task: Task, read: _Read, scratch: Path) -> tuple[dict[str, Path], dict[str, int]]:
    """Write the recording's files on this machine; return their paths by destination, and the rows per table."""
    written: dict[str, Path] = {}
    counts: dict[str, int] = defaultdict(int)
    if read.tables is None:
        return written, counts
    from ...analyzer.hops.look import find_fronts
    from ..dataset.frames import divided

    host, recording = task.recording.host, task.recording.id
    stem = f"{recording}.{task.version}"
    parts = divided(read.tables, read.analysis, recording, host, read.marks, read.open_at_end, find_fronts(read.tables))
    for number, (table, hour, is_open, pieces) in enumerate(parts):
        path = scratch / f"{number}.parquet"
        counts[table] += _parquet(table, pieces(), path)
        name = f"{stem}{catalog.OPEN if is_open else ''}"
        written[catalog.partition(task.dataset, table, hour, name)] = path
    return written | _sums(task, written, counts, scratch), counts


def _marker(task: Task, read: _Read, rows: dict[str, int], began: tuple[float, float]) -> Marker:
    from ...analyzer import _core

    recording, analysis = task.recording, read.analysis
    capture = read.tables.capture if read.tables else {}
    warnings = [*read.warnings]
    if recording.missing:
        shown = ", ".join(map(str, recording.missing[:10]))
        warnings.append(f"files of the series are missing: {shown}")
    return Marker(
        recording=recording.id,
        version=task.version,
        host=recording.host,
        interface=recording.interface,
        files=tuple(file.named for file in recording.files),
        sidecar=tuple(file.named for file in recording.sidecar) if analysis and analysis.recording else (),
        size=recording.size,
        first_time_ns=capture.get("first_time_ns"),
        last_time_ns=capture.get("last_time_ns"),
        packets=capture.get("packets", 0),
        rpcs=read.tables.rpc_count if read.tables else 0,
        no_grpc=read.no_grpc,
        rows=dict(rows),
        warnings=tuple(warnings),
        left_out=read.left_out,
        seconds=round(time.monotonic() - began[0], 3),
        cpu_seconds=round(time.process_time() - began[1], 3),
        peak_bytes=_peak_bytes(),
        grpcdiag=_core.__version__,
    )


def _peak_bytes() -> int:
    """Most memory that this process had; 0 on Windows, which needs another way to ask."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _how(task: Task) -> DecodeOptions:
    """Make the options for decoding the recording. Raises StoreError."""
    from ...analyzer.decode.runner import KEY_LOG_BYTES

    how: DecodeOptions = {"ports": list(task.ports)}
    if task.keylog:
        how["keylog"] = store.head(task.keylog.url, KEY_LOG_BYTES)
    return how


def _beside(recording: Recording) -> tuple[Sidecar | None, tuple[str, ...]]:
    """Read the recording's sidecar; return notes if it cannot be used. Raises StoreError."""
    if not recording.sidecar:
        return None, ()
    from ...analyzer.sidecar import read

    description, samples = recording.sidecar[0].named, recording.sidecar[1:]
    try:
        document = store.head(recording.sidecar[0].url, MOST_BYTES)
        lines = store.head(samples[0].url, MOST_SAMPLE_BYTES).splitlines() if samples else []
        return read.read(description, document, lines), ()
    except read.Mismatch as mismatch:
        return None, (f"{description} is not used: {mismatch}",)
    except store.StoreError as error:
        if not error.lasting:
            raise  # the next run may be able to read it
        return None, (f"{error}; it is not used",)


def _parquet(table: str, pieces: Iterable[Frame], path: Path) -> int:
    from ...reports.tables.writing import write_rows

    with path.open("wb") as out:
        _, rows = write_rows(pieces, "parquet", out, table)
    return rows


def _sums(task: Task, written: dict[str, Path], counts: dict[str, int], scratch: Path) -> dict[str, Path]:
    """Write the sums of each hour's RPCs; return their paths by destination."""
    made: dict[str, Path] = {}
    connections = sums.files([str(path) for url, path in written.items() if "/connections/hour=" in url])
    is_small = counts["rpcs"] <= sums.FEW_RPCS
    with sums.connect_for_few() if is_small else sums.connect(scratch=scratch / "spill") as database:
        for url, path in written.items():
            if "/rpcs/hour=" not in url:
                continue
            rpcs = sums.rpcs_of_connections(sums.files([str(path)]), connections)
            for table, query in (("totals", sums.totals(rpcs)), ("latencies", sums.latencies(rpcs))):
                target = path.with_name(f"{path.stem}-{table}.parquet")
                counts[table] += sums.write(database, sums.add_host(query, task.recording.host), target)
                made[f"/{table}/".join(url.rsplit("/rpcs/", 1))] = target
    return made
