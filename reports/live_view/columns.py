"""The columns of the tables of a live view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.text import Text

from ...analyzer.live.interval import RATES_S, SPANS_S, CallFigures, ConnectionFigures, MethodFigures
from ...analyzer.model.text import duration, safe, utc

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column: its heading, its text, and what rows are sorted by."""

    name: str
    show: Callable[[Row], str | Text]
    key: Callable[[Row], Any]
    right: bool = True
    """Whether it has numbers, which stand at the right, and the largest of which comes first."""


def _make_quantile(quantile: str, span: int) -> Column[Any]:
    def find(one: MethodFigures | ConnectionFigures) -> int | None:
        by_span: Mapping[str, int] = getattr(one, f"{quantile}_ns")
        return by_span.get(f"{span}s")

    return Column(f"{quantile} {span} s", lambda one: duration(find(one)), lambda one: find(one) or 0)


def _show_failed(one: MethodFigures | ConnectionFigures) -> Text:
    return Text(f"{one.failed:,}", style="red" if one.failed else "")


def show_causes(budget: Mapping[str, int]) -> str:
    """Name the two causes with the most time."""
    whole = sum(budget.values())
    largest = sorted(budget.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"{cause} {100 * ns // whole}%" for cause, ns in largest)


def show_method(name: str | None) -> str:
    """Show the name of a method, which comes from the capture."""
    return safe(name or "(not in the capture)")


_RATE: Column[Any] = Column("calls/s", lambda one: f"{one.calls_per_s:,.1f}", lambda one: one.calls_per_s)
_IN_FLIGHT: Column[Any] = Column("in flight", lambda one: f"{one.in_flight:,}", lambda one: one.in_flight)
_FAILED: Column[Any] = Column("failed", _show_failed, lambda one: one.failed)
_QUANTILES = tuple(_make_quantile(quantile, span) for quantile in ("p50", "p99") for span in SPANS_S)
_CAUSES: Column[Any] = Column(
    f"time by cause, {RATES_S} s",
    lambda one: show_causes(one.budget),
    lambda one: sum(one.budget.values()),
    right=False,
)

METHODS: tuple[Column[MethodFigures], ...] = (
    Column("method", lambda one: show_method(one.method), lambda one: one.method or "", right=False),
    *(_RATE, _IN_FLIGHT, _FAILED, *_QUANTILES, _CAUSES),
)
CONNECTIONS: tuple[Column[ConnectionFigures], ...] = (
    Column("client", lambda one: safe(one.client), lambda one: one.client, right=False),
    Column("server", lambda one: safe(one.server), lambda one: one.server, right=False),
    *(_RATE, _IN_FLIGHT, _FAILED),
    Column("resent", lambda one: f"{one.retransmitted:,}", lambda one: one.retransmitted),
    Column("RTT", lambda one: duration(one.rtt_ns), lambda one: one.rtt_ns or 0),
    *(*_QUANTILES, _CAUSES),
)
CALLS: tuple[Column[CallFigures], ...] = (
    Column("duration", lambda one: duration(one.duration_ns), lambda one: one.duration_ns),
    Column("status", lambda one: _show_status(one), lambda one: one.status or "", right=False),
    Column("began (UTC)", lambda one: utc(one.start_ns, one.start_ns)[:12], lambda one: one.start_ns),
    Column("method", lambda one: show_method(one.method), lambda one: one.method or "", right=False),
    Column("client", lambda one: safe(one.client), lambda one: one.client, right=False),
    Column("server", lambda one: safe(one.server), lambda one: one.server, right=False),
    Column("stream", lambda one: f"{one.stream}", lambda one: one.stream),
)


def _show_status(one: CallFigures) -> Text:
    if one.is_open:
        return Text("open", style="yellow")
    return Text(one.status or "unknown", style="" if one.status == "OK" else "red")
