"""Keep one program, tcpdump, from outliving its caller. Run this file as a script with the program as arguments.

It starts the program and reads standard input, a pipe whose other end only the caller holds. `s` asks for statistics
(SIGUSR1), and the end of the pipe asks for an orderly stop (SIGINT). The kernel closes the pipe when the caller ends,
even if it was killed. PR_SET_PDEATHSIG is not enough: the kernel clears it when the program changes its user
(tcpdump -Z) or has file capabilities (prctl(2)).

With `--flush` as the first argument, tcpdump's output is flushed five times a second (SIGUSR2) instead of after each
packet (-U), which takes half of its processor time. Where that is not possible, tcpdump is started again with -U.

The exit code is the program's, 128 plus the signal's number if a signal ended it, or 127 if it cannot be started.
"""

import contextlib
import os
import select
import signal
import sys
import time

PATIENCE_S = 10.0
"""Longest time for the program to write its buffered packets."""
FLUSH_S = 0.2
"""Time between two flushes: `watch` takes every packet to be there that is 1.5 s old, and the kernel may keep 1 s."""
_SETTLE_MS = 5
_STOP_S = 0.05
"""Longest time that the program may take to stop."""


class _Stop(Exception):
    """A signal asks this process to end."""


def _asked(number: int, frame: object) -> None:
    raise _Stop


def _start(arguments: list[str]) -> tuple[int, int]:
    """Start the program, and give its number and a descriptor of it. Raises OSError."""
    null = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE]
    child = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=null, setsigdef=signals, setsigmask=[])
    return child, os.pidfd_open(child)


def _expect(process: int, *, asked: bool = True) -> select.poll:
    """Make what waits for the program's end and for that of the caller, or until it is `asked` for something."""
    events = select.poll()
    events.register(process, select.POLLIN)
    events.register(0, select.POLLIN if asked else 0)  # the end of a pipe is told in any case
    return events


def _watch(child: int, process: int, *, flushes: bool) -> None:
    """Return when the program has ended, or when it should end."""
    asked = _expect(process)
    while True:
        ready = {descriptor for descriptor, _ in asked.poll(FLUSH_S * 1000 if flushes else None)}
        if process in ready:
            return
        if flushes:
            _flush(child)
        if 0 in ready:
            if not os.read(0, 64):
                return
            signal.pidfd_send_signal(process, signal.SIGUSR1)


def _can_flush(child: int, process: int) -> bool:
    """Wait until tcpdump handles signals, which is before it listens; say whether its output can be flushed."""
    ended, before = _expect(process, asked=False), 0
    while not ended.poll(_SETTLE_MS):
        caught = _read_bits(child, "SigCgt:")
        if caught is None:
            return False
        if before >> (signal.SIGUSR1 - 1) & 1:  # it sets both, one directly after the other
            with contextlib.suppress(OSError):
                os.kill(child, 0)
                return bool(caught >> (signal.SIGUSR2 - 1) & 1 and _read(child, "syscall"))
            return False
        before = caught
    return True


def _read_bits(process: int | str, name: str) -> int | None:
    """Read a set of a process from its status; None where that is not allowed."""
    with contextlib.suppress(OSError, IndexError):
        return int(_read(process, "status").partition(name)[2].split()[0], 16)
    return None


_CAP_KILL, _CAP_SYS_PTRACE = 5, 19


def _has_rights() -> bool:
    """Check whether root has what it needs to stop and watch tcpdump of another user (capabilities(7))."""
    granted = _read_bits("self", "CapEff:") or 0
    return os.geteuid() != 0 or bool(granted >> _CAP_KILL & granted >> _CAP_SYS_PTRACE & 1)


def _read(child: int | str, name: str) -> str:
    found = os.open(f"/proc/{child}/{name}", os.O_RDONLY)
    try:
        return os.read(found, 1 << 14).decode("ascii", "replace")
    finally:
        os.close(found)


def _flush(child: int) -> None:
    """Let tcpdump write what it has buffered, unless it is about to write a packet: the next time will do then.

    Its handler of SIGUSR2 must not run while it writes a packet: both change the same buffer. So it is stopped, and
    gets the signal only in a system call that does not write there (whose first argument is not 1).
    """
    try:
        os.kill(child, signal.SIGSTOP)
        until = time.monotonic() + _STOP_S
        while not os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG):
            if time.monotonic() > until:  # its cgroup is frozen
                return
            time.sleep(_STOP_S / 100)
        with contextlib.suppress(OSError):
            number, *words = _read(child, "syscall").split()
            if number.isdigit() and words[0] != "0x1":
                os.kill(child, signal.SIGUSR2)
    finally:
        os.kill(child, signal.SIGCONT)


def _end(process: int) -> None:
    """Stop the program, first with SIGINT, then with SIGKILL."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    for number, patience_s in ((signal.SIGINT, PATIENCE_S), (signal.SIGKILL, PATIENCE_S)):
        if ended.poll(0):
            return
        signal.pidfd_send_signal(process, number)
        signal.pidfd_send_signal(process, signal.SIGCONT)  # a flush may have been interrupted
        if ended.poll(patience_s * 1000):
            return


def _write_at_once(line: list[str]) -> list[str]:
    """Let tcpdump write each packet at once; the option comes before `-- EXPRESSION`."""
    return [*line[:-2], "-U", *line[-2:]]


def main(arguments: list[str]) -> int:
    """Run the program until it ends or the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _asked)
    flushes = arguments[0] == "--flush"
    line = arguments[flushes:]
    if flushes and not _has_rights():
        flushes, line = False, _write_at_once(line)
    try:
        child, process = _start(line)
    except OSError as error:
        os.write(2, f"{line[0]}: {error.strerror}\n".encode())
        return 127
    with contextlib.suppress(_Stop):
        if flushes and not _can_flush(child, process):
            flushes = False
            os.kill(child, signal.SIGKILL)  # it has written nothing yet
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            child, process = _start(_write_at_once(line))
        _watch(child, process, flushes=flushes)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end(process)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
