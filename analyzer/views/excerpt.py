"""Read one connection of a capture: its frames and packets within a time range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from ..decode.decode import decode
from ..decode.errors import NoGrpcError
from ..decode.rpc_columns import RpcColumns
from ..decode.runner import DecodeOptions, Progress, Run, Wanted, threads
from ..selection.narrow import select_rpcs
from ..selection.selection import Moment, Selection, after_first
from ..summary.figures import why_no_grpc
from ..tables import Frames, Ints, Mask, Packets, Tables, tables_of
from ..tables.grouping import take_rows

_TIMES, _PACKETS = np.iinfo(np.int64), np.iinfo(np.uint32)
_SLACK_NS = 1_000_000_000
"""Most by which a packet's time may lie before that of earlier packets for a range to contain it."""

_Row = TypeVar("_Row", Frames, Packets)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a capture: one connection, or one of its streams, in a time range."""

    tables: Tables
    """Tables of all connections, except frames and packets."""
    connection: int
    """Row of the connection."""
    stream: int | None
    """The only stream whose frames are included; None for all."""
    start_ns: int
    """Start of the range, since the epoch."""
    end_ns: int
    """End of the range, since the epoch."""
    frames: Frames
    """Frames of the connection that overlap the range."""
    packets: Packets
    """Packets of the connection within the range."""
    rpc: int | None
    """Row of the RPC that the excerpt shows; None if it shows a connection or stream."""
    streams: Ints
    """Identifiers of all streams with frames on the connection, at any time; empty unless `stream` is set."""

    @property
    def exists(self) -> bool:
        """Check whether the capture has the connection."""
        return self.connection < len(self.tables.connections.protocol)


class _Kept:
    """Rows of one table that belong to the excerpt, collected piece by piece."""

    def __init__(self, kind: type[Frames] | type[Packets]) -> None:
        self.pieces: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in kind.__struct_fields__}

    def add(self, columns: Mapping[str, Any], mask: Mask) -> None:
        if mask.any():
            for name, kept in self.pieces.items():
                kept.append(columns[name][mask])

    def table(self, like: _Row) -> _Row:
        """Make the table; `like` gives the types if it has no rows."""
        columns = {n: np.concatenate(kept) if kept else getattr(like, n)[:0] for n, kept in self.pieces.items()}
        return type(like)(**columns)


class _Filter:
    """Selects rows piece by piece, with some slack, because the exact range is known only at the end."""

    def __init__(self, connection: int, stream: int | None, begin: Moment | None, end: Moment | None) -> None:
        self.connection, self.stream = connection, stream
        self.begin, self.end = begin, end
        self.first_ns: int | None = None
        self.streams = np.zeros(0, dtype=np.int64)
        self.frames, self.packets = _Kept(Frames), _Kept(Packets)

    def add(self, frames: Mapping[str, Any], packets: Mapping[str, Any]) -> None:
        """Keep the wanted rows of a piece."""
        if self.first_ns is None and len(packets["packet"]):
            # without packet 1, the start of the capture is unknown until the end: then keep all
            self.first_ns = int(packets["time_ns"][0]) if packets["packet"][0] == 1 else -1
        self.packets.add(packets, self._mine(packets, "time_ns", "time_ns"))
        mask = self._mine(frames, "first_time_ns", "last_time_ns")
        if self.stream is not None:
            seen = frames["stream"][frames["connection"] == self.connection]
            self.streams = np.union1d(self.streams, seen.astype(np.int64))
            mask &= frames["stream"] == self.stream
        self.frames.add(frames, mask)

    def list_wanted(self, first_ns: int) -> Wanted:
        """Say which rows are wanted of a capture with its first packet at that time."""
        begin, end = (
            at if moment is None else first_ns + after_first(moment, first_ns)
            for moment, at in ((self.begin, _TIMES.min), (self.end, _TIMES.max))
        )
        return self.connection, (0, _PACKETS.max), (begin, end), self.stream

    def _mine(self, columns: Mapping[str, Any], first: str, last: str) -> Mask:
        mask: Mask = columns["connection"] == self.connection
        if self.first_ns is None or self.first_ns < 0:
            return mask
        if self.begin is not None:
            mask &= columns[last] >= self.first_ns + after_first(self.begin, self.first_ns) - _SLACK_NS
        if self.end is not None:
            mask &= columns[first] <= self.first_ns + after_first(self.end, self.first_ns) + _SLACK_NS
        return mask


def excerpt(
    paths: Sequence[str],
    connection: int,
    *,
    stream: int | None = None,
    begin: Moment | None = None,
    end: Moment | None = None,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Excerpt:
    """Read a capture once and keep one connection. Raises CaptureError."""
    wanted = _Filter(connection, stream, begin, end)
    tables = _read(paths, [wanted], progress, how)
    return _within(tables, wanted, None)


def slowest(
    paths: Sequence[str],
    number: int,
    chosen: Selection,
    *,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> list[Excerpt]:
    """Read a capture twice and keep the streams of the longest selected RPCs, the longest first.

    Raises CaptureError, NoGrpcError without RPCs, and NarrowError if no RPC is selected.
    """
    every = chosen != Selection()  # which RPCs are selected shows only in rows
    tables = decode(paths, rpc_rows=every, slowest=0 if every else number, progress=progress, **how)
    filters = _slowest(tables, number, chosen)
    first = tables.capture["first_time_ns"] or 0
    only = [wanted.list_wanted(first) for wanted in filters.values()]
    run = Run(paths, frames=True, packets=True, only=only, threads=threads(), **how)
    for _ in run.read(progress):
        pass
    for wanted in filters.values():
        wanted.add(run.result["frames"], run.result["packets"])
    return [_within(tables, wanted, row) for row, wanted in filters.items()]


def _slowest(tables: Tables, number: int, chosen: Selection) -> dict[int, _Filter]:
    """Make filters for the longest RPCs, by their rows, the longest first."""
    if not len(tables.rpcs.connection):
        raise NoGrpcError(why_no_grpc(tables))
    rpcs, first = tables.rpcs, tables.capture["first_time_ns"] or 0
    rows = np.flatnonzero(select_rpcs(tables, chosen))
    took = rpcs.duration_ns[rows]
    if len(rows) > number:  # the others need not be sorted
        rows = rows[took >= np.partition(took, -number)[-number]]
    rows = rows[np.lexsort((rpcs.start_time_ns[rows], -rpcs.duration_ns[rows]))][:number]
    filters = {}
    for row in rows.tolist():
        start = int(rpcs.start_time_ns[row]) - first
        end = start + int(rpcs.duration_ns[row])
        filters[row] = _Filter(int(rpcs.connection[row]), int(rpcs.stream[row]), start, end)
    return filters


def _read(paths: Sequence[str], filters: Sequence[_Filter], progress: Progress | None, how: DecodeOptions) -> Tables:
    run = Run(paths, frames=True, packets=True, rpc_rows=True, **how)
    for take in run.read(progress, RpcColumns()):
        frames, packets = take("frames"), take("packets")
        for wanted in filters:
            wanted.add(frames, packets)
    return tables_of(run.result)


def _within(tables: Tables, wanted: _Filter, rpc: int | None) -> Excerpt:
    first, last = tables.capture["first_time_ns"] or 0, tables.capture["last_time_ns"] or 0
    start = first if wanted.begin is None else first + after_first(wanted.begin, first)
    end = last if wanted.end is None else first + after_first(wanted.end, first)
    frames = wanted.frames.table(tables.frames)
    packets = wanted.packets.table(tables.packets)
    return Excerpt(
        tables=tables,
        connection=wanted.connection,
        stream=wanted.stream,
        start_ns=start,
        end_ns=end,
        frames=take_rows(frames, (frames.last_time_ns >= start) & (frames.first_time_ns <= end)),
        packets=take_rows(packets, (packets.time_ns >= start) & (packets.time_ns <= end)),
        rpc=rpc,
        streams=wanted.streams,
    )
