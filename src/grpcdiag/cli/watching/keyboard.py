"""The view with a keyboard: it shows the newest interval of the loop, which runs in a thread beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from ...analyzer.live.interval import Interval
from ...capture.tcpdump import start_deaf
from .options import Options
from .screen import DrawCall, Handover, View
from .terminal_app import WatchApp

END_PATIENCE_S = 30.0
"""Longest time for the loop to write what is due once the user wants to end it."""


class Keyboard(View):
    """Hands intervals over to the app, and its wish to end to the loop."""

    def __init__(self, options: Options) -> None:
        """Nothing is shown before the loop runs."""
        self._handover = Handover(options)
        self._asked = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Take nothing yet: the app takes the terminal when it runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Say what was said on the screen, which is gone."""
        self._handover.messages.say()

    def show(self, interval: Interval) -> None:
        """Hand an interval over."""
        self.note([*interval.written, *interval.problems])
        self._handover.newest = interval

    def note(self, messages: list[str]) -> None:
        """Keep messages for the screen, and for its end."""
        self._handover.messages.add(messages)

    def is_asked_to_end(self) -> bool:
        """Say whether the user has left the app, or a signal has ended it."""
        return self._asked.is_set()

    def run(self, loop: Callable[[], None], draw_call: DrawCall) -> None:
        """Run the app until the user or the loop ends. Raises what the loop raises; Ctrl-C interrupts."""
        thread = threading.Thread(target=self._run, args=(loop,), name="grpcdiag-watch", daemon=True)
        start_deaf(thread)  # signals are for the app
        app = WatchApp(self._handover, draw_call)
        try:
            app.run()
        finally:
            self._asked.set()
            thread.join(END_PATIENCE_S)
        if self._error:
            raise self._error
        if app.is_interrupted:
            raise KeyboardInterrupt

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # it is raised in the main thread, once the terminal is as before
            self._error = error
        self._handover.is_over.set()
