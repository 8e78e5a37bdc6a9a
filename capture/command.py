"""The command that is recorded: started as its user, its terminal untouched, its signals its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from .errors import CommandError, UsageError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are the command's when somebody sends them to this process."""
_FROM_KERNEL = 0x80
"""si_code of a signal that the terminal sends, to the command as well (SI_KERNEL, asm-generic/siginfo.h)."""
TICK_S = 0.2
"""How often the caller is called while the command runs."""


def choose_user(named: str | None) -> pwd.struct_passwd | None:
    """Whom the command shall run as; None for whoever runs this.

    Under sudo, doas or pkexec that is the user who called it: recording needs rights, the command does not.
    Raises UsageError.
    """
    if os.geteuid() != 0:
        if named and named not in (_me(), str(os.geteuid())):
            raise UsageError(f"--user {named}: only root may run a command as somebody else")
        return None
    caller = named or os.environ.get("SUDO_USER") or os.environ.get("DOAS_USER") or os.environ.get("PKEXEC_UID")
    if not caller:
        return None
    try:
        user = pwd.getpwuid(int(caller)) if caller.isdigit() else pwd.getpwnam(caller)
    except KeyError:
        raise UsageError(f"--user {caller}: no user is called that") from None
    return None if user.pw_uid == 0 else user


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user need not have a name
        return ""


def locate(name: str) -> None:
    """Raises CommandError for a command that cannot be started."""
    if shutil.which(name) is None:
        if os.path.exists(name) and os.sep in name:  # noqa: PTH110
            raise CommandError(f"{name}: it cannot be executed", 126)
        raise CommandError(f"{name}: no command is called that", 127)


class Command:
    """A running command. Between its start and its end the main thread takes signals here, and nowhere else."""

    def __init__(self, arguments: Sequence[str], user: pwd.struct_passwd | None, stdout: int | None = None) -> None:
        """Start it in this process's group, so that the terminal's keys reach it. Raises CommandError."""
        # who started us with a signal ignored, as nohup does, wants it ignored in the command too
        self._mine = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._early: list[int] = []
        self._before = {number: signal.signal(number, self._note) for number in self._mine}
        try:
            self._process = subprocess.Popen(list(arguments), stdout=stdout, **identity(user))
        except OSError as error:
            self.release()
            code = 127 if isinstance(error, FileNotFoundError) else 126
            raise CommandError(f"{arguments[0]}: {error.strerror}", code) from None
        self.pid = self._process.pid
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._mine, signal.SIGCHLD})

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._early.append(number)

    def wait(self, tick: Callable[[], None]) -> int:
        """Wait for its end and return its exit code, 128 and the signal's number when a signal ended it.

        Signals that were sent to this process alone are passed on; those of the terminal it has got itself.
        """
        for number in self._early:
            if number not in (signal.SIGINT, signal.SIGQUIT):
                self._process.send_signal(number)
        while self._process.poll() is None:
            came = signal.sigtimedwait({*self._mine, signal.SIGCHLD}, TICK_S)
            if came is not None and came.si_signo != signal.SIGCHLD and came.si_code != _FROM_KERNEL:
                self._process.send_signal(came.si_signo)
            tick()
        code: int = self._process.returncode
        return code if code >= 0 else 128 - code

    def interrupted(self, within_s: float) -> bool:
        """Whether somebody asks this process to hurry up, now that the command has ended."""
        came = signal.sigtimedwait(self._mine, within_s) if self._mine else None
        return came is not None

    def release(self) -> None:
        """Take signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if hasattr(self, "_blocked"):
            signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)


def identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments of Popen that make a program run as a user, with nothing of root left."""
    if user is None:
        return {}
    environment = {**os.environ, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups, "env": environment}
