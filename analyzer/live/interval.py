"""What an interval of `grpcdiag watch` reports."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

SPANS_S = (1, 10, 60)
"""Lengths of the windows."""
RATES_S = 10
"""Length of the window whose rates, causes and findings are reported."""


class MethodFigures(Struct, frozen=True):
    """A method of the last seconds."""

    method: str | None
    """Its name or label; None when neither is known."""
    calls_per_s: float
    """Calls that ended, of the last ten seconds."""
    in_flight: int
    """Calls without an end at the end of the interval."""
    ended: int
    """Calls that ended in the last ten seconds."""
    failed: int
    """Calls that ended in the last ten seconds with another status than OK."""
    p50_ns: Mapping[str, int]
    """By the length of the window: `1s`, `10s`, `60s`; without those in which no call ended."""
    p99_ns: Mapping[str, int]
    budget: Mapping[str, int]
    """Nanoseconds by cause, of the last ten seconds."""


class ConnectionFigures(Struct, frozen=True):
    """A connection with calls in the last seconds."""

    client: str
    server: str
    """Addresses with ports."""
    calls_per_s: float
    """Calls that began, of the last ten seconds."""
    in_flight: int
    """Most calls that were open at once in the last second."""
    failed: int
    """Calls that ended with another status than OK in the last ten seconds."""
    retransmitted: int
    """Packets that were retransmitted in the last ten seconds."""
    rtt_ns: int | None
    """Shortest round trip between both ends since the connection is followed; None when it is not known."""
    p50_ns: Mapping[str, int]
    """As of a method, but of the first 32 calls that began in each second, which are all of a slower connection."""
    p99_ns: Mapping[str, int]
    budget: Mapping[str, int]
    """Nanoseconds by cause, of the last ten seconds."""


class CallFigures(Struct, frozen=True):
    """A call of the last minute: one of the longest, one that failed, or one without an end."""

    method: str | None
    client: str
    server: str
    stream: int
    start_ns: int
    """When it began, nanoseconds since the epoch."""
    duration_ns: int
    """Up to now if it has no end."""
    status: str | None
    """Its gRPC status; None without an end, or when it is not on the wire."""
    is_open: bool


class FindingFigures(Struct, frozen=True):
    """A finding of the last ten seconds."""

    id: str
    severity: str
    title: str
    since_ns: int = 0
    """The end of the interval in which findings of this kind appeared."""
    gone_ns: int | None = None
    """The end of the interval in which there was none any more."""


class Interval(Struct, frozen=True):
    """What one line or one screen reports."""

    time_ns: int
    """When the interval ended."""
    packets: int
    """Packets since the beginning."""
    dropped_packets: int | None
    """Packets that the kernel dropped since the beginning; None when that is unknown."""
    methods: tuple[MethodFigures, ...]
    """Figures by method, those with most calls first."""
    findings: tuple[FindingFigures, ...]
    connections: tuple[ConnectionFigures, ...] = ()
    """Figures by connection, those with most calls first, at most `MOST_CONNECTIONS`."""
    more_connections: int = 0
    """Further connections with calls."""
    calls: tuple[CallFigures, ...] = ()
    """The longest first, at most `MOST_CALLS`."""
    gone: tuple[FindingFigures, ...] = ()
    """Findings of the last minute that are there no more, the last one first."""
    met: tuple[str, ...] = ()
    """Triggers whose condition is met now, with the figures that meet it."""
    ring_bytes: int | None = None
    ring_lost_packets: int = 0
    """Packets that could not be written; `problems` says why."""
    written: tuple[str, ...] = ()
    """Captures that were written since the last interval."""
    not_written: int = 0
    """Moments that were not written because of the limits, since the beginning."""
    problems: tuple[str, ...] = ()
