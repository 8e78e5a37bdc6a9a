"""The screen of `grpcdiag watch`, or its lines of JSON, and its keyboard."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ...analyzer.intervals import Interval
from ...reports import live_view
from ..support.messages import say
from .options import Options


class Screen:
    """Shows intervals until it is closed; the terminal is then as it was."""

    def __init__(self, options: Options) -> None:
        """Nothing is shown before it is entered."""
        self._options = options
        self._stack = ExitStack()
        self._messages: list[str] = []

    def __enter__(self) -> Self:
        """Take the terminal: another screen, and keys without Enter."""
        if self._options.as_json:
            return self
        from rich.console import Console
        from rich.live import Live

        if sys.stdin.isatty():
            before = termios.tcgetattr(0)
            self._stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, before)
            tty.setcbreak(0)
        self._live = self._stack.enter_context(Live(console=Console(), screen=True, auto_refresh=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back, and say there what was said on the screen."""
        self._stack.close()
        for message in () if self._options.quiet else self._messages:
            say(message)

    def show(self, interval: Interval) -> None:
        """Show an interval."""
        if self._options.as_json:
            sys.stdout.write(live_view.render_json(interval))
            sys.stdout.flush()
            return
        self.note([*interval.written, *interval.problems])
        screen = live_view.render_screen(interval, self._options.source, self._messages)
        self._live.update(screen, refresh=True)

    def note(self, messages: list[str]) -> None:
        """Keep messages for the screen, and for its end."""
        self._messages += messages
        del self._messages[: -live_view.MOST_MESSAGES]

    def is_asked_to_end(self) -> bool:
        """Say whether q was pressed."""
        if self._options.as_json or not sys.stdin.isatty():
            return False
        asked = False
        while select.select([0], [], [], 0)[0] and (key := os.read(0, 1)):
            asked |= key in (b"q", b"Q")
        return asked
