"""Look up earlier packets of a connection without scanning all packets."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable

from .records import Packet


class _Sender:
    """The packets of one sender in the order of the capture."""

    def __init__(self) -> None:
        self.rows: list[Packet] = []
        self.highest_seq: list[int] = []
        """Highest sequence number so far, per row."""
        self.highest_ack: list[int] = []
        self.empty: dict[int, Packet] = {}
        """First packet without payload by sequence number."""
        self.alike: dict[tuple[object, ...], list[Packet]] = defaultdict(list)
        self.longest = 0
        self.by_seq: list[tuple[int, int]] = []
        """Sequence number and row of the indexed packets with payload."""
        self.taken = 0

    def add(self, packet: Packet) -> None:
        self.rows.append(packet)
        self.highest_seq.append(max(packet.seq, self.highest_seq[-1] if self.highest_seq else packet.seq))
        self.highest_ack.append(max(packet.ack, self.highest_ack[-1] if self.highest_ack else packet.ack))
        if packet.length == 0:
            self.empty.setdefault(packet.seq, packet)
        self.alike[_fingerprint(packet)].append(packet)
        self.longest = max(self.longest, packet.length)

    def take_up_to(self, place: int) -> None:
        """Index the rows before `place` by sequence number; a smaller `place` rebuilds the index."""
        if place < self.taken:
            self.by_seq, self.taken = [], 0
        for row in range(self.taken, place):
            if self.rows[row].length:
                insort(self.by_seq, (self.rows[row].seq, row))
        self.taken = place


def _fingerprint(packet: Packet) -> tuple[object, ...]:
    """Return the fields that a packet and its duplicate have in common."""
    return packet.seq, packet.length, packet.ack, packet.sent_at, packet.ip_id


class PacketIndex:
    """Look-ups of packets before a given one; fast when asked in the order of the capture."""

    def __init__(self, packets: Iterable[Packet]) -> None:
        """Index one program's packets, in the order of the capture."""
        self._senders: dict[tuple[int, str], _Sender] = defaultdict(_Sender)
        self._place: dict[int, int] = {}
        self._latest: dict[int, Packet | None] = {}
        """By packet the earlier one of its connection with the latest time."""
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
        """Find the first packet of the same sender that has one of its bytes."""
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
        """Find the first earlier packet of the same sender with later bytes."""
        sender = self._sender(packet)
        at = bisect_left(sender.highest_seq, packet.seq + packet.length)
        return sender.rows[at] if at < self._place[packet.packet] else None

    def acknowledging(self, packet: Packet) -> Packet | None:
        """Find the first packet of the other sender that acknowledges all its bytes."""
        for (connection, name), sender in self._senders.items():
            if connection == packet.connection and name != packet.sender:
                at = bisect_left(sender.highest_ack, packet.seq + packet.length)
                if at < len(sender.rows) and sender.rows[at].packet < packet.packet:
                    return sender.rows[at]
        return None

    def empty(self, packet: Packet) -> Packet | None:
        """Find the first packet of the same sender without payload and with its sequence number."""
        found = self._sender(packet).empty.get(packet.seq)
        return found if found and found.packet < packet.packet else None

    def alike(self, packet: Packet) -> Packet | None:
        """Find the last earlier packet of the same sender that has the same fingerprint."""
        same = self._sender(packet).alike[_fingerprint(packet)]
        at = bisect_left(same, packet.packet, key=lambda row: row.packet)
        return same[at - 1] if at else None

    def later_in_time(self, packet: Packet) -> Packet | None:
        """Find an earlier packet of its connection with a later capture time."""
        latest = self._latest[packet.packet]
        return latest if latest and latest.time_ns > packet.time_ns else None
