"""Sides of connections whose last packets got no answer, for the detectors that report them."""

from collections.abc import Iterator, Mapping

import numpy as np

from .. import _core
from ..model.budget import CAUSES
from ..model.finding import Evidence
from ..model.text import count, duration
from ..tables import COMPLETE, Counts, Ints, Mask, Tables
from ..tables.durations import total_ns
from ..tables.grouping import group_rows
from . import evidence, hosts, icmp, methods

PEER_UNREACHABLE = CAUSES.index("peer_unreachable")
OTHER_PINGS = [number for number, name in enumerate(_core.PING_PURPOSES) if name in ("bdp", "drain")]
"""Purposes of PINGs that are not for keepalive."""
PASSES_BYTES = 536
"""Payload that every path carries (RFC 9293 section 3.7.1), however little the capture shows to arrive."""
INITIAL_TIMEOUT_NS = 1_000_000_000
"""TCP's initial retransmission timeout (RFC 6298 section 2: 1 s)."""
TIMEOUTS = 3
"""Retransmissions of the same bytes without an answer that show an outage (heuristic: three in a row are no chance)."""
_OUTAGE_NS = 5_000_000_000
"""Lost packets may come through so long after (heuristic: a path that is repaired is out for seconds)."""


def find_unanswered(tables: Tables, timeouts: int, idle_ns: int, *, idle: bool) -> Ints:
    """Find rows of the unanswered table: connections that were idle before, or those that were not."""
    rows = np.flatnonzero((tables.unanswered.timeouts >= timeouts) & mark_proved(tables))
    return np.asarray(rows[_mark_idle(tables, rows, idle_ns) == idle])


def mark_proved(tables: Tables) -> Mask:
    """Mark rows whose peer was heard, or is gone by an ICMP error: the capture may lack the packets of the others."""
    return np.asarray((tables.unanswered.heard_packet > 0) | _mark_unrouted(tables))


def mark_stuck(tables: Tables) -> Mask:
    """Mark rows whose side sent little but retransmissions: nothing shows that these, or others, ever arrived."""
    u, c = tables.unanswered, tables.connections
    packets = np.where(u.direction == 0, c.packets_client[u.connection], c.packets_server[u.connection])
    return np.asarray(2 * u.retransmissions >= packets)


def _mark_unrouted(tables: Tables) -> Mask:
    """Mark rows for which a router reports that there is no way."""
    unrouted = np.isin(tables.unanswered.connection, tables.icmp_errors.connection)
    for row in np.flatnonzero(unrouted).tolist():
        error = find_error(tables, row)
        unrouted[row] = error is not None and icmp.is_unrouted(tables, error)
    return np.asarray(unrouted)


def _mark_idle(tables: Tables, rows: Ints, idle_ns: int) -> Mask:
    """Mark rows whose connection was idle for `idle_ns` before, unless a router reports that there is no way."""
    u = tables.unanswered
    silent = u.first_time_ns[rows] - u.heard_time_ns[rows] >= idle_ns
    encrypted = tables.connections.rpcs[u.connection[rows]] == 0
    busy = mark_busy(tables, u.connection[rows], u.heard_time_ns[rows], u.first_time_ns[rows])
    unrouted = _mark_unrouted(tables)[rows]
    return np.asarray(silent & ~busy & ~encrypted & ~unrouted)


def mark_brief(tables: Tables, rows: Ints) -> Mask:
    """Mark rows whose packets may still have got an answer after the capture: nobody gave up, nor reports an error."""
    u = tables.unanswered
    brief = (u.last_time_ns[rows] - u.first_time_ns[rows] < _OUTAGE_NS) & ~_mark_unrouted(tables)[rows]
    for place in np.flatnonzero(brief).tolist():
        brief[place] = find_closing(tables, int(rows[place])) is None
    return np.asarray(brief)


def mark_long(tables: Tables, rows: Ints) -> Mask:
    """Mark rows with packets alone that are longer than what every path carries, and than all that was acknowledged."""
    u = tables.unanswered
    return np.asarray(u.shortest[rows] > np.maximum(u.longest_bytes[rows], PASSES_BYTES))


