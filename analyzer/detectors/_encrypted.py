"""What some detectors can still say of TLS connections without secrets: the same findings, on less proof.

A record's header is not encrypted and tells how long the record is. A sender that stopped inside one had handed all of
it to TCP, so that HTTP/2 and its windows cannot have stopped it. What RPCs waited is not known: no finding here has
time lost, and none is critical.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..model.budget import CAUSES
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from . import _shared, _stalls, capture_quality, loss_recovery
from . import connection_churn as churn
from . import receive_window_stall as receive
from . import slow_start_after_idle as restart


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    warning_share: float = 0.05
    """Share of the time from a burst's first record to the answer from which waits are a warning (own choice: RPCs may
    overlap, so that their share of RPC time may be a part of it)."""
    churn_share: float = 0.10
    """Share of the connections' life that is set-up from which churn is a warning (own choice: a tenth of the time)."""
    told_share: float = 0.02
    """The same from which it is told (own choice: above what runs differ by)."""
    few_turns: float = 10.0
    """Answers per connection up to which it is hardly used (own choice, as connection-churn's RPCs)."""
    examples: int = 3
    """Examples shown as evidence (own choice: enough to see a pattern)."""


_LIMITS = Limits()


def detect(tables: Tables, connections: Sequence[int]) -> Iterator[Finding | Skipped]:
    """What a capture without RPCs shows of the TLS connections named, by bytes, ACKs and packets sent again alone."""
    yield from capture_quality.detect(tables, capture_quality.Limits())
    yield from loss_recovery.detect(tables, loss_recovery.Limits())
    yield from slow_start_after_idle(tables, connections)
    yield from receive_window_stall(tables, connections)
    yield from connection_churn(tables, connections)


def _of_records(tables: Tables, connections: Sequence[int]) -> tuple[Tables, Ints]:
    """Tables whose waits are those inside records, and the rows of some connections'."""
    tables = replace(tables, waits=tables.record_waits, measured=None)
    return tables, np.flatnonzero(np.isin(tables.waits.connection, np.asarray(connections, dtype=np.int64)))


def _share(tables: Tables, rows: Ints) -> float:
    """Waits as a part of themselves and of all time in which the server's answers were awaited on their connections."""
    waits, records = tables.waits, tables.records
    waited = total_ns(waits.duration_ns[rows])
    mine = np.isin(records.connection, waits.connection[rows]) & (records.direction == 1)
    return waited / max(1, waited + total_ns(records.answer_ns[mine]))


def _finding(tables: Tables, rows: Ints, connections: Scope, say: _Words) -> Finding:
    waits = tables.waits
    share = _share(tables, rows)
    confidence: Confidence = _shared.lower("medium", _stalls.confidence(tables, rows))
    return Finding(
        id=say.id,
        title=say.title,
        severity="warning" if share >= _LIMITS.warning_share else "info",
        confidence=confidence,
        scope=connections,
        lost_ns=None,
        share=None,
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
    """What is said of some waits."""

    id: str
    title: str
    evidence: list[Evidence]
    explanation: str
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...]
    verdict: str


_NOT_KNOWN = (
    "The records are encrypted: how long RPCs waited for it, and how many, is not known. HTTP/2 did not stop the "
    "sender, for it had begun a record whose length its header tells."
)


