"""Which findings are one story, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Evidence, Finding, Scope
from grpcdiag.analyzer.summary import verdict


def finding(identity: str, **changes: Any) -> Finding:
    given: dict[str, Any] = {
        "id": identity,
        "title": identity,
        "severity": "warning",
        "confidence": "high",
        "scope": Scope((0,), ()),
        "lost_ns": 1_000,
        "share": 0.1,
        "metrics": {},
        "evidence": (Evidence(1, 0, "a packet"),),
        "explanation": "",
        "remedies": (),
        "references": (),
        "verdict": f"{identity} it is.",
    }
    return Finding(**{**given, **changes})


def test_a_consequence_leaves_its_time_to_the_cause() -> None:
    cause, consequence = verdict.told([finding("client-idle-gap"), finding("shared-connection", lost_ns=500)])
    assert (cause.id, cause.part_of, cause.lost_ns) == ("shared-connection", None, 500)
    assert (consequence.part_of, consequence.lost_ns, consequence.share) == ("shared-connection", None, None)


@pytest.mark.parametrize(
    "cause",
    [finding("shared-connection", scope=Scope((1,), ())), finding("shared-connection", severity="info")],
    ids=["on another connection", "less severe"],
)
def test_what_is_not_one_story_stays_apart(cause: Finding) -> None:
    (idle,) = [f for f in verdict.told([finding("client-idle-gap"), cause]) if f.id == "client-idle-gap"]
    assert (idle.part_of, idle.lost_ns) == (None, 1_000)


def test_data_that_the_client_itself_held_back_keeps_its_time() -> None:
    stall = finding("stream-window-stall")
    (own,) = [f for f in verdict.told([finding("delayed-data"), stall]) if f.id == "delayed-data"]
    assert (own.part_of, own.lost_ns) == (None, 1_000)
    (told,) = [f for f in verdict.told([finding("delayed-data", lost_ns=None, share=None), stall]) if f is not stall]
    assert told.part_of == "stream-window-stall"


def test_the_gravest_comes_first_then_the_costliest() -> None:
    slow, errors = finding("loss-recovery", lost_ns=9_000), finding("rpc-errors", lost_ns=None, share=None)
    assert verdict.verdict([errors, slow], {}).finding == "loss-recovery"
    grave = finding("rpc-errors", severity="critical", lost_ns=None, share=None)
    assert verdict.verdict([grave, slow], {}).finding == "rpc-errors"
    assert verdict.verdict([finding("capture-quality"), errors], {}).finding == "rpc-errors"
    assert verdict.verdict([finding("capture-quality")], {}).finding == "capture-quality"


def test_a_part_of_a_story_is_no_verdict() -> None:
    told = verdict.told([finding("client-idle-gap", lost_ns=9_000), finding("shared-connection")])
    assert verdict.verdict(told, {}).finding == "shared-connection"


def test_without_a_finding_the_verdict_says_what_can_be_said() -> None:
    clean = verdict.verdict(
        [finding("header-overhead", severity="info", lost_ns=None, share=None)], {"server": 90, "unexplained": 10}
    )
    assert clean.finding is None
    assert clean.text == "Nothing in this capture slows the RPCs beyond network and server time."
    streams = verdict.verdict([], {"server": 90, "client": 10})
    assert streams.text == "Nothing in this capture slows the RPCs beyond client, network and server time."
    hidden = verdict.verdict([], {"server": 89, "unexplained": 6, "capture_gap": 5})
    assert hidden.finding is None
    assert "11%" in hidden.text


def test_it_speaks_of_findings_and_causes_that_exist() -> None:
    known = {detector.id for detector in DETECTORS}
    named = {*verdict.FIRST, *verdict.CAUSED_BY, *(cause for causes in verdict.CAUSED_BY.values() for cause in causes)}
    assert named <= known
    assert {"unexplained", "capture_gap"} <= set(CAUSES)


def test_a_clean_verdict_still_tells_what_costs_time() -> None:
    beginning = finding("initial-congestion-window", severity="info", share=0.17)
    said = verdict.verdict([beginning], {"network": 100})
    assert (said.text, said.finding) == (
        f"Nothing grave slows the RPCs beyond network and server time; what costs most: {beginning.verdict}",
        None,
    )
    little = finding("initial-congestion-window", severity="info", share=0.01)
    assert verdict.verdict([little], {"network": 100}).text.startswith("Nothing in this capture slows")
