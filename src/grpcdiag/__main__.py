"""The command `grpcdiag`."""

from __future__ import annotations

import gc
import os
import sys

from . import interruption, streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


_ARENA_MAX = -8
"""M_ARENA_MAX in glibc's malloc.h."""


def main() -> NoReturn:
    """Run the command line and end the process; exit codes are those of `grpcdiag --help`."""
    if sys.argv[1:2] == ["scrub"] and sys.platform == "linux":
        _share_freed_memory()
    streams.prepare()  # before files are opened, which would get the numbers of streams that are closed
    interruption.heed_signals()
    interruption.leave(run())


def _share_freed_memory() -> None:
    """Let all threads use what one of them freed; glibc keeps it for that thread (mallopt(3), M_ARENA_MAX).

    `scrub` reads a capture many times, each time with threads of its own. Threads that exist have their memory already.
    """
    import ctypes

    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_ARENA_MAX, 1)


def run() -> int:
    """Run the command line and give its exit code."""
    try:
        try:
            _answer()
        finally:
            sys.stdout.flush()  # what cannot be written shows here at the latest
    except OSError as error:
        return _report(error)
    except SystemExit as end:
        if end.code == 1 and isinstance(end.__context__, BrokenPipeError):  # as typer ends for any of them
            return _report(end.__context__)
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _answer() -> None:
    if sys.argv[1:] == ["--version"]:
        from .version import describe_version  # without the command line's libraries, which take longer than the answer

        print(describe_version())
        return
    # a command is one pass: what it makes goes with the process, and looking for cycles takes time from the start
    gc.disable()
    # numpy's linear algebra is not used: without this its threads wait beside ours, spinning
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not sys.warnoptions:  # a library's warning says nothing to who reads a report; -W and PYTHONWARNINGS show them
        import warnings

        warnings.simplefilter("ignore")
    from .cli import of_arguments

    of_arguments(sys.argv[1:])()


def _report(error: OSError) -> int:
    """Report an error of the system, unless only the reader of the output has ended; give the exit code."""
    if streams.is_reader_gone(error):
        return 0
    if isinstance(error, streams.StandardOutputError):
        streams.complain(f"cannot write standard output: {error.strerror}")
    else:
        streams.complain(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    return streams.CANNOT_WRITE


if __name__ == "__main__":
    main()
