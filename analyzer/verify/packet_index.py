"""What of a connection was recorded before a packet, found without going through all packets."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable

from .records import Packet


class _Sender:
    """The packets of one sender in the order of the capture."""

    def __init__(self) -> None:
        self.rows: list[Packet] = []
        self.highest_seq: list[int] = []
        """Per row the highest sequence number so far."""
        self.highest_ack: list[int] = []
        self.empty: dict[int, Packet] = {}
        """By sequence number the first packet without payload."""
        self.alike: dict[tuple[object, ...], list[Packet]] = defaultdict(list)
        self.longest = 0
        self.by_seq: list[tuple[int, int]] = []
        """Sequence number and row of the packets with payload that were taken up so far."""
        self.taken = 0

    def add(self, packet: Packet) -> None:
        self.rows.append(packet)
        self.highest_seq.append(max(packet.seq, self.highest_seq[-1] if self.highest_seq else packet.seq))
        self.highest_ack.append(max(packet.ack, self.highest_ack[-1] if self.highest_ack else packet.ack))
        if packet.length == 0:
            self.empty.setdefault(packet.seq, packet)
        self.alike[_print(packet)].append(packet)
        self.longest = max(self.longest, packet.length)

    def take_up_to(self, place: int) -> None:
        """Makes the rows before `place` searchable by sequence number; a step back begins anew."""
        if place < self.taken:
            self.by_seq, self.taken = [], 0
        for row in range(self.taken, place):
            if self.rows[row].length:
                insort(self.by_seq, (self.rows[row].seq, row))
        self.taken = place


def _print(packet: Packet) -> tuple[object, ...]:
    """What a packet and its second record have in common."""
    return packet.seq, packet.length, packet.ack, packet.sent_at, packet.ip_id


class PacketIndex:
    """Questions about the packets before one; asked in the capture's order they take the time of a look-up each."""

    def __init__(self, packets: Iterable[Packet]) -> None:
        """Of one program's packets in the order of the capture."""
        self._senders: dict[tuple[int, str], _Sender] = defaultdict(_Sender)
        self._place: dict[int, int] = {}
        self._latest: dict[int, Packet | None] = {}
        """By packet the one of its connection in front of it with the latest time."""
        latest: dict[int, Packet] = {}
        for packet in packets:
            sender = self._senders[packet.connection, packet.sender]
            self._place[packet.packet] = len(sender.rows)
            sender.add(packet)
            before = latest.get(packet.connection)
            self._latest[packet.packet] = before
            if before is None or packet.time_ns > before.time_ns:
                latest[packet.connection] = packet

    def _sender(self, packet: Packet) -> _Sender:
        return self._senders[packet.connection, packet.sender]

    def overlapping(self, packet: Packet) -> Packet | None:
        """The first of its sender that holds one of its bytes."""
        sender = self._sender(packet)
        sender.take_up_to(self._place[packet.packet])
        first = None
        at = bisect_left(sender.by_seq, (packet.seq + packet.length, -1)) - 1
        while at >= 0 and sender.by_seq[at][0] > packet.seq - sender.longest:
            seq, row = sender.by_seq[at]
            if seq + sender.rows[row].length > packet.seq:
                first = row if first is None else min(first, row)
            at -= 1
        return None if first is None else sender.rows[first]

    def behind(self, packet: Packet) -> Packet | None:
        """The first of its sender whose place is behind its bytes."""
        sender = self._sender(packet)
        at = bisect_left(sender.highest_seq, packet.seq + packet.length)
        return sender.rows[at] if at < self._place[packet.packet] else None

    def acknowledging(self, packet: Packet) -> Packet | None:
        """The first of the other sender that acknowledges all its bytes."""
        for (connection, name), sender in self._senders.items():
            if connection == packet.connection and name != packet.sender:
                at = bisect_left(sender.highest_ack, packet.seq + packet.length)
                if at < len(sender.rows) and sender.rows[at].packet < packet.packet:
                    return sender.rows[at]
        return None

    def empty(self, packet: Packet) -> Packet | None:
        """The first of its sender without payload and with its sequence number."""
        found = self._sender(packet).empty.get(packet.seq)
        return found if found and found.packet < packet.packet else None

    def alike(self, packet: Packet) -> Packet | None:
        """The last of its sender that has its sequence number, length, ACK, clock and IPv4 identification."""
        same = self._sender(packet).alike[_print(packet)]
        at = bisect_left(same, packet.packet, key=lambda row: row.packet)
        return same[at - 1] if at else None

    def later_in_time(self, packet: Packet) -> Packet | None:
        """One of its connection in front of it with a later capture time."""
        latest = self._latest[packet.packet]
        return latest if latest and latest.time_ns > packet.time_ns else None
