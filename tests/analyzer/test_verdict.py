"""Which findings are one story, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from grpcdiag.analyzer.analysis import ABOUTS
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Evidence, Finding, Scope, sort_findings
from grpcdiag.analyzer.model.text import capitalise
from grpcdiag.analyzer.summary.verdict import choose_verdict, link_findings


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
    cause, consequence = link_findings([finding("client-idle-gap"), finding("shared-connection", lost_ns=500)], ABOUTS)
    assert (cause.id, cause.part_of, cause.lost_ns) == ("shared-connection", None, 500)
    assert (consequence.part_of, consequence.lost_ns, consequence.share) == ("shared-connection", None, None)


@pytest.mark.parametrize(("cause", "severity"), [("cpu-quota", "info"), ("shared-connection", "warning")])
def test_what_a_process_record_explains_is_no_second_warning(cause: str, severity: str) -> None:
    linked = link_findings([finding(cause), finding("client-idle-gap")], ABOUTS)
    assert [(f.part_of, f.severity) for f in linked if f.id == "client-idle-gap"] == [(cause, severity)]


def test_a_process_record_explains_one_side_and_its_connections() -> None:
    stall = finding("synchronised-stall", metrics={"side": "server"}, scope=Scope((0, 1), ()))
    for side, connections, expected in (
        ("client", (0, 1), (None, "warning")),  # whose threads were not recorded
        ("server", (0,), ("cpu-quota", "warning")),  # of the other connection nothing is explained
        ("server", (0, 1), ("cpu-quota", "info")),
    ):
        quota = finding("cpu-quota", metrics={"side": side}, scope=Scope(connections, ()))
        (linked,) = [f for f in link_findings([quota, stall], ABOUTS) if f.id == stall.id]
        assert (linked.part_of, linked.severity) == expected


@pytest.mark.parametrize(
    "cause",
    [finding("shared-connection", scope=Scope((1,), ())), finding("shared-connection", severity="info")],
    ids=["on another connection", "less severe"],
)
def test_what_is_not_one_story_stays_apart(cause: Finding) -> None:
    (idle,) = [f for f in link_findings([finding("client-idle-gap"), cause], ABOUTS) if f.id == "client-idle-gap"]
    assert (idle.part_of, idle.lost_ns) == (None, 1_000)


def test_data_that_the_client_itself_held_back_keeps_its_time() -> None:
    stall = finding("stream-window-stall")
    (own,) = [f for f in link_findings([finding("delayed-data"), stall], ABOUTS) if f.id == "delayed-data"]
    assert (own.part_of, own.lost_ns) == (None, 1_000)
    (told,) = [
        f for f in link_findings([finding("delayed-data", lost_ns=None, share=None), stall], ABOUTS) if f.id != stall.id
    ]
    assert told.part_of == "stream-window-stall"


def test_the_gravest_comes_first_then_the_costliest() -> None:
    slow, errors = finding("loss-recovery", lost_ns=9_000), finding("rpc-errors", lost_ns=None, share=None)
    assert choose_verdict([errors, slow], {}, ABOUTS).finding == "loss-recovery"
    grave = finding("rpc-errors", severity="critical", lost_ns=None, share=None)
    assert choose_verdict([grave, slow], {}, ABOUTS).finding == "rpc-errors"
    assert choose_verdict([finding("capture-quality"), errors], {}, ABOUTS).finding == "rpc-errors"
    assert choose_verdict([finding("capture-quality")], {}, ABOUTS).finding == "capture-quality"


def test_failures_of_all_calls_come_before_a_window() -> None:
    window = finding("stream-window-stall", severity="critical", share=0.9)
    failed = {"severity": "critical", "lost_ns": None, "share": None}
    assert choose_verdict(
        [window, finding("rpc-errors", metrics={"failed_share": 1.0}, **failed)], {}, ABOUTS
    ).finding == ("rpc-errors")
    some = finding("rpc-errors", metrics={"failed_share": 0.8}, **failed)
    assert choose_verdict([window, some], {}, ABOUTS).finding == "stream-window-stall"


def test_the_place_of_most_time_comes_before_a_small_cost() -> None:
    place = {"severity": "info", "lost_ns": None, "share": None}
    server = finding("server-latency", metrics={"server_time_share": 0.9}, **place)
    window = finding("slow-start-after-idle", share=0.03)
    said = choose_verdict([server, window], {}, ABOUTS, calls="12 RPCs, none failed.")
    assert said.finding == "server-latency"
    assert said.text == f"{server.verdict} Less important: slow-start-after-idle costs 3%. 12 RPCs, none failed."
    assert choose_verdict([server], {}, ABOUTS).text == f"{server.verdict} No transport problem was found."
    less = finding("server-latency", metrics={"server_time_share": 0.49}, **place)
    queue = finding("max-concurrent-streams", at_least=True)
    failing = finding("rpc-errors", lost_ns=None, share=None, metrics={"failed_share": 0.01})
    large = finding("stream-window-stall", severity="critical", share=0.3)
    most = finding("lock-contention", share=0.5)
    for grave in (queue, failing, large, most):
        assert choose_verdict([server, grave], {}, ABOUTS).finding == grave.id
    assert choose_verdict([less, window], {}, ABOUTS).finding == window.id


def test_a_capture_that_lacks_most_of_the_time_comes_before_a_smaller_cost() -> None:
    quality = finding("capture-quality", lost_ns=None, share=None)
    for gap, share, expected in ((900, 0.05, quality.id), (300, 0.05, "loss-recovery"), (600, None, "loss-recovery")):
        found = [quality, finding("loss-recovery", share=share, lost_ns=None if share is None else 1_000)]
        verdict = choose_verdict(found, {"capture_gap": gap, "server": 1_000 - gap}, ABOUTS)
        assert verdict.finding == expected


def test_most_of_the_rpcs_are_not_most_of_the_time() -> None:
    """One call of one that failed shows no pattern, and does not say that the transport is well."""
    few = {"severity": "info", "lost_ns": None, "share": None}
    failed = finding("rpc-errors", metrics={"failed_share": 1.0}, **few)
    assert choose_verdict([failed], {}, ABOUTS).text == failed.verdict
    assert choose_verdict([failed, finding("small-packets", share=0.03)], {}, ABOUTS).finding == "small-packets"


def test_few_calls_that_reach_their_deadline_may_take_most_of_the_time() -> None:
    few = {"severity": "info", "lost_ns": None, "share": None}
    for in_vain, expected in ((960, "deadline-exceeded"), (490, None)):
        late = finding(
            "deadline-exceeded", metrics={"deadline_exceeded_share": 0.25, "time_in_vain_ns": in_vain}, **few
        )
        assert choose_verdict([late], {"server": 900, "network": 100}, ABOUTS).finding == expected


def test_the_larger_share_of_failed_rpcs_comes_first() -> None:
    failed = {"severity": "critical", "lost_ns": None, "share": None}
    refused = finding("proxy-error", metrics={"refused_share": 0.2}, **failed)
    for other in (
        finding("stream-timeout", metrics={"ended_share": 0.3}, **failed),
        finding("rpc-errors", metrics={"failed_share": 0.3}, **failed),
    ):
        assert choose_verdict([refused, other], {}, ABOUTS).finding == other.id
    small = finding("stream-timeout", metrics={"ended_share": 0.1}, **failed)
    assert choose_verdict([small, refused], {}, ABOUTS).finding == "proxy-error"


def test_the_larger_cost_comes_first() -> None:
    """One connection's beginning is `info`, but it cost more than what is a warning."""
    beginning = finding("initial-congestion-window", severity="info", share=0.7)
    window = finding("receive-window-stall", share=0.12)
    said = choose_verdict([beginning, window], {}, ABOUTS)
    assert said.finding == "initial-congestion-window"
    assert said.text == f"{beginning.verdict} Less important: receive-window-stall costs 12%."
    for grave in (finding("stream-window-stall", share=0.71), finding("stream-window-stall", severity="critical")):
        assert choose_verdict([beginning, grave], {}, ABOUTS).finding == "stream-window-stall"


