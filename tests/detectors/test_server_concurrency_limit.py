"""`server-concurrency-limit`: calls that are answered as by a pool of workers; never a server that is only slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from detecting import found, the_finding
from judging import changed, must, played, told
from msgspec.structs import replace
from process_tables import as_recorded
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import server_concurrency_limit as detector
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scenes_pools import (
    answer,
    call_together,
    occupied,
    paced,
    pooled,
    sent_in_steps,
    stepped,
)
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = [
    "wild/plateau",
    "wild/grpcio-workers",
    "wild/grpcio-blocked-loop",
    "wild/grpc-go-lock",
    "wild/grpc-java-one-thread",
    "wild/tonic-limit",
    "wild/grpc-js-pool-cold",
    "wild/grpcio-workers-held",
    "wild/grpcio-three-workers-held",
    "wild/tonic-rate-limit",
    "wild/grpcio-rate-limit",
]
QUIET_ON = [
    "wild/plateau-none-control",
    "wild/hop-proxy-slow-a",
    "wild/tail-calls",
    "wild/gc-server",
    "wild/nginx-mcs4",
    "wild/grpc-js-blocked-loop",
    "wild/grpc-js-rate-limit",
    "wild/grpc-go-narrow-uplink",
    "wild/grpcio-streams-beside",
    "wild/go-paced-callers",
]


def test_a_pool_of_four_threads() -> None:
    """A server of grpc-python with max_workers=4 and a handler of 20 ms, and 16 callers of grpc-go."""
    analysis = analyze([recorded("wild/plateau.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("info", "medium")
    assert (finding.metrics["limit"], finding.metrics["most_open_calls"]) == (4, 16)
    assert 20 * MS < int(finding.metrics["service_time_p50_ns"]) < 23 * MS
    assert analysis.verdict.finding == detector.ID
    assert next(f for f in analysis.findings if f.id == "server-latency").part_of == detector.ID


def test_a_pool_of_three_threads_on_two_connections() -> None:
    """A server of grpc-python with max_workers=3 and a handler of 30 ms; 12 callers of grpc-python on 2 connections."""
    finding = the_finding(detector, [recorded("wild/grpcio-workers.pcap.zst")])
    assert (finding.metrics["limit"], len(finding.scope.connections)) == (3, 2)
    assert 30 * MS < int(finding.metrics["service_time_p50_ns"]) < 34 * MS


@pytest.mark.parametrize("name", ["wild/grpcio-blocked-loop", "wild/grpc-go-lock"])
def test_one_call_at_a_time_in_any_order(name: str) -> None:
    """An event loop of grpc.aio that handlers block, and a lock in Go: 20 ms each, 12 callers on 4 connections."""
    finding = the_finding(detector, [recorded(f"{name}.pcap.zst")])
    assert (finding.metrics["limit"], finding.metrics["most_open_calls"]) == (1, 12)
    assert 20 * MS < int(finding.metrics["service_time_p50_ns"]) < 22 * MS
    assert "event loop" in finding.verdict


@pytest.mark.parametrize(("queued", "fires"), [(3.1, True), (3.3, False)])
def test_the_first_call_of_a_cold_server(queued: float, fires: bool) -> None:
    """A Java server with one thread: the first call takes 126 ms, others 51 ms, and the median response is 406 ms."""
    finding = found(detector, [recorded("wild/grpc-java-one-thread.pcap.zst")], queued=queued)
    assert (finding and finding.metrics["limit"]) == (1 if fires else None)
    assert not finding or finding.remedies[0].implementation == "grpc-java"


@pytest.mark.parametrize(("sharp", "fires"), [(2.5, True), (2.7, False)])
def test_slow_first_calls_hide_no_pool(sharp: float, fires: bool) -> None:
    """Four calls at once of 20 ms; the first four took 50 ms, as Node compiled the handler."""
    finding = found(detector, [recorded("wild/grpc-js-pool-cold.pcap.zst")], sharp=sharp)
    assert (finding is not None) is fires
    assert finding is None or finding.metrics["limit"] == 4


def test_calls_that_overtake_others_are_no_evidence() -> None:
    """A limit of two in tonic lets the last of eight calls go first, so its place was never freed."""
    finding = the_finding(detector, [recorded("wild/tonic-limit.pcap.zst")])
    assert finding.metrics["limit"] == 2
    assert "-" not in finding.evidence[-1].what.partition(",")[2]


@pytest.mark.parametrize(("even", "fires"), [(0.9, True), (0.99, False)])
def test_one_at_a_time_needs_even_intervals(even: float, fires: bool) -> None:
    """The shortest intervals of `grpc-go-lock` are 20.1 ms, the median 21.3; some calls took less than 3 of them."""
    answer = found(detector, [recorded("wild/grpc-go-lock.pcap.zst")], even=even)
    assert (answer and answer.metrics["limit"]) == (1 if fires else None)


def test_more_rows_do_not_change_it() -> None:
    """A later steady state would fit multiples of the limit as well: only first RPCs count."""
    file = recorded("wild/plateau.pcap.zst")
    (few,) = detector.detect(decode([file], rpc_rows=False), detector.Limits())
    assert few == the_finding(detector, [file])


def test_one_at_a_time_may_be_a_busy_processor(tmp_path: Path) -> None:
    finding = must(detector, played(pooled(16, 1), tmp_path))
    assert (finding.metrics["limit"], finding.confidence) == (1, "low")


@pytest.mark.parametrize(("slowest_link", "fires"), [(80_000, False), (90_000, True)])
def test_a_slow_link_lets_one_call_after_the_other_through(slowest_link: int, fires: bool, tmp_path: Path) -> None:
    """Responses of 208 bytes each 20 ms need 83 kbit/s; on the server's host there is no link."""
    tables = played(pooled(16, 1), tmp_path)
    assert bool(told(detector, tables, slowest_link=slowest_link)) == fires
    near = changed(tables, "connections", near_server_rtt_ns=[200_000])
    assert told(detector, near, slowest_link=slowest_link)


