"""TLS connections without secrets, for the terminal: what their handshakes and records tell, and how to read more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count, duration, safe, size
from ...analyzer.model.tls import KEY_LOGS, RecordFacts, Silences, TlsFacts

MOST = 10
"""Connections shown; the rest are counted."""


def parts(analysis: Analysis) -> list[RenderableType]:
    """The section, empty without such connections. The ways to secrets are shown where no RPC could be read."""
    if not analysis.tls:
        return []
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in analysis.tls.connections[:MOST]:
        for line in _connection(one, analysis):
            table.add_row(*line)
    rest = len(analysis.tls.connections) - MOST
    more = [Text(f"... and {count(rest, 'more connection')}", style="dim")] if rest > 0 else []
    head = Text(f"{count(len(analysis.tls.connections), 'TLS connection')} without secrets", style="bold")
    found: list[RenderableType] = [Text(), Group(head, table, *more)]
    return found if analysis.totals.rpcs else [*found, Text(), _ways()]


def _connection(one: TlsFacts, analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """Rows of number, who, and what."""
    ends = next((f"{c.client} -> {c.server}" for c in analysis.connections if c.connection == one.connection), "")
    yield f"  {one.connection}", "TLS", f"{safe(ends)}: {', '.join(_handshake(one))}"
    yield from (("", name, "; ".join(said)) for name, said in _sides(one))
    for cause, blocked in one.blocked.items():
        waits = count(blocked.waits, "wait")
        yield "", "waits", f"{waits} inside a record, {duration(blocked.total_ns)} in all, for {cause}"


def _handshake(one: TlsFacts) -> Iterator[str]:
    yield one.version or "TLS, no ServerHello seen"
    if one.h2 is not None:
        yield "HTTP/2" if one.h2 else "not HTTP/2"
    elif one.offers_h2 is not None:
        yield "offers HTTP/2" if one.offers_h2 else "does not offer HTTP/2"
    if one.resumed:
        yield "resumed"
    if one.retried:
        yield "asked for a second ClientHello"
    if one.handshake_ns is not None:
        hello = f", ServerHello after {duration(one.server_hello_ns)}" if one.server_hello_ns is not None else ""
        packets = f" (packets {one.hello_packet:,} to {one.finished_packet:,}{hello})" if one.finished_packet else ""
        yield f"handshake {duration(one.handshake_ns)}{packets}"


def _sides(one: TlsFacts) -> Iterator[tuple[str, Sequence[str]]]:
    for name, other, side in (("client", "server", one.client), ("server", "client", one.server)):
        if side.records:
            yield name, tuple(_side(side, other))


def _side(side: RecordFacts, other: str) -> Iterator[str]:
    yield f"{count(side.records, 'record')}, {size(side.bytes)}, the longest {side.longest_bytes:,} B"
    if side.answers:
        yield f"{side.answers.count:,} after the {other}'s, {_silences(side.answers)}"
    if side.pauses:
        yield f"{count(side.pauses.count, 'pause')} of 1 ms or more, {_silences(side.pauses)}"


def _silences(silences: Silences) -> str:
    mean = duration(silences.total_ns / silences.count)
    where = f"packets {silences.from_packet:,} to {silences.to_packet:,}"
    return f"by {mean} on average and {duration(silences.longest_ns)} at the most ({where})"


def _ways() -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for log in KEY_LOGS:
        table.add_row(f"  {log.implementation}", log.how)
    return Group(Text("how to get the secrets, for a test only: they open all of it", style="bold"), table)
