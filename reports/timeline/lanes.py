"""Draw bytes in flight and windows over the time of an excerpt, one character for each part of it."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from rich.text import Text

from ...analyzer.tables import DIRECTIONS, WINDOW_NOT_KNOWN, Ints
from ...analyzer.views.events import SYN, Sequence, in_flight
from ...analyzer.views.excerpt import Excerpt
from ..shared.drawing import NARROW
from .page import STYLES, wrapped

LABEL = 27
"""Columns in front of a lane."""
FIGURES = 22
"""Columns after a lane."""

_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = -1
"""Value of a lane where a part has no value."""
_SEGMENT = 1460
"""Most bytes in flight with which no TCP window is drawn: one segment on Ethernet."""


class Lane(Struct, frozen=True, eq=False):
    """A quantity over time."""

    name: str
    """Whose it is, and what: a window is its receiver's, a congestion window its sender's."""
    values: Ints
    """The maximum in each part, or for windows the minimum; `_NOTHING` without a value."""
    figures: str
    sent: bool = False
    """True for bytes sent, false for a window that limits them."""


def lanes(excerpt: Excerpt, events: Sequence, width: int) -> list[Text]:
    """Draw the lanes of both directions, without those that are always empty."""
    room = width - 2 if width < NARROW else width - LABEL - FIGURES
    lines = []
    for side in range(len(DIRECTIONS)):
        for lane in (*_list_packet_lanes(excerpt, side, room), *_list_stop_lanes(excerpt, events, side, room)):
            label, bars = f"  {lane.name}", (_draw_bars(lane.values), STYLES[side] if lane.sent else "dim")
            if width < NARROW:
                lines += [*wrapped(f"{label}: {lane.figures}", width, "    "), Text.assemble("  ", bars)]
            else:
                lines.append(Text.assemble(f"{label:<{LABEL}}", bars, f" {lane.figures}"))
    return lines


def _draw_bars(values: Ints) -> str:
    most = max(int(values.max(initial=0)), 1)
    return "".join(" " if n < 0 else _BARS[min(n * len(_BARS) // (most + 1), len(_BARS) - 1)] for n in values.tolist())


def _list_packet_lanes(excerpt: Excerpt, side: int, columns: int) -> Iterator[Lane]:
    """List the lanes that every packet updates: bytes in flight, and the peer's TCP receive window."""
    flight = in_flight(excerpt.packets, side, columns)
    most = int(flight.max(initial=0))
    if not most:
        return
    yield Lane(f"{DIRECTIONS[side]} in flight", np.where(flight > 0, flight, _NOTHING), f"to {most:,} B", sent=True)
    packets = excerpt.packets
    mine = packets.direction == 1 - side
    known = mine & (packets.flags & SYN == 0)  # a SYN's window is not scaled
    if most <= _SEGMENT or not excerpt.tables.connections.complete[excerpt.connection] or not known.any():
        return  # without the handshake the window scale is unknown
    # a window is valid until the peer announces another one
    column = _assign_columns(excerpt, packets.time_ns[known], columns)
    least = _find_minima(column, packets.window[known].astype(np.int64), columns)
    values = _carry_forward(least)
    yield Lane(f"{DIRECTIONS[1 - side]} receive window", values, _format_range(packets.window[known].astype(np.int64)))


def _list_stop_lanes(excerpt: Excerpt, events: Sequence, side: int, columns: int) -> Iterator[Lane]:
    """List the lanes known only at the start of blocked intervals: congestion window and HTTP/2 windows."""
    waits = events.waits
    rows = events.wait_rows[waits.direction[events.wait_rows] == side]
    column = _assign_columns(excerpt, waits.start_time_ns[rows], columns)
    inside = (waits.start_time_ns[rows] >= excerpt.packets.time_ns[0]) if len(excerpt.packets.time_ns) else rows < 0
    for name, values, unknown in (
        (f"{DIRECTIONS[side]} congestion", waits.congestion_window_bytes[rows], -1),
        (f"{DIRECTIONS[1 - side]} stream window", waits.stream_window_bytes[rows], WINDOW_NOT_KNOWN),
        (f"{DIRECTIONS[1 - side]} connection window", waits.connection_window_bytes[rows], WINDOW_NOT_KNOWN),
    ):
        known = (values != unknown) & inside
        if known.any():
            least = _find_minima(column[known], np.maximum(values[known], 0), columns)
            yield Lane(name, least, _format_range(values[known]))


def _assign_columns(excerpt: Excerpt, times: Ints, columns: int) -> Ints:
    every = excerpt.packets.time_ns
    first, last = (int(every[0]), int(every[-1])) if len(every) else (0, 0)
    return np.clip((times - first) * columns // (max(last - first, 1) + 1), 0, columns - 1)


def _find_minima(column: Ints, values: Ints, columns: int) -> Ints:
    least = np.full(columns, np.iinfo(np.int64).max)
    np.minimum.at(least, column, values)
    return np.where(least == np.iinfo(np.int64).max, _NOTHING, least)


def _carry_forward(values: Ints) -> Ints:
    """Give parts without a value the value of the part before."""
    # the largest index so far that has a value
    place = np.maximum.accumulate(np.where(values >= 0, np.arange(len(values)), 0))
    return values[place]


def _format_range(values: Ints) -> str:
    """Format the range from the minimum to the maximum in at most 20 characters."""
    least, most = int(values.min()), int(values.max())
    largest = max(abs(least), abs(most))
    unit, name = (1, "B") if largest < 10**6 else (10**3, "kB") if largest < 10**9 else (10**6, "MB")
    ends = [f"{round(end / unit):,}" for end in (least, most)]
    return f"{ends[0]} {name}" if least == most else f"{ends[0]} to {ends[1]} {name}"
