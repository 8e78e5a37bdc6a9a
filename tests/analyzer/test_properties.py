"""The invariants on random conversations, packetised and mangled at random, against an independent reading."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXAMPLES, rows

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.tables import COMPLETE, DIRECTIONS, NOT_SEEN, Frames, Messages, Tables
from grpcdiag.fixtures.synthetic import mangle
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import Mangling
from grpcdiag.fixtures.synthetic.packet import Captured
from grpcdiag.fixtures.synthetic.strategies import conversations, manglings, packetisations
from grpcdiag.fixtures.synthetic.truth import truth
from grpcdiag.fixtures.synthetic.wire import Link

HEADERS = _core.FRAME_TYPES.index("HEADERS")
RST_STREAM = _core.FRAME_TYPES.index("RST_STREAM")
TIMELESS = ("method", "status", "deadline_ns", "complete")
COUNTS = ("request_messages", "response_messages", "request_bytes", "response_bytes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties")


_numbers = itertools.count()


def filed(folder: Path, packets: Sequence[Captured]) -> str:
    path = folder / f"{next(_numbers) % 8}.pcap"
    path.write_bytes(write_pcap(packets, nanoseconds=True))
    return str(path)


def rpcs(tables: Tables) -> dict[int, dict[str, Any]]:
    r = tables.rpcs
    found = {}
    for row, stream in enumerate(r.stream.tolist()):
        deadline = int(tables.deadlines[row]) if row < len(tables.deadlines) else -1
        found[stream] = {
            "method": tables.method_name(int(r.method[row])),
            "status": None if r.status[row] == NOT_SEEN else _core.STATUSES[r.status[row]],
            "deadline_ns": None if deadline < 0 else deadline,
            "complete": bool(r.flags[row] & COMPLETE),
            **{name: int(getattr(r, name)[row]) for name in (*COUNTS, "start_time_ns", "duration_ns")},
        }
    assert len(found) == len(r.stream)
    return found


def message_rows(file: str) -> list[tuple[int, str, int, int, bool]]:
    m = rows(Messages, [file])
    columns = (m.stream.tolist(), [DIRECTIONS[d] for d in m.direction.tolist()], m.index.tolist(), m.length.tolist())
    return sorted(zip(*columns, m.compressed.astype(bool).tolist(), strict=True))


def frame_rows(file: str) -> list[list[tuple[int, ...]]]:
    f = rows(Frames, [file])
    listed = list(
        zip(f.direction.tolist(), f.kind.tolist(), f.stream.tolist(), f.flags.tolist(), f.length.tolist(), strict=True)
    )
    return [[row[1:] for row in listed if row[0] == direction] for direction in (0, 1)]


def answered_before_asked(file: str) -> set[int]:
    """Streams whose answer stands before their request in the file.

    TCP may reorder a direction, never an effect before its cause: the decoder keeps an answer back when its ACK shows
    that the request was there, and cannot when it does not.
    """
    f = rows(Frames, [file])
    listed = zip(f.stream.tolist(), f.direction.tolist(), f.kind.tolist(), f.first_packet.tolist(), strict=True)
    asked: dict[int, int] = {}
    answered: dict[int, int] = {}
    for stream, direction, kind, packet in listed:
        if direction == 0 and kind == HEADERS:
            asked[stream] = min(packet, asked.get(stream, packet))
        elif direction == 1:
            answered[stream] = min(packet, answered.get(stream, packet))
    return {stream for stream, packet in answered.items() if packet < asked.get(stream, packet)}


def late_messages(tables: Tables, file: str) -> dict[int, dict[str, int]]:
    """What was whole only after the RPC's end, by stream and column: its row may or may not count that.

    Requests still come after a server that answered early, responses after a client's RST_STREAM.
    """
    ends = dict(zip(tables.rpcs.stream.tolist(), tables.rpcs.last_packet.tolist(), strict=True))
    m = rows(Messages, [file])
    late: dict[int, dict[str, int]] = {}
    for stream, direction, last, length in zip(
        m.stream.tolist(), m.direction.tolist(), m.last_packet.tolist(), m.length.tolist(), strict=True
    ):
        if last > ends.get(stream, last):
            kind, counts = ("request", "response")[direction], late.setdefault(stream, dict.fromkeys(COUNTS, 0))
            counts[f"{kind}_messages"] += 1
            counts[f"{kind}_bytes"] += length
    return late


def hold_the_invariants(file: str) -> Tables:
    """1, 2, 3 and 7 of the design."""
    tables = decode([file])
    c, r = tables.connections, tables.rpcs
    read = (c.decoded_bytes, c.retransmitted_bytes, c.not_http2_bytes)
    kinds = (*read, c.encrypted_bytes, c.undecoded_bytes, c.undelivered_bytes)
    assert np.array_equal(np.sum(kinds, axis=0), c.payload_bytes)
    assert np.array_equal(tables.rpc_budgets.sum(axis=1), r.duration_ns)
    assert (tables.rpc_budgets >= 0).all()
    assert (r.duration_ns >= 0).all()
    assert (tables.waits.duration_ns >= 0).all()
    for table in (rows(Frames, [file]), rows(Messages, [file])):
        assert (table.first_packet <= table.last_packet).all()
    return tables


def is_late(rpc: dict[str, Any]) -> bool:
    """Whether an RPC lasted longer than its deadline."""
    return rpc["deadline_ns"] is not None and bool(rpc["duration_ns"] > rpc["deadline_ns"])


@settings(max_examples=EXAMPLES)
@given(conversation=conversations(), link=packetisations())
def test_decoding_finds_what_the_bytes_say(folder: Path, conversation: Conversation, link: Link) -> None:
    """All of it: names, counts, times to the nanosecond."""
    packets = link.carry(conversation)
    file, expected = filed(folder, packets), truth([conversation], packets)
    tables = hold_the_invariants(file)
    found = rpcs(tables)
    assert sorted(found) == [rpc["stream"] for rpc in expected["rpcs"]]
    after_the_end = late_messages(tables, file)
    for rpc in expected["rpcs"]:
        told = [name for name in found[rpc["stream"]] if rpc[name] is not None]
        if is_late(found[rpc["stream"]]) and found[rpc["stream"]]["status"] == "DEADLINE_EXCEEDED":
            told.remove("status")  # the client may have given up before the response reached it
        for name, late in after_the_end.get(rpc["stream"], {}).items():
            if found[rpc["stream"]][name] == rpc[name] - late:
                rpc[name] -= late
        assert {name: found[rpc["stream"]][name] for name in told} == {name: rpc[name] for name in told}
    assert dict(sorted(tables.frame_counts.items())) == expected["frames"]
    assert tables.message_count == expected["messages"]


@settings(max_examples=EXAMPLES)
@given(conversation=conversations(max_rpcs=5), link=packetisations(), mangling=manglings())
def test_5_order_repetition_and_cuts_change_nothing(
    folder: Path, conversation: Conversation, link: Link, mangling: Mangling
) -> None:
    plain = link.carry(conversation)
    before = filed(folder, plain)
    expected, messages, frames = rpcs(hold_the_invariants(before)), message_rows(before), frame_rows(before)
    after = filed(folder, mangling(plain))
    tables = hold_the_invariants(after)
    found = rpcs(tables)
    assert found.keys() == expected.keys()
    # what crosses a RST_STREAM belongs to the RPC or not, depending on which of the two was captured first
    reset = {stream for side in frames for kind, stream, *_ in side if kind == RST_STREAM}
    late = late_messages(tables, after).keys() | late_messages(decode([before]), before).keys() | reset
    mixed = answered_before_asked(after)
    for stream, rpc in expected.items():
        names = (*TIMELESS, *(COUNTS if stream not in late else ()))
        # a late answer is taken or not by its packet's time and by losses, which some manglings change
        late_answer = is_late(rpc) or is_late(found[stream])
        names = tuple(name for name in names if name != "status" or (stream not in reset and not late_answer))
        if stream in mixed:
            names = ("method", "deadline_ns")
        assert {name: found[stream][name] for name in names} == {name: rpc[name] for name in names}, stream
    loose = reset | mixed
    assert [row for row in message_rows(after) if row[0] not in loose] == [r for r in messages if r[0] not in loose]
    assert frame_rows(after) == frames


@settings(max_examples=EXAMPLES // 2)
@given(conversation=conversations(max_rpcs=4), link=packetisations(), share=st.floats(0.05, 0.95))
def test_6_a_prefix_gives_a_prefix(folder: Path, conversation: Conversation, link: Link, share: float) -> None:
    packets = link.carry(conversation)
    count = max(4, int(len(packets) * share))
    whole = decode([filed(folder, packets)])
    part = hold_the_invariants(filed(folder, mangle.prefix(packets, count)))
    # a client may go on sending when its RPC is over: only what it received is then final
    received = ("response_messages", "response_bytes")
    names = ("stream", "start_time_ns", "duration_ns", "status", *received, "first_packet", "last_packet")

    def over(tables: Tables) -> list[tuple[int, ...]]:
        done = (tables.rpcs.flags & COMPLETE != 0) & (tables.rpcs.last_packet <= count)
        return sorted(zip(*(getattr(tables.rpcs, name)[done].tolist() for name in names), strict=True))

    assert over(part) == over(whole)
    assert part.rpcs.stream.tolist() == whole.rpcs.stream.tolist()[: len(part.rpcs.stream)]


@settings(max_examples=EXAMPLES // 2)
@given(conversation=conversations(max_rpcs=4), link=packetisations(), seed=st.integers(0, 999), share=st.floats(0, 0.5))
def test_lost_packets_never_invent(
    folder: Path, conversation: Conversation, link: Link, seed: int, share: float
) -> None:
    """Packets that the capture lacks: what is said of RPCs, messages and frames still holds."""
    packets = link.carry(conversation)
    rng = random.Random(seed)
    left = mangle.drop(packets, [i for i in range(3, len(packets)) if rng.random() < share])
    expected = {rpc["stream"]: rpc for rpc in truth([conversation], packets)["rpcs"]}
    tables = hold_the_invariants(filed(folder, left))
    found = rpcs(tables)
    assert found.keys() <= expected.keys()
    for stream, rpc in found.items():
        assert rpc["method"] in (expected[stream]["method"], None)
        assert all(rpc[name] <= expected[stream][name] for name in COUNTS), (rpc, expected[stream])
    whole = truth([conversation], packets)["frames"]
    assert all(n <= whole.get(name, 0) for name, n in tables.frame_counts.items())


@settings(max_examples=EXAMPLES // 2)
@given(conversation=conversations(max_rpcs=4), link=packetisations(), skip=st.integers(1, 40))
def test_a_late_beginning_never_invents(folder: Path, conversation: Conversation, link: Link, skip: int) -> None:
    packets = link.carry(conversation)
    left = mangle.begin_late(packets, min(skip, len(packets) - 1))
    expected = {rpc["stream"]: rpc for rpc in truth([conversation], packets)["rpcs"]}
    for stream, rpc in rpcs(hold_the_invariants(filed(folder, left))).items():
        assert stream in expected
        assert rpc["method"] in (expected[stream]["method"], None)
        # where the way to the client is not known, it may have given up before a late response reached it
        late = rpc["status"] == "DEADLINE_EXCEEDED" and is_late(rpc)
        assert late or rpc["status"] in (expected[stream]["status"], None)


@settings(max_examples=EXAMPLES)
@given(data=st.binary(max_size=400), at=st.integers(0, 3000), conversation=conversations(max_rpcs=2))
def test_any_bytes_are_survived(folder: Path, data: bytes, at: int, conversation: Conversation) -> None:
    """A file damaged anywhere ends in tables or in a CaptureError, never in a crash."""
    whole = write_pcap(Link().carry(conversation))
    path = folder / "damaged.pcap"
    place = at % len(whole)
    path.write_bytes(whole[:place] + data + whole[place + len(data) :])
    try:
        hold_the_invariants(str(path))
    except _core.CaptureError:
        assert place < 24, "only the file's header decides whether it is a capture"
