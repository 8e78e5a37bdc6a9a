"""What holds for every capture there is (the numbers are those of the design)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from support import ALL_CAPTURES, RECORDINGS, rows, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import COMPLETE, Frames, Messages, Packets, Tables


@dataclass(frozen=True)
class Read:
    """Everything that is read from a capture."""

    tables: Tables
    frames: Frames
    messages: Messages
    packets: Packets


@pytest.mark.parametrize("files", ALL_CAPTURES)
def test_every_capture(files: tuple[str, ...]) -> None:
    read = Read(decode(list(files)), *(rows(table, files) for table in (Frames, Messages, Packets)))
    check_every_payload_byte_is_accounted_for(read)
    check_frames_and_messages_are_no_more_than_the_bytes(read)
    check_budgets_sum_to_durations(read)
    check_first_and_last(read)
    check_times_are_those_of_the_packets(read)
    check_no_negative_durations(read)
    check_waits_lie_between_their_packets(read)


def check_every_payload_byte_is_accounted_for(read: Read) -> None:
    c = read.tables.connections
    known = (c.decoded_bytes, c.retransmitted_bytes, c.not_http2_bytes)
    kinds = (*known, c.encrypted_bytes, c.undecoded_bytes, c.undelivered_bytes)
    assert np.array_equal(np.sum(kinds, axis=0), c.payload_bytes)
    packets = read.packets
    assert packets.captured_payload_bytes.sum() <= packets.payload_bytes.sum()
    once = packets.direction[packets.note != _core.PACKET_NOTES.index("duplicate")]
    counted = [int(c.packets_client.sum()), int(c.packets_server.sum())]
    assert np.bincount(once, minlength=2).tolist() == counted


def check_frames_and_messages_are_no_more_than_the_bytes(read: Read) -> None:
    """Frame headers and payloads of a connection fit into its decoded bytes; exactly, once the prefaces are added."""
    tables, frames = read.tables, read.frames
    c = tables.connections
    size = np.bincount(frames.connection, weights=frames.length.astype(float) + 9, minlength=len(c.mss_client))
    whole = (c.complete == 1) & (c.protocol == 1) & (c.missing_bytes == 0) & (c.undecoded_bytes == 0)
    rest = c.decoded_bytes.astype(float) - size
    assert (rest[whole] >= 24).all(), "the preface is decoded as well"


def check_budgets_sum_to_durations(read: Read) -> None:
    tables = read.tables
    assert tables.rpc_budgets.shape == (len(tables.rpcs.stream), len(CAUSES))
    assert (tables.rpc_budgets >= 0).all()
    assert np.array_equal(tables.rpc_budgets.sum(axis=1), tables.rpcs.duration_ns)
    assert (tables.connection_budgets >= 0).all()
    by_method = np.array([method.budget for method in tables.methods], dtype=np.int64).reshape(-1, len(CAUSES))
    assert np.array_equal(by_method.sum(axis=0), tables.rpc_budgets.sum(axis=0))
    for method, budget in zip(tables.methods, by_method, strict=True):
        assert np.array_equal(tables.rpc_budgets[tables.rpcs.method == method.number].sum(axis=0), budget)
    per_connection = np.zeros_like(tables.connection_budgets)
    np.add.at(per_connection, tables.rpcs.connection.astype(np.int64), tables.rpc_budgets)
    assert np.array_equal(per_connection, tables.connection_budgets)


def check_first_and_last(read: Read) -> None:
    tables, frames, messages = read.tables, read.frames, read.messages
    for table in (frames, messages):
        assert (table.first_packet >= 1).all()
        assert (table.first_packet <= table.last_packet).all()
        assert (table.last_packet <= tables.capture["packets"]).all()
    known = tables.rpcs.last_packet > 0
    assert (tables.rpcs.first_packet[known] <= tables.rpcs.last_packet[known]).all()
    assert (known == (tables.rpcs.flags & COMPLETE != 0)).all()
    assert sum(tables.frame_counts.values()) == len(frames.stream)
    assert tables.message_count == len(messages.stream)


def check_times_are_those_of_the_packets(read: Read) -> None:
    """Where the clock steps back, a frame ends no earlier than any of its bytes."""
    packets, frames = read.packets, read.frames
    times = dict(zip(packets.packet.tolist(), packets.time_ns.tolist(), strict=True))
    sorted_file = bool((np.diff(packets.time_ns) >= 0).all())
    assert [times[number] for number in frames.first_packet.tolist()] == frames.first_time_ns.tolist()
    last = np.array([times[number] for number in frames.last_packet.tolist()], dtype=np.int64)
    assert (last == frames.last_time_ns).all() if sorted_file else (last <= frames.last_time_ns).all()


def check_no_negative_durations(read: Read) -> None:
    tables = read.tables
    assert (tables.rpcs.duration_ns >= 0).all()
    assert (tables.waits.duration_ns >= 0).all()
    for method in tables.methods:
        if method.turnaround:
            assert method.turnaround["min"] >= 0


def check_waits_lie_between_their_packets(read: Read) -> None:
    waits, packets = read.tables.waits, read.packets
    times = dict(zip(packets.packet.tolist(), packets.time_ns.tolist(), strict=True))
    assert (waits.stopped_at_packet < waits.resumed_at_packet).all()
    head_of_line = CAUSES.index("head_of_line")
    for stop, resume, start, lasted, cause in zip(
        waits.stopped_at_packet.tolist(),
        waits.resumed_at_packet.tolist(),
        waits.start_time_ns.tolist(),
        waits.duration_ns.tolist(),
        waits.cause.tolist(),
        strict=True,
    ):
        # a stream that stood behind others may have stood with them before, for a window: that is a wait of its own
        assert times[stop] == start or (cause == head_of_line and times[stop] < start)
        assert times[resume] == start + lasted or times[resume] < start  # a clock that steps back


def test_the_time_that_steps_back_is_told() -> None:
    tables = decode([synthetic("time_steps_back").file])
    assert tables.capture["time_steps_back"] > 0
    assert (tables.rpcs.duration_ns >= 0).all()


def test_the_captures_are_here() -> None:
    assert len(RECORDINGS) >= 20
    assert len(ALL_CAPTURES) >= 75
