"""The loop of `grpcdiag watch`: read for a second, report, write what is due."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Self

from ...analyzer.decode.errors import CaptureError
from ...analyzer.decode.runner import DecodeOptions
from ...analyzer.intervals import RATES_S, SPANS_S, Interval, list_findings, measure_methods
from ...capture import command
from ...capture.errors import RecordingError
from .feed import Feed
from .flight_recorder import FlightRecorder
from .options import Options
from .screen import Screen

STEPS, STEP_S = 5, 0.2
"""Looks at the keyboard in an interval, and the time between them."""
DELAY_NS = 1_500_000_000
"""tcpdump gets packets in blocks, at most so late (see capture/ending.py)."""


class Watch:
    """Everything that runs while packets are watched."""

    def __init__(self, options: Options, chosen: DecodeOptions) -> None:
        """`chosen` is how packets are decoded."""
        self._options, self._chosen = options, chosen
        self._user = command.choose_user(None)
        self._stack = ExitStack()
        self._written: list[str] = []
        self._problems: list[str] = []

    def __enter__(self) -> Self:
        """Begin to read, and take the terminal. Raises RecordingError."""
        with ExitStack() as stack:
            self._recorder = stack.enter_context(closing(FlightRecorder(self._options, self._user)))
            self._feed = self._begin()
            stack.callback(lambda: self._feed.close())
            self._screen = stack.enter_context(Screen(self._options))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back, and end the stream."""
        self._stack.close()

    def _begin(self) -> Feed:
        return Feed(self._options, self._chosen, self._user, self._recorder, max(SPANS_S))

    def run(self) -> None:
        """Report each interval until the stream or the user ends it. Raises CaptureError."""
        going = True
        try:
            while going:
                going = self._read()
                ended = going and self._feed.live.is_over
                if ended:
                    why = self._feed.words or "no message"
                    self._problems.append(f"recording ended: {why}; it begins again when it can")
                self._report(over=not going)
                going = self._begin_again() if ended else going
        except KeyboardInterrupt:
            self._settle(time.time_ns(), over=True)
            self._screen.note([*self._written, *self._problems])
            raise
        except CaptureError as error:  # which names the pipe
            raise CaptureError(re.sub(r"^/dev/fd/\d+", self._options.source, str(error))) from None

    def _read(self) -> bool:
        """Read for an interval; False when the user, or the stream on standard input, has ended."""
        for _ in range(STEPS):
            if not self._feed.live.read(STEP_S):
                return bool(self._options.interface)
            if self._screen.is_asked_to_end():
                return False
        return True

    def _begin_again(self) -> bool:
        """Wait for tcpdump to record again, as after its interface went away; False when the user does not."""
        self._feed.close()
        while not self._screen.is_asked_to_end():
            self._settle(time.time_ns(), over=False)
            try:
                self._feed = self._begin()
            except RecordingError:
                time.sleep(STEP_S * STEPS)
                continue
            self._problems.append("recording goes on")
            return True
        return False

    def _settle(self, now_ns: int, *, over: bool) -> None:
        """Write what is due; the next report says so."""
        written, problems = self._recorder.settle(now_ns, over=over)
        self._written += written
        self._problems += problems

    def _report(self, *, over: bool) -> None:
        live = self._feed.live
        now_ns = time.time_ns()
        live.cut(now_ns - DELAY_NS if self._options.interface else None)
        windows = {span: live.window(span) for span in SPANS_S}
        recent = windows[RATES_S]
        if not self._options.interface:  # it may have been recorded long ago
            now_ns = recent.end_ns
        analysis, packets = recent.analyze(), live.state().packets
        met = self._recorder.judge(now_ns, packets, recent, analysis)
        self._settle(now_ns, over=over)
        ring_bytes, lost = self._recorder.measure()
        interval = Interval(
            time_ns=now_ns,
            packets=packets,
            dropped_packets=self._feed.count_dropped(),
            methods=measure_methods(windows),
            findings=list_findings(analysis),
            met=tuple(met),
            ring_bytes=ring_bytes,
            ring_lost_packets=lost,
            written=tuple(self._written),
            not_written=self._recorder.refused,
            problems=tuple(self._problems),
        )
        self._written, self._problems = [], []
        self._screen.show(interval)
