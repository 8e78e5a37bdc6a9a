"""What a time line is of: the ends of a connection, what was drawn of it, how full it was."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from ...analyzer import _core
from ...analyzer.model.budget import named
from ...analyzer.model.text import count, duration, safe, size
from ...analyzer.summary import figures
from ...analyzer.tables import COMPLETE, DIRECTIONS, NOT_SEEN, Tables
from ...analyzer.views.excerpt import Excerpt
from .lanes import lanes
from .page import Page, method_name, wrapped

_CAUSES = 3
"""Causes of an RPC's time that are named."""


def head(page: Page) -> list[Text]:
    """Whose connection it is, what the range holds, and how full it was."""
    excerpt = page.excerpt
    stream = "" if excerpt.stream is None else f", stream {excerpt.stream}"
    title = Text(f"connection {excerpt.connection}{stream}", style="bold")
    return [title, *ends(page), *drawn(page)]


def ends(page: Page) -> list[Text]:
    """Both ends of the connection."""
    tables, row = page.excerpt.tables, page.excerpt.connection
    c = figures.connection(tables, row)
    lines = []
    for side, end, runs, inferred in (
        ("client", c.client, c.client_implementation, c.client_implementation_inferred),
        ("server", c.server, c.server_implementation, c.server_implementation_inferred),
    ):
        said = safe(runs) + (" (inferred)" if inferred else "") if runs else "implementation not known"
        lines += wrapped(f"{side} {end}  {said}", page.width, "  ")
    mss = tables.connections.mss_client[row], tables.connections.mss_server[row]
    segments = " / ".join(f"{int(m):,} B" if m else "-" for m in mss)
    opening = "" if c.complete else "; begun before the capture"
    protocol = "" if c.protocol == "http2" else f"; {c.protocol}: packets only"
    text = f"RTT {duration(c.min_rtt_ns)}, MSS {segments}, captured at: {c.vantage}{opening}{protocol}"
    return lines + wrapped(text, page.width, "  ")


def drawn(page: Page) -> list[Text]:
    """What the range holds, its waits, and the lanes."""
    excerpt, bursts = page.excerpt, page.sequence.bursts
    sides = []
    for side, name in enumerate(DIRECTIONS):
        mine = bursts.direction == side
        sides.append(
            f"{name} {count(int(bursts.packets[mine].sum()), 'packet')} {size(int(bursts.bytes[mine].sum()))} "
            f"{count(len(page.sequence.frame_rows[side]), 'frame')}"
        )
    span = f"{page.time(excerpt.start_ns)} s to {page.time(excerpt.end_ns)} s"
    begun = "" if excerpt.rpc is not None else f"; {count(_begun(page), 'RPC')} begun"
    lines = wrapped(f"{span}, drawn: {', '.join(sides)}{begun}", page.width, "  ")
    rows = page.sequence.wait_rows
    own = rows if excerpt.stream is None else rows[page.sequence.waits.stream[rows] == excerpt.stream]
    others = rows[page.sequence.waits.stream[rows] != excerpt.stream] if excerpt.rpc is not None else rows[:0]
    told = page.waits_by_cause(own)
    if page.sequence.short_waits:
        short, ns = page.sequence.short_waits, page.sequence.short_waits_ns
        told.append(f"{short:,} too short to draw {duration(ns)}")
    meanwhile = f"; of other streams meanwhile: {', '.join(page.waits_by_cause(others))}" if len(others) else ""
    lines += wrapped(f"waits: {', '.join(told) or 'none'}{meanwhile}", page.width, "  ")
    return lines + lanes(excerpt, page.sequence, page.width)


def _begun(page: Page) -> int:
    excerpt, rpcs = page.excerpt, page.excerpt.tables.rpcs
    begun = rpcs.start_time_ns[page.by_start]
    mine = (begun >= excerpt.start_ns) & (begun <= excerpt.end_ns)
    if excerpt.stream is not None:
        mine &= rpcs.stream[page.by_start] == excerpt.stream
    return int(mine.sum())


def rpc_line(page: Page, number: int) -> Iterator[Text]:
    """Which RPC a time line is of: how long it took, and where that time went."""
    tables, row = page.excerpt.tables, page.excerpt.rpc or 0
    rpcs = tables.rpcs
    took = int(rpcs.duration_ns[row])
    where = f"connection {page.excerpt.connection}, stream {page.excerpt.stream}"
    end = "" if rpcs.flags[row] & COMPLETE else ", no end in the capture"
    text = (
        f"{number}. {duration(took)} {method_name(tables, int(rpcs.method[row]))} {_status(tables, row)}{end}; {where}"
    )
    lines = wrapped(text, page.width, "   ")
    for line in lines:
        line.stylize("bold")
    yield from lines
    causes = sorted(named(tables.rpc_budgets[row]).items(), key=lambda item: -item[1])
    spent = ", ".join(f"{cause} {duration(ns)} ({ns / took:.0%})" for cause, ns in causes[:_CAUSES])
    rest = sum(ns for _, ns in causes[_CAUSES:])
    spent += f", other causes {duration(rest)}" if rest else ""
    yield from wrapped(f"time: {spent or 'none'}", page.width, "  ")


def _status(tables: Tables, row: int) -> str:
    code = int(tables.rpcs.status[row])
    return "no status" if code == NOT_SEEN or code >= len(_core.STATUSES) else str(_core.STATUSES[code])


def titled(parts: list[Excerpt], page: Page) -> Text:
    """What the first page of several stands under."""
    rpcs = page.excerpt.tables.rpcs
    return Text(f"the {count(len(parts), 'slowest RPC', 'slowest RPCs')} of {len(rpcs.connection):,}", style="bold")
