"""A wait has the same cause at whichever end it was captured: what was still on its way does not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from h2.settings import SettingCodes

from grpcdiag.analyzer.budget import CAUSES
from grpcdiag.analyzer.decode import decode
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, US

RTT = 100 * MS
WINDOW = 12_000
ROUNDS = 3


def download() -> Conversation:
    """36 kB over a stream window of 12 kB. The client reads, and gives credit, while the burst is still coming in."""
    conv = opened(rtt_ns=RTT, client_settings={SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}, auto_window=False)
    call = conv.start_rpc("/demo.Store/Get")
    call.send_message(10, end_stream=True)
    conv.settle()
    call.reply_headers()
    size = ROUNDS * WINDOW
    data = b"\0" + (size - 5).to_bytes(4, "big") + bytes(size - 5)
    for at in range(0, size, WINDOW):
        for piece in (data[at : at + 4_000], data[at + 4_000 : at + WINDOW]):
            conv.peer("server").send_data(call.stream_id, piece)
            conv.flush("server")
            conv.advance(200 * US)
        if at + WINDOW < size:
            conv.advance(RTT // 2 - 300 * US)
            conv.window_update("client", WINDOW, call.stream_id)
            conv.settle()
            conv.advance(20 * US)
    call.finish()
    conv.settle()
    return conv


@pytest.mark.parametrize("vantage", ["client", "server"])
def test_credit_on_its_way_opens_no_window(vantage: str, tmp_path: Path) -> None:
    path = tmp_path / f"{vantage}.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=RTT, vantage=vantage).carry(download())))
    waits = decode([str(path)]).waits
    servers = waits.direction == 1
    assert [CAUSES[cause] for cause in waits.cause[servers]] == ["stream_window"] * (ROUNDS - 1)
    assert waits.stream_window_bytes[servers].tolist() == [0] * (ROUNDS - 1)
