"""PING frames are sent in separate packets, many a second, and are a large part of all packets.

What it finds
-------------
Hundreds of packets a second carry only PINGs or their acknowledgements. Each such packet costs a system call, an
interrupt and a wake-up at both ends.

Most are BDP probes: grpc-go and grpc-java respond to DATA with a PING to measure the bandwidth-delay product. Others
come from keepalives with a period that is too short.

How it is decided
-----------------
A packet counts when it carries PING, WINDOW_UPDATE or SETTINGS alone, with a PING or the acknowledgement of one
among them. Both directions of a connection are counted. PINGs in a packet with data cost nothing and are left out.

It is `info` from a hundred such packets and a tenth of all packets with payload on. It is a warning when there are
at least 200 a second, 500 in all, over a second or more, and one of these holds:

- They are three quarters of all packets with payload.
- They are a quarter, while 16 or more long streams each send a message at most every 50 ms, so that few PINGs would
  do for many messages.

A BDP estimator that probes for each message of a call-by-call exchange reaches two thirds: that is normal for it,
and not a storm. For grpc-go, grpc-java and .NET the payload of a PING shows its purpose. PINGs of C-core have random
payloads.

The report says which end sent more of all PINGs, those with data included. The verdict names an end that sent more than
60 % of them.

When it cannot tell
-------------------
What a PING was for when its payload does not show it. Storms shorter than the connection are averaged over it.

What would refute it
--------------------
The packet rate and the load of both ends stay the same with the BDP estimator off.

What to do
----------
Give both ends fixed HTTP/2 windows. This switches the BDP estimator off in grpc-go (`grpc.WithInitialWindowSize` and
`grpc.WithInitialConnWindowSize`, on the server `grpc.InitialWindowSize` and `grpc.InitialConnWindowSize`) and in
grpc-java (`flowControlWindow`). With C-core use `GRPC_ARG_HTTP2_BDP_PROBE=0`. Raise keepalive times to minutes.

References
----------
- https://github.com/grpc/grpc-java/issues/8260
- https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md
- Envoy protocol.proto, max_outbound_control_frames: floods of control frames
"""

from collections.abc import Iterator

import numpy as np

from .. import _core
from ..facts import contradictions, control, evidence, hosts, methods, ratings
from ..model import text
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import Tables

ID = "ping-storm"
ABOUT = About(
    example="recorded/field-cases/ably-staggered-veth.pcap.zst",
    figure=contradictions.packets_alone(lambda side: side.ping_packets + side.ping_ack_packets, "PING"),
    caused_by=("small-packets",),
    precedence=8,
    whole_connections=True,
    one_direction=True,
    picture="packet_rates",
    explains=("control_packets",),
)
_EXAMPLES = 4
"""PINGs shown as evidence."""
_MOSTLY = 0.6
"""Share of the PINGs from which the verdict names their sender (heuristic: nearer to a half, both ends send them)."""


class Limits(control.StormLimits, frozen=True, eq=False):
    share: float = 0.75
    """Share of all packets with payload (measured: a BDP estimator reaches two thirds, four packets of six)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with storms; one as `info` when there are none."""
    d = tables.directions
    if int(d.ping_packets.max(initial=0)) + int(d.ping_ack_packets.max(initial=0)) < limits.told_packets // 2:
        return
    packets = np.minimum(d.ping_packets.astype(np.int64) + d.ping_ack_packets, d.control_packets)
    load = control.measure_load(tables, packets.reshape(-1, 2).sum(axis=1))
    rows, storm = control.find_storms(tables, load, limits)
    if len(rows):
        yield _make_finding(tables, load, rows, limits, storm=storm)


