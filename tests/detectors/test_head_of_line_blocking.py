"""`head-of-line-blocking`: messages behind bytes of other streams."""

from __future__ import annotations

import pytest
from judging import changed
from msgspec.structs import replace
from stalls import firing, relabelled
from support import synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors.head_of_line_blocking import Limits, detect
from grpcdiag.analyzer.software.recognise import C_CORE
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic import scenes_windows as scenes
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/head-of-line-blocking"]
QUIET_ON = ["impl-cpp", "impl-go", "impl-tonic", "rtt205-go-16000"]


def behind() -> Tables:
    """Waits of a known length, as if other streams had gone first in them."""
    return relabelled(decode([synthetic("stream-window-fires").file]), "stream_window", "head_of_line")


def test_a_small_message_waits_for_a_large_one() -> None:
    """Six pieces of another stream, 0.4 ms each."""
    finding = firing(detect(decode([synthetic("head-of-line-fires").file]), Limits()))
    assert finding.lost_ns == pytest.approx(6 * 0.4 * MS, rel=0.01)
    assert finding.scope.methods == ("/demo.Store/Get",)
    assert finding.evidence[1].time_ns - finding.evidence[0].time_ns == finding.lost_ns


def test_the_time_behind_others_is_lost() -> None:
    finding = firing(detect(behind(), Limits()))
    assert finding.lost_ns == pytest.approx(2 * scenes.RTT, rel=0.01)
    assert finding.severity == "critical"
    assert finding.confidence == "medium"  # a full link would hold the bytes up just as well
    assert "separate channels" in finding.verdict
    assert finding.scope.methods == (scenes.PUT,)
    assert finding.evidence[0].what.startswith("the last bytes of stream 1")


def test_severity_follows_the_share() -> None:
    tables = behind()
    share = firing(detect(tables, Limits())).share or 0.0
    assert firing(detect(tables, Limits(critical_share=share + 0.001))).severity == "warning"
    assert firing(detect(tables, Limits(warning_share=share + 0.001, critical_share=1))).severity == "info"


@pytest.mark.parametrize(
    ("agent", "first"),
    [
        ("grpc-go/1.85.0", "grpc-go"),
        ("grpc-go-connect/1.19.2 (go1.25)", "connect-go"),  # its settings are not grpc-go's, and none is known
        ("grpc-python/1.76.0 grpc-c/51.0.0", C_CORE),
        ("grpc-node-js/1.13.0", "grpc-js"),
    ],
)
def test_the_setting_of_the_clients_software_comes_first(agent: str, first: str) -> None:
    tables = behind()
    named = replace(tables, agents=(*tables.agents, agent))
    found = firing(detect(changed(named, "connections", client_agent=[len(tables.agents)]), Limits()))
    assert found.remedies[0].implementation == first
    assert (found.remedies[0].knob == "no setting is known") == (first == "connect-go")