def mark_busy(tables: Tables, connections: Counts, since_ns: Ints, until_ns: Ints) -> Mask:
    """Mark connections on which an RPC began at `since_ns` or before and did not end before `until_ns`."""
    starts, ends = tables.rpcs.start_time_ns, tables.rpcs.start_time_ns + tables.rpcs.duration_ns
    places = group_rows(tables.rpcs.connection) if len(connections) else {}
    busy = [
        ((starts[mine] <= since) & (ends[mine] >= until)).any()
        for mine, since, until in zip(_list_groups(places, connections), since_ns, until_ns, strict=True)
    ]
    return np.array(busy, dtype=bool)


def _list_groups(places: Mapping[int, Ints], numbers: Counts) -> Iterator[Ints]:
    """Yield the rows of each number, none where it has no group."""
    return (places.get(number, np.empty(0, dtype=np.int64)) for number in numbers.tolist())


def mark_first_closings(tables: Tables) -> Mask:
    """Mark the first FIN or RST of each connection; a capture may have it behind the peer's, whose ACK tells."""
    c = tables.closings
    first = c.direction == tables.connections.closed_by[c.connection]
    earliest = np.full(len(tables.connections.rpcs), np.iinfo(np.int64).max)
    np.minimum.at(earliest, c.connection[first], c.packet[first])
    return np.asarray(first & (c.packet <= earliest[c.connection]))


def find_closing(tables: Tables, row: int) -> int | None:
    """Find the FIN or RST with which the unanswered side gave up; None when it did not."""
    c, u = tables.closings, tables.unanswered
    mine = (c.connection == u.connection[row]) & (c.direction == u.direction[row])
    rows = np.flatnonzero(mine & (c.time_ns >= u.first_time_ns[row]))
    return int(rows[np.argmin(c.time_ns[rows])]) if len(rows) else None


def has_closed(tables: Tables, row: int) -> bool:
    """Check whether the side sent its FIN before it retransmitted anything: it did not give up then."""
    closing, again = find_closing(tables, row), int(tables.unanswered.again_time_ns[row])
    return closing is not None and not tables.closings.reset[closing] and int(tables.closings.time_ns[closing]) < again


def find_answer(tables: Tables, row: int) -> int | None:
    """Find a later connection to the same end whose SYN was answered: by the host, or by another with its address."""
    u = tables.unanswered
    later = np.flatnonzero(_mark_same_end(tables, row) & (tables.setups.syn_ack_time_ns > u.first_time_ns[row]))
    return int(later[0]) if len(later) else None


def is_tried_in_vain(tables: Tables, row: int) -> bool:
    """Check whether a later SYN to the same end had no answer at all."""
    c, setups = tables.connections, tables.setups
    silent = (setups.syns > 0) & (setups.syn_ack_packet == 0) & (setups.reset_packet == 0) & (c.packets_server == 0)
    return bool((_mark_same_end(tables, row) & silent & (c.first_time_ns > tables.unanswered.first_time_ns[row])).any())


def find_next_try(tables: Tables, row: int) -> int | None:
    """Find the client's next connection to the server that does not answer: it may have given up this one then."""
    c, u = tables.connections, tables.unanswered
    later = _mark_same_end(tables, row) & (tables.setups.syns > 0) & (c.first_time_ns > u.first_time_ns[row])
    rows = np.flatnonzero(later & (c.client_ip == c.client_ip[u.connection[row]]))
    return int(rows[np.argmin(c.first_time_ns[rows])]) if len(rows) else None


def _mark_same_end(tables: Tables, row: int) -> Mask:
    """Mark connections to the server that does not answer; none where it is the client."""
    u, servers = tables.unanswered, hosts.number_servers(tables)
    return np.asarray((servers == servers[u.connection[row]]) & (u.direction[row] == 0))


