"""A wait has the same cause at whichever end it was captured: what was still on its way does not count."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from h2.settings import SettingCodes

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, US

RTT = 100 * MS
WINDOW = 12_000
ROUNDS = 3


def download(left: int = 0, late: int = 20 * US) -> Conversation:
    """36 kB over a stream window of 12 kB, of which `left` stay unused.

    The client gives credit while the burst is still coming in; the server goes on `late` after it has that."""
    conv = opened(rtt_ns=RTT, client_settings={SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}, auto_window=False)
    call = conv.start_rpc("/demo.Store/Get")
    call.send_message(10, end_stream=True)
    conv.settle()
    call.reply_headers()
    size = ROUNDS * WINDOW
    data = b"\0" + (size - 5).to_bytes(4, "big") + bytes(size - 5)
    ends = [0, *(WINDOW * n - left for n in range(1, ROUNDS)), size]
    for at, end in itertools.pairwise(ends):
        for piece in (data[at : at + 4_000], data[at + 4_000 : end]):
            conv.peer("server").send_data(call.stream_id, piece)
            conv.flush("server")
            conv.advance(200 * US)
        if end < size:
            conv.advance(RTT // 2 - 300 * US)
            conv.window_update("client", WINDOW, call.stream_id)
            conv.settle()
            conv.advance(late)
    call.finish()
    conv.settle()
    return conv


def causes(conversation: Conversation, vantage: str, folder: Path) -> list[str]:
    """Causes of the server's waits, as captured at one end."""
    path = folder / f"{vantage}.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=RTT, vantage=vantage).carry(conversation)))
    waits = decode([str(path)]).waits
    return [CAUSES[cause] for cause in waits.cause[waits.direction == 1]]


@pytest.mark.parametrize("vantage", ["client", "server"])
def test_less_credit_than_a_segment_stops_a_writer_too(vantage: str, tmp_path: Path) -> None:
    assert causes(download(left=200), vantage, tmp_path) == ["stream_window"] * (ROUNDS - 1)


@pytest.mark.parametrize(("late", "cause"), [(15 * MS, "stream_window"), (80 * MS, "unexplained")])
def test_a_sender_may_take_a_quarter_of_the_wait_to_go_on(late: int, cause: str, tmp_path: Path) -> None:
    assert causes(download(late=late), "server", tmp_path) == [cause] * (ROUNDS - 1)


@pytest.mark.parametrize("vantage", ["client", "server"])
def test_credit_on_its_way_opens_no_window(vantage: str, tmp_path: Path) -> None:
    path = tmp_path / f"{vantage}.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=RTT, vantage=vantage).carry(download())))
    waits = decode([str(path)]).waits
    servers = waits.direction == 1
    assert [CAUSES[cause] for cause in waits.cause[servers]] == ["stream_window"] * (ROUNDS - 1)
    assert waits.stream_window_bytes[servers].tolist() == [0] * (ROUNDS - 1)
