"""A part of a capture's RPCs judged as if there were no others: those of some connections or methods, or begun in a time.

Everything is decoded, so that windows and header tables are right; what is counted per RPC is counted anew. What is
counted over whole connections only (packets, pauses, PINGs) is judged for connections all of whose RPCs are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from . import _core
from .chosen import Chosen, matches
from .errors import NarrowError
from .quantiles import Durations, interval_of, quantiles_of
from .reading import STEP, How, Progress
from .result import Narrowed
from .tables import (
    BEGUN_BEFORE,
    COMPLETE,
    TOUCHES_GAP,
    Before,
    Connections,
    Ints,
    Method,
    Rpcs,
    Table,
    Tables,
    tables_of,
)

Mask = npt.NDArray[np.bool_]

WHOLE_CONNECTIONS = frozenset(
    {
        "client-idle-gap",
        "connection-churn",
        "connection-closed-early",
        "header-overhead",
        "loss-recovery",
        "max-concurrent-streams",
        "ping-storm",
        "request-batching",
        "shared-connection",
        "small-packets",
        "too-many-pings",
        "window-update-storm",
    }
)
"""Findings that are counted over all that a connection carries: a part of its RPCs cannot be told apart."""

NAMED = 10
"""Methods or connections that a message names at most."""

_OTHER = 3
"""`Connections.protocol` of what is not looked at."""
_COUNTS = (
    "rpcs",
    "max_concurrent_rpcs",
    "other_streams",
    "packets_client",
    "packets_server",
    "bytes_client",
    "bytes_server",
    "congestion_after_loss_ns",
    "retransmission_timeouts",
    "recovery_ns",
    "recovery_from_packet",
    "recovery_to_packet",
    "retransmitted_packets",
    "duplicate_packets",
    "keep_alives",
    "out_of_order_packets",
    "urgent_packets",
    "late_packets",
    "missing_bytes",
    "payload_bytes",
    "decoded_bytes",
    "retransmitted_bytes",
    "not_http2_bytes",
    "encrypted_bytes",
    "undecoded_bytes",
)
"""Columns of connections that count; those of connections that are not looked at become zero."""
_BITS = 32
"""A stream of a connection as one number: connection << 32 | stream."""

_Row = TypeVar("_Row", bound=Struct)


class Read(Struct, frozen=True, eq=False):
    """A capture decoded with what narrowing needs besides its tables."""

    tables: Tables
    """With a row per RPC."""
    turns: tuple[Ints, Ints, Ints]
    """(stream of a connection, packet, time) of ends of request messages and begins of response messages, the latter
    with a negative packet."""
    frames: tuple[Ints, Ints]
    """(stream of a connection << 8 | frame type, how many)."""


class Part(Struct, frozen=True, eq=False):
    """The tables of the chosen RPCs."""

    tables: Tables
    """Of all chosen RPCs."""
    whole: Tables
    """Of those on connections all of whose RPCs are chosen; methods are those of all chosen RPCs."""
    narrowed: Narrowed
    """What was chosen, and how much it is."""

    def judged_by(self, finding: str) -> Tables:
        """The tables that a finding's detector may look at."""
        return self.whole if finding in WHOLE_CONNECTIONS else self.tables

    def not_told(self, finding: str) -> str | None:
        """Why a finding cannot be told of some connections; None when it can of all."""
        in_part = self.narrowed.connections_in_part
        if finding not in WHOLE_CONNECTIONS or not in_part:
            return None
        shown = ", ".join(map(str, in_part[:NAMED]))
        shown += f" and {len(in_part) - NAMED:,} more" if len(in_part) > NAMED else ""
        return (
            f"not told of connection{'s' * (len(in_part) > 1)} {shown}, where only a part of the RPCs is looked at: "
            "it is counted over all that a connection carries"
        )


