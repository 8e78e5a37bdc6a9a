"""`lost-answer`: RST_STREAM(NO_ERROR) in place of trailers; never after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import must, played
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import lost_answer as detector
from grpcdiag.fixtures.synthetic.scenes_answers import reset
from grpcdiag.fixtures.synthetic.scenes_failures import given_up

FIRES_ON = ["wild/hyper-rst-noerror"]
QUIET_ON = ["wild/rst-noerror", "wild/grpclib-deadline", "wild/haproxy-streamtimeout", "wild/nginx-readtimeout"]


def test_a_server_that_resets_after_the_message() -> None:
    """Every third of 12 calls gets a message and RST_STREAM(NO_ERROR); grpcio reports 8 OK and 4 failed calls."""
    analysis = analyze([recorded("wild/hyper-rst-noerror.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.metrics["lost_answers"], finding.metrics["answers_begun"], finding.metrics["rpcs"]) == (4, 4, 12)
    assert (finding.severity, analysis.verdict.finding) == ("critical", detector.ID)
    assert next(f for f in analysis.findings if f.id == "rpc-errors").part_of == detector.ID


def test_calls_without_a_part_of_the_answer(tmp_path: Path) -> None:
    finding = must(detector, played(reset(2, part=False), tmp_path))
    assert (finding.metrics["lost_answers"], finding.metrics["answers_begun"]) == (2, 0)


@pytest.mark.parametrize(("calls", "others", "severity"), [(2, 6, "warning"), (3, 6, "critical"), (3, 28, "warning")])
def test_the_share_decides(tmp_path: Path, calls: int, others: int, severity: str) -> None:
    assert must(detector, played(reset(calls, others=others), tmp_path)).severity == severity


def test_a_timer_that_resets_with_no_error_is_the_cause(tmp_path: Path) -> None:
    """Envoy's stream timers do so: the timer is the verdict, the lost answers are part of it."""
    played(given_up(3_000_000_000, timeout=None, calls=6, side="server", code=0), tmp_path)
    analysis = analyze([str(tmp_path / "played.pcap")])
    assert {f.id: f.part_of for f in analysis.findings if f.id in (detector.ID, "stream-timeout")} == {
        detector.ID: "stream-timeout",
        "stream-timeout": None,
    }
    assert analysis.verdict.finding == "stream-timeout"
