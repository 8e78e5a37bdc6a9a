"""`grpcdiag capture`: record packets with tcpdump while a command runs."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from ..interruption import Raising
from .support.common import fail, say
from .support.options import NamingOptions, Quiet
from .support.recording import (
    CANNOT_RECORD,
    USAGE,
    Container,
    Filter,
    RecordedPorts,
    end_on_error,
    enter_namespace,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..capture.plan import Plan
    from ..capture.recording import Outcome
    from ..capture.records import Expected

NAME = "capture"
CONTEXT = {"allow_interspersed_args": False}
"""Arguments after COMMAND belong to COMMAND."""


SNAPLEN_COSTS = (
    "packets are truncated at {0:,} bytes: sizes and times stay exact, but HTTP/2 frames and headers beyond that are "
    "lost, so methods, statuses and messages of larger packets will be missing"
)


class Processes(StrEnum):
    """What to record of COMMAND's threads."""

    auto = "auto"
    on = "on"
    full = "full"
    off = "off"


Then = StrEnum("Then", ["analyze"])
"""What to do with the capture at the end."""


def _mode(text: str) -> int:
    """Parse the mode of a file in octal digits, as for chmod. Raises BadParameter."""
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise typer.BadParameter(f"{text!r} is not a mode: write three octal digits, such as 600 or 640")
    return int(text, 8)


class CaptureOptions(Struct, frozen=True):
    """What `grpcdiag capture` records, and how."""

    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Record while COMMAND runs. Default: until Ctrl-C."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Capture file; - for a stream. Default: named by time."),
    ] = None
    interface: Annotated[
        str | None,
        typer.Option("-i", "--interface", metavar="IF", help="Interface. Default: the route to --target, or any."),
    ] = None
    netns: Annotated[
        str | None,
        typer.Option("--netns", metavar="NAME|PATH", help="Record in this network namespace; COMMAND stays outside."),
    ] = None
    container: Container = None
    target: Annotated[
        list[str] | None,
        typer.Option("-t", "--target", metavar="HOST:PORT", help="Record traffic of this server; repeatable."),
    ] = None
    port: RecordedPorts = None
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="HOST", help="Record only this host; repeatable.")
    ] = None
    filter_: Filter = None
    snaplen: Annotated[
        int,
        typer.Option(
            "-s", "--snaplen", metavar="N", min=0, max=262144, help="Record N bytes of each packet; 0 for all."
        ),
    ] = 0
    buffer: Annotated[
        int, typer.Option("-B", "--buffer", metavar="MIB", min=1, max=2000, help="Kernel buffer in MiB.")
    ] = 64
    rotate: Annotated[
        str | None,
        typer.Option(
            "--rotate", metavar="SIZE[xN]", help="Start a new file after SIZE, such as 100M; keep the last N."
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option("-u", "--user", metavar="USER", help="Run COMMAND as this user. Default under sudo: the caller."),
    ] = None
    then: Annotated[
        Then | None,
        typer.Option(
            "--then", help="Analyze the capture at the end, together with the JSON record that COMMAND wrote (ghz, k6)."
        ),
    ] = None
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also",
            metavar="HOST",
            help="Also record on this host, and fetch the file: HOST as for ssh, or pod:[NAMESPACE/]POD[:CONTAINER] as "
            "for kubectl; repeatable.",
        ),
    ] = None
    samples: Annotated[
        int, typer.Option("--samples", metavar="MS", min=0, help="Time between two samples of sockets; 0 for none.")
    ] = 100
    processes: Annotated[
        Processes,
        typer.Option(
            "--processes",
            help="Record when COMMAND's threads ran; auto: if allowed (as root); full: also waits for locks.",
        ),
    ] = Processes.auto
    pid: Annotated[
        list[int] | None,
        typer.Option(
            "--pid",
            metavar="PID",
            min=1,
            max=2**31 - 1,
            help="Also record this running process, in its network namespace; repeatable.",
        ),
    ] = None
    keys: Annotated[
        bool, typer.Option("--keys", help="Let COMMAND write its TLS secrets next to FILE (SSLKEYLOGFILE).")
    ] = False
    embed_keys: Annotated[
        bool, typer.Option("--embed-keys", help="As --keys, but put them into FILE, which becomes pcapng.")
    ] = False
    linger: Annotated[
        float,
        typer.Option("--linger", metavar="S", min=0, max=600, help="Time for connections to close after COMMAND."),
    ] = 5.0
    mode: Annotated[int, typer.Option("--mode", metavar="OCTAL", parser=_mode, help="Permissions of the files.")] = (
        "600"  # type: ignore[assignment]
    )
    quiet: Quiet = False


def command(options: CaptureOptions) -> None:
    """Record the packets of a command and this machine's TCP settings, and exit with COMMAND's exit code.

    125: recording is impossible here. 126, 127: COMMAND cannot be started. 128 and more: a signal ended COMMAND.
    """
    if sys.platform != "linux":
        fail("recording needs Linux: record with tcpdump or Wireshark, then run grpcdiag analyze", CANNOT_RECORD)
    from ..capture import filters
    from ..capture.records import expect_records

    gc.enable()  # this command may run for days
    _check(options)
    with end_on_error(), enter_namespace(options.netns, options.container, tuple(options.pid or ())) as namespace:
        plan = _plan(options, namespace)
        filters.check(options.filter_ or "")  # alone first, so that the error names the user's filter
        filters.check(plan.expression)
        expected = expect_records(plan.arguments) if options.then else []
        outcome = _record(plan, options.quiet)
    if options.then and outcome.files:
        _analyze(outcome.files, _choose_records(expected, options.quiet), options.quiet)
    raise typer.Exit(outcome.code)


