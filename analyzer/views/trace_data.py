"""Read a capture for a trace viewer: phases of each RPC, and bytes in flight and windows over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from .. import _core
from ..decode.rpc_columns import RpcColumns
from ..decode.runner import DecodeOptions, Progress, Run
from ..tables import Ints, Tables, tables_of
from .sampling import Flights

MOST_POINTS = 500_000
"""Most points of all counters together; more are thinned (heuristic: a trace of 20 MB)."""
_FIRST_WIDTH_NS = 1_000
"""Width of the time intervals when points are first thinned."""
_LARGEST_WIDTH_NS = 1 << 60
"""Widest interval: it covers a whole capture, so wider ones would thin no more."""
_MOST_OFFSET = 1 << 40
"""Largest window that is drawn, 1 TB; larger ones are drawn as this."""
_RST = 4
_END_STREAM = 1
_HEADERS_OR_DATA = [_core.FRAME_TYPES.index(name) for name in ("DATA", "HEADERS", "CONTINUATION")]
_CARRIES_END_STREAM = [_core.FRAME_TYPES.index(name) for name in ("DATA", "HEADERS")]

FLIGHT, WINDOW = 0, 1
"""Kinds of counters: bytes in flight of a side, and the receive window that a side advertises."""


class Points(NamedTuple):
    """Points of counters: the value at a time, per counter in the order of the capture."""

    counter: Ints
    """4 x connection + 2 x kind + direction."""
    time_ns: Ints
    """Since the epoch."""
    value: Ints
    """Bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceData:
    """A decoded capture, and what is drawn of its packets and frames."""

    tables: Tables
    """Tables with a row per RPC."""
    points: Points
    """Points of connections with RPCs, sorted by counter."""
    width_ns: int
    """Each counter has only the largest and the last value of each interval of this width; 0 if it has all values."""
    request_end_ns: Ints
    """Per RPC: time of the last byte of its request, since the epoch; -1 if the capture lacks it."""
    response_start_ns: Ints
    """Per RPC: time of the first byte of its response, since the epoch; -1 if the capture lacks it."""


