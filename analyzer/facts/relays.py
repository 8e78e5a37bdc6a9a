"""Hosts behind a relay that ends TCP connections: a TCP proxy, a CONNECT tunnel."""

import numpy as np

from ..tables import Ints, Mask, Tables
from ..tables.grouping import group_rows

_EQUAL = 1.05
"""The fastest two take equally long up to this ratio (heuristic: a path's round trips differ less than pauses)."""


def mark_relayed(tables: Tables, late: Ints, near_ns: Ints, least: int, least_ns: int) -> Mask:
    """Mark stalls of hosts whose TCP answers `least_ns` before even their fastest acknowledgements of a PING.

    A relay's TCP answers there: the path behind it, or the relay, may have been late. `late` are rows of the stalls
    table, `near_ns` is TCP's round trip to the host of each stall. So many PINGs as `least` are enough to tell.
    """
    p, stalls = tables.pings, tables.stalls
    relayed = np.zeros(len(stalls.connection), dtype=bool)
    ends = 2 * stalls.connection.astype(np.int64) + stalls.direction
    for places in group_rows(ends[late]).values() if len(late) else ():
        mine = late[places]
        connection, direction = int(stalls.connection[mine[0]]), int(stalls.direction[mine[0]])
        here = p.connection == connection
        asked = p.time_ns[here & (p.direction != direction) & (p.ack == 0)]
        answered = p.time_ns[here & (p.direction == direction) & (p.ack == 1)]
        pairs = min(len(asked), len(answered))  # they are acknowledged in their order
        if pairs >= least:
            fastest, second = np.sort(answered[:pairs] - asked[:pairs])[:2].tolist()
            slower = fastest - max(0, int(near_ns[mine[0]])) >= least_ns
            relayed[mine] = slower and second <= _EQUAL * fastest
    return relayed
