"""The head of a timeline: the ends of the connection, the range drawn, and how full its windows were."""

from collections.abc import Iterator

import numpy as np
from rich.text import Text

from ...analyzer import _core
from ...analyzer.model.budget import named
from ...analyzer.model.text import count, duration, safe, size, utc
from ...analyzer.summary import figures
from ...analyzer.tables import COMPLETE, DIRECTIONS, NOT_SEEN, Tables
from ...analyzer.views.excerpt import Excerpt
from ..shared.quality import PLACES, format_round_trip, list_implementations
from .lanes import lanes
from .page import Page, method_name, wrapped

_CAUSES = 3
"""Most causes of an RPC's time that are named."""


def list_head(page: Page) -> list[Text]:
    """List the lines above the timeline: the connection, its ends, and the range."""
    excerpt = page.excerpt
    stream = "" if excerpt.stream is None else f", stream {excerpt.stream}"
    title = Text(f"connection {excerpt.connection}{stream}", style="bold")
    return [title, *list_ends(page), *describe_range(page)]


def list_ends(page: Page) -> list[Text]:
    """List both ends of the connection with their implementations."""
    tables, row = page.excerpt.tables, page.excerpt.connection
    (c,) = figures.describe_connections(tables, np.array([row]))
    lines = []
    for side, end, (runs, inferred) in zip(DIRECTIONS, (c.client, c.server), list_implementations(c), strict=True):
        name = safe(runs) + (" (inferred)" if inferred else "") if runs else "implementation unknown"
        lines += wrapped(f"{side} {end}  {name}", page.width, "  ")
    mss = tables.connections.mss_client[row], tables.connections.mss_server[row]
    segments = " / ".join(f"{int(m):,} B" if m else "-" for m in mss)
    opening = "" if c.complete else "; opened before the capture"
    shown = {"http2": "", "http1": "; HTTP/1.1"}
    protocol = shown.get(c.protocol, f"; {c.protocol}: packets only")
    text = f"RTT {format_round_trip(c)}, MSS {segments}, capture point: {PLACES[c.vantage]}{opening}{protocol}"
    return lines + wrapped(text, page.width, "  ")


def describe_range(page: Page) -> list[Text]:
    """Describe the range: packets, RPCs, blocked intervals, and the lanes of windows."""
    excerpt, bursts = page.excerpt, page.sequence.bursts
    sides = []
    for side, name in enumerate(DIRECTIONS):
        mine = bursts.direction == side
        sides.append(
            f"{name} {count(int(bursts.packets[mine].sum()), 'packet')} {size(int(bursts.bytes[mine].sum()))} "
            f"{count(len(page.sequence.frame_rows[side]), 'frame')}"
        )
    span = f"{page.time(excerpt.start_ns)} s to {page.time(excerpt.end_ns)} s ({utc(excerpt.start_ns)} UTC)"
    begun = "" if excerpt.rpc is not None else f"; {count(_count_started(page), 'RPC')} started"
    lines = wrapped(f"{span}, drawn: {', '.join(sides)}{begun}", page.width, "  ")
    rows = page.sequence.wait_rows
    own = rows if excerpt.stream is None else rows[page.sequence.waits.stream[rows] == excerpt.stream]
    others = rows[page.sequence.waits.stream[rows] != excerpt.stream] if excerpt.rpc is not None else rows[:0]
    intervals = page.sum_by_cause(own)
    if page.sequence.short_waits:
        short, ns = page.sequence.short_waits, page.sequence.short_waits_ns
        intervals.append(f"{short:,} too short to draw {duration(ns)}")
    meanwhile = f"; other streams in this range: {', '.join(page.sum_by_cause(others))}" if len(others) else ""
    lines += wrapped(f"blocked intervals: {', '.join(intervals) or 'none'}{meanwhile}", page.width, "  ")
    return lines + lanes(excerpt, page.sequence, page.width)


def _count_started(page: Page) -> int:
    excerpt, rpcs = page.excerpt, page.excerpt.tables.rpcs
    begun = rpcs.start_time_ns[page.by_start]
    mine = (begun >= excerpt.start_ns) & (begun <= excerpt.end_ns)
    if excerpt.stream is not None:
        mine &= rpcs.stream[page.by_start] == excerpt.stream
    return int(mine.sum())


def show_rpc(page: Page, number: int) -> Iterator[Text]:
    """Show the RPC of a timeline: its duration, and the time by cause."""
    tables, row = page.excerpt.tables, page.excerpt.rpc or 0
    rpcs = tables.rpcs
    took = int(rpcs.duration_ns[row])
    where = f"connection {page.excerpt.connection}, stream {page.excerpt.stream}"
    end = "" if rpcs.flags[row] & COMPLETE else ", no end in the capture"
    method = method_name(tables, int(rpcs.method[row]))
    text = f"{number}. {duration(took)} {method} {_name_status(tables, row)}{end}; {where}"
    lines = wrapped(text, page.width, "   ")
    for line in lines:
        line.stylize("bold")
    yield from lines
    causes = sorted(named(tables.rpc_budgets[row]).items(), key=lambda item: -item[1])
    spent = ", ".join(f"{cause} {duration(ns)} ({ns / took:.0%})" for cause, ns in causes[:_CAUSES])
    rest = sum(ns for _, ns in causes[_CAUSES:])
    spent += f", other causes {duration(rest)}" if rest else ""
    yield from wrapped(f"time by cause: {spent or 'none'}", page.width, "  ")


def _name_status(tables: Tables, row: int) -> str:
    code = int(tables.rpcs.status[row])
    return "status unknown" if code == NOT_SEEN or code >= len(_core.STATUSES) else str(_core.STATUSES[code])


def show_title(parts: list[Excerpt], page: Page) -> Text:
    """Show the title above several RPCs."""
    which = "slowest RPC" if len(parts) == 1 else f"{len(parts):,} slowest RPCs"
    return Text(f"the {which} of {page.excerpt.tables.rpc_count:,}", style="bold")
