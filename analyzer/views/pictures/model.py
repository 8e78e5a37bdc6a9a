"""What a picture is made of: a range of time, and series of points in one of a few forms."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ...model.analysis import Analysis, ConnectionFacts
from ...model.finding import Finding
from ...tables import Ints, Tables
from ..trace_data import Points, thin_points

MOST_POINTS = 1_000
"""Most points of a series; of more, the largest of each interval are drawn (heuristic: a line has as many pixels)."""
MOST_LANES = 24
"""Most lanes of a picture (heuristic: a screen has no room for more)."""

Form = Literal["step", "limit", "stack", "dots", "spikes", "bars", "arrows", "shade"]
"""How a series is drawn. Points are [time, value]; of bars [begin, end, lane]; of arrows [begin, end, lane, lane]; of
shades [begin, end]."""
Unit = Literal["bytes", "packets/s", "RPCs", "ns", "lanes"]
"""What the vertical axis measures."""


class Series(Struct, frozen=True):
    """Points of one name and colour; times are nanoseconds after the capture's first packet."""

    name: str
    form: Form
    colour: str
    """Name of a colour in the page's style: a cause, or a kind of packet."""
    points: tuple[tuple[int | None, ...], ...]


class Picture(Struct, frozen=True):
    """What one picture shows. A picture of latencies has no series: the page draws its own RPCs."""

    kind: str
    title: str
    """What it shows, one line."""
    unit: Unit
    begin_ns: int
    end_ns: int
    series: tuple[Series, ...] = ()
    lanes: tuple[str, ...] = ()
    """Names of the lanes, from the top."""
    marks: tuple[tuple[int, str], ...] = ()
    """Instants with a vertical line, and their labels."""
    connections: tuple[int, ...] = ()
    """Connections that it shows; empty for all."""
    methods: tuple[str, ...] = ()
    """Methods whose RPCs a picture of latencies shows; empty for all."""


class Subject(NamedTuple):
    """A finding, and the connection on which its first evidence lies."""

    finding: Finding
    tables: Tables
    flights: tuple[Ints, Ints]
    facts: ConnectionFacts
    packets: Ints
    """Rows of the connection's packets that the page has around the evidence, in order."""
    zero: int

    @property
    def connection(self) -> int:
        """Row of the connection."""
        return self.facts.connection

    @property
    def alone(self) -> tuple[int]:
        """Return the connection as the only one that a picture shows."""
        return (self.connection,)

    @property
    def evidence(self) -> Ints:
        """Times of the evidence after the capture's first packet."""
        return np.array([item.time_ns for item in self.finding.evidence], dtype=np.int64) - self.zero

    @property
    def times(self) -> Ints:
        """Times of the packets after the capture's first one."""
        return np.asarray(self.tables.packets.time_ns[self.packets] - self.zero)

    @property
    def range(self) -> tuple[int, int]:
        """First and last time of the packets."""
        return int(self.times.min()), int(self.times.max())

    def of_connection(self, table: Any) -> Ints:
        """Find the rows of a table that belong to the connection."""
        return np.flatnonzero(table.connection == self.connection)

    def ways(self) -> tuple[str, str]:
        """Name the client and the server."""
        return f"client {self.facts.client}", f"server {self.facts.server}"


def find_facts(analysis: Analysis, connection: int) -> ConnectionFacts | None:
    """Find what is known of a connection."""
    return next((facts for facts in analysis.connections if facts.connection == connection), None)


def make_series(name: str, form: Form, colour: str, *columns: npt.NDArray[Any] | Sequence[int]) -> Series:
    """Make a series of columns; of too many points, the first."""
    cut = [np.asarray(column)[:MOST_POINTS].tolist() for column in columns]
    return Series(name, form, colour, tuple(zip(*cut, strict=True)))


def make_line(name: str, form: Form, colour: str, times: Ints, values: Ints) -> Series:
    """Make a series of values over time; of too many, the largest and the last value of each interval."""
    order = np.argsort(times, kind="stable")
    points = Points(np.zeros(len(order), dtype=np.int64), times[order], np.asarray(values, dtype=np.int64)[order])
    if len(order) > MOST_POINTS:
        span = int(points.time_ns[-1] - points.time_ns[0])
        points = thin_points(points, max(2 * span // (MOST_POINTS - 2) + 1, 1))
    return make_series(name, form, colour, points.time_ns, points.value)


def count_open(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Count what is open over time: the instants of changes, and the number after each."""
    times = np.concatenate([starts, ends])
    steps = np.repeat([1, -1], len(starts))
    order = np.lexsort((steps, times))
    times, values = times[order], np.cumsum(steps[order])
    last = np.append(np.diff(times) != 0, True)[: len(times)]
    return times[last], np.maximum(values[last], 0)
