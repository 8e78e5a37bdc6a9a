"""Captures of the same connections at both ends: one clock, times on the way, losses placed, budgets divided."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace as changed
from support import EXAMPLES, SNAPSHOTS, recording, rows, run_here
from support import recorded as recorded_file

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import CaptureError, NoGrpcError
from grpcdiag.analyzer.model.ends import Ends
from grpcdiag.analyzer.tables import Packets
from grpcdiag.analyzer.two_captures import SPLIT_CAUSES, RpcBudgets, analyze_files, recorded, rpc_budgets, vantages
from grpcdiag.fixtures.synthetic import mangle
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.ends import BothEnds, Recorded, own_offload
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.packet import Captured, Endpoint
from grpcdiag.fixtures.synthetic.scene import opened, two_unary
from grpcdiag.fixtures.synthetic.strategies import conversations
from grpcdiag.fixtures.synthetic.wire import CLIENT6, SERVER6, Link
from grpcdiag.fixtures.synthetic.words import MS, RTT_NS, US, S, Side
from grpcdiag.reports import analysis_json, terminal

NAT = Endpoint("02:00:00:00:00:03", "192.0.2.7", 61_002)
UP, DOWN = SPLIT_CAUSES.index("network_up"), SPLIT_CAUSES.index("network_down")
SERVER = SPLIT_CAUSES.index("server")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ends")


def filed(folder: Path, *captures: Sequence[Captured]) -> list[str]:
    paths = []
    for packets in captures:
        path = folder / f"{next(_numbers) % 16}.pcap"
        path.write_bytes(write_pcap(packets, nanoseconds=True))
        paths.append(str(path))
    return paths


def together(files: Sequence[str]) -> Ends:
    found = analyze_files(files)
    assert found.apart is None, found.apart
    assert found.ends is not None
    return found.ends


def divided(files: Sequence[str]) -> RpcBudgets:
    found = rpc_budgets(vantages(files))
    assert np.array_equal(found.budgets.sum(axis=1), found.tables.rpcs.duration_ns)
    assert (found.budgets >= 0).all()
    return found


def long_conversation(calls: int = 30, rtt_ns: int = 20 * MS, **options: object) -> Conversation:
    """Calls of one and of several segments, a second apart, that the server takes 3 ms for."""
    conversation = opened(rtt_ns=rtt_ns, **options)
    for _ in range(calls):
        conversation.unary("/demo.Echo/Say", request=6_000, response=9_000, server_delay_ns=3 * MS)
        conversation.advance(S)
    return conversation


# Real captures


@pytest.mark.parametrize(
    ("name", "one_way_ns"),
    [("rtt205-go-16000", 102_500_000), ("rtt205-go-32000", 102_500_000), ("loss-1pct-rtt20", 10_000_000)],
)
def test_recorded_pairs(name: str, one_way_ns: int) -> None:
    files = [recording(name, side).files[0] for side in ("server", "client")]
    ends = together(files)
    assert ends.client.files == (files[1],)
    assert abs(ends.clock.offset_ns) < MS, "one machine, one clock"
    for way in (ends.up, ends.down):
        assert way.delay_ns.min == pytest.approx(one_way_ns, rel=0.05)
        assert way.delay_ns.p50 == pytest.approx(one_way_ns, rel=0.05)
        assert (way.not_recorded_packets, way.not_seen_sent_packets) == (0, 0)
    mine, theirs = (rows(Packets, [file]) for file in reversed(files))
    for direction, way in enumerate((ends.up, ends.down)):
        sent, got = (mine, theirs) if direction == 0 else (theirs, mine)
        missing = int((sent.direction == direction).sum() - (got.direction == direction).sum())
        assert (way.packets, way.lost_packets) == (int((sent.direction == direction).sum()), missing)
        assert len(way.lost) == missing
    again = divided(files)
    assert again.budgets[:, UP].min() >= one_way_ns
    assert again.budgets[:, DOWN].min() >= one_way_ns
    assert again.budgets.sum() == sum(ends.budget.values())


@pytest.mark.parametrize("name", ["rtt205-go-16000", "loss-1pct-rtt20"])
def test_the_offset_of_recorded_pairs_is_stable(name: str, tmp_path: Path) -> None:
    """Halves of a capture give the same offset, within a millisecond."""
    offsets = []
    for half in (0, 1):
        files = []
        for side in ("client", "server"):
            data = Path(recording(name, side).files[0]).read_bytes()
            records = list(_records(data))
            cut = records[: len(records) // 2] if half == 0 else records[len(records) // 2 :]
            path = tmp_path / f"{half}.{side}.pcap"
            path.write_bytes(data[:24] + b"".join(cut))
            files.append(str(path))
        offsets.append(together(files).clock.offset_ns)
    assert abs(offsets[0] - offsets[1]) < MS, offsets


def _records(data: bytes) -> list[bytes]:
    at, found = 24, []
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        found.append(data[at : at + size])
        at += size
    return found


def test_the_document_is_valid() -> None:
    validator = Draft202012Validator(analysis_json.schema())
    for name in ("rtt205-go-16000", "loss-1pct-rtt20"):
        files = [recording(name, side).files[0] for side in ("client", "server")]
        whole = json.loads(analysis_json.render(analyze_files(files)))
        validator.validate(whole)
        assert sum(whole["ends"]["budget"].values()) == sum(whole["budget"].values())
        for key in whole["ends"]:
            broken = whole | {"ends": {k: v for k, v in whole["ends"].items() if k != key}}
            assert list(validator.iter_errors(broken)), f"{key} may be left out"


def test_snapshot(update_snapshots: bool) -> None:
    files = [recorded_file(f"rtt205-go-16000{side}.pcap") for side in ("", ".server")]
    found = analyze_files(files)
    assert found.ends
    ends = found.ends
    named = changed(
        ends, client=changed(ends.client, files=("client.pcap",)), server=changed(ends.server, files=("server.pcap",))
    )
    text = terminal.render(changed(found, files=("client.pcap",), ends=named))
    path = SNAPSHOTS / "rtt205-go-16000-both-ends.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"
    for width in (60, 80):
        lines = terminal.render(changed(found, files=("client.pcap",), ends=named), width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert not any("…" in line for line in lines if line.startswith(("  up", "  down", "  one way")))


def test_losses_of_the_recorded_pair_are_the_packets_whose_identification_did_not_arrive() -> None:
    """Linux numbers the packets of a connection: an independent way to tell which did not arrive."""
    files = [recording("loss-1pct-rtt20", side).files[0] for side in ("client", "server")]
    ends = together(files)
    mine, theirs = (rows(Packets, [file]) for file in files)
    for direction, (way, sent, got) in enumerate(((ends.up, mine, theirs), (ends.down, theirs, mine))):
        out, come = sent.direction == direction, got.direction == direction
        arrived = set(zip(got.identification[come].tolist(), got.timestamp[come].tolist(), strict=True))
        own = zip(sent.identification[out].tolist(), sent.timestamp[out].tolist(), strict=True)
        missing = [int(packet) for packet, key in zip(sent.packet[out], own, strict=True) if key not in arrived]
        assert [lost.packet for lost in way.lost] == missing
        assert len(missing) > 20
        assert way.retransmissions > 20
        assert way.needless_retransmissions == 0
    told = next(finding for finding in analyze_files(files).findings if finding.id == "loss-recovery")
    assert (told.metrics["lost_up"], told.metrics["lost_down"]) == (ends.up.lost_packets, ends.down.lost_packets)
    assert f"{ends.up.lost_packets} of the client's {ends.up.packets:,} packets" in told.explanation


# Conversations with known clocks and losses


PLACES = st.lists(st.integers(2, 40), max_size=4, unique=True)


@st.composite
def _setups(draw: st.DrawFn) -> BothEnds:
    six = draw(st.booleans())
    lost: dict[Side, list[int]] = {"client": draw(PLACES), "server": draw(PLACES)}
    acks: dict[Side, list[int]] = {"client": draw(PLACES), "server": draw(PLACES)}
    return BothEnds(
        link=Link(
            mss=draw(st.sampled_from([536, 1448])),
            client=CLIENT6 if six else Link.client,
            server=SERVER6 if six else Link.server,
            client_isn=draw(st.integers(0, 2**32 - 1)),
            server_isn=draw(st.integers(2**32 - 60_000, 2**32 - 1)),
            close="none",
        ),
        offset_ns=draw(st.integers(-7_200 * S, 7_200 * S)),
        drift_ppb=draw(st.integers(-100_000, 100_000)),
        jitter_ns=draw(st.sampled_from([0, 20 * US, 200 * US])),
        seed=draw(st.integers(0, 1_000)),
        lost=lost,
        lost_acks=acks,
        after_ns=2 * MS,
        client_at_server=None if six else draw(st.sampled_from([None, NAT])),
    )


@settings(max_examples=EXAMPLES // 4)
@given(conversations(), _setups(), st.booleans())
def test_any_conversation_at_both_ends(folder: Path, conversation: Conversation, setup: BothEnds, turned: bool) -> None:
    captured = setup.carry(conversation)
    files = filed(folder, captured.client, captured.server)
    found = analyze_files(files[::-1] if turned else files)
    assert found.apart is None, found.apart
    assert found.ends is not None
    _check_clock(found.ends, setup, captured)
    _check_packets(found.ends, captured)
    assert sum(found.ends.budget.values()) == sum(found.budget.values())
    divided(files)


def _check_clock(ends: Ends, setup: BothEnds, captured: Recorded) -> None:
    """The truth lies within the bounds; its middle is as good as the fastest packets are alike."""
    flights = captured.flights
    true = setup.server_time(ends.clock.since_time_ns) - ends.clock.since_time_ns
    span = max(f.sent_ns for f in flights) - min(f.sent_ns for f in flights)
    unseen = abs(setup.drift_ppb - (ends.clock.drift_ppb or 0)) * span // 10**9
    assert ends.clock.drift_low_ppb - 1 <= setup.drift_ppb <= ends.clock.drift_high_ppb + 1 or unseen <= setup.jitter_ns
    assert abs(ends.clock.offset_ns - true) <= ends.clock.uncertainty_ns + unseen + 10
    assert abs(ends.clock.offset_ns - true) <= setup.jitter_ns // 2 + unseen + 10


def _check_packets(ends: Ends, captured: Recorded) -> None:
    arrived = [f for f in captured.flights if f.received_ns is not None]
    assert ends.matched_packets == len(arrived)
    recorded_at = {"client": captured.client, "server": captured.server}
    for side, way in (("client", ends.up), ("server", ends.down)):
        named = Counter(_print(recorded_at[side][lost.packet - 1]) for lost in way.lost)
        lost = Counter(_print(recorded_at[side][number - 1]) for number in captured.lost[side])
        assert named <= lost
        # a packet lost at the very end may have come after the other capture stopped
        end = max(f.sent_ns for f in arrived if f.segment.direction == side) - MS
        late = sum(f.received_ns is None and f.segment.direction == side and f.sent_ns > end for f in captured.flights)
        assert (lost - named).total() <= late
        assert (way.not_recorded_packets, way.not_seen_sent_packets) == (0, 0)


def _print(packet: Captured) -> bytes:
    """What tells a packet from others: IPv6 packets may be alike in every byte."""
    return packet.data


def test_offset_and_drift(folder: Path) -> None:
    setup = BothEnds(Link(rtt_ns=20 * MS), offset_ns=-3_600 * S, drift_ppb=40_000, jitter_ns=100 * US, seed=1)
    captured = setup.carry(long_conversation(calls=60))
    ends = together(filed(folder, captured.client, captured.server))
    assert ends.clock.drift_ppb == pytest.approx(40_000, abs=2_500)
    since = ends.clock.since_time_ns
    assert ends.clock.offset_ns == pytest.approx(setup.server_time(since) - since, abs=100 * US)
    assert ends.up.delay_ns.min == pytest.approx(10 * MS, abs=100 * US)


def test_clocks_of_other_speed_are_no_network_and_no_loss(folder: Path) -> None:
    """50 ppm of a server time of 20 s are a millisecond."""
    conversation = opened(rtt_ns=20 * MS)
    for _ in range(4):
        conversation.unary("/demo.Echo/Say", request=100, response=100, server_delay_ns=20 * S)
    setup = BothEnds(Link(rtt_ns=20 * MS), offset_ns=-S, drift_ppb=50_000)
    captured = setup.carry(conversation)
    budgets = divided(filed(folder, captured.client, captured.server)).budgets
    for column in (UP, DOWN):
        assert budgets[:, column].tolist() == pytest.approx([10 * MS] * 4, abs=2 * US)
    assert budgets[:, SERVER].tolist() == pytest.approx([20 * S] * 4, abs=100 * US)
    assert not budgets[:, SPLIT_CAUSES.index("loss_recovery")].any()


def test_a_lost_answer_is_loss_recovery_and_not_the_servers_time(folder: Path) -> None:
    """Nothing comes behind the lost answer: at the client it looks as if the server took longer."""
    conversation = opened(rtt_ns=20 * MS)
    for _ in range(3):
        conversation.unary("/demo.Echo/Say", request=100, response=100, server_delay_ns=3 * MS)
        conversation.advance(S)
    data = mangle.data_indexes(Link(rtt_ns=20 * MS, vantage="server").carry(conversation), "server")
    setup = BothEnds(Link(rtt_ns=20 * MS), lost={"server": [len(data) - 1]}, after_ns=200 * MS)
    captured = setup.carry(conversation)
    last = divided(filed(folder, captured.client, captured.server)).budgets[2]
    assert last[SPLIT_CAUSES.index("loss_recovery")] == pytest.approx(200 * MS, rel=0.01)
    assert last[SERVER] == pytest.approx(3 * MS, abs=100 * US)
    assert (last[UP], last[DOWN]) == (10 * MS, 10 * MS)


def test_budgets_are_exact_with_clocks_that_differ(folder: Path) -> None:
    """The link takes 10 ms each way for every packet, and the server 3 ms for every call."""
    setup = BothEnds(Link(rtt_ns=20 * MS), offset_ns=123_456_789_012, client_at_server=NAT)
    captured = setup.carry(long_conversation(calls=5))
    files = filed(folder, captured.client, captured.server)
    found = divided(files)
    assert found.budgets[:, UP].tolist() == [10 * MS] * 5
    assert found.budgets[:, DOWN].tolist() == [10 * MS] * 5
    assert found.budgets[:, SERVER].tolist() == pytest.approx([3 * MS] * 5, abs=50 * US)
    ends = together(files)
    assert ends.connections[0].client_at_server == "192.0.2.7:61002"
    assert ends.methods[0].divided_rpcs == ends.methods[0].rpcs == 5
    assert set(ends.budget) <= {"server", "network_up", "network_down", "transmission"}


def test_streams_of_many_turns_are_divided_too(folder: Path) -> None:
    conversation = opened(rtt_ns=20 * MS)
    call = conversation.start_rpc("/demo.Echo/Chat")
    for _ in range(10):
        call.send_message(100)
        conversation.settle()
        conversation.advance(3 * MS)
        call.reply_message(100)
        conversation.settle()
        conversation.advance(MS)
    call.half_close()
    conversation.settle()
    call.finish()
    conversation.settle()
    captured = BothEnds(Link(rtt_ns=20 * MS), offset_ns=5 * S).carry(conversation)
    budget = divided(filed(folder, captured.client, captured.server)).budgets[0]
    assert budget[UP] == pytest.approx(110 * MS, rel=0.01)
    assert budget[DOWN] == pytest.approx(110 * MS, rel=0.01)
    assert budget[SERVER] == pytest.approx(30 * MS, rel=0.05)
    assert budget[SPLIT_CAUSES.index("client")] == pytest.approx(10 * MS, rel=0.05)


@pytest.mark.parametrize("sender", ["client", "server"])
def test_offload_merges_and_cuts(folder: Path, sender: Side) -> None:
    """The sender hands whole writes to its card, the receiver's card joins what comes: bytes tell what is what."""
    conversation = opened(rtt_ns=20 * MS)
    for _ in range(6):
        conversation.unary("/demo.Echo/Say", request=40_000, response=40_000, server_delay_ns=3 * MS)
    setup = BothEnds(Link(rtt_ns=20 * MS, delayed_ack=False), lost={sender: [40]}, after_ns=MS)
    captured = setup.carry(conversation)
    client = own_offload(captured.client, "client", mangle.coalesce(captured.client, limit=20_000))
    server = mangle.coalesce(captured.server, limit=7_000)
    ends = together(filed(folder, client, server))
    assert ends.matched_packets > 100
    for way, side in ((ends.up, "client"), (ends.down, "server")):
        assert way.not_seen_sent_packets == 0
        assert way.not_recorded_packets == 0
        assert way.lost_packets == (1 if side == sender else 0)
        assert way.delay_ns.p50 == pytest.approx(10 * MS, rel=0.02)


