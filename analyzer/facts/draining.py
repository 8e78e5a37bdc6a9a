"""What the GOAWAY frames of servers say: which calls they refuse, and limits on a connection's requests or age."""

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.finding import Remedy
from ..model.text import count, duration
from ..software import intents, settings
from ..software.texts import list_goaways
from ..tables import Counts, Ints, Mask, Tables
from . import software_at
from .failures import CLIENT_DEADLINE, CONNECTION, OK, TRAILERS, LossLimits, failed
from .hosts import number_servers

ALL_STREAMS = 0x7FFF_FFFF
"""Last stream of a GOAWAY that only announces the end (RFC 9113 section 6.8)."""
MAX_AGE = "max_age"
"""What servers write into the GOAWAY of a connection that reached its maximum age."""
MORE = "fewer new connections; a leak of memory per connection lives longer"
MORE_TIME = "server: the last RPCs of a connection have more time"
_BELOW = Remedy(
    "application", "maximum connection age below the load balancer's limit", "AWS ALB ends at 10,000 requests"
)


def find_last_goaways(tables: Tables) -> dict[int, int]:
    """Find the server's last GOAWAY with NO_ERROR on each connection: its last stream counts."""
    g = tables.goaways
    rows = np.flatnonzero((g.direction == 1) & (g.code == 0))
    return {int(g.connection[row]): row for row in rows[np.argsort(g.packet[rows], kind="stable")].tolist()}


def mark_refused(tables: Tables, rows: Ints | Counts) -> Mask:
    """Mark RPCs whose stream is above the last one that their server processes (RFC 9113 section 6.8)."""
    last = np.full(len(tables.connections.rpcs), ALL_STREAMS, dtype=np.int64)
    for connection, goaway in find_last_goaways(tables).items():
        last[connection] = tables.goaways.last_stream[goaway]
    refused: Mask = (tables.rpcs.stream[rows] > last[tables.rpcs.connection[rows]]) & (tables.rpcs.status[rows] != OK)
    return refused


def find_notices(tables: Tables) -> Ints:
    """Find when the server of each connection sent its first GOAWAY without an error; the maximum for none."""
    g = tables.goaways
    graceful = (g.direction == 1) & (g.code == 0)
    noticed = np.full(len(tables.connections.rpcs), np.iinfo(np.int64).max)
    np.minimum.at(noticed, g.connection[graceful], g.time_ns[graceful])
    return noticed


def find_first_goaways(tables: Tables, wanted: Mask, *, server_only: bool = False) -> dict[int, int]:
    """Find the first `wanted` GOAWAY of each connection; with `server_only` where a server sent the first GOAWAY."""
    goaways = tables.goaways
    if not (wanted & (goaways.direction == 1) if server_only else wanted).any():
        return {}
    found: dict[int, int] = {}
    first: dict[int, int] = {}
    for row in np.argsort(goaways.packet, kind="stable").tolist():
        connection = int(goaways.connection[row])
        begin = first.setdefault(connection, row)
        if wanted[row] and not (server_only and int(goaways.direction[begin]) == 0):
            found.setdefault(connection, row)
    return found


def mark_answers_to_closes(tables: Tables) -> Mask:
    """Mark GOAWAYs that answer their peer's FIN or RST, as libraries send them with an error."""
    g, closings, c = tables.goaways, tables.closings, tables.connections
    near = np.stack([c.near_client_rtt_ns, c.near_server_rtt_ns])
    closed = np.full((2, len(c.rpcs)), np.iinfo(np.int64).max)
    np.minimum.at(closed, (closings.direction, closings.connection), closings.time_ns)
    way = np.maximum(near[g.direction, g.connection], 0)
    return np.asarray(g.time_ns - way >= closed[1 - g.direction.astype(np.int64), g.connection])


def mark_behind_final(tables: Tables) -> Mask:
    """Mark errors of a server that its own last GOAWAY came before, less than a round trip earlier.

    The client cannot have it yet, and what it sends meanwhile is no fault: python-hyper's h2 takes no frame behind one.
    """
    g, last = tables.goaways, np.full(len(tables.connections.rpcs), -1)
    for connection, row in find_last_goaways(tables).items():
        last[connection] = row
    final = last[g.connection]
    since = g.time_ns - g.time_ns[final]
    soon = (since >= 0) & (since < tables.connections.min_rtt_ns[g.connection])
    same = g.last_stream == g.last_stream[final]
    return np.asarray((final >= 0) & (g.direction == 1) & (g.code != 0) & soon & same)


