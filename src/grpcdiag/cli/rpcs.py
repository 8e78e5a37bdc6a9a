"""`grpcdiag rpcs`: write one row per RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.clock import ONE_CLOCK, Clock, ClockChoice
from .support.common import (
    Files,
    KeyLog,
    Memory,
    Output,
    Ports,
    Quiet,
    ShowMessages,
    Trace,
    decoding,
    fail,
    how,
    progress,
    say,
)
from .support.sidecar import find_sidecar
from .support.tables import ROWS_SHOWN, Format, FormatOption, Limit, read_pieces, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    trace: Trace = None,
    clock: Clock = None,
    port: Ports = None,
    keylog: KeyLog = None,
    memory: Memory = None,
    show_messages: ShowMessages = False,
    quiet: Quiet = False,
) -> None:
    """Write one row per RPC; with captures of both ends, time by cause on each side."""
    chosen = how(port, keylog, memory, show_messages=show_messages)
    with decoding(), progress(quiet) as report_progress:
        pieces = _read_pieces(files, clock, quiet, progress=report_progress, **chosen)
        write(pieces if trace is None else _select_trace(pieces, trace), format_, output, limit, "rpcs")


def _select_trace(pieces: Iterable[pl.DataFrame], trace: int) -> Iterator[pl.DataFrame]:
    import polars as pl

    for piece in pieces:
        yield piece.filter(pl.col("trace_id") == f"{trace:032x}")


def _read_pieces(files: list[str], clock: ClockChoice | None, quiet: bool, **how: Any) -> Iterable[pl.DataFrame]:
    if len(files) > 1:
        from ..analyzer.two_captures import vantages

        places = vantages(files, **{name: value for name, value in how.items() if name != "progress"})
        if len(places) > 1:
            return _read_both_ends(places, clock, quiet, how)
    if clock:
        fail(ONE_CLOCK, 2)
    return read_pieces(files, "rpcs", **how)


def _read_both_ends(
    places: Sequence[Sequence[str]], clock: ClockChoice | None, quiet: bool, how: dict[str, Any]
) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.errors import TooLargeError
    from ..analyzer.two_captures import SPLIT_CAUSES, NoClock, rpc_budgets
    from ..reports.tables import rows

    try:
        found = rpc_budgets(places, described=find_sidecar, synchronised=clock == ClockChoice.synchronised, **how)
    except (NoClock, TooLargeError) as error:
        fail(f"the captures cannot be combined: {error}; give one of them", 2)
    if found.symmetry_assumed and clock is None and not quiet:
        say("network_up and network_down assume that the fastest packets take equally long both ways (--clock)")
    return rows.rpc_pieces(found.tables, found.budgets, SPLIT_CAUSES)
