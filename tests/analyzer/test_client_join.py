"""Calls of real clients are joined with their own RPCs, and their times are what other sources say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from measured import find_capture, read_data, read_join, read_truth
from msgspec.structs import replace

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.measured.assign import Spans, assign, find_certain
from grpcdiag.analyzer.measured.figures import describe_client
from grpcdiag.analyzer.measured.join import AMBIGUOUS, BY_ORDER, EXACT, Joined, join
from grpcdiag.analyzer.measured.lead import lead_verdict
from grpcdiag.analyzer.measured.read import read_record
from grpcdiag.analyzer.measured.record import Call, Record
from grpcdiag.analyzer.model.analysis import Verdict
from grpcdiag.analyzer.model.client import ClientFacts
from grpcdiag.analyzer.tables import NO_METHOD, NOT_SEEN, Tables

MS = 1_000_000
GHZ = ["ghz-healthy", "ghz-stream-limit", "ghz-syn-lost"]
BY_IDS = [
    ("otel-busy-client", "otel-busy-client.otlp.jsonl.gz"),
    ("otel-busy-client", "otel-busy-client.base64ids.otlp.jsonl.gz"),
    ("otel-busy-client", "otel-busy-client.otlp.pb.gz"),
    ("otel-busy-client", "otel-busy-client.bare.otlp.pb.gz"),
    ("otel-busy-client", "otel-busy-client.jaeger.json.gz"),
    ("otel-retries", "otel-retries.otlp.jsonl.gz"),
    ("otel-retries", "otel-retries.otlp.pb"),
    ("otel-proxy", "otel-proxy.otlp.pb.gz"),
    ("ghz-healthy", "ghz-healthy.csv.gz"),
]
EVERY = [*BY_IDS, *((name, f"{name}.ghz.json.gz") for name in GHZ)]


@cache
def tables(name: str) -> Tables:
    return decode([find_capture(name)])


def read(name: str) -> Record:
    if ".pb" in name:
        pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    return read_record(read_data(name))


def describe(capture: str, *records: Record) -> ClientFacts:
    return describe_client([("record", record) for record in records], tables(capture))


def judge_pairs(capture: str, found: Joined) -> dict[int, list[bool]]:
    """For each way of joining, whether each RPC's call is the one that the truth names."""
    truth, known = read_join(capture), tables(capture)
    right: dict[int, list[bool]] = {EXACT: [], BY_ORDER: [], AMBIGUOUS: []}
    for number, rows in enumerate(found.rows):
        call = found.calls[number]
        for row in rows:
            port = int(known.connections.client_port[known.rpcs.connection[row]])
            start, duration = truth[port, int(known.rpcs.stream[row])]
            near = abs(call.start_ns - start) < 2_000 and abs(call.end_ns - call.start_ns - duration) < 2_000
            right[int(found.how[number])].append(near)
    return right


@pytest.mark.parametrize(("capture", "name"), BY_IDS)
def test_ids_join_each_rpc_with_its_call(capture: str, name: str) -> None:
    right = judge_pairs(capture, join([read(name)], tables(capture)))
    assert len(right[EXACT]) == read_truth(capture)["wire"]["calls"] and all(right[EXACT])
    assert not right[BY_ORDER] and not right[AMBIGUOUS]


@pytest.mark.parametrize("capture", GHZ)
def test_without_ids_what_is_called_certain_is_right(capture: str) -> None:
    right = judge_pairs(capture, join([read(f"{capture}.ghz.json.gz")], tables(capture)))
    assert sum(map(len, right.values())) == read_truth(capture)["wire"]["calls"]
    assert len(right[BY_ORDER]) >= 0.2 * read_truth(capture)["wire"]["calls"] and all(right[BY_ORDER])
    assert not all(right[AMBIGUOUS])  # otherwise the word would say too little


@pytest.mark.parametrize(("capture", "name"), EVERY)
def test_the_times_are_those_of_the_truth(capture: str, name: str) -> None:
    truth, found = read_truth(capture), describe(capture, read(name))
    assert found.calls == found.on_wire == truth["client"]["calls"]
    assert (found.never_on_wire, found.outside_capture, found.rpcs_without_call) == (0, 0, 0)
    assert found.attempts == truth["wire"]["calls"]
    assert found.before_wire_ns and found.call_ns
    for ns, ms in (
        (found.before_wire_ns.p50, truth["before_wire_ms"]["p50"]),
        (found.before_wire_ns.p99, truth["before_wire_ms"]["p99"]),
        (found.call_ns.p50, truth["client"]["p50_ms"]),
        (found.call_ns.p99, truth["client"]["p99_ms"]),
    ):
        assert abs(ns / MS - ms) <= max(1.5, 0.1 * ms)
    assert found.clock_offset_ns and found.clock_offset_ns.least <= 0 <= found.clock_offset_ns.most


