"""Read a capture for export as spans: RPCs, their turns at the server, retransmissions and PINGs."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..decode.rpc_columns import RpcColumns
from ..decode.runner import DecodeOptions, Progress, Run
from ..tables import Ints, Tables, tables_of
from .events import RETRANSMISSION
from .trace_data import find_first, find_last, look_up

MOST_EVENTS = 1_000_000
"""Most retransmissions and PINGs of a capture that become events: each needs 32 bytes of memory."""
EVENT_NAMES = ("retransmission", "PING", "PING ACK")
"""Names of events by their kind."""
_RETRANSMISSION, _PING = 0, 1
_ACK, _END_STREAM = 1, 1
_FRAME = {name: _core.FRAME_TYPES.index(name) for name in ("DATA", "HEADERS", "PING")}


class Events(Struct, frozen=True, eq=False):
    """Retransmissions and PINGs, by connection and time."""

    connection: Ints
    time_ns: Ints
    packet: Ints
    kind: Ints
    """2 x index into `EVENT_NAMES` + direction."""


class SpanData(Struct, frozen=True, eq=False):
    """A decoded capture with a row per RPC, and what else its spans show."""

    tables: Tables
    request_end_ns: Ints
    """Per RPC: time of the last byte of its request; -1 if the capture lacks it."""
    response_start_ns: Ints
    """Per RPC: time of the first byte of its first response DATA, otherwise of its response; -1 if the capture lacks
    it."""
    events: Events
    events_left_out: int
    """Events beyond `MOST_EVENTS`."""


def read_span_data(paths: Sequence[str], *, progress: Progress | None = None, **how: Unpack[DecodeOptions]) -> SpanData:
    """Read a capture once. Raises CaptureError."""
    run = Run(paths, frames=True, packets=True, rpc_rows=True, **how)
    turns, events = _Turns(), _Events()
    for take in run.read(progress, RpcColumns()):
        frames, packets = take("frames"), take("packets")
        turns.add(frames)
        events.add(packets, packets["note"] == RETRANSMISSION, "packet", "time_ns", _RETRANSMISSION)
        pings = frames["kind"] == _FRAME["PING"]
        events.add(frames, pings, "last_packet", "last_time_ns", _PING + (frames["flags"] & _ACK).astype(np.int64))
    tables = tables_of(run.result)
    return SpanData(tables, *turns.find(tables), events.sort(), events.left_out)


class _Events:
    """Events, collected piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[npt.NDArray[Any]] = []
        self.count = self.left_out = 0

    def add(self, table: Mapping[str, Any], mask: Any, packet: str, time: str, kind: int | Ints) -> None:
        """Add the rows of a table that a mask selects."""
        rows = np.flatnonzero(mask)
        taken = rows[: MOST_EVENTS - self.count]
        self.count += len(taken)
        self.left_out += len(rows) - len(taken)
        kinds = np.broadcast_to(2 * np.asarray(kind) + table["direction"], mask.shape)[taken]
        self.pieces.append(
            np.array([table["connection"][taken], table[time][taken], table[packet][taken], kinds], dtype=np.int64)
        )

    def sort(self) -> Events:
        """Sort the events by connection and time."""
        connection, time, packet, kind = np.concatenate(self.pieces, axis=1)
        order = np.lexsort((packet, time, connection))
        return Events(connection[order], time[order], packet[order], kind[order])


class _Turns:
    """Ends of requests and starts of responses, collected piece by piece."""

    def __init__(self) -> None:
        self.requests: list[tuple[Ints, Ints]] = []
        self.headers: list[tuple[Ints, Ints]] = []
        self.data: list[tuple[Ints, Ints]] = []

    def add(self, frames: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add the next frames of the capture."""
        key = frames["connection"].astype(np.int64) << 32 | frames["stream"]
        is_data, is_headers = frames["kind"] == _FRAME["DATA"], frames["kind"] == _FRAME["HEADERS"]
        client, ended = frames["direction"] == 0, frames["flags"] & _END_STREAM != 0
        last = client & ended & (is_data | is_headers)
        self.requests.append(find_last(key[last], frames["last_time_ns"][last]))
        for found, rows in (
            (self.headers, ~client & is_headers),
            (self.data, ~client & is_data & (frames["length"] > 0)),
        ):
            found.append(find_first(key[rows], frames["first_time_ns"][rows]))

    def find(self, tables: Tables) -> tuple[Ints, Ints]:
        """Return `SpanData.request_end_ns` and `response_start_ns`; -1 for reused stream identifiers."""
        key = tables.rpcs.connection.astype(np.int64) << 32 | tables.rpcs.stream
        _, inverse, times = np.unique(key, return_inverse=True, return_counts=True)
        once = times[inverse] == 1
        ends = look_up(key, *_join(self.requests, find_last))
        headers, data = (look_up(key, *_join(found, find_first)) for found in (self.headers, self.data))
        return np.where(once, ends, -1), np.where(once, np.where(data < 0, headers, data), -1)


def _join(pieces: list[tuple[Ints, Ints]], find: Any) -> tuple[Ints, Ints]:
    found: tuple[Ints, Ints] = find(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
    return found
