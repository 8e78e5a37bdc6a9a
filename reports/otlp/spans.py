"""Make the OpenTelemetry spans of RPCs, in the form of OTLP JSON: ids in hexadecimal, 64-bit integers as text."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ...analyzer.summary.span_ids import find_trace, make_child_id, make_ids
from ...analyzer.tables import DIRECTIONS, Ints, names_of
from ...analyzer.views.span_data import EVENT_NAMES, SpanData
from .attributes import (
    Attribute,
    describe_connection,
    describe_rpc,
    find_kind,
    find_status,
    is_error,
    make_attributes,
    name_method,
)

Span = dict[str, Any]
"""A span of OTLP JSON."""

MOST_EVENTS = 128
"""Most events of a span: the limit of OpenTelemetry's SDKs (OTEL_SPAN_EVENT_COUNT_LIMIT). Others are counted."""
_AT_ONCE = 10_000
"""RPCs whose columns are Python objects at one time."""
_MOST_NS = 1 << 62
"""Latest time, in the year 2116: differences of such times fit into 64 bits."""
_INTERNAL = 1
"""Value of `SpanKind`."""
_ERROR = 2
"""Value of `StatusCode`."""
_SERVER = CAUSES.index("server")


class _Rpc(Struct):
    """An RPC with the ids and times of its span."""

    trace: str
    span: str
    parent: str
    start: int
    end: int
    request_end: int
    response_start: int
    row: Mapping[str, int]
    budget: list[int]


def list_spans(data: SpanData, parents: Ints | None) -> Iterator[list[Span]]:
    """Yield the spans of each RPC: its own, and those of its blocked intervals and of the server's time.

    `parents` has the row of each RPC's leg before a proxy, -1 for none.
    """
    making = _Making(data, parents)
    number = len(data.tables.rpcs.connection)
    for begin in range(0, number, _AT_ONCE):
        yield from making.make(np.arange(begin, min(begin + _AT_ONCE, number)))