_WITH_CLOSE_NS = 20_000_000
"""Calls that end so soon before their server closes the connection end with it: libraries take a few milliseconds."""


def mark_shut_down(tables: Tables, rpc: Counts, ends_ns: Ints) -> Mask:
    """Mark RPCs that ended together with their connection, which their server closed after it had said GOAWAY."""
    with_it, on = mark_with_close(tables, rpc, ends_ns), tables.rpcs.connection[rpc]
    # a server that drains a connection closes it when its last call ends, whatever ended that
    together = np.bincount(on[with_it], minlength=len(tables.connections.rpcs)) > 1
    return np.asarray(with_it & together[on])


def mark_with_close(tables: Tables, rpc: Counts, ends_ns: Ints) -> Mask:
    """Mark RPCs that ended right before their server closed the connection, after it had said GOAWAY."""
    c, on = tables.connections, tables.rpcs.connection[rpc]
    closed = (c.closed_by[on] == 1) & (c.closed_time_ns[on] >= 0)
    return np.asarray(
        closed & (find_notices(tables)[on] < ends_ns) & (c.closed_time_ns[on] - ends_ns <= _WITH_CLOSE_NS)
    )


def find_refused(tables: Tables) -> Ints:
    """Find the RPCs that servers refused by a GOAWAY and ended without an answer."""
    rows = failed(tables).rpc.astype(np.int64)
    return rows[mark_refused(tables, rows)]


def find_refused_with_error(tables: Tables) -> Counts:
    """Find the RPCs without a response that were open at a server's GOAWAY with an error.

    They are above its last stream, or it ended no RPC behind it: who sends one closes (RFC 9113 section 5.4.1).
    """
    g, rpcs = tables.goaways, tables.rpcs
    firsts = find_first_goaways(tables, (g.code != 0) & (g.direction == 1))
    if not firsts:
        return np.zeros(0, dtype=np.uint32)
    last = np.full(len(tables.connections.rpcs), ALL_STREAMS, dtype=np.int64)
    said = np.full(len(last), np.iinfo(np.int64).max)
    for connection, row in firsts.items():
        last[connection], said[connection] = g.last_stream[row], g.time_ns[row]
    ends = rpcs.start_time_ns + rpcs.duration_ns
    goes_on = np.zeros(len(last), dtype=bool)
    goes_on[rpcs.connection[(rpcs.status_source == TRAILERS) & (ends > said[rpcs.connection])]] = True
    rpc = failed(tables).rpc
    on, silent = rpcs.connection[rpc], np.isin(rpcs.status_source[rpc], _UNANSWERED)
    # a call that begins after the GOAWAY crosses it on the way, or is its client's mistake
    found = silent & (rpcs.start_time_ns[rpc] < said[on]) & (ends[rpc] > said[on])
    return rpc[found & ((rpcs.stream[rpc] > last[on]) | ~goes_on[on])]


_UNANSWERED = (CLIENT_DEADLINE, CONNECTION, _core.STATUS_SOURCES.index("client_reset"))
"""What ended an RPC that its server did not end."""


class Alike(LossLimits, frozen=True, eq=False):
    """How alike connections must be that a limit of their server drained, and how many lost RPCs are critical."""

    drained: int = 3
    """Fewest connections with the same number of requests or the same age (heuristic: two may be alike by chance)."""
    drained_share: float = 0.8
    """Share of the drained connections that must have it (heuristic: a restart may end a few earlier)."""
    round_requests: int = 50
    """A multiple of it, or a power of two, is a limit on requests, not on age (heuristic: people set 100, 128)."""
    age_spread: float = 0.25
    """Largest spread of ages, by their median (gRFC A9: MAX_CONNECTION_AGE varies by 10 % each way)."""


class AlikeCloses(Alike, frozen=True, eq=False):
    """The same, also for connections that a server closed without GOAWAY."""

    closed_spread: float = 0.1
    """Largest spread of the ages of connections closed without GOAWAY (heuristic: less proves a timer alone)."""


