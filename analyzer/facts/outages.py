"""Intervals in which nothing of one side arrived, though the other retransmitted; bytes that one side sent in vain."""

from collections.abc import Iterator

import numpy as np

from ..model.budget import CAUSES
from ..model.finding import Evidence, Remedy
from ..model.text import duration
from ..tables import Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct
from . import evidence, hosts, icmp, unanswered, vantage

_MOST = 0.5
"""Part of the time lost from which an outage is the cause to name (heuristic: most of it)."""
_IN_VAIN = (2, 3)
"""Fewest retransmissions of the side that sends in vain, and of its peer, in place of whose bytes ACKs were lost.

Heuristic: three losses in a row are no chance.
"""
_LATE_ACK_NS = 500_000_000
"""How long an ACK may be delayed at most (RFC 9293 section 3.8.6.3: less than 0.5 s)."""
_LOSS = CAUSES.index("loss_recovery")


def find_outage(tables: Tables, connections: Ints, lost_ns: int) -> int | None:
    """Find the connection with the longest outage that cost RPC time, if outages cost most of the time lost.

    Where no cost is seen, it must be most of that connection's longest recovery.
    """
    c = tables.connections
    if not lost_ns:
        cut = connections[
            (c.outage_ns[connections] > 0) & (c.outage_ns[connections] >= _MOST * c.recovery_ns[connections])
        ]
        return int(cut[np.argmax(c.outage_ns[cut])]) if len(cut) else None
    in_outages = c.loss_recovery_in_outages_ns[connections]
    if total_ns(in_outages) < _MOST * lost_ns:
        return None
    cut = connections[in_outages > 0]
    return int(cut[np.argmax(c.outage_ns[cut])]) if len(cut) else None


def describe_outage(tables: Tables, connection: int) -> str:
    """Say of whom nothing arrived, for how long, and from when on."""
    c = tables.connections
    length, end = int(c.outage_ns[connection]), int(c.outage_time_ns[connection])
    since = unanswered.format_instant(tables, end - length)
    return f"No packet of {_name(tables, connection, 1)} arrived for {duration(length)} (from {since} on)"


def advise_outage(tables: Tables, connection: int) -> str:
    """Say where to look: at the silent host, if what was sent to it passed a capture point there."""
    if _reached_silent(tables, connection):
        return "packets to it reached the capture point there, so look at its firewall, and for what paused it"
    return "look for what cut the path or stopped that host"


def _reached_silent(tables: Tables, connection: int) -> bool:
    """Check whether the capture was taken at the side that was silent."""
    silent = 1 - int(tables.connections.outage_direction[connection])
    return bool(vantage.mark_taken_at(tables, silent)[connection])


def _name(tables: Tables, connection: int, other: int) -> str:
    """Name the side that sent in an outage, or the `other` one."""
    return hosts.host(tables, connection, int(tables.connections.outage_direction[connection]) ^ other)


def show_outage(tables: Tables, connection: int) -> Iterator[Evidence]:
    """Yield the packets between which nothing of one side arrived."""
    c = tables.connections
    length, end = int(c.outage_ns[connection]), int(c.outage_time_ns[connection])
    sender, silent = _name(tables, connection, 0), _name(tables, connection, 1)
    what = f"connection {connection}: {sender} sends the first bytes that get no answer"
    yield Evidence(int(c.outage_from_packet[connection]), end - length, what)
    what = f"the next packet of {silent}, {duration(length)} later"
    yield Evidence(int(c.outage_to_packet[connection]), end, what)


def list_remedies(tables: Tables, connection: int) -> tuple[Remedy, ...]:
    """List where to look for what cut the path."""
    silent = _name(tables, connection, 1)
    if _reached_silent(tables, connection):
        return (_check_host(silent),)
    return (
        Remedy(
            "network",
            "logs of links, switches, routes and firewalls at that time",
            f"and of {silent}, whether its host was paused: a host that runs acknowledges retransmissions",
        ),
    )


def _check_host(host: str) -> Remedy:
    """Make the remedy for packets that a host drops behind the capture point at it."""
    return Remedy(
        "linux",
        "nft list ruleset; nstat -az TcpInCsumErrors TcpExtIPReversePathFilter TcpExtTCPRcvQDrop",
        f"on {host}: what drops packets between its interface and its TCP",
    )


