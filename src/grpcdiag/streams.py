"""Standard streams: what cannot be written to them is one message and an exit code, wherever it comes to light."""

import io
import os
import sys

CANNOT_WRITE = 2
"""Exit code: output cannot be written."""


class StandardOutputError(OSError):
    """Standard output cannot be written."""


class OutputReaderGone(BrokenPipeError):
    """The reader of standard output has ended, as in `grpcdiag ... | head`: that is no error."""


class _StandardOutput(io.FileIO):
    """Standard output, whose errors can be told from those of other files."""

    def write(self, data: bytes, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise OutputReaderGone(error.errno, error.strerror) from None
        except OSError as error:
            raise StandardOutputError(error.errno, error.strerror) from None


def prepare() -> None:
    """Take the place of streams that were closed, so that no file gets their numbers, and know errors of output."""
    if sys.platform == "win32":  # whose console takes text, not bytes
        return
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    for number in closed:
        flags = os.O_WRONLY if number == 2 else os.O_RDONLY  # writing to standard output fails, as it should
        other = os.open(os.devnull, flags)
        if other == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(other, number)
            os.close(other)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    old = sys.stdout
    raw: io.RawIOBase = _StandardOutput(1, "wb", closefd=False)
    buffered = io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(
        buffered,
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else None,
        line_buffering=old.line_buffering if isinstance(old, io.TextIOWrapper) else False,
        write_through=old.write_through if isinstance(old, io.TextIOWrapper) else False,
    )


def is_reader_gone(error: OSError, path: object = None) -> bool:
    """Check whether an error says that the reader of standard output has ended; `path` may be standard output, too."""
    if sys.platform == "win32" or not isinstance(error, BrokenPipeError):  # Windows has no `_StandardOutput`
        return isinstance(error, BrokenPipeError)
    return isinstance(error, OutputReaderGone) or (path is not None and _is_output(path))


def _is_output(path: object) -> bool:
    """Check whether a path, such as /dev/stdout, is standard output."""
    try:
        return os.path.samestat(os.stat(str(path)), os.fstat(1))  # noqa: PTH116
    except OSError:
        return False


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def forget_output() -> None:
    """Let what waits for standard output go nowhere, so that the interpreter's end does not complain about it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def complain(text: str) -> None:
    """Write a message on standard error, if that can be written."""
    from contextlib import suppress

    with suppress(OSError, AttributeError):
        print(f"grpcdiag: {text}", file=sys.stderr, flush=True)
