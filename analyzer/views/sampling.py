"""Select the packets and frames of a large capture that are drawn, and compute the bytes in flight at each packet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..decode.examples import divide_examples
from ..decode.rpc_columns import RpcColumns
from ..decode.runner import DecodeOptions, Progress, Run, threads
from ..model.analysis import Analysis
from ..tables import BEGUN_BEFORE, Ints, Mask, Tables, tables_of
from ..tables.grouping import group_rows

_TIMES = np.iinfo(np.int64)
_NO_PACKETS = (0, 0)
"""A range without packets: they are numbered from 1."""
_SHIFT = 33
"""Packet numbers have 32 bits: `connection << 33 | packet` sorts by connection, then by packet."""
_SLOWEST_PER_METHOD = 3
_MOST_METHODS = 40


class Bounds(NamedTuple):
    """Most of each kind that is drawn in detail."""

    packets: int = 200_000
    """Packets with rows (heuristic: a browser draws them within a second)."""
    frames: int = 500_000
    """Frames with rows."""
    rpcs: int = 60_000
    """RPCs with rows: a third the longest, a third failed ones, the others a uniform sample."""
    waits: int = 60_000
    """Blocked intervals with rows."""
    around: int = 150
    """Packets of the same connection before and after a packet that is evidence."""
    slow_rpcs: int = 60
    """Slowest RPCs whose packets have rows."""
    slow_packets: int = 300
    """Packets of the connection at a slow RPC's beginning, and equally many at its end."""
    begun: int = 20
    """Connections with the most RPC time whose first packets have rows if there is room left."""
    acts: int = 2_000
    """Intervals of recorded threads whose steps have rows (heuristic: a page of a megabyte)."""
    connections: int = 2_000
    """Connections with a name."""


BOUNDS = Bounds()
"""The bounds in use."""


