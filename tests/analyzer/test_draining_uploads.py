"""What drains behind the capture point is being transmitted until ACKs that may not be delayed show that it arrived."""

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

