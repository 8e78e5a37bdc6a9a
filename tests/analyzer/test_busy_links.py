"""Nobody is charged for bytes that drain or wait behind the capture point, or in a socket behind those of others."""

from __future__ import annotations

import numpy as np
import pytest
from support import RECORDED

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.budget import CAUSES
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
        ("grpcio-answers-queued", "server", 30),
        ("grpc-go-answers-queued", "server", 100),
        ("grpc-go-answers-lossy", "server", 100),
        ("grpcio-uploads-share", "client", 10),
    ],
)
def test_what_may_have_waited_behind_bytes_of_others_is_nobodys(name: str, cause: str, most_ms: int) -> None:
    budget = analyze([str(WILD / f"{name}.pcap.zst")]).budget
    assert budget.get(cause, 0) <= most_ms * MS
    assert budget["unexplained"] > 0.2 * sum(budget.values())


@pytest.mark.parametrize("name", ["grpcio-answers-dropped", "grpcio-answers-dropped-server"])
def test_answers_behind_many_short_stops_are_not_late(name: str) -> None:
    """Handlers took 6 ms. Behind the first answer, packets of which were dropped, the others waited for 170 ms."""
    tables = decode([str(WILD / f"{name}.pcap.zst")], rpc_rows=True)
    behind = np.isin(tables.rpcs.stream, (3, 5))
    assert (tables.rpc_budgets[behind, CAUSES.index("server")] < 40 * MS).all()
    assert behind.sum() == 2


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


@pytest.mark.parametrize(
    ("name", "longest_ms"),
    [
        ("grpc-go-download-beside", 2_881),
        ("grpc-go-download-beside-server", 2_761),
        ("grpcio-download-beside-server", 1_578),
    ],
)
def test_a_full_link_is_not_held_up_by_a_window(name: str, longest_ms: int) -> None:
    """2 MB take 2.67 s over 6 Mbit/s, 1.5 MB 1.5 s over 8: the loss can have cost no more than the rest."""
    analysis = analyze([str(WILD / f"{name}.pcap.zst")])
    findings = {finding.id: finding for finding in analysis.findings}
    assert findings["loss-recovery"].severity == "warning"
    assert analysis.budget["congestion_window"] < 0.35 * longest_ms * MS
    assert analysis.budget["transmission"] > 0.65 * longest_ms * MS


@pytest.mark.parametrize("name", ["grpc-go-download-beside", "grpc-go-download-beside-server"])
def test_a_handler_has_its_time_where_acks_had_left_room_before(name: str) -> None:
    """The stream's handler slept for 15 ms behind a download whose last bytes were being acknowledged meanwhile."""
    tables = decode([str(WILD / f"{name}.pcap.zst")], rpc_rows=True)
    rpc = int(np.flatnonzero(tables.rpcs.stream == 13)[0])
    budget = dict(zip(CAUSES, tables.rpc_budgets[rpc].tolist(), strict=True))
    assert budget["server"] / MS == pytest.approx(15.4, abs=1)
    assert budget["congestion_window"] == 0


@pytest.mark.parametrize("name", ["grpc-go-upload-alone", "grpc-js-upload-alone"])
def test_a_request_that_waits_behind_its_own_bytes_is_transmitted(name: str) -> None:
    analysis = analyze([str(WILD / f"{name}.pcap.zst")])
    assert analysis.budget["network_queue"] < 0.06 * sum(analysis.budget.values())
    assert "slow-start-after-idle" not in {finding.id for finding in analysis.findings}
