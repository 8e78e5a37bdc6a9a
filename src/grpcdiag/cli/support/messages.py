"""Messages on standard error, and errors with their exit codes."""

import sys
from contextlib import suppress
from typing import NoReturn

UNREADABLE = 3
"""Exit code: the input cannot be read or is not a capture."""


def say(message: str) -> None:
    """Print a message on standard error; control characters in names of files are escaped."""
    from ...analyzer.model.text import safe

    with suppress(OSError):  # a message that cannot be written changes no exit code
        print("\n".join(safe(line) for line in f"grpcdiag: {message}".split("\n")), file=sys.stderr, flush=True)


def fail(message: str, code: int) -> NoReturn:
    """Print an error on standard error and exit."""
    say(message)
    raise SystemExit(code)


def suggest(name: str, known: list[str], otherwise: str = "") -> str:
    """Name those among the known names that somebody may have meant; otherwise all, or say where they are listed."""
    from difflib import get_close_matches

    near = [one for one in known if name and name in one] or get_close_matches(name, known)
    return f"did you mean {' or '.join(near[:3])}?" if near else otherwise or f"known: {', '.join(known)}"