class _Making:
    """What the spans of all RPCs share."""

    def __init__(self, data: SpanData, parents: Ints | None) -> None:
        self.data, self.tables, self.parents = data, data.tables, parents
        waits = self.tables.waits
        keys = waits.connection.astype(np.int64) << 32 | waits.stream
        self.waits = np.lexsort((waits.start_time_ns, keys))
        self.wait_keys = keys[self.waits]
        self.methods = {number: name_method(name) for number, (name, _) in names_of(self.tables.methods).items()}
        self.connections: dict[int, tuple[int, list[Attribute], slice]] = {}

    def make(self, rows: Ints) -> Iterator[list[Span]]:
        """Make the spans of some RPCs."""
        rpcs, data = self.tables.rpcs, self.data
        columns = {name: getattr(rpcs, name)[rows].tolist() for name in rpcs.__struct_fields__}
        keys = rpcs.connection[rows].astype(np.int64) << 32 | rpcs.stream[rows]
        first, last = (np.searchsorted(self.wait_keys, keys, side=side).tolist() for side in ("left", "right"))
        start = np.clip(rpcs.start_time_ns[rows], 0, _MOST_NS)
        end = start + np.clip(rpcs.duration_ns[rows], 0, _MOST_NS - start)
        starts, ends = start.tolist(), end.tolist()
        asked, answered = data.request_end_ns[rows].tolist(), data.response_start_ns[rows].tolist()
        budgets = self.tables.rpc_budgets[rows].tolist()
        for at, ids in enumerate(make_ids(self.tables, rows)):
            place = self._place(int(rows[at]), ids)
            row = {name: column[at] for name, column in columns.items()}
            rpc = _Rpc(*place, starts[at], ends[at], asked[at], answered[at], row, budgets[at])
            waits = (self._make_wait(rpc, wait) for wait in self.waits[first[at] : last[at]].tolist())
            yield [self._make_rpc(rpc), *self._make_server_time(rpc), *(span for span in waits if span)]

    def _place(self, row: int, ids: tuple[int, int]) -> tuple[str, str, str]:
        """Find an RPC's trace, span and parent span: the leg before a proxy, or the span that its request names."""
        trace, parent = find_trace(self.tables, row) or ids[0], int(self.tables.rpcs.span_id[row])
        span = f"{ids[1]:016x}"
        front = -1 if self.parents is None else int(self.parents[row])
        if front >= 0:
            of_front = self._place(front, next(make_ids(self.tables, np.array([front]))))
            return of_front[0], span, of_front[1]
        return f"{trace:032x}", span, f"{parent:016x}" if parent else ""

    def _make_rpc(self, rpc: _Rpc) -> Span:
        row = rpc.row
        kind, peers, events = self._find_connection(row["connection"])
        method, status = self.methods.get(row["method"]), find_status(row)
        span = {
            **_begin(rpc, rpc.span, rpc.parent, method or "grpc", rpc.start, rpc.end),
            "kind": kind,
            "attributes": describe_rpc(row, method, rpc.budget, peers, kind),
            **self._list_events(events, rpc),
        }
        return {**span, "status": {"code": _ERROR}} if is_error(status, kind) else span

    def _find_connection(self, connection: int) -> tuple[int, list[Attribute], slice]:
        """Find a connection's kind of spans, its attributes, and where its events are."""
        if connection not in self.connections:
            events = slice(*np.searchsorted(self.data.events.connection, [connection, connection + 1]).tolist())
            kind = find_kind(self.tables, connection)
            self.connections[connection] = kind, describe_connection(self.tables, connection), events
        return self.connections[connection]

    def _list_events(self, mine: slice, rpc: _Rpc) -> dict[str, Any]:
        """List the first events of a connection during an RPC, and count the others."""
        events = self.data.events
        if mine.start == mine.stop:
            return {}
        times = events.time_ns[mine]
        first = mine.start + int(np.searchsorted(times, rpc.start))
        last = mine.start + int(np.searchsorted(times, rpc.end, side="right"))
        shown = range(first, min(last, first + MOST_EVENTS))
        left_out = last - first - len(shown)
        return {
            **({"events": [self._make_event(row) for row in shown]} if shown else {}),
            **({"droppedEventsCount": left_out} if left_out else {}),
        }

    def _make_event(self, row: int) -> dict[str, Any]:
        events = self.data.events
        kind, direction = divmod(int(events.kind[row]), 2)
        facts: dict[str, int | str] = {
            "grpcdiag.packet": int(events.packet[row]),
            "grpcdiag.direction": DIRECTIONS[direction],
        }
        return {
            "timeUnixNano": str(int(events.time_ns[row])),
            "name": EVENT_NAMES[kind],
            "attributes": make_attributes(facts),
        }

    def _make_wait(self, rpc: _Rpc, row: int) -> Span | None:
        """Make the span of a blocked interval, cut to the RPC; None if it is in another RPC of its stream."""
        waits = self.tables.waits
        start, direction = int(waits.start_time_ns[row]), int(waits.direction[row])
        begin, end = max(start, rpc.start), min(start + int(waits.duration_ns[row]), rpc.end)
        if begin >= end:
            return None
        facts = {
            "grpcdiag.direction": DIRECTIONS[direction],
            "grpcdiag.owed_bytes": int(waits.owed_bytes[row]),
            "grpcdiag.stopped_at_packet": int(waits.stopped_at_packet[row]),
            "grpcdiag.released_by_packet": int(waits.released_by_packet[row]) or None,
            "grpcdiag.resumed_at_packet": int(waits.resumed_at_packet[row]),
        }
        return _make_child(rpc, CAUSES[waits.cause[row]], begin, end, f"wait {direction} {start}", facts)

    def _make_server_time(self, rpc: _Rpc) -> Iterator[Span]:
        """Make the span of the server's time between request and response, in the middle of what lies between them.

        How long the way to the server and back took is known, but not how it divides.
        """
        between = rpc.response_start - rpc.request_end
        if not rpc.start <= rpc.request_end <= rpc.response_start <= rpc.end:
            return
        way = max(int(self.tables.connections.near_server_rtt_ns[rpc.row["connection"]]), 0)
        taken = min(rpc.budget[_SERVER], between - way)
        if taken > 0:
            begin, uncertain = rpc.request_end + (between - taken) // 2, (between - taken + 1) // 2
            yield _make_child(rpc, "server", begin, begin + taken, "server", {"grpcdiag.uncertainty_ns": uncertain})


def _begin(rpc: _Rpc, span: str, parent: str, name: str, start: int, end: int) -> Span:
    return {
        "traceId": rpc.trace,
        "spanId": span,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
    }


def _make_child(rpc: _Rpc, name: str, start: int, end: int, what: str, facts: Mapping[str, Any]) -> Span:
    """Make a span below that of an RPC; its id follows from the RPC's and from what it is."""
    span = _begin(rpc, make_child_id(rpc.span, what), rpc.span, name, start, end)
    return {**span, "kind": _INTERNAL, "attributes": make_attributes(facts)}