def test_what_a_capture_lacks_is_not_lost_in_the_network(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=10))
    data = mangle.data_indexes(captured.server, "client")[20:23]
    ends = together(filed(folder, captured.client, mangle.drop(captured.server, data)))
    assert (ends.up.lost_packets, ends.up.not_recorded_packets) == (0, 3)
    data = mangle.data_indexes(captured.client, "client")[20:23]
    ends = together(filed(folder, mangle.drop(captured.client, data), captured.server))
    assert (ends.up.lost_packets, ends.up.not_seen_sent_packets) == (0, 3)


def test_retransmissions_that_were_not_needed(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS), lost={"client": [11]}, after_ns=4 * MS).carry(long_conversation(calls=5))
    client, server = (
        mangle.retransmit(packets, mangle.data_indexes(packets, "client")[-3:-1], 5 * MS, lost=False)
        for packets in (captured.client, captured.server)
    )
    ends = together(filed(folder, client, server))
    assert (ends.up.retransmissions, ends.up.needless_retransmissions, ends.up.lost_packets) == (3, 2, 1)


def test_connections_begun_before_behind_address_translation(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS), client_at_server=NAT, offset_ns=S).carry(long_conversation(calls=6))
    late = [captured.client[30:], captured.server[24:]]
    files = filed(folder, *late)
    ends = together(files)
    assert sum(method.divided_rpcs for method in ends.methods) >= 3
    divided(files)
    assert ends.up.delay_ns.min == ends.down.delay_ns.min == 10 * MS
    assert (ends.up.lost_packets, ends.down.lost_packets) == (0, 0)