def test_the_verdict_begins_with_the_client_and_stays_as_severe() -> None:
    client = describe("ghz-stream-limit", read("ghz-stream-limit.ghz.json.gz"))
    analysis = analyze([find_capture("ghz-stream-limit")])
    found = lead_verdict(replace(analysis, verdict=Verdict("A proxy held calls.", None, "warning")), client)
    assert found.text.startswith("Of ") and found.text.endswith(" A proxy held calls.")
    assert found.severity == "warning"


@pytest.mark.parametrize(("capture", "name"), [one for one in EVERY if one[0] != "otel-retries"])
def test_the_budget_adds_up_to_the_calls(capture: str, name: str) -> None:
    record = read(name)
    found = describe(capture, record)
    assert sum(found.budget.values()) == pytest.approx(
        sum(call.end_ns - call.start_ns for call in record.calls), abs=3_000 * found.calls
    )


def test_attempts_under_one_span_are_one_call() -> None:
    found = describe("otel-retries", read("otel-retries.otlp.jsonl.gz"))
    assert (found.calls, found.attempts, found.joined.exact) == (100, 190, 100)
    assert found.between_attempts_ns and found.between_attempts_ns.max > 300 * MS
    assert found.on_wire_ns and found.on_wire_ns.max < 4 * 24 * MS
    assert max(found.budget, key=lambda cause: found.budget[cause]) == "client_backoff"


def test_attempts_with_spans_of_their_own_are_one_call() -> None:
    """As instrumentation that sees attempts writes them: the capture's retries tell which belong together."""
    known = tables("otel-retries")
    whole = join([read("otel-retries.otlp.jsonl.gz")], known)
    span = known.rpcs.span_id.copy()
    span[:] = np.arange(1, len(span) + 1)
    attempts = replace(known, rpcs=replace(known.rpcs, span_id=span))
    calls = [
        Call(
            int(whole.wire.start[row]) - 1_000,
            int(whole.wire.end[row]) + 1_000,
            "/rw.v1.Svc/Do",
            trace=call.trace,
            span=row + 1,
        )
        for call, rows in zip(whole.calls, whole.rows, strict=True)
        for row in rows
    ]
    found = join([Record("otlp-json", calls)], attempts)
    assert sorted(map(len, found.rows)) == sorted(map(len, whole.rows))


@pytest.mark.parametrize("capture", GHZ)
@pytest.mark.parametrize("shift", [-3_600_000 * MS, -5 * MS, 5 * MS, 3_000 * MS])
def test_a_clock_that_is_apart_is_bounded_and_taken_out(capture: str, shift: int) -> None:
    record = read(f"{capture}.ghz.json.gz")
    usual = describe(capture, record)
    for call in record.calls:
        call.start_ns, call.end_ns = call.start_ns + shift, call.end_ns + shift
    found = describe(capture, record)
    assert found.on_wire == usual.on_wire == found.calls
    assert found.clock_offset_ns and found.clock_offset_ns.least <= -shift <= found.clock_offset_ns.most
    assert found.before_wire_ns and usual.before_wire_ns
    assert abs(found.before_wire_ns.p50 - usual.before_wire_ns.p50) < MS


def test_local_times_without_a_zone_are_moved_by_quarters_of_an_hour() -> None:
    record = read("ghz-stream-limit.ghz.json.gz")
    record.has_zone = False
    for call in record.calls:
        call.start_ns, call.end_ns = call.start_ns + 19_800 * 10**9, call.end_ns + 19_800 * 10**9
    found = describe("ghz-stream-limit", record)
    assert found.on_wire == 640
    assert found.clock_offset_ns and found.clock_offset_ns.least < -19_800 * 10**9 < found.clock_offset_ns.most


@pytest.mark.parametrize(
    ("capture", "name"),
    [("ghz-healthy", "ghz-stream-limit.ghz.json.gz"), ("otel-busy-client", "otel-retries.otlp.jsonl.gz")],
)
def test_a_record_of_another_run_joins_nothing_and_accuses_nobody(capture: str, name: str) -> None:
    found = describe(capture, read(name))
    assert (found.on_wire, found.never_on_wire, found.outside_capture) == (0, 0, found.calls)
    assert (found.budget, found.queues, found.clock_offset_ns) == ({}, (), None)


def test_the_stream_limit_has_its_true_cost() -> None:
    found = describe("ghz-stream-limit", read("ghz-stream-limit.ghz.json.gz"))
    first = found.queues[0]
    assert (first.reason, first.streams, first.connection) == ("max_concurrent_streams", 4, 0)
    assert first.calls > 500 and first.waiting_ns > 0.9 * found.budget["client_queue"]


