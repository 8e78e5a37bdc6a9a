"""What `grpcdiag watch` shows: a screen on a terminal, a line of JSON elsewhere."""

from __future__ import annotations

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyzer.intervals import RATES_S, SPANS_S, Interval, MethodFigures
from ..analyzer.model.text import count, duration, safe, size, utc

MOST_METHODS, MOST_FINDINGS, MOST_MESSAGES = 20, 8, 5
"""Lines shown; the rest of the methods and findings are counted."""
_COLOURS = {"critical": "red", "warning": "yellow", "info": "cyan"}


def render_json(interval: Interval) -> str:
    """Write a line of JSON."""
    return msgspec.json.encode(interval).decode() + "\n"


def render_screen(interval: Interval, source: str, messages: list[str]) -> RenderableType:
    """Draw a screen; `messages` are the last ones, the newest at the end."""
    lines = [_show_head(interval, source), Text(), _show_methods(interval.methods)]
    lines += [Text(), *_show_findings(interval)]
    lines += [Text(safe(message), style="bold") for message in messages[-MOST_MESSAGES:]]
    return Group(*lines, Text("q ends", style="dim"))


def _show_head(interval: Interval, source: str) -> Text:
    dropped = interval.dropped_packets
    parts = [safe(source), count(interval.packets, "packet"), f"{dropped:,} dropped" if dropped else ""]
    if interval.ring_bytes is not None:
        parts.append(f"ring {size(interval.ring_bytes)}")
        lost = interval.ring_lost_packets
        parts.append(f"{count(lost, 'packet')} not recorded: no room on the disk" if lost else "")
    return Text(f"{utc(interval.time_ns)}  " + ", ".join(part for part in parts if part))


def _show_methods(methods: tuple[MethodFigures, ...]) -> RenderableType:
    if not methods:
        return Text("no RPCs in the last 60 s", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("method", overflow="fold")
    for name in ("calls/s", "in flight", "failed", *(f"{q} {span} s" for q in ("p50", "p99") for span in SPANS_S)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"time by cause, {RATES_S} s")
    for one in methods[:MOST_METHODS]:
        quantiles = [duration(of.get(f"{span}s")) for of in (one.p50_ns, one.p99_ns) for span in SPANS_S]
        failed = Text(f"{one.failed:,}", style="red" if one.failed else "")
        rate = f"{one.calls_per_s:,.1f}"
        table.add_row(_name(one), rate, f"{one.in_flight:,}", failed, *quantiles, _show_causes(one))
    if len(methods) > MOST_METHODS:
        table.add_row(f"{count(len(methods) - MOST_METHODS, 'more method')}")
    return table


def _name(one: MethodFigures) -> Text:
    return Text(safe(one.method or "(not in the capture)"))


def _show_causes(one: MethodFigures) -> str:
    whole = sum(one.budget.values())
    largest = sorted(one.budget.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"{cause} {100 * ns // whole}%" for cause, ns in largest)


def _show_findings(interval: Interval) -> list[Text]:
    if not interval.findings:
        return [Text(f"no findings in the last {RATES_S} s", style="dim")]
    shown = [
        Text.assemble((f"{one.severity:8} ", _COLOURS[one.severity]), f"{one.id}: {safe(one.title)}")
        for one in interval.findings[:MOST_FINDINGS]
    ]
    more = len(interval.findings) - MOST_FINDINGS
    return [*shown, *([Text(count(more, "more finding"))] if more > 0 else [])]
