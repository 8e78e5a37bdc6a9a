"""Sides of connections whose last packets got no answer, for the detectors that report them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..model.budget import CAUSES
from ..model.finding import Evidence
from ..tables import COMPLETE, Ints, Tables
from ..tables.durations import total_ns
from . import _shared

Mask = npt.NDArray[np.bool_]

PEER_UNREACHABLE = CAUSES.index("peer_unreachable")


def find_unanswered(tables: Tables, timeouts: int, idle_ns: int, *, idle: bool) -> Ints:
    """Find rows of the unanswered table: connections that were idle before, or those that were not."""
    rows = np.flatnonzero(tables.unanswered.timeouts >= timeouts)
    return np.asarray(rows[_mark_idle(tables, rows, idle_ns) == idle])


def _mark_idle(tables: Tables, rows: Ints, idle_ns: int) -> Mask:
    """Mark rows whose connection was silent for `idle_ns` before, without an open RPC."""
    u = tables.unanswered
    silent = u.first_time_ns[rows] - u.heard_time_ns[rows] >= idle_ns
    encrypted = tables.connections.rpcs[u.connection[rows]] == 0
    busy = np.array([_is_open(tables, row) for row in rows.tolist()], dtype=bool)
    return np.asarray(silent & ~busy & ~encrypted)


def _is_open(tables: Tables, row: int) -> bool:
    """Check whether an RPC was open from before the silence until its end."""
    u, rpcs = tables.unanswered, tables.rpcs
    begun = (rpcs.connection == u.connection[row]) & (rpcs.start_time_ns <= u.heard_time_ns[row])
    return bool((begun & (rpcs.start_time_ns + rpcs.duration_ns > u.first_time_ns[row])).any())


def find_closing(tables: Tables, row: int) -> int | None:
    """Find the FIN or RST with which the unanswered side gave up; None when it did not."""
    c, u = tables.closings, tables.unanswered
    mine = (c.connection == u.connection[row]) & (c.direction == u.direction[row])
    rows = np.flatnonzero(mine & (c.time_ns >= u.first_time_ns[row]))
    return int(rows[np.argmin(c.time_ns[rows])]) if len(rows) else None


def find_answer(tables: Tables, row: int) -> int | None:
    """Find a later connection to the same end whose SYN was answered: the host is there."""
    u, c = tables.unanswered, tables.connections
    connection = int(u.connection[row])
    if u.direction[row] != 0:
        return None
    same = (c.server_ip == c.server_ip[connection]) & (c.server_port == c.server_port[connection])
    later = np.flatnonzero(same & (tables.setups.syn_ack_time_ns > u.first_time_ns[row]))
    return int(later[0]) if len(later) else None


def describe_answer(tables: Tables, row: int) -> str:
    """Say that the peer answered another connection meanwhile, or that none is seen."""
    u, setups = tables.unanswered, tables.setups
    peer = _shared.host(tables, int(u.connection[row]), 1 - int(u.direction[row]))
    answer = find_answer(tables, row)
    if answer is None:
        return f"{peer} is not heard on a new connection either, so the host or the whole path may be gone."
    return (
        f"{peer} answered a new connection in packet {setups.syn_ack_packet[answer]}: it lives, so something between "
        "forgot this connection."
    )


def count_waiting(tables: Tables, rows: Ints) -> int:
    """Count the RPCs that were open while their connection got no answer, as far as they have rows."""
    u, rpcs, still = tables.unanswered, tables.rpcs, tables.open_rpcs
    ends = np.where(rpcs.flags & COMPLETE, rpcs.start_time_ns + rpcs.duration_ns, -1)
    ends, on = np.r_[ends, still.end_time_ns], np.r_[rpcs.connection, still.connection]
    waiting = [(on == u.connection[row]) & (ends > u.first_time_ns[row]) for row in rows.tolist()]
    return int(sum(mine.sum() for mine in waiting))


def sum_lost(tables: Tables, connections: tuple[int, ...]) -> int:
    """Sum up the RPC time on these connections in which nothing was answered."""
    return total_ns(tables.connection_budgets[list(connections), PEER_UNREACHABLE])


def format_instant(tables: Tables, time_ns: int) -> str:
    """Format an instant relative to the capture's first packet, as reports show it."""
    return f"{(time_ns - int(tables.capture['first_time_ns'])) / 1e9:,.3f} s"


def describe_end(tables: Tables, row: int) -> str:
    """Say who gave up when, or that nobody did."""
    u = tables.unanswered
    sender = _shared.host(tables, int(u.connection[row]), int(u.direction[row]))
    closing = find_closing(tables, row)
    pinged = f" after its PING of {format_instant(tables, int(u.ping_time_ns[row]))}" if u.ping_packet[row] else ""
    if closing is None:
        return f"{sender} retransmitted until {format_instant(tables, int(u.last_time_ns[row]))} and did not close"
    c = tables.closings
    how = "RST" if c.reset[closing] else "FIN"
    return f"{sender} gave up at {format_instant(tables, int(c.time_ns[closing]))} with a {how}{pinged}"


def show_unanswered(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield the packets that show that nothing is answered."""
    u = tables.unanswered
    connection, direction = int(u.connection[row]), int(u.direction[row])
    sender, peer = _shared.host(tables, connection, direction), _shared.host(tables, connection, 1 - direction)
    yield Evidence(int(u.heard_packet[row]), int(u.heard_time_ns[row]), f"the last packet of {peer}")
    first = int(u.first_packet[row])
    is_ping = " (a PING)" if first == int(u.ping_packet[row]) else ""
    yield Evidence(first, int(u.first_time_ns[row]), f"{sender} sends bytes{is_ping} that get no answer")
    again = int(u.again_packet[row])
    yield Evidence(again, int(u.again_time_ns[row]), f"{sender} retransmits for the first time")
    yield Evidence(
        int(u.last_packet[row]),
        int(u.last_time_ns[row]),
        f"retransmission {int(u.retransmissions[row])}: still no packet of {peer}",
    )
    if (closing := find_closing(tables, row)) is not None:
        yield Evidence(
            int(tables.closings.packet[closing]), int(tables.closings.time_ns[closing]), f"{sender} gives up"
        )
