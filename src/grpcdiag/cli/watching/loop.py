"""The loop of `grpcdiag watch`: read for a second, report, write what is due."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from typing import Self

from ...analyzer.decode.errors import CaptureError
from ...analyzer.decode.runner import DecodeOptions
from ...analyzer.live.calls import list_calls
from ...analyzer.live.connections import ConnectionSamples
from ...analyzer.live.findings import FindingsLog
from ...analyzer.live.interval import RATES_S, SPANS_S, CallFigures, Interval
from ...analyzer.live.methods import measure_methods
from ...analyzer.live.totals import Totals
from ...analyzer.model.analysis import Analysis
from ...capture import command, namespaces
from ...capture.errors import RecordingError, UsageError
from ...reports import openmetrics
from ..support.keylog import read_key_log
from .call_timeline import draw_call
from .errands import Errands
from .feed import Feed
from .flight_recorder import FlightRecorder
from .metrics import Metrics
from .options import STDIN, Options
from .screen import Lines, Screen, View

STEPS, STEP_S = 5, 0.2
"""Looks at the keyboard in an interval, and the time between them."""
DELAY_NS = 1_500_000_000
"""tcpdump gets packets in blocks, at most so late (see capture/ending.py)."""
AFTER_INTERVALS = 5
"""Intervals without a packet after which other network namespaces are looked at, once."""


class Gate:
    """Remembers what was met once."""

    def __init__(self, options: Options) -> None:
        """Nothing was met yet."""
        self.met: dict[str, str] = {}
        """Why, by rule: the first time."""
        self._rules = options.gates
        self._fails_on_trigger = options.fails_on_trigger

    def judge(self, analysis: Analysis, met_triggers: Sequence[str]) -> None:
        """Look at an analysis, and at the triggers that it meets."""
        for rule in self._rules:
            if rule.text not in self.met and (why := rule.judge(analysis)):
                self.met[rule.text] = why
        if self._fails_on_trigger and met_triggers:
            self.met.setdefault("trigger", met_triggers[0])


class Hints:
    """Looks once whether processes of other network namespaces have what is recorded here."""

    def __init__(self, path: str | None, ports: Sequence[int], pids: Sequence[int] = ()) -> None:
        """`path` is the network namespace that is recorded, None for the present one."""
        self._path, self._ports, self._pids = path, ports, pids
        self._silent = 0

    def list(self, packets: int) -> list[str]:
        """List the hints, as soon as there was no packet for a while."""
        self._silent = -1 if packets or self._silent < 0 else self._silent + 1
        if self._silent != AFTER_INTERVALS:
            return []
        return ["no packet matched the filter yet", *namespaces.list_hints(self._path, self._ports, self._pids)]


class Watch:
    """Everything that runs while packets are watched."""

    def __init__(self, options: Options, chosen: DecodeOptions, hints: Hints) -> None:
        """`chosen` is how packets are decoded; `hints` say where packets may be when there are none here."""
        self._options, self._chosen, self._hints = options, chosen, hints
        self._user = command.choose_user(None)
        self._stack = ExitStack()
        self._written: list[str] = []
        self._problems: list[str] = []
        self._samples, self._findings, self._totals = ConnectionSamples(), FindingsLog(), Totals()
        self._before = (0, 0)
        """Packets of earlier streams: read, and dropped."""
        self._now_ns = time.time_ns()
        """When the last interval ended, by the stream's clock once it has a packet."""
        self._retry = 0.0
        """When a stream may be begun again, by the monotonic clock: a sender may close each at once. 0: the first."""
        self.gate = Gate(options)
        """What fails the command."""

    def __enter__(self) -> Self:
        """Begin to read. Raises RecordingError."""
        options = self._options
        with ExitStack() as stack:
            self._metrics = stack.enter_context(Metrics(options.metrics)) if options.metrics else None
            self._recorder = stack.enter_context(closing(FlightRecorder(options, self._user)))
            self._errands = Errands(self._user, options.hook, options.key_file)
            self._feed = self._begin()
            stack.callback(lambda: self._feed.close())
            self._view = self._choose_view(stack)
            self._stack = stack.pop_all()
        return self

    def _choose_view(self, stack: ExitStack) -> View:
        """Take the terminal, if there is one."""
        if self._options.as_json:
            return Lines()
        if self._options.has_keyboard:
            from .keyboard import Keyboard  # textual may not be installed

            return stack.enter_context(Keyboard(self._options))
        return stack.enter_context(Screen(self._options))

    def __exit__(self, *_: object) -> None:
        """Give the terminal back, and end the stream."""
        self._stack.close()

    def _begin(self, *, again: bool = False) -> Feed:
        return Feed(self._options, self._chosen, self._user, self._recorder, max(SPANS_S), again=again)

    def run(self) -> None:
        """Report each interval until the time, the stream or the user ends it. Raises CaptureError."""
        try:
            self._view.run(self._loop, lambda call, width: self._draw_call(call, width))
        except (KeyboardInterrupt, CaptureError):
            with suppress(UsageError):  # about a stream that cannot be kept: the first error says more
                self._settle(over=True)
            raise
        finally:
            self._problems += self._errands.finish()
            self._view.note([*self._written, *self._problems])

    def _loop(self) -> None:
        seconds = self._options.seconds
        self._until = None if seconds is None else time.monotonic() + seconds
        going = True
        while going:
            why = ""
            try:
                going = self._read()
                if going and self._feed.live.is_over:
                    why = "no message" if self._options.interface else "the sender closed the stream"
            except CaptureError as error:
                why = self._explain(error)
            if why:
                self._problems.append(f"recording ended: {self._feed.words or why}; it begins again when it can")
            self._report(over=not going)
            going = self._begin_again() if why else going

    def _explain(self, error: CaptureError) -> str:
        """Say why a stream is no capture. Raises CaptureError for the first one, and behind packets."""
        why = re.sub(r"^/dev/fd/\d+", self._options.source, str(error))  # it names the pipe
        if not self._retry or self._feed.live.state().packets:
            raise CaptureError(why) from None
        return why

    def _is_asked_to_end(self) -> bool:
        is_late = self._until is not None and time.monotonic() >= self._until
        return is_late or self._view.is_asked_to_end()

    def _read(self) -> bool:
        """Read for an interval; False when the user, the time, or the stream on standard input has ended."""
        for _ in range(STEPS):
            if not self._feed.live.read(STEP_S):
                return self._options.stream != STDIN
            if self._is_asked_to_end():
                return False
        return True

    def _begin_again(self) -> bool:
        """Wait for packets to come again, as after the interface went away; False when the user does not."""
        began = time.monotonic()
        self._before = (self._before[0] + self._feed.live.state().packets, self._before[1] + (self._feed.dropped or 0))
        self._feed.close()
        while not self._is_asked_to_end():
            self._settle(over=False)
            time.sleep(max(self._retry - time.monotonic(), 0))
            self._retry = time.monotonic() + STEP_S * STEPS
            try:
                self._feed = self._begin(again=True)
            except (RecordingError, OSError):
                continue
            gap = f"packets of {time.monotonic() - began:,.1f} s before are missing"
            self._problems.append(f"recording goes on: {gap}")
            return True
        self._settle(over=True)
        return False

    def _settle(self, *, over: bool) -> None:
        """Write what is due, by the clock of the stream; the next report says so."""
        now_ns = time.time_ns() if self._options.interface else self._now_ns
        saved, problems = self._recorder.settle(now_ns, over=over)
        if saved:
            self._written.append(f"{saved.path}: {saved.packets:,} packets; {'; '.join(saved.reasons)}")
            self._totals.captures += 1
            self._errands.begin(saved)
        self._problems += [*problems, *self._errands.take_news()]

    def _report(self, *, over: bool) -> None:
        live = self._feed.live
        now_ns = time.time_ns()
        live.cut(now_ns - DELAY_NS if self._options.interface else None)
        windows = {span: live.window(span) for span in SPANS_S}
        piece, recent = windows[SPANS_S[0]], windows[RATES_S]
        if not self._options.interface:  # it may have been recorded long ago
            now_ns = self._now_ns = recent.end_ns or self._now_ns
        analysis, packets = recent.analyze(), live.state().packets
        self._samples.add(piece)
        self._totals.add(piece)
        met = self._recorder.judge(now_ns, packets, recent, analysis)
        self.gate.judge(analysis, met)
        self._settle(over=over)
        self._problems += self._hints.list(packets) if self._options.interface else []
        ring_bytes, lost = self._recorder.measure()
        connections, more = self._samples.measure(windows)
        findings, dropped = self._findings.take(analysis, now_ns), self._feed.count_dropped()
        self._totals.note_findings(findings, now_ns)
        interval = Interval(
            time_ns=now_ns,
            packets=self._before[0] + packets,
            dropped_packets=None if dropped is None else self._before[1] + dropped,
            methods=measure_methods(windows),
            findings=findings,
            connections=connections,
            more_connections=more,
            calls=list_calls(windows[SPANS_S[-1]]),
            gone=self._findings.list_gone(),
            met=tuple(met),
            ring_bytes=ring_bytes,
            ring_lost_packets=lost,
            written=tuple(self._written),
            not_written=self._recorder.refused,
            problems=tuple(self._problems),
        )
        self._written, self._problems = [], []
        self._view.show(interval)
        if self._metrics:
            self._metrics.show(openmetrics.render_live(interval, self._totals))

    def _draw_call(self, call: CallFigures, width: int) -> str:
        chosen = self._chosen
        if self._options.key_file:
            chosen = {**chosen, "keylog": read_key_log(self._options.key_file)}
        return draw_call(self._recorder, call, chosen, width)
