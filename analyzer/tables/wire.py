"""Packets, frames, PINGs, GOAWAYs, and what could not be decoded."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from .columns import Codes, Counts, Ints, Sizes


class Packets(Struct, frozen=True, eq=False):
    """One row per TCP packet, in the order of the capture."""

    packet: Annotated[Counts, "number in the capture, from 1"]
    time_ns: Annotated[Ints, "capture time"]
    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    flags: Annotated[Counts, "TCP flags (RFC 9293 section 3.1)"]
    seq: Annotated[Sizes, "offset of its first payload byte in its direction, from 0"]
    ack: Annotated[Sizes, "bytes of the other direction that it acknowledges"]
    window: Annotated[Sizes, "receive window in bytes, scaled when the scale is known"]
    payload_bytes: Annotated[Counts, "TCP payload bytes on the wire"]
    captured_payload_bytes: Annotated[Counts, "TCP payload bytes recorded"]
    note: Annotated[Codes, "how the analysis classifies it, index into `PACKET_NOTES`"]
    identification: Annotated[Counts, "IPv4 identification, 4294967295 for none"]
    timestamp: Annotated[Counts, "value of the TCP timestamp option, 0 for none"]


class Frames(Struct, frozen=True, eq=False):
    """One row per HTTP/2 frame, in the order in which the frames were complete."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    stream: Annotated[Counts, "HTTP/2 stream identifier, 0 for the connection"]
    kind: Annotated[Codes, "frame type (RFC 9113 section 6)"]
    flags: Annotated[Codes, "flags as sent"]
    length: Annotated[Counts, "payload bytes, without the nine bytes of the frame header"]
    first_packet: Annotated[Counts, "packet of its header's first byte"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "packet at which its last byte was readable in order"]
    last_time_ns: Annotated[Ints, "time of that packet"]


class Queues(Struct, frozen=True, eq=False):
    """One row per interval, of about 1 s at most, in which a queue on a direction's path was never empty."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender of the packets"]
    behind: Annotated[
        Codes, "0 when the queue is between sender and capture point, 1 when it is between capture point and receiver"
    ]
    start_time_ns: Annotated[Ints, "when the first packet joined the queue"]
    duration_ns: Annotated[Ints, "from then until the last packet left it"]
    packets: Annotated[Counts, "packets that were measured: those with timestamps, or the ACKs of round trips"]
    bytes: Annotated[Sizes, "their payload bytes, or those that the ACKs acknowledge"]
    total_ns: Annotated[Ints, "their time in the queue, summed; a lower bound"]
    first_packet: Annotated[Counts, "the first of these packets, or the ACK"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    longest_ns: Annotated[Ints, "the longest time of one of them in the queue"]
    longest_packet: Annotated[Counts, "that packet, or the ACK"]
    longest_time_ns: Annotated[Ints, "time of that packet"]
    silent_ns: Annotated[Ints, "the longest time in which packets were in the queue and none came"]
    together_ns: Annotated[Ints, "in how much time those had been sent that came together behind it"]


class Pings(Struct, frozen=True, eq=False):
    """PING frames: the first ones of each connection and those before a GOAWAY."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    packet: Annotated[Counts, "packet of its last byte"]
    time_ns: Annotated[Ints, "time of that packet"]
    ack: Annotated[Codes, "1 for an acknowledgement"]
    purpose: Annotated[Codes, "purpose by its payload, index into `PING_PURPOSES`"]
    strikes: Annotated[Codes, "strikes of the client after it, by gRFC A8"]
    open_rpcs: Annotated[Counts, "RPCs open at that moment"]


class Goaways(Struct, frozen=True, eq=False):
    """GOAWAY frames."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    packet: Annotated[Counts, "packet of its last byte"]
    time_ns: Annotated[Ints, "time of that packet"]
    code: Annotated[Counts, "error code (RFC 9113 section 7)"]
    last_stream: Annotated[Counts, "highest stream that was or may be processed"]
    reason: Annotated[Counts, "its debug text, index into `Tables.goaway_reasons`"]
    open_rpcs: Annotated[Counts, "RPCs open at that moment"]


class Problems(Struct, frozen=True, eq=False):
    """Problems while decoding."""

    time_ns: Annotated[Ints, "time of the problem"]
    connection: Annotated[Counts, "row of its connection, 4294967295 for none"]
    packet: Annotated[Counts, "number of the packet"]
    layer: Annotated[Codes, "index into `LAYERS`"]
    kind: Annotated[Counts, "index into `Tables.problem_kinds`"]
    broken_by: Annotated[Codes, "side that broke HTTP/2 with it, 2 where that is not known or no side did"]
