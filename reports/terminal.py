"""The report for a terminal: what happened, the proof, and what to do, in one screen."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..analyzer.result import Analysis, ConnectionFacts, Finding, MethodFacts
from .text import count, duration, safe, size

CAUSE_STYLES = {
    "client": "cyan",
    "server": "blue",
    "network": "white",
    "transmission": "green",
    "congestion_window": "red",
    "receive_window": "magenta",
    "stream_window": "yellow",
    "connection_window": "bright_yellow",
    "loss_recovery": "bright_red",
    "delayed_ack": "bright_magenta",
    "head_of_line": "bright_cyan",
    "capture_gap": "bright_black",
    "unexplained": "bright_black",
}
"""Colours of causes in bars; the words beside them carry the meaning."""

SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
"""Colours of severities."""

MOST_METHODS = 20
"""Methods shown; the rest are counted."""
MOST_CONNECTIONS = 20
"""Connections shown; the rest are counted."""


def render(analysis: Analysis, *, width: int = 100, colour: bool = False) -> str:
    """The report as text, with escape sequences only when `colour` is set."""
    return draw(_parts(analysis), width=max(60, width), colour=colour)


def draw(parts: Iterable[RenderableType], *, width: int, colour: bool, wrap: bool = True) -> str:
    """Parts one below the other as text, with escape sequences only when `colour` is set."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=not wrap,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(analysis: Analysis) -> list[RenderableType]:
    parts: list[RenderableType] = [_capture_line(analysis), _quality_line(analysis), Text()]
    parts += [_verdict(analysis), Text(), _budget(analysis)]
    for number, finding in enumerate(analysis.findings, start=1):
        parts += [Text(), _finding(number, finding, analysis)]
    parts += [Text(), _methods(analysis), Text(), _connections(analysis)]
    for skipped in analysis.skipped:
        parts += [Text(f"\nnot judged: {skipped.id}: {safe(skipped.reason)}", style="dim")]
    for warning in analysis.quality.warnings:
        parts.append(Text(f"\nnote: {safe(warning)}", style="dim"))
    return parts


def _capture_line(analysis: Analysis) -> Text:
    capture, totals = analysis.capture, analysis.totals
    first, last = capture.first_time_ns, capture.last_time_ns
    span = duration(last - first) if first is not None and last is not None else "-"
    names = safe(analysis.files[0]) + (f" and {len(analysis.files) - 1} more" if len(analysis.files) > 1 else "")
    line = Text(names, style="bold")
    line.append(
        f"  {count(capture.packets, 'packet')}, {size(capture.bytes)} in {span}, {'/'.join(capture.link_types)}; "
        f"{count(totals.connections, 'connection')}, {count(totals.rpcs, 'RPC')}, {count(totals.messages, 'message')}",
        style="not bold",
    )
    return line


def _quality_line(analysis: Analysis) -> Text:
    quality, capture = analysis.quality, analysis.capture
    flaws = [
        (capture.dropped_packets or 0, "packets dropped while capturing"),
        (quality.truncated_packets, "packets cut"),
        (quality.missing_bytes, "bytes missing"),
        (quality.undecoded_bytes, "bytes not decoded"),
    ]
    said = [f"{n:,} {what}" for n, what in flaws if n]
    vantages = sorted({connection.vantage for connection in analysis.connections})
    line = Text("quality ", style="dim")
    line.append("nothing missing" if not said else ", ".join(said), style="yellow" if said else "green")
    line.append(f"; captured at: {', '.join(vantages)}", style="dim")
    if quality.warnings:
        line.append(f"; {count(len(quality.warnings), 'note')} below", style="dim")
    return line


def _verdict(analysis: Analysis) -> Panel:
    finding = next((f for f in analysis.findings if f.id == analysis.verdict.finding), None)
    style = SEVERITY_STYLES[finding.severity] if finding else "green"
    return Panel(Text(safe(analysis.verdict.text)), title="verdict", title_align="left", border_style=style)


