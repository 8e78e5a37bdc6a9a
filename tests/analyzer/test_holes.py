"""Packets deleted from real captures: nothing that they did not touch is lost or changed, and nobody is accused.

An RPC is untouched when no packet of its connection between its first and its last one is deleted, nor one whose
bytes were readable only then, because they or others in front of them were retransmitted. What a deleted packet did to
the HPACK table is lost all the same: names and statuses of later RPCs may be unknown, never wrong.

`GRPCDIAG_HOLES=20` runs all recorded captures with that many seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from lessened import Capture, capture_of, filed, some
from support import RECORDINGS, Recording, recording, rows

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.tables import COMPLETE, NOT_SEEN, TOUCHES_GAP, Packets, Tables

SHARES = (0.001, 0.01, 0.05)
SEEDS = int(os.environ.get("GRPCDIAG_HOLES", "0"))
NOT_COMPLETE = ("snaplen-128", "mid-connection-go", "truncated", "tls13-go", "tls13-go-secrets")
SMALL = (
    "impl-go", "impl-cpp", "impl-java", "impl-js", "impl-py", "impl-tonic", "rtt205-go-16000", "rpc-errors",
    "deadline-exceeded", "max-concurrent-streams", "too-many-pings", "ipv6",
)  # fmt: skip
LARGE = ("loss-1pct-rtt20", "ydb-unary-single-inflight1", "ydb-stream-single-inflight8", "roguedb-threads-4",
         "ably-synchronised-veth")  # fmt: skip
COMPLETE_ONES = [pytest.param(r, id=r.id) for r in RECORDINGS if r.name not in NOT_COMPLETE]

SERVER_RESET, CLIENT_DEADLINE = (_core.STATUS_SOURCES.index(name) for name in ("server_reset", "client_deadline"))
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Rpc:
    """An RPC; `what` is all that must stay."""

    what: tuple[int, ...]
    method: str | None
    status: int
    source: int
    flags: int
    connection: int
    first: int
    last: int


@dataclass(frozen=True)
class Whole:
    """A capture with all its packets."""

    capture: Capture
    rpcs: Mapping[Key, Rpc]
    findings: frozenset[str]
    packets: Packets


def rpcs_of(tables: Tables) -> dict[Key, Rpc]:
    r, c = tables.rpcs, tables.connections
    names = [tables.method_name(int(number)) for number in r.method.tolist()]
    ends = np.stack([c.client_port[r.connection], c.server_port[r.connection], r.stream], axis=1)
    columns = (r.start_time_ns, r.duration_ns, r.request_messages, r.response_messages, r.request_bytes)
    what = np.stack([column.astype(np.int64) for column in (*columns, r.response_bytes)], axis=1)
    places = zip(r.status, r.status_source, r.flags, r.connection, r.first_packet, r.last_packet, strict=True)
    found = {
        tuple(key): Rpc(tuple(facts), name, *map(int, place))
        for key, facts, name, place in zip(ends.tolist(), what.tolist(), names, places, strict=True)
    }
    assert len(found) == len(r.stream)
    return found


def analysed(tables: Tables) -> Analysis | None:
    try:
        return of_tables(tables)
    except NoGrpcError:
        return None


@cache
def whole_of(name: str, side: str = "client") -> Whole:
    capture = capture_of(recording(name, side).files)
    with filed(capture.data) as files:
        tables, packets = decode(files, rpc_rows=True), rows(Packets, files)
    analysis = analysed(tables)
    return Whole(capture, rpcs_of(tables), frozenset(f.id for f in analysis.findings) if analysis else frozenset(),
                 packets)  # fmt: skip


Mask = npt.NDArray[np.bool_]


def touched_packets(whole: Whole, gone: list[int]) -> Mask:
    """By packet number, whether it is deleted, or lies between a deleted one and the time when its bytes were readable:
    when they, or bytes in front of them, were retransmitted."""
    p = whole.packets
    hit = np.zeros(len(whole.capture) + 2, dtype=np.bool_)
    hit[gone] = True
    for row in np.flatnonzero(np.isin(p.packet, gone) & (p.payload_bytes > 0)):
        end = int(p.seq[row]) + int(p.payload_bytes[row])
        mine = (p.connection == p.connection[row]) & (p.direction == p.direction[row]) & (p.payload_bytes > 0)
        again = mine & (p.seq < end) & (p.packet > p.packet[row])
        if again.any():
            hit[p.packet[row] : p.packet[again].max() + 1] = True
    return hit


def untouched(whole: Whole, gone: list[int]) -> Iterator[tuple[Key, Rpc]]:
    hit = touched_packets(whole, gone)
    connection = np.full(len(hit), -1, dtype=np.int64)
    connection[whole.packets.packet] = whole.packets.connection
    counts: dict[int, npt.NDArray[np.int64]] = {}
    for key, rpc in whole.rpcs.items():
        if rpc.connection not in counts:
            counts[rpc.connection] = np.cumsum(hit & (connection == rpc.connection))
        hits = counts[rpc.connection]
        if rpc.last and hits[rpc.last] == hits[rpc.first - 1]:
            yield key, rpc


def check(name: str, side: str, share: float, seed: int) -> int:
    """Deletes that share of packets; gives how many RPCs were untouched."""
    whole = whole_of(name, side)
    gone = some(len(whole.capture), share, seed)
    with filed(whole.capture.without(gone)) as files:
        tables = decode(files, rpc_rows=True)
    found, count = rpcs_of(tables), 0
    about = f"{name} without {share:.1%}, seed {seed}"
    for key, rpc in untouched(whole, gone):
        count += 1
        assert key in found, f"{about}: {key} is lost"
        now = found[key]
        assert now.what == rpc.what, f"{about}: {key} is changed"
        assert now.flags & COMPLETE == rpc.flags & COMPLETE, f"{about}: {key} has no end"
        assert not now.flags & TOUCHES_GAP, f"{about}: {key} is flagged"
    for key, now in found.items():
        assert key in whole.rpcs, f"{about}: {key} is made up"
        assert now.method in (None, whole.rpcs[key].method), f"{about}: {key} has a wrong method"
        if {now.source, whole.rpcs[key].source} == {SERVER_RESET, CLIENT_DEADLINE}:
            continue  # both ends reset at a deadline, and one of both is in the hole
        assert now.status in (NOT_SEEN, whole.rpcs[key].status), f"{about}: {key} has a wrong status"
    assert np.array_equal(tables.rpc_budgets.sum(axis=1), tables.rpcs.duration_ns)
    nobody_is_accused(whole, tables, about)
    return count


def nobody_is_accused(whole: Whole, tables: Tables, about: str) -> None:
    analysis = analysed(tables)
    findings = {finding.id: finding for finding in analysis.findings} if analysis else {}
    new = set(findings) - whole.findings - {"capture-quality"}
    assert not new, f"{about}: {[findings[name].title for name in new]}"
    if tables.connections.missing_bytes.any() and analysis:
        quality = findings["capture-quality"]
        assert quality.metrics["missing_bytes"] == int(tables.connections.missing_bytes.sum())


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", SMALL)
def test_what_no_hole_touches_stays(name: str, share: float) -> None:
    assert sum(check(name, "client", share, seed) for seed in range(20))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", LARGE)
def test_what_no_hole_touches_stays_in_large_captures(name: str, share: float) -> None:
    for seed in range(2):
        check(name, "client", share, seed)


@pytest.mark.skipif(not SEEDS, reason="GRPCDIAG_HOLES=20 runs it, for some minutes")
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("capture", COMPLETE_ONES)
def test_what_no_hole_touches_stays_everywhere(capture: Recording, share: float) -> None:
    for seed in range(SEEDS):
        check(capture.name, capture.side, share, seed)


def test_names_are_known_again_behind_holes() -> None:
    """A hole may have moved the HPACK table's entries; the next blocks tell by how much."""
    whole = whole_of("max-concurrent-streams")
    gone = [number for number in some(len(whole.capture), 0.01, 3) if number > 100]
    with filed(whole.capture.without(gone)) as files:
        tables = decode(files, rpc_rows=True)
    assert tables.connections.missing_bytes.any()
    found = rpcs_of(tables)
    names = [(found[key].method, found[key].status) == (rpc.method, rpc.status) for key, rpc in untouched(whole, gone)]
    assert all(names)


