"""Rules of `verify` on small tables: each explains its own case and keeps silent one step beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from grpcdiag.analyzer.verify.compare import compare
from grpcdiag.analyzer.verify.difference import Difference
from grpcdiag.analyzer.verify.records import CaptureRecords, Connection, Frame, Packet, Status

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:50051"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
ENDS = (CLIENT, SERVER)


def sent(number: int, seq: int, length: int, *notes: str, side: int = 0, **more: int) -> Packet:
    """A packet whose bytes were all recorded, unless `captured` says otherwise."""
    captured = more.pop("captured", length)
    return Packet(number, 0, ENDS[side], side, seq, length, captured, frozenset(notes), **more)


def frame(packet: int, length: int, *, kind: int = DATA, stream: int = 1, side: int = 0, flags: int = 0) -> Frame:
    return Frame(packet, 0, side, kind, flags, stream, length)


def account(
    packets: Sequence[Packet],
    frames: Sequence[Frame] = (),
    *,
    starts: Sequence[int] | None = None,
    statuses: Iterable[tuple[int, int, str]] = (),
    complete: bool = True,
    tls: bool = False,
    closed: bool = False,
    rpcs: Iterable[int] = (),
    notes: Sequence[str] = (),
) -> CaptureRecords:
    """One side's account of one connection; statuses are (packet, stream, value)."""
    return CaptureRecords(
        connections={0: Connection(CLIENT, SERVER, complete, tls, closed)},
        packets=list(packets),
        frames=list(frames),
        starts=[f.packet for f in frames] if starts is None else list(starts),
        statuses=[Status(packet, 0, stream, value) for packet, stream, value in statuses],
        rpcs={(0, stream) for stream in rpcs},
        notes=list(notes),
    )


def differences(ours: CaptureRecords, theirs: CaptureRecords, what: str) -> list[Difference]:
    return [difference for difference in compare(ours, theirs).differences if difference.what == what]


def told(ours: CaptureRecords, theirs: CaptureRecords, what: str) -> list[tuple[str, str | None] | None]:
    """Rule and who is right per difference of one kind; None for an unexplained one."""
    return [d.why and (d.why.rule, d.why.right) for d in differences(ours, theirs, what)]


def test_equal_accounts_do_not_differ() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 0, 9, side=1)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), frame(2, 0, kind=SETTINGS, stream=0, side=1)]
    same = account(packets, frames, statuses=[(2, 1, "OK")])
    found = compare(same, same)
    assert found.differences == ()
    assert {c.name: (c.ours, c.theirs) for c in found.counts} == {
        "connections": (1, 1),
        "packets": (2, 2),
        "retransmissions": (0, 0),
        "frames": (2, 2),
        "SETTINGS": (2, 2),
        "streams": (0, 0),
        "gRPC statuses": (1, 1),
    }


def test_each_of_equal_frames_counts() -> None:
    packets = [sent(1, 0, 24 + 27)]
    three = [frame(1, 0)] * 3
    assert told(account(packets, three), account(packets, three[:1]), "frame") == [("lost-place", "grpcdiag")] * 2


# Packets and connections


def test_packets_behind_the_damage_at_which_wireshark_stops() -> None:
    packets = [sent(1, 0, 10), sent(2, 10, 10), sent(3, 20, 10)]
    damaged = account(packets[:2], notes=["cut short in the middle of a packet"])
    assert told(account(packets), damaged, "packet") == [("file-damage", "grpcdiag")]
    assert told(account(packets), account(packets[:2]), "packet") == [None], "without a complaint it has no reason"
    gap = account([packets[0], packets[2]], notes=["cut short"])
    assert told(account(packets), gap, "packet") == [None], "packets before the damage are no part of it"
    assert told(account(packets[:2]), account(packets), "packet") == [None]


