"""The plain screen, which needs no keyboard, and the lines that both views have."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.live.interval import RATES_S, FindingFigures, Interval, MethodFigures
from ...analyzer.model.text import count, safe, size, utc
from .columns import METHODS

MOST_METHODS, MOST_FINDINGS = 20, 8
"""Lines shown; the rest of the methods and findings are counted."""
_COLOURS = {"critical": "red", "warning": "yellow", "info": "cyan"}


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
