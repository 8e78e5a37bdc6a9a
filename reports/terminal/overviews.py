"""Methods and connections on a terminal: tables, or paragraphs where a table has no room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import ConnectionFacts, MethodFacts
from ...analyzer.model.text import count, duration, safe
from ..shared.drawing import NARROW, more

MOST = 20
"""Methods or connections shown; the rest are counted."""

_QUANTILES = ("p50", "p90", "p99", "max")


def methods(found: Sequence[MethodFacts], width: int, most: int) -> Iterator[RenderableType]:
    """Latencies by method, and for streams how fast their messages are."""
    shown = found[:most]
    if width < NARROW:
        yield Text("methods", style="bold")
        yield from (_method_line(method) for method in shown)
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("method", overflow="fold")
        table.add_column("RPCs", justify="right", no_wrap=True)
        table.add_column("statuses")
        for name in _QUANTILES:
            table.add_column(name, justify="right", no_wrap=True)
        for method in shown:
            table.add_row(Text(_name(method)), f"{method.rpcs:,}", _statuses(method), *_latencies(method))
        yield table
    yield from (_stream(method) for method in shown if method.messages > 2 * method.rpcs and method.messages_per_s)
    yield from more(len(found) - most, "method")


def _name(method: MethodFacts) -> str:
    return safe(method.method or method.label or "(not in the capture)")


def _statuses(method: MethodFacts) -> str:
    names = method.statuses
    return ", ".join(f"{name} {n:,}" if len(names) > 1 else name for name, n in names.items())


def _latencies(method: MethodFacts) -> list[str]:
    q = method.latency_ns
    return [duration(getattr(q, name)) if q else "-" for name in _QUANTILES]


def _method_line(method: MethodFacts) -> Text:
    latencies = ", ".join(f"{n} {v}" for n, v in zip(_QUANTILES, _latencies(method), strict=True))
    return Text(f"  {_name(method)}: {count(method.rpcs, 'RPC')}, {_statuses(method)}; {latencies}")


def _stream(method: MethodFacts) -> Text:
    """What long RPCs do: their own duration says little."""
    said = f"{_name(method)}: {method.messages:,} messages, "
    said += f"{method.messages_per_s or 0:,.0f} a second, both directions"
    turn = method.turnaround_ns
    if turn:
        said += f"; answered after {duration(turn.p50)} (p50), {duration(turn.p99)} (p99)"
    return Text(said, style="dim")


def connections(found: Sequence[ConnectionFacts], width: int, most: int) -> Iterator[RenderableType]:
    """Who spoke to whom, how much, and what ran there."""
    shown = found[:most]
    runs = sorted({_runs(c) for c in shown})
    if width < NARROW:
        yield Text("connections", style="bold")
        yield from (_connection_line(connection, with_runs=len(runs) > 1) for connection in shown)
    else:
        yield _connection_table(shown, with_runs=len(runs) > 1)
    if len(runs) == 1:
        yield Text(f"{'all run' if len(shown) > 1 else 'runs'} {runs[0]}", style="dim")
    yield from more(len(found) - most, "connection")


def _connection_table(shown: Sequence[ConnectionFacts], with_runs: bool) -> Table:
    again = any(c.retransmitted_packets for c in shown)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    # an address is never parted
    longest = max((len(word) for c in shown for word in _ends(c).split()), default=0)
    table.add_column("client -> server", overflow="fold", min_width=longest)
    for name in ("RPCs", "at once", "min RTT", "packets", *(["again"] if again else [])):
        table.add_column(name, justify="right", no_wrap=True)
    if with_runs:
        table.add_column("runs", overflow="fold")
    for c in shown:
        figures = [f"{c.rpcs:,}", f"{c.max_concurrent_rpcs:,}", duration(c.min_rtt_ns), f"{_packets(c):,}"]
        figures += [f"{c.retransmitted_packets:,}"] if again else []
        table.add_row(str(c.connection), _ends(c), *figures, *([Text(_runs(c))] if with_runs else []))
    return table


def _packets(c: ConnectionFacts) -> int:
    return c.packets_client + c.packets_server


def _ends(c: ConnectionFacts) -> str:
    return f"{c.client} -> {c.server}" + (" TLS" if c.tls else "") + ("" if c.complete else " (begun before)")


def _connection_line(c: ConnectionFacts, with_runs: bool) -> Text:
    figures = f"{count(c.rpcs, 'RPC')}, {c.max_concurrent_rpcs:,} at once, min RTT {duration(c.min_rtt_ns)}"
    figures += f", {count(_packets(c), 'packet')}"
    figures += f" ({c.retransmitted_packets:,} sent again)" if c.retransmitted_packets else ""
    return Text(f"  #{c.connection} {_ends(c)}: {figures}" + (f"; {_runs(c)}" if with_runs else ""))


def _runs(c: ConnectionFacts) -> str:
    ends = (
        (c.client_implementation, c.client_implementation_inferred),
        (c.server_implementation, c.server_implementation_inferred),
    )
    said = [safe(name) + (" (inferred)" if inferred else "") if name else "?" for name, inferred in ends]
    return " -> ".join(said)
