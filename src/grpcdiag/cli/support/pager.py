"""Show long output through a pager, as git does."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from .common import fail

PAGER = "less"
"""Unless the environment variable PAGER names another."""
OPTIONS = "FRX"
"""Unless LESS has others: show colours, end after one screen, and leave the text there."""


_NOT_STARTED = (126, 127)
"""Exit codes of a shell that cannot start a command."""


@contextmanager
def paged() -> Iterator[IO[bytes]]:
    """Give a file whose text the pager shows; standard output if PAGER is empty or `cat`, or there is no `less`.

    Ctrl-C is for the pager meanwhile. A pager that is left early is no error.
    """
    command = os.environ.get("PAGER", shutil.which(PAGER) or "")
    if command in ("", "cat"):
        yield sys.stdout.buffer
        return
    sys.stdout.flush()
    environment = {"LESS": OPTIONS} | dict(os.environ)
    # PAGER is a command line for the user's shell (environ(7))
    process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
    assert process.stdin
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError), process.stdin as out:
            yield out
        if process.wait() in _NOT_STARTED:
            fail(f"the pager {command!r} cannot be started: set PAGER, or PAGER=cat for none", 2)
    finally:
        signal.signal(signal.SIGINT, before)
