"""What commands share: arguments, progress, errors with their exit codes."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from ...interruption import Unfinished, scratch

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions

_Drawn = TypeVar("_Drawn", bound=AbstractContextManager[Any])

_FROM_HELP = "Begin here: 1.5, 1.5s, 800ms after the first packet."
_UNITS = {"": 1_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")

WIDTH = 100
"""Columns of a report that no terminal shows, unless COLUMNS says otherwise."""

UNREADABLE = 3
"""Exit code: the input cannot be read or is no capture."""
NO_GRPC = 4
"""Exit code: no gRPC traffic found."""

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="pcap or pcapng, plain or compressed; - for standard input; "
        "several files of one rotated capture in any order; analyze and rpcs also take captures of both ends.",
    ),
]
Ports = Annotated[
    list[int] | None, typer.Option("--port", min=1, max=65535, help="Read this port as HTTP/2 whatever it looks like.")
]
KeyLog = Annotated[
    Path | None,
    typer.Option("--keylog", metavar="FILE", help="TLS secrets, as programs write them to SSLKEYLOGFILE."),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=lambda text: memory_size(text),
        help="Memory to stay below, such as 500M or 2GiB: what is more waits in temporary files (TMPDIR).",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages on standard error.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file, not to standard output.")]

From = Annotated[
    int | None,
    typer.Option("--from", metavar="TIME", parser=lambda text: nanoseconds(text), help=_FROM_HELP),
]
To = Annotated[
    int | None,
    typer.Option("--to", metavar="TIME", parser=lambda text: nanoseconds(text), help="End here, written the same way."),
]

Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="PATTERN",
        help="RPCs of this method: /package.Service/Method, a part of it, or a pattern with * and ?.",
    ),
]

SLOW_S = 0.4
"""Seconds of reading after which a progress bar is drawn; most files are read by then."""


LEAST_MEMORY = 200_000_000
"""The least that `--memory` takes, bytes: see docs/memory.md."""

SPILL = 16_384
"""Durations of a method in memory under `--memory`; the others wait in a temporary file."""

_SIZES = {"": 1, "K": 1_000, "M": 1_000**2, "G": 1_000**3, "T": 1_000**4}
_BINARY_SIZES = {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


def memory_size(text: str) -> int:
    """Bytes that a command may take: `500M`, `1G`, `1GiB`, `2GB`. Raises BadParameter."""
    number, unit = r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})", r"([KMGT]I?)?B?"
    match = re.fullmatch(rf"{number}\s*{unit}", text.strip(), re.IGNORECASE | re.ASCII)
    if not match:
        raise typer.BadParameter(f"{text!r} is no size: write bytes with a unit, such as 500M, 1G or 1GiB")
    size = round(float(match[1]) * (_SIZES | _BINARY_SIZES)[(match[2] or "").upper()])
    if size < LEAST_MEMORY:
        raise typer.BadParameter(f"{text} is too little: at least {LEAST_MEMORY // 1_000_000}M are needed")
    return size


def nanoseconds(text: str) -> int:
    """A time after the capture's first packet: `1.5`, `1.5s`, `800ms`. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d*)?|\.\d+)\s*(s|ms|us|µs|ns|)", text.strip())
    if not match:
        raise typer.BadParameter(f"{text!r} is no time: write seconds such as 1.5 or 1.5s, or 800ms, 250us")
    return round(float(match[1]) * _UNITS[match[2]])


def one_after_the_other(from_: int | None, to: int | None) -> None:
    """Refuse a range that ends before it begins. Raises BadParameter."""
    if from_ is not None and to is not None and from_ > to:
        raise typer.BadParameter("--from lies behind --to")


def columns(output: Path | None, otherwise: int = WIDTH) -> int:
    """How wide a report is drawn: as the terminal, as COLUMNS says, or `otherwise`."""
    if output is None and sys.stdout.isatty():
        return shutil.get_terminal_size((WIDTH, 24)).columns
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and 0 < int(said) < 10_000 else otherwise


def coloured(output: Path | None) -> bool:
    """Whether a report may hold escape sequences."""
    return output is None and wants_colour()


def say(message: str) -> None:
    """A message on standard error; names of files in it do not command the terminal."""
    from ...analyzer.model.text import safe

    with suppress(OSError):  # a message that cannot be written changes no exit code
        typer.echo("\n".join(safe(line) for line in f"grpcdiag: {message}".split("\n")), err=True)


def fail(message: str, code: int) -> NoReturn:
    """Tell what went wrong on standard error and exit."""
    say(message)
    raise typer.Exit(code)


def how(ports: list[int] | None, keylog: Path | None, memory: int | None = None) -> DecodeOptions:
    """How captures are read, out of the options; an unreadable key log ends the command."""
    chosen: DecodeOptions = {"ports": ports or []}
    if memory is not None:
        chosen["memory"] = memory
        chosen["spill"] = SPILL
        atexit.unregister(_tell_memory)
        atexit.register(_tell_memory, memory)
    if keylog:
        try:
            chosen["keylog"] = _key_log(keylog)
        except OSError as error:
            fail(f"{keylog}: the key log cannot be read: {error.strerror}", UNREADABLE)
    return chosen


