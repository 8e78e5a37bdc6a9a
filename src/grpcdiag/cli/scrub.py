"""`grpcdiag scrub`: a capture that can be posted in public."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import Unfinished
from .common import Files, Ports, Quiet, busy, decoding, fail, progress, say, spooled

if TYPE_CHECKING:
    from ..analyzer.scrubbing import Report

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
    with spooled(files) as paths, _unfinished(output, paths) as unfinished:
        with decoding():
            report = write_scrubbed(paths, unfinished, hide_methods, port, quiet)
            with busy(quiet, "comparing the analyses"):
                differences = _differences(paths, unfinished, report, port)
        if differences:
            more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
            why = "".join(f"\n  {note}" for note in _notes(report))
            fail(f"not written: the analysis would differ in {', '.join(differences[:SHOWN])}{more}{why}", DIFFERS)
        _publish(unfinished, output)
    if not quiet:
        say("\n  ".join([f"{output}: {report.packets:,} packets ({report.format}), same analysis", *_notes(report)]))


def write_scrubbed(paths: list[str], target: Path, hide_methods: bool, ports: list[int] | None, quiet: bool) -> Report:
    """Write a scrubbed capture with a key of its own. Raises CaptureError and OSError."""
    from ..analyzer.scrubbing import Scrubbing

    scrubbing = Scrubbing(paths, key=secrets.token_bytes(KEY_BYTES), hide_methods=hide_methods, ports=ports)
    with progress(quiet) as told, target.open("wb") as out:
        for piece in scrubbing.pieces(_twice(paths, told)):
            out.write(piece)
    return scrubbing.report()


def _twice(
    paths: list[str], told: Callable[[int, int | None], None] | None
) -> Callable[[int, int | None], None] | None:
    """Progress over both passes."""
    if told is None:
        return None
    total = 2 * sum(Path(path).stat().st_size for path in paths)
    return lambda read, _: told(read, total)


def _differences(paths: list[str], target: Path, report: Report, ports: list[int] | None) -> list[str]:
    """What differs between the capture as it was and as it is now, read anew from the file."""
    from ..analyzer.scrubbing import analyses, row_differences
    from ..reports.scrub import differences

    before, after = analyses(paths, [str(target)], report, ports)
    return [*differences(before, after), *row_differences(paths, [str(target)], ports)]


def _notes(report: Report) -> Iterator[str]:
    from ..reports.scrub import notes

    return notes(report)


@contextmanager
def _unfinished(output: Path, paths: list[str]) -> Iterator[Path]:
    """A file beside the output that only its owner can read; removed unless it was published."""
    if output.is_dir() or any(output.exists() and Path(p).exists() and output.samefile(p) for p in paths):
        fail(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'the capture itself'}", 2)

    def make() -> Path:
        handle, name = tempfile.mkstemp(prefix=".grpcdiag-scrub-", dir=output.parent)
        os.close(handle)
        return Path(name)

    try:
        with Unfinished(make, lambda path: path.unlink(missing_ok=True)) as unfinished:
            yield unfinished
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", 2)


def _publish(unfinished: Path, output: Path) -> None:
    """Give the file its name, and the rights of files that the user makes."""
    umask = os.umask(0)
    os.umask(umask)
    unfinished.chmod(0o666 & ~umask)
    unfinished.replace(output)
