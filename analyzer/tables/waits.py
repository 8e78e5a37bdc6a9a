"""Blocked intervals, and which of their congestion windows are measured."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .columns import Codes, Counts, Ints, Sizes


class Waits(Struct, frozen=True, eq=False):
    """One row per blocked interval: a side had more bytes of a message or frame to send, and sent none."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "stream whose bytes the sender sent last before the stop"]
    direction: Annotated[Codes, "the sender that stopped"]
    start_time_ns: Annotated[
        Ints, "when it sent its last bytes before the stop, or when a response is taken to have been ready"
    ]
    duration_ns: Annotated[Ints, "from then until it sent its next bytes"]
    cause: Annotated[Codes, "index into `CAUSES`"]
    owed_bytes: Annotated[
        Sizes, "bytes of the message or frame still to send at the stop, 0 when only the frame that ends the stream was"
    ]
    in_flight_bytes: Annotated[Ints, "bytes sent and not acknowledged at the stop, as known to the sender"]
    congestion_window_bytes: Annotated[Ints, "estimated congestion window at the stop"]
    receive_window_bytes: Annotated[Ints, "the peer's TCP receive window at the stop"]
    stream_window_bytes: Annotated[Ints, "the HTTP/2 stream window left at the stop, `WINDOW_NOT_KNOWN` when not known"]
    connection_window_bytes: Annotated[
        Ints, "the HTTP/2 connection window left at the stop, `WINDOW_NOT_KNOWN` when not known"
    ]
    stream_window_size_bytes: Annotated[Ints, "size of the stream's window, as the peer's SETTINGS say"]
    connection_window_size_bytes: Annotated[Ints, "size of the connection's window: the largest so far"]
    stopped_at_packet: Annotated[Counts, "packet with the last bytes before the stop"]
    stopped_time_ns: Annotated[Ints, "time of that packet: `start_time_ns`, or earlier if other causes came first"]
    released_by_packet: Annotated[Counts, "the ACK right before the sender resumed, 0 for none"]
    resumed_at_packet: Annotated[Counts, "packet with the next bytes"]
    released_time_ns: Annotated[Ints, "time of that ACK"]
    flight: Annotated[Counts, "number of the sender's flight that it interrupted, from 1"]
    flight_first_packet: Annotated[Counts, "the flight's first packet"]
    flight_start_time_ns: Annotated[Ints, "time of that packet"]
    idle_before_ns: Annotated[Ints, "from the sender's last data to the beginning of the flight"]
    rto_ns: Annotated[Ints, "estimated retransmission timeout of the sender"]
    window_before_idle_bytes: Annotated[Ints, "estimated congestion window before that idle time"]
    mss: Annotated[Counts, "payload bytes of the sender's full segments"]
    rtt_ns: Annotated[Ints, "minimum round trip so far"]
    streams: Annotated[Counts, "number of streams whose message it interrupted"]
    retransmissions: Annotated[Counts, "retransmissions of the sender during the interval"]
    after_loss: Annotated[Codes, "1 when a loss had reduced the congestion window that blocked the sender"]
    method: Annotated[Counts, "method of the stream's RPC, `NO_METHOD` when not known"]


class Measured(Struct, frozen=True, eq=False):
    """Which congestion windows of the waits table the sender's kernel reported; the others are estimates."""

    stops: npt.NDArray[np.bool_]
    """Which values of `congestion_window_bytes` are measured."""
    before_idle: npt.NDArray[np.bool_]
    """Which values of `window_before_idle_bytes` are measured."""
