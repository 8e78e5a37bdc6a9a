"""A server ended connections abruptly: its GOAWAY left out calls that were sent, or it closed before they could end.

What it finds
-------------
Calls fail when a server restarts, or when a connection reaches the server's limit on its age or its calls. The server
sent one GOAWAY and closed, so calls on their way were refused, and calls that it had accepted were lost.

A graceful end has two steps (RFC 9113 section 6.8): a first GOAWAY that stops new calls, and, a round trip later, a
second one with the last stream that the server works on. The report says how many calls were refused, and how many were
lost.

How it is decided
-----------------
A call is *refused* if its stream is above the last stream of the server's GOAWAY, and it has no answer. The server did
not process it: it is safe to send it again, and most implementations do so without telling the application. If it began
a round trip or more after the GOAWAY, the server gave notice, and the client ignored it.

A call is *lost* if its stream is not above the last stream, and the server closed the connection within a round trip
after its first GOAWAY, before the answer. It may have been processed: only calls that may run twice can be retried.

Three connections or more that end after exactly as many requests each, or at the same age, show a limit: the report
names it.

A GOAWAY with the last stream 2,147,483,647 announces the end and refuses nothing. A client that closes at that moment
gives up its calls itself, which is no fault of the server. GOAWAYs with an error code are `connection-closed-early`.

When it cannot tell
-------------------
Whether a refused call was retried: it has no number that says so. The finding counts the calls of the same methods
that the same client began on other connections within a second, which is what a retry looks like. Calls whose stream
was opened after the GOAWAY had been sent, but before it arrived, are refused as well: they could not know.

What would refute it
--------------------
The server's log shows that it worked on the refused calls, or the client's application got their answers.

What to do
----------
End connections in two steps: `Server.GracefulStop()`, `MaxConnectionAgeGrace`, a shutdown that waits. nginx refuses
the streams above `keepalive_requests`: raise it. Retry what is safe.

References
----------
- RFC 9113 section 6.8 (GOAWAY)
- gRFC A6 (client retries): transparent retries of calls that the server did not process
- gRFC A9: server-side connection management
"""

import bisect
from collections.abc import Iterator

import numpy as np

from ..facts import draining, evidence, failures, hosts, ratings, software_at
from ..model.analysis import Analysis
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count
from ..software import intents
from ..tables import Ints, Mask, Tables
from ..tables.grouping import distinct

ID = "abrupt-goaway"


def _write_figure(analysis: Analysis) -> str:
    return f"{count(analysis.totals.frames.get('GOAWAY', 0), 'GOAWAY frame')}, no call refused by one"


ABOUT = About(
    example="recorded/wild/goaway-low.pcap.zst",
    figure=_write_figure,
    caused_by=("too-many-pings", "keepalive-timeout"),
    precedence=1,
    weight="affected_share",
    whole_connections=True,
    costs=(Cost("refused_rpcs", "{} refused"), Cost("lost_rpcs", "{} lost")),
    proxy_faults=("failed_attempt",),
)


class Limits(draining.Alike, frozen=True, eq=False):
    few: int = failures.FEW
    """Fewer refused calls, none lost, are `info` (heuristic: one or two show no pattern)."""
    warning_share: float = failures.ERROR_RATE
    """A warning from this share of RPCs refused (heuristic: as the error rate that misses usual objectives)."""
    again_ns: int = 1_000_000_000
    """Calls that begin within this time may be the refused ones again (gRPC's connection back-off begins with 1 s)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all connections that servers ended abruptly."""
    if not len(tables.goaways.packet) or not len(tables.failures.rpc):
        return
    refused = draining.find_refused(tables)
    lost = _find_lost(tables)
    if len(refused) or len(lost):
        yield _make_finding(tables, refused, lost, limits)


def _find_lost(tables: Tables) -> Ints:
    """Find calls without an answer on connections that the server closed within a round trip after its first GOAWAY.

    A server that sent one before gave notice: its grace was too short, which is `connection-closed-early`.
    """
    c, rpcs, noticed = tables.connections, tables.rpcs, draining.find_notices(tables)
    fast = (c.closed_by == 1) & (noticed <= c.closed_time_ns) & (c.closed_time_ns - c.min_rtt_ns <= noticed)
    rows = failures.failed(tables).rpc.astype(np.int64)
    rows = rows[np.flatnonzero(fast[rpcs.connection[rows]] & _ended_with_connection(tables, rows))]
    return rows[~draining.mark_refused(tables, rows)]


