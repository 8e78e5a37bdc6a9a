"""Commands whose terminal a test holds: what they show is read, and what a user types is written."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pytest
from support import PATIENCE_S

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\x08")


def _take_terminal() -> None:
    """Make standard input the controlling terminal of this session, so that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command in a session and on a terminal of its own.

    `subprocess` starts it: an error before the command runs is raised here, never in a copy of the test process.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.shown = ""
        self.leader, follower = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
        try:
            self.process = subprocess.Popen(
                command, start_new_session=True, preexec_fn=_take_terminal, **streams, **options
            )
        except BaseException:
            os.close(self.leader)
            raise
        finally:
            os.close(follower)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.leader)
        if kind is not None:
            self.process.kill()
        self.process.wait(PATIENCE_S)

    def type(self, text: str) -> None:
        """Write what a user types."""
        os.write(self.leader, text.encode())

    def read_until(self, pattern: str) -> str:
        """Return what was shown since the last call, up to and with the pattern; fail when the command ends before."""
        while not (found := re.search(pattern, self.shown)):
            if not select.select([self.leader], [], [], PATIENCE_S)[0]:
                pytest.fail(f"no {pattern!r} in {self.shown!r}")
            try:
                piece = os.read(self.leader, 4096)
            except OSError:  # the command has ended
                pytest.fail(f"no {pattern!r} in {self.shown!r}")
            self.shown = CONTROL.sub("", self.shown + piece.decode(errors="replace"))
        shown, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return shown
