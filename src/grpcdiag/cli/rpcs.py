"""`grpcdiag rpcs`: write one row per RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.clock import ONE_CLOCK, ClockChoice
from .support.common import fail, say
from .support.sidecar import find_sidecar
from .support.tables import read_pieces, row_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..analyzer.decode.runner import Origin
    from ..reports.tables.frame import Frame


def _read_pieces(
    files: list[str], table: str, origin: Origin, *, clock: ClockChoice | None, quiet: bool, **how: Any
) -> Iterable[Frame]:
    if len(files) > 1:
        from ..analyzer.two_captures import vantages

        places = vantages(files, **{name: value for name, value in how.items() if name != "progress"})
        if len(places) > 1:
            return _read_both_ends(places, origin, clock, quiet, how)
    if clock:
        fail(ONE_CLOCK, 2)
    return read_pieces(files, table, origin, **how)


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


_HELP = "Write one row per RPC; with captures of both ends, time by cause on each side."
command = row_command("rpcs", _HELP, _read_pieces, of_rpcs=True)
