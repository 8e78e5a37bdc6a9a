"""Judge some of a capture's RPCs as if there were no others: by connection, method or time of beginning.

Everything is decoded, so that windows and header tables are right; counts per RPC are recomputed. Counts over whole
connections (packets, pauses, PINGs) are judged for connections all of whose RPCs are selected.
"""

import numpy as np
from msgspec import Struct

from ..model.analysis import Narrowed
from ..model.detector import About
from ..model.text import list_first
from ..tables import Ints, Mask, Tables
from ..tables.durations import total_ns
from .methods import methods
from .part import part
from .reading import Read, read
from .rpcs import NAMED, select_other_requests, select_rpcs, select_without_rpcs
from .selection import Selection, after_first

__all__ = ["Part", "Read", "narrow", "read", "select_rpcs"]


class Part(Struct, frozen=True, eq=False):
    """The tables of the selected RPCs."""

    tables: Tables
    """Tables of all selected RPCs."""
    whole: Tables
    """Tables of connections all of whose RPCs are selected; methods are those of all selected RPCs."""
    narrowed: Narrowed
    """What was selected, and how much it is."""
    servers: Tables | None = None
    """Tables of the legs behind the last proxies, where the servers are; None without joined legs."""

    def choose_tables(self, about: About) -> Tables:
        """Return the tables that a detector may use."""
        if about.judges_servers and self.servers is not None:
            return self.servers
        return self.whole if about.whole_connections else self.tables

    def explain_skipped(self, about: About) -> str | None:
        """Say why a finding cannot be judged on some connections; None when it can on all."""
        in_part = self.narrowed.connections_in_part
        if not about.whole_connections or not in_part:
            return None
        shown = list_first(list(map(str, in_part)), NAMED)
        return (
            f"not judged on connection{'s' * (len(in_part) > 1)} {shown}, where only a part of the RPCs is selected: "
            "it is counted over whole connections"
        )


def narrow(tables: Tables, seen: Read, chosen: Selection, calls: Ints | None = None) -> Part:
    """Take the selected part of `tables`, which are those of `seen`, perhaps with a sidecar. Raises NarrowError.

    `calls` has the row of each RPC's first leg, where legs are joined: a leg is selected if its call is.
    """
    rpcs = tables.rpcs
    mine = select_rpcs(tables, chosen, calls)
    on = np.bincount(rpcs.connection, minlength=len(tables.connections.rpcs))
    kept = np.bincount(rpcs.connection[mine], minlength=len(on))
    whole = (kept > 0) & (kept == on)
    if chosen.method is None and chosen.trace is None:
        whole |= (on == 0) & select_without_rpcs(tables, chosen)
    once = np.ones(len(mine), dtype=bool) if calls is None else calls == np.arange(len(mine))
    counted = methods(tables, mine & once, seen)
    others = select_other_requests(tables, chosen)
    judged = part(tables, mine, whole | (kept > 0), counted, seen, whole, others)
    apart = (kept > 0) & ~whole
    alone = judged
    if apart.any():
        alone = part(tables, mine & whole[rpcs.connection], whole, counted, seen, whole, others)
    in_part = tuple(np.flatnonzero(apart).tolist())
    return Part(judged, alone, _describe_selection(tables, mine & once, once, chosen, in_part))


def _describe_selection(
    tables: Tables, mine: Mask, once: Mask, chosen: Selection, in_part: tuple[int, ...]
) -> Narrowed:
    rpcs, first = tables.rpcs, tables.capture["first_time_ns"] or 0
    return Narrowed(
        connections=chosen.connections or None,
        method=chosen.method,
        from_ns=None if chosen.begin is None else after_first(chosen.begin, first),
        to_ns=None if chosen.end is None else after_first(chosen.end, first),
        trace_id=None if chosen.trace is None else f"{chosen.trace:032x}",
        rpcs=int(mine.sum()),
        of_rpcs=int(once.sum()),
        rpc_time_ns=total_ns(rpcs.duration_ns[mine]),
        of_rpc_time_ns=total_ns(rpcs.duration_ns[once]),
        connections_in_part=in_part,
    )
