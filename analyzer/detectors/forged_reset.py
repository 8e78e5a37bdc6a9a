"""A RST came from a device on the path, not from the peer whose address it has.

What it finds
-------------
Connections are reset, and neither end says in its log that it did so. A firewall, NAT gateway, load balancer or filter
sent the RST in the name of one end.

The report says which packets give the device away.

How it is decided
-----------------
One of two things proves that the RST has another sender:

- *Distance.* Each router lowers the time to live by one. The RST's passed two or more routers more or fewer than all
  earlier packets of that side. A host may begin at another value (64, 128, 255) for a RST, so the distance counts.
- *The peer goes on.* More than a round trip after its RST the same side sends packets of this connection that are no
  RST. Where the round trip is unknown, this proves nothing.

Supporting facts are shown, but do not decide: the IP identification, and a RST that came sooner after the packet that
it answers than the shortest round trip to that side.

When it cannot tell
-------------------
A device with the same distance as the host, or next to it. A RST may also be from a load balancer that is the
connection's real end: then all packets have its distance, and no RST is forged. A host that goes on may have sent the
RST itself, for a packet of this connection whose addresses a NAT had not translated (conntrack state INVALID): at the
host such a packet belongs to no connection.

What would refute it
--------------------
A capture at the end whose address the RST has shows it leaving that host.

What to do
----------
Find the device by the distance: count the hops back from the capture point. Look into its log and its limits: idle
timeout, table of connections, policy. A capture at both ends shows that the named end sent no RST.

References
----------
- RFC 9293 section 3.5.2 (reset generation)
- RFC 3360 (inappropriate TCP resets)
- Weaver, Sommer, Paxson: Detecting Forged TCP Reset Packets (NDSS 2009)
"""

from collections.abc import Iterator

import numpy as np

from ..facts import evidence, failures, hosts, methods, ratings
from ..facts.resets import comes_from_elsewhere, goes_on
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..tables import Tables

ID = "forged-reset"
ABOUT = About(
    example="recorded/wild/rst-thirdparty.pcap.zst",
    precedence=0,
    weight="affected_share",
    whole_connections=True,
    without_rpcs=True,
    costs=(Cost("affected_rpcs", "{} affected"),),
    proxy_faults=("failed_attempt",),
)


Limits = failures.LossLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RSTs that have another sender than they claim."""
    rows = [
        row
        for row in np.flatnonzero(tables.closings.reset).tolist()
        if comes_from_elsewhere(tables, row) or goes_on(tables, row)
    ]
    # what one proves, another may not: those with a TTL of their own come first, and stand alone
    rows = [row for row in rows if comes_from_elsewhere(tables, row)] or rows
    if rows:
        yield _make_finding(tables, sorted(rows, key=lambda row: (-int(tables.closings.open_rpcs[row]), row)), limits)


def _make_finding(tables: Tables, rows: list[int], limits: Limits) -> Finding:
    c, first = tables.closings, rows[0]
    connections = tuple(sorted({int(c.connection[row]) for row in rows}))
    sides = hosts.name_hosts(tables, c.connection[rows], c.direction[rows])
    side = hosts.host(tables, int(c.connection[first]), int(c.direction[first]))
    hit = int(c.open_rpcs[rows].sum())
    share = hit / max(tables.rpc_count, 1)
    resets = count(len(rows), "RST")
    logs = "that host's log" if sides == side else "these hosts' logs"
    severity = failures.severity_of_loss(hit, tables.rpc_count, limits)
    if severity == "info" and tables.connections.encrypted_bytes[list(connections)].any():
        severity = "warning"  # RPCs that cannot be read may have been open
    far = comes_from_elsewhere(tables, first)
    ended = f" and ended {count(hit, 'RPC')}" if hit else ""
    what = f"A device on the path sent {resets} in the name of {sides}"
    if not far:
        continuing = "a connection that goes on" if len(connections) == 1 else "connections that go on"
        what = f"{resets} in the name of {sides} reset {continuing} there"
    return Finding(
        id=ID,
        title=f"{resets} in the name of {sides} "
        + ("came from a device on the path" if far else "did not come from its connection, which goes on"),
        severity=severity,
        confidence=ratings.lower("high" if far else "medium", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        metrics={
            "resets": len(rows),
            "connections": len(connections),
            "affected_rpcs": hit,
            "affected_share": share,
            "ttl": int(c.ttl[first]),
            "ttl_of_that_side": int(c.most_ttl[first]),
        },
        evidence=tuple(
            item for place in hosts.pick_apart(tables, c.connection[rows]) for item in _show_reset(tables, rows[place])
        ),
        explanation=" ".join([*_list_proofs(tables, first, side), *_list_others(rows)]),
        remedies=_list_remedies(sides),
        references=("RFC 9293 section 3.5.2", "RFC 3360", "Weaver, Sommer, Paxson (NDSS 2009)"),
        verdict=(f"{what}{ended}: look for a firewall, NAT or load balancer between client and server, not in {logs}."),
    )


def _list_others(rows: list[int]) -> Iterator[str]:
    if len(rows) > 1:
        look = "looks" if len(rows) == 2 else "look"
        yield f"{count(len(rows) - 1, 'further RST')} on this or other connections {look} alike."


def _list_proofs(tables: Tables, row: int, side: str) -> Iterator[str]:
    c = tables.closings
    yield f"Packet {c.packet[row]} is a RST with the address of {side}."
    if comes_from_elsewhere(tables, row):
        least, most = int(c.least_ttl[row]), int(c.most_ttl[row])
        usual = f"{least}" if least == most else f"{least} to {most}"
        yield f"Its TTL is {c.ttl[row]}; that of all earlier packets of {side} is {usual}."
    after = int(c.later_time_ns[row]) - int(c.time_ns[row])
    if c.later_packets[row]:
        went_on = f"went on as if it had sent no RST, {duration(after)} after it"
        yield f"{side} {went_on} (packet {c.later_packet[row]})."
    near = _get_near(tables, row)
    answer = int(c.time_ns[row]) - int(c.peer_time_ns[row])
    if c.peer_packet[row] and 0 <= answer < near:
        yield (
            f"It came {duration(answer)} after the packet before it; the shortest round trip to {side} is "
            f"{duration(near)}."
        )
    if c.identification[row] < _NO_IDENTIFICATION:
        yield f"Its IP identification is {c.identification[row]}; the packet before had {c.identification_before[row]}."


_NO_IDENTIFICATION = 0xFFFF_FFFF


def _get_near(tables: Tables, row: int) -> int:
    connections, c = tables.connections, tables.closings
    near = (connections.near_client_rtt_ns, connections.near_server_rtt_ns)[int(c.direction[row])]
    return int(near[c.connection[row]])


def _show_reset(tables: Tables, row: int) -> Iterator[Evidence]:
    c = tables.closings
    side = hosts.host(tables, int(c.connection[row]), int(c.direction[row]))
    if c.own_packet[row]:
        yield evidence.show_packet(c, "own_packet", row, f"the last bytes of {side} before it, TTL {c.most_ttl[row]}")
    yield evidence.show_packet(c, "packet", row, f"RST in the name of {side}, TTL {c.ttl[row]}")
    if c.later_packets[row]:
        yield evidence.show_packet(c, "later_packet", row, f"{side} goes on after its supposed RST")


def _list_remedies(side: str) -> tuple[Remedy, ...]:
    return (
        Remedy("network", "logs and limits of firewalls, NAT gateways and load balancers between", "find the device"),
        Remedy("grpcdiag", "a capture at both ends of the connection", f"shows that {side} sent no RST"),
    )