@pytest.mark.parametrize(("share", "fires"), [(0.997, True), (0.998, False)])
def test_most_of_the_time_is_the_server_s(share: float, fires: bool) -> None:
    """The server has 99.76% of the RPC time of `plateau`."""
    assert bool(found(detector, [recorded("wild/plateau.pcap.zst")], of_method=share)) == fires


@pytest.mark.parametrize(
    ("limits", "fires"),
    [
        ({"calls": 16}, True),
        ({"calls": 17}, False),
        ({"shortest_ns": 19 * MS}, True),
        ({"shortest_ns": 21 * MS}, False),
        ({"waited_share": 0.75}, True),
        ({"waited_share": 0.76}, False),
        ({"wait_goes_on": 2.0}, True),
        ({"wait_goes_on": 3.1}, False),
        ({"groups": 1}, True),
        ({"groups": 0}, False),
    ],
)
def test_each_limit(limits: dict[str, float], fires: bool) -> None:
    assert bool(found(detector, [synthetic("concurrency-limit-fires").file], **limits)) == fires


@pytest.mark.parametrize(("service_ns", "fires"), [(2 * MS, True), (MS // 2, False)])
def test_short_calls_are_not_judged(tmp_path: Path, service_ns: int, fires: bool) -> None:
    assert bool(told(detector, played(pooled(16, 4, service_ns), tmp_path))) == fires


@pytest.mark.parametrize(("apart_ms", "service_ms"), [(4, 60), (5, 40), (2, 60), (10, 100)])
def test_even_intervals_need_no_limit(tmp_path: Path, apart_ms: int, service_ms: int) -> None:
    assert told(detector, played(paced(32, apart_ms * MS, service_ms * MS), tmp_path)) is None


@pytest.mark.parametrize(("allowed", "fires"), [(16, False), (17, True)])
def test_a_stream_limit_that_is_reached_is_another_finding(allowed: int, fires: bool) -> None:
    tables = decode([synthetic("concurrency-limit-fires").file])
    tables = changed(tables, "connections", peer_max_concurrent_streams=[allowed])
    assert bool(told(detector, tables)) == fires


def test_recorded_threads_say_what_the_calls_wait_for(tmp_path: Path) -> None:
    plain = played(pooled(16, 1), tmp_path)
    found = must(detector, as_recorded(plain, {"lock": 0.8, "running": 0.2}))
    assert found.confidence == "medium"
    assert found.verdict.endswith("its threads waited for a lock or a queue in 80% of that time: profile its waits.")
    assert must(detector, as_recorded(plain, {"lock": 0.4, "io": 0.4, "timer": 0.2})).confidence == "low"


def test_a_server_without_processors_has_no_pool() -> None:
    plain = decode([recorded("wild/plateau.pcap.zst")])
    (answer,) = detector.detect(as_recorded(plain, {"runnable": 0.6, "running": 0.4}), detector.Limits())
    assert isinstance(answer, Skipped)
    assert "waited for a processor in 60% of its time" in answer.reason
    assert must(detector, as_recorded(plain, {"runnable": 0.4, "running": 0.6}))


@pytest.mark.parametrize(
    ("name", "agent", "first"),
    [
        ("plateau", None, "grpc.server(ThreadPoolExecutor(max_workers=...)) in Python"),
        ("tonic-limit", "tonic/0.14", "Server::builder().concurrency_limit_per_connection(n)"),
        ("plateau", "grpc-java-netty/1.68", "ServerBuilder.executor(...)"),
        ("plateau", "grpc-go/1.85", "a sync.Mutex, a semaphore or a pool of connections (SetMaxOpenConns)"),
        ("plateau", "haproxy", "maxconn of the server line"),
        ("plateau", "somebody/1.0", "the server's pool of threads, its executor or its limit on calls"),
        ("grpcio-blocked-loop", None, "asyncio.to_thread(...) around code that blocks, in handlers of grpc.aio"),
        ("grpcio-blocked-loop", "tonic/0.14", "tokio::task::spawn_blocking for code that blocks"),
        ("grpcio-blocked-loop", "nginx/1.27", "an event loop that handlers block, or a pool of one thread"),
    ],
)
def test_the_limits_are_those_of_the_software_seen(name: str, agent: str | None, first: str) -> None:
    tables = decode([recorded(f"wild/{name}.pcap.zst")])
    if agent:
        tables = replace(tables, agents=(*tables.agents, agent))
        named = np.full(len(tables.connections.rpcs), len(tables.agents) - 1)
        tables = changed(tables, "connections", server_agent=named)
    remedies = must(detector, tables).remedies
    assert remedies[0].knob == first
    kinds = {remedy.implementation for remedy in remedies}
    assert len(kinds - {"application"}) <= 1


def in_turn(services_ms: Sequence[int]) -> Conversation:
    """Answer calls that were sent at once one after the other, each after so much work."""
    conv, sent = call_together(len(services_ms))
    for call, service_ms in zip(sent, services_ms, strict=True):
        conv.advance(service_ms * MS)
        answer(call)
    conv.settle()
    return conv


def test_calls_of_another_method_hold_all_workers() -> None:
    """Four streams of `Watch` and four threads: five calls of `Check` wait, and the two others take 5 ms."""
    finding = the_finding(detector, [recorded("wild/grpcio-workers-held.pcap.zst")])
    assert (finding.metrics["limit"], finding.metrics["calls_that_waited"]) == (4, 5)
    assert int(finding.metrics["service_time_p50_ns"]) < 5 * MS
    assert (finding.severity, finding.confidence) == ("info", "medium")
    assert "Watch" in finding.verdict and "no thread" in finding.remedies[0].knob


def test_calls_of_another_connection_hold_all_workers() -> None:
    finding = the_finding(detector, [recorded("wild/grpcio-three-workers-held.pcap.zst")])
    assert (finding.metrics["limit"], finding.metrics["calls_that_waited"]) == (3, 6)
    assert len(finding.scope.connections) == 2


@pytest.mark.parametrize(
    ("places", "waiting", "deadline", "fires"),
    [
        (2, 3, True, True),
        (1, 3, True, False),
        (2, 2, True, False),
        (3, 3, False, True),
        (2, 2, False, False),
    ],
)
def test_few_calls_prove_no_occupied_server(
    tmp_path: Path, places: int, waiting: int, deadline: bool, fires: bool
) -> None:
    """Calls reach their deadline, or are answered 2 ms after the end of a stream, one for each."""
    assert (told(detector, played(occupied(places, waiting, deadline=deadline), tmp_path)) is not None) == fires


def test_a_call_that_was_answered_meanwhile_disproves_an_occupied_server(tmp_path: Path) -> None:
    assert told(detector, played(occupied(answered=True), tmp_path)) is None


@pytest.mark.parametrize("lacking", ["before", "after"])
def test_an_occupied_server_needs_quick_calls_before_and_after(tmp_path: Path, lacking: str) -> None:
    tables = played(occupied(), tmp_path)
    place = -1 if lacking == "after" else 0
    rows = np.flatnonzero(tables.rpcs.method == tables.rpcs.method[0])
    slow = tables.rpcs.duration_ns.copy()
    slow[rows[place]] = 500 * MS
    assert told(detector, changed(tables, "rpcs", duration_ns=slow)) is None


def test_calls_that_were_answered_out_of_sight_may_disprove_it(tmp_path: Path) -> None:
    """Only some RPCs have rows: `since_answer_ns` says whether another one of the method was answered meanwhile."""
    tables = played(occupied(), tmp_path)
    assert told(detector, changed(tables, "failures", since_answer_ns=np.full(4, MS))) is None
    others = np.full(len(tables.connection_methods.method), 7)
    more = changed(tables, "connections", rpcs=tables.connections.rpcs + 1)
    assert told(detector, more)
    assert told(detector, changed(more, "connection_methods", method=others)) is None


def test_time_that_is_not_the_servers_proves_no_occupied_server(tmp_path: Path) -> None:
    tables = played(occupied(), tmp_path)
    assert told(detector, replace(tables, failure_budgets=tables.failure_budgets // 2)) is None


@pytest.mark.parametrize(
    ("name", "calls", "steps", "every_ms"), [("tonic-rate-limit", 50, 3, 1001), ("grpcio-rate-limit", 20, 9, 406)]
)
def test_a_limit_on_the_rate(name: str, calls: int, steps: int, every_ms: int) -> None:
    """50 calls per second, and 20 calls per 400 ms on two connections, of which none failed."""
    finding = the_finding(detector, [recorded(f"wild/{name}.pcap.zst")])
    assert (finding.metrics["calls_per_step"], finding.metrics["steps"]) == (calls, steps)
    assert finding.metrics["step_ns"] == pytest.approx(every_ms * MS, rel=0.002)
    assert "or a queue drained in batches" in finding.verdict
    assert len(finding.evidence) == 3


@pytest.mark.parametrize(
    ("conversation", "fires"),
    [
        (stepped(), True),
        (stepped(step_calls=4, every_ns=210 * MS, apart_ns=30 * MS), False),  # so few are equal by chance
        (stepped(every_ns=190 * MS), False),  # a CPU quota looks alike
        (stepped(calls=30), False),  # two steps have one interval
        (stepped(apart_ns=30 * MS), False),  # each step answers all that wait
        (stepped(apart_ns=2 * MS), False),  # sent at once, as by a client that sets the pace
        (sent_in_steps(), False),
        (sent_in_steps(4, service_ns=1350 * MS), False),
    ],
)
def test_steps_of_time(tmp_path: Path, conversation: Conversation, fires: bool) -> None:
    assert (told(detector, played(conversation, tmp_path)) is not None) == fires


def test_uneven_or_unequal_steps_are_no_pace(tmp_path: Path) -> None:
    tables = played(stepped(), tmp_path)
    stalls = tables.stalls
    shift = np.arange(len(stalls.waiting)) ** 2 * 40 * MS
    for lacking in (
        changed(tables, "stalls", start_time_ns=stalls.start_time_ns + shift),
        changed(tables, "stalls", unanswered=stalls.unanswered + np.arange(len(stalls.waiting)) % 2 * 4),
        changed(tables, "stalls", answers_ns=np.full(len(stalls.waiting), 61 * MS)),
    ):
        assert told(detector, lacking) is None


def edges(folder: Path) -> Iterator[Tables]:
    """Short and few calls, and one at a time: through a link, near the server, and nearly so."""
    yield played(pooled(16, 4, MS // 2), folder)
    yield played(pooled(12, 4), folder)
    for service_ns in (10 * MS, 20 * MS):
        for near_ns in (100_000, 300_000):
            one = played(pooled(16, 1, service_ns), folder)
            yield changed(one, "connections", near_server_rtt_ns=[near_ns])
    for services_ms in ([20] * 6 + [10] * 2 + [20] * 8, [20, 16, 30, 20] * 4):  # not even, and too far apart
        yield played(in_turn(services_ms), folder)
    tables = decode([synthetic("concurrency-limit-fires").file])
    (method,) = tables.methods
    busy = (2 * method.budget[CAUSES.index("server")] * (cause == "client") for cause in CAUSES)
    budget = tuple(own + other for own, other in zip(method.budget, busy, strict=True))
    yield replace(tables, methods=(replace(method, budget=budget),))