def test_bytes_that_only_an_ack_shows_are_missing() -> None:
    """The capture ends with an ACK of bytes that it lacks, and has nothing behind them."""
    whole = whole_of("impl-go")
    p = whole.packets
    acks = np.flatnonzero((p.direction == 0) & (p.flags == 0x10) & (p.payload_bytes == 0) & (p.ack > 0))
    acked = int(p.packet[acks[-1]])
    sent = np.flatnonzero((p.direction == 1) & (p.payload_bytes > 0) & (p.packet < acked))[-1]
    assert int(p.seq[sent]) + int(p.payload_bytes[sent]) == int(p.ack[acks[-1]])
    with filed(whole.capture.without([int(p.packet[sent]), *range(acked + 1, len(whole.capture) + 1)])) as files:
        assert decode(files).connections.missing_bytes.tolist() == [int(p.payload_bytes[sent])]


def test_a_hole_is_no_loss() -> None:
    """Bytes that were acknowledged and never seen are missing from the capture; nobody sent them again."""
    whole = whole_of("loss-0pct-rtt20")
    gone = some(len(whole.capture), 0.01, 0)
    with filed(whole.capture.without(gone)) as files:
        tables = decode(files)
    assert tables.connections.missing_bytes.sum() > 10_000
    assert tables.connections.retransmitted_packets.sum() == 0
