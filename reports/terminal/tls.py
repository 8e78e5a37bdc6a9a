"""Show TLS connections without secrets: what handshakes and records show, and how to get the secrets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count, duration, safe, size
from ...analyzer.model.tls import KEY_LOGS, RecordFacts, Silences, TlsFacts
from ..shared.drawing import more, pair

MOST = 10
"""Connections shown; the rest are counted."""


def parts(analysis: Analysis, *, most: int = MOST, ways: bool = True) -> list[RenderableType]:
    """List the parts of the section; empty without such connections.

    The ways to get secrets are shown only where no RPC could be read, and if `ways` is set.
    """
    if not analysis.tls:
        return []
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in analysis.tls.connections[:most]:
        for line in _list_rows(one, analysis):
            table.add_row(*line)
    head = Text(f"{count(len(analysis.tls.connections), 'TLS connection')} without secrets", style="bold")
    found: list[RenderableType] = [
        Text(),
        Group(head, table, *more(len(analysis.tls.connections) - most, "connection")),
    ]
    return [*found, Text(), _show_key_logs()] if ways and not analysis.totals.rpcs else found


def _list_rows(one: TlsFacts, analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """List the rows of one connection: number, side, text."""
    ends = next((f"{c.client} -> {c.server}" for c in analysis.connections if c.connection == one.connection), "")
    yield f"  {one.connection}", "TLS", f"{safe(ends)}: {', '.join(_describe_handshake(one))}"
    yield from (("", name, "; ".join(texts)) for name, texts in _list_sides(one))
    for cause, blocked in one.blocked.items():
        intervals = count(blocked.waits, "blocked interval")
        yield "", "blocked", f"{intervals} inside a record, {duration(blocked.total_ns)} in total, by {cause}"


def _describe_handshake(one: TlsFacts) -> Iterator[str]:
    yield one.version or "TLS, no ServerHello seen"
    if one.h2 is not None:
        yield "HTTP/2" if one.h2 else "not HTTP/2"
    elif one.offers_h2 is not None:
        yield "offers HTTP/2" if one.offers_h2 else "does not offer HTTP/2"
    if one.resumed:
        yield "resumed"
    if one.retried:
        yield "HelloRetryRequest"
    if one.handshake_ns is not None:
        hello = f", ServerHello after {duration(one.server_hello_ns)}" if one.server_hello_ns is not None else ""
        packets = f" (packets {one.hello_packet:,} to {one.finished_packet:,}{hello})" if one.finished_packet else ""
        yield f"handshake {duration(one.handshake_ns)}{packets}"


def _list_sides(one: TlsFacts) -> Iterator[tuple[str, Sequence[str]]]:
    for name, other, side in (("client", "server", one.client), ("server", "client", one.server)):
        if side.records:
            yield name, tuple(_describe_side(side, other))


def _describe_side(side: RecordFacts, other: str) -> Iterator[str]:
    yield f"{count(side.records, 'record')}, {size(side.bytes)}, longest {side.longest_bytes:,} B"
    if side.answers:
        yield f"{side.answers.count:,} after records of the {other}, {_describe_silences(side.answers)}"
    if side.pauses:
        yield f"{count(side.pauses.count, 'pause')} of 1 ms or more, {_describe_silences(side.pauses)}"


def _describe_silences(silences: Silences) -> str:
    mean = duration(silences.total_ns / silences.count)
    where = f"packets {silences.from_packet:,} to {silences.to_packet:,}"
    return f"mean {mean}, longest {duration(silences.longest_ns)} ({where})"


def _show_key_logs() -> RenderableType:
    head = Text("how to get the secrets (for tests only: with them anyone can decrypt the traffic)", style="bold")
    return Group(head, pair((f"  {log.implementation}", log.how) for log in KEY_LOGS))
