"""Reading, progress, output, and errors with their exit codes, shared by all commands."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, TypeVar

from ...interruption import Unfinished, scratch
from ...streams import OutputReaderGone, is_reader_gone
from .config import apply_config
from .keylog import read_secrets
from .labels import read_labels
from .messages import UNREADABLE as UNREADABLE
from .messages import fail as fail
from .messages import say as say
from .messages import suggest as suggest

if TYPE_CHECKING:
    from ...analyzer.decode.errors import NoGrpcError
    from ...analyzer.decode.runner import DecodeOptions
    from ...analyzer.model.analysis import Analysis
    from .options import ReadOptions

_Drawn = TypeVar("_Drawn", bound=AbstractContextManager[Any])

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")

NO_GRPC = 4
"""Exit code: no gRPC traffic found."""

SLOW_S = 0.4
"""Seconds of reading after which a progress bar appears; most files take less."""


SPILL = 16_384
"""Durations of a method kept in memory under `--memory`; the others are in a temporary file."""


def how(files: Sequence[str], read: ReadOptions, *, show_messages: bool = False) -> DecodeOptions:
    """Collect the options for decoding captures; an unreadable key log or file of labels ends the command.

    The configuration file says what the command line does not.
    """
    config = apply_config()
    chosen: DecodeOptions = {"ports": read.port or list(config.settings.ports)}
    if read.labels:
        chosen["labels"] = list(read_labels(read.labels))
    if show_messages:
        chosen["errors"] = True
    if read.memory is not None:
        chosen["memory"] = read.memory
        chosen["spill"] = SPILL
        atexit.unregister(_report_memory)
        atexit.register(_report_memory, read.memory)
    if secrets := read_secrets(files, read.keylog, config):
        chosen["keylog"] = secrets
    return chosen


def _report_memory(allowed: int) -> None:
    """Report when the command used more memory than allowed, as the operating system counts it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # not on every system
        return
    taken = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    if taken > allowed:
        say(f"--memory: {taken / 1e6:,.0f} MB were used, more than the {allowed / 1e6:,.0f} MB allowed")


@contextmanager
def decoding() -> Iterator[None]:
    """Turn what decoding raises into messages and exit codes."""
    from ...analyzer.decode.errors import CaptureError, MemoryLimitError, NoGrpcError, SpillError

    try:
        yield
    except CaptureError as error:
        why, number, _ = str(error).partition(" (os error ")
        is_folder = number and Path(why.partition(": ")[0]).is_dir()
        fail(f"{why}: name its captures, or use grpcdiag fleet analyze" if is_folder else why, UNREADABLE)
    except NoGrpcError as error:
        fail(f"no gRPC traffic found: {error}", NO_GRPC)
    except MemoryLimitError as error:
        fail(f"--memory is too small for this command and capture: {error}", 2)
    except SpillError as error:
        fail(f"cannot write temporary files: {error}; TMPDIR sets their folder", 2)
    except UnicodeEncodeError:
        fail("the name of a file is not UTF-8: rename it, or pipe the capture to standard input (-)", UNREADABLE)


def has_content(analysis: Analysis | None) -> TypeGuard[Analysis]:
    """Say whether a report of a capture without RPCs has something to show."""
    return bool(analysis and (analysis.tls or analysis.findings or analysis.other_requests or analysis.client))


def fail_without_rpcs(error: NoGrpcError) -> NoReturn:
    """Exit after the report of a capture without RPCs, and say why it has none."""
    if error.analysis is None or error.analysis.tls is None:
        fail(f"no gRPC traffic found: {error}", NO_GRPC)
    text = "the connections that offer HTTP/2 are encrypted with TLS, and the secrets are missing; "
    fail(f"no gRPC traffic found: {text}the report has what is visible without them", NO_GRPC)


@contextmanager
def writing(what: object, advice: str = "") -> Iterator[None]:
    """Turn an error of writing into a message and an exit code."""
    try:
        yield
    except OSError as error:
        if is_reader_gone(error, what):
            raise OutputReaderGone(error.errno, error.strerror) from None
        fail(f"cannot write {what}: {error.strerror or error}{advice}", 2)


def require_parquet() -> None:
    """End the command if this build of the core leaves out what writes Parquet."""
    from ...reports.tables.writing import can_write_parquet

    if not can_write_parquet():
        fail("this quick build cannot write Parquet: choose another --format, or run `make dev` first", 2)


def refuse_own_input(output: Path | None, files: Sequence[str]) -> None:
    """End the command if its output is a folder or one of the captures that it reads."""
    if output is None:
        return
    if output.is_dir() or any(output.exists() and Path(file).exists() and output.samefile(file) for file in files):
        fail(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'the capture itself'}", 2)


def refuse_mixed_input(files: Sequence[str]) -> None:
    """End the command if standard input is given together with files."""
    if "-" in files and len(files) > 1:
        fail("standard input (-) is one capture: give it alone, or name all files", 2)