def slow_start_after_idle(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Bursts of records that stopped at what a congestion window restarted by idle time allows, until an ACK came."""
    tables, mine = _of_records(tables, connections)
    waits = tables.waits
    seen = _stalls.restarts(tables)
    chosen = np.zeros(len(waits.cause), dtype=bool)
    chosen[mine] = True
    stopped = chosen & (waits.cause == CAUSES.index("congestion_window")) & (waits.after_loss == 0) & seen.after_idle
    stopped &= ~restart._window_not_known(tables, stopped) & seen.stops
    # a window that was no larger before the idle time lost nothing to it
    stopped &= seen.window_bytes > waits.in_flight_bytes
    rows = _first_of_bursts(tables, np.flatnonzero(stopped))
    if not len(rows):
        return
    hosts = restart._hosts(tables, rows)
    where, bursts = " and ".join(hosts), _stalls.counted(len(rows), "burst of records", "bursts of records")
    segments = int(np.median(waits.in_flight_bytes[rows] // np.maximum(waits.mss[rows], 1)))
    each = _shared.milliseconds(float(np.median(waits.duration_ns[rows])))
    idle = _shared.milliseconds(float(np.median(seen.idle_ns[rows])))
    found = (
        f"{bursts} from {where} stopped with {segments} segments in flight after {idle} of idle time, longer than the "
        f"retransmission timeout, and went on {each} later, at the first ACK: idle time had restarted the congestion "
        "window."
    )
    say = _Words(
        id=restart.ID,
        title=f"{bursts} waited for a congestion window that idle time had reset",
        evidence=[item for row in rows[: _LIMITS.examples].tolist() for item in _restarted(tables, row, seen)],
        explanation=found,
        remedies=restart._remedies(where),
        references=("RFC 5681 section 4.1", "Linux net/ipv4/tcp_output.c tcp_cwnd_restart"),
        verdict=f"{found} Set net.ipv4.tcp_slow_start_after_idle=0 there, or keep the connection warm.",
    )
    yield _finding(tables, rows, _stalls.scope(tables, rows), say)


def _first_of_bursts(tables: Tables, rows: Ints) -> Ints:
    """The first wait of each burst, in the order of time."""
    waits = tables.waits
    order = rows[np.argsort(waits.start_time_ns[rows], kind="stable")]
    keys = zip(
        waits.connection[order].tolist(), waits.direction[order].tolist(), waits.flight[order].tolist(), strict=True
    )
    first: dict[tuple[int, int, int], int] = {}
    for key, row in zip(keys, order.tolist(), strict=True):
        first.setdefault(key, row)
    return np.array(list(first.values()), dtype=np.int64)


def _restarted(tables: Tables, row: int, seen: _stalls.Restarts) -> Iterator[Evidence]:
    waits = tables.waits
    host = _shared.host(tables, int(waits.connection[row]), int(waits.direction[row]))
    idle = _shared.milliseconds(float(seen.idle_ns[row]))
    yield Evidence(
        int(waits.flight_first_packet[row]),
        int(waits.flight_start_time_ns[row]),
        f"first data of {host} after {idle}; its retransmission timeout is about "
        f"{_shared.milliseconds(float(waits.rto_ns[row]))}",
    )
    yield from _stop(tables, row)


def _stop(tables: Tables, row: int) -> Iterator[Evidence]:
    """Where a sender stopped inside a record, and went on."""
    waits = tables.waits
    yield from _stalls.evidence(
        tables,
        row,
        f"{int(waits.in_flight_bytes[row]):,} bytes are in flight; the sender stops with "
        f"{int(waits.owed_bytes[row]):,} bytes of a record still to come",
        "the ACK that lets it go on",
        f"the rest follows {_shared.milliseconds(float(waits.duration_ns[row]))} after the stop",
    )


def receive_window_stall(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Senders that stood still inside a record because the peer's TCP window had no room."""
    tables, mine = _of_records(tables, connections)
    waits = tables.waits
    rows = mine[waits.cause[mine] == CAUSES.index("receive_window")]
    if not len(rows):
        return
    stalls = _stalls.Stalls(rows, 0, 0.0, _stalls._ends(tables, rows))
    connection, direction = stalls.first
    reader = _shared.host(tables, connection, 1 - direction)
    waited = _shared.milliseconds(total_ns(waits.duration_ns[rows]))
    found = (
        f"Senders stood still inside a record {_stalls.times(len(rows))}, {waited} in all, because TCP's receive "
        f"window of the reader had no room: {_stalls.where(tables, stalls)}. Mostly {reader} reads too slowly, or its "
        "window is too small for the path."
    )
    say = _Words(
        id=receive.ID,
        title=f"{_stalls.counted(len(rows), 'wait', 'waits')} inside records for a TCP receive window",
        evidence=[e for row in _stalls.longest(tables, rows, _LIMITS.examples) for e in _stop(tables, row)],
        explanation=found,
        remedies=(
            Remedy("linux", "sysctl net.ipv4.tcp_rmem", f"on {reader}: its third value bounds the receive window"),
            Remedy("application", "read sooner", f"on {reader}, if it does not keep up"),
        ),
        references=("RFC 9293 section 3.8.6", "Linux tcp(7), tcp_rmem"),
        verdict=found,
    )
    yield _finding(tables, rows, _stalls.scope(tables, rows), say)


def connection_churn(tables: Tables, connections: Sequence[int]) -> Iterator[Finding]:
    """Connections that are opened one after the other, and carry a few exchanges of records each."""
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
    for group in churn._pairs(tables, rows) if len(rows) else ():
        at_once = churn._churning(tables, group, limits)
        if not at_once or turns[group].mean() > _LIMITS.few_turns:
            continue
        life = total_ns(table.closed_time_ns[group] - table.opened_time_ns[group])
        share = total_ns(setup[group]) / max(1, life)
        if share >= _LIMITS.told_share:
            yield _churn(tables, group, at_once, setup[group], float(turns[group].mean()), share)


def _churn(tables: Tables, group: Ints, at_once: int, setup: Ints, turns: float, share: float) -> Finding:
    table, first = tables.connections, int(group[0])
    client, server = _shared.host(tables, first, 0), _shared.host(tables, first, 1)
    took = _shared.milliseconds(float(np.median(setup)))
    words = (
        f"{client} opened {len(group):,} TLS connections to {server}, at most {at_once} at once, for {turns:.1f} "
        f"answers each; each took {took} from its SYN to the end of the TLS handshake, {share:.0%} of the time they "
        "were open."
    )
    evidence = (
        Evidence(
            int(table.first_packet[row]),
            int(table.opened_time_ns[row]),
            f"SYN of {tables.client(row)}: connection {row}, whose handshakes take {_shared.milliseconds(float(ns))}",
        )
        for row, ns in list(zip(group.tolist(), setup.tolist(), strict=True))[: _LIMITS.examples]
    )
    return Finding(
        id=churn.ID,
        title=f"{len(group):,} TLS connections one after the other, for {turns:.1f} answers each",
        severity="warning" if share >= _LIMITS.churn_share else "info",
        confidence="low",
        scope=Scope(tuple(group.tolist()), ()),
        lost_ns=None,
        share=None,
        metrics={
            "connections": len(group),
            "open_at_once": at_once,
            "answers_per_connection": turns,
            "setup_p50_ns": int(np.median(setup)),
            "setup_ns": total_ns(setup),
            "setup_share_of_life": round(share, 5),
        },
        evidence=tuple(evidence),
        explanation=f"{words} The records are encrypted: one answer may be that of several RPCs at once.",
        remedies=churn._REMEDIES,
        references=("https://grpc.io/docs/guides/performance/",),
        verdict=f"{words} Create one channel and keep it.",
    )
