"""Each limit of a detector decides about some capture: an answer changes if it is larger, and if it is smaller."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace
from support import RECORDED, REPOSITORY, SYNTHETICS

from grpcdiag.analyzer import detectors
from grpcdiag.analyzer.analysis import add_processes
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.detector import Detector
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.model.limits import MOST_FACTOR
from grpcdiag.analyzer.tables import Tables
from grpcdiag.cli.support.sidecar import find_sidecar

sys.path.append(str(REPOSITORY / "tests" / "detectors"))

MANY = (25, 1_000)
"""How many times as many RPCs of another method each capture is judged among, too: what is found is a small share."""


@pytest.mark.parametrize("detector", [pytest.param(d, id=d.id) for d in DETECTORS])
def test_every_limit_decides(detector: Detector, tmp_path: Path) -> None:
    """Both ways as far as a configuration may move it: else it has no effect, or the other side has no capture."""
    known = {name for name in LACKING.get(detector.id, "").split(", ") if name}
    still = find_still(detector, tmp_path)
    assert sorted(still - known) == [], "no answer changes: add a capture, or `edges` to the detector's test"
    assert sorted(known - still) == [], "an answer changes: take it from the list"


@cache
def read_captures() -> tuple[tuple[set[str], Tables], ...]:
    """Decode each capture of the repository, with the findings that its truth names."""
    found = [({*s.truth.get("findings", ()), *s.truth.get("quiet", ())}, decode([s.file])) for s in SYNTHETICS]
    for path in sorted(str(path) for path in RECORDED.rglob("*.pcap*") if path.suffix in (".pcap", ".gz", ".zst")):
        tables, (sidecar, notes) = decode([path]), find_sidecar([path])
        if sidecar is not None and sidecar.processes is not None:
            tables, _ = add_processes([path], tables, sidecar, notes)
        found.append((set(), tables))
    return tuple(found)


def find_still(detector: Detector, folder: Path) -> set[str]:
    """Find the limits of a detector that change no answer when they are moved, and which way."""
    module: Any = import_module(f"{detectors.__name__}.{detector.id.replace('-', '_')}")
    moved = dict(move_limits(module.Limits()))
    for tables in list_cases(module, folder):
        usual = answer(module, tables, module.Limits())
        for name in [name for name, limits in moved.items() if answer(module, tables, limits) != usual]:
            del moved[name]
        if not moved:
            break
    return set(moved)


def list_cases(module: Any, folder: Path) -> Iterator[Tables]:
    """List what a detector is asked about: captures made for it, others of which it says something, tables by hand."""
    some = [tables for _, tables in read_captures() if tables.rpc_count or module.ABOUT.without_rpcs]
    mine = [tables for about, tables in read_captures() if module.ID in about]
    speaks = [tables for tables in some if answer(module, tables, module.Limits())]
    test = import_module(f"test_{module.ID.replace('-', '_')}")
    edges = list(test.edges(folder)) if hasattr(test, "edges") else []
    for times in (0, *MANY):
        for tables in (*mine, *speaks, *edges):
            yield add_rpcs(tables, times) if times else tables


def add_rpcs(tables: Tables, times: int) -> Tables:
    """Add so many times as many RPCs, and as much time of RPCs, of another method."""
    if not tables.methods:
        return tables
    first, whole = tables.methods[0], np.sum([method.budget for method in tables.methods], axis=0)
    budget = tuple(int(ns) * times for ns in whole)
    other = replace(first, number=-1, rpcs=tables.rpc_count * times, budget=budget, turnaround=None, latency=None)
    return replace(tables, methods=(*tables.methods, other))


def move_limits(limits: Struct) -> Iterator[tuple[str, Struct]]:
    """Move each limit, and nothing else, as far down and up as a configuration may."""
    for name in limits.__struct_fields__:
        value = getattr(limits, name)
        if isinstance(value, int):
            yield f"{name} down", replace(limits, **{name: max(value // MOST_FACTOR, min(value - 1, 1))})
        if isinstance(value, float):
            yield f"{name} down", replace(limits, **{name: value / MOST_FACTOR})
        if isinstance(value, int | float):
            yield f"{name} up", replace(limits, **{name: value * MOST_FACTOR})


def answer(module: Any, tables: Tables, limits: Struct) -> list[str]:
    answers: Iterable[Finding | Skipped] = module.detect(tables, limits)
    return [repr(one) for one in answers]


LACKING = {
    "abrupt-goaway": "again_ns up, age_spread down, age_spread up, drained_share down, round_requests up",
    "cancelled": "apart down, passed_ns down",
    "capture-quality": "odd_packets down",
    "client-idle-gap": (
        "critical_share down, gap_ns up, gaps down, most_paused up, request_ns down, warning_share down"
    ),
    "connect-failure": "groups up",
    "connection-churn": "same_time up",
    "connection-closed-early": (
        "age_spread up, closed_spread down, closed_spread up, drained_share down, refused_ns "
        "down, refused_ns up, round_requests up, round_tolerance down"
    ),
    "cpu-quota": "warning_share up",
    "delayed-data": "least_calls down, shortest_ns down",
    "flow-control-deadlock": "streams down",
    "half-closed-streams": "warning_share up",
    "hung-rpc": "factor down",
    "idle-connection-cut": "late up, refused_ns up, timeouts down, unknown_ns up",
    "initial-congestion-window": "first_flights up, grown_segments up, paying_share down, warning_share down",
    "keepalive-timeout": "round_trips down, same_time up",
    "load-imbalance": "answers down, answers up",
    "loss-recovery": "repeated_packets down, repeated_share down, repeated_warning down",
    "max-concurrent-streams": "critical_share down, warning_share down",
    "message-too-large": "few down, prompt_ns up",
    "mtu-black-hole": "passing_bytes down",
    "network-queueing": "filler_share down, together_share down",
    "ping-storm": "messages_per_stream down, stream_interval_ns down, told_share down",
    "processor-saturated": "warning_share up",
    "proxy-error": "few down",
    "receive-window-stall": "late_least_ns down",
    "request-batching": "bursts down",
    "retry-storm": "again_share down, ends_share down",
    "server-concurrency-limit": (
        "groups down, groups up, most_calls up, not_faster down, not_slower down, "
        "sharp down, wait_goes_on down, waited_share down"
    ),
    "server-latency": "of_server down",
    "shared-connection": "gap_ns up, gaps down, most_paused up, request_ns down",
    "slow-connect": "critical_connections up, critical_share up, unanswered_ns down",
    "small-packets": "default_mss up, filled up, messages_per_packet up, streams down",
    "stream-timeout": "few down, flowing up",
    "stream-window-stall": "late_least_ns down",
    "synchronised-stall": (
        "alone_ns down, answered down, apart_ns down, at_once up, few_rpcs down, late_ping_ns down, "
        "late_rpcs_ns down, of_silence up, pings down, quota_periods up, relay_ns down, relay_ns up, "
        "relay_pings up, steady down, steady_pings up, steady_share up, unary_messages up"
    ),
    "window-update-storm": "critical_share up, messages_per_stream down, stream_interval_ns down, told_share down",
}
"""Limits that change no answer that way.

No capture has a case for which such a limit alone decides, or so much of what `answers`, `groups` and `most_calls`
bound.
"""