def _make_finding(tables: Tables, load: control.Load, rows: control.Rows, limits: Limits, *, storm: bool) -> Finding:
    row = int(rows[np.argmax(load.packets[rows])])
    share, rate, count = float(load.share[row]), float(load.per_second[row]), int(load.packets[row])
    purposes = _count_purposes(tables, row)
    pings = tables.directions.pings[2 * row : 2 * row + 2].astype(np.int64)
    end, most, every = hosts.host(tables, row, int(np.argmax(pings))), int(pings.max()), int(pings.sum())
    critical = storm and share >= limits.critical_share
    return Finding(
        id=ID,
        title=f"{rate:,.0f} packets a second carry only PINGs"
        + control.add_streams(tables, row, share, limits, storm=storm),
        severity="critical" if critical else "warning" if storm else "info",
        confidence=ratings.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        metrics={
            "connections": len(rows),
            "ping_only_packets": count,
            "payload_packets": int(load.payload_packets[row]),
            "ping_packet_share": round(share, 4),
            "ping_packets_per_s": round(rate, 1),
            "messages": control.sum_both(tables.directions.messages, row),
            **{f"{name}_pings": number for name, number in purposes.items()},
        },
        evidence=tuple(_show_pings(tables, row, count)),
        explanation=(
            f"{count:,} of {int(load.payload_packets[row]):,} packets with payload carry a PING or its acknowledgement "
            f"and no data, {rate:,.0f} a second. {_explain_pings(end, most, every, purposes)} "
            f"{control.explain_severity(tables, row, share, limits, storm=storm)}"
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, 0) or hosts.implementation(tables, row, 1)),
        references=(
            "https://github.com/grpc/grpc-java/issues/8260",
            "https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md",
        ),
        verdict=(
            f"{share:.0%} of the packets with payload only carry PINGs or their acknowledgements"
            + (f", most PINGs from {end}" if most > _MOSTLY * every else "")
            + ": set fixed HTTP/2 windows (no BDP estimator), or raise keepalive times."
        ),
    )


_PURPOSES = {
    "bdp": "BDP probe",
    "keepalive": "keepalive PING",
    "drain": "PING of a graceful end",
    "other": "PING of other or unknown purpose",
}
_PLURALS = {"drain": "PINGs of a graceful end", "other": "PINGs of other or unknown purpose"}


def _explain_pings(end: str, most: int, every: int, purposes: dict[str, int]) -> str:
    """Say which end sent more of the PINGs, with data or without, and what all of them were for."""
    if not every:
        return "The PINGs themselves are not in the capture."
    source = f"All {every:,} PINGs come" if most == every else f"Of {every:,} PINGs of both ends, {most:,} come"
    words = [text.count(number, _PURPOSES[name], _PLURALS.get(name)) for name, number in purposes.items() if number]
    return f"{source} from {end}. Their payloads show {', '.join(words)}."


def _count_purposes(tables: Tables, row: int) -> dict[str, int]:
    """Count the PINGs of a connection by purpose."""
    d = tables.directions
    counts = {
        name: control.sum_both(column, row)
        for name, column in (("bdp", d.bdp_pings), ("keepalive", d.keepalive_pings), ("drain", d.drain_pings))
    }
    return {**counts, "other": control.sum_both(d.pings, row) - sum(counts.values())}


def _show_pings(tables: Tables, row: int, count: int) -> Iterator[Evidence]:
    pings = tables.pings
    mine = np.flatnonzero(pings.connection == row)
    direction = 2 * row + int(np.argmax(tables.directions.dense_pings[2 * row : 2 * row + 2]))
    yield from control.show_second(tables, direction, "ping", "PINGs or their acknowledgements")
    for one in mine[:_EXAMPLES].tolist():
        purpose = _core.PING_PURPOSES[pings.purpose[one]]
        kind = "acknowledgement of a PING" if pings.ack[one] else f"PING ({purpose})"
        sender = hosts.host(tables, row, int(pings.direction[one]))
        yield evidence.show_packet(pings, "packet", one, f"{kind} of {sender}")
    yield from control.show_span(tables, row, f"from here on {count:,} packets carry PINGs and no data")


def _list_remedies(implementation: str | None) -> tuple[Remedy, ...]:
    price = "no BDP estimator; the windows stay as set, and limit the memory per stream"
    seldom = Remedy("any gRPC implementation", "keepalive times of minutes", "a dead connection is noticed later")
    return (*settings.list_settings(intents.NO_BDP_PROBES, recognise(implementation), price), seldom)
