"""`message-too-large`: who refused which messages, and what stays a cancelled call."""

from pathlib import Path

import pytest
from judging import changed, check_evidence, must, played, told
from support import recorded, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import message_too_large
from grpcdiag.fixtures.synthetic.scenes_refusals import LIMIT, refuse_requests, refuse_responses
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["wild/grpc-java-receive-limit", "wild/grpcio-receive-limit", "wild/grpc-go-receive-limit-server"]
"""Recorded captures on which the finding fires."""
QUIET_ON = ["lab/cancelled", "wild/nginx-body-limit", "wild/grpc-ruby-pool", "deadline-exceeded", "wild/retry-storm"]
"""Recorded captures on which it must not."""


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
    check_evidence(found, files)


def test_a_server_that_refuses_requests() -> None:
    files = [recorded("wild/grpc-go-receive-limit-server.pcap.zst")]
    found = must(message_too_large, decode(files))
    assert (found.severity, found.confidence, found.metrics["side"]) == ("critical", "high", "server")
    assert found.remedies[0].knob == "grpc.MaxRecvMsgSize(n)"
    check_evidence(found, files)


def test_its_figures_from_scenes(tmp_path: Path) -> None:
    file = synthetic("message-too-large-fires").file
    assert must(message_too_large, decode([file])).metrics["refused_rpcs"] == 3
    found = must(message_too_large, played(refuse_requests(LIMIT + 1), tmp_path))
    assert (found.metrics["refused_rpcs"], found.metrics["shortest_message_bytes"]) == (3, LIMIT + 1)


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


def test_other_senders_and_statuses() -> None:
    tables = decode([synthetic("message-too-large-fires").file])
    assert told(message_too_large, changed(tables, "failures", reset_by=[1, 1, 1])) is None
    requests = decode([synthetic("message-too-large-fires-requests").file])
    assert told(message_too_large, requests) is not None
    status = [0 if one == 0 else 14 for one in requests.rpcs.status.tolist()]
    assert told(message_too_large, changed(requests, "rpcs", status=status)) is None
