"""ICMP errors about packets of connections: a router or host says that it did not deliver them."""

import numpy as np

from ..model.finding import Evidence
from ..model.text import count
from ..tables import Ints, Mask, Tables
from .evidence import show_packet

UNREACHABLE, UNREACHABLE_V6, PACKET_TOO_BIG = 3, 1, 2
"""Values of `IcmpErrors.kind` (RFC 792, RFC 4443); those of the two versions differ."""
FRAGMENTATION_NEEDED = 4

NAMES = {
    (UNREACHABLE, 0): "network unreachable",
    (UNREACHABLE, 1): "host unreachable",
    (UNREACHABLE, 2): "protocol unreachable",
    (UNREACHABLE, 3): "port unreachable",
    (UNREACHABLE, FRAGMENTATION_NEEDED): "fragmentation needed",
    (UNREACHABLE, 9): "network administratively prohibited",
    (UNREACHABLE, 10): "host administratively prohibited",
    (UNREACHABLE, 13): "communication administratively prohibited",
    (UNREACHABLE_V6, 0): "no route to destination",
    (UNREACHABLE_V6, 1): "communication administratively prohibited",
    (UNREACHABLE_V6, 3): "address unreachable",
    (UNREACHABLE_V6, 4): "port unreachable",
    (UNREACHABLE_V6, 6): "reject route to destination",
    (PACKET_TOO_BIG, 0): "packet too big",
}
"""What errors say, by type and code (RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1, RFC 4443 section 3)."""
UNROUTED = ((UNREACHABLE, 0), (UNREACHABLE, 1), (UNREACHABLE_V6, 0), (UNREACHABLE_V6, 3))
"""Errors of a router that has no route, or gets no answer from the host (RFC 1812 section 5.2.7.1)."""


def mark_too_big(tables: Tables) -> Mask:
    """Mark errors about the size of a packet; the others say that its destination cannot be reached."""
    errors = tables.icmp_errors
    needed = (errors.kind == UNREACHABLE) & (errors.code == FRAGMENTATION_NEEDED)
    return np.asarray(needed | (errors.kind == PACKET_TOO_BIG))


def is_unrouted(tables: Tables, row: int) -> bool:
    """Check whether an error says that there is no way to the host; firewalls that reject a packet send others."""
    return (int(tables.icmp_errors.kind[row]), int(tables.icmp_errors.code[row])) in UNROUTED


def find_errors(tables: Tables, connection: int, direction: int, since_ns: int, *, too_big: bool) -> list[int]:
    """Find the kinds of errors about the packets of one side that came at `since_ns` or later."""
    errors = tables.icmp_errors
    about = (errors.connection == connection) & (errors.direction == direction) & (errors.last_time_ns >= since_ns)
    rows: list[int] = np.flatnonzero(about & (mark_too_big(tables) == too_big)).tolist()
    return rows


def find_error(tables: Tables, connection: int, direction: int, since_ns: int, *, too_big: bool) -> int | None:
    """Find the first kind of error that `find_errors` finds: row of `icmp_errors`; None for none."""
    return next(iter(find_errors(tables, connection, direction, since_ns, too_big=too_big)), None)


def name_error(tables: Tables, row: int) -> str:
    """Name an error: `host unreachable (ICMP type 3 code 1)`."""
    errors = tables.icmp_errors
    kind, code = int(errors.kind[row]), int(errors.code[row])
    version = "ICMP" if kind == UNREACHABLE else "ICMPv6"
    mtu = f", MTU {errors.mtu[row]:,}" if errors.mtu[row] else ""
    return f"{NAMES.get((kind, code), 'destination unreachable')} ({version} type {kind} code {code}{mtu})"


def name_reporter(tables: Tables, row: int) -> str:
    """Return the address that sent an error."""
    return tables.addresses[int(tables.icmp_errors.reporter[row])]


def describe_error(tables: Tables, row: int) -> str:
    """Say who reported what, how often and where: `10.0.0.3 reported ... 3 times from packet 7 on`."""
    errors = tables.icmp_errors
    times = count(int(errors.messages[row]), "time")
    since = (
        f"{times} from packet {errors.first_packet[row]} on"
        if errors.messages[row] > 1
        else f"in packet {errors.first_packet[row]}"
    )
    return f"{name_reporter(tables, row)} reported {name_error(tables, row)} {since}"


def describe_too_big(tables: Tables, connections: Ints) -> str:
    """Say that a router did not deliver packets of some connections because of their size; else nothing."""
    errors = tables.icmp_errors
    rows = np.flatnonzero(np.isin(errors.connection, connections) & mark_too_big(tables))
    if not len(rows):
        return ""
    size = "packets above that size" if errors.mtu[rows[0]] else "them for their size"
    return f" {describe_error(tables, int(rows[0]))}: it did not deliver {size}."


def count_too_big(tables: Tables, connections: Ints) -> Ints:
    """Count for each of some connections the errors about the size of a packet."""
    errors = tables.icmp_errors
    counts = np.zeros(len(tables.connections.rpcs), dtype=np.int64)
    rows = np.flatnonzero(mark_too_big(tables))
    np.add.at(counts, errors.connection[rows].astype(np.int64), errors.messages[rows].astype(np.int64))
    return np.asarray(counts[connections])


def show_error(tables: Tables, row: int, since_ns: int) -> Evidence:
    """Show the first of equal errors, or the last one where the first came before `since_ns`."""
    errors = tables.icmp_errors
    what = f"{name_reporter(tables, row)} reports {name_error(tables, row)}"
    if errors.first_time_ns[row] >= since_ns:
        return show_packet(errors, "first_packet", row, what)
    return show_packet(errors, "last_packet", row, what)
