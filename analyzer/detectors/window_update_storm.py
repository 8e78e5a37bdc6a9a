"""WINDOW_UPDATE frames travel in packets of their own, many a second, and are a large part of all packets.

What it finds
-------------
A receiver that answers nearly every DATA frame with a WINDOW_UPDATE in a packet of its own. Windows need an update only
when a good part of them is used up: a quarter in grpc-go, half in others. Small steps cost packets, system calls and
wake-ups at both ends.

How it is decided
-----------------
Packets that carry PING, WINDOW_UPDATE or SETTINGS alone, with a WINDOW_UPDATE among them, are counted over both
directions of a connection; updates that ride along with data cost nothing and are left out. From a hundred such packets
and a tenth of all packets with payload on it is told as `info`. It is a warning when there are at least 200 a second,
500 in all, over a second or more, and either they are two fifths of all packets with payload, or they are a quarter
while 16 or more long streams each send a message at most every 50 ms. A bandwidth estimator that answers each
message of a call-by-call exchange reaches one third: that is its habit, and not a storm.

When it cannot tell
-------------------
Packets that were cut hide frames; such packets are not counted. Storms shorter than the
connection are averaged over it.

What would refute it
--------------------
The packet rate and the load of both ends stay the same with larger windows.

What to do
----------
Larger HTTP/2 windows at the receiver, so that an update is due less often; fixed ones, where an estimator sends updates
with its PINGs. In an application that grants credit itself (`request(1)` in Java, manual flow control): larger steps.

References
----------
- https://github.com/hyperium/h2/issues/39, https://github.com/grpc/grpc/issues/9306
- Envoy protocol.proto, max_inbound_window_update_frames_per_data_frame_sent
- RFC 9113 section 6.9
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..tables import DIRECTIONS, Tables
from . import _control, _figures, _knobs, _shared

ID = "window-update-storm"
ABOUT = About(
    example="recorded/lab/window-update-storm.pcap.gz",
    figure=_figures.packets_alone(lambda side: side.window_update_packets, "WINDOW_UPDATE"),
    caused_by=("small-packets",),
    precedence=9,
    whole_connections=True,
    one_direction=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    told_packets: int = 100
    """WINDOW_UPDATE packets worth telling (own choice: fewer are no habit)."""
    told_share: float = 0.1
    """Share of all packets with payload worth telling (own choice: a tenth)."""
    packets: int = 500
    """WINDOW_UPDATE packets of a storm (own choice: as for `ping-storm`)."""
    per_second: float = 200.0
    """WINDOW_UPDATE packets per second of a storm (own choice: as for `ping-storm`)."""
    duration_ns: int = 1_000_000_000
    """Time a storm lasts (own choice: a shorter capture shows no rate)."""
    share: float = 0.4
    """Share of all packets with payload (an estimator's habit reaches a third; one per DATA packet makes half)."""
    critical_share: float = 0.9
    """Share from which it is critical (own choice: ten packets where one would do)."""
    paced_share: float = 0.25
    """The share where streams are many and slow (own choice: a quarter of all packets is for nothing)."""
    streams: int = 16
    """Streams open at once that are many (own choice: as for `small-packets`)."""
    messages_per_stream: int = 5
    """Messages of a long stream (own choice: a unary call has one)."""
    stream_interval_ns: int = 50_000_000
    """Time between messages of a slow stream (own choice: five times the 10 ms that a message may wait for others)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections with storms, else one for information."""
    d = tables.directions
    if int(d.window_update_packets.max(initial=0)) < limits.told_packets // 2:
        return
    load = _control.load(tables, _control.both(d.window_update_packets))
    told = (load.packets >= limits.told_packets) & (load.share >= limits.told_share)
    many = told & (load.packets >= limits.packets) & (load.per_second >= limits.per_second)
    many &= load.duration_ns >= limits.duration_ns
    slow = _control.paced(tables, limits.streams, limits.messages_per_stream, limits.stream_interval_ns)
    storm = many & ((load.share >= limits.share) | (slow & (load.share >= limits.paced_share)))
    if storm.any():
        yield _finding(tables, load, np.flatnonzero(storm), limits, storm=True)
    elif told.any():
        yield _finding(tables, load, np.flatnonzero(told), limits, storm=False)


def _finding(tables: Tables, load: _control.Load, rows: _control.Rows, limits: Limits, *, storm: bool) -> Finding:
    d, row = tables.directions, int(rows[np.argmax(load.packets[rows])])
    share, rate, count = float(load.share[row]), float(load.per_second[row]), int(load.packets[row])
    side = int(np.argmax(d.window_update_packets[2 * row : 2 * row + 2]))
    end, data = _shared.host(tables, row, side), int(d.data_frames[2 * row + 1 - side])
    updates = int(d.window_updates[2 * row + side])
    critical = storm and share >= limits.critical_share
    counted = f"from here on {count:,} packets carry WINDOW_UPDATE and no data"
    return Finding(
        id=ID,
        title=f"WINDOW_UPDATEs take packets of their own: {share:.0%} of those with payload, {rate:,.0f} a second",
        severity="critical" if critical else "warning" if storm else "info",
        confidence=_shared.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), _shared.methods_of_connections(tables, rows.tolist())),
        lost_ns=None,
        share=None,
        metrics={
            "connections": len(rows),
            "window_update_only_packets": count,
            "payload_packets": int(load.payload_packets[row]),
            "window_update_packet_share": round(share, 4),
            "window_update_packets_per_s": round(rate, 1),
            "sender": DIRECTIONS[side],
            "window_updates": updates,
            "data_frames_received": data,
            "window_updates_per_data_frame": round(updates / max(data, 1), 3),
        },
        evidence=tuple(_control.span_evidence(tables, row, counted)),
        explanation=(
            f"{count:,} of {int(load.payload_packets[row]):,} packets with payload carry WINDOW_UPDATE and no data, "
            f"{rate:,.0f} a second. {end} sent {updates:,} WINDOW_UPDATE frames for {data:,} DATA frames. "
            + ("" if storm else "This is the habit of its library, and told for information.")
        ),
        remedies=_remedies(_shared.implementation(tables, row, side), end),
        references=(
            "https://github.com/hyperium/h2/issues/39",
            "https://github.com/grpc/grpc/issues/9306",
            "RFC 9113 section 6.9",
        ),
        verdict=(
            f"{share:.0%} of the packets with payload only carry WINDOW_UPDATEs ({rate:,.0f} a second, most from "
            f"{end}): give that end larger HTTP/2 windows."
        ),
    )


def _remedies(implementation: str | None, end: str) -> tuple[Remedy, ...]:
    price = f"at {end}: fewer updates, more memory per stream that a slow reader may hold"
    return _knobs.seen_first(
        (
            Remedy(
                "grpc-go",
                "grpc.WithInitialWindowSize(n), grpc.WithInitialConnWindowSize(n); server: grpc.InitialWindowSize(n), "
                "grpc.InitialConnWindowSize(n)",
                f"{price}; switches the bandwidth estimator off too, which sends updates with its PINGs",
            ),
            Remedy("grpc-java", "flowControlWindow(n) of NettyChannelBuilder or NettyServerBuilder", price),
            Remedy(_knobs.C_CORE, "GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES (grpc.http2.lookahead_bytes)", price),
            Remedy("tonic", "initial_stream_window_size(n), initial_connection_window_size(n)", price),
            Remedy("grpc-js", "'grpc-node.flow_control_window': n", price),
            Remedy("grpc-dotnet", "SocketsHttpHandler.InitialHttp2StreamWindowSize = n", price),
            Remedy(
                "Envoy", "http2_protocol_options: initial_stream_window_size, initial_connection_window_size", price
            ),
        ),
        implementation,
    )
