"""Whether a RST was sent by the host whose address it has."""

from ..tables import Tables

_INITIAL_TTLS = (64, 128, 255)
"""Initial values of common systems: Linux and BSD, Windows, and routers."""
_HOPS = 2
"""Difference in hops from which two packets have different senders (heuristic: routes of one flow differ by one)."""

_UNKNOWN = 0xFFFF_FFFF
"""Identification of a packet without one."""
_SEGMENTS = 64
"""So many packets one of a capture may have been on the wire, each with an identification (heuristic: 64 kB of GSO)."""
_MIXED_NS = 1_000_000
"""By so much capture points mix the order of packets (heuristic: several queues of one device)."""


def _count_hops(ttl: int) -> int:
    """Return how many routers a packet passed, by the next initial value above."""
    return min(initial for initial in _INITIAL_TTLS if initial >= ttl) - ttl


def comes_from_elsewhere(tables: Tables, row: int) -> bool:
    """Check whether a RST passed another number of routers than all earlier packets of that side.

    A host may use another initial value for a RST, so values are compared by their distance.
    """
    c = tables.closings
    least, most, ttl = (int(column[row]) for column in (c.least_ttl, c.most_ttl, c.ttl))
    if not least or not c.reset[row] or least <= ttl <= most:
        return False
    hops = _count_hops(ttl)
    return all(abs(hops - _count_hops(other)) >= _HOPS for other in (least, most))


def may_be_foreign(tables: Tables, row: int) -> bool:
    """Check whether a RST may be of a device at any distance: its IP identification does not continue that side's.

    Equal ones tell nothing: many hosts always write 0. A host may count all its packets together, so it is no proof.
    """
    c = tables.closings
    now, before = int(c.identification[row]), int(c.identification_before[row])
    known = _UNKNOWN not in (now, before) and now != before
    odd = known and (now - before) % 65_536 > _SEGMENTS
    return bool(c.reset[row]) and (odd or comes_from_elsewhere(tables, row))


def goes_on(tables: Tables, row: int) -> bool:
    """Check whether that side sends on as if it had sent no RST: more than a round trip after it, where that is known.

    A packet that comes sooner may have left before the RST, or was recorded in the wrong order.
    """
    c = tables.closings
    trip = int(tables.connections.min_rtt_ns[c.connection[row]])
    later = int(c.later_time_ns[row]) - int(c.time_ns[row])
    return bool(c.reset[row] and c.later_packets[row] and trip >= 0 and later > max(trip, _MIXED_NS))
