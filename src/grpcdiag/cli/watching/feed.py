"""Where packets come from: tcpdump, standard input or another host. On their way to the analysis they pass the ring."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress

from ...analyzer.decode.runner import DecodeOptions
from ...analyzer.live import LiveCapture, LiveOptions
from ...capture import tcpdump
from ...capture.relay import Relay, make_pipe
from ..support.stream import connect, connect_first, start_copy
from .flight_recorder import FlightRecorder
from .options import STDIN, Options

RECONNECT_S = 2.0
"""Longest time of one attempt to connect again: meanwhile the keyboard is not looked at."""

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
        *,
        again: bool = False,
    ) -> None:
        """Begin to read, or begin `again`; root runs tcpdump as `user`. Raises RecordingError and, again, OSError."""
        self._tcpdump: tcpdump.Tcpdump | None = None
        self._told: list[str] = []
        self.dropped: int | None = None
        """Packets that the kernel dropped, as tcpdump said last."""
        with ExitStack() as stack:
            if options.interface:
                source = self._record(options, user, stack)
            else:
                source = os.dup(0) if options.stream == STDIN else self._connect(options.stream, stack, again=again)
            keep = recorder.begin_stream()
            # the core opens its pipe anew, which another user's standard input may not allow
            needs_relay = keep or options.stream == STDIN
            stream = self._relay(source, keep, stack) if needs_relay else source
            stack.callback(os.close, stream)
            how: LiveOptions = {"ports": chosen.get("ports", []), "keylog": chosen.get("keylog", b"")}
            if options.key_file:
                how["key_file"] = str(options.key_file)
            self.live = LiveCapture(stream, history=history, **how)
            stack.callback(self.live.close)
            if self._tcpdump:
                stack.callback(self._tcpdump.stop)  # first of all, because this ends the stream
            self._stack = stack.pop_all()

    def _relay(self, source: int, keep: Callable[[bytes], None] | None, stack: ExitStack) -> int:
        """Let the ring have the stream, too; give the descriptor of a copy."""
        copy, target = make_pipe()
        relay = Relay(source, target, keep)
        stack.callback(relay.wait, PATIENCE_S)
        return copy

    def _record(self, options: Options, user: pwd.struct_passwd | None, stack: ExitStack) -> int:
        """Start tcpdump, and give the descriptor of its stream. Raises RecordingError."""
        source, target = make_pipe()
        flushes = os.geteuid() == 0  # otherwise tcpdump has capabilities of its own, and hides its state
        try:
            line = tcpdump.arguments(
                tcpdump.find(),
                interface=options.interface,
                expression=options.expression,
                output="-",
                stay_root=os.geteuid() == 0 and user is None,
                flushes=flushes,
            )
            self._tcpdump = tcpdump.Tcpdump(line, target, user=user, flushes=flushes)
            self._tcpdump.listen()
        except BaseException:
            os.close(source)
            raise
        finally:
            os.close(target)
        stack.callback(self._tcpdump.stop)
        return source

    def _connect(self, url: str, stack: ExitStack, *, again: bool) -> int:
        """Connect to a sender, and give the descriptor of its stream. Raises OSError."""
        connection = connect(url, RECONNECT_S) if again else connect_first(url)
        source, target = make_pipe()
        start_copy(connection, target, url, self._told.append)
        stack.callback(_end_connection, connection)
        return source

    def count_dropped(self) -> int | None:
        """Ask how many packets the kernel dropped; None when that is unknown."""
        if self._tcpdump and (counts := self._tcpdump.ask()):
            self.dropped = counts.dropped + counts.dropped_by_interface
        return self.dropped

    @property
    def words(self) -> str:
        """Give tcpdump's last messages, or why a connection broke."""
        return self._tcpdump.words if self._tcpdump else "; ".join(self._told[-1:])

    def close(self) -> None:
        """End the stream."""
        self._stack.close()


def _end_connection(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)