def read(paths: Sequence[str], chosen: Chosen, progress: Progress | None = None, **how: Unpack[How]) -> Read:
    """Decode a capture once. Raises CaptureError."""
    run = _core.Run(list(paths), frames=True, messages=True, rpc_rows=True, **how)
    turns: list[tuple[Ints, Ints, Ints]] = []
    frames: list[tuple[Ints, Ints]] = []
    more = True
    while more:
        more = run.step(STEP)
        turns.append(_turns(run.take("messages"), chosen))
        frames.append(_frames(run.take("frames"), chosen))
        if len(frames) > _PIECES:
            frames = [_summed(frames)]
        if progress:
            progress(run.bytes_read, run.bytes_total)
    result = run.finish()
    turns.append(_turns(result["messages"], chosen))
    frames.append(_frames(result["frames"], chosen))
    columns = [np.concatenate(column) for column in zip(*turns, strict=True)]
    return Read(tables_of(result), (columns[0], columns[1], columns[2]), _summed(frames))


_PIECES = 32
"""Pieces of counted frames that are put together at once."""


def _wanted(columns: dict[str, Any], chosen: Chosen) -> Mask:
    connection = columns["connection"]
    if not chosen.connections:
        return np.ones(len(connection), dtype=np.bool_)
    return np.isin(connection, chosen.connections)


def _streams(connection: npt.NDArray[Any], stream: npt.NDArray[Any]) -> Ints:
    return connection.astype(np.int64) << _BITS | stream.astype(np.int64)


def _turns(messages: dict[str, Any], chosen: Chosen) -> tuple[Ints, Ints, Ints]:
    mine = {name: column[_wanted(messages, chosen)] for name, column in messages.items()}
    request = mine["direction"] == 0
    packet = np.where(request, mine["last_packet"].astype(np.int64), -mine["first_packet"].astype(np.int64))
    time = np.where(request, mine["last_time_ns"], mine["first_time_ns"])
    return _streams(mine["connection"], mine["stream"]), packet, time


def _frames(frames: dict[str, Any], chosen: Chosen) -> tuple[Ints, Ints]:
    mine = _wanted(frames, chosen)
    keys = _streams(frames["connection"][mine], frames["stream"][mine]) << 8 | frames["kind"][mine]
    found, counts = np.unique(keys, return_counts=True)
    return found, counts