def mark_answered(tables: Tables, rows: Ints, *, meanwhile: bool = False) -> Mask:
    """Mark rows for which `find_answer` finds a connection.

    With `meanwhile` it was answered while the bytes of this one were still retransmitted.
    """
    u, syn_acks, servers = tables.unanswered, tables.setups.syn_ack_time_ns, hosts.number_servers(tables)
    times = {server: np.sort(syn_acks[mine]) for server, mine in group_rows(servers).items()} if len(rows) else {}

    def is_answered(row: int) -> bool:
        mine = times[int(servers[u.connection[row]])]
        place = int(np.searchsorted(mine, u.first_time_ns[row], side="right"))
        return place < len(mine) and not (meanwhile and mine[place] > u.last_time_ns[row])

    answered = np.array([is_answered(row) for row in rows.tolist()], dtype=bool)
    return np.asarray((u.direction[rows] == 0) & answered)


def find_error(tables: Tables, row: int) -> int | None:
    """Find the ICMP error that says why the packets of a row are not answered."""
    u = tables.unanswered
    since = int(u.first_time_ns[row])
    return icmp.find_error(tables, int(u.connection[row]), int(u.direction[row]), since, too_big=False)


def is_kept_alive(tables: Tables, row: int, idle_ns: int) -> bool:
    """Check whether a timer sent the PING: it follows a silence, while a BDP probe follows DATA of the peer."""
    u, pings = tables.unanswered, tables.pings
    known = pings.purpose[(pings.packet == u.ping_packet[row]) & (pings.direction == u.direction[row])].tolist()
    late = u.ping_packet[row] > 0 and u.ping_time_ns[row] - u.heard_time_ns[row] >= idle_ns
    return bool(late) and not set(known) & set(OTHER_PINGS)


def describe_answer(tables: Tables, row: int) -> str:
    """Say that the peer answered another connection meanwhile, or that none is seen."""
    u, setups = tables.unanswered, tables.setups
    peer = hosts.host(tables, int(u.connection[row]), 1 - int(u.direction[row]))
    answer = find_answer(tables, row)
    if answer is None and is_tried_in_vain(tables, row):
        return f"{peer} is not heard on a new connection either, so the host or the whole path may be gone."
    if answer is None:
        return "The host, the path or a device that forgot this connection may be the cause."
    return (
        f"{peer} answered a new connection in packet {setups.syn_ack_packet[answer]}: it lives, or another host has "
        "its address, and something between may have forgotten this connection."
    )


def count_waiting(tables: Tables, rows: Ints) -> Ints:
    """Count for each row the RPCs that were open while their connection got no answer, as far as they have rows."""
    u, rpcs, still = tables.unanswered, tables.rpcs, tables.open_rpcs
    ends = np.where(rpcs.flags & COMPLETE, rpcs.start_time_ns + rpcs.duration_ns, -1)
    open_ones = still.closed == 0  # the others have ended
    ends, on = np.r_[ends, still.end_time_ns[open_ones]], np.r_[rpcs.connection, still.connection[open_ones]]
    groups = _list_groups(group_rows(on), u.connection[rows])
    # the first packet without an answer may be the RST_STREAM that ends one
    waiting = [(ends[mine] >= since).sum() for mine, since in zip(groups, u.first_time_ns[rows], strict=True)]
    return np.array(waiting, dtype=np.int64)


def sum_lost(tables: Tables, connections: tuple[int, ...]) -> int:
    """Sum up the RPC time on these connections in which nothing was answered, of each call up to its deadline."""
    whole = total_ns(tables.connection_budgets[list(connections), PEER_UNREACHABLE])
    return max(whole - sum_beyond_deadlines(tables, connections), 0)


def sum_beyond_deadlines(tables: Tables, connections: tuple[int, ...]) -> int:
    """Sum up what open RPCs count beyond their deadlines, behind which nobody waits for them."""
    o = tables.open_rpcs
    u = tables.unanswered
    in_vain = np.full(len(tables.connections.rpcs), np.iinfo(np.int64).max)
    np.minimum.at(in_vain, u.connection, u.first_time_ns)
    limited = np.flatnonzero((o.timeout_ns > 0) & (o.closed == 0) & np.isin(o.connection, connections))
    since = np.maximum(o.start_time_ns[limited] + o.timeout_ns[limited], in_vain[o.connection[limited]])
    return total_ns(np.maximum(o.end_time_ns[limited] - since, 0))