def find_one_way(tables: Tables, connections: Ints, lost_ns: int) -> int | None:
    """Find bytes that one side sent in vain while its peer was heard, a row of the undelivered table.

    The peer retransmits what had arrived: it hears no ACK either. Or it is heard twice, as with keepalive, and between
    the two a retransmission had the time to arrive. None if other connections lost most of the time.
    """
    u, c = tables.undelivered, tables.connections
    on = u.connection
    repeats = (u.retransmissions >= _IN_VAIN[0]) & (c.needless_retransmissions[on] >= _IN_VAIN[1])
    repeats &= c.outage_ns[on] == 0
    small = u.shortest <= np.maximum(u.longest_bytes, unanswered.PASSES_BYTES)
    none_behind = (u.behind_packet == 0) & (u.hole_bytes == 0)
    rows = np.flatnonzero(np.isin(on, connections) & (repeats | _mark_heard_twice(tables)) & none_behind & small)
    if not len(rows) or total_ns(tables.connection_budgets[distinct(on[rows]), _LOSS]) < _MOST * lost_ns:
        return None
    return int(rows[np.argmax(u.last_time_ns[rows] - u.first_time_ns[rows])])


def _mark_heard_twice(tables: Tables) -> Mask:
    """Mark sides whose peer acknowledged nothing at the end of an outage, nor after a retransmission behind that."""
    u, c = tables.undelivered, tables.connections
    on = u.connection
    within = (c.outage_ns[on] > 0) & (c.outage_direction[on] == u.direction) & (c.outage_time_ns[on] < u.last_time_ns)
    within &= c.outage_time_ns[on] > u.first_time_ns
    after = u.heard_time_ns - u.last_time_ns - np.maximum(c.min_rtt_ns[on], 0)
    return np.asarray(within & (u.retransmissions >= _IN_VAIN[0]) & (after >= _LATE_ACK_NS))


def describe_one_way(tables: Tables, row: int) -> str:
    """Say whose bytes were not acknowledged, and from when on, though the other side's packets arrived."""
    sender, peer = _name_ends(tables, row)
    since = unanswered.format_instant(tables, int(tables.undelivered.first_time_ns[row]))
    return f"{peer} acknowledged nothing that {sender} sent from {since} on, though its own packets arrived"


def advise_one_way(tables: Tables, row: int) -> str:
    """Say where to look: behind the capture point, if that is at the host that acknowledges nothing."""
    if (error := _find_error(tables, row)) is not None:
        return f"find out why {icmp.name_reporter(tables, error)} reports {icmp.name_error(tables, error)}"
    if _arrives(tables, row):
        return "these packets reached the capture point at that host, so look at its firewall"
    return "look for what drops that direction alone"


def _find_error(tables: Tables, row: int) -> int | None:
    """Find the ICMP error that says why the bytes of a row do not arrive."""
    u = tables.undelivered
    since = int(u.first_time_ns[row]) - unanswered.INITIAL_TIMEOUT_NS  # an ICMP error may come first
    return icmp.find_error(tables, int(u.connection[row]), int(u.direction[row]), since, too_big=False)


def _arrives(tables: Tables, row: int) -> bool:
    """Check whether the capture point, which the bytes passed, is at the host that acknowledges nothing."""
    u = tables.undelivered
    here = vantage.mark_taken_at(tables, 1 - int(u.direction[row]))
    return bool(here[int(u.connection[row])]) and int(u.retransmissions[row]) > 0


def _name_ends(tables: Tables, row: int) -> tuple[str, str]:
    """Name the side that sent in vain, and its peer."""
    u = tables.undelivered
    connection, direction = int(u.connection[row]), int(u.direction[row])
    return hosts.host(tables, connection, direction), hosts.host(tables, connection, 1 - direction)


def show_one_way(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield the first and the last retransmission in vain, and the last packet of the other side."""
    u = tables.undelivered
    sender, peer = _name_ends(tables, row)
    yield evidence.show_packet(u, "first_packet", row, f"{sender} retransmits bytes that are never acknowledged")
    yield evidence.show_packet(u, "last_packet", row, f"retransmission {int(u.retransmissions[row])} of these bytes")
    if (error := _find_error(tables, row)) is not None:
        yield icmp.show_error(tables, error, 0)
    yield evidence.show_packet(u, "heard_packet", row, f"the last packet of {peer}")


def list_one_way_remedies(tables: Tables, row: int) -> tuple[Remedy, ...]:
    """List where to look for what drops one direction."""
    sender, peer = _name_ends(tables, row)
    if (error := _find_error(tables, row)) is not None:
        where = f"the firewall of {icmp.name_reporter(tables, error)}"
        return (Remedy("network", where, "an ICMP error quotes these packets: a rule rejects them"),)
    if _arrives(tables, row):
        return (_check_host(peer),)
    return (
        Remedy(
            "network",
            f"firewalls, NAT and routes on the way from {sender} to {peer}",
            "that direction alone is dropped; captures at both ends show on which side",
        ),
    )