def test_the_calls_that_waited_for_the_connection_are_counted() -> None:
    found = describe("ghz-syn-lost", read("ghz-syn-lost.ghz.json.gz"))
    assert [(one.reason, one.calls) for one in found.queues] == [("connection_setup", 16)]
    assert 1_030 * MS < found.queues[0].longest_ns < 1_050 * MS


def change(record: Record, how: Callable[[int, Call], None]) -> Record:
    for number, call in enumerate(record.calls):
        how(number, call)
    return record


def test_calls_that_the_client_ended_itself_never_reached_the_wire() -> None:
    """Calls beside those of the capture, with statuses that only a client makes, inside the capture's time."""
    record = read("otel-busy-client.otlp.jsonl.gz")
    begin, end = min(call.start_ns for call in record.calls), max(call.end_ns for call in record.calls)
    middle = (begin + end) // 2
    extra = [("DEADLINE_EXCEEDED", 5), ("UNAVAILABLE", 2), ("OK", 3), ("NOT_FOUND", 1)]
    record.calls += [
        Call(middle + number, middle + number + 50 * MS, "/rw.v1.Svc/Do", status, trace=number + 1, span=number + 1)
        for number, status in enumerate(status for status, times in extra for _ in range(times))
    ]
    found = describe("otel-busy-client", record)
    assert found.on_wire == found.joined.exact == 400
    assert found.never_on_wire_statuses == {"DEADLINE_EXCEEDED": 5, "UNAVAILABLE": 2}
    assert found.outside_capture == 4  # answered, so they were on a wire


@pytest.mark.parametrize("name", ["otel-busy-client.otlp.jsonl.gz", "ghz-healthy.ghz.json.gz"])
def test_calls_outside_a_part_of_the_capture_are_not_lost(name: str) -> None:
    capture = name.partition(".")[0]
    whole = tables(capture)
    rpcs = whole.rpcs
    middle = int(np.median(rpcs.start_time_ns))
    late = np.flatnonzero(rpcs.start_time_ns >= middle)
    columns = {n: (column[late] if len(column := getattr(rpcs, n)) else column) for n in rpcs.__struct_fields__}
    connections = replace(whole.connections, complete=np.zeros_like(whole.connections.complete))
    part = replace(
        whole,
        rpcs=type(rpcs)(**columns),
        connections=connections,
        capture={**whole.capture, "first_time_ns": middle},
        rpc_budgets=whole.rpc_budgets[late],
    )
    record = change(
        read(name), lambda number, call: setattr(call, "status", "UNAVAILABLE" if number % 7 == 0 else "OK")
    )
    early = sum(call.start_ns < middle for call in record.calls)
    found = describe_client([("record", record)], part)
    assert found.never_on_wire <= len(late) / 7  # those whose status was changed have no RPC with it
    assert found.outside_capture >= early - 16


@pytest.mark.parametrize("capture", GHZ)
def test_rpcs_whose_names_and_statuses_are_before_the_capture_are_joined(capture: str) -> None:
    """Header fields that HPACK's table has from before the capture are unknown."""
    whole = tables(capture)
    rpcs = whole.rpcs
    late = np.flatnonzero(rpcs.start_time_ns >= np.median(rpcs.start_time_ns))
    columns = {n: (column[late] if len(column := getattr(rpcs, n)) else column) for n in rpcs.__struct_fields__}
    columns |= {"status": np.full(len(late), NOT_SEEN, np.uint8), "method": np.full(len(late), NO_METHOD, np.uint32)}
    first = int(columns["start_time_ns"].min())
    capture_facts = {**whole.capture, "first_time_ns": first}
    part = replace(whole, rpcs=type(rpcs)(**columns), capture=capture_facts, rpc_budgets=whole.rpc_budgets[late])
    found = describe_client([("record", read(f"{capture}.ghz.json.gz"))], part)
    assert (found.on_wire, found.never_on_wire, found.rpcs_without_call) == (len(late), 0, 0)
    assert found.joined.ambiguous == len(late)


@pytest.mark.parametrize("shown", ["both", "record", "wire", "none"])
def test_retries_are_found_without_ids(shown: str) -> None:
    """By `grpc-previous-rpc-attempts`, where the record, the requests, or both have no ids."""
    known, record = tables("otel-retries"), read("otel-retries.otlp.jsonl.gz")
    if shown in ("record", "none"):
        none = np.zeros_like(known.rpcs.span_id)
        known = replace(known, rpcs=replace(known.rpcs, span_id=none, trace_high=none, trace_low=none))
    if shown in ("wire", "none"):
        record = change(record, lambda _, call: (setattr(call, "trace", 0), setattr(call, "span", 0))[0])
    found = describe_client([("record", record)], known)
    assert (found.calls, found.never_on_wire) == (100, 0)
    assert found.on_wire >= 98 and found.attempts >= 180
    assert max(found.budget, key=lambda cause: found.budget[cause]) == "client_backoff"


