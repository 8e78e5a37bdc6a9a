"""The finding about servers that close idle connections without GOAWAY, by FIN or RST."""

import numpy as np
from msgspec import Struct

from ..facts import draining, evidence, hosts, ratings, software_at, unanswered
from ..facts.early_end import find_refusals
from ..facts.resets import comes_from_elsewhere, goes_on, may_be_foreign
from ..model.finding import Evidence, Finding, Remedy, Scope
from ..model.text import count, duration
from ..software import timers
from ..summary import figures
from ..tables import Ints, Mask, Tables
from ..tables.grouping import group_rows

_SHORTEST_NS = 100_000_000
"""Shortest silence that counts as an idle timeout (heuristic: nobody sets a shorter one)."""
_SPREAD = 0.15
"""Largest spread of the silences, by their median (Pekko's timer ticks eight times per timeout)."""
_REFUSED_NS = 60_000_000_000
"""A server that refuses a SYN so soon after had stopped before (heuristic: a restart takes less than a minute)."""


class IdleCloses(Struct, frozen=True, eq=False):
    """Connections of one server that it closed after the same silence; columns of equal length."""

    rows: Ints
    """Rows of the closings table."""
    silences_ns: Ints
    may_be_age: bool
    """Whether their ages are as alike as the silences."""


def find_idle_closes(tables: Tables, limits: draining.Alike) -> IdleCloses | None:
    """Find the server that closed the most idle connections, without GOAWAY, after the same silence."""
    c, on = tables.closings, tables.connections
    rows = np.flatnonzero(unanswered.mark_first_closings(tables) & (c.direction == 1) & (c.open_rpcs == 0))
    rows = rows[_mark_silent_ends(tables, rows)]
    servers = group_rows(hosts.number_servers(tables)[c.connection[rows]])
    found = [one for places in servers.values() if (one := _judge(tables, rows[places], limits))]
    return max(found, key=lambda one: (len(one.rows), -int(on.server_port[c.connection[one.rows[0]]])), default=None)


def _mark_silent_ends(tables: Tables, rows: Ints) -> Mask:
    """Mark FINs and RSTs of the server itself on whole connections with RPCs, and without a GOAWAY of either side."""
    c, on, connections = tables.closings, tables.connections, tables.closings.connection[rows]
    silent = (on.rpcs[connections] > 0) & (on.protocol[connections] == figures.HTTP2)
    silent &= ~np.isin(connections, tables.goaways.connection)
    silent &= (on.missing_bytes + on.undecoded_bytes + on.undelivered_bytes)[connections] == 0
    silent &= (c.own_packet[rows] > 0) & (c.peer_packet[rows] > 0) & (c.acknowledges[rows] > 0) & (c.lacks[rows] == 0)
    for place in np.flatnonzero(silent & (c.reset[rows] == 1)).tolist():
        row = int(rows[place])
        silent[place] = not comes_from_elsewhere(tables, row) and not goes_on(tables, row)
    return np.asarray(silent)


def _judge(tables: Tables, rows: Ints, limits: draining.Alike) -> IdleCloses | None:
    """Decide whether one timer closed the connections: after the same silence, but not at the same moments."""
    c, on = tables.closings, tables.closings.connection[rows]
    silences = c.time_ns[rows] - np.maximum(c.own_time_ns[rows], c.peer_time_ns[rows])
    if len(rows) < limits.drained or int(silences.min()) < _SHORTEST_NS or not _are_alike(silences):
        return None
    moments = 1 + int((np.diff(np.sort(c.time_ns[rows])) > np.ptp(silences)).sum())
    if moments < limits.drained or find_refusals(tables, on.tolist(), _REFUSED_NS):
        return None
    opened = tables.connections.opened_time_ns[on]
    return IdleCloses(rows, silences, bool((opened < 0).any()) or _are_alike(c.time_ns[rows] - opened))


def _are_alike(lengths_ns: Ints) -> bool:
    return bool(np.ptp(lengths_ns) <= _SPREAD * float(np.median(lengths_ns)))


def make_finding(tables: Tables, closes: IdleCloses, finding_id: str) -> Finding:
    """Make the finding about them: it cost nothing here, but a request that crosses such a close is lost."""
    c, rows = tables.closings, closes.rows
    connections, silence = c.connection[rows], duration(float(np.median(closes.silences_ns)))
    server = hosts.host(tables, int(connections[0]), 1)
    resets = int(c.reset[rows].sum())
    how = "by RST" if resets == len(rows) else f"{resets:,} of them by RST" if resets else "by FIN"
    foreign = sum(may_be_foreign(tables, row) for row in rows.tolist())
    or_device = ", or a device on the way," if foreign else ""
    limit = "an idle timeout, or a limit on their age" if closes.may_be_age else "an idle timeout"
    servers = hosts.name_hosts(tables, connections.tolist(), 1)
    what = (
        f"{servers}{or_device} closed {count(len(rows), 'idle connection')} without GOAWAY, {how}, each about "
        f"{silence} after the last bytes: {limit}"
    )
    return Finding(
        id=finding_id,
        title=f"The server{or_device} closed {count(len(rows), 'idle connection')} without GOAWAY",
        severity="info",
        confidence=ratings.lower("medium" if closes.may_be_age or foreign else "high", ratings.quality_allows(tables)),
        scope=Scope(tuple(sorted(connections.tolist())), ()),
        metrics={
            "connections": len(rows),
            "lost_rpcs": 0,
            "resets": resets,
            "silence_ns": int(np.median(closes.silences_ns)),
        },
        evidence=tuple(e for row in rows[: evidence.FEW_EXAMPLES].tolist() for e in _show_close(tables, row, server)),
        explanation=f"{what}. No RPC was lost. A request that crosses such a close on its way would be."
        f"{_describe_foreign(foreign)}",
        remedies=(
            timers.make_idle_timeout(software_at.recognise_server(tables, connections.tolist())),
            Remedy("application", f"the client's idle timeout: below {silence}", "the client then closes first"),
            *(timers.list_idle_limits(int(np.median(closes.silences_ns))) if foreign else ()),
        ),
        references=("RFC 9113 section 9.1", "gRFC A9"),
        verdict=f"{what}. No RPC was lost.",
    )


def _describe_foreign(resets: int) -> str:
    if not resets:
        return ""
    return (
        f" The IP identification of {count(resets, 'RST')} does not continue that of the server's packets: a device "
        "may have sent them in its name."
    )


def _show_close(tables: Tables, row: int, server: str) -> tuple[Evidence, Evidence]:
    c = tables.closings
    last = "own_packet" if c.own_time_ns[row] > c.peer_time_ns[row] else "peer_packet"
    name = "RST" if c.reset[row] else "FIN"
    return (
        evidence.show_packet(c, last, row, f"the last bytes of connection {c.connection[row]}"),
        evidence.show_packet(c, "packet", row, f"{name} from {server}, TTL {c.ttl[row]}"),
    )
