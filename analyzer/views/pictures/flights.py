"""Pictures of bytes in flight under the window that limits them."""

import numpy as np

from ...model.budget import CAUSES
from ...tables import WINDOW_NOT_KNOWN, Ints
from .model import Picture, Series, Subject, make_line, make_series

_DATA = 0
"""Type of the frames that HTTP/2 windows count (RFC 9113 section 6.9)."""
_AROUND = 3
"""Lengths of the longest blocked interval that are drawn before and after it (heuristic: shows its repetition)."""
_MOST_STOPS = 300
"""Most stops at which a window is drawn."""
_MOST_MARKS = 24
"""Most round trips that are marked (heuristic: more are no longer told apart)."""


def draw_flight(subject: Subject) -> Picture | None:
    """Draw the bytes in flight of the blocked side, the congestion window where it blocked, and round trips."""
    row = _find_longest(subject, "congestion_window")
    if row is None:
        return None
    waits, side = subject.tables.waits, int(subject.tables.waits.direction[row])
    begin, end = _find_range(subject, row)
    stops = _list_stops(subject, side, begin, end, "congestion_window")
    starts = waits.start_time_ns[stops] - subject.zero
    limit = _hold(starts, waits.duration_ns[stops], waits.congestion_window_bytes[stops])
    series = (
        _draw_in_flight(subject, side, begin, end),
        Series("congestion window where it blocked", "limit", "congestion_window", limit),
    )
    title = f"Bytes in flight of {subject.ways()[side]}, and the congestion window"
    marks = _mark_round_trips(subject, int(waits.flight_start_time_ns[row]) - subject.zero, begin, end)
    return Picture("flight", title, "bytes", begin, end, series, marks=marks, connections=subject.alone)


def draw_delayed_acks(subject: Subject) -> Picture | None:
    """Draw the bytes in flight of the blocked side, with shades where it waits for their ACK."""
    row = _find_longest(subject, "delayed_ack")
    if row is None:
        return None
    waits, side = subject.tables.waits, int(subject.tables.waits.direction[row])
    begin, end = _find_range(subject, row)
    stops = _list_stops(subject, side, begin, end, "delayed_ack")
    starts = waits.start_time_ns[stops] - subject.zero
    series = (
        _draw_in_flight(subject, side, begin, end),
        make_series("waits for a delayed ACK", "shade", "delayed_ack", starts, starts + waits.duration_ns[stops]),
    )
    title = f"Bytes in flight of {subject.ways()[side]}, and its waits for an ACK"
    return Picture("flight", title, "bytes", begin, end, series, connections=subject.alone)