def test_the_leg_nearest_to_the_client_counts() -> None:
    """Both legs of a proxy in one table: the back leg's RPCs lie inside, on other connections."""
    front, back = tables("otel-proxy"), tables("otel-proxy.back")
    shifted = back.rpcs.connection + len(front.connections.rpcs)
    columns = {
        n: np.concatenate([getattr(front.rpcs, n), shifted if n == "connection" else getattr(back.rpcs, n)])
        for n in front.rpcs.__struct_fields__
    }
    connections = type(front.connections)(
        **{
            n: np.concatenate([getattr(front.connections, n), getattr(back.connections, n)])
            for n in front.connections.__struct_fields__
        }
    )
    both = replace(
        front,
        rpcs=type(front.rpcs)(**columns),
        connections=connections,
        addresses=(*front.addresses, *back.addresses),
        rpc_budgets=np.concatenate([front.rpc_budgets, back.rpc_budgets]),
    )
    connections.server_ip[len(front.connections.rpcs) :] += len(front.addresses)
    record = read("otel-proxy.otlp.pb.gz")
    found, alone = describe_client([("record", record)], both), describe("otel-proxy", record)
    assert found.attempts == alone.attempts == 240
    assert (found.before_wire_ns, found.after_wire_ns, found.budget) == (
        alone.before_wire_ns,
        alone.after_wire_ns,
        alone.budget,
    )


def test_a_span_in_two_files_counts_once() -> None:
    found = describe(
        "otel-busy-client", read("otel-busy-client.otlp.jsonl.gz"), read("otel-busy-client.jaeger.json.gz")
    )
    assert (found.calls, found.on_wire, [one.calls for one in found.sources]) == (400, 400, [400, 400])


def test_an_answer_behind_the_deadline_moves_no_clock_and_makes_no_call_lost() -> None:
    """The client gives up 5 ms before the answer arrives: it is on the wire, with and without ids."""
    for has_ids in (True, False):
        record = read("otel-busy-client.otlp.jsonl.gz")
        known = tables("otel-busy-client")
        ends = join([read("otel-busy-client.otlp.jsonl.gz")], known)
        late = {
            call.span: int(ends.wire.end[rows[-1]]) - 5 * MS for call, rows in zip(ends.calls, ends.rows, strict=True)
        }
        for number, call in enumerate(record.calls):
            if number % 40 == 0:
                call.end_ns, call.status = late[call.span], "DEADLINE_EXCEEDED"
            if not has_ids:
                call.trace = call.span = 0
        found = describe("otel-busy-client", record)
        assert (found.on_wire + found.outside_capture, found.never_on_wire) == (400, 0)
        assert found.on_wire == 400 or not has_ids
        assert found.clock_offset_ns and found.clock_offset_ns.least <= 0 <= found.clock_offset_ns.most


def spans(*pairs: tuple[int, int]) -> Spans:
    some = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Spans(np.arange(len(some)), some[:, 0], some[:, 1])


def test_the_assignment_has_as_many_pairs_as_possible() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        start, inner = rng.integers(0, 12, 6), rng.integers(0, 12, 6)
        calls = spans(*zip(start, start + rng.integers(0, 12, 6), strict=True))
        rpcs = spans(*zip(inner, inner + rng.integers(0, 6, 6), strict=True))
        found = assign(calls, rpcs)
        assert all(calls.start[c] <= rpcs.start[r] and rpcs.end[r] <= calls.end[c] for c, r in found)
        assert len({c for c, _ in found}) == len({r for _, r in found}) == len(found) == most_pairs(calls, rpcs)


def most_pairs(calls: Spans, rpcs: Spans) -> int:
    """The size of a maximum matching, by augmenting paths."""
    fits = [[c for c in range(6) if calls.start[c] <= rpcs.start[r] and rpcs.end[r] <= calls.end[c]] for r in range(6)]
    owner: dict[int, int] = {}

    def place(rpc: int, seen: set[int]) -> bool:
        for call in fits[rpc]:
            if call not in seen:
                seen.add(call)
                if call not in owner or place(owner[call], seen):
                    owner[call] = rpc
                    return True
        return False

    return sum(place(rpc, set()) for rpc in range(6))


def test_only_pairs_that_order_forces_are_certain() -> None:
    calls = spans((0, 10), (0, 20), (0, 30), (25, 40))
    rpcs = spans((1, 9), (2, 19), (3, 18), (26, 39))
    pairs = assign(calls, rpcs)
    assert dict(pairs) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert find_certain(calls, rpcs, pairs).tolist() == [True, False, False, True]