class Spans(Struct, frozen=True, eq=False):
    """Disjoint ranges of packets, each of one connection, in the order of connections and packets."""

    connection: Ints
    first_packet: Ints
    last_packet: Ints
    rank: Ints
    """0 for the most important range."""
    whole: bool = False
    """Whether the range is the whole capture; the columns are empty then."""

    @staticmethod
    def everything() -> Spans:
        """Make the range of all packets of all connections."""
        none = np.zeros(0, dtype=np.int64)
        return Spans(none, none, none, none, whole=True)

    def holds(self, connection: npt.NDArray[Any], first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Mask:
        """Mark rows, given by connection, first and last packet, that overlap a range."""
        if self.whole:
            return np.ones(len(connection), dtype=bool)
        if not len(self.rank):
            return np.zeros(len(connection), dtype=bool)
        begins, ends = _key(self.connection, self.first_packet), _key(self.connection, self.last_packet)
        at = np.searchsorted(begins, _key(connection, last), side="right") - 1
        return (at >= 0) & (ends[np.maximum(at, 0)] >= _key(connection, first))

    def halved(self, connection: npt.NDArray[Any], packet: npt.NDArray[Any]) -> Spans:
        """Select the more important half of the ranges; of a whole capture, half of each connection's packets."""
        if self.whole:
            rows = group_rows(connection)
            return _spans([(c, *_ends(packet[mine]), rank) for rank, (c, mine) in enumerate(rows.items())])
        order = np.argsort(self.rank, kind="stable")
        return _taken(self, order[: len(order) // 2])


def _ends(packets: npt.NDArray[Any]) -> tuple[int, int]:
    return int(packets[0]), int(packets[(len(packets) - 1) // 2])


def _taken(spans: Spans, rows: Ints) -> Spans:
    rows = np.sort(rows)
    names = ("connection", "first_packet", "last_packet", "rank")
    return replace(spans, **{name: getattr(spans, name)[rows] for name in names})


def _key(connection: npt.NDArray[Any], packet: npt.NDArray[Any]) -> Ints:
    return connection.astype(np.int64) << _SHIFT | packet.astype(np.int64)


Span = tuple[int, int, int, int]
"""Connection, first and last packet, rank."""


def _spans(found: Sequence[Span]) -> Spans:
    """Merge ranges that touch; the result has the most important rank of them."""
    merged: list[list[int]] = []
    for connection, first, last, rank in sorted(found):
        if merged and merged[-1][0] == connection and first <= merged[-1][2] + 1:
            merged[-1][2] = max(merged[-1][2], last)
            merged[-1][3] = min(merged[-1][3], rank)
        else:
            merged.append([connection, first, last, rank])
    columns = np.array(merged, dtype=np.int64).reshape(-1, 4).T
    return Spans(*columns)


class Flights:
    """Bytes in flight on every connection, computed piece by piece."""

    def __init__(self) -> None:
        """Begin without packets."""
        self._sent = np.full((2, 0), -1, dtype=np.int64)
        self._acked = np.full((2, 0), -1, dtype=np.int64)

    def add(self, packets: Mapping[str, npt.NDArray[Any]]) -> tuple[Ints, Ints]:
        """Compute the bytes of client and server that are sent and not acknowledged after each packet."""
        rows = len(packets["packet"])
        if not rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        connection = packets["connection"].astype(np.int64)
        self._grow(int(connection.max()) + 1)
        order = np.argsort(connection, kind="stable")
        connection = connection[order]
        starts = np.flatnonzero(np.diff(connection, prepend=-1))
        group = np.cumsum(np.diff(connection, prepend=connection[0]) != 0)
        seq, ack = packets["seq"][order].astype(np.int64), packets["ack"][order].astype(np.int64)
        direction, has_ack = packets["direction"][order], packets["flags"][order] & 16 != 0
        both = []
        for side in (0, 1):
            mine = direction == side
            sent = np.where(mine, seq + packets["payload_bytes"][order], -1)
            acked = np.where(~mine & has_ack, ack, -1)
            # what was sent before a connection's first packet in the capture is not in flight
            acked = np.where(mine & self._first(mine, group, connection, side), seq, acked)
            sent = _running(sent, group, starts, connection, self._sent[side])
            acked = _running(acked, group, starts, connection, self._acked[side])
            flight = np.empty(rows, dtype=np.int64)
            flight[order] = np.where(sent >= 0, np.maximum(sent - np.maximum(acked, 0), 0), 0)
            both.append(flight)
        return both[0], both[1]

    def _grow(self, connections: int) -> None:
        more = connections - self._sent.shape[1]
        if more > 0:
            self._sent = np.pad(self._sent, ((0, 0), (0, more)), constant_values=-1)
            self._acked = np.pad(self._acked, ((0, 0), (0, more)), constant_values=-1)

    def _first(self, mine: Mask, group: Ints, connection: Ints, side: int) -> Mask:
        """Mark the first packet of each connection's side."""
        rows = np.flatnonzero(mine)
        first = np.zeros(len(mine), dtype=bool)
        _, places = np.unique(group[rows], return_index=True)
        first[rows[places]] = True
        first &= self._sent[side][connection] < 0
        return first


def _running(values: Ints, group: Ints, starts: Ints, connection: Ints, carried: Ints) -> Ints:
    """Compute the running maximum per connection; `carried` keeps it between pieces."""
    values = np.minimum(values, (1 << 40) - 1)
    values[starts] = np.maximum(values[starts], carried[connection[starts]])
    # rows are grouped by connection: adding `group << 41` makes values exceed all of the connection before
    running: Ints = np.maximum.accumulate(values + (group << 41)) - (group << 41)
    ends = np.append(starts[1:], len(values)) - 1
    carried[connection[ends]] = running[ends]
    return running


class Overview(Struct, frozen=True, eq=False):
    """A capture without its packets and frames."""

    tables: Tables
    """With the rows of RPCs that are drawn, and of those that `analyze` looks at."""
    sampled: Mask
    """Those that are a uniform sample of all."""
    examples: Tables
    """With the rows of RPCs that `analyze` looks at."""
    packets: _Index
    order: Any
    """In which the packets were read."""


def read_overview(
    paths: Sequence[str], progress: Progress | None = None, bounds: Bounds = BOUNDS, **how: Unpack[DecodeOptions]
) -> Overview:
    """Read what findings and drawings of a capture need before its packets. Raises CaptureError."""
    most = bounds.rpcs
    rows = {"marks_examples": True, "slowest": most // 3, "sampled": most - most // 3, "distributions": True}
    packets = {"packets": True, "only": [], "lists_packets": True}
    run = Run(paths, **rows, **packets, threads=threads(), **how)
    for _ in run.read(progress):
        pass
    examples, tables = divide_examples(tables_of(run.result))
    index = _Index(*run.result["listed_packets"], is_sorted=not tables.capture["sorted_packets"])
    return Overview(tables, run.result["sampled"] != 0, examples, index, run.result["order"])


def read_around(
    paths: Sequence[str],
    overview: Overview,
    analysis: Analysis,
    bounds: Bounds,
    lanes: Sequence[int],
    progress: Progress | None,
    how: DecodeOptions,
) -> tuple[Tables, tuple[Ints, Ints], Spans]:
    """Read tables with the important frames and packets, and all RPCs of their connections and of those in `lanes`.

    Return also the bytes in flight, and the ranges.
    """
    spans = _chosen(overview.packets, overview.tables, analysis, bounds)
    whole = [(connection, _NO_PACKETS) for connection in sorted({*lanes} - {*spans.connection.tolist()})]
    ranges = zip(spans.first_packet.tolist(), spans.last_packet.tolist(), strict=True)
    drawn = [*zip(spans.connection.tolist(), ranges, strict=True), *whole]
    only = [(connection, packets, (_TIMES.min, _TIMES.max), None) for connection, packets in drawn]
    # at most twice the bound of frames, which only tiny frames reach
    rows = {"frames": True, "packets": True, "rpc_rows": True, "most_frames": 2 * bounds.frames}
    run = Run(paths, **rows, only=only, order=overview.order, threads=threads(), **how)
    for _ in run.read(progress, RpcColumns()):
        pass
    found, in_flight = tables_of(run.result), run.result["in_flight"]
    of_rpcs = {"rpcs": found.rpcs, "rpc_budgets": found.rpc_budgets}
    tables = replace(overview.tables, frames=found.frames, packets=found.packets, **of_rpcs)
    return tables, (in_flight["client_in_flight"], in_flight["server_in_flight"]), spans


class _Index:
    """The packets of each connection."""

    def __init__(self, lengths: npt.NDArray[Any], numbers: npt.NDArray[Any], *, is_sorted: bool) -> None:
        """Take in how many packets each connection has, and their numbers, connection by connection."""
        if not is_sorted:
            numbers = numbers[np.lexsort((numbers, np.repeat(np.arange(len(lengths)), lengths.astype(np.int64))))]
        self._numbers, self._ends = numbers, np.cumsum(lengths)
        self._lengths = lengths

    def find_connections(self, packets: Sequence[int]) -> dict[int, int]:
        """Find the connections of packets."""
        places = np.flatnonzero(np.isin(self._numbers, np.array(packets, self._numbers.dtype)))
        connections = np.searchsorted(self._ends, places, side="right")
        return dict(zip(self._numbers[places].tolist(), connections.tolist(), strict=True))

    def of(self, connection: int) -> npt.NDArray[Any]:
        """List the numbers of a connection's packets."""
        if connection >= len(self._ends):
            return self._numbers[:0]
        end = int(self._ends[connection])
        return self._numbers[end - int(self._lengths[connection]) : end]

    def around(self, connection: int, packet: int, before: int, after: int) -> tuple[int, int, int]:
        """Find the first and last packet of a range around a packet, and the number of packets in it."""
        mine = self.of(connection)
        at = int(np.searchsorted(mine, packet))
        first, last = max(at - before, 0), min(at + after, len(mine) - 1)
        return int(mine[first]), int(mine[last]), last - first + 1


def _chosen(index: _Index, tables: Tables, analysis: Analysis, bounds: Bounds) -> Spans:
    """Select ranges until they hold the most packets allowed: evidence of the most severe findings first."""
    chosen: list[Span] = []
    frames = max(sum(analysis.totals.frames.values()), 1)
    left = min(bounds.packets, bounds.frames * analysis.capture.packets // frames)
    for rank, (connection, packet, before, after) in enumerate(_wanted(index, tables, analysis, bounds)):
        first, last, packets = index.around(connection, packet, before, after)
        left -= packets
        if left < 0:
            break
        chosen.append((connection, first, last, rank))
    return _spans(chosen)


def _wanted(index: _Index, tables: Tables, analysis: Analysis, bounds: Bounds) -> Iterator[Span]:
    """Yield, most important first: connection, packet, and the number of packets to show before and after it."""
    evidence_packets = [evidence.packet for finding in analysis.findings for evidence in finding.evidence]
    connections = index.find_connections(evidence_packets)
    for finding in analysis.findings:
        for evidence in finding.evidence:
            connection = connections.get(evidence.packet)
            if connection is not None:
                yield connection, evidence.packet, bounds.around, bounds.around
    rpcs = tables.rpcs
    for row in _slowest(tables, bounds.slow_rpcs):
        connection = int(rpcs.connection[row])
        yield connection, int(rpcs.first_packet[row]), 10, bounds.slow_packets
        if rpcs.last_packet[row]:
            yield connection, int(rpcs.last_packet[row]), bounds.slow_packets, 10
    for row in np.argsort(-tables.connection_budgets.sum(axis=1), kind="stable")[: bounds.begun].tolist():
        yield row, int(tables.connections.first_packet[row]), 0, bounds.packets // bounds.begun


def _slowest(tables: Tables, most: int) -> list[int]:
    """Find the slowest RPCs of all and of each method."""
    rpcs = tables.rpcs
    order = np.argsort(-np.where(rpcs.flags & BEGUN_BEFORE, -1, rpcs.duration_ns), kind="stable")
    methods = rpcs.method[order]
    found = [order[:most]]
    found += [order[methods == method.number][:_SLOWEST_PER_METHOD] for method in tables.methods[:_MOST_METHODS]]
    together = np.concatenate(found)
    _, first = np.unique(together, return_index=True)
    return list(map(int, together[np.sort(first)]))
