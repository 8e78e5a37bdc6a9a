"""A trace for https://ui.perfetto.dev: a track per connection and stream, waits, counters, and the findings' evidence.

Times are nanoseconds after the earliest packet, which is the trace's zero: the viewer then counts from the same instant
as the other reports, and a clock snapshot relates it to the time of day. Every slice of a track ends before the next
one begins or lies inside it: what can overlap has tracks of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...analyzer import _core
from ...analyzer.model.analysis import Analysis, ConnectionFacts
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration
from ...analyzer.tables import (
    BEGUN_BEFORE,
    COMPLETE,
    DIRECTIONS,
    NO_METHOD,
    NOT_SEEN,
    TOUCHES_GAP,
    WINDOW_NOT_KNOWN,
    Ints,
)
from ...analyzer.views.trace_data import FLIGHT, WINDOW, TraceData
from .writer import Value, Writer

OWN_TRACKS = 50
"""A connection with this many RPCs has a line per stream; one with more shows its streams on one track."""
_LISTED = 16
"""Files and warnings that the capture's slice names."""
_BLOCK = 8192
"""RPCs that are looked at together."""
_CAPTURE, _FINDINGS, _CONNECTIONS = 0, 1, 1000
"""Ranks of tracks at the top."""
_WAITS, _OPEN, _FLIGHTS, _AT_STOPS, _STREAMS = 0, 10, 20, 30, 100
"""Ranks of the tracks of a connection."""
_AT_STOP = {
    "congestion_window_bytes": "congestion window",
    "stream_window_bytes": "stream window",
    "connection_window_bytes": "connection window",
}
_STREAM_WAITS = (CAUSES.index("client"), CAUSES.index("server"))


class _Wait(NamedTuple):
    row: int
    direction: int
    start: int
    end: int
    cause: int


def render(analysis: Analysis, trace: TraceData) -> Iterator[bytes]:
    """The trace in pieces, one after the other."""
    drawing = _Drawing(analysis, trace)
    for _ in drawing.steps():
        if drawing.writer.full:
            yield drawing.writer.take()
    yield drawing.writer.take()


