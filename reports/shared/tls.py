"""Say what a TLS connection without secrets shows: its handshake, its records and its silences."""

from collections.abc import Iterator

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count, duration, safe, size
from ...analyzer.model.tls import RecordFacts, Silences, TlsFacts


def list_rows(one: TlsFacts, analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """List the rows of one connection: number, side, text."""
    ends = next((f"{c.client} -> {c.server}" for c in analysis.connections if c.connection == one.connection), "")
    yield str(one.connection), "TLS", f"{safe(ends)}: {', '.join(_describe_handshake(one))}"
    for name, other, side in (("client", "server", one.client), ("server", "client", one.server)):
        if side.records:
            yield "", name, "; ".join(_describe_side(side, other))
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