def test_a_part_of_a_story_is_no_verdict() -> None:
    told = link_findings([finding("client-idle-gap", lost_ns=9_000), finding("shared-connection")], ABOUTS)
    assert choose_verdict(told, {}, ABOUTS).finding == "shared-connection"


def test_without_a_finding_the_verdict_says_what_can_be_said() -> None:
    clean = choose_verdict(
        [finding("header-overhead", severity="info", lost_ns=None, share=None)],
        {"server": 90, "unexplained": 10},
        ABOUTS,
    )
    assert clean.finding is None
    assert clean.text == "No transport problem was found in this capture."
    streams = choose_verdict([], {"server": 90, "client": 10}, ABOUTS)
    assert streams.text == "No transport problem was found in this capture."
    hidden = choose_verdict([], {"server": 89, "unexplained": 6, "capture_gap": 5}, ABOUTS)
    assert hidden.finding is None
    assert "11%" in hidden.text


def test_it_speaks_of_findings_and_causes_that_exist() -> None:
    known = {detector.id for detector in DETECTORS}
    named = {cause for about in ABOUTS.values() for cause in about.caused_by}
    assert named <= known
    assert {"unexplained", "capture_gap"} <= set(CAUSES)


def test_a_clean_verdict_still_tells_what_costs_time() -> None:
    beginning = finding("initial-congestion-window", severity="info", share=0.17)
    said = choose_verdict([beginning], {"network": 100}, ABOUTS)
    assert (said.text, said.finding) == (
        f"No serious problem was found. Largest cost: {beginning.verdict}",
        None,
    )
    little = finding("initial-congestion-window", severity="info", share=0.01)
    assert choose_verdict([little], {"network": 100}, ABOUTS).text.startswith("No transport problem was found")


def test_the_findings_of_a_report_begin_with_the_verdicts() -> None:
    costly, failed = finding("loss-recovery"), finding("rpc-errors", lost_ns=None, share=None)
    main, remark = finding("connection-churn", severity="info"), finding("ping-storm", severity="info")
    assert sort_findings([remark, failed, costly, main], main.id) == (main, costly, failed, remark)
    assert sort_findings([remark, failed, costly, main], None) == (costly, failed, remark, main)


def test_sentences_that_begin_with_a_host_begin_with_a_capital() -> None:
    said = capitalise("client 10.0.0.1 stopped. server 10.0.0.2 waits (e.g. server settings), see server-latency.")
    assert said == "Client 10.0.0.1 stopped. Server 10.0.0.2 waits (e.g. server settings), see server-latency."
