"""`grpcdiag watch`: show what calls do while they do it, and write the packets around moments of trouble."""

from __future__ import annotations

import gc
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import Raising
from .support.common import KeyLog, Quiet, decoding, fail, how

if TYPE_CHECKING:
    from ..analyzer.triggers import Trigger

NAME = "watch"
USAGE = 2
"""Exit code: a wrong filter, interface, trigger or folder."""
CANNOT_RECORD = 125
"""Exit code: recording is impossible here, as for `capture`."""


def command(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[-]", help="Read a stream of packets from standard input. Default: record with tcpdump."
        ),
    ] = None,
    interface: Annotated[str | None, typer.Option("-i", "--interface", metavar="IF", help="Default: any.")] = None,
    port: Annotated[
        list[int] | None,
        typer.Option("-p", "--port", min=1, max=65535, help="Record this port; repeatable. Default: all TCP."),
    ] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="EXPR", help="Extra pcap filter, combined with AND.")
    ] = None,
    netns: Annotated[
        str | None, typer.Option("--netns", metavar="NAME|PATH", help="Record in this network namespace.")
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(
            "--container", metavar="ID|NAME", help="Record in the network namespace of this container or pod."
        ),
    ] = None,
    trigger: Annotated[
        list[str] | None,
        typer.Option(
            "--trigger",
            metavar="CONDITION",
            help="Write the packets around the moment when this is met: 'p99 > 50ms', 'p99(/pkg.Svc/*) > 50ms', "
            "'status=UNAVAILABLE rate > 1%', finding:warning, finding:ID; repeatable; needs -o.",
        ),
    ] = None,
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="AGE,SIZE", help="With --trigger: packets kept, such as 60s, 500M or 10m,2G."),
    ] = "60s",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder for captures and the last packets.")
    ] = None,
    per_hour: Annotated[
        int, typer.Option("--per-hour", min=1, max=3600, help="With --trigger: most captures in an hour.")
    ] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Write a line of JSON each second.")] = False,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Show calls by method, their latency, time by cause and findings of the last seconds, until q or Ctrl-C.

    With --trigger it is a flight recorder: it keeps the last packets in -o, and writes those around each moment there.
    """
    if sys.platform != "linux":
        fail("watch needs Linux: record with tcpdump or Wireshark, then run grpcdiag analyze", CANNOT_RECORD)
    if source not in (None, "-"):
        fail(f"{source}: watch reads standard input (-) or records: for a file use grpcdiag analyze", USAGE)
    if not as_json and not sys.stdout.isatty():
        fail("watch draws on a terminal: use --json elsewhere", USAGE)
    if trigger and not output:
        fail("--trigger writes captures: name their folder with -o", USAGE)
    triggers = _parse_triggers(trigger or ())
    from ..capture import filters, interfaces, namespaces
    from ..capture.errors import RecordingError, UsageError
    from ..capture.ring import parse_keep
    from .watching.loop import Watch
    from .watching.options import Options

    gc.enable()  # this command may run for days
    chosen = how((), None, keylog)
    try:
        with decoding(), Raising(), ExitStack() as stack:
            stack.enter_context(namespaces.entered(namespaces.locate(netns, container)))
            options = Options(
                interface=interfaces.choose(interface, ()) if source is None else "",
                expression=filters.expression(tuple(port or ()), (), filter_),
                folder=output,
                keep=parse_keep(keep),
                per_hour=per_hour,
                triggers=tuple(triggers),
                as_json=as_json,
                quiet=quiet,
            )
            filters.check(options.expression)
            stack.enter_context(Watch(options, chosen)).run()
    except UsageError as error:
        fail(str(error), USAGE)
    except RecordingError as error:
        fail(str(error), CANNOT_RECORD)


def _parse_triggers(texts: list[str] | tuple[()]) -> list[Trigger]:
    """Parse triggers; one that is invalid ends the command."""
    from ..analyzer.detectors import DETECTORS
    from ..analyzer.triggers import TriggerError, parse

    try:
        return [parse(text, [detector.id for detector in DETECTORS]) for text in texts]
    except TriggerError as error:
        fail(f"--trigger {error}", USAGE)
