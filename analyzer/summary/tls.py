"""Describe TLS connections without their secrets, from handshakes, records and TCP."""

from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ..model.analysis import Verdict
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import SEVERITIES, Finding
from ..model.text import duration
from ..model.tls import KEY_LOGS, Blocked, RecordFacts, Silences, TlsFacts, TlsReport
from ..tables import PROTOCOLS, Ints, Tables
from ..tables.durations import total_ns
from ..tables.grouping import group_rows

TLS = PROTOCOLS.index("tls")
"""`Connections.protocol` of TLS that is not decrypted."""

TLS_VERSIONS: Mapping[int, str] = {0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}
"""Names of `Connections.tls_version`."""

_OFFERS, _OFFERS_H2, _CHOSEN, _CHOSEN_H2 = 1, 2, 4, 8
"""Bits of `Connections.tls_alpn`."""


_FOUND: WeakKeyDictionary[Tables, tuple[TlsFacts, ...]] = WeakKeyDictionary()


def find_facts(tables: Tables) -> tuple[TlsFacts, ...]:
    """Describe each TLS connection that was not decrypted, in the order of the connections table, once."""
    if tables not in _FOUND:
        rows = dict(
            zip(tables.records.connection[::2].tolist(), range(0, len(tables.records.connection), 2), strict=True)
        )
        waits, none = group_rows(tables.record_waits.connection), np.zeros(0, dtype=np.int64)
        mine = np.flatnonzero(tables.connections.protocol == TLS).tolist()
        _FOUND[tables] = tuple(
            _describe_connection(tables, row, rows[row], waits.get(row, none)) for row in mine if row in rows
        )
    return _FOUND[tables]


def _describe_connection(tables: Tables, row: int, records: int, mine: Ints) -> TlsFacts:
    """Describe a connection by its row, that of its records, and those of its blocked intervals."""
    c = tables.connections
    alpn, version, suite = int(c.tls_alpn[row]), int(c.tls_version[row]), int(c.tls_suite[row])

    def known(column: Ints) -> int | None:
        value = int(column[row])
        return value if value >= 0 else None

    waits = tables.record_waits
    causes = sorted(set(waits.cause[mine].tolist()))
    of = {cause: mine[waits.cause[mine] == cause] for cause in causes}
    return TlsFacts(
        connection=row,
        version=TLS_VERSIONS.get(version, f"TLS 0x{version:04x}") if version else None,
        cipher_suite=f"0x{suite:04x}" if version else None,
        offers_h2=bool(alpn & _OFFERS_H2) if alpn & _OFFERS else None,
        h2=bool(alpn & _CHOSEN_H2) if alpn & _CHOSEN else None,
        resumed=None if c.tls_resumed[row] > 1 else bool(c.tls_resumed[row]),
        retried=bool(c.tls_retried[row]),
        handshake_ns=known(c.tls_handshake_ns),
        server_hello_ns=known(c.tls_server_hello_ns),
        hello_packet=int(c.tls_hello_packet[row]) or None,
        finished_packet=int(c.tls_finished_packet[row]) or None,
        client=_describe_side(tables, records),
        server=_describe_side(tables, records + 1),
        blocked={CAUSES[cause]: Blocked(len(rows), total_ns(waits.duration_ns[rows])) for cause, rows in of.items()},
    )


def _describe_side(tables: Tables, at: int) -> RecordFacts:
    r = tables.records

    def silences(kind: str) -> Silences | None:
        names = (f"{kind}s", f"{kind}_ns", *(f"{kind}_{of}" for of in ("time_ns", "from_packet", "to_packet")))
        count, total, *longest = (int(getattr(r, name)[at]) for name in names)
        return Silences(count, total, int(getattr(r, f"longest_{kind}_ns")[at]), *longest) if count else None

    return RecordFacts(
        records=int(r.records[at]),
        bytes=int(r.bytes[at]),
        longest_bytes=int(r.longest[at]),
        answers=silences("answer"),
        pauses=silences("pause"),
    )


def report(connections: tuple[TlsFacts, ...]) -> TlsReport | None:
    """Add how secrets are recorded to what is known of connections without them; None without any."""
    return TlsReport(connections, KEY_LOGS) if connections else None


def write_verdict(unread: Sequence[TlsFacts], found: Sequence[Finding], abouts: Mapping[str, About]) -> Verdict:
    """Say that no RPC can be read, what to do about it, and the most severe finding that TCP shows."""
    mine = [one for one in unread if one.may_be_grpc]
    chosen, offered = any(one.h2 for one in mine), any(one.offers_h2 for one in mine)
    connections = "1 TLS connection" if len(mine) == 1 else f"{len(mine):,} TLS connections"
    offers = "probably gRPC (the clients offer h2 by ALPN)" if offered else "possibly gRPC"
    probably = "probably gRPC (ALPN h2)" if chosen else offers
    text = (
        f"{connections}, {probably}, cannot be read without the secrets: record them with the capture and pass "
        "--keylog FILE."
    )
    of_capture = next((f.id for f in found if abouts[f.id].judges_capture), None)
    others = (f for f in found if f.severity != "info" and not abouts[f.id].judges_capture)
    grave = sorted(others, key=lambda f: (f.part_of is not None, -SEVERITIES.index(f.severity), f.id))
    if not grave:
        return Verdict(text, of_capture)
    if grave[0].severity == "critical" and {one.connection for one in mine} <= set(grave[0].scope.connections):
        return Verdict(grave[0].verdict, grave[0].id)  # secrets would show no RPC
    return Verdict(f"{text} TCP shows: {grave[0].verdict}", grave[0].id)


def write_sentences(unread: Sequence[TlsFacts], tables: Tables) -> Iterator[str]:
    """Describe handshakes, round trips and losses of TLS connections in one paragraph."""
    c, rows = tables.connections, [one.connection for one in unread]
    versions = sorted({one.version or "TLS of an unknown version" for one in unread})
    handshakes = [one.handshake_ns for one in unread if one.handshake_ns is not None]
    trips = [int(ns) for ns in c.min_rtt_ns[rows].tolist() if ns >= 0]
    parts = [f"They are {' and '.join(versions)}"]
    if handshakes:
        parts.append(f"their handshakes take {_format_span(handshakes)} after the ClientHello")
    if trips:
        parts.append(f"their minimum round trips are {_format_span(trips)}")
    yield f"{'; '.join(parts)}."
    packets = int((c.packets_client.astype(np.int64) + c.packets_server)[rows].sum())
    retransmitted, timeouts = int(c.retransmitted_packets[rows].sum()), int(c.retransmission_timeouts[rows].sum())
    if not retransmitted:
        yield f"None of their {packets:,} packets was retransmitted."
        return
    yield (f"{retransmitted:,} of their {packets:,} packets were retransmitted, {timeouts:,} of them after a timeout.")


def _format_span(durations: Sequence[int]) -> str:
    """Format durations as `1.20 ms`, or `1.20 ms to 3.40 ms`."""
    ends = [duration(ns) for ns in (min(durations), max(durations))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
