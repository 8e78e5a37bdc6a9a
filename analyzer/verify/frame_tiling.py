"""Check whether the frames listed for one sender fill its bytes, which proves a reading without its content.

HTTP/2 frames follow each other without a gap (RFC 9113 section 4.1), so the lengths of the frames of one direction and
the sequence numbers of its packets must agree to the byte. A reading with wrong frame boundaries does not add up.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from .records import Frame, Packet

FRAME_HEADER = 9
"""Bytes of a frame header (RFC 9113 section 4.1)."""
PREFACE = 24
"""Bytes of the client's connection preface (RFC 9113 section 3.4)."""

_ENOUGH = 4
"""Frames from the opening on, each in its expected packet, that prove a run."""
_EXACT = 16
"""A run's position is proven when its length is this many times its uncertainty."""
_BOTH = 2


class Run(NamedTuple):
    """Frames that follow each other."""

    frames: range
    """Indexes into the direction's frames."""
    start: int
    """Offset of the first byte, counted as the packets' `seq`."""
    end: int
    """Offset after the last byte."""
    proven: bool
    """Whether no other position is possible, up to `slack`."""
    slack: int
    """Uncertainty of `start` in bytes; 0 when the frames fill packets exactly."""


class Direction:
    """One sender of one connection: its packets with payload and the frames listed for it."""

    def __init__(self, packets: Sequence[Packet], frames: Sequence[Frame], starts: Sequence[int], opening: int | None):
        """`starts` are the packets of the frames' first bytes, `opening` the offset of the first frame where the
        connection's opening is in the capture."""
        self.packets = [packet for packet in packets if packet.length > 0]
        self.frames = frames
        self.place = {packet.packet: packet for packet in self.packets}
        self.begin = min((packet.seq for packet in self.packets), default=0)
        self.end = max((packet.seq + packet.length for packet in self.packets), default=0)
        self._begins = {packet.seq for packet in self.packets}
        self._ends = {packet.seq + packet.length for packet in self.packets}
        self.holes = list(self._holes())
        self._cuts = sorted((packet.seq, packet.packet) for packet in self.packets if packet.captured < packet.length)
        self.sizes = [0, *accumulate(FRAME_HEADER + frame.length for frame in frames)]
        self.runs = list(self._runs(starts, opening))
        self._run_starts = [run.frames.start for run in self.runs]
        proven = ((run.start + run.slack, run.end, place) for place, run in enumerate(self.runs) if run.proven)
        self._proven = sorted(proven)

    def _holes(self) -> Iterator[tuple[int, int]]:
        """Find offsets [from, to) between the first and the last byte that are in no packet of the capture."""
        reached: int | None = None
        for seq, end in sorted((packet.seq, packet.seq + packet.captured) for packet in self.packets):
            if reached is not None and seq > reached:
                yield reached, seq
            reached = end if reached is None else max(reached, end)
        if reached is not None and reached < self.end:
            yield reached, self.end

    def _runs(self, starts: Sequence[int], opening: int | None) -> Iterator[Run]:
        """Group frames into runs whose positions agree with the packets in which the frames begin."""
        first, low, high, length = 0, 0, -1, 0
        for place, (frame, start) in enumerate(zip(self.frames, starts, strict=True)):
            packet = self.place.get(start)
            inside = (packet.seq, packet.seq + packet.length - 1) if packet else (0, -1)
            lowest, highest = max(low, inside[0] - length), min(high, inside[1] - length)
            if place == first or lowest > highest:
                if place > first:
                    yield self._run(range(first, place), low, high, length, opening)
                first, length = place, 0
                lowest, highest = inside
            low, high = lowest, highest
            length += FRAME_HEADER + frame.length
        if self.frames:
            yield self._run(range(first, len(self.frames)), low, high, length, opening)

    def _run(self, frames: range, low: int, high: int, length: int, opening: int | None) -> Run:
        """Decide where in [low, high] the run begins: at the opening, or so that packets begin or end with it."""
        fits = low <= high
        opened = opening is not None and frames.start == 0 and low <= opening <= high
        begins = {seq for seq in self._begins if low <= seq <= high} | ({opening} if opened else set())
        ends = {end - length for end in self._ends if low <= end - length <= high}
        both = {opening} if opened else (begins & ends) or ends or begins
        begin = min((at for at in both if at is not None), default=low)
        anchors = (begin in begins) + (begin in ends)
        if fits and begin + length <= self.end:
            if anchors == _BOTH or (opened and len(frames) >= _ENOUGH):
                return Run(frames, begin, begin + length, True, 0)
            if len(frames) >= _ENOUGH and length >= _EXACT * (high - low + 1):
                return Run(frames, low, low + length, True, high - low)
        return Run(frames, begin, begin + length, False, high - low)

    def run_of(self, place: int) -> Run | None:
        """Find the run of a frame, by the frame's index."""
        at = bisect_right(self._run_starts, place) - 1
        return self.runs[at] if at >= 0 and place in self.runs[at].frames else None

    def covering(self, packet: Packet) -> Run | None:
        """Find the proven run that fills every byte of a packet; None without one."""
        at = bisect_right(self._proven, (packet.seq, self.end, len(self.runs))) - 1
        if at < 0 or self._proven[at][1] < packet.seq + packet.length:
            return None
        return self.runs[self._proven[at][2]]

    def offset(self, run: Run, place: int) -> int:
        """Return the offset at which a frame of a run begins, by the frame's index."""
        return run.start + self.sizes[place] - self.sizes[run.frames.start]

    def hole_before(self, offset: int) -> tuple[int, int] | None:
        """Find the last bytes before an offset that are in no packet."""
        at = bisect_left(self.holes, (offset, offset)) - 1
        return self.holes[at] if at >= 0 else None

    def cut_before(self, offset: int) -> Packet | None:
        """Find the last packet before an offset that was cut by the snaplen."""
        at = bisect_left(self._cuts, (offset, 0)) - 1
        return self.place[self._cuts[at][1]] if at >= 0 else None
