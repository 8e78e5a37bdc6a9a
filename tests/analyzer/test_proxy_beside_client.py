"""A proxy at its client's own address is seen, and a client of two servers at its own address is no proxy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from legs import Leg, capture, nothing, request_id, trace

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.fixtures.synthetic.packet import Endpoint

MAC = "02:00:00:00:00:01"


def send_through(front: Leg, back: Leg, ids: object = nothing, *, calls: int = 30, vary: float = 10) -> None:
    """Make calls one after the other; the server takes 50 ms and more, the proxy about 3 ms."""
    chance = random.Random(3)
    for number in range(calls):
        start, metadata = 20 + 100 * number, ids(number)  # type: ignore[operator]
        first = front.begin(start, metadata)
        up, taken, down = 1 + chance.random() / 4, 50 + vary * chance.random(), 2 + chance.random() / 4
        second = back.begin(start + up, metadata)
        back.end(start + up + taken, second)
        front.end(start + up + taken + down, first)


@pytest.mark.parametrize("ids", [nothing, request_id, trace])
@pytest.mark.parametrize(
    ("client", "proxy", "outward", "server"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.3"),
        ("10.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.3"),
        ("127.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.3"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("fd00::1", "::1", "fd00::1", "fd00::3"),
    ],
)
def test_each_call_through_it_counts_once(
    tmp_path: Path, client: str, proxy: str, outward: str, server: str, ids: object
) -> None:
    front, back = Leg(), Leg()
    send_through(front, back, ids)
    ends = [Endpoint(MAC, at, port) for at, port in ((client, 40001), (proxy, 8080), (outward, 40002), (server, 9000))]
    analysis = analyze([capture(tmp_path, (front, ends[0], ends[1], "server"), (back, ends[2], ends[3], "client"))])
    (hop,) = analysis.hops
    assert (analysis.totals.rpcs, hop.calls, hop.ambiguous) == (30, 30, 0)
    assert (hop.proxy.rpartition(":")[2], hop.server.rpartition(":")[2]) == ("8080", "9000")
    (latency,) = (finding for finding in analysis.findings if finding.id == "server-latency")
    assert latency.scope.connections == hop.back
    assert f"server {f'[{server}]' if ':' in server else server}" in analysis.verdict.text


@pytest.mark.parametrize(("calls", "joined"), [(5, False), (6, True)])
def test_five_calls_without_identifiers_are_too_few(tmp_path: Path, calls: int, joined: bool) -> None:
    front, back = Leg(), Leg()
    send_through(front, back, calls=calls)
    ends = [Endpoint(MAC, "127.0.0.1", port) for port in (40001, 8080, 40002, 9000)]
    analysis = analyze([capture(tmp_path, (front, ends[0], ends[1], "server"), (back, ends[2], ends[3], "client"))])
    assert bool(analysis.hops) == joined
    assert analysis.totals.rpcs == (calls if joined else 2 * calls)


@pytest.mark.parametrize("callers", [1, 2, 4, 16])
@pytest.mark.parametrize(("slow", "vary"), [(80.0, 0.0), (80.0, 0.02), (15.0, 0.02), (11.0, 0.02), (15.0, 0.2)])
def test_a_client_that_calls_two_servers_in_turn_is_no_proxy(
    tmp_path: Path, callers: int, slow: float, vary: float
) -> None:
    """Round robin: nearly all RPCs to the fast server lie inside one to the slow server, often in one way only."""
    chance, legs = random.Random(1), (Leg(), Leg())
    free = [20 + 0.3 * caller for caller in range(callers)]
    events: list[tuple[float, int]] = []
    for number in range(60):
        start = min(free)
        end = start + 2 + (slow, 10)[number % 2] * (1 + vary * (2 * chance.random() - 1))
        free[free.index(start)] = end + 0.2 + 0.3 * chance.random()
        events += [(start, number), (end, ~number)]
    calls = {}
    for time, number in sorted(events):
        if number >= 0:
            calls[number] = legs[number % 2].begin(time)
        else:
            legs[~number % 2].end(time, calls[~number])
    ends = [Endpoint(MAC, "127.0.0.1", port) for port in (40001, 8080, 40002, 9000)]
    both = (legs[0], ends[0], ends[1], "client"), (legs[1], ends[2], ends[3], "client")
    analysis = analyze([capture(tmp_path, *both)])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 60)
    assert not any("proxy" in warning for warning in analysis.quality.warnings)


def test_a_client_of_two_other_hosts_is_no_proxy(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    send_through(front, back, request_id)
    client = [Endpoint(MAC, "10.0.0.1", port) for port in (40001, 40002)]
    servers = [Endpoint("02:00:00:00:00:02", f"10.0.0.{end}", 8080) for end in (2, 3)]
    legs = (front, client[0], servers[0], "client"), (back, client[1], servers[1], "client")
    analysis = analyze([capture(tmp_path, *legs)])
    assert (analysis.hops, analysis.totals.rpcs) == ((), 60)
