"""A signal that did not come must not be taken for one: it would end a recording, or be sent to the user's command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from support import PATIENCE_S

from grpcdiag.capture import command, signals

MINE = {signal.SIGUSR1, signal.SIGUSR2}


@pytest.fixture(autouse=True)
def _blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, MINE)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send(number: int) -> None:
    """Send a signal to this thread: others do not block it."""
    signal.pthread_kill(threading.get_ident(), number)


def test_it_takes_the_signal_that_came() -> None:
    send(signal.SIGUSR2)
    came = signals.take(MINE, PATIENCE_S)
    assert came is not None and came.si_signo == signal.SIGUSR2 and came.si_pid == os.getpid()
    assert signals.take(MINE, 0) is None


def test_an_interruption_that_outlasts_the_time_is_no_signal() -> None:
    """`signal.sigtimedwait` of CPython 3.11 returns the signal before once more here."""
    send(signal.SIGUSR1)
    assert signals.take(MINE, PATIENCE_S) is not None
    handled = threading.Event()

    def outlast(number: int, frame: object) -> None:
        threading.Event().wait(0.2)
        handled.set()

    before = signal.signal(signal.SIGALRM, outlast)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert signals.take(MINE, 0.1) is None
        assert handled.wait(PATIENCE_S)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_it_returns_when_the_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        ended = os.pidfd_open(child.pid)
        try:
            assert signals.take(MINE, 2 * PATIENCE_S, ended) is None
            assert child.wait(0) == 0
        finally:
            os.close(ended)


def test_a_command_that_is_gone_before_it_can_be_watched_ends_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process ignores SIGCHLD, the kernel forgets a child at its end."""

    def find_none(process: int) -> int:
        raise ProcessLookupError

    monkeypatch.setattr(os, "pidfd_open", find_none)
    running = command.Command([sys.executable, "-c", "raise SystemExit(3)"], None)
    try:
        assert running.wait(lambda: None) == 3
    finally:
        running.release()
