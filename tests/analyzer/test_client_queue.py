"""Callers that queue for streams with a deadline: which of their calls never reach the wire is known here."""

from __future__ import annotations

import heapq
from functools import cache

import numpy as np
import pytest
from measured import find_capture
from msgspec import Struct
from msgspec.structs import replace

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.measured.figures import describe_client
from grpcdiag.analyzer.measured.record import Call, Record
from grpcdiag.analyzer.tables import Tables

MS = 1_000_000
BEGIN, CALLS = 1_795_306_149 * 10**9, 400
ISSUE, ANSWER, DEADLINE = range(3)


class Made(Struct):
    """A call as it went."""

    caller: int
    start: int
    end: int = 0
    status: str = ""
    headers: int = 0
    wire_end: int = 0


def run_callers(seed: int, callers: int, streams: int, deadline: int, service: tuple[int, int]) -> list[Made]:
    """Each caller makes one call after the other; who gets a free stream is left to chance."""
    rng = np.random.default_rng(seed)
    calls: list[Made] = []
    waiting: list[Made] = []
    free = streams
    events = [(BEGIN + int(rng.integers(0, 20 * MS)), ISSUE, caller) for caller in range(callers)]
    heapq.heapify(events)
    while events:
        now, kind, who = heapq.heappop(events)
        if kind == ISSUE and len(calls) < CALLS:
            heapq.heappush(events, (now + deadline + int(rng.integers(0, MS)), DEADLINE, len(calls)))
            calls.append(Made(who, now))
            waiting.append(calls[-1])
        elif kind != ISSUE and not calls[who].end:
            call = calls[who]
            late = int(rng.exponential(0.4 * MS)) if kind == ANSWER else 0
            call.end, call.status = now + late, "OK" if kind == ANSWER else "DEADLINE_EXCEEDED"
            call.wire_end = now if kind == ANSWER else now + int(rng.integers(-MS // 5, 3 * MS))
            free += bool(call.headers)
            waiting = [one for one in waiting if one is not call]
            heapq.heappush(events, (call.end + 1_000, ISSUE, call.caller))
        while free and waiting:
            call = waiting.pop(int(rng.integers(len(waiting))))
            free -= 1
            call.headers = now + int(rng.exponential(0.1 * MS))
            number = next(place for place, one in enumerate(calls) if one is call)
            heapq.heappush(events, (call.headers + int(rng.integers(*service)) * MS, ANSWER, number))
    return calls


@cache
def usual() -> Tables:
    return decode([find_capture("ghz-stream-limit")])


def make_tables(sent: list[Made]) -> Tables:
    """The tables of a recorded capture with other RPCs."""
    known = usual()
    rows = np.arange(len(sent))
    columns = {
        n: (cells[rows] if len(cells := getattr(known.rpcs, n)) else cells) for n in known.rpcs.__struct_fields__
    }
    ends = [("trailers" if call.status == "OK" else "client_reset") for call in sent]
    columns |= {
        "start_time_ns": np.array([call.headers for call in sent]),
        "duration_ns": np.array([max(0, call.wire_end - call.headers) for call in sent]),
        "status": np.array([int(call.status != "OK") for call in sent], dtype=np.uint8),  # CANCELLED on the wire
        "status_source": np.array([_core.STATUS_SOURCES.index(end) for end in ends], dtype=np.uint8),
    }
    capture = {**known.capture, "first_time_ns": BEGIN, "last_time_ns": max(call.wire_end for call in sent) + 10 * MS}
    rpcs = type(known.rpcs)(**columns)
    return replace(known, rpcs=rpcs, rpc_budgets=known.rpc_budgets[rows], capture=capture)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("callers", "streams", "deadline", "service"),
    [
        (32, 4, 150, (25, 45)),
        (32, 4, 100, (25, 45)),
        (16, 4, 60, (25, 45)),
        (8, 4, 150, (10, 200)),
        (4, 4, 500, (5, 9)),
    ],
)
def test_the_calls_that_never_reach_the_wire_are_told(
    seed: int, callers: int, streams: int, deadline: int, service: tuple[int, int]
) -> None:
    calls = run_callers(seed, callers, streams, deadline * MS, service)
    sent = sorted((call for call in calls if call.headers), key=lambda call: call.headers)
    record = Record("ghz", [Call(call.start, call.end, "/rw.v1.Svc/Do", call.status) for call in calls])
    found = describe_client([("record", record)], make_tables(sent))
    never = len(calls) - len(sent)
    assert found.never_on_wire == never
    assert found.never_on_wire == found.never_on_wire_statuses.get("DEADLINE_EXCEEDED", 0)
    assert found.on_wire + found.outside_capture == len(sent) and found.outside_capture <= 2
    waits = np.sort([call.headers - call.start for call in sent])
    assert found.before_wire_ns
    for ns, share in ((found.before_wire_ns.p50, 0.5), (found.before_wire_ns.p99, 0.99)):
        truth = float(waits[int(np.ceil(share * len(waits))) - 1])
        assert abs(ns - truth) <= max(1.5 * MS, 0.1 * truth)
