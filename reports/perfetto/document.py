"""Write a trace for https://ui.perfetto.dev: connections, streams, blocked intervals, counters, and evidence.

Times are nanoseconds after the earliest packet, the trace's zero, as in the other reports. A clock snapshot relates
them to the time of day. On each track, a slice ends before the next one begins or contains it; slices that can overlap
are on different tracks.
"""

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
from ..shared.quality import PLACES, format_round_trip
from .threads import write_threads
from .writer import Value, Writer

OWN_TRACKS = 50
"""Most RPCs of a connection with a line per stream; with more, all streams are on one track."""
_LISTED = 16
"""Most files and warnings that the capture's slice names."""
_BLOCK = 8192
"""RPCs that are processed together."""
_CAPTURE, _FINDINGS, _THREADS, _CONNECTIONS = 0, 1, 999, 1000
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
    """Write the trace piece by piece."""
    drawing = _Drawing(analysis, trace)
    for _ in drawing.steps():
        if drawing.writer.full:
            yield drawing.writer.take()
    yield drawing.writer.take()


class _Drawing:
    """The state that the parts of a trace share."""

    def __init__(self, analysis: Analysis, trace: TraceData) -> None:
        self.analysis, self.trace, self.tables = analysis, trace, trace.tables
        self.zero = _find_earliest(analysis, trace)
        self.writer = Writer(self.zero)
        waits, rpcs = self.tables.waits, self.tables.rpcs
        self.wait_rows = np.lexsort((waits.start_time_ns, waits.direction, waits.connection))
        self.by_stream = np.lexsort((waits.start_time_ns, _make_stream_keys(waits)))
        self.stream_keys = _make_stream_keys(waits)[self.by_stream]
        self.rpc_rows = np.lexsort((rpcs.stream, rpcs.start_time_ns, rpcs.connection))
        self.methods = {m.number: m.name or m.label or "method not in the capture" for m in self.tables.methods}

    def steps(self) -> Iterator[None]:
        """Write everything; after each step the caller may take a piece."""
        self._write_capture()
        yield from self._write_findings()
        if self.tables.processes is not None:
            yield from write_threads(self.writer, self.tables.processes, _THREADS, self.at)
        of_rpcs = self.tables.rpcs.connection[self.rpc_rows]
        of_waits = self.tables.waits.connection[self.wait_rows]
        of_points = self.trace.points.counter >> 2
        for fact in self.analysis.connections:
            rows = [slice(*np.searchsorted(c, [fact.connection, fact.connection + 1])) for c in (of_rpcs, of_waits)]
            points = slice(*np.searchsorted(of_points, [fact.connection, fact.connection + 1]))
            yield from self._write_connection(fact, self.rpc_rows[rows[0]], self.wait_rows[rows[1]], points)

    def at(self, time_ns: int) -> int:
        """Convert a time to the trace's clock."""
        return max(int(time_ns) - self.zero, 0)

    # the capture and its findings

    def _write_capture(self) -> None:
        analysis, facts = self.analysis, self.analysis.capture
        if facts.first_time_ns is None or facts.last_time_ns is None:
            return
        notes: dict[str, Value] = {"verdict": analysis.verdict.text, "finding": analysis.verdict.finding}
        notes |= {"packets": facts.packets, "bytes": facts.bytes, "rpcs": analysis.totals.rpcs}
        notes["budget_ns"] = analysis.budget
        notes["files"] = {str(number): name for number, name in enumerate(analysis.files[:_LISTED])}
        notes["warnings"] = {str(number): text for number, text in enumerate(analysis.quality.warnings[:_LISTED])}
        name = f"{_pad_number(0, len(analysis.findings))}. capture"
        track = self.writer.track(name, None, _CAPTURE, "The capture from its first packet to its last one.")
        begin, end = sorted((self.at(facts.first_time_ns), self.at(facts.last_time_ns)))
        self.writer.slice(track, begin, end, analysis.verdict.text, "capture", notes)

    def _write_findings(self) -> Iterator[None]:
        """Write a track per finding, without a parent, so that the viewer shows it above the connections."""
        for rank, finding in enumerate(self.analysis.findings):
            name = f"{_pad_number(rank + 1, len(self.analysis.findings))}. {finding.severity}: {finding.id}"
            track = self.writer.track(name, None, _FINDINGS + rank, f"{finding.title}. {finding.explanation}")
            for evidence in sorted(finding.evidence, key=lambda shown: shown.time_ns):
                notes = {"packet": evidence.packet, **_describe_finding(finding)}
                self.writer.instant(
                    track, self.at(evidence.time_ns), f"#{evidence.packet} {evidence.what}", "finding", notes
                )
            yield

    # a connection

    def _write_connection(self, fact: ConnectionFacts, rpcs: Ints, waits: Ints, points: slice) -> Iterator[None]:
        number = _pad_number(fact.connection, self.analysis.connections[-1].connection)
        name = f"connection {number}: {fact.client} -> {fact.server}"
        group = self.writer.track(name, None, _CONNECTIONS + fact.connection, _describe_connection(fact))
        table, row = self.tables.connections, fact.connection
        begin, end = sorted((self.at(table.first_time_ns[row]), self.at(table.last_time_ns[row])))
        notes: dict[str, Value] = {
            field: getattr(fact, field)
            for field in fact.__struct_fields__
            if isinstance(getattr(fact, field), int | str) and field != "protocol"
        }
        self.writer.slice(group, begin, end, f"{count(fact.rpcs, 'RPC')}, {fact.client}", "connection", notes)
        yield from self._write_waits(group, waits)
        yield from self._write_open_rpcs(group, rpcs)
        yield from self._write_counters(group, points)
        yield from self._write_windows(group, waits)
        yield from self._write_streams(group, rpcs)

    def _write_waits(self, group: int, rows: Ints) -> Iterator[None]:
        """Write blocked intervals on a track per side, with arrows from the releasing packet to the next sent one."""
        table = self.tables.waits
        for direction in range(2):
            mine = rows[table.direction[rows] == direction]
            if not len(mine):
                continue
            lanes: list[tuple[int, int]] = []  # tracks and when they are free: streams can be blocked concurrently
            arrows = self._make_arrow_tracks(group, direction) if table.released_by_packet[mine].any() else None
            for row in mine.tolist():
                start = self.at(table.start_time_ns[row])
                end = start + int(table.duration_ns[row])
                track = self._find_lane(lanes, group, direction, start, end)
                self.writer.slice(track, start, end, CAUSES[table.cause[row]], "wait", self._describe_wait(row))
                if arrows and (released := int(table.released_by_packet[row])):
                    when = min(max(self.at(table.released_time_ns[row]), start), end)
                    arrow, resumed = self.writer.flow(), int(table.resumed_at_packet[row])
                    self.writer.instant(arrows[0], when, "releases", "release", {"packet": released}, starts=[arrow])
                    self.writer.instant(arrows[1], end, "resumes", "release", {"packet": resumed}, ends=[arrow])
                yield

    def _find_lane(self, lanes: list[tuple[int, int]], group: int, direction: int, start: int, end: int) -> int:
        """Find or make a free track for a side's blocked interval; the viewer draws tracks of one name as one."""
        for number, (track, free) in enumerate(lanes):
            if free <= start:
                lanes[number] = track, end
                return track
        side = DIRECTIONS[direction]
        text = f"Intervals in which the {side} had bytes left to send and sent none, named by cause."
        track = self.writer.track(f"{side} blocked", group, _WAITS + 3 * direction, text)
        lanes.append((track, end))
        return track

    def _make_arrow_tracks(self, group: int, direction: int) -> tuple[int, int]:
        """Make the tracks on which arrows begin and end."""
        side, other, rank = DIRECTIONS[direction], DIRECTIONS[1 - direction], _WAITS + 3 * direction
        text = f"The {other}'s last packet before the {side} resumed."
        begin = self.writer.track(f"{other} releases", group, rank + 1, text)
        text = f"The {side}'s next packet after a blocked interval."
        return begin, self.writer.track(f"{side} resumes", group, rank + 2, text)

    def _describe_wait(self, row: int) -> dict[str, Value]:
        table = self.tables.waits
        measured = self.tables.measured
        notes: dict[str, Value] = {
            "direction": DIRECTIONS[table.direction[row]],
            "stream": int(table.stream[row]),
            "owed_bytes": int(table.owed_bytes[row]),
            "in_flight_bytes": _null_unknown(table.in_flight_bytes[row]),
            "congestion_window_bytes": _null_unknown(table.congestion_window_bytes[row]),
            "congestion_window_measured": bool(measured.stops[row]) if measured else None,
            "receive_window_bytes": _null_unknown(table.receive_window_bytes[row]),
            "stream_window_bytes": _null_unknown(table.stream_window_bytes[row], WINDOW_NOT_KNOWN),
            "connection_window_bytes": _null_unknown(table.connection_window_bytes[row], WINDOW_NOT_KNOWN),
            "stopped_at_packet": int(table.stopped_at_packet[row]),
            "released_by_packet": _null_unknown(table.released_by_packet[row], 0),
            "resumed_at_packet": int(table.resumed_at_packet[row]),
        }
        return notes

    # counters

    def _write_open_rpcs(self, group: int, rows: Ints) -> Iterator[None]:
        """Write a counter of open RPCs."""
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
        yield from self._write_values(track, times[last], np.maximum(values[last], 0))

    def _write_counters(self, group: int, points: slice) -> Iterator[None]:
        counter, times, values = (column[points] for column in self.trace.points)
        for number in np.unique(counter).tolist():
            mine = counter == number
            kind, direction = number >> 1 & 1, number & 1
            if kind == FLIGHT and not values[mine].any():
                continue
            yield from self._write_values(self._make_counter(group, kind, direction), times[mine], values[mine])

    def _make_counter(self, group: int, kind: int, direction: int) -> int:
        side, rank = DIRECTIONS[direction], _FLIGHTS + 2 * direction
        width = self.trace.width_ns
        thin = f" The largest and the last value of each {duration(width)}." if width else ""
        if kind == FLIGHT:
            text = f"Bytes of the {side} sent and not acknowledged, as seen at the place of the capture.{thin}"
            return self.writer.counter(f"{side} bytes in flight", group, rank, text)
        assert kind == WINDOW
        other = DIRECTIONS[1 - direction]
        text = f"TCP receive window of the {side}: the limit of the {other}'s bytes in flight.{thin}"
        return self.writer.counter(f"{side} receive window", group, _FLIGHTS + 2 * (1 - direction) + 1, text)

    def _write_windows(self, group: int, rows: Ints) -> Iterator[None]:
        """Write the windows known only at the start of blocked intervals, in a separate group."""
        table = self.tables.waits
        for direction, side in enumerate(DIRECTIONS):
            mine = rows[table.direction[rows] == direction]
            stops: int | None = None
            for rank, (column, name) in enumerate(_AT_STOP.items()):
                windows = getattr(table, column)[mine]
                known = windows >= 0 if rank == 0 else windows != WINDOW_NOT_KNOWN
                if known.any():
                    if stops is None:
                        text = f"Known at the start of the {side}'s blocked intervals; drawn until the next one."
                        stops = self.writer.track(f"{side} windows at stops", group, _AT_STOPS + direction, text)
                    estimate = " (estimate)" if rank == 0 and self.tables.measured is None else ""
                    track = self.writer.counter(name + estimate, stops, rank)
                    yield from self._write_values(track, table.start_time_ns[mine][known], windows[known])

    def _write_values(self, track: int, times: Ints, values: Ints) -> Iterator[None]:
        for at, value in zip(np.maximum(times - self.zero, 0).tolist(), values.tolist(), strict=True):
            self.writer.value(track, at, value)
            yield

    # streams

    def _write_streams(self, group: int, rows: Ints) -> Iterator[None]:
        """Write a track per stream; a reused stream number gets another track."""
        own = len(rows) <= OWN_TRACKS
        for place in range(0, len(rows), _BLOCK):
            block = rows[place : place + _BLOCK]
            for rank, rpc in enumerate(_describe_rpcs(self, block), start=place):
                name = f"stream {rpc['stream']}" if own else "streams"
                self._write_rpc(self.writer.track(name, group, _STREAMS + (rank if own else 0)), rpc)
                yield

    def _write_rpc(self, track: int, rpc: dict[str, Any]) -> None:
        start, end, writer = rpc["start"], rpc["end"], self.writer
        writer.begin(track, start, rpc["name"], "rpc", rpc["notes"])
        first, second = rpc["request_end"], rpc["response_start"]
        waits = rpc["waits"]
        if not (start <= first <= second <= end):
            self._write_blocked(track, start, end, waits)
        else:
            for name, begin, until, direction in (
                ("request", start, first, 0),
                ("waiting for the response", first, second, None),
                ("response", second, end, 1),
            ):
                if until > begin:
                    writer.begin(track, begin, name, "phase")
                    self._write_blocked(track, begin, until, [wait for wait in waits if wait.direction == direction])
                    writer.end(track, until)
        writer.end(track, end)

    def _write_blocked(self, track: int, begin: int, end: int, waits: list[_Wait]) -> None:
        """Write the blocked intervals that lie within a slice and do not overlap."""
        for wait in waits:
            if begin <= wait.start and wait.end <= end and wait.cause not in _STREAM_WAITS:
                notes: dict[str, Value] = {"direction": DIRECTIONS[wait.direction], "wait": wait.row}
                self.writer.slice(track, wait.start, wait.end, CAUSES[wait.cause], "rpc wait", notes)
                begin = wait.end

    def waits_of(self, keys: Ints) -> Iterator[list[_Wait]]:
        """List the blocked intervals of each stream."""
        table = self.tables.waits
        first, last = (np.searchsorted(self.stream_keys, keys, side=side) for side in ("left", "right"))
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            rows = self.by_stream[begin:end]
            yield [
                _Wait(row, int(table.direction[row]), start, start + int(table.duration_ns[row]), int(table.cause[row]))
                for row in rows.tolist()
                for start in [self.at(table.start_time_ns[row])]
            ]


