"""Durations on the wire against what the clients measured around their calls.

A client's figure holds its library and its scheduling as well, so the wire is never longer. Clients print three or more
decimals of a millisecond, hence the slack.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from support import RECORDINGS, Recording, recording

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode

SLACK_MS = 0.1
"""How much longer than the client's figure a duration may be: clocks and rounding."""

# How far a client's figure may exceed the wire, in milliseconds: its own start-up, threads and queues.
LIBRARY_MS = {
    "any": 1.0,
    "ipv6": 1.0,
    "truncated": 1.0,
    "deadline-exceeded": 1.0,
    "h2-flow-control-go-64k": 2.0,
    "loss-0pct-rtt20": 2.0,
    "loss-1pct-rtt20": 25.0,  # waits for the loss of frames that are no part of this RPC's stream
    "max-concurrent-streams-control": 4.0,
    "too-many-pings": 1.0,
    "impl-cpp": 3.0,
    "impl-go": 3.0,
    "impl-tonic": 3.0,
    "impl-py": 8.0,
    "impl-js": 60.0,
    "impl-java": 700.0,  # the JVM warms up in the first call
}
RTT205 = [r for r in RECORDINGS if r.name.startswith("rtt205-")]


def client_ms(capture: Recording) -> npt.NDArray[np.float64] | None:
    """Latency of every call, in the client's order, where it kept them."""
    report = capture.report
    listed = report.get("latency_list_ms") or report.get("latency_ms")
    if isinstance(listed, dict):
        listed = None if "p50" in listed else list(listed.values())
    return np.array(listed) if listed else None


def wire_ms(capture: Recording) -> npt.NDArray[np.float64]:
    return decode(capture.files).rpcs.duration_ns / 1e6


@pytest.mark.parametrize("capture", [pytest.param(r, id=r.id) for r in RTT205 if r.side == "client"])
def test_every_call_over_a_long_link(capture: Recording) -> None:
    """One call after the other: RPC i is call i, and within 3 ms of what the client measured."""
    told = client_ms(capture)
    assert told is not None
    difference = told - wire_ms(capture)
    assert len(difference) == 5
    assert difference.min() > -SLACK_MS, difference
    assert difference.max() < 3.0, difference


@pytest.mark.parametrize("capture", [pytest.param(r, id=r.id) for r in RTT205 if r.side == "server"])
def test_a_server_sees_one_round_trip_less(capture: Recording) -> None:
    told = client_ms(capture)
    assert told is not None
    difference = told - wire_ms(capture)
    assert difference.min() > 205.0
    assert difference.max() < 208.0


@pytest.mark.parametrize("name", sorted(LIBRARY_MS))
def test_the_wire_is_never_longer(name: str) -> None:
    """Calls run at once, so the k-th longest is compared with the k-th longest."""
    capture = recording(name)
    told = client_ms(capture)
    assert told is not None
    difference = np.sort(told) - np.sort(wire_ms(capture))
    assert difference.min() > -SLACK_MS, difference
    assert difference.max() < LIBRARY_MS[name], difference


def test_a_queue_before_the_streams_is_not_on_the_wire() -> None:
    """50 calls at once and 10 streams: the client waits for a free stream before it writes HEADERS."""
    capture = recording("max-concurrent-streams")
    told, wire = client_ms(capture), wire_ms(capture)
    assert told is not None
    assert (np.sort(told) - np.sort(wire)).min() > -SLACK_MS
    assert np.median(told) > 80
    assert np.median(wire) < 25
    tables = decode(capture.files)
    assert tables.connections.max_concurrent_rpcs.tolist() == [10]
    assert tables.connections.peer_max_concurrent_streams.tolist() == [10]
    control = decode(recording("max-concurrent-streams-control").files)
    assert control.connections.max_concurrent_rpcs.tolist() == [50]


DISTRIBUTIONS = [
    pytest.param(r, id=r.id)
    for r in RECORDINGS
    if r.side == "client"
    and isinstance(r.report.get("latency_ms"), dict)
    and "p50" in r.report["latency_ms"]
    # streaming: the client measured messages; the others do not hold all of the client's calls
    and not r.name.startswith(
        ("roguedb", "ydb-stream", "mid-", "snaplen", "tls13", "rpc-errors", "max-concurrent-streams")
    )
]


@pytest.mark.parametrize("capture", DISTRIBUTIONS)
def test_quantiles_are_below_the_clients(capture: Recording) -> None:
    told = capture.report["latency_ms"]
    (method,) = analyze(capture.files).methods
    assert method.latency_ns is not None
    for name in ("min", "p50", "p90", "p99", "max", "mean"):
        assert getattr(method.latency_ns, name) / 1e6 <= told[name] + SLACK_MS, name