def _ended_with_connection(tables: Tables, rows: Ints) -> Mask:
    rpcs = tables.rpcs
    ends = rpcs.start_time_ns[rows] + rpcs.duration_ns[rows]
    closed: Mask = (rpcs.status[rows] == failures.UNAVAILABLE) & (
        ends >= tables.connections.closed_time_ns[rpcs.connection[rows]]
    )
    closed &= rpcs.status_source[rows] == failures.CONNECTION
    return closed


def _make_finding(tables: Tables, refused: Ints, lost: Ints, limits: Limits) -> Finding:
    rpcs, everything = tables.rpcs, tables.rpc_count
    rows = np.r_[refused, lost]
    connections = tuple(distinct(rpcs.connection[rows]).tolist())
    server = hosts.name_hosts(tables, connections, 1)
    again, late = _count_again(tables, refused, limits), int(_mark_late(tables, refused).sum())
    drained = draining.find_drained(tables, limits)
    calls, ended = count(len(refused), "call"), count(len(connections), "connection")
    parts = [f"did not process {calls} that the client had sent"] if len(refused) else []
    parts += [f"closed with {count(len(lost), 'call')} unanswered"] if len(lost) else []
    what = ", and ".join(parts)
    goaway = "GOAWAY" if _is_announced(tables, connections) else "GOAWAY without notice"
    safe = "the refused calls are safe to retry" if len(refused) else "retry only calls that may run twice"
    return Finding(
        id=ID,
        title=(
            f"{calls} begun after GOAWAY: refused"
            if late == len(rows)
            else f"{goaway}: {calls} refused, {len(lost):,} lost"
        ),
        severity=_rate_severity(len(refused), len(lost), everything, limits),
        confidence=ratings.quality_allows(tables),
        scope=Scope(connections, failures.methods_of(tables, rows.astype(np.uint32))),
        metrics={
            "connections": len(connections),
            "refused_rpcs": len(refused),
            "safe_to_retry_rpcs": len(refused),
            "begun_after_goaway_rpcs": late,
            "lost_rpcs": len(lost),
            "begun_again_rpcs": again,
            "rpcs": everything,
            "affected_share": len(rows) / everything,
        },
        evidence=tuple(
            item
            for place in hosts.pick_apart(tables, connections)
            for item in _show_connection(tables, connections[place], rows)
        ),
        explanation=" ".join(
            [*_explain(tables, refused, lost, again, late), *([drained.describe()] if drained else [])]
        ),
        remedies=(
            *(drained.list_remedies() if drained else ()),
            *_list_remedies(tables, connections, all_late=late == len(rows)),
        ),
        references=("RFC 9113 section 6.8", "gRFC A6", "gRFC A9"),
        verdict=(
            f"{hosts.name_hosts(tables, connections, 0)} began {calls} on {ended} after the server's GOAWAY, which "
            f"refused them: the client must connect again; {safe}."
            if late == len(rows)
            else f"{server} ended {ended} with {goaway}. It {what}. {_advise(drained)}; {safe}."
        ),
    )


def _advise(drained: draining.Drained | None) -> str:
    """Say what to do first: raise a limit on requests if there is one, for no shutdown ended the connections."""
    if drained and drained.requests:
        return drained.advise().removesuffix(".")
    return "Shut down in two steps (graceful stop)"


def _rate_severity(refused: int, lost: int, everything: int, limits: Limits) -> Severity:
    if lost:
        return failures.severity_of_loss(lost, everything, limits)
    return "warning" if refused >= limits.few and refused / everything >= limits.warning_share else "info"


def _mark_late(tables: Tables, rows: Ints) -> Mask:
    """Mark calls that began a round trip or more after the server's first GOAWAY, which their client had then."""
    rpcs, noticed = tables.rpcs, draining.find_notices(tables)
    on = rpcs.connection[rows]
    trip = tables.connections.min_rtt_ns[on]
    return (trip >= 0) & (rpcs.start_time_ns[rows] - np.maximum(trip, 0) >= noticed[on])