def test_connections_of_one_capture_alone_are_counted(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=3))
    other = Link(rtt_ns=20 * MS, vantage="server", client=NAT, client_isn=7, server_isn=9).carry(long_conversation(2))
    ends = together(filed(folder, captured.client, mangle.in_time_order([*captured.server, *other])))
    assert (ends.client.other_connections, ends.server.other_connections) == (0, 1)
    assert len(ends.connections) == 1


# What cannot be put together, and what is one capture


def stepped(captured: Recorded, by_ns: int = -5 * S) -> list[Captured]:
    """The server's clock is set, by five seconds backwards, in the middle."""
    half = len(captured.server) // 2
    return [replace(p, time_ns=p.time_ns + (by_ns if n > half else 0)) for n, p in enumerate(captured.server)]


def test_a_clock_that_was_set_forward_is_put_together(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    found = analyze_files(filed(folder, captured.client, stepped(captured, 5 * S)))
    assert found.ends is not None
    assert abs(found.ends.up.delay_ns.min - 10 * MS) < MS, "timestamps of a millisecond tell the step"


def test_clocks_that_step_are_analysed_apart(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    files = filed(folder, captured.client, stepped(captured))
    found = analyze_files(files)
    assert found.ends is None
    assert found.apart is not None
    assert "before they were sent" in found.apart.reason
    order = [found.files[0], *(other.files[0] for other in found.apart.analyses)]
    assert sorted(order) == sorted(files)
    alone = [analyze_files([file]) for file in order]
    assert [changed(found, apart=None), *found.apart.analyses] == alone
    whole = json.loads(analysis_json.render(found))
    Draft202012Validator(analysis_json.schema()).validate(whole)
    assert [other["files"] for other in whole["apart"]["analyses"]] == [[order[1]]]


def test_one_direction_alone_gives_no_clock(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    up = [p for p in captured.server if p.segment and p.segment.direction == "client"]
    found = analyze_files(filed(folder, captured.client, up))
    assert found.apart is not None
    assert "only 0 packets" in found.apart.reason


def test_captures_too_large_to_match_are_analysed_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    files = filed(folder, captured.client, captured.server)
    monkeypatch.setattr(recorded, "MOST_PACKETS", 100)
    found = analyze_files(files)
    assert found.apart is not None
    assert "more than 100 TCP packets" in found.apart.reason


def test_pieces_of_one_capture_are_one_place() -> None:
    files = recording("rotated").files
    assert vantages(files) == (files,)
    assert analyze_files(files).ends is None


@pytest.mark.parametrize("pieces", [2, 3])
def test_both_ends_in_pieces_are_as_both_in_one(folder: Path, pieces: int) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS), offset_ns=700 * MS).carry(long_conversation(calls=12))
    whole = together(filed(folder, captured.client, captured.server))
    cut = [
        list(packets[len(packets) * n // pieces : len(packets) * (n + 1) // pieces])
        for n in range(pieces)
        for packets in (captured.client, captured.server)
    ]
    parts = together(filed(folder, *cut))
    assert (len(parts.client.files), len(parts.server.files)) == (pieces, pieces)
    assert (parts.clock, parts.up, parts.down, parts.budget) == (whole.clock, whole.up, whole.down, whole.budget)


def test_a_file_given_twice_is_one_capture(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(two_unary(rtt_ns=20 * MS))
    files = filed(folder, captured.client, captured.client)
    assert len(vantages(files)) == 1


def test_ends_far_into_a_capture_are_found_by_overlapping_times(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginnings share nothing: the server's capture began much earlier."""
    monkeypatch.setattr("grpcdiag.analyzer.two_captures.places._PEEK", 1)
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    files = filed(folder, captured.client, captured.server)
    assert len(vantages(files)) == 1
    assert together(files).up.delay_ns.min == 10 * MS


def test_three_places_are_analysed_apart(folder: Path) -> None:
    conversation = long_conversation(calls=3)
    captures = [Link(rtt_ns=20 * MS, vantage=place).carry(conversation) for place in ("client", "server", "middle")]
    found = analyze_files(filed(folder, *captures))
    assert found.apart is not None
    assert "3 places" in found.apart.reason
    assert len(found.apart.analyses) == 2


# Commands


def test_commands_take_both_ends_or_say_so(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS), offset_ns=S, lost={"client": [12]}).carry(long_conversation(calls=4))
    files = filed(folder, captured.client, captured.server)
    outcome = run_here("analyze", *files)
    assert outcome.code == 0
    text = " ".join(outcome.text.split())
    assert "1 packet of the client" in text
    assert f"lost in the network: #{captured.lost['client'][0]} " in text
    assert "server's clock is 1.00 s ahead of the client's" in text
    listed = run_here("rpcs", *files, "--format", "jsonl")
    assert listed.code == 0
    assert '"network_up":10000000' in listed.text
    refused = run_here("frames", *files)
    assert (refused.code, refused.out) == (2, b"")
    assert "two places" in refused.err


def test_apart_is_said(folder: Path) -> None:
    captured = BothEnds(Link(rtt_ns=20 * MS)).carry(long_conversation(calls=8))
    files = filed(folder, captured.client, stepped(captured))
    outcome = run_here("analyze", *files)
    assert outcome.code == 0
    assert outcome.text.startswith("These captures cannot be combined and are analysed one by one: ")
    assert outcome.text.count("─ verdict ") == 2
    assert run_here("rpcs", *files).code == 2


def test_no_rpc_is_told_twice(folder: Path) -> None:
    """The report is about the client's capture; both captures hold the same RPCs."""
    captured = BothEnds(Link(rtt_ns=RTT_NS)).carry(two_unary())
    files = filed(folder, captured.client, captured.server)
    found = analyze_files(files)
    assert found.totals.rpcs == decode(files[:1]).rpc_count == 2
    assert found.files == (files[0],)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_pairs_end_in_an_analysis_or_a_refusal(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = []
    for side in ("", ".server"):
        data = bytearray(Path(recorded_file(f"rtt205-go-16000{side}.pcap")).read_bytes())
        for _ in range(rng.choice([1, 20, 200])):
            at = rng.randrange(24, len(data))
            if seed % 2:
                data[at] ^= 1 << rng.randrange(8)
            else:
                del data[at : at + rng.randrange(100)]
        path = folder / f"damaged{seed}{side}.pcap"
        path.write_bytes(data)
        files.append(str(path))
    try:
        found = analyze_files(files)
    except (CaptureError, NoGrpcError):
        return
    if found.ends:
        assert sum(found.ends.budget.values()) == sum(found.budget.values())
        divided(files)


def test_the_rest_of_the_report_is_that_of_the_clients_capture() -> None:
    for name in ("rtt205-go-16000", "rtt205-go-32000"):
        files = [recording(name, side).files[0] for side in ("client", "server")]
        assert changed(analyze_files(files), ends=None) == analyze_files(files[:1])