class Drained(Struct, frozen=True, eq=False):
    """Connections that a server drained at the same number of requests, or at the same age."""

    requests: int
    """0 when they have only the same age."""
    age_ns: int
    """0 when they have only the same number of requests."""
    connections: int
    of: int
    software: str | None
    """What the server runs, None where it is unknown or not the same on all."""
    is_said: bool = False
    """Whether its GOAWAY says that it is the age."""

    def describe(self) -> str:
        """Say what they have in common: `The server drained 12 of 12 connections with GOAWAY after exactly 50 ...`."""
        if self.requests and self.age_ns:
            limit = "a limit on requests per connection or on the age of connections"
        else:
            limit = "a limit on requests per connection" if self.requests else "a limit on the age of connections"
        times = f"{self.connections:,} of {count(self.of, 'connection')}"
        text = f' "{MAX_AGE}"' if self.is_said else ""
        return f"The server drained {times} with GOAWAY{text} {self.when}: {limit}."

    @property
    def when(self) -> str:
        """Say when they were drained: `after exactly 50 requests each`."""
        age = f"at an age of about {duration(self.age_ns)}" if self.age_ns else "before their first message"
        if not self.requests:
            return age
        requests = f"after exactly {self.requests:,} requests each"
        return f"{requests} and {age}" if self.age_ns else requests

    def advise(self) -> str:
        """Say what to change first: `The server drains ...: raise that limit (keepalive_requests 100000).`."""
        if self.is_said:
            grace = name_grace(self.software)
            return f"That is a connection's maximum age: give open calls more time before the server closes{grace}."
        own = [one.knob for limit in self._list_limits() for one in settings.list_own(limit, self.software)]
        return f"The server drains connections {self.when}: raise that limit{f' ({own[0]})' if own else ''}."

    def _list_limits(self) -> list[str]:
        return [intents.REQUESTS] * (self.requests > 0) + [intents.AGE] * (self.age_ns > 0)

    def list_remedies(self) -> tuple[Remedy, ...]:
        """List the settings of that limit, those of the server's software."""
        known = (one for limit in self._list_limits() for one in settings.list_settings(limit, self.software, MORE))
        return (*known, *((_BELOW,) if self.requests else ()))


def name_grace(software: str | None) -> str:
    """Name the time that calls have from a connection's maximum age on: ` (MaxConnectionAgeGrace)`; perhaps nothing."""
    return "".join(f" ({one.knob})" for one in settings.list_own(intents.GRACE, software))


def is_stopped(tables: Tables, goaway: int) -> bool:
    """Check whether a GOAWAY, a row of the goaways table, says that the server was stopped."""
    return tables.goaway_reasons[tables.goaways.reason[goaway]] in list_goaways("stop")


def find_drained(tables: Tables, limits: Alike) -> Drained | None:
    """Find what the connections that servers ended with GOAWAY NO_ERROR have in common; None when it is nothing."""
    goaways, c = tables.goaways, tables.connections
    texts = np.array([tables.goaway_reasons[reason] for reason in goaways.reason.tolist()], dtype=object)
    graceful = (goaways.direction == 1) & (goaways.code == 0)
    if (said := graceful & (texts == MAX_AGE)).any():
        return _read_age(tables, np.flatnonzero(said), np.flatnonzero(graceful))
    rows = np.flatnonzero(graceful & ~np.isin(texts, list_goaways("stop", "idle")))
    final = rows[goaways.last_stream[rows] != ALL_STREAMS]
    connections, requests = _count_requests(tables, final)
    if len(connections) >= limits.drained:
        values, counts = np.unique(requests, return_counts=True)
        best = int(np.argmax(counts))
        number = int(counts[best])
        if number >= max(limits.drained, limits.drained_share * len(connections)) and values[best] > 1:
            alike = connections[requests == values[best]]
            age = _find_age(tables, final, alike, int(values[best]), limits)
            software = software_at.recognise_server(tables, connections.tolist())
            return Drained(int(values[best]), age, number, len(connections), software)
    busy = rows[(goaways.open_rpcs[rows] > 0) & (c.opened_time_ns[goaways.connection[rows]] >= 0)]
    connections, first = np.unique(goaways.connection[busy].astype(np.int64), return_index=True)
    ages = goaways.time_ns[busy][first] - c.opened_time_ns[connections]
    if len(ages) < limits.drained or int(ages.max() - ages.min()) > limits.age_spread * float(np.median(ages)):
        return None
    starts = c.opened_time_ns[connections]
    if int(starts.max() - starts.min()) <= int(ages.max() - ages.min()):  # opened together: one common end
        return None
    if _are_alike(ages - _begin_last_calls(tables, connections, goaways.time_ns[busy][first]), AlikeCloses()):
        return None
    software = software_at.recognise_server(tables, connections.tolist())
    return Drained(0, int(np.median(ages)), len(ages), len(ages), software)


