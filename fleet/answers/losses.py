"""The rows of a fleet report: services, methods, host pairs, implementations, and findings."""

from __future__ import annotations

from msgspec import Struct

from .changes import Since

WAITING = (
    "congestion_window",
    "receive_window",
    "stream_window",
    "connection_window",
    "loss_recovery",
    "delayed_ack",
    "head_of_line",
    "network_queue",
    "peer_unreachable",
)
"""Causes of blocked time, which settings and code can change; client, server and network time are shown separately."""


class Loser(Struct, frozen=True, kw_only=True):
    """A service, method, host pair or implementation."""

    name: str
    rpcs: int
    failed_rpcs: int
    duration_ns: int
    p50_ns: int | None
    """Median, within 10 %."""
    p99_ns: int | None
    lost_ns: int
    """Part of `duration_ns` with a cause in `WAITING`."""
    cause: str | None
    """The main cause of `lost_ns`."""
    budget: dict[str, int]
    since: Since | None = None
    """When the time per RPC changed most; None without such a change."""


class Case(Struct, frozen=True, kw_only=True):
    """One finding."""

    host: str
    recording: str
    title: str
    severity: str
    lost_ns: int | None
    time_ns: int
    commands: tuple[str, ...]
    """Commands that show the finding."""


class Cause(Struct, frozen=True, kw_only=True):
    """All findings of one id."""

    id: str
    severity: str
    """Highest severity of these findings."""
    findings: int
    recordings: int
    hosts: int
    lost_ns: int
    """Lost time of those findings that are not part of others."""
    first_time_ns: int
    last_time_ns: int
    by_hour: dict[str, int]
    remedy: str | None
    worst: Case
    typical: Case
