"""Figures of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import _core
from ..model.budget import named
from ..tables.calls import Method
from . import Window
from .interval import RATES_S, SPANS_S, MethodFigures


def measure_methods(windows: Mapping[int, Window]) -> tuple[MethodFigures, ...]:
    """Join the figures of the windows by method; `windows` are by their length in seconds."""
    of = {span: {one.name or one.label: one for one in window.tables.methods} for span, window in windows.items()}
    names = {name for methods in of.values() for name in methods}
    seconds = windows[RATES_S].seconds
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
