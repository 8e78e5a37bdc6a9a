"""Nobody is charged for bytes that drain or wait behind the capture point, or in a socket behind those of others."""

from __future__ import annotations

import pytest
from support import RECORDED

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.fixtures.synthetic.words import MS

WILD = RECORDED / "wild"


@pytest.mark.parametrize(
    ("name", "at_the_server_ms"),
    [
        ("grpc-go-upload-drains", 42),
        ("grpcio-upload-drains", 59),
        ("grpc-go-upload-slow", 654),
        ("grpcio-upload-slow", 659),
    ],
)
def test_the_server_has_what_a_capture_at_its_end_gives_it(name: str, at_the_server_ms: int) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    assert budget["server"] / MS == pytest.approx(at_the_server_ms, rel=0.05)
    assert budget["transmission"] > 250 * MS


@pytest.mark.parametrize(
    ("name", "cause", "most_ms"),
    [
        ("grpcio-answers-queued", "server", 160),
        ("grpc-go-answers-queued", "server", 100),
        ("grpc-go-answers-lossy", "server", 100),
        ("grpcio-uploads-share", "client", 10),
    ],
)
def test_what_may_have_waited_behind_bytes_of_others_is_nobodys(name: str, cause: str, most_ms: int) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    assert budget.get(cause, 0) <= most_ms * MS
    assert budget["unexplained"] > 0.2 * sum(budget.values())


@pytest.mark.parametrize("name", ["grpcio-slow-answers", "grpc-go-slow-answers"])
def test_a_slow_handler_of_large_answers_is_charged(name: str) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    assert budget["server"] / MS == pytest.approx(6 * 60, rel=0.05)
    assert budget.get("unexplained", 0) < 1 * MS


@pytest.mark.parametrize(
    ("name", "handlers_ms"),
    [("grpcio-uplink-held", 340 * 4), ("grpc-go-uplink-full", 400 * 4), ("grpc-go-narrow-uplink", 0)],
)
def test_the_path_has_the_time_for_which_it_held_requests(name: str, handlers_ms: int) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    whole = sum(budget.values())
    assert budget["network_queue"] > 0.4 * whole
    assert handlers_ms * MS <= budget["server"] < 1.2 * handlers_ms * MS + 0.05 * whole


@pytest.mark.parametrize("name", ["grpcio-stopped-four", "tonic-stopped", "grpcio-frozen", "grpc-go-slow-handler"])
def test_a_server_whose_host_acknowledges_has_the_time_for_which_it_was_silent(name: str) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    assert budget.get("network_queue", 0) == 0
    assert budget["server"] > 0.5 * sum(budget.values())
