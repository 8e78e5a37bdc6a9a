"""Make tables of some of the RPCs: others have no rows, and all connections keep their numbers."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from .. import _core
from ..decode.disk_columns import gathered
from ..summary.figures import COUNTS
from ..tables import BEGUN_BEFORE, Before, Connections, Ints, Mask, Method, Processes, Rpcs, Tables
from ..tables.grouping import take_rows
from .reading import BITS, Read, streams_of

_OTHER = 3
"""`Connections.protocol` of connections that are not selected."""
_COUNTS = (
    *COUNTS,
    "congestion_after_loss_ns",
    "loss_recovery_in_outages_ns",
    "retransmission_timeouts",
    "recovery_ns",
    "recovery_from_packet",
    "recovery_to_packet",
    "outage_ns",
    "outage_from_packet",
    "outage_to_packet",
    "late_packets",
    "payload_bytes",
    "decoded_bytes",
    "retransmitted_bytes",
    "not_http2_bytes",
    "encrypted_bytes",
    "undecoded_bytes",
    "undelivered_bytes",
)
"""Columns of connections with counts, which become zero for connections that are not selected."""

_OF_CONNECTIONS = ("idles", "stalls", "closings", "unanswered", "undelivered", "icmp_errors", "pings", "goaways")
"""Tables whose rows are of a connection, not of an RPC."""
_OF_STREAMS = ("open_rpcs", "delays", "repeats")
"""Tables whose rows are of an RPC by its stream."""

_Row = TypeVar("_Row", bound=Struct)


def part(
    tables: Tables, mine: Mask, on: Mask, methods: tuple[Method, ...], seen: Read, whole: Mask, others: Mask
) -> Tables:
    """Make the tables with the RPCs `mine`, other requests `others`, and connections `on`; the rest counts nothing."""
    rows = np.flatnonzero(mine)
    waits, streams = _waits(tables, mine, on & whole)
    rpcs = _rows(tables.rpcs, rows)
    failures, budgets = _failures(tables, mine, rows)
    number, causes = tables.connection_budgets.shape
    connection_budgets = np.zeros((number, causes), dtype=np.int64)
    rpc_budgets = gathered(tables.rpc_budgets, rows)
    np.add.at(connection_budgets, rpcs.connection.astype(np.int64), rpc_budgets)
    twice, asked = np.repeat(on, 2), on[tables.other_requests.connection]
    pairs = np.unique(np.stack([rpcs.connection, rpcs.method], axis=1), axis=0)
    return replace(
        tables,
        connections=_connections(tables, rpcs, on, whole),
        connection_budgets=connection_budgets,
        rpcs=rpcs,
        deadlines=gathered(tables.deadlines, rows),
        rpc_budgets=rpc_budgets,
        waits=replace(_rows(tables.waits, waits), streams=streams),
        directions=_zeroed(tables.directions, twice),
        turns=_zeroed(tables.turns, on),
        other_requests=_rows(tables.other_requests, asked & others),
        connection_methods=type(tables.connection_methods)(pairs[:, 0].copy(), pairs[:, 1].copy()),
        failures=failures,
        failure_budgets=budgets,
        methods=methods,
        frame_counts=_frame_counts(seen, tables, mine, whole & on),
        message_count=sum(method.messages for method in methods),
        begun_before=int((rpcs.flags & BEGUN_BEFORE != 0).sum()),
        other_streams=int(tables.connections.other_streams[on].sum()) - int((asked & ~others).sum()),
        measured=tables.measured and take_rows(tables.measured, waits),
        before=Before(tables, waits),
        processes=tables.processes and _choose_acts(tables, tables.processes, mine, on & whole),
        **_choose(tables, _OF_CONNECTIONS, lambda table: on[table.connection]),
        **_choose(tables, _OF_STREAMS, lambda table: _carries(tables, table, mine)),
    )


def _choose_acts(tables: Tables, processes: Processes, mine: Mask, whole: Mask) -> Processes:
    """Choose what the threads did for the RPCs, and while connections that are judged whole were idle."""
    acts = processes.acts
    rows = np.where(acts.idle > 0, whole[acts.connection], _carries(tables, acts, mine))
    return replace(processes, acts=take_rows(acts, rows), follow=None, list_spans=None)


def _rows(table: _Row, rows: Ints | Mask) -> _Row:
    columns = {name: getattr(table, name) for name in table.__struct_fields__}
    return type(table)(**{name: gathered(column, rows) if len(column) else column for name, column in columns.items()})


def _choose(tables: Tables, names: Sequence[str], choose: Callable[[Any], Mask]) -> dict[str, Any]:
    """Choose rows of some tables."""
    return {name: _rows(getattr(tables, name), choose(getattr(tables, name))) for name in names}


def _zeroed(table: _Row, on: Mask) -> _Row:
    columns = {name: getattr(table, name) for name in table.__struct_fields__}
    return type(table)(**{name: np.where(on, column, np.zeros_like(column)) for name, column in columns.items()})


def _connections(tables: Tables, rpcs: Rpcs, on: Mask, whole: Mask) -> Connections:
    table = tables.connections
    changed: dict[str, Any] = {"protocol": np.where(on, table.protocol, _OTHER).astype(np.uint8)}
    for name in _COUNTS:
        column = getattr(table, name)
        changed[name] = np.where(on, column, np.zeros_like(column))
    for name in ("goaway_client", "goaway_server"):
        changed[name] = np.where(on, getattr(table, name), -1)
    changed["rpcs"] = np.bincount(rpcs.connection, minlength=len(on)).astype(np.uint32)
    most = np.where(whole, table.max_concurrent_rpcs, _at_once(rpcs, len(on)))
    changed["max_concurrent_rpcs"] = np.where(on, most, 0).astype(np.uint32)
    return replace(table, **changed)


def _at_once(rpcs: Rpcs, connections: int) -> Ints:
    """Count the most of these RPCs open at once by connection; one that begins when another ends is not concurrent."""
    number = len(rpcs.connection)
    time = np.r_[rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns]
    step = np.r_[np.ones(number, dtype=np.int64), -np.ones(number, dtype=np.int64)]
    connection = np.r_[rpcs.connection, rpcs.connection].astype(np.int64)
    order = np.lexsort((step, time, connection))
    most = np.zeros(connections, dtype=np.int64)
    np.maximum.at(most, connection[order], np.cumsum(step[order]))  # each connection's steps add up to zero
    return most


def _failures(tables: Tables, mine: Mask, rows: Ints) -> tuple[Any, Ints]:
    table = tables.failures
    place = np.cumsum(mine) - 1
    kept = mine[table.rpc]
    budgets = tables.failure_budgets
    failures = replace(_rows(table, kept), rpc=place[table.rpc[kept]].astype(np.uint32))
    return failures, budgets[kept] if len(budgets) == len(kept) else budgets


def _carries(tables: Tables, table: Any, mine: Mask) -> Mask:
    """Mark rows of a table whose stream carries one of the RPCs."""
    rpcs = tables.rpcs
    return np.isin(streams_of(table.connection, table.stream), streams_of(rpcs.connection[mine], rpcs.stream[mine]))


def _waits(tables: Tables, mine: Mask, whole: Mask) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Find blocked intervals in which one of the RPCs waited, and how many of them at most.

    An interval that interrupted several streams names only the last; RPCs that were open at the stop count there.
    """
    waits, rpcs = tables.waits, tables.rpcs
    in_full = whole[waits.connection]
    own = _carries(tables, waits, mine)
    starts = rpcs.start_time_ns[mine]
    times, place = np.unique(np.r_[waits.start_time_ns, starts, starts + rpcs.duration_ns[mine]], return_inverse=True)
    number, calls = len(waits.start_time_ns), len(starts)
    at = waits.connection.astype(np.int64) * len(times) + place[:number]
    base = rpcs.connection[mine].astype(np.int64) * len(times)
    begun = np.sort(base + place[number : number + calls])
    ended = np.sort(base + place[number + calls :])
    open_ones = np.searchsorted(begun, at, side="right") - np.searchsorted(ended, at, side="right")
    several = (waits.streams > 1) & (open_ones > 0)
    rows = np.flatnonzero(in_full | own | several)
    least = np.maximum(np.minimum(waits.streams, open_ones), np.minimum(waits.streams, 1))
    return rows, np.where(in_full, waits.streams, least)[rows].astype(np.uint32)


def _frame_counts(seen: Read, tables: Tables, mine: Mask, whole: Mask) -> dict[str, int]:
    """Count frames of the RPCs' streams, and all frames of connections that are judged whole."""
    keys, counts = seen.frames
    streams, rpcs = keys >> 8, tables.rpcs
    ours = np.isin(streams, streams_of(rpcs.connection[mine], rpcs.stream[mine])) | whole[streams >> BITS]
    names = [*_core.FRAME_TYPES, "UNKNOWN"]
    kinds = np.minimum(keys[ours] & 0xFF, len(names) - 1)
    sums = np.bincount(kinds, weights=counts[ours], minlength=len(names)).astype(np.int64)
    return {name: count for name, count in zip(names, sums.tolist(), strict=True) if count}
