"""`grpcdiag watch`: show what calls do while they do it, and write the packets around moments of trouble."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from ..interruption import Raising
from .support.common import decoding, fail, how, say
from .support.gate import MET
from .support.keylog import find_growing
from .support.options import KeyLog, Quiet, ReadOptions
from .support.recording import (
    CANNOT_RECORD,
    USAGE,
    Container,
    Filter,
    RecordedPorts,
    end_on_error,
    enter_namespace,
)
from .support.stream import SCHEME, parse_url

if TYPE_CHECKING:
    from ..analyzer.live.triggers import Trigger
    from .watching.options import Options

NAME = "watch"


class WatchOptions(Struct, frozen=True):
    """What `grpcdiag watch` records, shows and writes, as typed."""

    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[-|tcp://HOST:PORT]",
            help="Read packets from standard input, or from a sender on another host. Default: record with tcpdump.",
        ),
    ] = None
    interface: Annotated[
        str | None, typer.Option("-i", "--interface", metavar="IF", help="Interface. Default: any.")
    ] = None
    port: RecordedPorts = None
    filter_: Filter = None
    netns: Annotated[
        str | None, typer.Option("--netns", metavar="NAME|PATH", help="Record in this network namespace.")
    ] = None
    container: Container = None
    pid: Annotated[
        list[int] | None,
        typer.Option(
            "--pid", metavar="PID", min=1, max=2**31 - 1, help="Record in the network namespace of this process."
        ),
    ] = None
    trigger: Annotated[
        list[str] | None,
        typer.Option(
            "--trigger",
            metavar="CONDITION",
            help="Write the packets around each moment when this is met, to the folder of -o; repeatable. "
            "'p99 > 50ms', 'p99(/pkg.Svc/*) > 50ms', 'status=UNAVAILABLE rate > 1%', finding:warning, finding:ID.",
        ),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="AGE,SIZE",
            help="Packets to keep, such as 60s, 500M or 10m,2G. Default: 60s; without --trigger 60s,64M (timelines).",
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder for captures and the last packets.")
    ] = None
    per_hour: Annotated[
        int,
        typer.Option(
            "--per-hour", metavar="N", min=1, max=3600, help="With --trigger: write at most N captures an hour."
        ),
    ] = 6
    hook: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run COMMAND, without a shell, with each capture and its reports as arguments.",
        ),
    ] = None
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after TIME: 30s, 10m, 8h.")] = None
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            help="At the end, exit with 1 if this was met; repeatable. info, warning, critical: a finding at least "
            "that severe; trigger: any --trigger; or a condition as for --trigger.",
        ),
    ] = None
    openmetrics: Annotated[
        str | None,
        typer.Option(
            "--openmetrics", metavar="[ADDRESS]:PORT", help="Serve metrics to Prometheus. Default address: 127.0.0.1."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Write a line of JSON each second.")] = False
    keylog: KeyLog = None
    quiet: Quiet = False


def command(options: WatchOptions) -> None:
    """Show calls by method, their latency, time by cause and findings of the last seconds, until q or Ctrl-C.

    With --trigger it is a flight recorder: it keeps the last packets, and writes those around each trigger to -o.
    """
    if sys.platform != "linux":
        fail("watch needs Linux: record with tcpdump or Wireshark, then run grpcdiag analyze", CANNOT_RECORD)
    _check(options)
    triggers = _parse_triggers("--trigger", options.trigger or ())
    rules = _parse_rules(options.fail_on or ())
    from ..capture import filters
    from .watching.loop import Hints, Watch

    gc.enable()  # this command may run for days
    if options.source and options.source != "-":
        parse_url(options.source)
    chosen = how((), ReadOptions(keylog=options.keylog))
    if key_file := find_growing(options.keylog):
        chosen.pop("keylog", None)
    pids, ports = tuple(options.pid or ()), tuple(options.port or ())
    with (
        end_on_error(),
        decoding(),
        Raising(),
        enter_namespace(options.netns, options.container, pids) as namespace,
    ):
        parsed = _parse(options, triggers, rules, key_file)
        filters.check(parsed.expression)
        with Watch(parsed, chosen, Hints(namespace, ports, pids)) as watch:
            watch.run()
    if watch.gate.met:
        for text, why in () if options.quiet else watch.gate.met.items():
            say(f"--fail-on {text}: {why}")
        raise typer.Exit(MET)


def _check(options: WatchOptions) -> None:
    """End the command if its options do not go together."""
    source = options.source
    if source not in (None, "-") and not str(source).startswith(SCHEME):
        fail(f"{source}: watch reads standard input (-) or tcp://HOST:PORT: for a file use grpcdiag analyze", USAGE)
    if not options.as_json and not sys.stdout.isatty():
        fail("watch draws on a terminal: use --json elsewhere", USAGE)
    if options.trigger and not options.output:
        fail("--trigger writes captures: name their folder with -o", USAGE)
    if not options.trigger and (options.hook or "trigger" in (options.fail_on or ())):
        fail("--exec and --fail-on trigger need --trigger", USAGE)


def _parse(options: WatchOptions, triggers: list[Trigger], rules: list[Trigger], key_file: Path | None) -> Options:
    """Parse what was typed, in the namespace to record in. Raises RecordingError."""
    from ..capture import filters, interfaces
    from ..capture.ring import parse_keep
    from .watching.options import Options, parse_address, parse_hook, parse_seconds

    return Options(
        interface=interfaces.choose(options.interface, ()) if options.source is None else "",
        stream=options.source or "",
        expression=filters.expression(tuple(options.port or ()), (), options.filter_),
        folder=options.output,
        keep=parse_keep(options.keep) if options.keep else None,
        per_hour=options.per_hour,
        triggers=tuple(triggers),
        gates=tuple(rules),
        fails_on_trigger="trigger" in (options.fail_on or ()),
        hook=parse_hook(options.hook) if options.hook else (),
        seconds=parse_seconds(options.for_) if options.for_ else None,
        metrics=parse_address(options.openmetrics) if options.openmetrics else None,
        as_json=options.as_json,
        quiet=options.quiet,
        key_file=key_file,
    )


def _parse_rules(texts: list[str] | tuple[()]) -> list[Trigger]:
    """Parse the rules of --fail-on but `trigger`; a severity stands for its findings."""
    from msgspec.structs import replace

    from ..analyzer.model.finding import SEVERITIES

    rules = [text for text in texts if text != "trigger"]
    parsed = _parse_triggers("--fail-on", [f"finding:{text}" if text in SEVERITIES else text for text in rules])
    return [replace(one, text=text) for one, text in zip(parsed, rules, strict=True)]


def _parse_triggers(option: str, texts: list[str] | tuple[()]) -> list[Trigger]:
    """Parse triggers; one that is invalid ends the command."""
    from ..analyzer.detectors import DETECTORS
    from ..analyzer.live.triggers import TriggerError, parse

    try:
        return [parse(text, [detector.id for detector in DETECTORS]) for text in texts]
    except TriggerError as error:
        fail(f"{option} {error}", USAGE)