def _describe_rpcs(drawing: _Drawing, rows: Ints) -> Iterator[dict[str, Any]]:
    """Give the name, times, notes and blocked intervals of some RPCs."""
    tables, zero = drawing.tables, drawing.zero
    table = tables.rpcs
    columns = {name: getattr(table, name)[rows].tolist() for name in table.__struct_fields__}
    budgets, deadlines = tables.rpc_budgets[rows].tolist(), tables.deadlines[rows].tolist()
    request_end = np.where(drawing.trace.request_end_ns[rows] < 0, -1, drawing.trace.request_end_ns[rows] - zero)
    response = np.where(drawing.trace.response_start_ns[rows] < 0, -1, drawing.trace.response_start_ns[rows] - zero)
    waits = drawing.waits_of(_make_stream_keys(table)[rows])
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
            "deadline_ns": _null_unknown(deadlines[i]),
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
            "name": _name_rpc(method, named, complete, before),
            "start": start,
            "end": start + rpc["duration_ns"],
            "request_end": -1 if before else int(request_end[i]),
            "response_start": -1 if before else int(response[i]),
            "notes": notes,
            "waits": its_waits,
        }


def _name_rpc(method: str, status: str | None, complete: bool, before: bool) -> str:
    """Name an RPC with its status: the viewer colours by name, so failed RPCs get other colours."""
    if before:
        return f"{method} (started before the capture)"
    if not complete:
        return f"{method} (end not in the capture)"
    return method if status == "OK" else f"{method} {status or '(no status)'}"


def _make_stream_keys(table: Any) -> Ints:
    key: Ints = table.connection.astype(np.int64) << 32 | table.stream
    return key


def _pad_number(number: int, most: int) -> str:
    """Pad a number in a name with zeros: the viewer sorts tracks without a parent by name."""
    return str(number).zfill(len(str(most)))


def _null_unknown(value: Any, not_known: int = -1) -> int | None:
    return None if value == not_known else int(value)


def _describe_finding(finding: Finding) -> dict[str, Value]:
    return {
        "finding": finding.id,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "lost_ns": finding.lost_ns,
        "title": finding.title,
    }


def _describe_connection(fact: ConnectionFacts) -> str:
    ends = f"{fact.client_implementation or 'client'} -> {fact.server_implementation or 'server'}"
    seen = f"{count(fact.rpcs, 'RPC')}; smallest round trip {format_round_trip(fact)}"
    return f"{ends}; {seen}; capture point: {PLACES[fact.vantage]}"


def _find_earliest(analysis: Analysis, trace: TraceData) -> int:
    """Find the earliest time that is drawn: times in a capture may go backwards."""
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