def _mark_round_trips(subject: Subject, first: int, begin: int, end: int) -> tuple[tuple[int, str], ...]:
    """Mark the smallest round trips, counted from the flight's first packet."""
    rtt = subject.facts.min_rtt_ns
    if not rtt or not 0 <= (end - first) // rtt <= _MOST_MARKS:
        return ()
    trips = range((end - first) // rtt + 1)
    return tuple((first + n * rtt, f"{n} RTT" if n else "start") for n in trips if first + n * rtt >= begin)


def draw_receive_window(subject: Subject) -> Picture | None:
    """Draw the bytes in flight of the blocked side under the TCP receive window of the other."""
    row = _find_longest(subject, "receive_window")
    if row is None:
        return None
    side = int(subject.tables.waits.direction[row])
    begin, end = _find_range(subject, row)
    packets, rows = subject.tables.packets, subject.packets
    rows = rows[packets.direction[rows] != side]
    times, windows = packets.time_ns[rows] - subject.zero, packets.window[rows].astype(np.int64)
    inside = (times >= begin) & (times <= end)
    series = (
        _draw_in_flight(subject, side, begin, end),
        make_line("TCP receive window", "limit", "receive_window", times[inside], windows[inside]),
    )
    title = f"Bytes in flight of {subject.ways()[side]} and the TCP receive window of its peer"
    return Picture("window", title, "bytes", begin, end, series, connections=subject.alone)


def draw_stream_window(subject: Subject) -> Picture | None:
    """Draw the bytes that a stream sent, under the limit that its window sets."""
    return _draw_http2_window(subject, "stream_window")


def draw_connection_window(subject: Subject) -> Picture | None:
    """Draw the bytes that a connection sent, under the limit that its window sets."""
    return _draw_http2_window(subject, "connection_window")


def _draw_http2_window(subject: Subject, cause: str) -> Picture | None:
    """Draw the sum of DATA sent, and the limit: what was sent at each stop plus what the window had left there."""
    row = _find_longest(subject, cause)
    if row is None:
        return None
    waits, side = subject.tables.waits, int(subject.tables.waits.direction[row])
    stream = int(waits.stream[row]) if cause == "stream_window" else None
    begin, end = _find_range(subject, row)
    times, sent = _sum_data(subject, side, stream, begin, end)
    stops = _list_stops(subject, side, begin, end)
    left = getattr(waits, f"{cause}_bytes")
    stops = stops[(left[stops] != WINDOW_NOT_KNOWN) & ((stream is None) | (waits.stream[stops] == stream))]
    starts = waits.start_time_ns[stops] - subject.zero
    total = np.append(0, sent)
    sent_at = total[np.searchsorted(times, starts, side="right")]
    limit = _hold(starts, waits.duration_ns[stops], sent_at + left[stops])
    series = (
        make_line("DATA sent", "step", "flight", np.concatenate([[begin], times, [end]]), np.append(total, total[-1])),
        Series("limit: sent and left in the window", "limit", cause, limit),
    )
    what = f"stream {stream}" if stream is not None else f"connection {subject.connection}"
    title = f"DATA of {subject.ways()[side]} on {what}, and the limit that the HTTP/2 window sets"
    return Picture("window", title, "bytes", begin, end, series, connections=subject.alone)


def draw_used_up_window(subject: Subject) -> Picture | None:
    """Draw the sum of DATA of the stream whose last bytes are evidence: they used up its window for good."""
    frames, packets = subject.tables.frames, [item.packet for item in subject.finding.evidence]
    rows = subject.of_connection(frames)
    rows = rows[(frames.kind[rows] == _DATA) & np.isin(frames.last_packet[rows], packets)]
    if not len(rows):
        return None
    last = rows[np.argmax(frames.last_time_ns[rows])]
    stream, side = int(frames.stream[last]), int(frames.direction[last])
    stop, (begin, end) = int(frames.last_time_ns[last]) - subject.zero, subject.range
    if not begin <= stop <= end:
        return None
    times, sent = _sum_data(subject, side, stream, begin, end)
    used = int(sent[np.searchsorted(times, stop, side="right") - 1])
    series = (
        make_line(
            "DATA sent", "step", "flight", np.concatenate([[begin], times, [end]]), np.append(0, [*sent, sent[-1]])
        ),
        make_series("the window is used up", "limit", "limit", [stop, end], [used, used]),
    )
    title = f"DATA of {subject.ways()[side]} on stream {stream}, until its window is used up"
    return Picture("window", title, "bytes", begin, end, series, connections=subject.alone)


def _find_longest(subject: Subject, *causes: str) -> int | None:
    """Find the longest blocked interval of some causes whose packets the page has; one of the evidence first."""
    waits = subject.tables.waits
    rows = subject.of_connection(waits)
    rows = rows[np.isin(waits.cause[rows], [CAUSES.index(cause) for cause in causes])]
    here = subject.tables.packets.packet[subject.packets]
    rows = rows[np.isin(waits.stopped_at_packet[rows], here)]
    shown = np.isin(waits.stopped_at_packet[rows], [item.packet for item in subject.finding.evidence])
    rows = rows[shown] if shown.any() else rows
    return int(rows[np.argmax(waits.duration_ns[rows])]) if len(rows) else None


def _find_range(subject: Subject, row: int) -> tuple[int, int]:
    waits, (first, last) = subject.tables.waits, subject.range
    start, length = int(waits.start_time_ns[row]) - subject.zero, int(waits.duration_ns[row])
    return max(start - _AROUND * length, first), min(start + (1 + _AROUND) * length, last)


def _list_stops(subject: Subject, side: int, begin: int, end: int, cause: str | None = None) -> Ints:
    """List the blocked intervals of a side, of one cause or of all, that begin in a range, by their starts."""
    waits = subject.tables.waits
    rows = subject.of_connection(waits)
    starts = waits.start_time_ns[rows] - subject.zero
    rows = rows[(waits.direction[rows] == side) & (starts >= begin) & (starts <= end)]
    if cause:
        rows = rows[waits.cause[rows] == CAUSES.index(cause)]
    return np.asarray(rows[np.argsort(waits.start_time_ns[rows], kind="stable")][:_MOST_STOPS])


def _hold(starts: Ints, lengths: Ints, values: Ints) -> tuple[tuple[int | None, ...], ...]:
    """Hold each value from its stop until the sender resumes; between blocked intervals it is not known."""
    points: list[tuple[int | None, ...]] = []
    for start, length, value in zip(starts.tolist(), lengths.tolist(), values.tolist(), strict=True):
        points += [(start, value), (start + length, value), (start + length, None)]
    return tuple(points)


def _draw_in_flight(subject: Subject, side: int, begin: int, end: int) -> Series:
    times, values = subject.times, subject.flights[side][subject.packets]
    inside = (times >= begin) & (times <= end)
    times, values = np.append(times[inside], end), values[inside]
    return make_line("bytes in flight", "step", "flight", times, np.append(values, values[-1:] if len(values) else 0))


def _sum_data(subject: Subject, side: int, stream: int | None, begin: int, end: int) -> tuple[Ints, Ints]:
    """Sum the lengths of DATA frames over a range: times, and the sum after each."""
    frames = subject.tables.frames
    rows = subject.of_connection(frames)
    times = frames.last_time_ns[rows] - subject.zero
    kept = (frames.kind[rows] == _DATA) & (frames.direction[rows] == side) & (times >= begin) & (times <= end)
    kept &= True if stream is None else frames.stream[rows] == stream
    rows = rows[kept]
    order = np.argsort(frames.last_time_ns[rows], kind="stable")
    rows = rows[order]
    return frames.last_time_ns[rows] - subject.zero, np.cumsum(frames.length[rows].astype(np.int64))
