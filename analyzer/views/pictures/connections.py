"""Pictures of connections: how each is opened and used, and how long its packets are queued."""

import numpy as np

from ...model.finding import Finding
from ...tables import Ints, Tables
from .model import MOST_LANES, Picture, Series, Subject, make_line, make_series

_QUEUED_NS = 5_000_000
"""A packet is queued from here on (CoDel, RFC 8289)."""
_TICKS = np.array([1_000, 1_000_000, 4_000_000, 10_000_000])
"""Ticks of the clocks of TCP timestamps in use: 1 us, 1 ms (Linux, BSD, Windows), 4 and 10 ms (Linux before 4.13)."""


def order_connections(finding: Finding, tables: Tables) -> Ints:
    """List the connections of a finding in the order of their first packets."""
    begins, rows = tables.connections.first_time_ns, np.array(finding.scope.connections, dtype=np.int64)
    rows = rows[rows < len(begins)]
    return np.asarray(rows[np.argsort(begins[rows], kind="stable")])


def draw_handshakes(subject: Subject) -> Picture | None:
    """Draw a bar per connection of the finding: until its first RPC, with its RPCs, and the rest."""
    tables = subject.tables
    connections, rpcs = tables.connections, tables.rpcs
    rows = order_connections(subject.finding, tables)
    if not len(rows):
        return None
    begins, ends = connections.first_time_ns - subject.zero, connections.last_time_ns - subject.zero
    first, last = ends.copy(), begins.copy()
    np.minimum.at(first, rpcs.connection, rpcs.start_time_ns - subject.zero)
    np.maximum.at(last, rpcs.connection, rpcs.start_time_ns + rpcs.duration_ns - subject.zero)
    last = np.maximum(last, first)
    shown = rows[:MOST_LANES]
    lanes = np.arange(len(shown))
    series: tuple[Series, ...] = (
        make_series(
            "from the first packet to the first RPC", "bars", "kind_settings", begins[shown], first[shown], lanes
        ),
        make_series("with RPCs", "bars", "flight", first[shown], last[shown], lanes),
        make_series("without RPCs", "bars", "kind_ack_only", last[shown], np.maximum(ends[shown], last[shown]), lanes),
    )
    before = int(subject.evidence.min())
    if before < int(begins[shown[0]]):  # a name was looked up, or another connection failed
        earlier = make_series("before its first packet", "bars", "kind_ping", [before], [int(begins[shown[0]])], [0])
        series = (earlier, *series)
    title = f"How {'each connection is' if len(rows) > 1 else 'the connection is'} opened and used"
    title += f": the first {MOST_LANES} of {len(rows):,}" * (len(rows) > MOST_LANES)
    begin, end = min(before, int(begins[shown].min())), int(np.maximum(ends, last)[shown].max())
    lanes_of = tuple(f"#{row}" for row in shown.tolist())
    return Picture("handshakes", title, "lanes", begin, end, series, lanes_of, connections=tuple(shown.tolist()))


def draw_queue_delay(subject: Subject) -> Picture | None:
    """Draw how much longer packets took than the fastest one, by TCP timestamps and by round trips."""
    series = []
    for side, way in enumerate(subject.ways()):
        near = subject.facts.vantage == ("client", "server")[side]
        times, delays = _measure_round_trips(subject, side) if near else _measure_timestamps(subject, side)
        if len(times):
            name = f"bytes of {way} to their ACK" if near else f"packets of {way}, by their TCP timestamps"
            colour = ("kind_headers", "kind_data")[side]
            series.append(make_line(name, "dots", colour, times, delays))
    if not series:
        return None
    begin, end = subject.range
    limit = make_series("queued from here on", "limit", "limit", [begin, end], [_QUEUED_NS, _QUEUED_NS])
    title = f"How much longer packets of connection {subject.connection} took than the fastest one"
    return Picture("delay", title, "ns", begin, end, (*series, limit), connections=subject.alone)


def _measure_timestamps(subject: Subject, side: int) -> tuple[Ints, Ints]:
    """Measure arrival less the sender's clock, above its minimum."""
    packets, rows = subject.tables.packets, subject.packets
    rows = rows[(packets.direction[rows] == side) & (packets.timestamp[rows] > 0)]
    if len(rows) < 2:
        return rows, rows
    clock = packets.timestamp[rows].astype(np.int64)
    # a clock of 32 bits wraps: differences modulo 2^32, read as signed
    ticks = np.cumsum((np.diff(clock, prepend=clock[0]) + 2**31) % 2**32 - 2**31)
    times = packets.time_ns[rows] - subject.zero
    if ticks[-1] <= 0:
        return rows[:0], rows[:0]
    rate = (times[-1] - times[0]) / ticks[-1]
    tick = int(_TICKS[np.argmin(np.abs(np.log(_TICKS / max(rate, 1))))])
    delays = times - ticks * tick
    return times, delays - delays.min()


def _measure_round_trips(subject: Subject, side: int) -> tuple[Ints, Ints]:
    """Measure the time from a side's bytes to the ACK that covers them, above its minimum."""
    packets, rows = subject.tables.packets, subject.packets
    sent = rows[(packets.direction[rows] == side) & (packets.payload_bytes[rows] > 0) & (packets.note[rows] == 0)]
    acks = rows[packets.direction[rows] != side]
    if not len(sent) or not len(acks):
        return rows[:0], rows[:0]
    known = np.maximum.accumulate(packets.ack[acks].astype(np.int64))
    place = np.searchsorted(known, packets.seq[sent].astype(np.int64) + packets.payload_bytes[sent])
    acked = place < len(acks)
    times = packets.time_ns[sent[acked]]
    trips = packets.time_ns[acks[place[acked]]] - times
    seen = trips >= 0
    trips = trips[seen]
    return times[seen] - subject.zero, trips - trips.min(initial=np.iinfo(np.int64).max)