def _summed(pieces: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    keys, place = np.unique(np.concatenate([piece[0] for piece in pieces]), return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, place, np.concatenate([piece[1] for piece in pieces]))
    return keys, counts


def narrow(tables: Tables, seen: Read, chosen: Chosen) -> Part:
    """The part of `tables`, which are those of `seen`, perhaps with what was recorded beside. Raises NarrowError."""
    rpcs = tables.rpcs
    mine = _chosen_rpcs(tables, chosen)
    on = np.bincount(rpcs.connection, minlength=len(tables.connections.rpcs))
    kept = np.bincount(rpcs.connection[mine], minlength=len(on))
    whole = (kept > 0) & (kept == on)
    if chosen.method is None:
        whole |= (on == 0) & _without_rpcs(tables, chosen)
    methods = _methods(tables, mine, seen)
    judged = _tables(tables, mine, whole | (kept > 0), methods, seen, whole)
    apart = (kept > 0) & ~whole
    part = judged
    if apart.any():
        part = _tables(tables, mine & whole[rpcs.connection], whole, methods, seen, whole)
    return Part(judged, part, _told(tables, mine, chosen, tuple(np.flatnonzero(apart).tolist())))


def _chosen_rpcs(tables: Tables, chosen: Chosen) -> Mask:
    rpcs, first = tables.rpcs, tables.capture["first_time_ns"] or 0
    mine = np.ones(len(rpcs.connection), dtype=np.bool_)
    if chosen.connections:
        number = len(tables.connections.rpcs)
        wrong = [connection for connection in chosen.connections if not 0 <= connection < number]
        if wrong:
            raise NarrowError(f"there is no connection {wrong[0]}; the capture has {number:,}, numbered from 0")
        mine &= np.isin(rpcs.connection, chosen.connections)
        if not mine.any():
            raise NarrowError(f"no RPC is on connection {', '.join(map(str, chosen.connections))}")
    if chosen.method is not None:
        mine &= np.isin(rpcs.method, _matching(tables, chosen.method))
    if chosen.from_ns is not None:
        mine &= rpcs.start_time_ns >= first + chosen.from_ns
    if chosen.to_ns is not None:
        mine &= rpcs.start_time_ns <= first + chosen.to_ns
    if not mine.any():
        raise NarrowError(_nothing(tables, chosen))
    return mine


def _nothing(tables: Tables, chosen: Chosen) -> str:
    starts = tables.rpcs.start_time_ns - (tables.capture["first_time_ns"] or 0)
    span = f"RPCs begin from {starts.min() / 1e9:.6f} s to {starts.max() / 1e9:.6f} s of the capture"
    return f"no RPC is left of {len(starts):,}; {span}"


def _matching(tables: Tables, pattern: str) -> list[int]:
    names = {method.number: method.name or method.label for method in tables.methods}
    found = [number for number, name in names.items() if name is not None and matches(name, pattern)]
    if not found:
        there = [name for name in names.values() if name]
        more = f" and {len(there) - NAMED:,} more" if len(there) > NAMED else ""
        has = f"the capture has {', '.join(there[:NAMED])}{more}" if there else "the capture has no method's name"
        raise NarrowError(f"no method is like {pattern!r}; {has}")
    return found


def _without_rpcs(tables: Tables, chosen: Chosen) -> Mask:
    """Connections that are meant though they carry no RPC: they open in the time asked for."""
    first, opened = tables.capture["first_time_ns"] or 0, tables.connections.first_time_ns
    meant = np.ones(len(opened), dtype=np.bool_)
    if chosen.connections:
        meant &= np.isin(np.arange(len(opened)), chosen.connections)
    if chosen.from_ns is not None:
        meant &= opened >= first + chosen.from_ns
    return meant & (opened <= first + chosen.to_ns) if chosen.to_ns is not None else meant


def _told(tables: Tables, mine: Mask, chosen: Chosen, in_part: tuple[int, ...]) -> Narrowed:
    rpcs = tables.rpcs
    return Narrowed(
        connections=chosen.connections or None,
        method=chosen.method,
        from_ns=chosen.from_ns,
        to_ns=chosen.to_ns,
        rpcs=int(mine.sum()),
        of_rpcs=len(mine),
        rpc_time_ns=int(rpcs.duration_ns[mine].sum()),
        of_rpc_time_ns=int(rpcs.duration_ns.sum()),
        connections_in_part=in_part,
    )


# Methods


def _methods(tables: Tables, mine: Mask, seen: Read) -> tuple[Method, ...]:
    keys, turnarounds = _turnarounds(seen)
    rpcs = tables.rpcs
    streams = _streams(rpcs.connection, rpcs.stream)
    order = np.argsort(streams, kind="stable")
    row = order[np.minimum(np.searchsorted(streams[order], keys), len(order) - 1)]
    known = (streams[row] == keys) & mine[row] & (rpcs.flags[row] & TOUCHES_GAP == 0)
    row, turnarounds = row[known], turnarounds[known]
    found = []
    for method in tables.methods:
        rows = np.flatnonzero(mine & (rpcs.method == method.number))
        if len(rows):
            found.append(_method(tables, method, rows, turnarounds[rpcs.method[row] == method.number]))
    return tuple(found)


def _method(tables: Tables, method: Method, rows: Ints, turnarounds: Durations) -> Method:
    rpcs = tables.rpcs
    flags, start, duration = rpcs.flags[rows], rpcs.start_time_ns[rows], rpcs.duration_ns[rows]
    last = len(method.statuses) - 1
    complete = flags & COMPLETE != 0
    latencies = duration[complete & (flags & BEGUN_BEFORE == 0)]
    return replace(
        method,
        rpcs=len(rows),
        complete=int(complete.sum()),
        touch_gaps=int((flags & TOUCHES_GAP != 0).sum()),
        statuses=tuple(np.bincount(np.minimum(rpcs.status[rows], last), minlength=last + 1).tolist()),
        first_start_ns=int(start.min()),
        last_end_ns=int((start + duration).max()),
        latency=quantiles_of(latencies),
        latency_intervals=interval_of(latencies),
        messages=int(rpcs.request_messages[rows].sum(dtype=np.int64) + rpcs.response_messages[rows].sum(dtype=np.int64)),
        budget=tuple(tables.rpc_budgets[rows].sum(axis=0).tolist()),
        turnaround=quantiles_of(turnarounds),
        turnaround_intervals=interval_of(turnarounds),
    )


def _turnarounds(seen: Read) -> tuple[Ints, Durations]:
    """From a request message's end to the next response message's begin: the stream of each, and how long."""
    keys, packet, time = seen.turns
    order = np.lexsort((np.abs(packet), keys))
    keys, packet, time = keys[order], packet[order], time[order]
    answers = np.flatnonzero((packet[1:] < 0) & (packet[:-1] > 0) & (keys[1:] == keys[:-1])) + 1
    return keys[answers], np.maximum(time[answers] - time[answers - 1], 0)


# Tables


def _tables(tables: Tables, mine: Mask, on: Mask, methods: tuple[Method, ...], seen: Read, whole: Mask) -> Tables:
    """The tables with the RPCs `mine` and the connections `on`; others keep their numbers and count nothing."""
    rows = np.flatnonzero(mine)
    waits, streams = _waits(tables, mine, on & whole)
    rpcs = _rows(tables.rpcs, rows)
    failures, budgets = _failures(tables, mine, rows)
    number, causes = tables.connection_budgets.shape
    connection_budgets = np.zeros((number, causes), dtype=np.int64)
    np.add.at(connection_budgets, rpcs.connection.astype(np.int64), tables.rpc_budgets[rows])
    twice = np.repeat(on, 2)
    measured = tables.measured and type(tables.measured)(
        tables.measured.stops[waits], tables.measured.before_idle[waits]
    )
    deadlines = np.full(len(mine), -1, dtype=np.int64)
    deadlines[: len(tables.deadlines)] = tables.deadlines
    return replace(
        tables,
        connections=_connections(tables, rpcs, on, whole),
        connection_budgets=connection_budgets,
        rpcs=rpcs,
        deadlines=deadlines[rows],
        rpc_budgets=tables.rpc_budgets[rows],
        waits=replace(_rows(tables.waits, waits), streams=streams),
        directions=_zeroed(tables.directions, twice),
        turns=_zeroed(tables.turns, on),
        idles=_of(tables.idles, on),
        pings=_of(tables.pings, on),
        goaways=_of(tables.goaways, on),
        delays=_of_streams(tables, tables.delays, mine),
        connection_methods=_connection_methods(tables, rpcs),
        failures=failures,
        failure_budgets=budgets,
        methods=methods,
        frame_counts=_frame_counts(seen, tables, mine, whole & on),
        message_count=sum(method.messages for method in methods),
        begun_before=int((rpcs.flags & BEGUN_BEFORE != 0).sum()),
        other_streams=int(tables.connections.other_streams[on].sum()),
        measured=measured or None,
        before=Before(tables, waits),
    )


def _rows(table: _Row, rows: Ints | Mask) -> _Row:
    columns = {name: getattr(table, name) for name in table.__struct_fields__}
    return type(table)(**{name: column[rows] if len(column) else column for name, column in columns.items()})


def _of(table: Table, on: Mask) -> Table:
    return _rows(table, on[table.connection])  # type: ignore[union-attr]


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
    """The most of these RPCs that were open at once, by connection; one that begins as another ends is not beside it."""
    number = len(rpcs.connection)
    time = np.r_[rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns]
    step = np.r_[np.ones(number, dtype=np.int64), -np.ones(number, dtype=np.int64)]
    connection = np.r_[rpcs.connection, rpcs.connection].astype(np.int64)
    order = np.lexsort((step, time, connection))
    most = np.zeros(connections, dtype=np.int64)
    np.maximum.at(most, connection[order], np.cumsum(step[order]))  # each connection's steps add up to zero
    return most


def _connection_methods(tables: Tables, rpcs: Rpcs) -> Any:
    pairs = np.unique(np.stack([rpcs.connection, rpcs.method], axis=1), axis=0)
    return type(tables.connection_methods)(pairs[:, 0].copy(), pairs[:, 1].copy())


def _failures(tables: Tables, mine: Mask, rows: Ints) -> tuple[Any, Ints]:
    table = tables.failures
    place = np.cumsum(mine) - 1
    kept = mine[table.rpc]
    budgets = tables.failure_budgets
    failures = replace(_rows(table, kept), rpc=place[table.rpc[kept]].astype(np.uint32))
    return failures, budgets[kept] if len(budgets) == len(kept) else budgets


def _of_streams(tables: Tables, table: Table, mine: Mask) -> Table:
    """The rows of a table whose stream carries one of the RPCs."""
    return _rows(table, _carries(tables, table, mine))


def _carries(tables: Tables, table: Any, mine: Mask) -> Mask:
    rpcs = tables.rpcs
    return np.isin(_streams(table.connection, table.stream), _streams(rpcs.connection[mine], rpcs.stream[mine]))


def _waits(tables: Tables, mine: Mask, whole: Mask) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Rows of the waits that made one of the RPCs wait, and how many of them at most.

    A wait that interrupted several streams names the last of them only; there RPCs count that were open at the stop.
    """
    waits, rpcs = tables.waits, tables.rpcs
    in_full = whole[waits.connection]
    own = _carries(tables, waits, mine)
    times, place = np.unique(
        np.r_[waits.start_time_ns, rpcs.start_time_ns, rpcs.start_time_ns + rpcs.duration_ns], return_inverse=True
    )
    number, calls = len(waits.start_time_ns), len(rpcs.connection)
    at = waits.connection.astype(np.int64) * len(times) + place[:number]
    base = rpcs.connection[mine].astype(np.int64) * len(times)
    begun = np.sort(base + place[number : number + calls][mine])
    ended = np.sort(base + place[number + calls :][mine])
    open_ones = np.searchsorted(begun, at, side="right") - np.searchsorted(ended, at, side="right")
    several = (waits.streams > 1) & (open_ones > 0)
    rows = np.flatnonzero(in_full | own | several)
    least = np.maximum(np.minimum(waits.streams, open_ones), np.minimum(waits.streams, 1))
    return rows, np.where(in_full, waits.streams, least)[rows].astype(np.uint32)


def _frame_counts(seen: Read, tables: Tables, mine: Mask, whole: Mask) -> dict[str, int]:
    """Frames of the RPCs' streams, and all of connections that are judged whole."""
    keys, counts = seen.frames
    streams, rpcs = keys >> 8, tables.rpcs
    ours = np.isin(streams, _streams(rpcs.connection[mine], rpcs.stream[mine])) | whole[streams >> _BITS]
    names = [*_core.FRAME_TYPES, "UNKNOWN"]
    kinds = np.minimum(keys[ours] & 0xFF, len(names) - 1)
    sums = np.bincount(kinds, weights=counts[ours], minlength=len(names)).astype(np.int64)
    return {name: count for name, count in zip(names, sums.tolist(), strict=True) if count}