def test_other_lengths_senders_and_connections_are_never_explained() -> None:
    ours = account([sent(1, 0, 10), sent(2, 10, 10), sent(3, 20, 10)])
    other = account([sent(1, 0, 10), sent(2, 10, 9), sent(3, 20, 10, side=1)])
    assert told(ours, other, "packet") == [None, None]
    split = account([p._replace(connection=number // 3) for number, p in enumerate(ours.packets, start=1)])
    assert [d.packet for d in differences(ours, split, "connection")] == [3]
    assert told(ours, split, "connection") == [None]


# Frames that only grpcdiag lists


def lists(lengths: Sequence[int], **where: int) -> list[Frame]:
    return [frame(2, length, **where) for length in lengths]


def test_wireshark_lost_its_place() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 33, 60)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), *lists([11, 31])]
    assert told(account(packets, frames), account(packets, frames[:2]), "frame") == [("lost-place", "grpcdiag")]
    longer = [packets[0], sent(2, 33, 61)]
    assert told(account(longer, frames), account(longer, frames[:2]), "frame") == [None], "a byte is left over"
    shorter = [packets[0], sent(2, 33, 59)]
    assert told(account(shorter, frames), account(shorter, frames[:2]), "frame") == [None], "a byte too much is listed"


def test_frames_behind_a_hole() -> None:
    packets = [sent(1, 0, 24 + 9), sent(3, 500, 40), sent(4, 540, 20)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), frame(3, 31), frame(4, 11)]
    assert told(account(packets, frames), account(packets, frames[:1]), "frame") == [("hole-before", "grpcdiag")] * 2
    whole = [packets[0], sent(2, 33, 467), *packets[1:]]
    listed = [frames[0], frame(2, 458), *frames[1:]]
    assert told(account(whole, listed), account(whole, listed[:2]), "frame") == [("lost-place", "grpcdiag")] * 2


def test_frames_behind_a_cut() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 33, 109, captured=30), sent(3, 142, 20)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), frame(2, 100), frame(3, 11)]
    assert told(account(packets, frames), account(packets, frames[:1]), "frame") == [("cut-before", "grpcdiag")] * 2


def test_frames_of_a_connection_begun_before() -> None:
    packets = [sent(1, 0, 50), sent(2, 50, 20)]
    frames = [frame(2, 11)]
    late = account(packets, frames, complete=False)
    assert told(late, account(packets), "frame") == [("begun-before", "grpcdiag")]
    alone = account([packets[0], sent(2, 50, 27)], frames, complete=False)
    assert told(alone, account(alone.packets), "frame") == [None], "one frame that begins with a packet proves little"


def test_a_chain_of_frames_proves_itself_between_packets() -> None:
    """None begins or ends with a packet, but all begin in the packets they should."""
    packets = [sent(1, 0, 1_000), sent(2, 1_000, 40), sent(3, 1_040, 1_000), sent(4, 2_040, 10), sent(5, 2_050, 500)]
    chain, starts = [frame(3, 1_031), frame(5, 29), frame(5, 91), frame(5, 100)], [2, 4, 5, 5]
    ours = account(packets, chain, starts=starts, complete=False)
    assert told(ours, account(packets), "frame") == [("begun-before", "grpcdiag")] * 4
    wide = [packets[0], sent(2, 1_000, 440), *[p._replace(seq=p.seq + 400) for p in packets[2:]]]
    loose = account(wide, [frame(3, 891), *chain[2:]], starts=[2, 5, 5], complete=False)
    assert told(loose, account(wide), "frame") == [None] * 3


# Frames that only Wireshark lists


def test_no_room_for_a_frame() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 33, 60)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), *lists([11, 31])]
    theirs = account(packets, [*frames, frame(2, 7, stream=99)])
    assert told(account(packets, frames), theirs, "frame") == [("no-room", "grpcdiag")]
    assert told(account(packets, frames), theirs, "stream") == [("no-room", "grpcdiag")]
    left = [packets[0], sent(2, 33, 60 + 15)]
    ours = account(left, frames)
    assert told(ours, account(left, [*frames, frame(2, 7)]), "frame") == [None], "there are bytes it may have"


def test_a_frame_longer_than_everything() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 33, 60)]
    huge = account(packets, [frame(2, 1_000_000, kind=65)])
    assert told(account(packets), huge, "frame") == [("longer-than-all", "grpcdiag")]
    fits = account(packets, [frame(2, 40, kind=65)])
    assert told(account(packets), fits, "frame") == [None]


