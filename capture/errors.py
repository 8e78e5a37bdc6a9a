"""What a recording can fail with before its command has run."""

from __future__ import annotations


class RecordingError(Exception):
    """Nothing can be recorded here; the message says why and what to do."""


class UsageError(RecordingError):
    """What was asked for is wrong: a filter, an interface, a size, a user."""


class CommandError(RecordingError):
    """The command cannot be started; `code` is what a shell would return for it."""

    def __init__(self, message: str, code: int) -> None:
        """`code` is 127 for a command that is not there, 126 for one that cannot be run (POSIX 2.8.2)."""
        super().__init__(message)
        self.code = code
