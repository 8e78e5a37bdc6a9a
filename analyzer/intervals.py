"""Figures of the last seconds for `grpcdiag watch`: what its view shows, and its lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from . import _core
from .live import Window
from .model.analysis import Analysis
from .model.budget import named
from .tables.calls import Method

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
    """Of them, those with another status than OK."""
    p50_ns: Mapping[str, int]
    """By the length of the window: `1s`, `10s`, `60s`; without those in which no call ended."""
    p99_ns: Mapping[str, int]
    budget: Mapping[str, int]
    """Nanoseconds by cause, of the last ten seconds."""


class FindingFigures(Struct, frozen=True):
    """A finding of the last ten seconds."""

    id: str
    severity: str
    title: str


class Interval(Struct, frozen=True):
    """What one line or one screen reports."""

    time_ns: int
    """When the interval ended."""
    packets: int
    """Packets since the beginning."""
    dropped_packets: int | None
    """Of the kernel since the beginning; None when that is unknown."""
    methods: tuple[MethodFigures, ...]
    """Those with most calls first."""
    findings: tuple[FindingFigures, ...]
    met: tuple[str, ...] = ()
    """What meets triggers now, with the trigger."""
    ring_bytes: int | None = None
    ring_lost_packets: int = 0
    """Packets that the disk had no room for."""
    written: tuple[str, ...] = ()
    """Captures that were written since the last interval."""
    not_written: int = 0
    """Moments that were not written because of the limits, since the beginning."""
    problems: tuple[str, ...] = ()


def measure_methods(windows: Mapping[int, Window]) -> tuple[MethodFigures, ...]:
    """Join the figures of the windows by method; `windows` are by their length in seconds."""
    of = {span: {one.name or one.label: one for one in window.tables.methods} for span, window in windows.items()}
    names = {name for methods in of.values() for name in methods}
    recent = windows[RATES_S]
    seconds = (recent.end_ns - (recent.begin_ns or 0)) / 1e9  # fewer than ten at the beginning
    found = (
        _measure(name, {span: methods[name] for span, methods in of.items() if name in methods}, seconds)
        for name in names
    )
    return tuple(sorted(found, key=lambda one: (-one.ended, -one.in_flight, one.method or "")))


def _measure(name: str | None, by_span: Mapping[int, Method], seconds: float) -> MethodFigures:
    now, recent = by_span.get(SPANS_S[0]), by_span.get(RATES_S)
    ended = recent.complete if recent else 0
    ok, unknown = (recent.statuses[place] for place in (_core.STATUSES.index("OK"), -1)) if recent else (0, 0)
    return MethodFigures(
        method=name,
        calls_per_s=ended / seconds if seconds > 0 else 0.0,
        in_flight=now.rpcs - now.complete if now else 0,
        ended=ended,
        failed=sum(recent.statuses) - ok - unknown if recent else 0,
        p50_ns=dict(_list_quantiles(by_span, "p50")),
        p99_ns=dict(_list_quantiles(by_span, "p99")),
        budget=named(recent.budget) if recent else {},
    )


def _list_quantiles(by_span: Mapping[int, Method], quantile: str) -> Iterator[tuple[str, int]]:
    return ((f"{span}s", one.latency[quantile]) for span, one in by_span.items() if one.latency)


def list_findings(analysis: Analysis) -> tuple[FindingFigures, ...]:
    """List the findings of an analysis."""
    return tuple(FindingFigures(one.id, one.severity, one.title) for one in analysis.findings)