def test_a_frame_listed_by_the_header_that_a_cut_left() -> None:
    packets = [sent(1, 0, 24 + 9), sent(2, 33, 109, captured=30), sent(3, 142, 20)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), frame(3, 11)]
    fills = account(packets, [*frames, frame(2, 100)])
    assert told(account(packets, frames), fills, "frame") == [("cut-frame", "wireshark")]
    other = account(packets, [*frames, frame(2, 60)])
    assert told(account(packets, frames), other, "frame") == [("cut-frame", "wireshark")], "it begins where it must"
    whole = [packets[0], sent(2, 33, 109), packets[2]]
    assert told(account(whole, frames), account(whole, fills.frames), "frame") == [None], "nothing was cut"


def test_a_boundary_that_grpcdiag_does_not_take_for_proven() -> None:
    packets = [sent(1, 0, 24 + 9), sent(3, 500, 40), sent(4, 540, 20)]
    frames = [frame(1, 0, kind=SETTINGS, stream=0), frame(4, 11)]
    theirs = account(packets, [*frames, frame(3, 31)])
    assert told(account(packets, frames), theirs, "frame") == [("boundary-unknown", None)]
    late = [sent(1, 0, 40), sent(2, 40, 20)]
    fills = account(late, [frame(1, 31), frame(2, 11)])
    ours = account(late, [frame(2, 11)], complete=False)
    assert told(ours, fills, "frame") == [("boundary-not-proven", "wireshark")]
    assert told(ours, account(late, [frame(1, 30), frame(2, 11)]), "frame") == [None], "it does not fill the bytes"


def test_frames_of_tls_behind_a_hole() -> None:
    whole, holed = [sent(1, 0, 50), sent(2, 50, 60)], [sent(1, 0, 50), sent(2, 80, 60)]
    listed = [frame(2, 11)]
    for packets, expected in ((holed, ("tls-hole-before", "grpcdiag")), (whole, None)):
        ours = account(packets, listed, tls=True)
        assert told(ours, account(packets), "frame") == [expected]
    other = account(holed, listed)
    assert told(account(holed, tls=True), other, "frame") == [("tls-hole-before", "wireshark")]


# Statuses

TRAILERS = frame(2, 20, kind=HEADERS, side=1, flags=5)
ANSWER = [sent(1, 0, 24), sent(2, 0, 29, side=1)]


def test_two_statuses_are_never_explained() -> None:
    ours, theirs = (account(ANSWER, [TRAILERS], statuses=[(2, 1, value)]) for value in ("OK", "ABORTED"))
    assert told(ours, theirs, "status") == [None]


def test_a_status_that_a_reset_stands_for() -> None:
    reset = frame(2, 4, kind=RST_STREAM, side=1)
    ours = account(ANSWER, [reset], statuses=[(2, 1, "CANCELLED")])
    assert told(ours, account(ANSWER, [reset]), "status") == [("reset", "both")]
    assert told(ours, account(ANSWER), "status") == [None], "Wireshark must list the reset too"
    assert told(account(ANSWER, [TRAILERS], statuses=[(2, 1, "OK")]), account(ANSWER, [TRAILERS]), "status") == [None]


@pytest.mark.parametrize(
    ("packet", "ended_before", "expected"),
    [(2, True, ("late-answer", "both")), (2, False, None), (1, True, ("late-answer", "both")), (3, True, None)],
)
def test_trailers_that_came_too_late(packet: int, ended_before: bool, expected: tuple[str, str] | None) -> None:
    """What we say ended the RPC comes before the trailers, or is their packet; else we may have missed them."""
    ours = account(ANSWER, [TRAILERS])
    ours.statuses.append(Status(packet, 0, 1, "DEADLINE_EXCEEDED", ended_before))
    assert told(ours, account(ANSWER, [TRAILERS], statuses=[(2, 1, "OK")]), "status") == [expected]