class _Drawing:
    """What the parts of a trace share."""

    def __init__(self, analysis: Analysis, trace: TraceData) -> None:
        self.analysis, self.trace, self.tables = analysis, trace, trace.tables
        self.zero = _earliest(analysis, trace)
        self.writer = Writer(self.zero)
        waits, rpcs = self.tables.waits, self.tables.rpcs
        self.wait_rows = np.lexsort((waits.start_time_ns, waits.direction, waits.connection))
        self.by_stream = np.lexsort((waits.start_time_ns, _stream_key(waits)))
        self.stream_keys = _stream_key(waits)[self.by_stream]
        self.rpc_rows = np.lexsort((rpcs.stream, rpcs.start_time_ns, rpcs.connection))
        self.methods = {m.number: m.name or m.label or "method not in the capture" for m in self.tables.methods}

    def steps(self) -> Iterator[None]:
        """Write everything; after each step a piece may be taken."""
        self._capture()
        yield from self._findings()
        of_rpcs = self.tables.rpcs.connection[self.rpc_rows]
        of_waits = self.tables.waits.connection[self.wait_rows]
        of_points = self.trace.points.counter >> 2
        for fact in self.analysis.connections:
            rows = [slice(*np.searchsorted(c, [fact.connection, fact.connection + 1])) for c in (of_rpcs, of_waits)]
            points = slice(*np.searchsorted(of_points, [fact.connection, fact.connection + 1]))
            yield from self._connection(fact, self.rpc_rows[rows[0]], self.wait_rows[rows[1]], points)

    def at(self, time_ns: int) -> int:
        """A time as the trace has it."""
        return max(int(time_ns) - self.zero, 0)

    # the capture and its findings

    def _capture(self) -> None:
        analysis, facts = self.analysis, self.analysis.capture
        if facts.first_time_ns is None or facts.last_time_ns is None:
            return
        notes: dict[str, Value] = {"verdict": analysis.verdict.text, "finding": analysis.verdict.finding}
        notes |= {"packets": facts.packets, "bytes": facts.bytes, "rpcs": analysis.totals.rpcs}
        notes["budget_ns"] = analysis.budget
        notes["files"] = {str(number): name for number, name in enumerate(analysis.files[:_LISTED])}
        notes["warnings"] = {str(number): text for number, text in enumerate(analysis.quality.warnings[:_LISTED])}
        name = f"{_sortable(0, len(analysis.findings))}. capture"
        track = self.writer.track(name, None, _CAPTURE, "The capture from its first packet to its last one.")
        begin, end = sorted((self.at(facts.first_time_ns), self.at(facts.last_time_ns)))
        self.writer.slice(track, begin, end, analysis.verdict.text, "capture", notes)

    def _findings(self) -> Iterator[None]:
        """A track per finding: the viewer has them above the connections when they have no parent."""
        for rank, finding in enumerate(self.analysis.findings):
            name = f"{_sortable(rank + 1, len(self.analysis.findings))}. {finding.severity}: {finding.id}"
            track = self.writer.track(name, None, _FINDINGS + rank, f"{finding.title}. {finding.explanation}")
            for evidence in sorted(finding.evidence, key=lambda shown: shown.time_ns):
                notes = {"packet": evidence.packet, **_finding_notes(finding)}
                self.writer.instant(
                    track, self.at(evidence.time_ns), f"#{evidence.packet} {evidence.what}", "finding", notes
                )
            yield

    # a connection

    def _connection(self, fact: ConnectionFacts, rpcs: Ints, waits: Ints, points: slice) -> Iterator[None]:
        number = _sortable(fact.connection, self.analysis.connections[-1].connection)
        name = f"connection {number}: {fact.client} -> {fact.server}"
        group = self.writer.group(name, None, _CONNECTIONS + fact.connection, _described(fact))
        table, row = self.tables.connections, fact.connection
        begin, end = sorted((self.at(table.first_time_ns[row]), self.at(table.last_time_ns[row])))
        notes: dict[str, Value] = {
            field: getattr(fact, field)
            for field in fact.__struct_fields__
            if isinstance(getattr(fact, field), int | str) and field != "protocol"
        }
        self.writer.slice(group, begin, end, f"{count(fact.rpcs, 'RPC')}, {fact.client}", "connection", notes)
        yield from self._waits(group, waits)
        yield from self._open_rpcs(group, rpcs)
        yield from self._counters(group, points)
        yield from self._at_stops(group, waits)
        yield from self._streams(group, rpcs)

    def _waits(self, group: int, rows: Ints) -> Iterator[None]:
        """A track per side; an arrow from the ACK that released a wait to the packet that went on."""
        table = self.tables.waits
        for direction in range(2):
            mine = rows[table.direction[rows] == direction]
            if not len(mine):
                continue
            lanes: list[tuple[int, int]] = []  # tracks and when they are free: streams may stand behind others at once
            arrows = self._arrow_tracks(group, direction) if table.released_by_packet[mine].any() else None
            for row in mine.tolist():
                start = self.at(table.start_time_ns[row])
                end = start + int(table.duration_ns[row])
                track = self._lane(lanes, group, direction, start, end)
                self.writer.slice(track, start, end, CAUSES[table.cause[row]], "wait", self._wait_notes(row))
                if arrows and (released := int(table.released_by_packet[row])):
                    when = min(max(self.at(table.released_time_ns[row]), start), end)
                    arrow, resumed = self.writer.flow(), int(table.resumed_at_packet[row])
                    self.writer.instant(arrows[0], when, "releases", "release", {"packet": released}, starts=[arrow])
                    self.writer.instant(arrows[1], end, "goes on", "release", {"packet": resumed}, ends=[arrow])
                yield

    def _lane(self, lanes: list[tuple[int, int]], group: int, direction: int, start: int, end: int) -> int:
        """A track of the side's waits that is free; tracks of one name are drawn as one."""
        for number, (track, free) in enumerate(lanes):
            if free <= start:
                lanes[number] = track, end
                return track
        side = DIRECTIONS[direction]
        text = f"The {side} owed bytes and sent none; named by cause."
        track = self.writer.track(f"{side} waits", group, _WAITS + 3 * direction, text)
        lanes.append((track, end))
        return track

    def _arrow_tracks(self, group: int, direction: int) -> tuple[int, int]:
        """Where arrows begin and where they end."""
        side, other, rank = DIRECTIONS[direction], DIRECTIONS[1 - direction], _WAITS + 3 * direction
        text = f"The {other}'s packet right before the {side} went on."
        begin = self.writer.track(f"{other} releases", group, rank + 1, text)
        return begin, self.writer.track(f"{side} goes on", group, rank + 2, f"The {side}'s next packet after a wait.")

    def _wait_notes(self, row: int) -> dict[str, Value]:
        table = self.tables.waits
        measured = self.tables.measured
        notes: dict[str, Value] = {
            "direction": DIRECTIONS[table.direction[row]],
            "stream": int(table.stream[row]),
            "owed_bytes": int(table.owed_bytes[row]),
            "in_flight_bytes": _known(table.in_flight_bytes[row]),
            "congestion_window_bytes": _known(table.congestion_window_bytes[row]),
            "congestion_window_measured": bool(measured.stops[row]) if measured else None,
            "receive_window_bytes": _known(table.receive_window_bytes[row]),
            "stream_window_bytes": _known(table.stream_window_bytes[row], WINDOW_NOT_KNOWN),
            "connection_window_bytes": _known(table.connection_window_bytes[row], WINDOW_NOT_KNOWN),
            "stopped_at_packet": int(table.stopped_at_packet[row]),
            "released_by_packet": _known(table.released_by_packet[row], 0),
            "resumed_at_packet": int(table.resumed_at_packet[row]),
        }
        return notes

    # counters

    def _open_rpcs(self, group: int, rows: Ints) -> Iterator[None]:
        """How many RPCs are open."""
        if not len(rows):
            return
        table = self.tables.rpcs
        starts = table.start_time_ns[rows]
        times = np.concatenate([starts, starts + table.duration_ns[rows]])
        steps = np.repeat([1, -1], len(rows))
        order = np.lexsort((steps, times))
        values, times = np.cumsum(steps[order]), times[order]
        last = np.append(np.diff(times) != 0, True)
        track = self.writer.count("open RPCs", group, _OPEN, "RPCs")
        yield from self._values(track, times[last], np.maximum(values[last], 0))

    def _counters(self, group: int, points: slice) -> Iterator[None]:
        counter, times, values = (column[points] for column in self.trace.points)
        for number in np.unique(counter).tolist():
            mine = counter == number
            kind, direction = number >> 1 & 1, number & 1
            if kind == FLIGHT and not values[mine].any():
                continue
            yield from self._values(self._counter(group, kind, direction), times[mine], values[mine])

    def _counter(self, group: int, kind: int, direction: int) -> int:
        side, rank = DIRECTIONS[direction], _FLIGHTS + 2 * direction
        width = self.trace.width_ns
        thin = f" The largest and the last value of each {duration(width)}." if width else ""
        if kind == FLIGHT:
            text = f"Bytes of the {side} sent and not acknowledged, where the capture was taken.{thin}"
            return self.writer.counter(f"{side} bytes in flight", group, rank, text)
        assert kind == WINDOW
        other = DIRECTIONS[1 - direction]
        text = f"TCP receive window of the {side}: the {other} may have as much in flight.{thin}"
        return self.writer.counter(f"{side} receive window", group, _FLIGHTS + 2 * (1 - direction) + 1, text)

    def _at_stops(self, group: int, rows: Ints) -> Iterator[None]:
        """Windows that are known only where a sender stopped, out of the way in a group of their own."""
        table = self.tables.waits
        for direction, side in enumerate(DIRECTIONS):
            mine = rows[table.direction[rows] == direction]
            stops: int | None = None
            for rank, (column, name) in enumerate(_AT_STOP.items()):
                windows = getattr(table, column)[mine]
                known = windows >= 0 if rank == 0 else windows != WINDOW_NOT_KNOWN
                if known.any():
                    if stops is None:
                        text = f"Known where a wait of the {side} begins, and drawn on until its next one."
                        stops = self.writer.group(f"{side} windows at stops", group, _AT_STOPS + direction, text)
                    estimate = " (estimate)" if rank == 0 and self.tables.measured is None else ""
                    track = self.writer.counter(name + estimate, stops, rank)
                    yield from self._values(track, table.start_time_ns[mine][known], windows[known])

    def _values(self, track: int, times: Ints, values: Ints) -> Iterator[None]:
        for at, value in zip(np.maximum(times - self.zero, 0).tolist(), values.tolist(), strict=True):
            self.writer.value(track, at, value)
            yield

    # streams

    def _streams(self, group: int, rows: Ints) -> Iterator[None]:
        """A track per stream; a stream that was used again has another one."""
        own = len(rows) <= OWN_TRACKS
        for place in range(0, len(rows), _BLOCK):
            block = rows[place : place + _BLOCK]
            for rank, rpc in enumerate(_rpcs(self, block), start=place):
                name = f"stream {rpc['stream']}" if own else "streams"
                self._rpc(self.writer.track(name, group, _STREAMS + (rank if own else 0)), rpc)
                yield

    def _rpc(self, track: int, rpc: dict[str, Any]) -> None:
        start, end, writer = rpc["start"], rpc["end"], self.writer
        writer.begin(track, start, rpc["name"], "rpc", rpc["notes"])
        first, second = rpc["request_end"], rpc["response_start"]
        waits = rpc["waits"]
        if not (start <= first <= second <= end):
            self._inside(track, start, end, waits)
        else:
            for name, begin, until, direction in (
                ("request", start, first, 0),
                ("waiting for the response", first, second, None),
                ("response", second, end, 1),
            ):
                if until > begin:
                    writer.begin(track, begin, name, "phase")
                    self._inside(track, begin, until, [wait for wait in waits if wait.direction == direction])
                    writer.end(track, until)
        writer.end(track, end)

    def _inside(self, track: int, begin: int, end: int, waits: list[_Wait]) -> None:
        """The waits that lie within a slice and do not overlap."""
        for wait in waits:
            if begin <= wait.start and wait.end <= end and wait.cause not in _STREAM_WAITS:
                notes: dict[str, Value] = {"direction": DIRECTIONS[wait.direction], "wait": wait.row}
                self.writer.slice(track, wait.start, wait.end, CAUSES[wait.cause], "rpc wait", notes)
                begin = wait.end

    def waits_of(self, keys: Ints) -> Iterator[list[_Wait]]:
        """The waits of each stream."""
        table = self.tables.waits
        first, last = (np.searchsorted(self.stream_keys, keys, side=side) for side in ("left", "right"))
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            rows = self.by_stream[begin:end]
            yield [
                _Wait(row, int(table.direction[row]), start, start + int(table.duration_ns[row]), int(table.cause[row]))
                for row in rows.tolist()
                for start in [self.at(table.start_time_ns[row])]
            ]


