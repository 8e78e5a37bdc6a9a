"""Detect problems of TLS connections without secrets: the same findings, with less proof.

A record's header is not encrypted and contains the record's length. A sender that stopped inside a record had handed
all of it to TCP, so HTTP/2 and its windows did not block it. How long RPCs waited is unknown: no finding here has time
lost, and none is critical.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from .detectors import capture_quality, loss_recovery
from .detectors import connection_churn as churn
from .detectors import receive_window_stall as receive
from .detectors import slow_start_after_idle as restart
from .detectors import synchronised_stall as stop
from .facts import congestion, hosts, ratings
from .facts.evidence import EXAMPLES
from .facts.groups import Case, Group, put_together
from .facts.stalls import Stalls, find_scope, list_blocked, rate_confidence, show_interval, sort_longest, sum_by_end
from .model.budget import CAUSES
from .model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from .model.text import count, duration, format_times
from .software import intents, pauses, settings
from .tables import Ints, Tables
from .tables.durations import total_ns
from .tables.grouping import group_rows


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.05
    """A warning from this share of the time from a burst's first record to the response (heuristic: RPCs may overlap,
    so that the share of RPC time may be smaller)."""


_LIMITS = Limits()


def detect(tables: Tables, connections: Sequence[int]) -> Iterator[Finding | Skipped]:
    """Yield findings about TLS connections of a capture without RPCs, from bytes, ACKs and retransmissions alone."""
    yield from capture_quality.detect(tables, capture_quality.Limits())
    yield from loss_recovery.detect(tables, loss_recovery.Limits())
    yield from find_slow_start_after_idle(tables, connections)
    yield from find_receive_window_stall(tables, connections)
    yield from find_connection_churn(tables, connections)
    yield from find_synchronised_stall(tables, connections)


def _select_records(tables: Tables, connections: Sequence[int]) -> tuple[Tables, Ints]:
    """Return tables whose blocked intervals are those inside records, and the rows of some connections."""
    tables = replace(tables, waits=tables.record_waits, measured=None)
    return tables, np.flatnonzero(np.isin(tables.waits.connection, np.asarray(connections, dtype=np.int64)))


def _make_finding(tables: Tables, rows: Ints, connections: Scope, say: _Words) -> Finding:
    waits, records = tables.waits, tables.records
    waited = total_ns(waits.duration_ns[rows])
    mine = np.isin(records.connection, waits.connection[rows]) & (records.direction == 1)
    # of the blocked time and the time in which the clients waited for responses
    share = waited / max(1, waited + total_ns(records.answer_ns[mine]))
    confidence: Confidence = ratings.lower("medium", rate_confidence(tables, rows))
    return Finding(
        id=say.id,
        title=say.title,
        severity="warning" if share >= _LIMITS.warning_share else "info",
        confidence=confidence,
        scope=connections,
        metrics={
            "waits": len(rows),
            "wait_ns": total_ns(waits.duration_ns[rows]),
            "median_wait_ns": int(np.median(waits.duration_ns[rows])),
            "round_trip_ns": int(np.median(waits.rtt_ns[rows])),
            "bytes_in_flight_at_stop": int(np.median(waits.in_flight_bytes[rows])),
            "wait_share_of_awaited_time": round(share, 5),
        },
        evidence=tuple(say.evidence),
        explanation=f"{say.explanation} {_NOT_KNOWN}",
        remedies=say.remedies,
        references=say.references,
        verdict=say.verdict,
    )


class _Words(Struct, frozen=True, eq=False):
    """The texts of a finding about some blocked intervals."""

    id: str
    title: str
    evidence: list[Evidence]
    explanation: str
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...]
    verdict: str


_THIRD = "its third value bounds the receive window"
_NOT_KNOWN = (
    "The records are encrypted, so the number of RPCs that waited, and how long, is unknown. HTTP/2 did not block the "
    "sender: it had begun a record, whose length is in its header."
)


def find_slow_start_after_idle(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Find bursts of records that stopped at a congestion window that idle time had restarted, until an ACK arrived."""
    tables, mine = _select_records(tables, connections)
    waits = tables.waits
    seen = congestion.find_restarts(tables)
    chosen = np.zeros(len(waits.cause), dtype=bool)
    chosen[mine] = True
    stopped = chosen & (waits.cause == CAUSES.index("congestion_window")) & (waits.after_loss == 0) & seen.after_idle
    stopped &= ~restart.mark_unknown_window(tables, stopped) & seen.stops
    # the restart cost nothing where the window was no larger before
    stopped &= seen.window_bytes > waits.in_flight_bytes
    rows = _find_first_of_bursts(tables, np.flatnonzero(stopped))
    if not len(rows):
        return
    senders = restart.name_hosts(tables, rows)
    where, bursts = " and ".join(senders), count(len(rows), "burst of records", "bursts of records")
    segments = int(np.median(waits.in_flight_bytes[rows] // np.maximum(waits.mss[rows], 1)))
    each = duration(float(np.median(waits.duration_ns[rows])))
    idle = duration(float(np.median(seen.idle_ns[rows])))
    found = (
        f"{bursts} from {where} stopped with {segments} segments in flight after {idle} of idle time, longer than the "
        f"retransmission timeout, and resumed {each} later, at the first ACK: idle time had reset the congestion "
        "window."
    )
    say = _Words(
        id=restart.ID,
        title=f"{bursts} waited for a congestion window that idle time had reset",
        evidence=[item for row in rows[:EXAMPLES].tolist() for item in _show_restart(tables, row, seen)],
        explanation=found,
        remedies=restart.list_remedies(where),
        references=("RFC 5681 section 4.1", "Linux net/ipv4/tcp_output.c tcp_cwnd_restart"),
        verdict=(
            f"{bursts} from {where} waited {each} each because idle time had reset the congestion window: set "
            "net.ipv4.tcp_slow_start_after_idle=0 there."
        ),
    )
    yield _make_finding(tables, rows, find_scope(tables, rows), say)


def _find_first_of_bursts(tables: Tables, rows: Ints) -> Ints:
    """Find the first blocked interval of each burst, in the order of time."""
    waits = tables.waits
    order = rows[np.argsort(waits.start_time_ns[rows], kind="stable")]
    bursts = np.stack([waits.connection[order], waits.direction[order], waits.flight[order]], axis=1)
    return order[np.sort(np.unique(bursts, axis=0, return_index=True)[1])]


def _show_restart(tables: Tables, row: int, seen: congestion.Restarts) -> Iterator[Evidence]:
    waits = tables.waits
    host = hosts.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    idle = duration(float(seen.idle_ns[row]))
    yield Evidence(
        int(waits.flight_first_packet[row]),
        int(waits.flight_start_time_ns[row]),
        f"first data of {host} after {idle} of idle time; its retransmission timeout is about "
        f"{duration(float(waits.rto_ns[row]))}",
    )
    yield from _show_stop(tables, row)


def _show_stop(tables: Tables, row: int) -> Iterator[Evidence]:
    """Yield the packets at which a sender stopped inside a record and resumed."""
    waits = tables.waits
    yield from show_interval(
        tables,
        row,
        f"{int(waits.in_flight_bytes[row]):,} bytes are in flight; the sender stops with "
        f"{int(waits.owed_bytes[row]):,} bytes of a record still to come",
        "the ACK after which it resumes",
        f"the rest follows {duration(float(waits.duration_ns[row]))} after the stop",
    )


def find_receive_window_stall(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Find senders that were blocked inside a record by the peer's TCP receive window."""
    tables, mine = _select_records(tables, connections)
    waits = tables.waits
    rows = mine[waits.cause[mine] == CAUSES.index("receive_window")]
    if not len(rows):
        return
    stalls = Stalls(rows, 0, 0.0, sum_by_end(tables, rows))
    connection, direction = stalls.first
    reader = hosts.host(tables, connection, 1 - direction)
    waited = duration(total_ns(waits.duration_ns[rows]))
    found = (
        f"Senders were blocked inside a record {format_times(len(rows))}, {waited} in total, because the "
        f"reader's TCP receive window was full: {list_blocked(tables, stalls)}. Mostly {reader} reads too "
        "slowly, or its window is too small for the path."
    )
    say = _Words(
        id=receive.ID,
        title=f"TCP receive windows blocked senders {format_times(len(rows))} inside records",
        evidence=[e for row in sort_longest(tables, rows) for e in _show_stop(tables, row)],
        explanation=found,
        remedies=(
            *settings.list_own(intents.RECEIVE_BUFFER, "linux", _THIRD, where=f"on {reader}"),
            Remedy("application", "read sooner", f"on {reader}, if it does not keep up"),
        ),
        references=("RFC 9293 section 3.8.6", "Linux tcp(7), tcp_rmem"),
        verdict=(
            f"Senders were blocked for {waited} in total because the TCP receive window of {reader} was full: "
            "make it read sooner, or raise its net.ipv4.tcp_rmem."
        ),
    )
    yield _make_finding(tables, rows, find_scope(tables, rows), say)


def find_connection_churn(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Find connections that are opened one after the other and carry a few exchanges of records each."""
    table, records, limits = tables.connections, tables.records, churn.Limits()
    turns = np.zeros(len(table.rpcs), dtype=np.int64)
    servers = records.direction == 1
    turns[records.connection[servers]] = records.answers[servers]
    rows = np.asarray(connections, dtype=np.int64)
    finished = table.tls_hello_time_ns[rows] + table.tls_handshake_ns[rows]
    whole = (table.complete[rows] == 1) & (table.closed_time_ns[rows] >= 0) & (table.tls_handshake_ns[rows] >= 0)
    rows, finished = rows[whole], finished[whole]
    setup = np.zeros(len(table.rpcs), dtype=np.int64)
    setup[rows] = np.maximum(finished - table.opened_time_ns[rows], 0)
    cases = list[Case[_Churn]]()
    for pair in churn.group_by_pair(tables, rows) if len(rows) else ():
        at_once = churn.count_open_at_once(tables, pair, limits)
        if not at_once or turns[pair].mean() > limits.few_rpcs:
            continue
        life = total_ns(table.closed_time_ns[pair] - table.opened_time_ns[pair])
        if total_ns(setup[pair]) >= limits.told_share * max(1, life):
            fact = _Churn(pair, at_once, setup[pair], turns[pair], life)
            cases.append(Case(fact, tuple(pair.tolist()), 0, total_ns(setup[pair])))
    yield from put_together(tables, cases, lambda group: _make_churn_finding(tables, group))


class _Churn(Struct, frozen=True, eq=False):
    """TLS connections between two hosts, one after the other; columns of equal length."""

    connections: Ints
    at_once: int
    setup_ns: Ints
    turns: Ints
    """Responses."""
    life_ns: int
    """How long they were open in all."""


def _make_churn_finding(tables: Tables, group: Group[_Churn]) -> Finding:
    table, on = tables.connections, group.connections
    setup = np.concatenate([one.setup_ns for one in group.facts])
    each = float(np.concatenate([one.turns for one in group.facts]).mean())
    at_once = max(one.at_once for one in group.facts)
    share = total_ns(setup) / max(1, sum(one.life_ns for one in group.facts))
    took = duration(float(np.median(setup)))
    words = (
        f"{group.who} opened {len(on):,} TLS connections to {group.peers}, at most {at_once} at once, for {each:.1f} "
        f"responses each. Each took {took} from its SYN to the end of the TLS handshake, {share:.0%} of the time that "
        "they were open."
    )
    moments = group.limit_moments()
    evidence = (
        Evidence(
            int(table.first_packet[row]),
            int(table.opened_time_ns[row]),
            f"SYN of {tables.client(row)}: connection {row}, whose handshakes take {duration(float(ns))}",
        )
        for one in group.shown
        for row, ns in zip(one.connections[:moments].tolist(), one.setup_ns[:moments].tolist(), strict=True)
    )
    return Finding(
        id=churn.ID,
        title=f"{len(on):,} TLS connections one after the other, for {each:.1f} responses each",
        severity="warning" if share >= churn.Limits().warning_share else "info",
        confidence="low",
        scope=Scope(on, ()),
        metrics={
            "connections": len(on),
            "open_at_once": at_once,
            "answers_per_connection": each,
            "setup_p50_ns": int(np.median(setup)),
            "setup_ns": total_ns(setup),
            "setup_share_of_life": round(share, 5),
        },
        evidence=tuple(evidence),
        explanation=f"{words} The records are encrypted: one response here may belong to several RPCs.",
        remedies=churn.list_channels(None),
        references=("https://grpc.io/docs/guides/performance/",),
        verdict=(
            f"{group.who} opened {len(on):,} TLS connections for {each:.1f} responses each, and setting them up took "
            f"{share:.0%} of the time they were open: create one channel and keep it."
        ),
    )


def find_synchronised_stall(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Find servers that were silent on all their connections, and then went on on all of them at once.

    The clients began to wait at different moments, as for `synchronised-stall`. TCP acknowledged what they had sent: in
    so long a time it would have been retransmitted after a timeout.
    """
    c, r, limits = tables.connections, tables.records, stop.Limits()
    mine = np.flatnonzero((r.direction == 1) & np.isin(r.connection, np.asarray(connections, dtype=np.int64)))
    mean = (r.answer_ns[mine] - r.longest_answer_ns[mine]) / np.maximum(r.answers[mine].astype(np.int64) - 1, 1)
    silent = r.longest_answer_ns[mine] >= np.maximum(limits.long_ns, limits.factor * mean)
    resent = (c.retransmitted_packets > c.needless_retransmissions) | (c.retransmission_timeouts > 0)
    silent &= (r.answers[mine] >= churn.Limits().few_rpcs) & ~resent[r.connection[mine]]
    cases = list[Case[Ints]]()
    for places in group_rows(c.server_ip[r.connection[mine]]).values() if len(mine) else ():
        rows = mine[places[silent[places]]]
        if len(rows) >= limits.few_rpcs and _goes_on_at_once(tables, mine[places], rows, limits):
            cases.append(Case(rows, tuple(sorted(r.connection[rows].tolist())), 1, len(rows)))
    yield from put_together(tables, cases, lambda group: _make_stall_finding(tables, group))


def _goes_on_at_once(tables: Tables, every: Ints, rows: Ints, limits: stop.Limits) -> bool:
    """Check whether the longest silences of all connections that were open meanwhile ended together."""
    c, r = tables.connections, tables.records
    lengths, ends = r.longest_answer_ns[rows], r.answer_time_ns[rows] + r.longest_answer_ns[rows]
    apart, together = int(lengths.max() - lengths.min()), int(ends.max() - ends.min())
    open_then = (c.first_time_ns[r.connection[every]] < ends.min()) & (
        c.last_time_ns[r.connection[every]] > r.answer_time_ns[rows].max()
    )
    alone = len(rows) == int(open_then.sum())
    soon = together <= min(limits.at_once * apart, limits.of_silence * int(lengths.min()))
    return alone and soon and apart >= limits.apart_ns


def _make_stall_finding(tables: Tables, group: Group[Ints]) -> Finding:
    r, on, server = tables.records, group.connections, group.who
    lengths = r.longest_answer_ns[np.concatenate(group.facts)]
    length = duration(float(np.median(lengths)))
    at_once = "on all of them at once" if len(group.facts) == 1 else "each on all of them at once"
    stopped = f"{server} sent nothing on {len(on):,} TLS connections for {length}, and then {at_once}"
    evidence = [
        item
        for rows in group.shown
        for row in rows[: group.limit_moments()].tolist()
        for item in (
            Evidence(
                int(r.answer_from_packet[row]),
                int(r.answer_time_ns[row]),
                f"connection {r.connection[row]}: the last record of the client before the silence",
            ),
            Evidence(
                int(r.answer_to_packet[row]),
                int(r.answer_time_ns[row] + r.longest_answer_ns[row]),
                f"the next record of {hosts.host(tables, int(r.connection[row]), 1)}",
            ),
        )
    ]
    return Finding(
        id=stop.ID,
        title=stopped,
        severity="warning",
        confidence="low",
        scope=Scope(on, ()),
        metrics={"connections": len(on), "median_stall_ns": int(np.median(lengths))},
        evidence=tuple(evidence),
        explanation=(
            f"{stopped}. Their clients had begun to wait at different moments, and TCP acknowledged what they sent. "
            "The records are encrypted: a lock, a pool or a service that all calls need would look the same, and so "
            "would calls that one event answers."
        ),
        remedies=pauses.list_remedies(None, server, quota=False, paused=False),
        references=("RFC 9293 section 3.8.6.3",),
        verdict=(
            f"{stopped}: look for a lock, garbage collection, a CPU quota, a blocked event loop or a paused host there."
        ),
    )