def test_a_status_by_the_connections_end() -> None:
    goaway = frame(2, 8, kind=GOAWAY, stream=0, side=1)
    for frames, closed, expected in (
        ([goaway], False, ("connection-end", "both")),
        ([], True, ("connection-end", "both")),
        ([], False, None),
    ):
        ours = account(ANSWER, frames, statuses=[(2, 1, "UNAVAILABLE")], closed=closed)
        assert told(ours, account(ANSWER, frames), "status") == [expected]


def test_a_status_by_http() -> None:
    ours = account(ANSWER, [TRAILERS], statuses=[(2, 1, "UNAVAILABLE")])
    for value, expected in (("503", ("http-status", "both")), ("200", None)):
        theirs = account(ANSWER, [TRAILERS])
        theirs.http_statuses.append(Status(2, 0, 1, value))
        assert told(ours, theirs, "status") == [expected]


def test_a_status_by_http_that_a_reset_follows() -> None:
    """A proxy answers 502 with a page, and the client resets the stream: the page is the status, not the reset."""
    reset = frame(2, 4, kind=RST_STREAM, side=1)
    for packet, expected in ((2, "http-status"), (3, "reset")):
        ours = account(ANSWER, [reset], statuses=[(2, 1, "UNAVAILABLE")])
        theirs = account(ANSWER, [reset])
        theirs.http_statuses.append(Status(packet, 0, 1, "502"))
        assert told(ours, theirs, "status") == [(expected, "both")]


def test_a_stream_that_ends_without_trailers() -> None:
    """The server's DATA ends it, and a GOAWAY follows. The trailers of gRPC-Web are in DATA: OK is not explained."""
    end, goaway = frame(2, 1, kind=0, flags=1, side=1), frame(3, 8, kind=GOAWAY, stream=0)
    for value, expected in (("UNKNOWN", "no-trailers"), ("OK", "connection-end")):
        ours = account(ANSWER, [end, goaway], statuses=[(2, 1, value)])
        assert told(ours, account(ANSWER, [end, goaway]), "status") == [(expected, "both")]


def test_a_status_in_trailers_that_wireshark_does_not_list() -> None:
    ours = account(ANSWER, [TRAILERS], statuses=[(2, 1, "OK")])
    assert told(ours, account(ANSWER), "status") == [("lost-place", "grpcdiag")]


@pytest.mark.parametrize(("complete", "expected"), [(False, ("hpack-history", "grpcdiag")), (True, None)])
def test_a_status_that_needs_headers_from_before(complete: bool, expected: tuple[str, str] | None) -> None:
    ours = account(ANSWER, [TRAILERS], statuses=[(2, 1, "OK")], complete=complete)
    assert told(ours, account(ANSWER, [TRAILERS]), "status") == [expected]


def test_a_status_without_an_rpc() -> None:
    theirs = account(ANSWER, [TRAILERS], statuses=[(2, 1, "OK")])
    late = account(ANSWER, [TRAILERS], complete=False)
    assert told(late, theirs, "status") == [("request-not-captured", "both")]
    known = account(ANSWER, [TRAILERS], complete=False, rpcs=[1])
    assert told(known, theirs, "status") == [("hpack-history", None)]
    assert told(account(ANSWER, [TRAILERS]), theirs, "status") == [None], "the whole connection is there"
    assert told(account(ANSWER, [TRAILERS], rpcs=[1]), theirs, "status") == [None]


# Retransmissions

RETRANSMISSION, OUT_OF_ORDER = "retransmission", "out_of_order"


def late_packet(ours: Sequence[str], theirs: Sequence[str], before: Sequence[Packet], **more: int) -> list[object]:
    """What is told of packet 9, bytes 100 to 200 of the client, after `before`."""
    mine = [*before, sent(9, 100, 100, *ours, **more)]
    other = [*before, sent(9, 100, 100, *theirs, **more)]
    return list(told(account(mine), account(other), "retransmission"))


def test_bytes_recorded_before() -> None:
    before = [sent(1, 0, 120)]
    assert late_packet([RETRANSMISSION], [OUT_OF_ORDER], before) == [("recorded-before", "grpcdiag")]
    assert late_packet([RETRANSMISSION], [OUT_OF_ORDER], [sent(1, 0, 100)]) == [None], "its bytes are new"
    assert late_packet([], [RETRANSMISSION], before) == [None], "grpcdiag would be wrong"
    assert late_packet([RETRANSMISSION], [OUT_OF_ORDER], [sent(1, 0, 120, side=1)]) == [None], "the other sender's"


