"""The command `grpcdiag`."""

from __future__ import annotations

import gc
import os
import sys

from . import streams

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as shells have it."""


def main() -> None:
    """Run the command line; exit codes are those of `grpcdiag --help`."""
    streams.prepare()
    try:
        try:
            _answer()
        finally:
            sys.stdout.flush()  # what cannot be written shows here at the latest
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _reader_has_gone()
    except streams.StandardOutputError as error:
        _cannot_write(f"cannot write standard output: {error.strerror}")
    except OSError as error:
        _cannot_write(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # for which typer has an exit code of its own
            _reader_has_gone()
        raise
    finally:
        _end_as_it_is()
        if "duckdb" not in sys.modules:  # which complains about what is left
            gc.freeze()  # nor at the end


def _answer() -> None:
    if sys.argv[1:] == ["--version"]:
        from .analyzer import _core  # without the command line's libraries, which take longer than the answer

        print(f"grpcdiag {_core.__version__}")
        return
    _run()


def _cannot_write(text: str) -> None:
    streams.forget_output()
    streams.complain(text)
    sys.exit(streams.CANNOT_WRITE)


def _reader_has_gone() -> None:
    """As in `grpcdiag ... | head`: nothing more to say, and nothing to complain about."""
    streams.forget_output()
    sys.exit(0)


def _end_as_it_is() -> None:
    """Ctrl-C comes too late when everything is done: it would change the exit code of what is whole."""
    signal = sys.modules.get("signal")  # not yet there: nothing has taken long
    if signal is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run() -> None:
    # a command is one pass: what it makes goes with the process, and looking for cycles takes time from the start
    gc.disable()
    # numpy's linear algebra is not used: without this its threads wait beside ours, spinning
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    asked = _heed_requests_to_end()
    try:
        from .ahead import read_ahead

        read_ahead(sys.argv[1:])
        from .cli import of_arguments

        of_arguments(sys.argv[1:])()
    except BaseException as end:
        if not _is_interruption(end):
            raise
        sys.exit(128 + asked[0] if asked else INTERRUPTED)


def _is_interruption(end: BaseException) -> bool:
    """Ctrl-C, or what became of it: typer's exit code, a panic of a library into which it was raised."""
    if isinstance(end, SystemExit):
        return end.code == INTERRUPTED
    return isinstance(end, KeyboardInterrupt) or (
        type(end).__name__ == "PanicException" and "KeyboardInterrupt" in str(end)
    )


def _heed_requests_to_end() -> list[int]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does, which leaves nothing unfinished behind; gives those that came.

    Python's own handlers wait for the main thread to come back from libraries. A thread does not, and what it sends is
    heard by libraries, too. Where a command has handlers of its own, it does nothing.
    """
    import signal
    import threading

    asked: list[int] = []

    def noted(_number: int, _frame: object) -> None:
        pass

    def watch(heard: int) -> None:
        while told := os.read(heard, 1):
            if signal.getsignal(told[0]) is noted:
                asked.append(told[0])
                os.kill(os.getpid(), signal.SIGINT)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]  # nohup ignores it
    if numbers:
        heard, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, noted)
        # the thread blocks all signals: one that it took would be lost to who waits for signals in the main thread
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=watch, args=(heard,), name="grpcdiag-signals", daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return asked


if __name__ == "__main__":
    main()