def read_trace_data(
    paths: Sequence[str], *, progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> TraceData:
    """Read a capture once. Memory grows with its RPCs, blocked intervals and connections. Raises CaptureError."""
    run = Run(paths, frames=True, packets=True, rpc_rows=True, **how)
    counters, phases = _Counters(), _Phases()
    for take in run.read(progress, RpcColumns()):
        counters.add(take("packets"))
        phases.add(take("frames"))
    tables = tables_of(run.result)
    points = counters.points(tables)
    return TraceData(tables, points, counters.width_ns, *phases.of(tables))


class _Counters:
    """Bytes in flight and receive windows, piece by piece; points are thinned when they become too many."""

    def __init__(self) -> None:
        self.flights = Flights()
        self.kept: list[Points] = []
        self.count = 0
        self.width_ns = 0

    def add(self, packets: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add the next packets of the capture."""
        if not len(packets["packet"]):
            return
        order = np.argsort(packets["connection"], kind="stable")
        columns = {name: column[order] for name, column in packets.items()}
        connection = columns["connection"].astype(np.int64)
        for direction, flight in enumerate(self.flights.add(packets)):
            self._keep(4 * connection + 2 * FLIGHT + direction, columns["time_ns"], flight[order])
            self._window(columns, connection, direction)
        if self.count > MOST_POINTS:
            self._thin()

    def _window(self, columns: Mapping[str, npt.NDArray[Any]], connection: Ints, direction: int) -> None:
        mine = (columns["direction"] == direction) & (columns["flags"] & _RST == 0)
        window = np.minimum(columns["window"][mine], _MOST_OFFSET).astype(np.int64)
        self._keep(4 * connection[mine] + 2 * WINDOW + direction, columns["time_ns"][mine], window)

    def _keep(self, counter: Ints, time_ns: Ints, value: Ints) -> None:
        """Keep the points at which a counter changes, and the first point of each piece."""
        if len(counter):
            change = np.append(True, (counter[1:] != counter[:-1]) | (value[1:] != value[:-1]))
            self.kept.append(Points(counter[change], time_ns[change], value[change]))
            self.count += int(change.sum())

    def _thin(self) -> None:
        points = _joined(self.kept)
        if self.width_ns:
            points = thin_points(points, self.width_ns)  # may be enough: new points are not thinned yet
        while len(points.counter) > MOST_POINTS // 2 and self.width_ns < _LARGEST_WIDTH_NS:
            self.width_ns = self.width_ns * 4 or _FIRST_WIDTH_NS
            points = thin_points(points, self.width_ns)
        self.kept, self.count = [points], len(points.counter)

    def points(self, tables: Tables) -> Points:
        """Return the points of connections with RPCs; windows only where the handshake gives their scale (RFC 7323)."""
        points = _joined(self.kept)
        connections = tables.connections
        http2 = connections.rpcs > 0
        connection, kind = points.counter >> 2, points.counter >> 1 & 1
        mine = http2[connection] & ((kind == FLIGHT) | (connections.complete[connection] == 1))
        points = Points(*(column[mine] for column in points))
        order = np.argsort(points.counter, kind="stable")
        points = Points(*(column[order] for column in points))
        return thin_points(points, self.width_ns) if self.width_ns else points


def _joined(pieces: Sequence[Points]) -> Points:
    if not pieces:
        return Points(*(np.zeros(0, dtype=np.int64) for _ in Points._fields))
    return Points(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def thin_points(points: Points, width_ns: int) -> Points:
    """Keep, of each counter and interval of `width_ns`, the points with the largest and with the last value."""
    interval = points.time_ns // width_ns
    place = np.arange(len(interval))
    order = np.lexsort((place, interval, points.counter))
    new = np.append(True, (np.diff(points.counter[order]) != 0) | (np.diff(interval[order]) != 0))
    last = order[np.append(np.flatnonzero(new)[1:], len(order)) - 1] if len(order) else order
    by_value = np.lexsort((place, -points.value, interval, points.counter))
    kept = np.union1d(by_value[new[: len(by_value)]], last)
    return Points(*(column[kept] for column in points))


class _Phases:
    """Ends of requests and starts of responses, collected piece by piece."""

    def __init__(self) -> None:
        self.requests: list[tuple[Ints, Ints, Ints]] = []
        self.responses: list[tuple[Ints, Ints]] = []

    def add(self, frames: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add the next frames of the capture."""
        drawn = (frames["stream"] > 0) & np.isin(frames["kind"], _HEADERS_OR_DATA)
        key = frames["connection"].astype(np.int64) << 32 | frames["stream"]
        ended = (frames["flags"] & _END_STREAM != 0) & np.isin(frames["kind"], _CARRIES_END_STREAM)
        requests, responses = drawn & (frames["direction"] == 0), drawn & (frames["direction"] == 1)
        self.requests.append(_last(key[requests], frames["last_time_ns"][requests], ended[requests].astype(np.int64)))
        self.responses.append(find_first(key[responses], frames["first_time_ns"][responses]))

    def of(self, tables: Tables) -> tuple[Ints, Ints]:
        """Return `TraceData.request_end_ns` and `response_start_ns`; -1 for reused stream identifiers."""
        key = tables.rpcs.connection.astype(np.int64) << 32 | tables.rpcs.stream
        _, inverse, times = np.unique(key, return_inverse=True, return_counts=True)
        once = times[inverse] == 1
        keys, ends, ended = _last(*(np.concatenate(columns) for columns in zip(*self.requests, strict=True)))
        request_end = np.where(once, look_up(key, keys, np.where(ended > 0, ends, -1)), -1)
        keys, starts = find_first(*(np.concatenate(columns) for columns in zip(*self.responses, strict=True)))
        return request_end, np.where(once, look_up(key, keys, starts), -1)


def _last(key: Ints, time_ns: Ints, ended: Ints) -> tuple[Ints, Ints, Ints]:
    keys, inverse = np.unique(key, return_inverse=True)
    ends, any_ended = np.full(len(keys), np.iinfo(np.int64).min), np.zeros(len(keys), dtype=np.int64)
    np.maximum.at(ends, inverse, time_ns)
    np.maximum.at(any_ended, inverse, ended)
    return keys, ends, any_ended


def find_last(key: Ints, time_ns: Ints) -> tuple[Ints, Ints]:
    """Find the distinct keys and the latest time of each."""
    keys, ends, _ = _last(key, time_ns, np.zeros(len(key), dtype=np.int64))
    return keys, ends


def find_first(key: Ints, time_ns: Ints) -> tuple[Ints, Ints]:
    """Find the distinct keys and the earliest time of each."""
    keys, inverse = np.unique(key, return_inverse=True)
    starts = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(starts, inverse, time_ns)
    return keys, starts


def look_up(wanted: Ints, keys: Ints, values: Ints) -> Ints:
    """Look up the value of each wanted key; -1 if there is none."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], -1)
