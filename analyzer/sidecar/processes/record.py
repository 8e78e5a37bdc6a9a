"""Read a process record, which `grpcdiag capture --processes` writes beside a capture (docs/processes.md)."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ... import _core

SCHEMA = "grpcdiag.processes/1"
"""Name and version of a record's structure."""
MOST_UNCERTAIN_NS = 50_000
"""Most that the clocks' offset may be uncertain by, or change: packets and events lie some microseconds apart."""
_NEEDED = {
    "sched_switch": ("prev_pid", "prev_state", "next_pid"),
    "sched_waking": ("pid",),
    "task_newtask": ("pid", "clone_flags", "comm"),
}
"""Events and fields without which ways to sends would be wrong; without those of sockets there are no ways."""

_Thread = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Time = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Nanoseconds: the sum of a record's time and its clock's offset fits into 64 bits."""
_Count = Annotated[int, Meta(ge=0, le=1 << 62)]


class RecordError(Exception):
    """The record cannot be used; the message says why."""


class _Header(Struct, frozen=True):
    schema: str
    offset_ns: _Time
    uncertainty_ns: _Count
    formats: tuple[str, ...]
    tasks: tuple[tuple[_Thread, _Thread, str], ...] = ()
    processors: _Count = 0
    full: bool = False


class RecordedQuota(Struct, frozen=True):
    """What the cgroup of a process allowed."""

    process: _Thread
    """The process that was recorded from the beginning."""
    throttled: tuple[tuple[_Time, _Time], ...] = ()
    """When the cgroup was throttled, by the record's clock."""
    throttled_ns: _Count | None = None
    """For how long, by cpu.stat, which adds up the processors; None if the record does not say."""
    processors: float | None = None
    """Processors that it may use at once; None without a quota."""


class _Footer(Struct, frozen=True):
    offset_ns: _Time
    uncertainty_ns: _Count
    lost_events: _Count = 0
    quotas: tuple[RecordedQuota, ...] | None = None
    elsewhere: bool = False
    cut: bool = False
    cost_ns: _Count = 0


class ProcessRecord(Struct, frozen=True, eq=False):
    """What the scheduler did with the threads of the recorded command."""

    events: _core.ProcessRecord
    offset_ns: int
    """The capture's clock less the record's."""
    processors: int
    """Processors of the host."""
    quotas: tuple[RecordedQuota, ...]
    """Of the command, and of each process that ran before."""
    elsewhere: bool
    """Whether a recorded thread was in another cgroup than those of `quotas`, so that its quota is not known."""
    full: bool
    """Whether waits for locks were recorded."""
    lost_events: int
    cost_ns: int
    """Processor time that the recording itself took."""


def read_record(content: bytes) -> ProcessRecord:
    """Read a record. Raises RecordError for what is no complete record."""
    documents, blocks = [], []
    for letter, block in _split(content):
        if letter == b"J":
            documents.append(block)
        elif letter == b"P" and len(block) > 2:
            blocks.append((int.from_bytes(block[:2], "little"), block[2:]))
    try:
        header = msgspec.json.decode(documents[0], type=_Header) if documents else None
        footer = msgspec.json.decode(documents[1], type=_Footer) if len(documents) > 1 else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"it does not describe a recording: {error}") from None
    if header is None or header.schema != SCHEMA:
        raise RecordError(f"it is not a record of {SCHEMA}")
    if footer is None or footer.cut:
        raise RecordError("it is cut: the recording did not end in order, or the disk was full")
    if footer.quotas is None:
        raise RecordError("it does not say what quotas its processes had: an earlier version wrote it")
    drift = abs(footer.offset_ns - header.offset_ns) + footer.uncertainty_ns + header.uncertainty_ns
    if drift > MOST_UNCERTAIN_NS:
        raise RecordError(f"its clock and the capture's moved by {drift / 1000:,.0f} µs against each other")
    if lacking := _find_lacking(header.formats):
        raise RecordError(f"its kernel does not describe {lacking}, which is needed")
    events = _core.ProcessRecord(list(header.formats), [(t, p, n[:16]) for t, p, n in header.tasks], blocks)
    losses, has_more, damaged, count = events.counts()
    if has_more:
        raise RecordError("it is larger than what is read of a record")
    if damaged or not count:
        raise RecordError("its pages are damaged" if damaged else "it has no events")
    if lost := max(losses, footer.lost_events):
        raise RecordError(f"it lacks {lost:,} events or more, for which there was no room")
    return ProcessRecord(
        events=events,
        offset_ns=(header.offset_ns + footer.offset_ns) // 2,
        processors=header.processors,
        quotas=footer.quotas,
        elsewhere=footer.elsewhere,
        full=header.full,
        lost_events=footer.lost_events,
        cost_ns=footer.cost_ns,
    )


def _find_lacking(formats: Sequence[str]) -> str | None:
    """Find an event or a field that the kernel does not describe."""
    described = {text.partition("\n")[0].removeprefix("name: "): text for text in formats}
    for event, fields in _NEEDED.items():
        if event not in described:
            return event
        known = set(re.findall(r"\b(\w+)(?:\[\d+\])?;\s*offset:", described[event]))
        if missing := set(fields) - known:
            return f"{event}.{min(missing)}"
    return None


def _split(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split a record into letters and contents; a cut block ends it."""
    at = 0
    while at + 5 <= len(content):
        letter, length = struct.unpack_from("<cI", content, at)
        at += 5 + length
        if at > len(content):
            return
        yield letter, content[at - length : at]