def _begin_last_calls(tables: Tables, connections: Ints, until_ns: Ints) -> Ints:
    """Give the ages at which connections began their last calls before some times; 0 without any.

    A drain that follows the call by always the same time is no limit on age.
    """
    c, rpcs, ends = tables.connections, tables.rpcs, np.full(len(tables.connections.rpcs), -1, dtype=np.int64)
    ends[connections] = until_ns
    before = rpcs.start_time_ns <= ends[rpcs.connection]
    begun = c.opened_time_ns.copy()
    np.maximum.at(begun, rpcs.connection[before], rpcs.start_time_ns[before])
    return (begun - c.opened_time_ns)[connections]


def _read_age(tables: Tables, rows: Ints, graceful: Ints) -> Drained:
    """Take the age from GOAWAYs that say it."""
    goaways = tables.goaways
    connections, first = np.unique(goaways.connection[rows].astype(np.int64), return_index=True)
    opened = tables.connections.opened_time_ns[connections]
    ages = (goaways.time_ns[rows][first] - opened)[opened >= 0]
    software = software_at.recognise_server(tables, connections.tolist())
    age, drained = int(np.median(ages)) if len(ages) else 0, len(np.unique(goaways.connection[graceful]))
    return Drained(0, age, len(connections), drained, software, is_said=True)


def find_age_of_closes(tables: Tables, connection: int, limits: AlikeCloses) -> int:
    """Find the age at which the server of a connection closed several, without GOAWAY; 0 unless it is proved.

    They were opened at different times, and their ages are more alike than those: nothing that happened at one moment
    explains them. Their last RPCs began at other ages: no timer of calls, or of idle connections, does.
    """
    c, goaways, rpcs = tables.connections, tables.goaways, tables.rpcs
    servers = number_servers(tables)
    silent = (c.closed_by == 1) & (c.opened_time_ns >= 0) & (c.closed_time_ns >= 0) & (c.rpcs > 0)
    silent &= servers == servers[connection]
    silent[goaways.connection[goaways.direction == 1]] = False
    rows = np.flatnonzero(silent)
    if len(rows) < limits.drained:
        return 0
    closed, opened = c.closed_time_ns[rows], c.opened_time_ns[rows]
    begun = np.full(len(c.rpcs), np.iinfo(np.int64).min)
    np.maximum.at(begun, rpcs.connection, rpcs.start_time_ns)
    if int(np.diff(np.sort(opened)).min()) <= np.ptp(closed - opened) or _are_alike(closed - begun[rows], limits):
        return 0
    return int(np.median(closed - opened)) if _are_alike(closed - opened, limits) else 0


def _are_alike(lengths_ns: Ints, limits: AlikeCloses) -> bool:
    """Check whether one timer may have made these times."""
    return bool(np.ptp(lengths_ns) <= limits.closed_spread * float(np.median(lengths_ns)))


def _find_age(tables: Tables, goaways: Ints, connections: Ints, requests: int, limits: Alike) -> int:
    """Give the age at which connections were drained if a limit on it gives them equally many requests, too; else 0.

    A connection that lives longer by the time between its callers' requests has more of them. A round number of
    requests is somebody's setting.
    """
    opened = tables.connections.opened_time_ns
    last = {int(tables.goaways.connection[row]): int(tables.goaways.time_ns[row]) for row in goaways.tolist()}
    ages = np.array([last[one] - int(opened[one]) for one in connections.tolist() if opened[one] >= 0], dtype=np.int64)
    power = requests >= limits.round_requests and requests & (requests - 1) == 0
    if not len(ages) or power or requests % limits.round_requests == 0:
        return 0
    age, callers = int(np.median(ages)), int(np.median(tables.connections.max_concurrent_rpcs[connections]))
    return age if int(ages.max() - ages.min()) <= age * callers / requests else 0


def _count_requests(tables: Tables, goaways: Ints) -> tuple[Ints, Ints]:
    """Count the requests of each connection up to its last GOAWAY: clients number streams 1, 3, 5 and so on."""
    last: dict[int, int] = {}
    for row in goaways.tolist():
        connection = int(tables.goaways.connection[row])
        if tables.connections.complete[connection]:
            begun = (int(tables.goaways.last_stream[row]) + 1) // 2  # one less where the first stream is 3
            seen = int(tables.connections.rpcs[connection]) + int(tables.connections.other_streams[connection])
            last[connection] = min(begun, seen) or begun
    return np.array(list(last), dtype=np.int64), np.array(list(last.values()), dtype=np.int64)
