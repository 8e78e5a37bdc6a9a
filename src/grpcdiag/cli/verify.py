"""`grpcdiag verify`: the same capture through Wireshark, and every difference."""

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
from .support.common import (
    NO_GRPC,
    UNREADABLE,
    Files,
    KeyLog,
    Memory,
    Output,
    Ports,
    Quiet,
    coloured,
    columns,
    decoding,
    drawn,
    fail,
    how,
    progress,
    spooled,
    write,
)

if TYPE_CHECKING:
    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.tables import Tables
    from ..analyzer.verify.difference import Comparison

NAME = "verify"

UNEXPLAINED = 1
"""Exit code: a difference is not explained."""
LACKS_TOOL = 2
"""Exit code: pyshark or Wireshark is not installed."""
SHOWN = 5
"""Differences shown of a kind unasked."""


def command(
    files: Files,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON, with every difference.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Differences shown of each kind; 0 for all.")] = SHOWN,
    output: Output = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Have Wireshark read the same capture and list every difference: whose, why, and who is right.

    Needs tshark and pyshark. Exits with 1 when a difference is not explained.
    """
    from ..analyzer.verify.wireshark import WiresharkError, version

    gc.enable()  # pyshark makes objects for every packet
    try:
        second = version()
        with spooled(files) as paths, scratch("grpcdiag-") as folder:  # standard input is read twice
            comparison, tables = _compared(paths, folder, how(port, keylog, memory), keylog, quiet)
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


def _compared(
    paths: list[str], folder: Path, reading: DecodeOptions, keylog: Path | None, quiet: bool
) -> tuple[Comparison, Tables]:
    """Both readings, held against each other."""
    from ..analyzer.decode.decode import decode_rows
    from ..analyzer.summary import figures
    from ..analyzer.verify import compare, records, wireshark

    with decoding(), progress(quiet) as told:
        tables = decode_rows(paths, **reading, progress=told)
    if not len(tables.connections.protocol):
        fail(f"no gRPC traffic found: {figures.why_no_grpc(tables)}", NO_GRPC)
    ours = records.of_tables(tables)
    path = _one_file([file["name"] for file in tables.capture["files"]], folder)
    with _counting(quiet, len(ours.packets)) as counted:
        theirs = wireshark.read_wireshark(path, tables, keylog=str(keylog) if keylog else None, progress=counted)
    return compare.compare(ours, theirs), tables


def _one_file(paths: list[str], folder: Path) -> str:
    """The files of one capture, which Wireshark reads one by one, as one in their order."""
    if len(paths) == 1:
        return paths[0]
    tool = shutil.which("mergecap")
    if tool is None:
        fail("mergecap is not installed: Wireshark reads several files only after it (apt install tshark)", LACKS_TOOL)
    merged = folder / "merged.pcapng"
    done = subprocess.run([tool, "-a", "-w", str(merged), *paths], capture_output=True, text=True, check=False)
    if not merged.exists():
        fail(f"mergecap cannot put the files together: {done.stderr.strip()}", UNREADABLE)
    return str(merged)


@contextmanager
def _counting(quiet: bool, packets: int) -> Iterator[Callable[[int], None] | None]:
    """A bar of the packets that Wireshark has read: some thousands a second."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Wireshark"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with drawn(Progress(*columns, console=Console(stderr=True), transient=True)) as bar:
        task = bar.add_task("packets", total=packets)
        yield lambda packet: bar.update(task, completed=min(packet, packets))