def temporary_files() -> AbstractContextManager[None]:
    """Turn an error of temporary files into a message and an exit code."""
    return writing("temporary files", "; TMPDIR sets their folder")


@contextmanager
def spooled(files: list[str]) -> Iterator[list[str]]:
    """Copy standard input to a file, for captures that are read several times."""
    if "-" not in files:
        yield files
        return
    with ExitStack() as stack:
        with temporary_files():
            folder = stack.enter_context(scratch("grpcdiag-"))
            from shutil import copyfileobj

            with (folder / "standard-input").open("wb") as file:
                copyfileobj(sys.stdin.buffer, file)
        yield [file.name if path == "-" else path for path in files]


def one_place(files: list[str], chosen: DecodeOptions) -> None:
    """End the command if its files are captures of the same connections at two places."""
    if len(files) < 2:
        return
    from ...analyzer.two_captures import vantages

    places = vantages(files, **chosen)
    if len(places) > 1:
        names = " and ".join(place[0] for place in places[:2])
        fail(f"{names} are captures of the same connections at two places: give one (analyze and rpcs take both)", 2)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """Show a progress bar for long files if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with _shown:
        yield _Bar(_shown)


_shown = ExitStack()
"""The progress bar, if one is drawn."""


def end_progress() -> None:
    """Take the progress bar away before something is shown in its place."""
    _shown.close()


@contextmanager
def busy(quiet: bool, what: str) -> Iterator[None]:
    """Show that work without measurable progress is going on if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with drawn(Console(stderr=True).status(what)):
        yield


@contextmanager
def drawn(bar: _Drawn) -> Iterator[_Drawn]:
    """Draw a bar on standard error for the block; a signal clears its line and shows the cursor again."""
    with Unfinished(lambda: bar, lambda _: os.write(2, b"\r\x1b[2K\x1b[?25h"), only_for_signals=True), bar:
        yield bar


class _Bar:
    """Draws the progress of reading, with the rate and the time left, once reading has taken a while."""

    def __init__(self, shown: ExitStack) -> None:
        self._shown = shown
        self._began = monotonic()
        self._draw: Callable[[int, int | None], None] | None = None

    def __call__(self, read: int, total: int | None) -> None:
        if self._draw is None:
            if monotonic() - self._began < SLOW_S:
                return
            self._draw = self._start_drawing(read, total)
        self._draw(read, total)

    def _start_drawing(self, read: int, total: int | None) -> Callable[[int, int | None], None]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("reading"),
            BarColumn(),
            TextColumn("{task.fields[share]:>4}"),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[left]}"),
        )
        bar = Progress(*columns, console=Console(stderr=True), transient=True, get_time=monotonic)
        self._shown.enter_context(drawn(bar))

        def update(read: int, total: int | None) -> None:
            share = f"{100 * min(read, total) // total}%" if total else ""
            bar.update(task, completed=read, total=total, share=share, left="left" if total else "")

        task = bar.add_task("reading", completed=read, total=total, share="", left="")
        # the bar counts from the start of reading, so rate and time left are known immediately
        bar.tasks[0].start_time = self._began
        return update


def write(text: str | Iterable[str], output: Path | None) -> None:
    """Write a report, or its pieces, to a file or to standard output; exit if the file cannot be written."""
    pieces = (text,) if isinstance(text, str) else text
    if output is None:
        for piece in pieces:
            sys.stdout.write(piece if shows_unicode() else plain(piece))
        sys.stdout.flush()
        return
    from ...files.atomic_file import replacing

    with writing(output), replacing(output) as out:
        out.writelines(piece.encode() for piece in pieces)


def write_pieces(pieces: Iterable[bytes], output: Path | None) -> int:
    """Write bytes to a file or to standard output, and return their number; exit if the file cannot be written."""
    if output is None:
        size = sum(sys.stdout.buffer.write(piece) for piece in pieces)
        sys.stdout.buffer.flush()
        return size
    from ...files.atomic_file import replacing

    with writing(output), replacing(output) as out:
        return sum(out.write(piece) for piece in pieces)


def shows_unicode() -> bool:
    """Say whether standard output accepts characters beyond ASCII and, if it is a terminal, can show them."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "").replace("_", "")
    if not encoding.startswith("utf"):
        return False
    if not sys.stdout.isatty() or "PYTHONIOENCODING" in os.environ:
        return True
    # in the locale C, Python writes UTF-8 and sets LC_CTYPE (PEP 538, 540), but the terminal may not show it
    own = os.environ.get("LC_CTYPE", "")
    named = os.environ.get("LC_ALL") or (own if own not in _COERCED else "") or os.environ.get("LANG", "")
    return named not in ("C", "POSIX")


def plain(text: str) -> str:
    """Convert a text to ASCII."""
    from ...reports.shared.text import ascii_only

    return ascii_only(text)
