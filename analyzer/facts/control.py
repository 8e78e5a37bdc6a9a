"""Packets that carry control frames alone; shared by the detectors of storms."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.finding import Evidence
from ..model.text import duration
from ..tables import Ints, Mask, Tables
from . import evidence, hosts

Rows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

DEFAULT_MSS = 1448
"""Bytes of a full segment where the capture does not show it (Ethernet MTU 1500 less headers and timestamps)."""
PACKETS_FACTOR = 3.0
"""How many times the packets needed are a warning (heuristic: HEADERS, DATA and END_STREAM apart make three)."""


class SlowStreamLimits(Struct, frozen=True, eq=False):
    """When streams are many and slow."""

    streams: int = 16
    """Fewest streams open at once (heuristic: fewer seldom have messages ready together)."""
    messages_per_stream: int = 5
    """Fewest messages of a long stream (heuristic: a unary call has one)."""
    stream_interval_ns: int = 50_000_000
    """Shortest time between messages of a slow stream (heuristic: five times the 10 ms that a message may wait)."""


class StormLimits(SlowStreamLimits, frozen=True, eq=False):
    """The limits of detectors of storms; what differs between them has its value there."""

    told_packets: int = 100
    """Reported from this many such packets (heuristic: fewer show no pattern)."""
    packets: int = 500
    """Fewest such packets of a storm (heuristic: half of Envoy's max_outbound_control_frames 1000)."""
    per_second: float = 200.0
    """Fewest such packets per second of a storm (heuristic: grpc-java issue 8260 had about a thousand PINGs)."""
    share: float = 1.0
    told_share: float = 0.1
    """Reported from this share of all packets with payload (heuristic: a tenth)."""
    duration_ns: int = 1_000_000_000
    """Shortest storm (heuristic: a shorter capture shows no rate)."""
    critical_share: float = 0.9
    """Critical from this share (heuristic: ten packets where one would do)."""
    paced_share: float = 0.25
    """The share where streams are many and slow (heuristic: a quarter of all packets is not needed)."""


def sum_directions(column: npt.NDArray[np.unsignedinteger]) -> Ints:
    """Sum a column of `directions` over both directions: one element per connection."""
    return np.asarray(column.astype(np.int64).reshape(-1, 2).sum(axis=1))


def sum_both(column: npt.NDArray[np.unsignedinteger], row: int) -> int:
    """Sum a column of `directions` over both directions of one connection."""
    return int(column[2 * row]) + int(column[2 * row + 1])


class Load(Struct, frozen=True, eq=False):
    """Control packets of one kind on every connection."""

    packets: Ints
    """Packets of that kind, both directions."""
    payload_packets: Ints
    """Packets with payload, both directions."""
    share: Shares
    """`packets` divided by `payload_packets`."""
    duration_ns: Ints
    """From the connection's first packet to its last."""
    per_second: Shares
    """Packets of that kind per second of that time."""


def measure_load(tables: Tables, packets: Ints) -> Load:
    """Compare `packets` with all packets of every connection."""
    payload = sum_directions(tables.directions.payload_packets)
    duration = np.maximum(tables.connections.last_time_ns - tables.connections.first_time_ns, 1)
    return Load(packets, payload, packets / np.maximum(payload, 1), duration, packets / (duration / 1e9))


def mark_slow_streams(tables: Tables, limits: SlowStreamLimits) -> Mask:
    """Mark connections with many long streams, each of which seldom sends a message.

    A message or a control frame could wait for others there at little cost: the next one of its stream is far away.
    """
    d, connections = tables.directions, tables.connections
    messages = np.maximum(d.messages[0::2], d.messages[1::2]).astype(np.int64)
    rpcs = connections.rpcs.astype(np.int64)
    many = connections.max_concurrent_rpcs >= limits.streams
    many &= messages >= limits.messages_per_stream * np.maximum(rpcs, 1)
    last = np.maximum(d.last_message_time_ns[0::2], d.last_message_time_ns[1::2])
    first = np.where(d.first_message_time_ns[0::2] > 0, d.first_message_time_ns[0::2], d.first_message_time_ns[1::2])
    open_streams = connections.max_concurrent_rpcs.astype(np.int64)
    return many & ((last - first) * open_streams >= messages * limits.stream_interval_ns)


def find_storms(tables: Tables, load: Load, limits: StormLimits) -> tuple[Rows, bool]:
    """Find the connections with storms; without any, those whose control packets are worth a remark."""
    reported = (load.packets >= limits.told_packets) & (load.share >= limits.told_share)
    many = reported & (load.packets >= limits.packets) & (load.per_second >= limits.per_second)
    many &= load.duration_ns >= limits.duration_ns
    slow = mark_slow_streams(tables, limits)
    storm = many & ((load.share >= limits.share) | (slow & (load.share >= limits.paced_share)))
    return np.flatnonzero(storm if storm.any() else reported), bool(storm.any())


def explain_severity(tables: Tables, row: int, share: float, limits: StormLimits, *, storm: bool) -> str:
    """Say why control packets that are this share of all are a storm, or are none."""
    if not storm and share >= limits.share:
        return (
            f"This is too little for a storm: {limits.packets:,} such packets, {limits.per_second:,.0f} a second, for "
            "a second or longer."
        )
    if not storm:
        return (
            f"This is normal for its library: it is a storm from {limits.share:.0%} of the packets on, or from "
            f"{limits.paced_share:.0%} where {limits.streams} or more streams each send seldom."
        )
    if share >= limits.share:
        return f"They are {share:.0%} of the packets."
    return f"{_name_slow_streams(tables, row)} each send seldom, so few such packets would do for many messages."


def add_streams(tables: Tables, row: int, share: float, limits: StormLimits, *, storm: bool) -> str:
    """Name the slow streams that make control packets a storm at a lower share, for its title."""
    return f", for {_name_slow_streams(tables, row)}" if storm and share < limits.share else ""


def _name_slow_streams(tables: Tables, row: int) -> str:
    return f"{int(tables.connections.max_concurrent_rpcs[row]):,} slow streams"


def show_second(tables: Tables, direction: int, kind: str, what: str) -> Iterator[Evidence]:
    """Yield the ends of the second in which one side sent most packets of a kind: `ping` or `update`."""
    d = tables.directions
    most, first, last, begin, end = (
        int(getattr(d, f"dense_{kind}{part}")[direction])
        for part in ("s", "_first_packet", "_last_packet", "_first_time_ns", "_last_time_ns")
    )
    if most > 1:
        sender = hosts.host(tables, direction // 2, direction % 2)
        said = f"the first of {most:,} packets of {sender} within {duration(end - begin)} that carry only"
        yield Evidence(first, begin, f"{said} {what}")
        yield Evidence(last, end, "the last of them")


def show_span(tables: Tables, row: int, what: str) -> Iterator[Evidence]:
    """Yield the first and the last packet of a connection, between which `what` was counted."""
    c = tables.connections
    yield evidence.show_packet(c, "first_packet", row, f"first packet of the connection: {what}")
    length = duration(int(c.last_time_ns[row]) - int(c.first_time_ns[row]))
    yield evidence.show_packet(c, "last_packet", row, f"its last packet, {length} later")
