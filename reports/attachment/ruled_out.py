"""What was looked for and not found, each with the figure that speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...analyzer.detectors import DETECTORS
from ...analyzer.model.analysis import Analysis, Traffic
from ..shared.text import count, duration, size

LITTLE = 0.01
"""Share of RPC time below which a cause matters to nobody (own choice)."""


def ruled_out(analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """Of each detector that stayed silent: its finding's id, what it looks for, and what it saw as Markdown."""
    told = {finding.id for finding in analysis.findings} | {skipped.id for skipped in analysis.skipped}
    for detector in DETECTORS:
        if detector.id not in told:
            seen = _SEEN.get(detector.id)
            yield detector.id, _looked_for(detector.page), seen(analysis) if seen else "no packets that show it"


def _looked_for(page: str) -> str:
    """The first sentence of a detector's page."""
    return page.strip().split("\n\n")[0].replace("\n", " ")


def _waited(cause: str) -> Callable[[Analysis], str]:
    def told(analysis: Analysis) -> str:
        total, ns = sum(analysis.budget.values()), analysis.budget.get(cause, 0)
        if not ns:
            return f"`{cause}`: no RPC time"
        share = f"`{cause}`: {duration(ns)} of {duration(total)} of RPC time ({ns / total:.1%})"
        return f"{share}, too little to matter" if ns < LITTLE * total else f"{share}, but not in the pattern of this"

    return told


def _sum(analysis: Analysis, column: Callable[[Traffic], int]) -> int:
    return sum(column(side) for side in analysis.traffic)


def _alone(packets: Callable[[Traffic], int], noun: str) -> Callable[[Analysis], str]:
    def told(analysis: Analysis) -> str:
        own, payload = _sum(analysis, packets), _sum(analysis, lambda side: side.payload_packets)
        return f"{own:,} of {count(payload, 'packet')} with payload carry {noun} and no data"

    return told


def _statuses(*names: str) -> Callable[[Analysis], str]:
    def told(analysis: Analysis) -> str:
        number = sum(method.statuses.get(name, 0) for method in analysis.methods for name in names)
        return f"{number:,} of {count(analysis.totals.rpcs, 'RPC')} ended with {' or '.join(names)}"

    return told


def _ok(analysis: Analysis) -> str:
    ok = sum(method.statuses.get("OK", 0) for method in analysis.methods)
    unseen = sum(method.statuses.get("not_seen", 0) for method in analysis.methods)
    said = f"{ok:,} of {count(analysis.totals.rpcs, 'RPC')} ended with OK"
    return said + (f"; of {unseen:,} the status is not in the capture" if unseen else "")


def _again(analysis: Analysis) -> str:
    again = sum(connection.retransmitted_packets for connection in analysis.connections)
    packets = _sum(analysis, lambda side: side.packets)
    return f"{again:,} of {count(packets, 'packet')} sent again; {_waited('loss_recovery')(analysis)}"


def _streams(analysis: Analysis) -> str:
    limits = [c.peer_max_concurrent_streams for c in analysis.connections if c.peer_max_concurrent_streams is not None]
    most = max((c.max_concurrent_rpcs for c in analysis.connections), default=0)
    limit = f"the lowest limit that a server announced is {min(limits):,}" if limits else "no server announced a limit"
    return f"at most {count(most, 'RPC')} at once on a connection; {limit}"


def _goaways(analysis: Analysis) -> str:
    frames = analysis.totals.frames
    return f"{count(frames.get('GOAWAY', 0), 'GOAWAY frame')}, {count(frames.get('RST_STREAM', 0), 'RST_STREAM frame')}"


def _pings(analysis: Analysis) -> str:
    pings = _sum(analysis, lambda side: side.pings)
    return f"{count(pings, 'PING')}; {count(analysis.totals.frames.get('GOAWAY', 0), 'GOAWAY frame')}"


def _sizes(analysis: Analysis) -> str:
    packets, payload = (_sum(analysis, lambda s: s.payload_packets), _sum(analysis, lambda s: s.payload_bytes))
    messages = _sum(analysis, lambda s: s.messages)
    mean = payload / packets if packets else 0
    return f"{count(packets, 'packet')} with payload for {count(messages, 'message')}, {size(mean)} each on average"


def _churn(analysis: Analysis) -> str:
    totals = analysis.totals
    return f"{count(totals.rpcs, 'RPC')} on {count(totals.connections, 'connection')}"


def _headers(analysis: Analysis) -> str:
    frames = _sum(analysis, lambda side: side.header_frames)
    return f"{count(frames, 'header frame')} in {size(_sum(analysis, lambda side: side.payload_bytes))} of TCP payload"


def _at_once(analysis: Analysis) -> str:
    most = max((c.max_concurrent_rpcs for c in analysis.connections), default=0)
    return f"at most {count(most, 'RPC')} at once on a connection, of {analysis.totals.connections:,}"


def _missing(analysis: Analysis) -> str:
    quality, dropped = analysis.quality, analysis.capture.dropped_packets
    told = "" if dropped is None else f", {count(dropped, 'packet')} dropped while capturing"
    return f"{count(quality.missing_bytes, 'byte')} of payload missing, {quality.truncated_packets:,} cut packets{told}"


_SEEN: Mapping[str, Callable[[Analysis], str]] = {
    "cancelled": _statuses("CANCELLED"),
    "capture-quality": _missing,
    "client-idle-gap": _waited("client"),
    "connection-churn": _churn,
    "connection-closed-early": _goaways,
    "connection-window-stall": _waited("connection_window"),
    "deadline-exceeded": _statuses("DEADLINE_EXCEEDED"),
    "delayed-ack-nagle": _waited("delayed_ack"),
    "head-of-line-blocking": _waited("head_of_line"),
    "header-overhead": _headers,
    "initial-congestion-window": _waited("congestion_window"),
    "loss-recovery": _again,
    "max-concurrent-streams": _streams,
    "ping-storm": _alone(lambda side: side.ping_packets + side.ping_ack_packets, "PING"),
    "receive-window-stall": _waited("receive_window"),
    "request-batching": _at_once,
    "rpc-errors": _ok,
    "server-latency": _waited("server"),
    "shared-connection": _at_once,
    "slow-start-after-idle": _waited("congestion_window"),
    "small-packets": _sizes,
    "stream-window-stall": _waited("stream_window"),
    "too-many-pings": _pings,
    "window-update-storm": _alone(lambda side: side.window_update_packets, "WINDOW_UPDATE"),
}
