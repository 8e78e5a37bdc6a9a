"""Calls whose legs end differently: attempts that a proxy retried, resets that it kept, statuses that it changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from legs import CLIENT, OUTWARD, PROXY, SERVER, SERVER2, Leg, capture, nothing, pass_on, trace

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.fixtures.synthetic.packet import Endpoint

OUTWARD_TOO = Endpoint("02:00:00:00:00:02", "10.0.0.2", 40003)


def the(analysis: Analysis, name: str) -> Finding:
    (finding,) = (one for one in analysis.findings if one.id == name)
    return finding


def words(finding: Finding) -> str:
    return " | ".join(item.what for item in finding.evidence)


@pytest.mark.parametrize("spread", [False, True])
def test_an_attempt_that_its_server_killed_is_in_a_finding(tmp_path: Path, spread: bool) -> None:
    """The proxy repeats it at another server, which it called before (`spread`) or not, and the call succeeds."""
    front, back, spare = Leg(), Leg(), Leg()
    for number in range(20):
        other = spare if spread and number % 2 else back
        first = front.begin(20 + 100 * number)
        other.end(33 + 100 * number, other.begin(22 + 100 * number))
        front.end(35 + 100 * number, first)
    first = front.begin(2120)
    back.begin(2122)
    back.at(2140)
    spare.end(2310, spare.begin(2300))
    front.end(2312, first)
    legs = (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"), (spare, OUTWARD_TOO, SERVER2, "client")
    analysis = analyze([capture(tmp_path, *legs, killed=1)])
    assert analysis.totals.rpcs == 21
    assert [method.statuses for method in analysis.methods] == [{"OK": 21}]
    assert [(hop.retried, hop.failed_attempts) for hop in analysis.hops] == [(1, 1), (0, 0)][: 1 + spread]
    finding = the(analysis, "connection-closed-early")
    assert finding.metrics["lost_rpcs"] == 1
    assert "1 attempt behind the proxy 10.0.0.2:8080 failed before it retried: UNAVAILABLE 1" in finding.explanation
    assert "the connection's end" in words(finding)
    assert "the proxy retries" in words(finding)
    assert {item.packet for item in analysis.hops[0].evidence} & {item.packet for item in finding.evidence}
    assert "1 attempt behind the proxy" in analysis.verdict.text
    assert "while it retried 1 call: look for why attempts failed" in analysis.verdict.text


@pytest.mark.parametrize(("calls", "resets"), [(20, 2), (0, 6)])
@pytest.mark.parametrize("passed_on", [False, True])
def test_resets_that_a_proxy_keeps_are_in_a_finding(tmp_path: Path, calls: int, resets: int, passed_on: bool) -> None:
    """The client resets calls after 30 ms, without identifiers, and even if it resets all of them."""
    front, back = Leg(), Leg()
    pass_on(front, back, nothing, calls=calls)
    for number in range(calls, calls + resets):
        first = front.begin(20 + 100 * number)
        second = back.begin(22 + 100 * number)
        front.at(50 + 100 * number)
        first.cancel("client")
        if passed_on:
            back.at(52 + 100 * number)
            second.cancel("client")
        else:
            back.end(100 + 100 * number, second)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    (hop,) = analysis.hops
    assert (analysis.totals.rpcs, hop.calls) == (calls + resets, calls + resets)
    assert hop.resets_not_passed_on == (0 if passed_on else resets)
    text = f"did not pass on {resets} resets of the client"
    finding = the(analysis, "cancelled")
    assert (text in analysis.verdict.text) == (text in finding.explanation) == (not passed_on)
    if not passed_on:
        assert "before the proxy: RST_STREAM CANCEL from the client" in words(finding)
        assert "behind it: it ends with status OK" in words(finding)


def test_a_call_that_stays_open_behind_the_proxy_is_shown_by_its_begin(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    first = front.begin(1020, trace(50))
    back.begin(1022, trace(50))
    front.at(1030)
    first.cancel("client")
    front.end(1100, front.begin(1090, trace(51)))
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    assert "the RPC begins, and is open at the end" in words(the(analysis, "cancelled"))


@pytest.mark.parametrize(("behind", "before", "changed"), [(7, None, True), (14, 13, True), (14, 14, False)])
def test_statuses_that_a_proxy_changes_are_in_a_finding(
    tmp_path: Path, behind: int, before: int | None, changed: bool
) -> None:
    """The server behind answers PERMISSION_DENIED or UNAVAILABLE; the proxy resets the call or answers another one."""
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    for number in range(10, 13):
        first = front.begin(20 + 100 * number, trace(number))
        back.end(32 + 100 * number, back.begin(22 + 100 * number, trace(number)), status=behind)
        if before is None:
            front.at(35 + 100 * number)
            first.cancel("server")
        else:
            front.end(35 + 100 * number, first, status=before)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    (hop,) = analysis.hops
    assert (hop.statuses_changed, hop.failed_behind) == ((3, 0) if changed else (0, 3))
    finding = the(analysis, "cancelled" if before is None else "rpc-errors")
    assert ("changed the status of 3 calls" in finding.explanation) == changed
    assert ("changed the status of 3 calls" in analysis.verdict.text) == changed
    if before is None:
        assert "PERMISSION_DENIED became CANCELLED" in hop.text
        assert "behind the proxy: trailers with status PERMISSION_DENIED" in words(finding)
    elif changed:
        assert "UNAVAILABLE became INTERNAL" in hop.text


def test_a_timeout_of_the_proxy_is_no_changed_status(tmp_path: Path) -> None:
    """The proxy resets the leg behind, and answers DEADLINE_EXCEEDED itself."""
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    first = front.begin(1020, trace(50))
    second = back.begin(1022, trace(50))
    back.at(1050)
    second.cancel("client")
    front.end(1051, first, status=4)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    (hop,) = analysis.hops
    assert (hop.calls, hop.statuses_changed, hop.answers_lost) == (7, 0, 0)


def test_an_end_of_the_clients_connection_is_no_lost_answer(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    front.begin(1020, trace(50))
    back.end(1040, back.begin(1022, trace(50)))
    front.at(1050)
    legs = (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client")
    analysis = analyze([capture(tmp_path, *legs, killed=0)])
    (hop,) = analysis.hops
    assert (hop.calls, hop.statuses_changed, hop.answers_lost) == (7, 0, 0)
    assert "the server behind answered" not in analysis.verdict.text


def test_an_answer_that_a_proxy_loses_is_in_a_finding(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    first = front.begin(1020, trace(50))
    back.end(1040, back.begin(1022, trace(50)))
    front.end(1045, first, status=14)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    finding = the(analysis, "rpc-errors")
    assert "failed 1 call that the server behind answered: OK became UNAVAILABLE" in finding.explanation


@pytest.mark.parametrize(("answered_ms", "fails", "lost"), [(45, "reset", 3), (90, "reset", 0), (90, "trailers", 0)])
def test_an_answer_that_comes_after_the_proxy_gave_up(tmp_path: Path, answered_ms: int, fails: str, lost: int) -> None:
    """The proxy ends three calls after 30 ms, and the server behind answers them OK before or after that."""
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    for number in range(10, 13):
        begin = 100 * number
        first, second = front.begin(20 + begin, trace(number)), back.begin(22 + begin, trace(number))
        if lost:
            back.end(answered_ms + begin, second)
        front.at(50 + begin)
        if fails == "reset":
            first.cancel("server")
        else:
            front.end(50 + begin, first, status=4)
        if not lost:
            back.end(answered_ms + begin, second)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    (hop,) = analysis.hops
    assert (analysis.totals.rpcs, hop.answers_lost) == (9, lost)


@pytest.mark.parametrize(("later_ms", "kept"), [(1.5, 0), (2.5, 3)])
def test_a_response_in_transit_is_no_reset_that_a_proxy_kept(tmp_path: Path, later_ms: float, kept: int) -> None:
    """The round trip behind the proxy is 2 ms: a server that answers sooner had not heard of the reset."""
    front, back = Leg(), Leg()
    pass_on(front, back, trace)
    for number in range(10, 13):
        begin = 100 * number
        first, second = front.begin(20 + begin, trace(number)), back.begin(22 + begin, trace(number))
        front.at(50 + begin)
        first.cancel("client")
        back.end(50 + begin + later_ms, second)
    analysis = analyze([capture(tmp_path, (front, CLIENT, PROXY, "server"), (back, OUTWARD, SERVER, "client"))])
    (hop,) = analysis.hops
    assert (hop.calls, hop.resets_not_passed_on) == (9, kept)
    assert ("did not pass on" in the(analysis, "cancelled").explanation) == bool(kept)
