"""Show methods and connections on a terminal: as tables, or as paragraphs where a table does not fit."""

from collections.abc import Container, Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis, ConnectionFacts, MethodFacts
from ...analyzer.model.text import count, duration, format_number, safe
from ..shared.drawing import NARROW, more
from ..shared.quality import format_round_trip, list_implementations
from ..shared.sentences import describe_requests, describe_total, name_path, name_status

MOST = 20
"""Methods or connections shown; the rest are counted."""

_MOST_STATUSES = 4
"""Statuses shown for a method; the rest are one number."""
_QUANTILES = ("p50", "p90", "p99", "max")


def methods(found: Sequence[MethodFacts], width: int, most: int) -> Iterator[RenderableType]:
    """Show latencies by method, and for streams the rate of messages."""
    shown = found[:most]
    if width < NARROW:
        yield Text("methods", style="bold")
        yield from (_show_method(method) for method in shown)
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("method", overflow="fold")
        table.add_column("RPCs", justify="right", no_wrap=True)
        table.add_column("statuses")
        for name in _QUANTILES:
            table.add_column(name, justify="right", no_wrap=True)
        for method in shown:
            row = (Text(_name_method(method)), f"{method.rpcs:,}", _format_statuses(method))
            table.add_row(*row, *_format_latencies(method))
        yield table
    yield from (_show_stream(method) for method in shown if method.messages > 2 * method.rpcs and method.messages_per_s)
    yield from more(len(found) - most, "method")


def _name_method(method: MethodFacts) -> str:
    return safe(method.method or method.label or "(method not readable)")


def _format_statuses(method: MethodFacts) -> str:
    if len(method.statuses) == 1:
        return name_status(*method.statuses)
    most = sorted(method.statuses.items(), key=lambda item: -item[1])
    others = sum(n for _, n in most[_MOST_STATUSES:])
    shown = most[:_MOST_STATUSES] + ([("others", others)] if others else [])
    return ", ".join(f"{name_status(name)} {n:,}" for name, n in shown)


def _format_latencies(method: MethodFacts) -> list[str]:
    q = method.latency_ns
    return [duration(getattr(q, name)) if q else "-" for name in _QUANTILES]


def _show_method(method: MethodFacts) -> Text:
    latencies = ", ".join(f"{n} {v}" for n, v in zip(_QUANTILES, _format_latencies(method), strict=True))
    return Text(f"  {_name_method(method)}: {count(method.rpcs, 'RPC')}, {_format_statuses(method)}; {latencies}")


def _show_stream(method: MethodFacts) -> Text:
    """Show the message rate and response time of long RPCs, whose own duration says little."""
    text = f"{_name_method(method)}: {method.messages:,} messages, "
    text += f"{format_number(method.messages_per_s or 0)} per second, both directions"
    response = method.turnaround_ns
    if response:
        text += f"; response time {duration(response.p50)} (p50), {duration(response.p99)} (p99)"
    return Text(text, style="dim")


def show_other_requests(analysis: Analysis, most: int) -> Iterator[RenderableType]:
    """Show HTTP/2 requests that are no RPCs; nothing without any."""
    found = analysis.other_requests
    if found:
        yield Text()
        yield Text(describe_total(analysis), style="bold")
        yield from (Text(f"  {safe(name_path(one))}: {describe_requests(one)}") for one in found[:most])
        yield from more(len(found) - most, "path or status", "paths or statuses")


def connections(
    found: Sequence[ConnectionFacts], width: int, most: int, behind: Container[int] = ()
) -> Iterator[RenderableType]:
    """Show the ends of each connection, its traffic, and the gRPC implementations; mark those `behind` a proxy."""
    shown = found[:most]
    names = sorted({_name_implementations(c) for c in shown})
    if width < NARROW:
        yield Text("connections", style="bold")
        yield from (_show_connection(connection, behind, with_names=len(names) > 1) for connection in shown)
    else:
        yield _show_connections(shown, behind, with_names=len(names) > 1)
    if len(names) == 1:
        yield Text(f"implementations: {names[0]}", style="dim")
    yield from more(len(found) - most, "connection")


def _show_connections(shown: Sequence[ConnectionFacts], behind: Container[int], with_names: bool) -> Table:
    retransmitted = any(c.retransmitted_packets for c in shown)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    # an address is never split over two lines
    longest = max((len(word) for c in shown for word in _name_ends(c, behind).split()), default=0)
    table.add_column("client -> server", overflow="fold", min_width=longest)
    for name in ("RPCs", "concurrent", "min RTT", "packets", *(["retransmitted"] if retransmitted else [])):
        table.add_column(name, justify="right", no_wrap=True)
    if with_names:
        table.add_column("implementations", overflow="fold")
    for c in shown:
        calls = ["", ""] if c.protocol == "tls" else [f"{c.rpcs:,}", f"{c.max_concurrent_rpcs:,}"]
        figures = [*calls, format_round_trip(c), f"{_count_packets(c):,}"]
        figures += [f"{c.retransmitted_packets:,}"] if retransmitted else []
        table.add_row(
            str(c.connection), _name_ends(c, behind), *figures, *([Text(_name_implementations(c))] * with_names)
        )
    return table


def _count_packets(c: ConnectionFacts) -> int:
    return c.packets_client + c.packets_server


def _name_ends(c: ConnectionFacts, behind: Container[int]) -> str:
    name = f"{c.client} -> {c.server}" + (" TLS" if c.tls else "") + ("" if c.complete else " (opened before)")
    return name + (" (behind a proxy)" if c.connection in behind else "")


def _show_connection(c: ConnectionFacts, behind: Container[int], with_names: bool) -> Text:
    figures = f"{count(c.rpcs, 'RPC')}, {c.max_concurrent_rpcs:,} concurrent, " * (c.protocol != "tls")
    figures += f"min RTT {format_round_trip(c)}, {count(_count_packets(c), 'packet')}"
    figures += f" ({c.retransmitted_packets:,} retransmitted)" if c.retransmitted_packets else ""
    return Text(f"  #{c.connection} {_name_ends(c, behind)}: {figures}" + f"; {_name_implementations(c)}" * with_names)


def _name_implementations(c: ConnectionFacts) -> str:
    names = [safe(name) + " (inferred)" * inferred if name else "unknown" for name, inferred in list_implementations(c)]
    return " -> ".join(names)
