"""What `grpcdiag watch` shows: a view with a keyboard, a plain screen, or lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyzer.live.interval import (
    RATES_S,
    SPANS_S,
    CallFigures,
    ConnectionFigures,
    FindingFigures,
    Interval,
    MethodFigures,
)
from ..analyzer.model.text import count, duration, safe, size, utc

MOST_MESSAGES = 5
"""Messages shown, the last ones."""
MOST_METHODS, MOST_FINDINGS = 20, 8
"""Lines shown; the rest of the methods and findings are counted."""
_COLOURS = {"critical": "red", "warning": "yellow", "info": "cyan"}


def render_json(interval: Interval) -> str:
    """Write a line of JSON."""
    return msgspec.json.encode(interval).decode() + "\n"


# The columns of the tables


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
    return safe(name or "(method not readable)")


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


# The plain screen, which needs no keyboard, and the lines that both views have


def render_screen(interval: Interval, source: str, messages: list[str]) -> RenderableType:
    """Draw a screen; `messages` are the last ones, the newest at the end."""
    lines = [show_head(interval, source), Text(), _show_methods(interval.methods)]
    lines += [Text(), *list_findings(interval)]
    lines += [Text(safe(message), style="bold") for message in messages]
    return Group(*lines, Text("q ends", style="dim"))


def show_head(interval: Interval, source: str) -> Text:
    """Show the time, what was recorded, and what was lost."""
    dropped = interval.dropped_packets
    parts = [safe(source), count(interval.packets, "packet"), f"{dropped:,} dropped" if dropped is not None else ""]
    if interval.ring_bytes is not None:
        parts.append(f"ring {size(interval.ring_bytes)}")
        lost = interval.ring_lost_packets
        parts.append(f"{count(lost, 'packet')} not recorded" if lost else "")
    return Text(f"{utc(interval.time_ns)[:19]}  " + ", ".join(part for part in parts if part))


def _show_methods(methods: tuple[MethodFigures, ...]) -> RenderableType:
    if not methods:
        return Text("no RPCs in the last 60 s", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in METHODS:
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=column.right)
    for one in methods[:MOST_METHODS]:
        table.add_row(*(column.show(one) for column in METHODS))
    if len(methods) > MOST_METHODS:
        table.add_row(f"{count(len(methods) - MOST_METHODS, 'more method')}")
    return table


def list_findings(interval: Interval, most: int = MOST_FINDINGS) -> list[Text]:
    """List the findings that are there, with their age, and then those that are gone."""
    lines = [_show_finding(one, interval.time_ns) for one in interval.findings[:most]]
    more = len(interval.findings) - most
    lines += [Text(count(more, "more finding"))] if more > 0 else []
    lines = lines or [Text(f"no findings in the last {RATES_S} s", style="dim")]
    return lines + [_show_finding(one, interval.time_ns) for one in interval.gone[: max(most - len(lines), 0)]]


def _show_finding(one: FindingFigures, now_ns: int) -> Text:
    if one.gone_ns is not None:
        age = f"gone {_show_age(now_ns - one.gone_ns)} ago"
        return Text(f"{one.severity:8} {age:>12}  {one.id}: {safe(one.title)}", style="dim")
    age = f"for {_show_age(now_ns - one.since_ns)}"
    return Text.assemble((f"{one.severity:8} ", _COLOURS[one.severity]), f"{age:>12}  {one.id}: {safe(one.title)}")


def _show_age(ns: int) -> str:
    seconds = max(ns, 0) // 10**9
    return f"{seconds} s" if seconds < 100 else f"{seconds // 60:,} min"
