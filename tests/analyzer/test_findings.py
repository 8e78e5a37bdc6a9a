"""All findings on all captures: what must be told, what must not, and that each proves what it says.

The expectations are what was done to the captures when they were recorded and what their clients measured; figures of
single findings are in the test of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

import pytest
from msgspec.structs import replace
from support import RECORDINGS, SNAPSHOTS, SYNTHETICS, recording

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.reports import analysis_json

GRAVE = {
    "ably-staggered-veth": ["small-packets", "ping-storm"],
    "deadline-exceeded": ["deadline-exceeded"],
    "h2-flow-control-go-64k": ["connection-window-stall"],
    "loss-1pct-rtt20": ["loss-recovery"],
    "loss-1pct-rtt20.server": ["loss-recovery"],
    "max-concurrent-streams": ["max-concurrent-streams"],
    "rpc-errors": ["rpc-errors"],
    "rtt205-go-16000": ["slow-start-after-idle"],
    "rtt205-go-16000.server": ["slow-start-after-idle"],
    "rtt205-go-32000": ["slow-start-after-idle"],
    "rtt205-go-32000.server": ["slow-start-after-idle"],
    "rtt205-py-16000": ["slow-start-after-idle"],
    "too-many-pings": ["too-many-pings", "connection-closed-early"],
    "ydb-stream-single-inflight8": ["shared-connection"],
    "ydb-unary-single-inflight8": ["shared-connection"],
}
"""Findings above `info`, by what was done to the capture; that of the verdict first. All others are healthy."""

FOR_INFORMATION = {
    "capture-quality": {"mid-connection-go", "snaplen-128", "truncated"},
    "delayed-data": {"h2-flow-control-go-64k", "loss-1pct-rtt20", "rtt205-go-14000", "rtt205-go-16000"}
    | {"rtt205-go-32000", "rtt205-go-32000-noslowstart", "rtt205-py-16000"},
}
"""The captures that have these findings, which are never above `info` here."""

# Client-side captures with nothing missing: what happened is all in the packets.
WHOLE = [
    r.id for r in RECORDINGS if r.side == "client" and r.name not in ("mid-connection-go", "snaplen-128", "truncated")
]
WHOLE = [name for name in WHOLE if not name.startswith("tls13")]


@lru_cache(maxsize=64)
def analysed(files: Sequence[str]) -> Analysis:
    return analyze(files)


def of(name: str, side: str = "client") -> Analysis:
    return analysed(recording(name, side).files)


def found(analysis: Analysis, identity: str) -> Finding | None:
    return next((finding for finding in analysis.findings if finding.id == identity), None)


def grave(analysis: Analysis) -> set[str]:
    return {finding.id for finding in analysis.findings if finding.severity != "info"}


@pytest.mark.parametrize("name", [r.id for r in RECORDINGS if not r.name.startswith("tls13")])
def test_what_was_done_is_found_and_nothing_else(name: str) -> None:
    analysis = analysed(next(r.files for r in RECORDINGS if r.id == name))
    expected = GRAVE.get(name, [])
    assert grave(analysis) == set(expected)
    for identity, names in FOR_INFORMATION.items():
        assert (found(analysis, identity) is not None) == (name.removesuffix(".server") in names), identity
    if not expected:
        assert analysis.verdict.finding in (None, "server-latency")  # where most of the time is, as info
        return
    assert analysis.verdict.finding == expected[0]
    verdict = found(analysis, expected[0])
    assert verdict is not None
    assert analysis.verdict.text.startswith(f"{verdict.verdict} {analysis.totals.rpcs:,} RPC")


def test_flow_control_is_named_and_measured() -> None:
    """Two uploads of 1.3 s over a window of 64 KiB and 20 ms."""
    analysis = of("h2-flow-control-go-64k")
    stalls = [found(analysis, identity) for identity in ("stream-window-stall", "connection-window-stall")]
    lost = sum(stall.lost_ns or 0 for stall in stalls if stall)
    assert lost == pytest.approx(2 * 1.3e9, rel=0.10)


def test_loss_costs_what_the_clients_measured() -> None:
    """The difference of the two clients' latencies is what loss cost: retransmissions and a window it had shrunk."""
    with_loss, without = recording("loss-1pct-rtt20"), recording("loss-0pct-rtt20")
    measured = (fmean(with_loss.report["latency_list_ms"]) - fmean(without.report["latency_list_ms"])) * 800 * 1e6
    loss = found(of("loss-1pct-rtt20"), "loss-recovery")
    assert loss is not None
    assert loss.lost_ns == pytest.approx(measured, rel=0.20)
    assert found(of("loss-0pct-rtt20"), "loss-recovery") is None


@pytest.mark.parametrize("name", ["rtt205-go-14000", "rtt205-go-16000", "rtt205-go-32000-noslowstart"])
def test_only_the_first_call_pays_the_initial_window(name: str) -> None:
    initial = found(of(name), "initial-congestion-window")
    assert initial is not None
    assert initial.severity == "info"
    assert initial.lost_ns == pytest.approx(205e6, rel=0.05)


@pytest.mark.parametrize("name", WHOLE)
def test_little_is_unexplained_where_nothing_is_missing(name: str) -> None:
    budget = of(name).budget
    assert budget.get("unexplained", 0) < 0.02 * sum(budget.values())


@pytest.mark.parametrize("name", [r.id for r in RECORDINGS if not r.name.startswith("tls13")])
def test_every_finding_is_complete_and_within_its_capture(name: str) -> None:
    files = next(r.files for r in RECORDINGS if r.id == name)
    analysis = analysed(files)
    whole = sum(analysis.budget.values())
    for finding in analysis.findings:
        assert finding.lost_ns is None or 0 <= finding.lost_ns <= whole, finding.id
        assert finding.remedies or finding.severity == "info", finding.id
        assert finding.verdict.endswith("."), finding.id
        assert set(finding.scope.connections) <= {c.connection for c in analysis.connections}, finding.id
    counted = sum(
        f.lost_ns or 0 for f in analysis.findings if f.id != "max-concurrent-streams" and f.id != "shared-connection"
    )
    assert counted <= whole, "lost time is counted twice"


EXPECTING = [s for s in SYNTHETICS if s.truth.get("findings") or s.truth.get("quiet")]


SNAPSHOT_OF = {r.id: r.files for r in RECORDINGS if "tls13" not in r.name}
SNAPSHOT_OF |= {f"synthetic-{s.name}": (s.file,) for s in EXPECTING}


@pytest.mark.parametrize("name", SNAPSHOT_OF)
def test_snapshot(name: str, update_snapshots: bool) -> None:
    """The findings' JSON of every capture that is here, silence included."""
    try:
        analysis = analysed(SNAPSHOT_OF[name])
    except NoGrpcError:
        return
    report = json.loads(analysis_json.render(replace(analysis, files=(name,))))
    text = (
        json.dumps({"verdict": report["verdict"], "findings": report["findings"]}, indent=1, ensure_ascii=False) + "\n"
    )
    path = SNAPSHOTS / "findings" / f"{name}.json"
    if update_snapshots:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "to accept the new findings: pytest --update-snapshots"