def _tell_memory(allowed: int) -> None:
    """Say so when the command has taken more memory than it was allowed, as the operating system counts it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # not on every system
        return
    taken = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    if taken > allowed:
        say(f"--memory: {taken / 1e6:,.0f} MB were taken, more than the {allowed / 1e6:,.0f} MB allowed")


def _key_log(path: Path) -> bytes:
    """What is read of a key log, which need not be a file that ends. Raises OSError."""
    from ...analyzer.decode.runner import KEY_LOG_BYTES

    with path.open("rb") as file:
        text = file.read(KEY_LOG_BYTES)
        if file.read(1):
            say(f"{path}: only the first {KEY_LOG_BYTES >> 20} MiB of the key log are used")
    return text


@contextmanager
def decoding() -> Iterator[None]:
    """Turn what decoding raises into messages and exit codes."""
    from ...analyzer.decode.errors import CaptureError, MemoryLimitError, NoGrpcError, SpillError

    try:
        yield
    except CaptureError as error:
        fail(str(error), UNREADABLE)
    except NoGrpcError as error:
        fail(f"no gRPC traffic found: {error}", NO_GRPC)
    except MemoryLimitError as error:
        fail(f"--memory is too little for this command and capture: {error}", 2)
    except SpillError as error:
        fail(f"cannot write temporary files: {error}; TMPDIR names the folder for them", 2)
    except UnicodeEncodeError:
        fail("a file's name is not UTF-8: rename it, or give the capture on standard input as -", UNREADABLE)


@contextmanager
def temporary_files() -> Iterator[None]:
    """Turn an error of temporary files into a message and an exit code."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write temporary files: {error.strerror}; TMPDIR names the folder for them", 2)


@contextmanager
def spooled(files: list[str]) -> Iterator[list[str]]:
    """Standard input as a file, for captures that are read several times."""
    if "-" not in files:
        yield files
        return
    with ExitStack() as stack:
        with temporary_files():
            folder = stack.enter_context(scratch("grpcdiag-"))
            with (folder / "standard-input").open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        yield [file.name if path == "-" else path for path in files]


def one_place(files: list[str], chosen: DecodeOptions) -> None:
    """End the command when its files are captures of the same connections at two places and not one capture."""
    if len(files) < 2:
        return
    from ...analyzer.two_captures import vantages

    places = vantages(files, **chosen)
    if len(places) > 1:
        names = " and ".join(place[0] for place in places[:2])
        fail(f"{names} are captures of the same connections at two places: give one (analyze and rpcs take both)", 2)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """A progress bar on standard error for long files, when somebody looks at it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as shown:
        yield _Bar(shown)


@contextmanager
def busy(quiet: bool, what: str) -> Iterator[None]:
    """A sign on standard error that something goes on that cannot be measured, when somebody looks at it."""
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
    """Draws how far reading has come, with the rate and the time left, once reading has taken a while."""

    def __init__(self, shown: ExitStack) -> None:
        self._shown = shown
        self._began = monotonic()
        self._draw: Callable[[int, int | None], None] | None = None

    def __call__(self, read: int, total: int | None) -> None:
        if self._draw is None:
            if monotonic() - self._began < SLOW_S:
                return
            self._draw = self._drawing(read, total)
        self._draw(read, total)

    def _drawing(self, read: int, total: int | None) -> Callable[[int, int | None], None]:
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
        # as if it had been there from the beginning: the rate and the time left are known at once
        bar.tasks[0].start_time = self._began
        return update


def write(text: str | Iterable[str], output: Path | None) -> None:
    """Write a whole report, or its pieces, to a file or to standard output; exits when the file cannot be written."""
    pieces = (text,) if isinstance(text, str) else text
    if output is None:
        for piece in pieces:
            sys.stdout.write(piece if shows_unicode() else plain(piece))
        sys.stdout.flush()
        return
    from ...files.atomic_file import replacing

    try:
        with replacing(output) as out:
            out.writelines(piece.encode() for piece in pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", 2)


def shows_unicode() -> bool:
    """Whether standard output takes characters beyond ASCII, and the terminal, if it is one, is set to show them."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "").replace("_", "")
    if not encoding.startswith("utf"):
        return False
    if not sys.stdout.isatty() or "PYTHONIOENCODING" in os.environ:
        return True
    # Python writes UTF-8 in the locale C all the same, and puts that into LC_CTYPE (PEP 538, 540); terminals need not
    own = os.environ.get("LC_CTYPE", "")
    named = os.environ.get("LC_ALL") or (own if own not in _COERCED else "") or os.environ.get("LANG", "")
    return named not in ("C", "POSIX")


def plain(text: str) -> str:
    """Text in ASCII."""
    from ...reports.shared.text import ascii_only

    return ascii_only(text)


def wants_colour() -> bool:
    """Whether standard output is a terminal that may be coloured (https://no-color.org)."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