def _rpcs(drawing: _Drawing, rows: Ints) -> Iterator[dict[str, Any]]:
    """Name, times, notes and waits of some RPCs."""
    tables, zero = drawing.tables, drawing.zero
    table = tables.rpcs
    columns = {name: getattr(table, name)[rows].tolist() for name in table.__struct_fields__}
    budgets, deadlines = tables.rpc_budgets[rows].tolist(), _deadlines(tables.deadlines, rows)
    request_end = np.where(drawing.trace.request_end_ns[rows] < 0, -1, drawing.trace.request_end_ns[rows] - zero)
    response = np.where(drawing.trace.response_start_ns[rows] < 0, -1, drawing.trace.response_start_ns[rows] - zero)
    waits = drawing.waits_of(_stream_key(table)[rows])
    for i, its_waits in enumerate(waits):
        rpc = {name: column[i] for name, column in columns.items()}
        flags, status = rpc["flags"], rpc["status"]
        start = max(rpc["start_time_ns"] - zero, 0)
        before, complete = bool(flags & BEGUN_BEFORE), bool(flags & COMPLETE)
        named = None if status == NOT_SEEN else _core.STATUSES[status]
        method = drawing.methods.get(rpc["method"], "method not in the capture")
        notes: dict[str, Value] = {
            "method": method if rpc["method"] != NO_METHOD else None,
            "status": named,
            "connection": rpc["connection"],
            "stream": rpc["stream"],
            "complete": complete and not before,
            "begun_before": before or None,
            "touches_gap": bool(flags & TOUCHES_GAP) or None,
            "deadline_ns": deadlines[i],
            "request_messages": rpc["request_messages"],
            "response_messages": rpc["response_messages"],
            "request_bytes": rpc["request_bytes"],
            "response_bytes": rpc["response_bytes"],
            "first_packet": rpc["first_packet"],
            "last_packet": rpc["last_packet"] or None,
            "budget_ns": {cause: ns for cause, ns in zip(CAUSES, budgets[i], strict=True) if ns},
        }
        yield {
            "stream": rpc["stream"],
            "name": _rpc_name(method, named, complete, before),
            "start": start,
            "end": start + rpc["duration_ns"],
            "request_end": -1 if before else int(request_end[i]),
            "response_start": -1 if before else int(response[i]),
            "notes": notes,
            "waits": its_waits,
        }


