"""Take figures from packets as they come, for `grpcdiag watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ...analyzer.live import LiveCapture, Window
from ...reports.live.exposition import Exposition
from ...reports.live.snapshot import SPANS_S, History, Part, Snapshot, take_snapshot
from ...reports.openmetrics import render

LATE_NS = 1_000_000_000
"""Time after which a packet is taken to have come from the kernel, for calls that hang in silence (heuristic)."""
_NS = 1_000_000_000


class Watcher:
    """Reads a stream of packets, and gives figures once per interval."""

    def __init__(
        self,
        live: LiveCapture,
        every_s: float,
        *,
        now: bool,
        dropped: Callable[[], int | None],
        served: Exposition | None = None,
    ) -> None:
        """Read by the host's clock if the packets are recorded `now`, else by the capture's."""
        self._live, self._every_s, self._now, self._dropped = live, every_s, now, dropped
        self._served = served
        self._history = History()
        self._until_ns = 0

    @staticmethod
    def count_pieces(every_s: float) -> int:
        """Count the pieces of the longest window."""
        return max(1, round(SPANS_S[-1] / every_s))

    def step(self) -> Snapshot | None:
        """Wait for the end of an interval, and give its figures; None when the stream is over."""
        if self._live.is_over:
            return None
        self._read()
        parts = {length: self._make_part(length) for length in SPANS_S}
        if self._served is not None:
            self._served.text = render(parts[SPANS_S[-1]].analysis)
        window = self._live.window(1)
        packets = self._live.state().packets
        return take_snapshot(parts, self._history, time_ns=window.end_ns, packets=packets, dropped=self._dropped())

    def _read(self) -> None:
        """Read for an interval, and end the piece."""
        if self._now:
            self._live.read(self._every_s)
            self._live.cut(time.time_ns() - LATE_NS)
        else:
            self._until_ns = self._until_ns or self._find_begin()
            self._until_ns += round(self._every_s * _NS)
            self._live.read_until(self._until_ns)
            self._live.cut(self._until_ns)

    def _find_begin(self) -> int:
        """Find the time of the first packet; 0 when there is none."""
        self._live.read_until(-(1 << 63))
        return self._live.next_time_ns or 0

    def _make_part(self, length: int) -> Part:
        window = self._live.window(max(1, round(length / self._every_s)))
        seconds = max(0.0, (window.end_ns - (window.begin_ns or window.end_ns)) / _NS)
        return Part(window.analyze(), seconds, dict(_count_open(window)))

    def __iter__(self) -> Iterator[Snapshot]:
        """Give figures until the stream is over."""
        while (snapshot := self.step()) is not None:
            yield snapshot


def _count_open(window: Window) -> Iterator[tuple[str, int]]:
    for method in window.tables.methods:
        yield method.name or method.label or "unknown", method.rpcs - method.complete
