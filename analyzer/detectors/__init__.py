"""Detectors: one file per finding id, each with `ID`, `Limits` and `detect(tables, limits)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from ..model.finding import Finding, Skipped
from ..tables import Tables
from . import (
    cancelled,
    capture_quality,
    client_idle_gap,
    connection_churn,
    connection_closed_early,
    connection_window_stall,
    deadline_exceeded,
    delayed_ack_nagle,
    delayed_data,
    head_of_line_blocking,
    header_overhead,
    initial_congestion_window,
    loss_recovery,
    max_concurrent_streams,
    ping_storm,
    receive_window_stall,
    request_batching,
    rpc_errors,
    server_latency,
    shared_connection,
    slow_start_after_idle,
    small_packets,
    stream_window_stall,
    too_many_pings,
    window_update_storm,
)

HEADINGS = (
    "What it finds",
    "How it is decided",
    "When it cannot tell",
    "What would refute it",
    "What to do",
    "References",
)
"""The sections of every detector's docstring, in this order."""


class Detector(Struct, frozen=True, eq=False):
    """A detector as the analysis runs it."""

    id: str
    """The finding's id, also the name of its file, fixtures, test and docs page."""
    page: str
    """Its explanation."""
    detect: Callable[[Tables], Iterator[Finding | Skipped]]
    """Runs it with its default limits."""
    judges_one_direction: bool
    """What it finds is seen in what one side sends, whatever the other does."""


_ONE_DIRECTION = ("capture-quality", "header-overhead", "ping-storm", "window-update-storm")


def _detector(module: Any) -> Detector:
    detect = functools.partial(module.detect, limits=module.Limits())
    return Detector(module.ID, module.__doc__, detect, module.ID in _ONE_DIRECTION)


DETECTORS: tuple[Detector, ...] = (
    # one line each
    _detector(cancelled),
    _detector(capture_quality),
    _detector(client_idle_gap),
    _detector(connection_churn),
    _detector(connection_closed_early),
    _detector(connection_window_stall),
    _detector(deadline_exceeded),
    _detector(delayed_ack_nagle),
    _detector(delayed_data),
    _detector(head_of_line_blocking),
    _detector(header_overhead),
    _detector(initial_congestion_window),
    _detector(loss_recovery),
    _detector(max_concurrent_streams),
    _detector(ping_storm),
    _detector(receive_window_stall),
    _detector(request_batching),
    _detector(rpc_errors),
    _detector(server_latency),
    _detector(shared_connection),
    _detector(slow_start_after_idle),
    _detector(small_packets),
    _detector(stream_window_stall),
    _detector(too_many_pings),
    _detector(window_update_storm),
)
"""All detectors. The one place where a detector is registered."""


def by_id(finding: str) -> Detector | None:
    """The detector of a finding id."""
    return next((detector for detector in DETECTORS if detector.id == finding), None)