def _rpc_name(method: str, status: str | None, complete: bool, before: bool) -> str:
    """The viewer colours by name: what failed differs from what did not."""
    if before:
        return f"{method} (begun before the capture)"
    if not complete:
        return f"{method} (end not in the capture)"
    return method if status == "OK" else f"{method} {status or '(no status)'}"


def _deadlines(deadlines: Ints, rows: Ints) -> list[int | None]:
    known = rows < len(deadlines)
    found = np.full(len(rows), -1, dtype=np.int64)
    found[known] = deadlines[rows[known]]
    return [None if ns < 0 else ns for ns in found.tolist()]


def _stream_key(table: Any) -> Ints:
    key: Ints = table.connection.astype(np.int64) << 32 | table.stream
    return key


def _sortable(number: int, most: int) -> str:
    """A number for the beginning of a name: the viewer sorts what has no parent by name."""
    return str(number).zfill(len(str(most)))


def _known(value: Any, not_known: int = -1) -> int | None:
    return None if value == not_known else int(value)


def _finding_notes(finding: Finding) -> dict[str, Value]:
    return {
        "finding": finding.id,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "lost_ns": finding.lost_ns,
        "title": finding.title,
    }


def _described(fact: ConnectionFacts) -> str:
    ends = f"{fact.client_implementation or 'client'} -> {fact.server_implementation or 'server'}"
    seen = f"{count(fact.rpcs, 'RPC')}; smallest round trip {duration(fact.min_rtt_ns)}; captured at: {fact.vantage}"
    return f"{ends}; {seen}"


def _earliest(analysis: Analysis, trace: TraceData) -> int:
    """The earliest time that is drawn: times may step back in a capture."""
    tables = trace.tables
    columns = (
        tables.rpcs.start_time_ns,
        tables.waits.start_time_ns,
        tables.connections.first_time_ns,
        trace.points.time_ns,
        np.array([e.time_ns for finding in analysis.findings for e in finding.evidence], dtype=np.int64),
    )
    times = [int(column.min()) for column in columns if len(column)]
    first = analysis.capture.first_time_ns
    return min(times if first is None else [first, *times], default=0)