def _budget(analysis: Analysis) -> RenderableType:
    total = sum(analysis.budget.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for cause, ns in sorted(analysis.budget.items(), key=lambda item: -item[1]):
        share = ns / total
        bar = "█" * max(round(share * 40), 0) or "▏"
        table.add_row(f"  {cause}", duration(ns), f"{share:.1%}", Text(bar, style=CAUSE_STYLES.get(cause, "")))
    return Group(Text(f"where {duration(total)} of RPC time went", style="bold"), table)


def _finding(number: int, finding: Finding, analysis: Analysis) -> RenderableType:
    start = analysis.capture.first_time_ns or 0
    head = Text(f"{number}. ", style="bold")
    head.append(finding.severity, style=SEVERITY_STYLES[finding.severity])
    head.append(f" {finding.id}", style="bold")
    head.append(f"  {safe(finding.title)}")
    cost = Text(style="dim")
    if finding.lost_ns is not None and finding.share is not None:
        cost.append(f"lost {duration(finding.lost_ns)}, {finding.share:.1%} of RPC time; ")
    cost.append(f"confidence {finding.confidence}; connections {', '.join(map(str, finding.scope.connections))}")
    if finding.scope.methods:
        cost.append(f"; {', '.join(map(safe, finding.scope.methods))}")
    evidence = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "right", "left"):
        evidence.add_column(justify=justify, no_wrap=justify == "right")
    for item in finding.evidence:
        evidence.add_row(f"#{item.packet}", f"{(item.time_ns - start) / 1e9:.6f} s", safe(item.what))
    knobs = Table.grid(padding=(0, 2, 0, 0))
    for remedy in finding.remedies:
        knobs.add_row(Text(safe(remedy.implementation), style="bold"), Text(safe(f"{remedy.knob}: {remedy.note}")))
    body = Group(
        cost,
        Text(safe(finding.explanation)),
        Text("packets that show it", style="bold"),
        evidence,
        Text("what to do", style="bold"),
        knobs,
        Text(f"more: grpcdiag explain {finding.id}", style="dim"),
    )
    return Group(head, Padding(body, (0, 0, 0, 3)))


def _methods(analysis: Analysis) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("method", overflow="fold")
    table.add_column("RPCs", justify="right")
    table.add_column("statuses")
    for name in ("p50", "p90", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for method in analysis.methods[:MOST_METHODS]:
        table.add_row(*_method_row(method))
    return Group(table, *_more(len(analysis.methods) - MOST_METHODS, "method"))


def _method_row(method: MethodFacts) -> list[str]:
    q = method.latency_ns
    statuses = ", ".join(f"{name} {n:,}" if len(method.statuses) > 1 else name for name, n in method.statuses.items())
    latencies = [duration(v) for v in (q.p50, q.p90, q.p99, q.max)] if q else ["-"] * 4
    return [safe(method.method or "(not in the capture)"), f"{method.rpcs:,}", statuses, *latencies]


def _connections(analysis: Analysis) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right")
    table.add_column("client -> server", overflow="fold")
    table.add_column("RPCs", justify="right")
    table.add_column("at once", justify="right")
    table.add_column("min RTT", justify="right", no_wrap=True)
    table.add_column("packets", justify="right", no_wrap=True)
    table.add_column("runs", overflow="fold")
    for connection in analysis.connections[:MOST_CONNECTIONS]:
        table.add_row(*_connection_row(connection))
    return Group(table, *_more(len(analysis.connections) - MOST_CONNECTIONS, "connection"))


def _connection_row(c: ConnectionFacts) -> list[str]:
    packets = f"{c.packets_client + c.packets_server:,}"
    if c.retransmitted_packets:
        packets += f" ({c.retransmitted_packets:,} again)"
    ends = f"{c.client} -> {c.server}" + (" TLS" if c.tls else "") + ("" if c.complete else " (begun before)")
    runs = f"{_runs(c.client_implementation, c.client_implementation_inferred)} -> "
    runs += _runs(c.server_implementation, c.server_implementation_inferred)
    return [
        str(c.connection),
        ends,
        f"{c.rpcs:,}",
        f"{c.max_concurrent_rpcs:,}",
        duration(c.min_rtt_ns),
        packets,
        runs,
    ]


def _runs(implementation: str | None, inferred: bool) -> str:
    return safe(implementation) + (" (inferred)" if inferred else "") if implementation else "?"


def _more(number: int, noun: str) -> list[Text]:
    return [Text(f"... and {count(number, 'more ' + noun)}", style="dim")] if number > 0 else []
