"""`server-latency`: handlers that are slow alike, and long tails; never the network, and never a fast server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import changed, must, played, skipped, tables_of_scene, told
from msgspec.structs import replace
from process_tables import as_recorded
from stalls import written
from support import recorded, recording, synthetic

from grpcdiag.analyzer.analysis import analyze, of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import server_latency
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.analyzer.tables import ConnectionMethods, Tables
from grpcdiag.fixtures.synthetic.packet import Endpoint
from grpcdiag.fixtures.synthetic.scene import side_by_side
from grpcdiag.fixtures.synthetic.scenes_failures import answering
from grpcdiag.fixtures.synthetic.wire import SERVER, Link
from grpcdiag.fixtures.synthetic.words import MS, S

FIRES_ON = [
    "max-concurrent-streams-control",
    "wild/grpclib-tail",
    "wild/lb-slow-backend",
    "wild/otlp-slow",
    "wild/tail-calls",
]
QUIET_ON = ["impl-java", "rtt205-go-14000", "rpc-errors", "wild/cpu-client", "wild/gc-client", "wild/watch-below-limit"]

SLOW = ("max-concurrent-streams", "max-concurrent-streams-control")


@pytest.mark.parametrize("name", SLOW)
def test_a_handler_of_20_ms_is_for_information(name: str) -> None:
    capture = recording(name)
    found = must(server_latency, decode(capture.files))
    assert (found.severity, found.lost_ns, found.metrics["long_tail"]) == ("info", None, 0)
    assert found.metrics["server_p50_ns"] == pytest.approx(20.9e6, rel=0.05)
    assert found.metrics["answers"] == 1000


@pytest.mark.parametrize(("name", "p99_ms", "late"), [("grpclib-tail", 600, 6), ("tail-calls", 310, 17)])
def test_a_few_late_calls_are_a_warning_with_the_time_they_lost(name: str, p99_ms: int, late: int) -> None:
    """The handlers of so many calls took 600 ms instead of 4, and 310 ms instead of 10."""
    files = [recorded(f"wild/{name}.pcap.zst")]
    found = must(server_latency, decode(files))
    assert (found.severity, found.metrics["long_tail"]) == ("warning", 1)
    assert found.metrics["server_p99_ns"] == pytest.approx(p99_ms * MS, rel=0.05)
    assert found.lost_ns == pytest.approx(late * (600 - 4 if late == 6 else 300) * MS, rel=0.15)


def test_one_slow_server_of_three_is_named() -> None:
    """It takes 150 ms longer for each call; the two others are no cause."""
    files = [recorded("wild/lb-slow-backend.pcap.zst")]
    found = must(server_latency, decode(files))
    assert (found.severity, found.metrics["slow_servers"], found.metrics["long_tail"]) == ("warning", 1, 0)
    assert "server 10.77.116.3 takes 167 ms per RPC, the 2 other servers at most 17.3 ms" in found.verdict
    assert found.lost_ns == pytest.approx(146 * 150 * MS, rel=0.05)


def test_a_server_that_is_slow_alike_is_named_without_a_warning() -> None:
    analysis = analyze([recorded("wild/otlp-slow.pcap.zst")])
    assert analysis.verdict.finding == "server-latency"
    assert analysis.verdict.text.startswith("89% of the RPC time is in server 10.91.4.2, which took 403 ms (median)")
    assert "Less important: slow-start-after-idle costs 3%." in analysis.verdict.text


@pytest.mark.parametrize(
    ("server", "todo"),
    [
        ("nginx/1.22.1", "nginx passes calls on: capture behind it, too."),
        ("somebody/1.0", "Trace calls inside it: packets do not show its handlers, queues and backends."),
    ],
)
def test_a_proxy_is_not_taken_for_the_handler(server: str, todo: str) -> None:
    tables = decode([recorded("wild/otlp-slow.pcap.zst")])
    named = replace(tables, agents=(*tables.agents, server))
    found = must(server_latency, changed(named, "connections", server_agent=[len(tables.agents)]))
    assert found.verdict.endswith(todo)
    assert ("handler" in found.remedies[0].knob) == (server != "nginx/1.22.1")


def test_synthetic_tail() -> None:
    capture = synthetic("failures-slow-tail")
    found = must(server_latency, decode([capture.file]))
    assert (found.severity, found.confidence, found.metrics["long_tail"]) == ("warning", "medium", 1)
    assert found.metrics["server_p50_ns"] == pytest.approx(2 * MS, rel=0.05)
    assert found.metrics["server_p99_ns"] == pytest.approx(300 * MS, rel=0.02)
    ends = found.evidence[1::2]
    assert all("301 ms after the RPC began" in item.what for item in ends)


def test_a_tail_that_the_networks_queue_may_explain_is_not_judged() -> None:
    tables = decode([synthetic("failures-slow-tail").file])
    (method,) = tables.methods
    figures = method.turnaround or {}
    explains = int(0.01 * figures["count"] * (figures["p99"] - figures["p50"]))
    for queued, reasons in ((explains // 2, 0), (explains + 1, 1)):
        budget = tuple(
            queued if cause == "network_queue" else ns for cause, ns in zip(CAUSES, method.budget, strict=True)
        )
        changed_tables = replace(tables, methods=(replace(method, budget=budget),))
        answers = list(server_latency.detect(changed_tables, server_latency.Limits(of_method=0.0)))
        assert sum("network's queue" in getattr(answer, "reason", "") for answer in answers) == reasons


@pytest.mark.parametrize(
    ("delays", "severity"),
    [
        ([9 * MS] * 20, None),
        ([11 * MS] * 20, "info"),
        ([11 * MS] * 5, "info"),
        ([11 * MS] * 4, None),
        ([2 * MS] * 97 + [45 * MS] * 3, None),
        ([2 * MS] * 97 + [55 * MS] * 3, "warning"),
        ([2 * MS] * 96 + [55 * MS] * 3, None),
        ([12 * MS] * 97 + [55 * MS] * 3, "info"),
        ([10 * MS + 500_000] * 97 + [55 * MS] * 3, "warning"),
    ],
    ids=[
        "short",
        "long",
        "just-enough",
        "few",
        "short-tail",
        "long-tail",
        "few-for-a-tail",
        "less-than-five-medians",
        "more",
    ],
)
def test_limits(tmp_path: Path, delays: list[int], severity: str | None) -> None:
    found = told(server_latency, played(answering(delays), tmp_path))
    assert (found.severity if found else None) == severity


def tail() -> Tables:
    return tables_of_scene("failures-slow-tail")


def test_the_round_trip_must_be_small_against_it() -> None:
    """Turnarounds of 300 ms are two round trips of 150 ms, and less than two of 151 ms."""
    p99 = must(server_latency, tail()).metrics["server_p99_ns"]
    assert isinstance(p99, int)
    assert told(server_latency, changed(tail(), "connections", handshake_rtt_ns=[p99 // 2])) is not None
    assert told(server_latency, changed(tail(), "connections", handshake_rtt_ns=[p99 // 2 + MS])) is None


def test_the_way_to_the_server_is_taken_off() -> None:
    near = must(server_latency, changed(tail(), "connections", near_server_rtt_ns=[100 * MS]))
    whole = must(server_latency, changed(tail(), "connections", near_server_rtt_ns=[0]))
    assert int(whole.metrics["server_p99_ns"]) - int(near.metrics["server_p99_ns"]) == 100 * MS


def test_a_long_recovery_leaves_a_tail_open() -> None:
    """The tail is 298 ms beyond the median of 2 ms: a recovery of half of that may be the cause."""
    beyond = int(must(server_latency, tail()).metrics["server_p99_ns"]) - 2 * MS
    lost = changed(tail(), "connections", retransmitted_packets=[1], recovery_ns=[beyond // 2 + MS])
    assert "lost or late" in skipped(server_latency, lost)
    assert told(server_latency, changed(lost, "connections", recovery_ns=[beyond // 2 - MS])) is not None
    assert "lost or late" in skipped(server_latency, changed(lost, "connections", needless_retransmissions=[1]))


def test_a_tail_counts_against_its_own_median() -> None:
    """Three of a hundred calls are late by 298 ms: that is the time lost, whatever else the capture has."""
    found = must(server_latency, tail())
    assert found.lost_ns == pytest.approx(3 * 298 * MS, rel=0.05)
    (method,) = tail().methods
    stream = replace(method, number=9, budget=tuple(100 * ns for ns in method.budget), turnaround=None)
    among = must(server_latency, replace(tail(), methods=(method, stream)))
    assert (among.severity, among.lost_ns) == ("warning", found.lost_ns)


def test_a_tail_that_others_cause_is_not_the_servers() -> None:
    """The excess over the median is charged to the network's queue, or the RPCs' own tail is mostly something else."""
    (method,) = tail().methods
    budget = list(method.budget)
    server, other = CAUSES.index("server"), CAUSES.index("loss_recovery")
    for part, fires in ((0.45, True), (0.55, False)):
        moved = int(part * 3 * 298 * MS)
        budget[server], budget[other] = method.budget[server] - moved, moved
        tables = replace(tail(), methods=(replace(method, budget=tuple(budget)),))
        assert (told(server_latency, tables) is not None) is fires
    assert method.latency is not None
    p99 = int(must(server_latency, tail()).metrics["server_p99_ns"])
    for latency, fires in ((2 * p99, True), (2 * p99 + 2, False)):
        slow = replace(method, latency={**method.latency, "p99": latency})
        assert (told(server_latency, replace(tail(), methods=(slow,))) is not None) is fires


def test_without_a_round_trip_it_is_not_known() -> None:
    unknown = changed(tail(), "connections", handshake_rtt_ns=[-1], min_rtt_ns=[-1])
    assert "no round-trip time" in skipped(server_latency, unknown)


def test_a_method_whose_time_is_not_the_servers_is_not_told(tmp_path: Path) -> None:
    slow = played(answering([11 * MS] * 20), tmp_path)
    (method,) = slow.methods
    budget = [0] * len(CAUSES)
    server = budget[CAUSES.index("server")] = method.budget[CAUSES.index("server")]
    for other, fires in ((server - MS, True), (server + MS, False)):
        budget[CAUSES.index("stream_window")] = other
        tables = replace(slow, methods=(replace(method, budget=tuple(budget)),))
        assert (told(server_latency, tables) is not None) is fires


def test_a_stream_may_be_silent() -> None:
    """The same turnaround of a streaming method is no long tail."""
    (method,) = tail().methods
    assert told(server_latency, replace(tail(), methods=(replace(method, messages=220),))) is None
    assert told(server_latency, replace(tail(), methods=(replace(method, messages=210),))) is not None


def test_the_verdict_has_the_share_of_the_method_that_it_names(tmp_path: Path) -> None:
    """Two methods are slow alike, one three times as long as the other."""
    tables = played(answering([11 * MS] * 20), tmp_path)
    (method,) = tables.methods
    assert method.turnaround
    budget, times = tuple(3 * ns for ns in method.budget), {**method.turnaround, "mean": 3 * method.turnaround["mean"]}
    longer = replace(method, number=1, name="/demo.Other/Call", budget=budget, turnaround=times)
    used = ConnectionMethods(np.zeros(2, dtype=np.uint32), np.arange(2, dtype=np.uint32))
    both = changed(replace(tables, connection_methods=used), "rpcs", method=np.arange(20) % 2)
    whole = 4 * sum(method.budget)
    found = must(server_latency, replace(both, methods=(method, longer)))
    server = method.budget[CAUSES.index("server")]
    assert found.metrics["server_time_share"] == pytest.approx(4 * server / whole)
    assert found.metrics["slow_methods"] == 2
    assert found.verdict.startswith(f"{3 * server / whole:.0%} of the RPC time is in ")
    unknown = tuple(replace(each, name=None) for each in (method, longer))
    found = must(server_latency, replace(both, methods=unknown))
    assert found.verdict.startswith(f"{4 * server / whole:.0%} of the RPC time is in ")
    assert "to respond to a method whose name is not known" in found.verdict
    elsewhere = ConnectionMethods(np.arange(2, dtype=np.uint32), np.arange(2, dtype=np.uint32))
    c = tables.connections
    twice = type(c)(*[np.append(column, column) for column in (getattr(c, name) for name in c.__struct_fields__)])
    twice.server_ip[1] = len(tables.addresses)
    apart = replace(
        both,
        methods=unknown,
        connection_methods=elsewhere,
        connections=twice,
        addresses=(*tables.addresses, "10.0.0.9"),
    )
    assert must(server_latency, apart).verdict.startswith(f"{3 * server / whole:.0%} of the RPC time is in ")


def test_several_servers_of_a_method_are_counted() -> None:
    """All three servers of the recording are slow alike when the threshold is low."""
    files = [recorded("wild/lb-slow-backend.pcap.zst")]
    found = must(server_latency, decode(files), long_ns=MS, tail_ns=10_000 * MS, round_trips=0.0, of_server=10_000)
    assert (found.severity, found.metrics["slow_servers"]) == ("info", 0)
    assert "is in 3 of 3 servers" in found.verdict
    assert found.scope.connections == (0, 1, 2)  # the longest calls, which are shown, are all of one


def test_recorded_threads_say_what_a_tail_waited_for() -> None:
    """Of the usual calls they say something else: only the longest count."""
    plain = decode([recorded("wild/tail-calls.pcap.zst")])
    before = must(server_latency, plain)
    found = must(server_latency, as_recorded(plain, {"running": 1.0}, longest={"lock": 0.9, "running": 0.1}))
    assert (before.confidence, found.confidence) == ("medium", "high")
    assert found.verdict.endswith("its threads waited for a lock or a queue in 90% of that time: profile its waits.")
    assert "The scheduler recorded its threads. Of the " in found.explanation
    assert int(found.metrics["thread_lock_ns"]) == pytest.approx(9 * int(found.metrics["thread_running_ns"]), rel=0.01)
    assert (found.lost_ns, found.evidence) == (before.lost_ns, before.evidence)


@pytest.mark.parametrize(
    "threads",
    [
        {"known": False},
        {"shares": {"unknown": 0.11, "lock": 0.89}},
        {"shares": {"lock": 0.4, "io": 0.3, "running": 0.3}},
    ],
)
def test_threads_that_tell_little_change_no_advice(threads: dict[str, Any]) -> None:
    plain = decode([recorded("wild/tail-calls.pcap.zst")])
    found = must(server_latency, as_recorded(plain, **{"shares": {"lock": 1.0}, **threads}))
    assert (found.confidence, found.verdict) == ("medium", must(server_latency, plain).verdict)


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({"runnable": 0.3, "other_processes": 0.3, "running": 0.4}, "waited for a processor in 60% of its time"),
        ({"throttled": 0.5, "running": 0.5}, "were stopped by a CPU quota in 50% of its time"),
        ({"runnable": 0.49, "running": 0.51}, None),
    ],
)
def test_a_server_that_lacked_processors_is_not_slow(shares: dict[str, float], reason: str | None) -> None:
    """`processor-saturated` and `cpu-quota` name it then."""
    some = as_recorded(decode([recorded("wild/tail-calls.pcap.zst")]), shares)
    (said,) = server_latency.detect(some, server_latency.Limits())
    told = said.reason if isinstance(said, Skipped) else None
    assert told == (reason and f"the server's threads {reason}, as the scheduler recorded it")
    names = {"processor-saturated", "cpu-quota"} & {one.id for one in of_tables(some).findings}
    assert bool(names) == (reason is not None)


@pytest.mark.parametrize(("limits", "fires"), [({}, True), ({"of_server": 71}, False), ({"long_ns": 33 * MS}, False)])
def test_one_slow_server_of_three_at_one_address(limits: dict[str, Any], fires: bool) -> None:
    """Its handler takes 30 ms and theirs 2 ms; their ports tell them apart."""
    tables = decode([recorded("wild/grpcio-servers-one-slow.pcap.zst")])
    found = told(server_latency, tables, **limits)
    assert (found is not None and found.metrics["slow_servers"] == 1) == fires
    if fires and found:
        assert found.verdict.startswith("server 127.0.0.1:6022 takes 31.6 ms per RPC, the 2 other servers at most 3.65")
        assert (found.severity, len(found.scope.connections)) == ("warning", 1)


def test_servers_that_are_alike_are_not_compared() -> None:
    found = must(server_latency, decode([recorded("wild/grpcio-servers-alike.pcap.zst")]))
    assert (found.severity, found.metrics["slow_servers"]) == ("info", 0)
    assert "3 of 3 servers" in found.title


@pytest.mark.parametrize(("usual_ms", "named"), [(40, 0), (43, 1)])
def test_a_server_must_be_twice_as_slow_in_its_median_call(tmp_path: Path, usual_ms: int, named: int) -> None:
    """Four calls to one of two servers take a second; the median to the other takes 21 ms, a round trip included."""
    slow, other = answering([usual_ms * MS] * 21 + [S] * 4), answering([20 * MS] * 25)
    links = [Link(connection=number, server=Endpoint(SERVER.mac, SERVER.ip, 50051 + number)) for number in range(2)]
    found = must(server_latency, decode([written(side_by_side([slow, other], links), tmp_path)]))
    assert found.metrics["slow_servers"] == named
    assert ("the 1 other server at most 20.0 ms" in found.verdict) == bool(named)


def edges(folder: Path) -> Iterator[Tables]:
    """Few responses, a large round trip, a stream, callers who wait for something else, and methods that do."""
    yield played(answering([11 * MS] * 4), folder)
    (method,) = tail().methods
    p99 = int(must(server_latency, tail()).metrics["server_p99_ns"])
    yield changed(tail(), "connections", handshake_rtt_ns=[p99 // 2 + MS])
    yield replace(tail(), methods=(replace(method, messages=220),))
    yield replace(tail(), methods=(replace(method, latency={**(method.latency or {}), "p99": 2 * p99 + 2}),))
    slow = played(answering([11 * MS] * 20), folder)
    (method,) = slow.methods
    busy = [2 * method.budget[CAUSES.index("server")] * (cause == "stream_window") for cause in CAUSES]
    budget = tuple(own + other for own, other in zip(method.budget, busy, strict=True))
    yield replace(slow, methods=(replace(method, budget=budget),))
