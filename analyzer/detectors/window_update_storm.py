"""WINDOW_UPDATE frames are sent in separate packets, many a second, and are a large part of all packets.

What it finds
-------------
A receiver responds to nearly every DATA frame with a WINDOW_UPDATE in a separate packet. These packets cost system
calls and wake-ups at both ends.

Windows need an update only when a good part of them is used up: a quarter in grpc-go, half in others.

How it is decided
-----------------
A packet counts when it carries PING, WINDOW_UPDATE or SETTINGS alone, with a WINDOW_UPDATE among them. Both
directions of a connection are counted. WINDOW_UPDATEs in a packet with data cost nothing and are left out.

It is `info` from a hundred such packets and a tenth of all packets with payload on. It is a warning when there are
at least 200 a second, 500 in all, over a second or more, and one of these holds:

- They are two fifths of all packets with payload.
- They are a quarter, while 16 or more long streams each send a message at most every 50 ms.

A BDP estimator that probes for each message of a call-by-call exchange reaches one third: that is normal for it, and
not a storm.

When it cannot tell
-------------------
Packets that were cut hide frames; such packets are not counted. Storms shorter than the connection are averaged over
it.

What would refute it
--------------------
The packet rate and the load of both ends stay the same with larger windows.

What to do
----------
Give the receiver larger HTTP/2 windows, so that an update is due less often. Give it fixed ones where a BDP
estimator sends updates with its PINGs. An application that grants flow-control credit itself (`request(1)` in Java,
manual flow control) should grant it in larger steps.

References
----------
- https://github.com/hyperium/h2/issues/39, https://github.com/grpc/grpc/issues/9306
- Envoy protocol.proto, max_inbound_window_update_frames_per_data_frame_sent
- RFC 9113 section 6.9
"""

from collections.abc import Iterator

import numpy as np

from ..facts import contradictions, control, hosts, methods, ratings
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import DIRECTIONS, Tables

ID = "window-update-storm"
ABOUT = About(
    example="recorded/lab/window-update-storm.pcap.gz",
    figure=contradictions.packets_alone(lambda side: side.window_update_packets, "WINDOW_UPDATE"),
    caused_by=("small-packets",),
    precedence=9,
    whole_connections=True,
    one_direction=True,
    picture="packet_rates",
    explains=("control_packets",),
)


class Limits(control.StormLimits, frozen=True, eq=False):
    share: float = 0.4
    """Share of all packets with payload (a BDP estimator reaches a third; one per DATA packet makes half)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with storms; one as `info` when there are none."""
    d = tables.directions
    if int(d.window_update_packets.max(initial=0)) < limits.told_packets // 2:
        return
    load = control.measure_load(tables, control.sum_directions(d.window_update_packets))
    rows, storm = control.find_storms(tables, load, limits)
    if len(rows):
        yield _make_finding(tables, load, rows, limits, storm=storm)


def _make_finding(tables: Tables, load: control.Load, rows: control.Rows, limits: Limits, *, storm: bool) -> Finding:
    d, row = tables.directions, int(rows[np.argmax(load.packets[rows])])
    share, rate, count = float(load.share[row]), float(load.per_second[row]), int(load.packets[row])
    side = int(np.argmax(d.window_update_packets[2 * row : 2 * row + 2]))
    end, data = hosts.host(tables, row, side), int(d.data_frames[2 * row + 1 - side])
    updates = int(d.window_updates[2 * row + side])
    critical = storm and share >= limits.critical_share
    counted = f"from here on {count:,} packets carry WINDOW_UPDATE and no data"
    return Finding(
        id=ID,
        title=f"{rate:,.0f} packets a second carry only WINDOW_UPDATEs"
        + control.add_streams(tables, row, share, limits, storm=storm),
        severity="critical" if critical else "warning" if storm else "info",
        confidence=ratings.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
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
        evidence=(
            *control.show_second(tables, 2 * row + side, "update", "WINDOW_UPDATEs"),
            *control.show_span(tables, row, counted),
        ),
        explanation=(
            f"{count:,} of {int(load.payload_packets[row]):,} packets with payload carry WINDOW_UPDATE and no data, "
            f"{rate:,.0f} a second. {end} sent {updates:,} WINDOW_UPDATE frames for {data:,} DATA frames."
            f" {control.explain_severity(tables, row, share, limits, storm=storm)}"
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, side), end),
        references=(
            "https://github.com/hyperium/h2/issues/39",
            "https://github.com/grpc/grpc/issues/9306",
            "RFC 9113 section 6.9",
        ),
        verdict=(
            f"{share:.0%} of the packets with payload only carry WINDOW_UPDATEs, most from {end}: give that end larger "
            "HTTP/2 windows."
        ),
    )


def _list_remedies(implementation: str | None, end: str) -> tuple[Remedy, ...]:
    price = f"at {end}: fewer updates; a slow reader may hold more memory per stream"
    return settings.list_settings(intents.FEWER_UPDATES, recognise(implementation), price)
