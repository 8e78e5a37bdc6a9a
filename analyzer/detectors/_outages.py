"""Intervals in which nothing of one side arrived, though the other retransmitted; bytes that one side sent in vain."""

from collections.abc import Iterator

import numpy as np

from ..model.budget import CAUSES
from ..model.finding import Evidence, Remedy
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from . import _shared, _unanswered

_MOST = 0.5
"""Part of the time lost from which an outage is the cause to name (heuristic: most of it)."""
_IN_VAIN = 3
"""Fewest retransmissions of each side (heuristic: three losses in a row are no chance)."""
_PASSES_BYTES = 536
"""Payload that every path carries (RFC 9293 section 3.7.1), however little the capture shows to arrive."""
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
    since = _unanswered.format_instant(tables, end - length)
    return f"No packet of {_name(tables, connection, 1)} arrived for {_shared.milliseconds(length)} (from {since} on)"


def _name(tables: Tables, connection: int, other: int) -> str:
    """Name the side that sent in an outage, or the `other` one."""
    return _shared.host(tables, connection, int(tables.connections.outage_direction[connection]) ^ other)


def show_outage(tables: Tables, connection: int) -> Iterator[Evidence]:
    """Yield the packets between which nothing of one side arrived."""
    c = tables.connections
    length, end = int(c.outage_ns[connection]), int(c.outage_time_ns[connection])
    sender, silent = _name(tables, connection, 0), _name(tables, connection, 1)
    what = f"connection {connection}: {sender} sends the first bytes that get no answer"
    yield Evidence(int(c.outage_from_packet[connection]), end - length, what)
    what = f"the next packet of {silent}, {_shared.milliseconds(length)} later"
    yield Evidence(int(c.outage_to_packet[connection]), end, what)


def list_remedies(tables: Tables, connection: int) -> tuple[Remedy, ...]:
    """List where to look for what cut the path."""
    silent = _name(tables, connection, 1)
    return (
        Remedy(
            "network",
            "logs of links, switches, routes and firewalls at that time",
            f"and of {silent}, whether its host was paused: a host that runs acknowledges retransmissions",
        ),
    )


def find_one_way(tables: Tables, connections: Ints, lost_ns: int) -> int | None:
    """Find bytes that one side sent in vain while its peer was heard, a row of the undelivered table.

    The peer retransmits what had arrived: it hears no ACK either. None if other connections lost most of the time.
    """
    u, c = tables.undelivered, tables.connections
    on = u.connection
    repeats = (u.retransmissions >= _IN_VAIN) & (c.needless_retransmissions[on] >= _IN_VAIN)
    none_behind = (u.behind_packet == 0) & (u.hole_bytes == 0) & (c.outage_ns[on] == 0)
    small = u.shortest <= np.maximum(u.longest_bytes, _PASSES_BYTES)
    rows = np.flatnonzero(np.isin(on, connections) & repeats & none_behind & small)
    if not len(rows) or total_ns(tables.connection_budgets[_shared.distinct(on[rows]), _LOSS]) < _MOST * lost_ns:
        return None
    return int(rows[np.argmax(u.last_time_ns[rows] - u.first_time_ns[rows])])


def describe_one_way(tables: Tables, row: int) -> str:
    """Say whose bytes were not acknowledged, and from when on, though the other side's packets arrived."""
    sender, peer = _name_ends(tables, row)
    since = _unanswered.format_instant(tables, int(tables.undelivered.first_time_ns[row]))
    return f"{peer} acknowledged nothing that {sender} sent from {since} on, though its own packets arrived"


def _name_ends(tables: Tables, row: int) -> tuple[str, str]:
    """Name the side that sent in vain, and its peer."""
    u = tables.undelivered
    connection, direction = int(u.connection[row]), int(u.direction[row])
    return _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)


def show_one_way(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield the first and the last retransmission in vain, and the last packet of the other side."""
    u = tables.undelivered
    sender, peer = _name_ends(tables, row)
    yield _shared.show_packet(u, "first_packet", row, f"{sender} retransmits bytes that are never acknowledged")
    yield _shared.show_packet(u, "last_packet", row, f"retransmission {int(u.retransmissions[row])} of them")
    yield _shared.show_packet(u, "heard_packet", row, f"the last packet of {peer}")


def list_one_way_remedies(tables: Tables, row: int) -> tuple[Remedy, ...]:
    """List where to look for what drops one direction."""
    sender, peer = _name_ends(tables, row)
    return (
        Remedy(
            "network",
            f"firewalls, NAT and routes on the way from {sender} to {peer}",
            "that direction alone is dropped; captures at both ends show on which side",
        ),
    )
