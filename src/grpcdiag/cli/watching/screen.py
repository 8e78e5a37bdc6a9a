"""The screen of `grpcdiag watch` without a library for keyboards, and its lines of JSON."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from ...analyzer.live.interval import CallFigures, Interval
from ...reports import live_view
from ..support.messages import say
from .options import Options

DrawCall = Callable[[CallFigures, int], str]
"""Draws the timeline of a call, so many columns wide."""


class View(ABC):
    """Where intervals are shown."""

    @abstractmethod
    def show(self, interval: Interval) -> None:
        """Show an interval."""

    @abstractmethod
    def note(self, messages: list[str]) -> None:
        """Keep messages that no interval shows any more."""

    def is_asked_to_end(self) -> bool:
        """Say whether the user wants to end it; without a keyboard there is no way to."""
        return False

    def run(self, loop: Callable[[], None], draw_call: DrawCall) -> None:
        """Run the loop that makes the intervals to its end."""
        loop()


class Lines(View):
    """Writes intervals as lines of JSON."""

    def show(self, interval: Interval) -> None:
        """Write a line."""
        sys.stdout.write(live_view.render_json(interval))
        sys.stdout.flush()

    def note(self, messages: list[str]) -> None:
        """Say them on standard error: no line will have them."""
        for message in messages:
            say(message)


class Messages:
    """The last messages: a screen shows them, and they are said again when it is gone."""

    def __init__(self, *, quiet: bool) -> None:
        """Show messages on the screen; with `quiet`, write them nowhere else."""
        self.last: list[str] = []
        self._quiet = quiet

    def add(self, messages: list[str]) -> None:
        """Keep the last ones."""
        self.last = [*self.last, *messages][-live_view.MOST_MESSAGES :]

    def say(self) -> None:
        """Say them on standard error."""
        for message in () if self._quiet else self.last:
            say(message)


class Handover:
    """What the loop hands over to the view with a keyboard, which runs in another thread."""

    def __init__(self, options: Options) -> None:
        """Nothing was shown yet."""
        self.newest: Interval | None = None
        """The last interval: it is frozen, so the app may read it while the loop makes the next one."""
        self.messages = Messages(quiet=options.quiet)
        self.is_over = threading.Event()
        """The loop has ended."""
        self.source = options.source


class Screen(View):
    """Shows intervals until it is closed; the terminal is then as it was."""

    def __init__(self, options: Options) -> None:
        """Nothing is shown before it is entered."""
        self._options = options
        self._stack = ExitStack()
        self._messages = Messages(quiet=options.quiet)

    def __enter__(self) -> Self:
        """Take the terminal: another screen, and keys without Enter."""
        from rich.console import Console
        from rich.live import Live

        if sys.stdin.isatty():
            before = termios.tcgetattr(0)
            self._stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, before)
            tty.setcbreak(0)
        self._live = self._stack.enter_context(Live(console=Console(), screen=True, auto_refresh=False))
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back, and say there what was said on the screen."""
        self._stack.close()
        self._messages.say()

    def show(self, interval: Interval) -> None:
        """Show an interval."""
        self.note([*interval.written, *interval.problems])
        screen = live_view.render_screen(interval, self._options.source, self._messages.last)
        self._live.update(screen, refresh=True)

    def note(self, messages: list[str]) -> None:
        """Keep messages for the screen, and for its end."""
        self._messages.add(messages)

    def is_asked_to_end(self) -> bool:
        """Say whether q was pressed."""
        if not sys.stdin.isatty():
            return False
        asked = False
        while select.select([0], [], [], 0)[0] and (key := os.read(0, 1)):
            asked |= key in (b"q", b"Q")
        return asked
