"""Captures of one direction alone: told, and no finding that needs the other one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support import recorded, run_here
from tampered import keep_direction, tamper

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.facts.failures import TRAILERS
from grpcdiag.analyzer.tables import NO_METHOD, NOT_SEEN, TOUCHES_GAP, Mask, Rpcs

ONE_DIRECTION = {detector.id for detector in DETECTORS if detector.about.one_direction}
NAMES = ["rtt205-go-16000", "rtt205-py-16000", "impl-cpp", "impl-go", "impl-java", "impl-js", "impl-py", "impl-tonic"]
MORE = ["any", "ipv6", "max-concurrent-streams", "too-many-pings", "rpc-errors", "deadline-exceeded"]


@pytest.mark.parametrize("and_syns", [False, True], ids=["dst-port", "and-syns"])
@pytest.mark.parametrize("name", NAMES + MORE)
def test_requests_alone(name: str, and_syns: bool, tmp_path: Path) -> None:
    source = recorded(f"{name}.pcap")
    path = tamper(source, tmp_path / "up.pcap", keep_direction(source, "client", and_syns=and_syns))
    analysis = analyze([path])
    assert {finding.id for finding in analysis.findings} <= ONE_DIRECTION
    assert any("no data from the server" in warning for warning in analysis.quality.warnings)
    assert analysis.verdict.finding in ("capture-quality", None)
    assert analysis.totals.rpcs == analyze([source]).totals.rpcs
    known = sum(sum(m.statuses.values()) - m.statuses.get("not_seen", 0) for m in analysis.methods)
    assert known == sum(
        m.statuses.get(status, 0) for m in analysis.methods for status in ("CANCELLED", "DEADLINE_EXCEEDED")
    ), "a client's reset alone is seen"
    accused = {"server", "stream_window", "connection_window", "receive_window", "congestion_window"}
    assert not accused & {cause for cause, ns in analysis.budget.items() if ns}


@pytest.mark.parametrize("name", NAMES + MORE)
def test_answers_alone(name: str, tmp_path: Path) -> None:
    source = recorded(f"{name}.pcap")
    path = tamper(source, tmp_path / "down.pcap", keep_direction(source, "server"))
    analysis, whole = analyze([path]), decode([source], rpc_rows=True).rpcs
    assert {finding.id for finding in analysis.findings} <= ONE_DIRECTION
    assert any("no data from the client" in warning for warning in analysis.quality.warnings)
    found = decode([path], rpc_rows=True).rpcs
    answered = found.status_source == TRAILERS
    assert find_statuses(found, answered) == find_statuses(whole, whole.status_source == TRAILERS)
    assert (found.flags & TOUCHES_GAP).all()
    assert (found.method == NO_METHOD).all()
    assert np.array_equal(found.status != NOT_SEEN, answered)
    causes = {cause for cause, ns in analysis.budget.items() if ns}
    assert causes <= {"capture_gap", "server", "transmission"}, "nothing of the client, of windows or of the path"


def find_statuses(rpcs: Rpcs, rows: Mask) -> Counter[tuple[int, int, int]]:
    columns = (rpcs.connection[rows], rpcs.stream[rows], rpcs.status[rows])
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(("direction", "lacks"), [("client", "server"), ("server", "client")])
def test_one_direction_of_http1_is_told_and_nothing_accused(direction: str, lacks: str, tmp_path: Path) -> None:
    source = recorded("wild/web-http1.pcap")
    path = tamper(source, tmp_path / "one.pcap", keep_direction(source, direction))
    outcome = run_here("analyze", path, "--json")
    analysis = json.loads(outcome.text)
    assert (outcome.code, analysis["findings"]) == (4, [])
    assert f"the capture has no data from the {lacks}; 1 connection is HTTP/1:" in analysis["verdict"]["text"]


@pytest.mark.parametrize("name", NAMES + MORE)
def test_both_directions_are_not_told_of(name: str) -> None:
    assert not decode([recorded(f"{name}.pcap")]).connections.unheard.any()
