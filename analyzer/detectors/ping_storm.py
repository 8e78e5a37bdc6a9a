"""PING frames travel in packets of their own, many a second, and are a large part of all packets.

What it finds
-------------
PINGs and their acknowledgements that take packets of their own. Most come from bandwidth estimators: grpc-go and
grpc-java answer DATA with a PING to measure the bandwidth-delay product; others from keepalives that are set too short.
Each such packet costs a system call, an interrupt and a wake-up at both ends.

How it is decided
-----------------
Packets that carry PING, WINDOW_UPDATE or SETTINGS alone, with a PING or the acknowledgement of one, are counted over
both directions of a connection; PINGs that ride along with data cost nothing and are left out. From a hundred such
packets and a tenth of all packets with payload on it is told as `info`. It is a warning when there are at least 200 a
second, 500 in all, over a second or more, and either they are three quarters of all packets with payload, or they are a
quarter while 16 or more long streams each send a message at most every 50 ms, so that few PINGs would do for many
messages. A bandwidth estimator that answers each message of a call-by-call exchange reaches two thirds: that is its
habit, and not a storm.

Payloads tell the purpose of a PING for grpc-go, grpc-java and .NET. Those of C-core are random.

When it cannot tell
-------------------
What a PING was for when its payload does not say. Storms shorter than the connection are averaged over it.

What would refute it
--------------------
The packet rate and the load of both ends stay the same with the estimator off.

What to do
----------
Give both ends fixed HTTP/2 windows, which switches the estimator off in grpc-go (`grpc.WithInitialWindowSize` and
`grpc.WithInitialConnWindowSize`, on the server `grpc.InitialWindowSize` and `grpc.InitialConnWindowSize`) and in
grpc-java (`flowControlWindow`); with C-core `GRPC_ARG_HTTP2_BDP_PROBE=0`. Raise keepalive times to minutes.

References
----------
- https://github.com/grpc/grpc-java/issues/8260
- https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md
- Envoy protocol.proto, max_outbound_control_frames: floods of control frames
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..tables import Tables
from . import _control, _figures, _knobs, _shared

ID = "ping-storm"
ABOUT = About(
    example="recorded/field-cases/ably-staggered-veth.pcap.zst",
    figure=_figures.packets_alone(lambda side: side.ping_packets + side.ping_ack_packets, "PING"),
    caused_by=("small-packets",),
    precedence=8,
    whole_connections=True,
    one_direction=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    told_packets: int = 100
    """PING packets worth telling (own choice: fewer are no habit)."""
    told_share: float = 0.1
    """Share of all packets with payload worth telling (own choice: a tenth)."""
    packets: int = 500
    """PING packets of a storm (own choice: half of what Envoy lets queue up, max_outbound_control_frames 1000)."""
    per_second: float = 200.0
    """PING packets per second of a storm (own choice: grpc-java issue 8260 had about a thousand)."""
    duration_ns: int = 1_000_000_000
    """Time a storm lasts (own choice: a shorter capture shows no rate)."""
    share: float = 0.75
    """Share of all packets with payload (measured: an estimator's habit reaches two thirds, four packets of six)."""
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
    examples: int = 4
    """PINGs shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections with storms, else one for information."""
    d = tables.directions
    if int(d.ping_packets.max(initial=0)) + int(d.ping_ack_packets.max(initial=0)) < limits.told_packets // 2:
        return
    packets = np.minimum(d.ping_packets.astype(np.int64) + d.ping_ack_packets, d.control_packets)
    load = _control.load(tables, packets.reshape(-1, 2).sum(axis=1))
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
    row = int(rows[np.argmax(load.packets[rows])])
    share, rate, count = float(load.share[row]), float(load.per_second[row]), int(load.packets[row])
    purposes = _purposes(tables, row)
    end = _shared.host(tables, row, int(np.argmax(tables.directions.ping_packets[2 * row : 2 * row + 2])))
    critical = storm and share >= limits.critical_share
    words = ", ".join(f"{number:,} {name}" for name, number in purposes.items() if number)
    return Finding(
        id=ID,
        title=f"PINGs take packets of their own: {share:.0%} of those with payload, {rate:,.0f} a second",
        severity="critical" if critical else "warning" if storm else "info",
        confidence=_shared.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), _shared.methods_of_connections(tables, rows.tolist())),
        lost_ns=None,
        share=None,
        metrics={
            "connections": len(rows),
            "ping_only_packets": count,
            "payload_packets": int(load.payload_packets[row]),
            "ping_packet_share": round(share, 4),
            "ping_packets_per_s": round(rate, 1),
            "messages": int(_control.both(tables.directions.messages)[row]),
            **{f"{name}_pings": number for name, number in purposes.items()},
        },
        evidence=tuple(_evidence(tables, row, count, limits)),
        explanation=(
            f"{count:,} of {int(load.payload_packets[row]):,} packets with payload carry a PING or its acknowledgement "
            f"and no data, {rate:,.0f} a second. PINGs by their payload: {words}. Most of these PINGs come from {end}. "
            + ("" if storm else "This is the habit of its library, and told for information.")
        ),
        remedies=_remedies(_shared.implementation(tables, row, 0) or _shared.implementation(tables, row, 1)),
        references=(
            "https://github.com/grpc/grpc-java/issues/8260",
            "https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md",
        ),
        verdict=(
            f"{share:.0%} of the packets with payload only carry PINGs ({rate:,.0f} a second, most from {end}): fix "
            "the HTTP/2 windows so that no bandwidth estimator runs, and raise keepalive times."
        ),
    )


def _purposes(tables: Tables, row: int) -> dict[str, int]:
    """PINGs of a connection by purpose."""
    d = tables.directions
    counts = {
        name: int(_control.both(column)[row])
        for name, column in (("bdp", d.bdp_pings), ("keepalive", d.keepalive_pings), ("drain", d.drain_pings))
    }
    return {**counts, "other": int(_control.both(d.pings)[row]) - sum(counts.values())}


def _evidence(tables: Tables, row: int, count: int, limits: Limits) -> Iterator[Evidence]:
    pings = tables.pings
    for one in np.flatnonzero(pings.connection == row)[: limits.examples].tolist():
        purpose = _core.PING_PURPOSES[pings.purpose[one]]
        kind = "acknowledgement of a PING" if pings.ack[one] else f"PING ({purpose})"
        sender = _shared.host(tables, row, int(pings.direction[one]))
        yield Evidence(int(pings.packet[one]), int(pings.time_ns[one]), f"{kind} of {sender}")
    yield from _control.span_evidence(tables, row, f"from here on {count:,} packets carry PINGs and no data")


def _remedies(implementation: str | None) -> tuple[Remedy, ...]:
    price = "no bandwidth estimator; the windows stay as set, and bound the memory per stream"
    return _knobs.seen_first(
        (
            Remedy(
                "grpc-go",
                "grpc.WithInitialWindowSize(n), grpc.WithInitialConnWindowSize(n); server: grpc.InitialWindowSize(n), "
                "grpc.InitialConnWindowSize(n), n of 64 KiB or more",
                price,
            ),
            Remedy(
                "grpc-java", "NettyChannelBuilder.flowControlWindow(n), NettyServerBuilder.flowControlWindow(n)", price
            ),
            Remedy(_knobs.C_CORE, "GRPC_ARG_HTTP2_BDP_PROBE=0", price),
            Remedy("tonic", "http2_adaptive_window(false), initial_stream_window_size(n)", price),
            Remedy(
                "any gRPC implementation",
                "keepalive times of minutes",
                "a dead connection is noticed later",
            ),
        ),
        implementation,
    )
