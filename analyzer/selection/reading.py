"""Decode a capture with the data that narrowing needs: order of messages, frames by stream."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..decode.rpc_columns import RpcColumns
from ..decode.runner import DecodeOptions, Progress, Run
from ..tables import Ints, Mask, Tables, tables_of
from .selection import Selection

BITS = 32
"""A stream of a connection as one number: connection << 32 | stream."""

_HEADERS, _END_STREAM = 1, 1
"""The larger of the types DATA and HEADERS, and the flag that ends a stream (RFC 9113 section 6.1)."""

_PIECES = 32
"""Pieces of counted frames that are put together at once."""


class Read(Struct, frozen=True, eq=False):
    """A decoded capture with the data that narrowing needs."""

    tables: Tables
    """With a row per RPC."""
    turns: tuple[Ints, Ints, Ints]
    """(stream of a connection, packet, time) of ends of request messages and begins of response messages, the latter
    with a negative packet."""
    frames: tuple[Ints, Ints]
    """(stream of a connection << 8 | frame type, how many)."""
    request_ends: tuple[Ints, Ints]
    """(stream of a connection, time) of the ends of requests: END_STREAM of the client."""


def read(
    paths: Sequence[str], chosen: Selection, progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> Read:
    """Decode a capture once. Raises CaptureError."""
    run = Run(paths, frames=True, messages=True, rpc_rows=True, **how)
    turns: list[tuple[Ints, Ints, Ints]] = []
    frames: list[tuple[Ints, Ints]] = []
    ends: list[tuple[Ints, Ints]] = []
    for take in run.read(progress, RpcColumns()):
        turns.append(_turns(take("messages"), chosen))
        _add_frames(take("frames"), chosen, frames, ends)
        if len(frames) > _PIECES:
            frames = [_summed(frames)]
    columns = [np.concatenate(column) for column in zip(*turns, strict=True)]
    ended = [np.concatenate(column) for column in zip(*ends, strict=True)]
    return Read(tables_of(run.result), (columns[0], columns[1], columns[2]), _summed(frames), (ended[0], ended[1]))


def _wanted(columns: dict[str, Any], chosen: Selection) -> Mask:
    connection = columns["connection"]
    if not chosen.connections:
        return np.ones(len(connection), dtype=np.bool_)
    return np.isin(connection, chosen.connections)


def streams_of(connection: npt.NDArray[Any], stream: npt.NDArray[Any]) -> Ints:
    """Combine connection and stream into one number."""
    return connection.astype(np.int64) << BITS | stream.astype(np.int64)


def _turns(messages: dict[str, Any], chosen: Selection) -> tuple[Ints, Ints, Ints]:
    mine = {name: column[_wanted(messages, chosen)] for name, column in messages.items()}
    request = mine["direction"] == 0
    packet = np.where(request, mine["last_packet"].astype(np.int64), -mine["first_packet"].astype(np.int64))
    time = np.where(request, mine["last_time_ns"], mine["first_time_ns"])
    return streams_of(mine["connection"], mine["stream"]), packet, time


def _add_frames(
    found: dict[str, Any], chosen: Selection, frames: list[tuple[Ints, Ints]], ends: list[tuple[Ints, Ints]]
) -> None:
    frames.append(_frames(found, chosen))
    last = (found["direction"] == 0) & (found["kind"] <= _HEADERS) & (found["flags"] & _END_STREAM != 0)
    ends.append((streams_of(found["connection"][last], found["stream"][last]), found["last_time_ns"][last]))


def _frames(frames: dict[str, Any], chosen: Selection) -> tuple[Ints, Ints]:
    mine = _wanted(frames, chosen)
    keys = streams_of(frames["connection"][mine], frames["stream"][mine]) << 8 | frames["kind"][mine]
    found, counts = np.unique(keys, return_counts=True)
    return found, counts


def _summed(pieces: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    keys, place = np.unique(np.concatenate([piece[0] for piece in pieces]), return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, place, np.concatenate([piece[1] for piece in pieces]))
    return keys, counts
