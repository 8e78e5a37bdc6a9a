"""Captures as a filter for one direction, a clock that is set, or a cut file leave them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from guises import Packets

from grpcdiag.fixtures.synthetic.packet import Captured

_IP_HEADER = {101: 0, 12: 0, 1: 14, 113: 16, 276: 20}
"""Where the IP header begins, by link type."""
_IPV6 = 6
_TCP = 6
_TCP_OPTION_TIMESTAMPS = 8

Change = Callable[[int, Captured], Captured | None]
"""Gives a packet anew by its number from 1; None leaves it out."""


def tamper(source: str | Path, target: Path, change: Change) -> str:
    """Write a capture with each packet changed, and give its path."""
    packets = Packets(source)
    changed = (change(number, packet) for number, packet in enumerate(packets.all, 1))
    target.write_bytes(packets.written(packets=[packet for packet in changed if packet is not None]))
    return str(target)


def tcp_header(source: str | Path) -> Callable[[Captured], int | None]:
    """Where the TCP header of a packet of this capture begins; None for other packets."""
    begin = _IP_HEADER[Packets(source).link_type]

    def find(packet: Captured) -> int | None:
        first = packet.data[begin]
        v6 = first >> 4 == _IPV6
        if packet.data[begin + (6 if v6 else 9)] != _TCP:
            return None
        return begin + (40 if v6 else (first & 15) * 4)

    return find


def server_port(source: str | Path) -> int:
    """The port that the first TCP packet goes to."""
    find = tcp_header(source)
    first, at = next((packet, at) for packet in Packets(source).all if (at := find(packet)) is not None)
    return int.from_bytes(first.data[at + 2 : at + 4])


def keep_direction(source: str | Path, direction: str, *, and_syns: bool = False) -> Change:
    """As `dst port N` (`client`) or `src port N` (`server`) records it."""
    find, port = tcp_header(source), server_port(source)

    def change(_number: int, packet: Captured) -> Captured | None:
        at = find(packet)
        if at is None:
            return None
        ports = struct.unpack_from(">HH", packet.data, at)
        syn = packet.data[at + 13] & 2
        return packet if ports[direction == "client"] == port or (and_syns and syn) else None

    return change


def step_clock(after: int, by_ns: int) -> Change:
    """The clock of the recording host is set forward behind the packet `after`."""
    return lambda number, packet: replace(packet, time_ns=packet.time_ns + by_ns) if number > after else packet


def suspend_host(source: str | Path, server: bool, after: int, by_ns: int, ticks: int) -> Change:
    """One host's clock stands still for `by_ns`; the other one's timestamps go on by `ticks`."""
    find, port = tcp_header(source), server_port(source)
    step = step_clock(after, by_ns)

    def change(number: int, packet: Captured) -> Captured | None:
        at, late = find(packet), step(number, packet)
        if late is None or at is None or number <= after:
            return late
        from_server = struct.unpack_from(">H", packet.data, at)[0] == port
        return late if from_server == server else _advance(late, at, ticks)

    return change


def delay(source: str | Path, after: int, in_flight: int, by_ns: int, ticks: int) -> Change:
    """Packets stand in a queue for `by_ns`: those in flight have timestamps of before, the others of later."""
    find, step = tcp_header(source), step_clock(after, by_ns)

    def change(number: int, packet: Captured) -> Captured | None:
        at, late = find(packet), step(number, packet)
        return _advance(late, at, ticks) if late is not None and at is not None and number > after + in_flight else late

    return change


def remove_timestamps(source: str | Path) -> Change:
    """Packets of hosts that use no TCP timestamps: the option is overwritten with no-operations."""
    find = tcp_header(source)

    def change(_number: int, packet: Captured) -> Captured:
        data, at = bytearray(packet.data), find(packet)
        place = None if at is None else _timestamps(packet.data, at)
        if place is not None:
            data[place : place + 10] = bytes([1] * 10)
        return replace(packet, data=bytes(data))

    return change


def _advance(packet: Captured, at: int, ticks: int) -> Captured:
    place = _timestamps(packet.data, at)
    if place is None:
        return packet
    data = bytearray(packet.data)
    (value,) = struct.unpack_from(">I", data, place + 2)
    struct.pack_into(">I", data, place + 2, (value + ticks) % 2**32)
    return replace(packet, data=bytes(data))


def _timestamps(data: bytes, at: int) -> int | None:
    """Where the option of timestamps begins in the TCP header at `at`."""
    place, end = at + 20, at + (data[at + 12] >> 4) * 4
    while place < end and data[place]:
        if data[place] == _TCP_OPTION_TIMESTAMPS:
            return place
        place += 1 if data[place] == 1 else max(2, data[place + 1])
    return None
