"""`grpcdiag scrub`: a capture that can be posted in public."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from ..files.atomic_file import replacing
from .support.common import Files, Ports, Quiet, busy, decoding, fail, progress, say, spooled

if TYPE_CHECKING:
    from ..analyzer.scrub import Report

NAME = "scrub"

DIFFERS = 1
"""Exit code: the scrubbed capture would not tell the same."""
SHOWN = 5
"""Differences named."""
KEY_BYTES = 32
"""Bytes of the key of a run; it is never written."""

Written = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the scrubbed capture goes.")]


def command(
    files: Files,
    output: Written,
    hide_methods: Annotated[bool, typer.Option("--hide-methods", help="Replace the names of methods too.")] = False,
    port: Ports = None,
    quiet: Quiet = False,
) -> None:
    """Write a capture that can be posted in public and gives the same analysis.

    Payloads are zeroed, header values, addresses and names replaced; sizes, times, TCP, HTTP/2, statuses and
    implementations stay. Nothing is written when the analysis would differ.
    """
    with spooled(files) as paths, _written(output, paths) as (out, target):
        with decoding():
            report = write_scrubbed(paths, out, hide_methods, port, quiet)
            with busy(quiet, "comparing the analyses"):
                differences = _differences(paths, target, report, port)
        if differences:
            more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
            why = "".join(f"\n  {note}" for note in _notes(report))
            fail(f"not written: the analysis would differ in {', '.join(differences[:SHOWN])}{more}{why}", DIFFERS)
    if not quiet:
        say("\n  ".join([f"{output}: {report.packets:,} packets ({report.format}), same analysis", *_notes(report)]))


def write_scrubbed(
    paths: list[str], out: IO[bytes], hide_methods: bool, ports: list[int] | None, quiet: bool
) -> Report:
    """Write a scrubbed capture with a key of its own. Raises CaptureError and OSError."""
    from ..analyzer.scrub import Scrubbing

    scrubbing = Scrubbing(paths, key=secrets.token_bytes(KEY_BYTES), hide_methods=hide_methods, ports=ports)
    with progress(quiet) as told:
        for piece in scrubbing.pieces(_twice(paths, told)):
            out.write(piece)
        out.flush()
    return scrubbing.report()


def _twice(
    paths: list[str], told: Callable[[int, int | None], None] | None
) -> Callable[[int, int | None], None] | None:
    """Progress over both passes."""
    if told is None:
        return None
    total = 2 * sum(Path(path).stat().st_size for path in paths)
    return lambda read, _: told(read, total)


def _differences(paths: list[str], target: str, report: Report, ports: list[int] | None) -> list[str]:
    """What differs between the capture as it was and as it is now, read anew from the file."""
    from ..analyzer.scrub import analyses, row_differences
    from ..reports.scrub import differences

    before, after = analyses(paths, [target], report, ports)
    return [*differences(before, after), *row_differences(paths, [target], ports)]


def _notes(report: Report) -> Iterator[str]:
    from ..reports.scrub import notes

    return notes(report)


@contextmanager
def _written(output: Path, paths: list[str]) -> Iterator[tuple[IO[bytes], str]]:
    """A file for the scrubbed capture, and a path at which it can be read; it becomes the output at the end."""
    if output.is_dir() or any(output.exists() and Path(p).exists() and output.samefile(p) for p in paths):
        fail(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'the capture itself'}", 2)
    try:
        with replacing(output) as out, _readable(out) as written:
            yield written
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", 2)


@contextmanager
def _readable(out: IO[bytes]) -> Iterator[tuple[IO[bytes], str]]:
    """The file with a path that leads to it under any name; a temporary one in the place of what cannot be read."""
    path = f"/proc/self/fd/{out.fileno()}"
    if stat.S_ISREG(os.fstat(out.fileno()).st_mode) and os.path.exists(path):  # noqa: PTH110
        yield out, path
        return
    with tempfile.NamedTemporaryFile(prefix="grpcdiag-") as spare:
        yield cast("IO[bytes]", spare), spare.name
        spare.seek(0)
        shutil.copyfileobj(spare, out)
