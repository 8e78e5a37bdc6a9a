"""What every report says of an analysis as a whole: its main finding, what the capture lacks, what was not judged."""

from collections.abc import Iterator, Sequence

from ...analyzer.model.analysis import Analysis, ConnectionFacts
from ...analyzer.model.finding import Finding, Severity
from ...analyzer.model.text import count, duration, utc

PLACES = {
    "client": "at the client",
    "server": "at the server",
    "middle": "between client and server",
    "unknown": "unknown",
}
"""Where a connection was captured."""


def find_main(analysis: Analysis) -> Finding | None:
    """Find the finding that the verdict is about."""
    return next((f for f in analysis.findings if f.id == analysis.verdict.finding), None)


def judge_verdict(analysis: Analysis) -> Severity | None:
    """Find the severity of the verdict: its finding's, or a warning about a proxy; None without a problem."""
    finding = find_main(analysis)
    return finding.severity if finding else analysis.verdict.severity


def list_flaws(analysis: Analysis) -> list[str]:
    """List what the capture lacks, and how much: `3 packets truncated`."""
    damaged, unsorted = (
        sum(int(finding.metrics.get(name, 0)) for finding in analysis.findings)
        for name in ("damaged_places", "unsorted_packets")
    )
    counts = (
        (damaged, "damaged place in the file", "damaged places in the file"),
        (analysis.capture.dropped_packets or 0, "packet dropped while capturing", "packets dropped while capturing"),
        (analysis.quality.truncated_packets, "packet truncated", "packets truncated"),
        (analysis.quality.missing_bytes, "byte missing", "bytes missing"),
        (analysis.quality.undecoded_bytes, "byte not decoded", "bytes not decoded"),
        (unsorted, "packet out of the order of time", "packets out of the order of time"),
    )
    return [count(*flaw) for flaw in counts if flaw[0]]


def list_vantages(analysis: Analysis) -> str:
    """List where the capture was taken: `at the client`."""
    return ", ".join(sorted({PLACES[connection.vantage] for connection in analysis.connections})) or "unknown"


def format_span(analysis: Analysis) -> str:
    """Format the duration of the capture."""
    first, last = analysis.capture.first_time_ns, analysis.capture.last_time_ns
    return duration(last - first) if first is not None and last is not None else "-"


def format_begin(analysis: Analysis) -> str:
    """Format when the capture begins: ` from 2026-11-21 02:19:02.273847 UTC`; empty without packets."""
    first = analysis.capture.first_time_ns
    return "" if first is None else f" from {utc(first)} UTC"


def list_not_judged(analysis: Analysis) -> Iterator[tuple[Sequence[str], str]]:
    """List the findings that the capture cannot decide, grouped by reason."""
    reasons: dict[str, dict[str, None]] = {}
    for skipped in analysis.skipped:
        reasons.setdefault(skipped.reason, {})[skipped.id] = None
    yield from ((tuple(ids), reason) for reason, ids in reasons.items())


def format_round_trip(c: ConnectionFacts) -> str:
    """Format the smallest round trip; without a handshake a delayed ACK may be in it, so it is an upper bound."""
    return ("at most " if c.min_rtt_ns and c.handshake_rtt_ns is None else "") + duration(c.min_rtt_ns)


def list_implementations(c: ConnectionFacts) -> tuple[tuple[str | None, bool], tuple[str | None, bool]]:
    """Give the implementations of client and server, and whether each is inferred."""
    return (
        (c.client_implementation, c.client_implementation_inferred),
        (c.server_implementation, c.server_implementation_inferred),
    )
