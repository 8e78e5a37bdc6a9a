"""Differences of two readings of a capture, and the joined rows that they are found in."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from .frame_tiling import PREFACE, Direction
from .records import CaptureRecords, Frame, Packet, Status

What = Literal["packet", "connection", "frame", "stream", "status", "retransmission"]
"""What can differ."""
Right = Literal["grpcdiag", "wireshark", "both"]
"""Who is right: `both` where the two answer different questions."""

SENT_BEFORE = frozenset(("retransmission", "fast_retransmission", "spurious_retransmission"))
"""Notes of retransmitted packets."""


class Why(Struct, frozen=True):
    """The explanation of a difference."""

    rule: str
    """Its id, see docs/verify.md."""
    right: Right | None
    """Who is right; None when the packets do not show it."""
    text: str
    """The evidence, as a sentence."""


class Difference(Struct, frozen=True):
    """One difference of the two readings."""

    what: What
    """The kind of the difference."""
    connection: int | None
    """grpcdiag's number of the connection."""
    stream: int | None
    """HTTP/2 stream."""
    packet: int
    """The packet it is about."""
    ours: str | None
    """What grpcdiag says, None for nothing."""
    theirs: str | None
    """What Wireshark says, None for nothing."""
    why: Why | None = None
    """The explanation; None when there is none."""


class Count(Struct, frozen=True):
    """One figure of both readings."""

    name: str
    ours: int
    theirs: int


class Comparison(Struct, frozen=True):
    """Both readings of one capture."""

    counts: tuple[Count, ...]
    """Figures side by side."""
    differences: tuple[Difference, ...]
    """All differences, by packet."""
    notes: tuple[str, ...] = ()
    """Warnings of Wireshark."""

    @property
    def unexplained(self) -> int:
        """Count the differences without an explanation."""
        return sum(difference.why is None for difference in self.differences)


class Matter:
    """Both readings, indexed for the rules, with grpcdiag's connection numbers."""

    def __init__(self, ours: CaptureRecords, theirs: CaptureRecords) -> None:
        """Join packets by number, and assign grpcdiag's connections and directions to Wireshark's rows."""
        self.ours, self.theirs = ours, theirs
        self.our_packet = {packet.packet: packet for packet in ours.packets}
        self.their_packet = {packet.packet: packet for packet in theirs.packets}
        self.connection_of = self._pair()
        self.our_frames = list(ours.frames)
        self.their_frames = [self._translated(frame) for frame in theirs.frames]
        self.their_frames_set = frozenset(self.their_frames)
        self.their_statuses = [self._of_ours(status) for status in theirs.statuses]
        self.http_statuses = {(s.connection, s.stream): s for s in map(self._of_ours, theirs.http_statuses)}
        self.directions = self._directions()
        self.by_stream: dict[tuple[int, int], list[Frame]] = defaultdict(list)
        self.place_in_direction: list[int] = []
        seen: Counter[tuple[int, int]] = Counter()
        for frame in self.our_frames:
            self.by_stream[frame.connection, frame.stream].append(frame)
            self.place_in_direction.append(seen[frame.connection, frame.direction])
            seen[frame.connection, frame.direction] += 1
        self.unmatched_ours, self.unmatched_theirs = self._unmatched()

    def _pair(self) -> dict[int, int]:
        """Map Wireshark's connection numbers to grpcdiag's by the first packet of each connection."""
        pairs: dict[int, int] = {}
        for packet in self.theirs.packets:
            mine = self.our_packet.get(packet.packet)
            if mine is not None:
                pairs.setdefault(packet.connection, mine.connection)
        return pairs

    def _translated(self, frame: Frame) -> Frame:
        mine = self.our_packet.get(frame.packet)
        if mine is None:
            return frame._replace(connection=-1)
        return frame._replace(connection=mine.connection, direction=mine.direction)

    def _of_ours(self, status: Status) -> Status:
        return status._replace(connection=self.connection_of.get(status.connection, -1))

    def _directions(self) -> dict[tuple[int, int], Direction]:
        packets: dict[tuple[int, int], list[Packet]] = defaultdict(list)
        frames: dict[tuple[int, int], list[Frame]] = defaultdict(list)
        starts: dict[tuple[int, int], list[int]] = defaultdict(list)
        for packet in self.ours.packets:
            packets[packet.connection, packet.direction].append(packet)
        for frame, start in zip(self.our_frames, self.ours.starts, strict=True):
            frames[frame.connection, frame.direction].append(frame)
            starts[frame.connection, frame.direction].append(start)
        found = {}
        for key, rows in packets.items():
            connection = self.ours.connections[key[0]]
            opening = (PREFACE if key[1] == 0 else 0) if connection.complete else None
            # TLS records hide the positions of frames
            found[key] = (
                Direction(rows, [], [], None) if connection.tls else Direction(rows, frames[key], starts[key], opening)
            )
        return found

    def _unmatched(self) -> tuple[list[int], list[int]]:
        """Find frames that the other side does not list with the same packet, stream, type and length."""
        extra = Counter(self.our_frames)
        extra.subtract(self.their_frames)
        ours = _left(self.our_frames, {frame: n for frame, n in extra.items() if n > 0})
        theirs = _left(self.their_frames, {frame: -n for frame, n in extra.items() if n < 0})
        return ours, theirs


def _left(frames: Sequence[Frame], extra: dict[Frame, int]) -> list[int]:
    """Find the places of the extra frames; of equal frames the last ones."""
    if not extra:
        return []
    found = []
    for place in range(len(frames) - 1, -1, -1):
        if extra.get(frames[place], 0) > 0:
            extra[frames[place]] -= 1
            found.append(place)
    return found[::-1]
