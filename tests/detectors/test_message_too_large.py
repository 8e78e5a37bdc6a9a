"""`message-too-large`: who refused which messages, and what stays a cancelled call."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from h2.settings import SettingCodes
from judging import changed, must, played, told
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import message_too_large
from grpcdiag.analyzer.detectors.message_too_large import OUT_OF_RANGE
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import in_time_order
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_refusals import LIMIT, refuse_requests, refuse_responses
from grpcdiag.fixtures.synthetic.wire import CLIENT, Link
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/grpc-java-receive-limit", "wild/grpcio-receive-limit", "wild/grpc-go-receive-limit-server"]
QUIET_ON = ["lab/cancelled", "wild/nginx-body-limit", "wild/grpc-ruby-pool", "deadline-exceeded", "wild/retry-storm"]


@pytest.mark.parametrize(
    ("name", "confidence", "knob"),
    [
        ("grpc-java-receive-limit", "medium", "maxInboundMessageSize(n)"),
        ("grpcio-receive-limit", "high", "grpc.max_receive_message_length"),
    ],
)
def test_a_client_that_refuses_responses(name: str, confidence: str, knob: str) -> None:
    """grpc-java resets with CANCEL, C-core with ENHANCE_YOUR_CALM."""
    files = [recorded(f"wild/{name}.pcap.zst")]
    found = must(message_too_large, decode(files))
    assert (found.severity, found.confidence) == ("critical", confidence)
    assert (found.metrics["refused_rpcs"], found.metrics["longest_message_bytes"]) == (6, 5_000_000)
    assert found.verdict.startswith("client 10.71.0.1 reset 6 of 6 RPCs while a response of 5,000,000 bytes arrived")
    assert found.remedies[0].knob == knob


def test_a_server_that_refuses_requests() -> None:
    files = [recorded("wild/grpc-go-receive-limit-server.pcap.zst")]
    found = must(message_too_large, decode(files))
    assert (found.severity, found.confidence, found.metrics["side"]) == ("critical", "high", "server")
    assert found.remedies[0].knob == "grpc.MaxRecvMsgSize(n)"


def test_its_figures_from_scenes(tmp_path: Path) -> None:
    file = synthetic("message-too-large-fires").file
    assert must(message_too_large, decode([file])).metrics["refused_rpcs"] == 3
    found = must(message_too_large, played(refuse_requests(LIMIT + 1), tmp_path))
    assert (found.metrics["refused_rpcs"], found.metrics["shortest_message_bytes"]) == (3, LIMIT + 1)


@pytest.mark.parametrize(
    ("text", "hidden", "shown"),
    [
        ("grpc: received message larger than max (5000000 vs. 4194304)", "high", "high"),
        ("gRPC message exceeds maximum size 4194304: 5000000", "high", "high"),
        ("Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes", "high", "high"),
        ("Our messages may not be larger than that", "medium", "high"),
        ("quota exceeded for project demo", "medium", None),
        ("too many messages", "medium", None),
        ("Concurrent RPC limit exceeded!", None, None),
    ],
)
def test_the_text_of_an_error_decides_if_it_is_known(
    tmp_path: Path, text: str, hidden: str | None, shown: str | None
) -> None:
    """Texts of implementations are known without being asked for."""
    for confidence, asked in ((hidden, False), (shown, True)):
        found = told(message_too_large, played(refuse_requests(LIMIT + 1, text=text), tmp_path, errors=asked))
        assert (found and found.confidence) == confidence


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        ("Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes", True),
        ("Error, message length too large: found 5000000 bytes, the limit is: 4194304 bytes", True),
        ("no such page", False),
        ("", False),
    ],
)
def test_tonic_refuses_with_out_of_range(tmp_path: Path, text: str, fires: bool) -> None:
    """Applications use that status for pages and offsets."""
    for asked in (False, True):
        tables = played(refuse_requests(LIMIT + 1, text=text, status=OUT_OF_RANGE), tmp_path, errors=asked)
        found = told(message_too_large, tables)
        assert (found is not None) == fires
        if found:
            assert "refused with OUT_OF_RANGE" in found.title and "The caller sees OUT_OF_RANGE." in found.explanation


def test_a_server_that_had_not_the_prefix_refused_something_else(tmp_path: Path) -> None:
    assert told(message_too_large, played(refuse_requests(LIMIT + 1, early=True), tmp_path)) is None


def test_one_refused_request_is_information(tmp_path: Path) -> None:
    assert must(message_too_large, played(refuse_requests(LIMIT + 1, calls=1), tmp_path)).severity == "info"


@pytest.mark.parametrize(
    ("length", "calls", "after_ns"),
    [(LIMIT, 3, 0), (LIMIT + 1, 2, 0), (LIMIT + 1, 3, 101 * MS)],
    ids=["not longer than the limit", "two calls", "long after the prefix"],
)
def test_responses_that_were_cancelled(tmp_path: Path, length: int, calls: int, after_ns: int) -> None:
    assert told(message_too_large, played(refuse_responses(length, calls=calls, after_ns=after_ns), tmp_path)) is None


def test_a_long_message_that_arrived_refutes_it() -> None:
    tables = decode([synthetic("message-too-large-fires").file])
    assert tables.directions.longest_message_bytes.tolist() == [20, 16]
    longest = [0, LIMIT]
    assert told(message_too_large, changed(tables, "directions", longest_message_bytes=longest)) is not None
    longest = [0, LIMIT + 1]
    assert told(message_too_large, changed(tables, "directions", longest_message_bytes=longest)) is None


def test_one_that_arrived_on_another_connection_refutes_it(tmp_path: Path) -> None:
    refused = Link(connection=0).carry(refuse_responses(LIMIT + 1))
    path = tmp_path / "two.pcap"
    for client, fires in ((CLIENT, False), (replace(CLIENT, ip="10.0.0.9"), True)):
        link = Link(connection=1, client=replace(client, port=40_002), client_isn=5_000_000)
        arrived = link.carry(refuse_responses(1, calls=0, whole=LIMIT + 1))
        path.write_bytes(write_pcap(in_time_order([*refused, *arrived])))
        assert (told(message_too_large, decode([str(path)])) is not None) == fires


def test_hedged_attempts_are_not_refused() -> None:
    tables = decode([synthetic("message-too-large-fires").file])
    with patch.object(message_too_large.retries, "mark_hedged", lambda _, rows: np.arange(len(rows)) > 0):
        assert told(message_too_large, tables) is None


def test_a_window_of_the_other_side_stays_a_cause_of_its_own(tmp_path: Path) -> None:
    """The client refuses responses; its server, which reads slowly, holds up an upload."""
    conv = opened(server_settings={SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    upload = conv.start_rpc("/demo.Store/Put")
    upload.send_message(900_000, end_stream=True)
    conv.settle()
    upload.reply_message(10)
    upload.finish()
    conv.settle()
    for _ in range(3):
        call = conv.start_rpc("/demo.Store/Get")
        call.send_message(20, end_stream=True)
        conv.settle()
        call.begin_message("server", LIMIT + 1)
        conv.settle()
        call.cancel("client", 8)
        conv.settle()
    path = tmp_path / "both.pcap"
    path.write_bytes(write_pcap(Link().carry(conv)))
    parts = {finding.id: finding.part_of for finding in analyze([str(path)]).findings}
    stalls = {name: part for name, part in parts.items() if name.endswith("window-stall")}
    assert "message-too-large" in parts
    assert stalls
    assert set(stalls.values()) == {None}


def test_other_senders_and_statuses() -> None:
    tables = decode([synthetic("message-too-large-fires").file])
    assert told(message_too_large, changed(tables, "failures", reset_by=[1, 1, 1])) is None
    requests = decode([synthetic("message-too-large-fires-requests").file])
    assert told(message_too_large, requests) is not None
    status = [0 if one == 0 else 14 for one in requests.rpcs.status.tolist()]
    assert told(message_too_large, changed(requests, "rpcs", status=status)) is None
