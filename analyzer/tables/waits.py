"""Waits, and which of their windows are more than estimates."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .columns import Codes, Counts, Ints, Sizes


class Waits(Struct, frozen=True, eq=False):
    """One row per interval in which a side owed bytes and sent none."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "stream whose bytes came last before the stop"]
    direction: Annotated[Codes, "the side that owed"]
    start_time_ns: Annotated[Ints, "its last bytes before the stop"]
    duration_ns: Annotated[Ints, "until its next bytes"]
    cause: Annotated[Codes, "index into `CAUSES`"]
    owed_bytes: Annotated[
        Sizes, "bytes of the message or frame still to come at the stop, 0 when only the frame was that ends the stream"
    ]
    in_flight_bytes: Annotated[Ints, "sent and not acknowledged at the stop, as the sender knew it"]
    congestion_window_bytes: Annotated[Ints, "estimate at the stop"]
    receive_window_bytes: Annotated[Ints, "the peer's TCP window at the stop"]
    stream_window_bytes: Annotated[Ints, "the stream's window, `WINDOW_NOT_KNOWN` when not known"]
    connection_window_bytes: Annotated[Ints, "the connection's, `WINDOW_NOT_KNOWN` when not known"]
    stopped_at_packet: Annotated[Counts, "packet of the last bytes before the stop"]
    released_by_packet: Annotated[Counts, "the ACK right before the sender resumed, 0 for none"]
    resumed_at_packet: Annotated[Counts, "packet of the next bytes"]
    released_time_ns: Annotated[Ints, "time of the ACK right before the sender resumed"]
    flight: Annotated[Counts, "which of the sender's flights it interrupted, from 1"]
    flight_first_packet: Annotated[Counts, "the flight's first packet"]
    flight_start_time_ns: Annotated[Ints, "time of that packet"]
    idle_before_ns: Annotated[Ints, "from the sender's last data to the flight"]
    rto_ns: Annotated[Ints, "estimate of the sender's retransmission timeout"]
    window_before_idle_bytes: Annotated[Ints, "estimated congestion window before the idle time"]
    mss: Annotated[Counts, "payload bytes of the sender's full segments"]
    rtt_ns: Annotated[Ints, "smallest round trip so far"]
    streams: Annotated[Counts, "streams whose message it interrupted"]
    retransmissions: Annotated[Counts, "retransmissions of the sender during it"]
    after_loss: Annotated[Codes, "1 when the congestion window that bound had been reduced by a loss"]
    method: Annotated[Counts, "method of the stream's RPC, `NO_METHOD` when not known"]


class Measured(Struct, frozen=True, eq=False):
    """Which congestion windows of the waits table the sender's kernel told; the others are estimates."""

    stops: npt.NDArray[np.bool_]
    """Of `congestion_window_bytes`."""
    before_idle: npt.NDArray[np.bool_]
    """Of `window_before_idle_bytes`."""