def _is_announced(tables: Tables, connections: tuple[int, ...]) -> bool:
    """Check whether a server sent its last GOAWAY a round trip or more after its first one."""
    noticed, trips = draining.find_notices(tables), tables.connections.min_rtt_ns
    last = draining.find_last_goaways(tables)
    return any(tables.goaways.time_ns[last[one]] - noticed[one] >= max(trips[one], 1) for one in connections)


def _count_again(tables: Tables, refused: Ints, limits: Limits) -> int:
    """Count calls of the same client and method that began elsewhere soon after a refused one's GOAWAY, each once."""
    rpcs, c = tables.rpcs, tables.connections
    drained = np.full(len(c.rpcs), np.iinfo(np.int64).max)
    for connection, goaway in draining.find_last_goaways(tables).items():
        drained[connection] = tables.goaways.time_ns[goaway]
    kind, ended = c.client_ip[rpcs.connection].astype(np.int64) << 32 | rpcs.method, drained[rpcs.connection]
    later = np.flatnonzero(np.isin(kind, kind[refused]) & (rpcs.start_time_ns < ended))
    later = later[np.lexsort((rpcs.start_time_ns[later], kind[later]))]
    starts = list(zip(kind[later].tolist(), rpcs.start_time_ns[later].tolist(), strict=True))
    found = place = 0
    for wanted in sorted(zip(kind[refused].tolist(), ended[refused].tolist(), strict=True)):
        place = bisect.bisect_left(starts, wanted, place)
        if place < len(starts) and starts[place] <= (wanted[0], wanted[1] + limits.again_ns):
            found, place = found + 1, place + 1
    return found


def _explain(tables: Tables, refused: Ints, lost: Ints, again: int, late: int) -> list[str]:
    parts = []
    if len(refused):
        first = int(tables.rpcs.connection[refused[0]])
        goaway = draining.find_last_goaways(tables)[first]
        on = int((tables.rpcs.connection[refused] == first).sum())
        above, all_refused = count(on, "call"), count(len(refused), "call")
        parts.append(
            f"On connection {first} the server's GOAWAY has the last stream {tables.goaways.last_stream[goaway]}, and "
            f"the client had sent {above} above it. In total {all_refused} were refused: the server did not process "
            "them, and they are safe to retry (RFC 9113 section 6.8)."
        )
        if again:
            parts.append(
                f"{count(again, 'call')} of the same methods began on other connections within a second, as retries do."
            )
    if late:
        parts.append(
            f"{count(late, 'call')} began a round trip or more after the first GOAWAY: a client that has it must not "
            "open streams (RFC 9113 section 6.8)."
        )
    if len(lost):
        parts.append(
            f"{count(len(lost), 'call')} that the server had accepted got no answer, because it closed the connection "
            f"within a round trip after its GOAWAY. {'It' if len(lost) == 1 else 'They'} may have been processed."
        )
    return parts


def _show_connection(tables: Tables, connection: int, rows: Ints) -> Iterator[Evidence]:
    g, goaway = tables.goaways, draining.find_last_goaways(tables)[connection]
    what = f"GOAWAY NO_ERROR of the server on connection {connection}, last stream {g.last_stream[goaway]}"
    yield evidence.show_packet(g, "packet", goaway, what)
    mine = rows[tables.rpcs.connection[rows] == connection]
    yield failures.began(tables, int(mine[-1]))


_TWO_STEPS = "server: two GOAWAYs, then waits for open calls"


def _list_remedies(tables: Tables, connections: tuple[int, ...], *, all_late: bool) -> tuple[Remedy, ...]:
    retry = Remedy("any gRPC implementation", "transparent retries (gRFC A6), on by default", "for refused calls alone")
    if all_late:
        return (Remedy("application", "new calls on a new connection", "client: as soon as it has the GOAWAY"), retry)
    stop = software_at.list_settings(tables, connections, 1, intents.TWO_STEP_SHUTDOWN, _TWO_STEPS)
    return (*stop, retry)
