"""Wait for signals that this process has blocked."""

import select
import signal
import time
from collections.abc import Collection

STEP_S = 0.05
"""Longest time after which a signal is seen."""


def take(numbers: Collection[int], within_s: float, process: int | None = None) -> signal.struct_siginfo | None:
    """Take a signal that is blocked here; None when the time is over, or when a process (a pidfd) has ended.

    `signal.sigtimedwait` alone may say that a signal came where none did: CPython 3.11 returns what was on the stack
    if the wait was interrupted and the time is over then (signalmodule.c). Without a time it is never interrupted.
    """
    ended = select.poll()
    if process is not None:
        ended.register(process, select.POLLIN)
    until = time.monotonic() + within_s
    while (came := signal.sigtimedwait(numbers, 0)) is None:
        left_s = min(until - time.monotonic(), STEP_S)
        if left_s <= 0 or ended.poll(left_s * 1000):
            break
    return came
