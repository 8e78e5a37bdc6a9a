"""Intervals in which nothing of one side arrived, though the other retransmitted; it was heard again afterwards."""

from collections.abc import Iterator

import numpy as np

from ..model.finding import Evidence, Remedy
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from . import _shared, _unanswered

_MOST = 0.5
"""Part of the time lost from which an outage is the cause to name (heuristic: most of it)."""


def find_outage(tables: Tables, connections: Ints, lost_ns: int) -> int | None:
    """Find the connection with the longest outage that cost RPC time, if outages cost most of the time lost."""
    in_outages = tables.connections.loss_recovery_in_outages_ns[connections]
    if total_ns(in_outages) < _MOST * lost_ns:
        return None
    cut = connections[in_outages > 0]
    return int(cut[np.argmax(tables.connections.outage_ns[cut])]) if len(cut) else None


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
