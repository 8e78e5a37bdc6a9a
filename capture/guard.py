"""Keep one program, tcpdump, from outliving its caller. Run this file as a script with the program as arguments.

It starts the program and reads standard input, a pipe whose other end only the caller holds. `s` asks for statistics
(SIGUSR1), and the end of the pipe asks for an orderly stop (SIGINT). The kernel closes the pipe when the caller ends,
even if it was killed. PR_SET_PDEATHSIG is not enough: the kernel clears it when the program changes its user
(tcpdump -Z) or has file capabilities (prctl(2)).

The exit code is the program's, 128 plus the signal's number if a signal ended it, or 127 if it cannot be started.
"""

import contextlib
import os
import select
import signal
import sys

PATIENCE_S = 10.0
"""Longest time for the program to write its buffered packets."""


class _Stop(Exception):
    """A signal asks this process to end."""


def _asked(number: int, frame: object) -> None:
    raise _Stop


def _watch(process: int) -> None:
    """Return when the program has ended, or when it should end."""
    asked = select.poll()
    asked.register(process, select.POLLIN)
    asked.register(0, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in asked.poll()}
        if process in ready:
            return
        request = os.read(0, 64)
        if not request:
            return
        signal.pidfd_send_signal(process, signal.SIGUSR1)


def _end(process: int) -> None:
    """Stop the program, first with SIGINT, then with SIGKILL."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    for number, patience_s in ((signal.SIGINT, PATIENCE_S), (signal.SIGKILL, PATIENCE_S)):
        if ended.poll(0):
            return
        signal.pidfd_send_signal(process, number)
        if ended.poll(patience_s * 1000):
            return


def main(arguments: list[str]) -> int:
    """Run the program until it ends or the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _asked)
    null = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE]
    try:
        child = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=null, setsigdef=signals, setsigmask=[])
    except OSError as error:
        os.write(2, f"{arguments[0]}: {error.strerror}\n".encode())
        return 127
    process = os.pidfd_open(child)
    with contextlib.suppress(_Stop):
        _watch(process)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end(process)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
