"""`grpcdiag scrub`: write a capture that can be published."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing
from ..interruption import scratch
from .support.common import busy, decoding, fail, progress, refuse_own_input, say, spooled, writing
from .support.options import Files, Ports, Quiet

if TYPE_CHECKING:
    from ..analyzer.scrub import Report

DIFFERS = 1
"""Exit code: the analysis of the scrubbed capture would differ."""
SHOWN = 5
"""Most differences named in a message."""
KEY_BYTES = 32
"""Bytes of the random key of a run, which is never written."""

Written = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File for the scrubbed capture.")]


def command(
    files: Files,
    output: Written,
    hide_methods: Annotated[bool, typer.Option("--hide-methods", help="Also replace the names of methods.")] = False,
    port: Ports = None,
    quiet: Quiet = False,
) -> None:
    """Write a copy of a capture that can be published and has the same analysis.

    Payloads are zeroed; header values, addresses and names are replaced. Sizes, times, TCP, HTTP/2, statuses and
    implementations stay. If the analysis would differ, nothing is written.
    """
    with spooled(files) as paths, _open_output(output, paths) as (out, target):
        with decoding():
            report = write_scrubbed(paths, out, hide_methods, port, quiet)
            with busy(quiet, "comparing the analyses"):
                differences = _compare(paths, target, report, port)
        refuse_differences("not written: the analysis", differences, report)
    if not quiet:
        say(f"{output}: {report.packets:,} packets ({report.format}), same analysis{list_notes(report)}")


def write_scrubbed(
    paths: list[str], out: IO[bytes], hide_methods: bool, ports: list[int] | None, quiet: bool
) -> Report:
    """Write a scrubbed capture with a new random key. Raises CaptureError and OSError."""
    from ..analyzer.scrub import Scrubbing

    scrubbing = Scrubbing(paths, key=secrets.token_bytes(KEY_BYTES), hide_methods=hide_methods, ports=ports)
    with progress(quiet) as report_progress:
        for piece in scrubbing.pieces(_count_both_passes(paths, report_progress)):
            out.write(piece)
        out.flush()
    return scrubbing.report()


def _count_both_passes(
    paths: list[str], report_progress: Callable[[int, int | None], None] | None
) -> Callable[[int, int | None], None] | None:
    """Report progress over both passes."""
    if report_progress is None:
        return None
    total = 2 * sum(Path(path).stat().st_size for path in paths)
    return lambda read, _: report_progress(read, total)


def _compare(paths: list[str], target: str, report: Report, ports: list[int] | None) -> list[str]:
    """List the differences between the original capture and the scrubbed file."""
    from ..analyzer.scrub import analyses, row_differences
    from ..reports.scrub import differences

    before, after = analyses(paths, [target], report, ports)
    return [*differences(before, after), *row_differences(paths, [target], ports)]


def list_notes(report: Report) -> str:
    """List what the scrubbed capture lacks, in lines below a message."""
    from ..reports.scrub import notes

    return "".join(f"\n  {note}" for note in notes(report))


def refuse_differences(what: str, differences: list[str], report: Report) -> None:
    """End the command if there are differences between the original capture and the scrubbed one."""
    from ..analyzer.model.text import list_first

    if differences:
        fail(f"{what} would differ in {list_first(differences, SHOWN)}{list_notes(report)}", DIFFERS)


@contextmanager
def _open_output(output: Path, paths: list[str]) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file for the scrubbed capture, and give a path to read it; it becomes the output at the end."""
    refuse_own_input(output, paths)
    with writing(output), replacing(output) as out, _make_readable(out) as written:
        yield written


@contextmanager
def _make_readable(out: IO[bytes]) -> Iterator[tuple[IO[bytes], str]]:
    """Give the file with a path that is valid under any name; use a temporary file if the output cannot be read."""
    path = f"/proc/self/fd/{out.fileno()}"
    if stat.S_ISREG(os.fstat(out.fileno()).st_mode) and os.path.exists(path):  # noqa: PTH110
        yield out, path
        return
    with scratch("grpcdiag-") as folder, (folder / "scrubbed").open("w+b") as spare:
        yield spare, spare.name
        spare.seek(0)
        shutil.copyfileobj(spare, out)
