"""Packets cut by a snaplen: from which one on nothing is lost, and what is said below it."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from lessened import Capture, capture_of, filed
from support import recorded, recording

from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.tables import NOT_SEEN, Tables

ENOUGH = {
    256: ("deadline-exceeded", "rpc-errors", "too-many-pings", "rtt205-go-16000", "roguedb-channels-4"),
    512: ("ydb-unary-single-inflight8", "ydb-stream-single-inflight8"),
    1514: ("rtt205-go-32000", "loss-0pct-rtt20", "h2-flow-control-go-64k"),
    65_535: ("impl-go", "impl-java", "ably-synchronised-veth"),
}
"""The snaplens of the documentation, and captures for which they are enough: small messages, larger ones, packets as
long as Ethernet's, packets recorded before they were cut up (offload, loopback)."""
CUT = ("impl-go", "impl-py", "rpc-errors", "rotated", "roguedb-threads-4", "ydb-unary-single-inflight1")


@cache
def whole_of(name: str) -> tuple[Capture, Tables]:
    capture = capture_of(recording(name).files)
    with filed(capture.data) as files:
        return capture, decode(files, rpc_rows=True)


def snapped(name: str, length: int) -> Tables:
    with filed(whole_of(name)[0].snapped(length)) as files:
        return decode(files, rpc_rows=True)


def diagnosis(tables: Tables) -> tuple[object, ...]:
    """Findings with their severity, the verdict, each RPC with its budget."""
    analysis, r = of_tables(tables), tables.rpcs
    columns = (r.stream, r.method, r.start_time_ns, r.duration_ns, r.status, r.request_bytes, r.response_bytes)
    findings = [(f.id, f.severity) for f in analysis.findings if f.id != "capture-quality"]
    return (findings, analysis.verdict.finding, [c.tolist() for c in columns], tables.rpc_budgets.tolist())


@pytest.mark.parametrize(("snaplen", "name"), [(length, name) for length, names in ENOUGH.items() for name in names])
def test_from_here_on_nothing_is_lost(snaplen: int, name: str) -> None:
    assert diagnosis(snapped(name, snaplen)) == diagnosis(whole_of(name)[1])


@pytest.mark.parametrize("snaplen", [96, 128, 256])
@pytest.mark.parametrize("name", CUT)
def test_below_it_what_is_lost_is_told_and_nobody_accused(name: str, snaplen: int) -> None:
    capture, whole = whole_of(name)
    tables = snapped(name, snaplen)
    before, after = ({f.id: f for f in of_tables(t).findings} for t in (whole, tables))
    assert not set(after) - set(before) - {"capture-quality"}
    lengths = [int.from_bytes(capture.record(number)[12:16], "little") for number in range(1, len(capture) + 1)]
    cut = sum(length > snaplen for length in lengths)
    assert tables.capture["truncated_packets"] == cut
    c = tables.connections
    assert (c.payload_bytes + c.missing_bytes).sum() == whole.connections.payload_bytes.sum(), "cut bytes are counted"
    if c.missing_bytes.any():
        assert after["capture-quality"].metrics["truncated_packets"] == cut
    methods = Counter(whole.method_name(int(number)) for number in whole.rpcs.method.tolist())
    seen = Counter(tables.method_name(int(number)) for number in tables.rpcs.method.tolist())
    assert all(count <= methods[name] for name, count in seen.items() if name)
    ends = zip(whole.rpcs.first_packet.tolist(), whole.rpcs.stream.tolist(), whole.rpcs.status.tolist(), strict=True)
    statuses = {(packet, stream): status for packet, stream, status in ends}
    for packet, stream, status in zip(
        tables.rpcs.first_packet.tolist(), tables.rpcs.stream.tolist(), tables.rpcs.status.tolist(), strict=True
    ):
        assert status in (NOT_SEEN, statuses[packet, stream]), f"stream {stream}"


CHARGED = (
    "lab/cancelled",
    "lab/cancelled-control",
    "lab/connection-churn-control",
    "lab/connection-closed-early",
    "deadline-exceeded",
    "lab/delayed-data-control",
    "lab/hung-rpc-control",
    "lab/mtu-black-hole-control",
    "lab/peer-unreachable-control",
    "rtt205-go-32000",
    "rtt205-py-16000",
    "lab/stream-timeout",
    "lab/keepalive-timeout",
)
"""Captures of which a cut copy was charged a second and more to causes that the whole has none of."""
ACCUSED = (
    ("connect-go-web", 96),
    ("etcd-bigrange", 128),
    ("grpc-js-message-refused", 400),
    ("haproxy-504", 96),
    ("haproxy-backend-down", 96),
    ("hop-buffering-a", 96),
    ("nginx-http-statuses", 96),
)
"""Captures of which a cut copy had findings that the whole lacks: ends of calls were cut, and what allows PINGs."""


@pytest.mark.parametrize("snaplen", [96, 128, 200])
@pytest.mark.parametrize("name", CHARGED)
def test_nobody_is_charged_what_the_capture_lacks(name: str, snaplen: int) -> None:
    capture = capture_of([recorded(f"{name}.pcap")])
    with filed(capture.data) as whole, filed(capture.snapped(snaplen)) as cut:
        before, after = (of_tables(decode(files, rpc_rows=False)).budget for files in (whole, cut))
    allowed = max(50_000_000, sum(before.values()) // 5)
    more = {
        cause: ns - before.get(cause, 0) for cause, ns in after.items() if cause not in ("capture_gap", "unexplained")
    }
    assert {cause: ns for cause, ns in more.items() if ns > allowed} == {}


@pytest.mark.parametrize(("name", "snaplen"), ACCUSED)
def test_what_ended_a_call_may_have_been_cut(name: str, snaplen: int) -> None:
    capture = capture_of([recorded(f"wild/{name}.pcap.zst")])
    with filed(capture.data) as whole, filed(capture.snapped(snaplen)) as cut:
        before, after = ({f.id for f in of_tables(decode(files, rpc_rows=False)).findings} for files in (whole, cut))
    assert after - before - {"capture-quality"} == set()


def test_frame_headers_that_survive_are_used() -> None:
    """DATA that is cut is known by its header: its message's length by the prefix."""
    _, whole = whole_of("rtt205-go-16000")
    tables = snapped("rtt205-go-16000", 256)
    assert tables.connections.missing_bytes.sum() > 0.5 * whole.connections.payload_bytes.sum()
    assert tables.rpcs.request_bytes.tolist() == whole.rpcs.request_bytes.tolist()
    assert tables.frame_counts == whole.frame_counts