@pytest.mark.parametrize(
    ("clock", "expected"),
    [(1001, ("sent-later", "grpcdiag")), (1000, ("sent-before", "wireshark")), (999, ("sent-before", "wireshark"))],
)
def test_the_senders_clock_decides(clock: int, expected: tuple[str, str]) -> None:
    before = [sent(1, 200, 50, sent_at=1000)]
    assert late_packet([RETRANSMISSION], [OUT_OF_ORDER], before, sent_at=clock) == [expected]
    other = {"grpcdiag": "wireshark", "wireshark": "grpcdiag"}[expected[1]]
    assert late_packet([OUT_OF_ORDER], [RETRANSMISSION], before, sent_at=clock) == [(expected[0], other)]


def test_the_senders_clock_wraps() -> None:
    before = [sent(1, 200, 50, sent_at=2**32 - 5)]
    assert late_packet([RETRANSMISSION], [], before, sent_at=3) == [("sent-later", "grpcdiag")]


def test_without_a_clock_nothing_decides() -> None:
    assert late_packet([RETRANSMISSION], [OUT_OF_ORDER], [sent(1, 200, 50)]) == [None]


def test_a_file_out_of_order() -> None:
    before = [sent(1, 200, 50, time_ns=2_000)]
    assert late_packet([OUT_OF_ORDER], [RETRANSMISSION], before, time_ns=1_999) == [("file-order", "grpcdiag")]
    assert late_packet([OUT_OF_ORDER], [RETRANSMISSION], before, time_ns=2_001) == [None]


def test_bytes_acknowledged_before_they_were_recorded() -> None:
    for clock, expected in ((50, ("ack-recorded-first", "grpcdiag")), (51, ("first-not-captured", "wireshark"))):
        ack = sent(1, 0, 0, side=1, ack=200, echo=50)
        assert late_packet([], [RETRANSMISSION], [ack], sent_at=clock) == [expected]
    early = sent(1, 0, 0, side=1, ack=199, echo=50)
    assert late_packet([], [RETRANSMISSION], [early], sent_at=50) == [None], "its last byte is not acknowledged"
    assert late_packet([], [RETRANSMISSION], [ack]) == [None], "no clock"


def test_a_packet_recorded_twice() -> None:
    first = sent(1, 100, 100, ip_id=7, sent_at=5, ack=3)
    same = {"ip_id": 7, "sent_at": 5, "ack": 3}
    twice = ("recorded-twice", "grpcdiag")
    assert late_packet(["duplicate"], [RETRANSMISSION], [first], **same) == [twice]
    assert late_packet(["duplicate"], [RETRANSMISSION], [first], **(same | {"ip_id": 8})) == [None]
    assert late_packet(["duplicate"], [RETRANSMISSION], [first], **(same | {"sent_at": 6})) == [None]
    six = first._replace(ip_id=None)
    for apart, expected in ((1_000_000, twice), (1_000_001, None)):
        found = late_packet(["duplicate"], [RETRANSMISSION], [six], sent_at=5, ack=3, time_ns=apart)
        assert found == [expected], "without an identification only closeness tells"


def test_a_repeated_packet_without_payload() -> None:
    for first, expected in ((sent(1, 0, 0), ("no-payload", "both")), (sent(1, 5, 0), None)):
        ours = account([first, sent(2, 0, 0)])
        theirs = account([first, sent(2, 0, 0, RETRANSMISSION)])
        assert told(ours, theirs, "retransmission") == [expected]
    ours = account([sent(1, 5, 0, time_ns=9), sent(2, 0, 0, time_ns=8)])
    theirs = account([sent(1, 5, 0, time_ns=9), sent(2, 0, 0, RETRANSMISSION, time_ns=8)])
    assert told(ours, theirs, "retransmission") == [("file-order", "grpcdiag")]
