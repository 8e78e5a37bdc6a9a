"""`grpcdiag rpcs`: write one row per RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..analyzer.decode.runner import Origin
from .support.clock import ONE_CLOCK, Clock, ClockChoice
from .support.common import (
    Files,
    KeyLog,
    Memory,
    Method,
    Output,
    Ports,
    Quiet,
    ShowMessages,
    Trace,
    decoding,
    fail,
    how,
    progress,
    refuse_mixed_input,
    refuse_own_input,
    say,
)
from .support.sidecar import find_sidecar
from .support.tables import (
    Columns,
    Format,
    FormatOption,
    Limit,
    OnConnections,
    OnStream,
    RowsFrom,
    RowsTo,
    Sort,
    Worst,
    choose,
    read_pieces,
    write,
)
from .support.terminal import Color, When

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..reports.tables.frame import Frame

Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        parser=lambda text: parse_status(text),
        help="Only RPCs with this status; repeatable. failed: all but OK; not_seen: not in the capture.",
    ),
]


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    columns: Columns = None,
    sort: Sort = None,
    limit: Limit = None,
    worst: Worst = None,
    connection: OnConnections = None,
    stream: OnStream = None,
    method: Method = None,
    status: Statuses = None,
    from_: RowsFrom = None,
    to: RowsTo = None,
    trace: Trace = None,
    clock: Clock = None,
    color: Color = When.auto,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    show_messages: ShowMessages = False,
    quiet: Quiet = False,
) -> None:
    """Write one row per RPC; with captures of both ends, time by cause on each side."""
    refuse_own_input(output, files)
    refuse_mixed_input(files)
    wanted = choose(
        format_,
        columns,
        sort,
        limit,
        worst,
        connections=connection,
        stream=stream,
        begin=from_,
        end=to,
        method=method,
        statuses=tuple(status or ()),
        trace=trace,
    )
    chosen = how(files, port, keylog, memory, show_messages=show_messages)
    with decoding(), progress(quiet) as report_progress:
        origin = Origin()
        pieces = _read_pieces(files, origin, clock, quiet, progress=report_progress, **chosen)
        write(pieces, format_, output, "rpcs", wanted, origin, quiet=quiet)


def parse_status(text: str) -> str:
    """Parse the name of a gRPC status, in either case. Raises BadParameter."""
    from ..analyzer import _core

    known = {name.lower(): name for name in (*_core.STATUSES, "failed", "not_seen")}
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is no gRPC status; known: {', '.join(known.values())}")
    return known[text.lower()]


def _read_pieces(
    files: list[str], origin: Origin, clock: ClockChoice | None, quiet: bool, **how: Any
) -> Iterable[Frame]:
    if len(files) > 1:
        from ..analyzer.two_captures import vantages

        places = vantages(files, **{name: value for name, value in how.items() if name != "progress"})
        if len(places) > 1:
            return _read_both_ends(places, origin, clock, quiet, how)
    if clock:
        fail(ONE_CLOCK, 2)
    return read_pieces(files, "rpcs", origin, **how)


def _read_both_ends(
    places: Sequence[Sequence[str]], origin: Origin, clock: ClockChoice | None, quiet: bool, how: dict[str, Any]
) -> Iterable[Frame]:
    from ..analyzer.decode.errors import TooLargeError
    from ..analyzer.two_captures import SPLIT_CAUSES, NoClock, rpc_budgets
    from ..reports.tables import rows

    try:
        found = rpc_budgets(places, described=find_sidecar, synchronised=clock == ClockChoice.synchronised, **how)
    except (NoClock, TooLargeError) as error:
        fail(f"the captures cannot be combined: {error}; give one of them", 2)
    if found.symmetry_assumed and clock is None and not quiet:
        say("network_up and network_down assume that the fastest packets take equally long both ways (--clock)")
    rows.set_origin(origin, found.tables)
    return rows.rpc_pieces(found.tables, found.budgets, SPLIT_CAUSES)
