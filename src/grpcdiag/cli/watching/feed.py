"""Where packets come from: tcpdump, or standard input. On their way to the analysis they pass the ring."""

from __future__ import annotations

import os
import pwd
from contextlib import ExitStack

from ...analyzer.decode.runner import DecodeOptions
from ...analyzer.live import LiveCapture, LiveOptions
from ...capture import tcpdump
from ...capture.relay import Relay
from .flight_recorder import FlightRecorder
from .options import Options

PATIENCE_S = 0.5
"""Longest time for the rest of a stream whose writer has ended; another stream may go on."""


class Feed:
    """A stream of packets, from its beginning to its end."""

    def __init__(
        self,
        options: Options,
        chosen: DecodeOptions,
        user: pwd.struct_passwd | None,
        recorder: FlightRecorder,
        history: int,
    ) -> None:
        """Begin to read; root runs tcpdump as `user`. Raises RecordingError."""
        self._tcpdump: tcpdump.Tcpdump | None = None
        self.dropped: int | None = None
        """Packets that the kernel dropped, as tcpdump said last."""
        with ExitStack() as stack:
            source = self._record(options, user, stack) if options.interface else os.dup(0)
            copy, target = os.pipe()
            relay = Relay(source, target, recorder.begin_stream())
            stack.callback(relay.wait, PATIENCE_S)
            stack.callback(os.close, copy)
            how: LiveOptions = {"ports": chosen.get("ports", []), "keylog": chosen.get("keylog", b"")}
            self.live = LiveCapture(copy, history=history, **how)
            stack.callback(self.live.close)
            if self._tcpdump:
                stack.callback(self._tcpdump.stop)  # first of all, because this ends the stream
            self._stack = stack.pop_all()

    def _record(self, options: Options, user: pwd.struct_passwd | None, stack: ExitStack) -> int:
        """Start tcpdump, and give the descriptor of its stream. Raises RecordingError."""
        source, target = os.pipe()
        try:
            line = tcpdump.arguments(
                tcpdump.find(),
                interface=options.interface,
                expression=options.expression,
                output="-",
                stay_root=os.geteuid() == 0 and user is None,
            )
            self._tcpdump = tcpdump.Tcpdump(line, target, user=user)
            self._tcpdump.listen()
        except BaseException:
            os.close(source)
            raise
        finally:
            os.close(target)
        stack.callback(self._tcpdump.stop)
        return source

    def count_dropped(self) -> int | None:
        """Ask how many packets the kernel dropped; None when that is unknown."""
        if self._tcpdump and (counts := self._tcpdump.ask()):
            self.dropped = counts.dropped + counts.dropped_by_interface
        return self.dropped

    @property
    def words(self) -> str:
        """Give tcpdump's last messages."""
        return self._tcpdump.words if self._tcpdump else ""

    def close(self) -> None:
        """End the stream."""
        self._stack.close()
