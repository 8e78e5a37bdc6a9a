"""`grpcdiag watch`: show RPCs while they happen."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..interruption import Raising
from .support.common import KeyLog, Ports, Quiet, decoding, fail, how, say

if TYPE_CHECKING:
    from ..capture.tcpdump import Tcpdump
    from ..reports.live.exposition import Exposition
    from .support.watching import Watcher

USAGE = 2
"""Exit code: a wrong filter, interface or address."""
CANNOT_RECORD = 125
"""Exit code: recording is impossible here, as that of `grpcdiag capture`."""


def command(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Read this file or pipe, - for standard input. Default: record."),
    ] = None,
    interface: Annotated[
        str | None, typer.Option("-i", "--interface", metavar="IF", help="Interface to record. Default: any.")
    ] = None,
    port: Ports = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", metavar="EXPR", help="Extra pcap filter, combined with AND; see pcap-filter(7)."),
    ] = None,
    every: Annotated[float, typer.Option("--every", metavar="S", min=0.1, max=10, help="Time between two views.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Write one line of JSON per interval.")] = False,
    openmetrics: Annotated[
        str | None,
        typer.Option("--openmetrics", metavar="[HOST]:PORT", help="Serve the last minute's figures at /metrics."),
    ] = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Show rates, latencies, time by cause and findings of the last seconds, by method and by connection.

    On a terminal: q quits, space freezes, s sorts, w changes the window, c shows connections, / filters.
    """
    if file is None and not sys.platform.startswith("linux"):
        fail("recording needs Linux: pipe a capture into grpcdiag watch -", CANNOT_RECORD)
    on_terminal = not as_json and sys.stdout.isatty() and _has_view(quiet)
    with Raising(), decoding(), contextlib.ExitStack() as stack:
        served = stack.enter_context(_serve(openmetrics, quiet)) if openmetrics else None
        if file is None:
            source, dropped = stack.enter_context(_record(interface, tuple(port or ()), filter_, quiet))
        else:
            source, dropped = file, _know_nothing
        from ..analyzer.live import LiveCapture
        from .support.watching import Watcher

        options = how([] if file is None else [file], None if file is None else port, keylog, None)
        live = stack.enter_context(LiveCapture(source, history=Watcher.count_pieces(every), **options))
        watcher = Watcher(live, every, now=file in (None, "-"), dropped=dropped, served=served)
        if on_terminal:
            _show(watcher)
        else:
            _write_lines(watcher, as_json=as_json)


def _has_view(quiet: bool) -> bool:
    """Say whether the library of the live view is installed; without it lines are written."""
    from importlib.util import find_spec

    found = find_spec("textual") is not None
    if not found and not quiet:
        say("one line per interval; for the live view: pip install 'grpcdiag[watch]'")
    return found


def _know_nothing() -> int | None:
    """Packets that the recording lost, where nobody says."""
    return None


@contextlib.contextmanager
def _serve(address: str, quiet: bool) -> Iterator[Exposition]:
    """Serve the figures of the longest window."""
    from ..reports.live.exposition import LOOPBACK, Exposition

    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        fail(f"--openmetrics {address}: write :PORT for this host alone, or HOST:PORT", USAGE)
    try:
        exposition = Exposition(host.strip("[]") or LOOPBACK, int(port))
    except OSError as error:
        fail(f"--openmetrics {address}: {error.strerror}", USAGE)
    with exposition:
        if not quiet:
            say(f"figures of the last minute: http://{host or LOOPBACK}:{exposition.port}/metrics")
        yield exposition


@contextlib.contextmanager
def _record(
    interface: str | None, ports: tuple[int, ...], filter_: str | None, quiet: bool
) -> Iterator[tuple[int, Callable[[], int | None]]]:
    """Run tcpdump, and give the descriptor of its packets, and a function that counts those that it lost."""
    from ..capture import command, filters, interfaces, tcpdump
    from ..capture.errors import RecordingError, UsageError
    from ..capture.output import STDOUT

    try:
        user = command.choose_user(None)
        chosen, expression = interfaces.choose(interface, ()), filters.expression(ports, (), filter_)
        filters.check(filter_ or "")  # alone first, so that the error names the user's filter
        filters.check(expression)
        stay_root = os.geteuid() == 0 and user is None
        line = tcpdump.arguments(
            tcpdump.find(), interface=chosen, expression=expression, output=STDOUT, stay_root=stay_root
        )
        reads, writes = os.pipe()
        try:
            running = tcpdump.Tcpdump(line, writes, user=user)
        finally:
            os.close(writes)
        with contextlib.closing(_Recording(running, reads)) as recording:
            running.listen()
            if not quiet:
                say(f"recording on {chosen}: {expression}")
            yield reads, recording.count_dropped
    except UsageError as error:
        fail(str(error), USAGE)
    except RecordingError as error:
        fail(str(error), CANNOT_RECORD)


class _Recording:
    """tcpdump, whose packets come through a pipe."""

    def __init__(self, running: Tcpdump, reads: int) -> None:
        self._running, self._reads = running, reads

    def count_dropped(self) -> int | None:
        """Ask tcpdump how many packets it lost since the beginning; None if it does not answer."""
        counts = self._running.ask()
        return None if counts is None else counts.dropped + counts.dropped_by_interface

    def close(self) -> None:
        """Stop tcpdump. The pipe is closed first, so that it never waits for a reader."""
        os.close(self._reads)
        self._running.stop()


def _write_lines(watcher: Watcher, *, as_json: bool) -> None:
    """Write a line per interval to standard output, until the stream is over or a signal comes."""
    import msgspec

    from ..reports.live.lines import describe_line

    for snapshot in watcher:
        text = msgspec.json.encode(snapshot).decode() if as_json else describe_line(snapshot)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _show(watcher: Watcher) -> None:
    """Show the live view until the user quits."""
    from ..reports.live.terminal import Live

    view = Live(watcher)
    view.run()
    if view.error is not None:
        raise view.error
