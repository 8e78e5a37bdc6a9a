"""Senders blocked by a window that the receiver opens: the two of HTTP/2, and TCP's."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..facts import hosts, ratings
from ..facts.groups import Case, Group, put_together
from ..facts.stalls import (
    Stalls,
    TimeLimits,
    count_times,
    describe_owed,
    find_scope,
    is_release_shown,
    join_intervals,
    list_blocked,
    measure,
    name_ends,
    rate_confidence,
    show_interval,
    sort_longest,
    split_by_hosts,
    sum_up_stalls,
)
from ..model.budget import CAUSES
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..model.text import count, duration, size
from ..tables import DIRECTIONS, WINDOW_NOT_KNOWN, Ints, Mask, Tables

_UNREAD = 0.5
"""Share of a window that a prompt reader may have received and not given back (nghttp2 sends a WINDOW_UPDATE when half
of the window was read, nghttp2_should_send_window_update; other libraries sooner)."""


LATE = 1.5
"""Round trips after which a reader opens a window late (heuristic: it takes one, and queues add to it)."""


class ReaderLimits(TimeLimits, frozen=True, eq=False):
    """The limits of detectors that distinguish a small window from a slow reader."""

    late_round_trips: float = LATE
    """Round trips after which a WINDOW_UPDATE is late (heuristic: it takes one, and queues add to it)."""
    late_least_ns: int = 1_000_000
    """Extra time that a prompt reader may take (heuristic: a scheduler's delay on a busy host)."""


class Window(Struct, frozen=True, eq=False):
    """A flow-control or TCP window, and the words for it."""

    id: str
    """The finding's id."""
    cause: str
    """The cause of its blocked intervals."""
    name: str
    """Such as `the HTTP/2 stream window`."""
    opened_by: str
    """What opens it."""
    enlarge: str
    """The imperative to use when it is too small; {reader} is replaced by the host."""
    remedies: Callable[[str | None, int], tuple[Remedy, ...]]
    """Returns the settings of the end that sends in a direction, by its implementation."""
    references: tuple[str, ...]


def detect_window(tables: Tables, limits: ReaderLimits, window: Window) -> Iterator[Finding | Skipped]:
    """Yield one finding about all senders blocked by windows alike, or why some could not be judged."""
    waits = tables.waits
    if not len(waits.cause):
        return
    cases = [_make_case(tables, limits, window, stalls) for stalls in split_by_hosts(tables, window.cause)]
    yield from put_together(tables, cases, lambda group: _make_finding(tables, limits, window, group))
    unexplained = waits.cause == CAUSES.index("unexplained")
    late = unexplained & (tables.connections.complete[waits.connection] == 0)
    if late.any():
        yield Skipped(
            window.id,
            f"{count(int(late.sum()), 'blocked interval is', 'blocked intervals are')} on connections "
            f"that began before the capture, so {window.name} is unknown",
        )


class _Reading(Struct, frozen=True, eq=False):
    """How fast a window was given back, and how fast it could have been."""

    size_bytes: int
    """Size of the window at the stops, the smallest: a receiver may enlarge it."""
    largest_bytes: int
    """The largest."""
    unread_bytes: int | None
    """Bytes that the reader had acknowledged and not given back at a stop, median; None where not known."""
    carries: float
    """Bytes per second that one window per round trip carries."""
    rate: float
    """Bytes per second of the messages that were sent."""

    @property
    def is_slow(self) -> bool:
        """Say whether the reader left most of the window unread, and the window would have carried more."""
        unread = self.unread_bytes or 0
        return unread > _UNREAD * self.size_bytes and 0 < self.rate < _UNREAD * self.carries


class _Words(Struct, frozen=True, eq=False):
    """Words that several texts of a window's finding share."""

    blocked: str
    reader: str
    slow_reader: bool | None
    why: str
    first_step: str
    reading: _Reading | None = None


def _make_case(tables: Tables, limits: ReaderLimits, window: Window, stalls: Stalls) -> Case[Stalls]:
    """Judge the reader between two hosts: only those that read alike are put together."""
    words = _choose_words(tables, limits, window, stalls, name_ends(tables, stalls))
    connections = tuple(dict.fromkeys(end[0] for end in stalls.ends))
    kind = f"{DIRECTIONS[stalls.first[1]]} {words.slow_reader}"
    return Case(stalls, connections, stalls.first[1], stalls.lost_ns, stalls.lost_ns, kind)


def _make_finding(tables: Tables, limits: ReaderLimits, window: Window, group: Group[Stalls]) -> Finding | None:
    first = group.facts[0]
    stalls = sum_up_stalls(tables, np.sort(np.concatenate([one.rows for one in group.facts])), window.cause)
    if stalls is None:
        return None
    words = _choose_words(tables, limits, window, first, name_ends(tables, first))
    step = _choose_words(tables, limits, window, first, (group.who, group.peers)).first_step
    connection, direction = first.first
    total = duration(stalls.lost_ns)
    late = bool((tables.connections.complete[tables.waits.connection[stalls.rows]] == 0).any())
    senders = set(tables.waits.direction[stalls.rows].tolist())
    was = group.say("was", "were")
    return Finding(
        id=window.id,
        title=f"{group.who} {was} blocked {count_times(tables, stalls)} by {window.name}",
        severity=ratings.severity(stalls.share, limits.warning_share, limits.critical_share),
        confidence=ratings.lower(rate_confidence(tables, stalls.rows), "medium" if late else "high"),
        scope=find_scope(tables, stalls.rows),
        lost_ns=stalls.lost_ns,
        share=stalls.share,
        metrics=measure(tables, stalls)
        | ({"side": DIRECTIONS[1 - senders.pop()]} if len(senders) == 1 else {})
        | {"late_credit_share": round(_measure_late_share(tables, limits, stalls.rows), 3)}
        | _list_figures(words.reading),
        evidence=tuple(
            item for row in sort_longest(tables, stalls.rows) for item in _show_interval(tables, window, row)
        ),
        explanation=(
            f"{group.who} stopped inside messages because {window.name} of {group.peers} was used up. "
            f"{group.say('It', 'They')} resumed with the next {window.opened_by} ({list_blocked(tables, stalls)}). "
            f"{words.why} The RPCs that waited lost {total} in total.{_PROVED if late else ''}"
        ),
        remedies=_list_remedies(tables, window, words, connection, direction),
        references=window.references,
        verdict=(f"{group.who} {was} blocked by {window.name} for {total} ({stalls.share:.0%} of RPC time): {step}."),
    )


_PROVED = (
    " WINDOW_UPDATEs before the capture are not in it. The sender proves that the window was used up: it stops each "
    "time at the same number of bytes granted less bytes sent, to the byte, while the stream window differs."
)


def _mark_late(tables: Tables, limits: ReaderLimits, rows: Ints, duration: Ints) -> Mask:
    """Mark the joined intervals that are longer than a prompt reader needs."""
    rtt = tables.waits.rtt_ns[rows]
    return (rtt >= 0) & (duration > limits.late_round_trips * rtt + limits.late_least_ns)


def _measure_late_share(tables: Tables, limits: ReaderLimits, rows: Ints) -> float:
    """Return the share of the blocked time in those intervals."""
    rows, duration = join_intervals(tables, rows)
    return float(duration[_mark_late(tables, limits, rows, duration)].sum() / max(1, int(duration.sum())))


def _measure_queued_share(tables: Tables, rows: Ints) -> float:
    """Return the share of intervals in which a queue stood on the path of their connection, in either direction.

    What shows a queue may come later than it, by as much as packets waited in it.
    """
    waits, queues = tables.waits, tables.queues
    first = queues.start_time_ns - queues.longest_ns
    last = queues.start_time_ns + queues.duration_ns + queues.longest_ns
    queued = 0
    for row in rows.tolist():
        begin = int(waits.start_time_ns[row])
        meanwhile = (first < begin + int(waits.duration_ns[row])) & (last > begin)
        queued += int((meanwhile & (queues.connection == waits.connection[row])).any())
    return queued / max(1, len(rows))


def _measure_reading(
    tables: Tables, cause: str, stalls: Stalls, end: tuple[int, int], round_trip_ns: int
) -> _Reading | None:
    """Measure how a reader gives back the window that blocked an end; None where the window's size is not known."""
    waits, directions = tables.waits, tables.directions
    (connection, direction), (rows, _) = end, join_intervals(tables, stalls.rows)
    rows = rows[(waits.connection[rows] == connection) & (waits.direction[rows] == direction)]
    sizes = getattr(waits, f"{cause}_size_bytes", None)
    if sizes is None or round_trip_ns <= 0 or not len(rows := rows[sizes[rows] >= 0]):
        return None
    of_window = int(sizes[rows].min())
    known = rows[waits.in_flight_bytes[rows] >= 0]
    unread = of_window - np.maximum(getattr(waits, f"{cause}_bytes")[known], 0) - waits.in_flight_bytes[known]
    row = 2 * connection + direction
    span = int(directions.last_message_time_ns[row] - directions.first_message_time_ns[row])
    return _Reading(
        size_bytes=of_window,
        largest_bytes=int(sizes[rows].max()),
        unread_bytes=max(0, int(np.median(unread))) if len(known) else None,
        carries=of_window * 1e9 / round_trip_ns,
        rate=int(directions.message_bytes[row]) * 1e9 / span if span > 0 else 0.0,
    )


def _measure_slow_streams(tables: Tables, window: Window, stalls: Stalls, round_trip_ns: int) -> _Reading | None:
    """Measure a slow reader by its stream windows; None unless they blocked the end for at least as long.

    Some libraries give back the connection's window at once, whatever the application has read.
    """
    if window.cause != "connection_window":
        return None
    waits, own = tables.waits, [end[0] for end in stalls.ends]
    blocked = (waits.cause == CAUSES.index("stream_window")) & np.isin(waits.connection, own)
    streams = sum_up_stalls(tables, np.flatnonzero(blocked), "stream_window")
    blocked_ns = {(connection, direction): time for connection, direction, _, time in (streams.ends if streams else ())}
    if streams is None or blocked_ns.get(stalls.first, 0) < stalls.ends[0][3]:
        return None
    reading = _measure_reading(tables, "stream_window", streams, stalls.first, round_trip_ns)
    return reading if reading and reading.is_slow else None


def _list_figures(reading: _Reading | None) -> dict[str, int]:
    if reading is None:
        return {}
    unread = {} if reading.unread_bytes is None else {"unread_bytes_at_stop": reading.unread_bytes}
    return {"window_size_bytes": reading.size_bytes, "window_carries_bytes_per_s": round(reading.carries)} | unread


def _are_both_shut(tables: Tables, window: Window, rows: Ints) -> bool:
    """Check whether stream and connection window both had no room for more than half of the blocked time."""
    waits = tables.waits
    if window.cause not in ("stream_window", "connection_window"):
        return False
    least = np.maximum(1, np.minimum(waits.owed_bytes[rows].astype(np.int64), waits.mss[rows]))
    left = (waits.stream_window_bytes[rows], waits.connection_window_bytes[rows])
    both = np.logical_and(*((window < least) & (window != WINDOW_NOT_KNOWN) for window in left))
    return bool(2 * waits.duration_ns[rows][both].sum() > waits.duration_ns[rows].sum())


_BOTH = " The stream window and the connection window were both used up: enlarging one alone will not help."


def _choose_words(
    tables: Tables, limits: ReaderLimits, window: Window, stalls: Stalls, ends: tuple[str, str]
) -> _Words:
    """Judge by the intervals between two hosts whether the reader is slow, and say so of `ends`: sender and reader."""
    blocked, reader = ends
    figures = measure(tables, stalls)
    each, rtt = duration(float(figures["median_wait_ns"])), int(figures["round_trip_ns"])
    if rtt < 0:
        why = "No round trip was measured, so the cause may be a small window or a slow reader."
        return _Words(blocked, reader, None, why, window.enlarge.format(reader=reader))
    trip = duration(rtt)
    reading = _measure_reading(tables, window.cause, stalls, stalls.first, rtt)
    slow = reading if reading and reading.is_slow else _measure_slow_streams(tables, window, stalls, rtt)
    if slow:
        why, step = _describe_slow_reader(window, slow, blocked, reader, figures)
        if slow is not reading:
            why = f"The stream windows blocked it at least as long, and show a slow reader. {why}"
        return _Words(blocked, reader, True, why, step, slow)
    if _measure_late_share(tables, limits, stalls.rows) >= 0.5:
        return _describe_late_reader(tables, limits, window, stalls, _Words(blocked, reader, True, "", "", reading))
    both = _are_both_shut(tables, window, stalls.rows)
    grew = reading is not None and reading.size_bytes < reading.largest_bytes
    known = f"The window of {reading.size_bytes:,} bytes" if reading else "The window"
    known += f", later {reading.largest_bytes:,}," if reading and grew else ""
    in_flight = figures.get("bytes_in_flight_at_stop")
    seen = "" if in_flight is None else f" ({in_flight:,} bytes were in flight at a stop)"
    why = (
        f"The median wait for the {window.opened_by} was {each}, at a round trip of {trip}: {reader} sent it promptly. "
        f"{known} is too small for this round trip{seen}.{_BOTH if both else ''}"
    )
    enlarge = _ENLARGE_BOTH if both else window.enlarge
    return _Words(blocked, reader, False, why, enlarge.format(reader=reader), reading)


def _describe_late_reader(
    tables: Tables, limits: ReaderLimits, window: Window, stalls: Stalls, words: _Words
) -> _Words:
    """Say what the late intervals show: a slow reader, unless packets were queued on the path meanwhile."""
    (rows, durations), reader = join_intervals(tables, stalls.rows), words.reader
    marks = _mark_late(tables, limits, rows, durations)
    late, trip = rows[marks], duration(int(measure(tables, stalls)["round_trip_ns"]))
    median = duration(float(np.median(durations[marks])))
    longer = f"longer than the round trip of {trip} explains"
    took = f"{len(late):,} of {len(rows):,} waits for the {window.opened_by} took {median} (median), {longer}"
    if len(rows) == 1:
        took = f"The wait for the {window.opened_by} took {median}, {longer}"
    prompt = ""
    if 2 * len(late) < len(rows):
        rest = duration(float(np.median(durations[~marks])))
        prompt = f" {reader} ended the others promptly, {rest} (median): for these the window is small."
    if _measure_queued_share(tables, late[:_LOOKED_AT]) >= 0.5:
        why = f"{took}. Packets were queued on the path meanwhile, so {reader} may have read promptly.{prompt}"
        step = f"a queue on the path delayed the {window.opened_by}, or {reader} reads slowly; capture there, too"
        return replace(words, slow_reader=None, why=why, first_step=step)
    why = f"{took}: {reader} was slow to read, or the network queued packets.{prompt}"
    step = f"the application or the library on {reader} reads slowly; make it read sooner"
    return replace(words, why=why, first_step=step)


_LOOKED_AT = 1_000
"""Late intervals of which it is looked whether a queue stood."""


def _describe_slow_reader(
    window: Window, reading: _Reading, blocked: str, reader: str, figures: Mapping[str, int | float | str]
) -> tuple[str, str]:
    """Say why the reader is at fault, and the first step: it was silent once, or reads slowly all the time.

    Libraries return a window in parts: one that gives none may read, less than such a part.
    """
    trip, longest = duration(float(figures["round_trip_ns"])), float(figures["longest_wait_ns"])
    if 2 * longest > float(figures["wait_ns"]):
        for_long = f"for {duration(longest)}"
        why = f"It sent no {window.opened_by} {for_long}, at a round trip of {trip}: it read nothing, or little."
        step = f"{reader} read nothing {for_long}, or too little to enlarge the window; find out why"
    else:
        rate, carries = f"{size(reading.rate)}/s", f"{size(reading.carries)}/s"
        why = f"It reads slowly: {rate}; this window carries {carries} at a round trip of {trip}."
        step = f"{reader} reads slowly, {rate} where the window carries {carries}"
    return (
        f"{reader} had received {reading.unread_bytes:,} bytes of the window of {reading.size_bytes:,} and not "
        f"enlarged it again when {blocked} stopped (median). {why} A larger window only buffers more."
    ), step


_ENLARGE_BOTH = "enlarge stream and connection window on {reader}, or leave both unset where they adapt"


def _show_interval(tables: Tables, window: Window, row: int) -> Iterator[Evidence]:
    waits = tables.waits
    blocked = hosts.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    waited = duration(int(waits.duration_ns[row]))
    after = duration(int(waits.start_time_ns[row] + waits.duration_ns[row] - waits.released_time_ns[row]))
    value, in_flight = int(getattr(waits, f"{window.cause}_bytes")[row]), int(waits.in_flight_bytes[row])
    flying = f" and {in_flight:,} bytes in flight" if in_flight >= 0 else ""
    yield from show_interval(
        tables,
        row,
        f"{blocked} stops with {describe_owed(tables, row)} still to send{flying}: {window.name} is {value:,} bytes",
        f"the last packet that {blocked} received before it resumed; the {window.opened_by} has arrived by then",
        f"{blocked} resumes {after} after that packet, {waited} after the stop"
        if is_release_shown(tables, row)
        else f"{blocked} resumes {waited} after the stop",
    )


def _list_remedies(
    tables: Tables, window: Window, words: _Words, connection: int, direction: int
) -> tuple[Remedy, ...]:
    reading = Remedy(
        "application",
        "read messages as they come",
        f"on {words.reader}: the window opens when the application has read; hand slow work to other threads",
    )
    seen = hosts.implementation(tables, connection, 1 - direction)
    settings = window.remedies(seen, 1 - direction)
    return (reading, *settings) if words.slow_reader else (*settings, reading)