def _check(options: CaptureOptions) -> None:
    """End the command if its options do not go together."""
    from ..capture.output import STDOUT

    streams = options.output == STDOUT
    if streams and (options.then or options.rotate or options.also):
        fail("-o - streams the capture: --then, --rotate and --also need a file", USAGE)
    if (options.keys or options.embed_keys) and (
        not options.arguments or streams or (options.embed_keys and options.rotate)
    ):
        fail("--keys and --embed-keys need COMMAND and a file, --embed-keys a file that is not rotated", USAGE)
    if options.pid and options.processes is not Processes.off and not (options.port or options.target):
        fail("--pid needs the server's port (-p or -t), by which its connections are found, or --processes off", USAGE)


def _plan(options: CaptureOptions, namespace: str | None) -> Plan:
    """Plan the recording, in the namespace where it happens. Raises RecordingError."""
    from ..analyzer import _core
    from ..capture import filters, interfaces, tcpdump
    from ..capture.plan import Plan

    targets = [interfaces.target(text) for text in options.target or []]
    ips = [ip for name, _ in targets for ip in interfaces.addresses(name)]
    ports = tuple(dict.fromkeys([*(number for _, number in targets), *(options.port or [])]))
    processes = Processes.on if options.pid and options.processes is Processes.auto else options.processes
    return Plan(
        arguments=tuple(options.arguments or ()),
        output=options.output or time.strftime("capture-%Y%m%d-%H%M%S.pcap") + ("ng" if options.embed_keys else ""),
        interface=interfaces.choose(options.interface, ips),
        expression=filters.expression(ports, [*ips, *(options.host or [])], options.filter_),
        ports=ports,
        targets=tuple(ips),
        snaplen=options.snaplen,
        buffer_kib=options.buffer * 1024,
        rotate=tcpdump.rotation(options.rotate) if options.rotate else None,
        user=options.user,
        namespace=namespace,
        mode=options.mode,
        patience_s=options.linger,
        sample_every_s=options.samples / 1000,
        processes=processes.value,
        pids=tuple(options.pid or ()),
        keys="embedded" if options.embed_keys else "beside" if options.keys else "off",
        also=tuple(options.also or ()),
        version=_core.__version__,
    )


def _record(plan: Plan, quiet: bool) -> Outcome:
    """Record, and report what happens. Raises RecordingError."""
    from ..capture.output import STDOUT
    from ..capture.recording import record

    def warn(text: str) -> None:
        with contextlib.suppress(OSError):  # a message that cannot be written changes no exit code
            typer.echo(f"grpcdiag: {text}", err=True)

    def say(text: str) -> None:
        if not quiet:
            warn(text)

    if plan.output == STDOUT:
        if sys.stdout.isatty():
            fail("-o - writes a binary capture: pipe it into a file or a program", USAGE)
        if plan.arguments:
            say("standard output is the capture: COMMAND's standard output goes to standard error")
    if plan.snaplen:
        say(SNAPLEN_COSTS.format(plan.snaplen))
    if not plan.arguments:
        say(f"recording on {plan.interface}: {plan.expression}; Ctrl-C ends it")
    with Raising():  # a signal must end tcpdump in an orderly way
        outcome = record(plan, say)
    for problem in outcome.problems:
        warn(problem)
    say(_summarize(plan, outcome))
    return outcome


def _summarize(plan: Plan, outcome: Outcome) -> str:
    counts = outcome.counts
    packets = f"{counts.captured:,} packets" if counts else "an unknown number of packets"
    lost = bool(outcome.problems) or counts is None or counts.dropped or counts.dropped_by_interface
    dropped = "" if lost else ", none dropped"
    if not outcome.files:
        return f"{packets}{dropped}"
    more = f" and {len(outcome.files) - 1:,} more files" if len(outcome.files) > 1 else ""
    here = f"{outcome.files[0]}{more}: {packets} on {plan.interface}, {outcome.bytes / 1e6:,.1f} MB{dropped}"
    more_lines = [f"{name}: from the other host" for name in outcome.remote_files]
    if outcome.threads_cost_ns is not None:
        cost = f"{outcome.threads_cost_ns / 1e9:,.2f} s of processor time"
        more_lines.append(f"threads: recorded, which took {cost} (--processes off records packets alone)")
    return "\n          ".join([here, *more_lines])


def _choose_records(expected: Sequence[Expected], quiet: bool) -> list[Path]:
    """Choose the records that the command wrote, and report them."""
    from .support.measured import find_record

    chosen = []
    for one in expected:
        if not one.is_written():
            continue
        record = find_record(one.path)
        if isinstance(record, str):
            say(f"{one.path}: {one.tool} wrote it, but it is not joined with the RPCs: {record}")
        elif record.format == one.tool and record.calls:
            chosen.append(one.path)
            if not quiet:
                say(f"{one.path}: {len(record.calls):,} calls of {one.tool} are joined with the RPCs (--client)")
    return chosen


def _analyze(files: list[str], records: list[Path], quiet: bool) -> None:
    """Analyze the capture; the exit code of the analysis is ignored."""
    from ..streams import StandardOutputError, forget_output
    from . import analyze

    try:
        analyze.command(analyze.AnalyzeOptions(files, client=records), NamingOptions(), quiet=quiet)
    except SystemExit:
        return  # the error is already reported
    except StandardOutputError as error:
        say(f"cannot write standard output: {error.strerror}")
        forget_output()
