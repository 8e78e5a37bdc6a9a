"""TLS without its secrets: handshakes, records and TCP still tell something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..model.analysis import Verdict
from ..model.budget import CAUSES
from ..model.finding import Finding
from ..model.tls import KEY_LOGS, Blocked, RecordFacts, Silences, TlsFacts, TlsReport
from ..tables import PROTOCOLS, Ints, Tables
from ..tables.durations import total_ns

TLS = PROTOCOLS.index("tls")
"""`Connections.protocol` of TLS that is not decrypted."""

TLS_VERSIONS: Mapping[int, str] = {0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}
"""Names of `Connections.tls_version`."""

_QUALITY = "capture-quality"
"""The finding that says that all of it is encrypted."""

_OFFERS, _OFFERS_H2, _CHOSEN, _CHOSEN_H2 = 1, 2, 4, 8
"""Bits of `Connections.tls_alpn`."""


def facts(tables: Tables) -> tuple[TlsFacts, ...]:
    """What is known of each TLS connection that was not decrypted, in the order of the connections table."""
    rows = {int(connection): at for at, connection in enumerate(tables.records.connection.tolist()) if at % 2 == 0}
    mine = np.flatnonzero(tables.connections.protocol == TLS).tolist()
    return tuple(_connection(tables, row, rows[row]) for row in mine if row in rows)


def _connection(tables: Tables, row: int, records: int) -> TlsFacts:
    c = tables.connections
    alpn, version, suite = int(c.tls_alpn[row]), int(c.tls_version[row]), int(c.tls_suite[row])

    def known(column: Ints) -> int | None:
        value = int(column[row])
        return value if value >= 0 else None

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
        client=_side(tables, records),
        server=_side(tables, records + 1),
        blocked=_blocked(tables, row),
    )


def _side(tables: Tables, at: int) -> RecordFacts:
    r = tables.records
    answers = Silences(
        count=int(r.answers[at]),
        total_ns=int(r.answer_ns[at]),
        longest_ns=int(r.longest_answer_ns[at]),
        longest_time_ns=int(r.answer_time_ns[at]),
        from_packet=int(r.answer_from_packet[at]),
        to_packet=int(r.answer_to_packet[at]),
    )
    pauses = Silences(
        count=int(r.pauses[at]),
        total_ns=int(r.pause_ns[at]),
        longest_ns=int(r.longest_pause_ns[at]),
        longest_time_ns=int(r.pause_time_ns[at]),
        from_packet=int(r.pause_from_packet[at]),
        to_packet=int(r.pause_to_packet[at]),
    )
    return RecordFacts(
        records=int(r.records[at]),
        bytes=int(r.bytes[at]),
        longest_bytes=int(r.longest[at]),
        answers=answers if answers.count else None,
        pauses=pauses if pauses.count else None,
    )


def _blocked(tables: Tables, row: int) -> dict[str, Blocked]:
    waits = tables.record_waits
    mine = np.flatnonzero(waits.connection == row)
    causes = sorted(set(waits.cause[mine].tolist()))
    of = {cause: mine[waits.cause[mine] == cause] for cause in causes}
    return {CAUSES[cause]: Blocked(len(rows), total_ns(waits.duration_ns[rows])) for cause, rows in of.items()}


def report(connections: tuple[TlsFacts, ...]) -> TlsReport | None:
    """Add how secrets are recorded to what is known of connections without them; None without any."""
    return TlsReport(connections, KEY_LOGS) if connections else None


def verdict(told: Sequence[TlsFacts], found: Sequence[Finding]) -> Verdict:
    """That no RPC can be read, what to do about it, and the gravest thing that shows all the same."""
    mine = [one for one in told if one.may_be_grpc]
    offered = any(one.offers_h2 or one.h2 for one in mine)
    may = "offers HTTP/2, which gRPC needs" if offered else "may carry gRPC"
    many = f"{len(mine):,} TLS connections, which {may.replace('offers', 'offer', 1)}, cannot"
    one = f"One TLS connection, which {may}, cannot"
    text = (
        f"{one if len(mine) == 1 else many} be read without the secrets: record them with the capture and give them "
        "with --keylog FILE."
    )
    grave = sorted((f for f in found if f.severity != "info" and f.id != _QUALITY), key=lambda finding: finding.id)
    if not grave:
        return Verdict(text, _QUALITY if any(f.id == _QUALITY for f in found) else None)
    return Verdict(f"{text} What shows all the same: {grave[0].verdict}", grave[0].id)


def sentences(told: Sequence[TlsFacts], tables: Tables) -> Iterator[str]:
    """Handshakes, round trips and losses of TLS connections, for a message of one paragraph."""
    c, rows = tables.connections, [one.connection for one in told]
    versions = sorted({one.version or "TLS of a version not seen" for one in told})
    handshakes = [one.handshake_ns for one in told if one.handshake_ns is not None]
    trips = [int(ns) for ns in c.min_rtt_ns[rows].tolist() if ns >= 0]
    said = [f"They are {' and '.join(versions)}"]
    if handshakes:
        said.append(f"their handshakes take {_span(handshakes)} after the ClientHello")
    if trips:
        said.append(f"their smallest round trips are {_span(trips)}")
    yield f"{'; '.join(said)}."
    packets = int((c.packets_client.astype(np.int64) + c.packets_server)[rows].sum())
    again, timeouts = int(c.retransmitted_packets[rows].sum()), int(c.retransmission_timeouts[rows].sum())
    lost = f"{again:,} of their {packets:,} packets were sent again, {timeouts:,} times after a retransmission timeout."
    yield lost if again else f"None of their {packets:,} packets was sent again."


def _span(durations: Sequence[int]) -> str:
    """`1.2 ms`, or `1.2 ms to 3.4 ms`."""
    ends = [f"{ns / 1e6:,.3g} ms" for ns in (min(durations), max(durations))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
