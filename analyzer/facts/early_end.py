"""How one connection ended before its RPCs did: who closed it, what its GOAWAY says, and the packets that show it."""

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from ..model.finding import Evidence
from ..model.text import count, duration
from ..summary import figures
from ..tables import Tables, error_name
from ..tables.grouping import group_rows
from . import breaches
from . import failures as common
from .evidence import show_packet
from .hosts import host, number_servers

Closer = Literal["client", "server", "unseen", "forgotten"]
"""Who closed a connection: `unseen` if its close is not in the capture, `forgotten` if an end did not know it."""


class End(Struct, frozen=True, eq=False):
    """How one connection ended: `goaway` is a row of the goaways table or -1, `lost` rows of RPCs."""

    connection: int
    goaway: int
    lost: tuple[int, ...]
    grave: bool
    """Whether it cost RPCs, and the client did not close the connection of its own accord."""
    drops: bool
    """Whether its client closed it as soon as a GOAWAY came, which lets open RPCs end."""
    closer: Closer
    breach: int
    """Row of the problems table: the bytes that break HTTP/2 on which who ended it acted, -1 for none."""


def describe_end(tables: Tables, end: End) -> str:
    """Say how one connection ended."""
    connections, closer = tables.connections, _describe_closer(tables, end)
    opened = int(connections.opened_time_ns[end.connection])
    ends_at = int(connections.closed_time_ns[end.connection])
    age = f" {duration(ends_at - opened)} after it was opened" if opened >= 0 <= ends_at else ""
    rpcs = count(len(end.lost), "open RPC") if end.lost else "no open RPC"
    if end.goaway < 0:
        without = "" if connections.protocol[end.connection] == figures.HTTP1 else " without GOAWAY"
        return f"Connection {end.connection} ended{without}: {closer}{age}, with {rpcs}."
    sender = host(tables, end.connection, int(tables.goaways.direction[end.goaway]))
    return (
        f"{sender} sent GOAWAY {name_code(tables, end.goaway)} on connection {end.connection}; {closer}{age}, "
        f"with {rpcs}."
    )


def find_closer(tables: Tables, connection: int) -> Closer:
    """Find who closed a connection. A RST without ACK is no close, but of an end that does not know the connection."""
    by = int(tables.connections.closed_by[connection])
    if by > 1:
        return "unseen"
    c = tables.closings
    rows = np.flatnonzero((c.connection == connection) & (c.direction == by))
    first = rows[np.argmin(c.packet[rows])] if len(rows) else None
    forgotten = first is not None and c.reset[first] and not c.acknowledges[first]
    return "forgotten" if forgotten else ("client", "server")[by]


RESTART_NS = 60_000_000_000
"""A server that refuses a SYN so soon after had stopped before (heuristic: a restart takes less than a minute)."""


def find_refusals(tables: Tables, ended: Iterable[int], within_ns: int) -> dict[int, int]:
    """Find the next connection of an ended one's client to its server, if that refused its SYN soon after.

    The server had stopped then.
    """
    c, setups, found = tables.connections, tables.setups, {}
    _, servers = np.unique(number_servers(tables), return_inverse=True)
    ends = servers.astype(np.int64) * len(tables.addresses) + c.client_ip
    begun = group_rows(np.where(setups.syns > 0, ends, -1))
    for connection in ended:
        rows = begun.get(int(ends[connection]), np.zeros(0, dtype=np.int64))
        since = c.first_time_ns[rows] - c.closed_time_ns[connection]
        rows = rows[(since > 0) & (since <= within_ns)]
        following = int(rows[np.argmin(c.first_time_ns[rows])]) if len(rows) else None
        if following is not None and setups.reset_packet[following] > 0 and setups.syn_ack_packet[following] == 0:
            found[connection] = following
    return found


def _describe_closer(tables: Tables, end: End) -> str:
    side = host(tables, end.connection, min(int(tables.connections.closed_by[end.connection]), 1))
    match end.closer:
        case "unseen":
            return "its close is not in the capture"
        case "forgotten":
            return f"a RST without ACK with the address of {side} ended it"
        case _:
            return f"{side} closed it"


def name_code(tables: Tables, goaway: int) -> str:
    """Name the code of a GOAWAY, with the reason that its sender gives."""
    reason = find_reason(tables, goaway)
    return error_name(int(tables.goaways.code[goaway])) + (f' "{reason}"' if reason else "")


def find_reason(tables: Tables, goaway: int) -> str:
    """Find the reason that the sender of a GOAWAY gives; empty for none."""
    reason: str = tables.goaway_reasons[tables.goaways.reason[goaway]]
    return reason


def show_end(tables: Tables, end: End) -> Iterator[Evidence]:
    """Yield the packets that show how a connection ended, and its first lost RPC."""
    if end.breach >= 0:
        yield breaches.show_breach(tables, end.breach)
    if end.goaway >= 0:
        goaways, row = tables.goaways, end.goaway
        what = (
            f"GOAWAY {name_code(tables, row)}, last stream {goaways.last_stream[row]}, "
            f"{count(int(goaways.open_rpcs[row]), 'RPC')} open"
        )
        yield show_packet(goaways, "packet", row, what)
    if end.lost:
        yield common.began(tables, end.lost[0])
        yield common.ended(tables, end.lost[0], _describe_loss_of_one(tables, end))


def _describe_loss_of_one(tables: Tables, end: End) -> str:
    """Say what ended the first lost RPC: its client's reset, or the end of the connection."""
    rows = common.failed(tables)
    rows = rows.where(rows.rpc == end.lost[0])
    if len(rows) and rows.reset_by[0] == 0:
        return common.reset_words(tables, rows, 0)
    closed = f", closed by the {end.closer}," if end.closer in ("client", "server") else ""
    return f"the connection{closed} ends without a response"
