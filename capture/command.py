"""Run the recorded command as its user, with its own terminal and signals."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from . import signals
from .errors import CommandError, UsageError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals to this process that are forwarded to the command."""
_FROM_KERNEL = 0x80
"""si_code of a signal from the terminal, which the command gets too (SI_KERNEL, asm-generic/siginfo.h)."""
TICK_S = 0.2
"""Time between two calls of the caller's function while the command runs."""


def choose_user(named: str | None) -> pwd.struct_passwd | None:
    """Choose the user of the command; None for the present user.

    Under sudo, doas or pkexec it is the caller: only recording needs root's rights. Raises UsageError.
    """
    if os.geteuid() != 0:
        if named and named not in (_find_own_name(), str(os.geteuid())):
            raise UsageError(f"--user {named}: only root may run a command as another user")
        return None
    callers = {os.environ[name] for name in ("SUDO_USER", "DOAS_USER", "PKEXEC_UID") if os.environ.get(name)}
    if not named and len(callers) > 1:
        raise UsageError("SUDO_USER, DOAS_USER and PKEXEC_UID name different callers: give --user")
    caller = named or next(iter(callers), None)
    if not caller:
        return None
    try:
        user = pwd.getpwuid(int(caller)) if caller.isdigit() else pwd.getpwnam(caller)
    except KeyError:
        raise UsageError(f"--user {caller}: no user has this name") from None
    return None if user.pw_uid == 0 else user


def _find_own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # users in containers may have no name
        return ""


def locate(name: str) -> None:
    """Check that a command can be started. Raises CommandError."""
    if shutil.which(name) is None:
        if os.path.exists(name) and os.sep in name:  # noqa: PTH110
            raise CommandError(f"{name}: cannot be executed", 126)
        raise CommandError(f"{name}: command not found", 127)


class Command:
    """A running command. While it runs, only this class handles the signals of the main thread."""

    def __init__(
        self,
        arguments: Sequence[str],
        user: pwd.struct_passwd | None,
        stdout: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command in this process's group, so that the terminal's keys reach it. Raises CommandError.

        `variables` are added to its environment.
        """
        # a signal that is ignored here, as under nohup, must stay ignored in the command
        self._mine = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._early: list[int] = []
        self._before = {number: signal.signal(number, self._note) for number in self._mine}
        try:
            options = identity(user)
            options["env"] = {**options.get("env", os.environ), **(variables or {})}
            self._process = subprocess.Popen(list(arguments), stdout=stdout, **options)
        except OSError as error:
            self.release()
            code = 127 if isinstance(error, FileNotFoundError) else 126
            raise CommandError(f"{arguments[0]}: {error.strerror}", code) from None
        self.pid = self._process.pid
        self._ended: int | None = None
        with contextlib.suppress(OSError):  # it may have ended, where this process ignores the ends of its children
            self._ended = os.pidfd_open(self.pid)
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, self._mine)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._early.append(number)

    def wait(self, tick: Callable[[], None]) -> int:
        """Wait for the end and return the exit code, or 128 plus the signal's number if a signal ended the command.

        Signals sent only to this process are forwarded; those of the terminal reach the command directly.
        """
        for number in self._early:
            if number not in (signal.SIGINT, signal.SIGQUIT):
                self._process.send_signal(number)
        while self._process.poll() is None:
            came = signals.take(self._mine, TICK_S, self._ended)
            if came is not None and came.si_code != _FROM_KERNEL:
                self._process.send_signal(came.si_signo)
            tick()
        code: int = self._process.returncode
        return code if code >= 0 else 128 - code

    def interrupted(self, within_s: float) -> bool:
        """Say whether a signal asks this process to finish early after the command has ended."""
        return signals.take(self._mine, within_s) is not None

    def release(self) -> None:
        """Restore the signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if hasattr(self, "_blocked"):
            if self._ended is not None:
                os.close(self._ended)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)


def identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Build the arguments of Popen that run a program as a user without any of root's rights."""
    if user is None:
        return {}
    environment = {**os.environ, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups, "env": environment}
