"""Errors of a recording before its command has run."""


class RecordingError(Exception):
    """Recording is impossible here; the message says why and what to do."""


class UsageError(RecordingError):
    """An option is wrong: a filter, an interface, a size, a user."""


class CommandError(RecordingError):
    """The command cannot be started; `code` is the exit code that a shell would return."""

    def __init__(self, message: str, code: int) -> None:
        """Store `code`: 127 for a command that does not exist, 126 for one that cannot be run (POSIX 2.8.2)."""
        super().__init__(message)
        self.code = code