def describe_deadlines(tables: Tables, connections: tuple[int, ...]) -> str:
    """Say which open RPCs passed their deadlines, and how much of their time is not lost for that; perhaps nothing."""
    o = tables.open_rpcs
    limited = (o.timeout_ns > 0) & (o.start_time_ns + o.timeout_ns <= o.end_time_ns)
    late = int((limited & np.isin(o.connection, connections)).sum())
    if not late:
        return ""
    its, end = ("its", "its end is") if late == 1 else ("their", "their ends are")
    text = (
        f"{count(late, 'open RPC')} passed {its} deadline meanwhile; {end} not on the wire, because TCP repeats only "
        "the oldest bytes."
    )
    beyond = sum_beyond_deadlines(tables, connections)
    after = f" The {duration(beyond)} after {its} deadline count neither as lost nor as RPC time here."
    return text + (after if beyond else "")


def share_lost(tables: Tables, connections: tuple[int, ...], lost_ns: int) -> float:
    """Give the part of all RPC time that was lost, as far as somebody waited."""
    return lost_ns / max(methods.rpc_time(tables) - sum_beyond_deadlines(tables, connections), 1)


def format_instant(tables: Tables, time_ns: int) -> str:
    """Format an instant relative to the capture's first packet, as reports show it."""
    return f"{(time_ns - int(tables.capture['first_time_ns'])) / 1e9:,.3f} s"


def describe_end(tables: Tables, row: int) -> str:
    """Say who gave up when, or that nobody did."""
    u = tables.unanswered
    sender = hosts.host(tables, int(u.connection[row]), int(u.direction[row]))
    closing = find_closing(tables, row)
    last = format_instant(tables, int(u.last_time_ns[row]))
    if u.fin_alone[row] or has_closed(tables, row):
        what = "it" if u.fin_alone[row] else "the bytes before it"
        return f"{sender} closed with a FIN, and retransmitted {what} until {last}"
    pinged = f" after its PING of {format_instant(tables, int(u.ping_time_ns[row]))}" if u.ping_packet[row] else ""
    if closing is None:
        return f"{sender} retransmitted until {last}; a FIN or a PING would wait behind the unacknowledged bytes"
    c = tables.closings
    how = "RST" if c.reset[closing] else "FIN"
    return f"{sender} gave up at {format_instant(tables, int(c.time_ns[closing]))} with a {how}{pinged}"


def show_unanswered(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield the packets that show that nothing is answered."""
    u = tables.unanswered
    connection, direction = int(u.connection[row]), int(u.direction[row])
    sender, peer = hosts.host(tables, connection, direction), hosts.host(tables, connection, 1 - direction)
    if u.heard_packet[row]:
        yield evidence.show_packet(u, "heard_packet", row, f"the last packet of {peer}")
    first = int(u.first_packet[row])
    sent = "a FIN that gets" if u.fin_alone[row] else "bytes that get"
    if first == int(u.ping_packet[row]):
        sent = "bytes (a PING) that get"
    yield Evidence(first, int(u.first_time_ns[row]), f"{sender} sends {sent} no answer")
    again = int(u.again_packet[row])
    yield Evidence(again, int(u.again_time_ns[row]), f"{sender} retransmits for the first time")
    yield evidence.show_packet(
        u, "last_packet", row, f"retransmission {int(u.retransmissions[row])}: still no packet of {peer}"
    )
    if (error := find_error(tables, row)) is not None:
        yield icmp.show_error(tables, error, int(u.first_time_ns[row]))
    if (closing := find_closing(tables, row)) is not None and not u.fin_alone[row]:
        what = "closes with a FIN" if has_closed(tables, row) else "gives up"
        yield evidence.show_packet(tables.closings, "packet", closing, f"{sender} {what}")
