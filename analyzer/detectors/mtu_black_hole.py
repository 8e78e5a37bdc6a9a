"""Full-size packets of one direction never arrive, while smaller ones do.

What it finds
-------------
Small calls work, and the first large message stops its connection for good. The path drops packets above a size, and
the sender does not learn it.

TCP retransmits the same full segment, and all bytes behind it wait. The report says which size was lost, which size
arrived, and how long RPCs waited.

How it is decided
-----------------
The first bytes that the receiver does not acknowledge never arrive. Its packets keep arriving, or it has reported
later, shorter bytes as received (SACK). Then one of two things must hold:

- *The sender's packets are in the capture.* It retransmits these bytes three times or more, and no packet as long as
  these was ever acknowledged in this direction.
- *They are not in the capture, because the path dropped them before the capture point.* Bytes behind them came, and the
  gap is a full segment or more, by the MSS of the SYNs. No full segment came at all in this direction. The gap stayed
  open for 3 s or longer, in which TCP retransmits several times.

A router may report the size that passes: ICMP fragmentation needed, ICMPv6 packet too big. TCP then uses smaller
segments, and nothing is found. Where the sender repeats the same segments after such an error, the report names it.

A sender whose full segments are lost sends nothing else, so its peer may have nothing to answer: that alone is no dead
peer. Random loss takes packets of all sizes, and does not take the same bytes each time. RPC time from the loss on is
`loss_recovery`. Deadlines that pass meanwhile are a consequence.

When it cannot tell
-------------------
Where full segments passed before on the same connection: then the path has changed, or it is another loss. Where the
capture shows segments joined by offload (GRO), sizes on the path are unknown, and the finding may be
missing.

What would refute it
--------------------
`ping -M do -s 1472 HOST` (IPv4, MTU 1500) from the sender is answered: full-size packets pass.

What to do
----------
Lower the MTU of the sender's interface, or clamp the MSS at the router or tunnel (`--clamp-mss-to-pmtu`). Let ICMP
type 3 code 4 and ICMPv6 type 2 pass through firewalls. `net.ipv4.tcp_mtu_probing=1` lets Linux find the size itself.

References
----------
- RFC 2923 (TCP problems with path MTU discovery), section 2.1: black hole detection
- RFC 1191, RFC 8201: path MTU discovery, and the errors that it needs
- RFC 4821, RFC 8899 (packetization layer path MTU discovery)
- Linux Documentation/networking/ip-sysctl.rst (tcp_mtu_probing)
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import evidence, hosts, icmp, methods, ratings, unanswered
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE
from ..software import intents, settings
from ..tables import Counts, Ints, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct

ID = "mtu-black-hole"
ABOUT = About(
    example="recorded/wild/mtu-blackhole-server.pcap.zst",
    precedence=0,
    whole_connections=True,
    without_rpcs=True,
    picture="losses",
)
_LOSS = CAUSES.index("loss_recovery")
LEAST_HEADERS = 40
"""Bytes of the shortest IP and TCP headers (RFC 791, RFC 9293)."""
LEAST_MTU = (68, 1_280)
"""Least MTU of IPv4 and of IPv6 (RFC 791, RFC 8200 section 5): an error with a smaller one is not obeyed."""


class Limits(Struct, frozen=True, eq=False):
    retransmissions: int = unanswered.TIMEOUTS
    """Retransmissions of the same bytes that were never acknowledged (heuristic: as `peer-unreachable`)."""
    passing_bytes: int = unanswered.PASSES_BYTES
    """Payload that every path carries (RFC 9293 section 3.7.1: the default MSS)."""
    open_ns: int = 3_000_000_000
    """How long a gap stays open at the receiver (RFC 6298: timeouts of 1 s and 2 s, so two retransmissions)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time lost (heuristic: a fifth of all RPC time)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all directions in which only small packets arrive."""
    rows = _find_rows(tables, limits)
    if len(rows):
        yield _make_finding(tables, rows, limits)


def _find_rows(tables: Tables, limits: Limits) -> Ints:
    """Find what was lost again and again because of its length; retransmissions in the capture prove most."""
    u = tables.undelivered
    repeated = (u.retransmissions >= limits.retransmissions) & (u.shortest > limits.passing_bytes)
    repeated &= (u.longest_bytes > 0) & (u.shortest > u.longest_bytes)
    repeated &= (u.heard_packet > u.last_packet) | (u.behind_packet > 0)
    gap = (u.retransmissions == 0) & (u.segment_bytes > limits.passing_bytes) & (u.hole_bytes >= u.segment_bytes)
    gap &= (u.longest_seen_bytes < u.segment_bytes) & (u.heard_time_ns - u.first_time_ns >= limits.open_ns)
    rows = np.flatnonzero(repeated | gap)
    return rows[np.argsort(-u.retransmissions[rows].astype(np.int64), kind="stable")]


def _make_finding(tables: Tables, rows: Ints, limits: Limits) -> Finding:
    u, first = tables.undelivered, int(rows[0])
    connections = tuple(distinct(u.connection[rows]).tolist())
    sender = hosts.name_hosts(tables, u.connection[rows], u.direction[rows])
    lost = total_ns(tables.connection_budgets[list(connections), _LOSS])
    share = methods.share_of_time(tables, lost)
    lengths, arrived = _measure_sizes(tables, rows)
    least, most, passed = int(lengths.min()), int(lengths.max()), int(arrived.min())
    size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    cost = f" ({duration(lost)}, {share:.0%} of RPC time)" if lost else ""
    return Finding(
        id=ID,
        title=f"packets of {sender} with {size} bytes never arrive, those with up to {passed:,} do",
        severity="critical" if share >= limits.critical_share else "warning",
        confidence=ratings.lower("high" if u.retransmissions[first] else "medium", ratings.quality_allows(tables)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=lost or None,
        share=share if lost else None,
        metrics={
            "connections": len(connections),
            "lost_payload_bytes": least,
            "arrived_payload_bytes": passed,
            "retransmissions": int(u.retransmissions[rows].sum()),
            "longest_wait_ns": int((np.maximum(u.heard_time_ns, u.last_time_ns) - u.first_time_ns)[rows].max()),
        },
        evidence=tuple(
            item
            for row in rows[hosts.pick_apart(tables, u.connection[rows], evidence.FEW_EXAMPLES)].tolist()
            for item in _show_row(tables, row)
        ),
        explanation=_explain(tables, rows, lost),
        remedies=_list_remedies(sender),
        references=("RFC 2923 section 2.1", "RFC 4821", "RFC 8899"),
        verdict=_make_verdict(tables, first, sender, f"{size} bytes of payload", f"{passed:,} arrive{cost}"),
    )


def _make_verdict(tables: Tables, row: int, sender: str, size: str, passed: str) -> str:
    lost = f"packets of {sender} with {size}"
    if (error := _find_error(tables, row)) is None:
        connection = np.array([tables.undelivered.connection[row]], dtype=np.int64)
        silently = "" if icmp.count_too_big(tables, connection)[0] else " silently"
        return f"The path drops {lost}{silently}, while those up to {passed}: lower the MTU or MSS there."
    reporter, mtu = icmp.name_reporter(tables, error), int(tables.icmp_errors.mtu[error])
    return (
        f"{reporter} drops {lost} and reports an MTU of {mtu:,} bytes, but {sender} repeats them: let ICMP errors "
        "reach its TCP."
    )


def _find_error(tables: Tables, row: int) -> int | None:
    """Find the ICMP error after which the sender repeated bytes that are too many for the MTU that it names."""
    u, errors = tables.undelivered, tables.icmp_errors
    connection, direction = int(u.connection[row]), int(u.direction[row])
    about = (errors.connection == connection) & (errors.direction == direction) & icmp.mark_too_big(tables)
    about &= (errors.mtu >= np.where(errors.kind == icmp.UNREACHABLE, *LEAST_MTU)) & (
        errors.mtu < u.shortest[row] + LEAST_HEADERS
    )
    rows = np.flatnonzero(about & (errors.first_time_ns < u.last_time_ns[row]))
    return int(rows[0]) if len(rows) else None


def _measure_sizes(tables: Tables, rows: Ints) -> tuple[Counts, Counts]:
    """Return the payload that was lost, and the longest that arrived."""
    u = tables.undelivered
    repeated = u.retransmissions[rows] > 0
    lost = np.where(repeated, u.shortest[rows], u.segment_bytes[rows])
    return lost, np.where(repeated, u.longest_bytes[rows], u.longest_seen_bytes[rows])


def _explain(tables: Tables, rows: Ints, lost: int) -> str:
    u, first = tables.undelivered, int(rows[0])
    sender = hosts.host(tables, int(u.connection[first]), int(u.direction[first]))
    size, passed = (int(bytes_[0]) for bytes_ in _measure_sizes(tables, rows))
    open_for = duration(float(u.heard_time_ns[first] - u.first_time_ns[first]))
    where = f"on connection {u.connection[first]}"
    if u.retransmissions[first]:
        what = (
            f"{sender} retransmitted the same {size:,} bytes {u.retransmissions[first]:,} times {where}, and they were "
            f"never acknowledged. No packet with more than {passed:,} bytes of payload was acknowledged."
        )
    else:
        what = (
            f"{u.hole_bytes[first]:,} bytes of {sender} never arrived {where}, though later bytes did. Its full "
            f"segments have {size:,} bytes, and no packet with more than {passed:,} bytes came. The receiver did not "
            "acknowledge them, so the path lost them, not the capture."
        )
    if u.heard_packet[first] > u.last_packet[first]:
        lives = f"Its peer was heard for {open_for} after that, so the path works for small packets."
    else:
        lives = "Its peer reported shorter bytes behind them as received, so the path works for small packets."
    parts = [what, lives]
    if (error := _find_error(tables, first)) is not None:
        parts.append(f"{icmp.describe_error(tables, error)}, and {sender} repeated the same bytes after that.")
    if lost:
        parts.append(f"RPCs waited {duration(lost)} in total.")
    if len(rows) > 1:
        parts.append(f"The same is seen on {count(len(distinct(u.connection[rows])), 'connection')}.")
    return " ".join(parts)


def _show_row(tables: Tables, row: int) -> Iterator[Evidence]:
    u = tables.undelivered
    sender = hosts.host(tables, int(u.connection[row]), int(u.direction[row]))
    first, first_ns = int(u.first_packet[row]), int(u.first_time_ns[row])
    if (error := _find_error(tables, row)) is not None:
        yield icmp.show_error(tables, error, 0)
    if u.retransmissions[row]:
        yield Evidence(first, first_ns, f"{sender} retransmits {u.shortest[row]:,} bytes for the first time")
        if u.behind_packet[row]:
            what = "its peer reports later, shorter bytes as received (SACK)"
            yield evidence.show_packet(u, "behind_packet", row, what)
        yield evidence.show_packet(
            u, "last_packet", row, f"retransmission {u.retransmissions[row]:,} of the same bytes"
        )
    else:
        yield Evidence(first, first_ns, f"later bytes of {sender} come; {u.hole_bytes[row]:,} bytes before them do not")
    if u.heard_packet[row] > max(first, int(u.last_packet[row])):
        what = "the last packet of its peer, which still does not acknowledge them"
        yield evidence.show_packet(u, "heard_packet", row, what)


def _list_remedies(sender: str) -> tuple[Remedy, ...]:
    where = f"on {sender}"
    return (
        *settings.list_own(intents.SMALLER_MTU, "linux", "fits every path; more packets", where=where),
        *settings.list_own(intents.PROBED_MTU, "linux", "TCP tries smaller segments after timeouts", where=where),
        Remedy(
            "network",
            "iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
            "on the router or tunnel with the smaller MTU: both ends use segments that fit",
        ),
        Remedy(
            "network",
            "let ICMP type 3 code 4 and ICMPv6 type 2 pass",
            f"also the firewall of {sender}: path MTU discovery works again",
        ),
    )
