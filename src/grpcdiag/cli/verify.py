"""`grpcdiag verify`: compare grpcdiag's decoding of a capture with Wireshark's."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import scratch
from .support.common import NO_GRPC, UNREADABLE, decoding, drawn, fail, how, progress, refuse_own_input, spooled, write
from .support.options import Color, Files, Output, Quiet, ReadOptions
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.tables import Tables
    from ..analyzer.verify.difference import Comparison

UNEXPLAINED = 1
"""Exit code: at least one difference is not explained."""
LACKS_TOOL = 2
"""Exit code: pyshark or Wireshark is not installed."""
SHOWN = 5
"""Differences shown of each kind by default."""


def command(
    files: Files,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON, with every difference.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Differences shown of each kind; 0 for all.")
    ] = SHOWN,
    output: Output = None,
    *,
    read: ReadOptions,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Decode the same capture with Wireshark and list every difference: why it exists, and who is right.

    Needs tshark and pyshark. Exits with 1 if a difference is not explained.
    """
    refuse_own_input(output, files)
    from ..analyzer.verify.wireshark import WiresharkError, version

    gc.enable()  # pyshark creates objects for every packet
    try:
        second = version()
        with spooled(files) as paths, scratch("grpcdiag-") as folder:  # standard input is read twice
            reading = how(files, read)
            comparison, tables = _compare(paths, folder, reading, quiet)
    except WiresharkError as error:
        fail(str(error), LACKS_TOOL if "not installed" in str(error) else UNREADABLE)
    names = list(files) if "-" in files else [file["name"] for file in tables.capture["files"]]
    from ..reports import verify

    if as_json:
        write(verify.render_json(comparison, files=names, wireshark=second), output)
    else:
        width, colour = columns(output), coloured(output)
        drawn = verify.render(comparison, files=names, wireshark=second, width=width, colour=colour, limit=limit)
        write(drawn, output)
    if comparison.unexplained:
        raise typer.Exit(UNEXPLAINED)


def _compare(paths: list[str], folder: Path, reading: DecodeOptions, quiet: bool) -> tuple[Comparison, Tables]:
    """Decode the capture with both programs and compare the results."""
    from ..analyzer.decode.decode import decode_rows
    from ..analyzer.summary import figures
    from ..analyzer.verify import compare, records, wireshark

    with decoding(), progress(quiet) as report_progress:
        tables = decode_rows(paths, **reading, progress=report_progress)
    if not len(tables.connections.protocol):
        fail(f"no gRPC traffic found: {figures.why_no_grpc(tables)}", NO_GRPC)
    ours = records.of_tables(tables)
    path = _merge_files([file["name"] for file in tables.capture["files"]], folder)
    (folder / "keys").write_bytes(reading.get("keylog", b""))
    with _show_progress(quiet, len(ours.packets)) as counted:
        theirs = wireshark.read_wireshark(path, tables, keylog=str(folder / "keys"), progress=counted)
    return compare.compare(ours, theirs), tables


def _merge_files(paths: list[str], folder: Path) -> str:
    """Merge the files of one capture in their order: Wireshark reads only one file."""
    if len(paths) == 1:
        return paths[0]
    tool = shutil.which("mergecap")
    if tool is None:
        fail("mergecap is not installed: Wireshark needs it for several files (apt install tshark)", LACKS_TOOL)
    merged = folder / "merged.pcapng"
    done = subprocess.run([tool, "-a", "-w", str(merged), *paths], capture_output=True, text=True, check=False)
    if not merged.exists():
        fail(f"mergecap cannot merge the files: {done.stderr.strip()}", UNREADABLE)
    return str(merged)


@contextmanager
def _show_progress(quiet: bool, packets: int) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar: Wireshark reads some thousands of packets per second."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Wireshark"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with drawn(Progress(*columns, console=Console(stderr=True), transient=True)) as bar:
        task = bar.add_task("packets", total=packets)
        yield lambda packet: bar.update(task, completed=min(packet, packets))
