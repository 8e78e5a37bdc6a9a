"""What is drawn of a capture: all of a small one, of a large one what matters, and the same figures in both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import recorded, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode_rows
from grpcdiag.analyzer.tables import Tables
from grpcdiag.analyzer.views import page_data
from grpcdiag.analyzer.views.page_data import Bounds, PageData, collect_page_data, halve_page_data

NAMES = ("rtt205-go-16000", "rpc-errors", "max-concurrent-streams", "too-many-pings")
SMALL = Bounds(packets=40, frames=400, rpcs=30, waits=2, around=5, slow_rpcs=3, slow_packets=8, begun=2)


def drawn(name: str, bounds: Bounds | None = None) -> PageData:
    path = recorded(f"{name}.pcap")
    analysis = analyze([path])
    return collect_page_data([path], analysis, bounds=bounds) if bounds else collect_page_data([path], analysis)


def in_flight(tables: Tables) -> list[tuple[int, int]]:
    """Packet by packet, as the definition says: what was sent beyond what the other side has acknowledged."""
    sent: dict[tuple[int, int], int] = {}
    acked: dict[tuple[int, int], int] = {}
    p = tables.packets
    found = []
    for row in range(len(p.packet)):
        connection, side = int(p.connection[row]), int(p.direction[row])
        here, there = (connection, side), (connection, 1 - side)
        acked.setdefault(here, 0)
        acked[here] = acked[here] if here in sent else max(acked[here], int(p.seq[row]))
        sent[here] = max(sent.get(here, 0), int(p.seq[row]) + int(p.payload_bytes[row]))
        if p.flags[row] & 16:
            acked[there] = max(acked.get(there, 0), int(p.ack[row]))
        both = [max(sent.get((connection, d), 0) - acked.get((connection, d), 0), 0) for d in (0, 1)]
        found.append((both[0], both[1]))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_small_capture_is_here_whole(name: str) -> None:
    found, tables = drawn(name), decode_rows([recorded(f"{name}.pcap")])
    assert found.spans.whole
    assert len(found.rpcs.stream) == found.rpcs_total == tables.rpc_count
    assert len(found.frames.stream) == found.frames_total == len(tables.frames.stream)
    assert len(found.waits.cause) == found.waits_total
    assert found.packets.packet.tolist() == tables.packets.packet.tolist()
    assert found.packets.time_ns[0] == 0
    assert (np.diff(found.rpcs.start_ns) >= 0).all()
    # every RPC's shares are those of its budget
    assert (np.abs(found.rpcs.shares.sum(axis=1) - 1000) <= 6).all()


@pytest.mark.parametrize("name", NAMES)
def test_bytes_in_flight_are_what_is_sent_and_not_acknowledged(name: str) -> None:
    found, tables = drawn(name), decode_rows([recorded(f"{name}.pcap")])
    columns = found.packets.client_in_flight.tolist(), found.packets.server_in_flight.tolist()
    assert list(zip(*columns, strict=True)) == in_flight(tables)


def test_ten_segments_are_in_flight_where_the_finding_says_so() -> None:
    """`rtt205-go-16000`: 14,080 bytes in flight at packet 54, which the finding's own evidence tells."""
    found = drawn("rtt205-go-16000").packets
    assert found.client_in_flight[found.packet == 54].tolist() == [14_080]


@pytest.mark.parametrize("name", NAMES)
def test_a_large_capture_keeps_what_is_around_the_evidence(name: str) -> None:
    path = recorded(f"{name}.pcap")
    analysis = analyze([path])
    some, whole = collect_page_data([path], analysis, bounds=SMALL), collect_page_data([path], analysis)
    assert not some.spans.whole
    assert 0 < len(some.packets.packet) <= SMALL.packets < len(whole.packets.packet)
    assert len(some.rpcs.stream) <= SMALL.rpcs
    assert len(some.waits.cause) <= SMALL.waits
    first = analysis.findings[0].evidence[0].packet
    place = whole.packets.packet.tolist().index(first)
    around = whole.packets.packet[max(place - SMALL.around, 0) : place + SMALL.around + 1]
    assert set(around.tolist()) <= set(some.packets.packet.tolist())
    # what is here is what is there, packet by packet and frame by frame
    rows = np.searchsorted(whole.packets.packet, some.packets.packet)
    for column in whole.packets.__struct_fields__:
        assert (getattr(whole.packets, column)[rows] == getattr(some.packets, column)).all(), column
    touched = whole.frames
    kept = some.spans.holds(touched.connection, touched.first_packet, touched.last_packet)
    assert touched.first_packet[kept].tolist() == some.frames.first_packet.tolist()


def test_the_slowest_and_the_failed_rpcs_are_kept() -> None:
    some, whole = drawn("rpc-errors", SMALL), drawn("rpc-errors")
    assert some.rpcs_total == len(whole.rpcs.stream)
    assert some.rpcs.duration_ns.max() == whole.rpcs.duration_ns.max()
    longest = np.sort(whole.rpcs.duration_ns)[-SMALL.rpcs // 3 :]
    assert set(longest.tolist()) <= set(some.rpcs.duration_ns.tolist())
    assert ((some.rpcs.status != 0).sum()) >= SMALL.rpcs // 3


@pytest.mark.parametrize("bounds", [None, SMALL], ids=["whole", "some"])
def test_thinned_halves_and_ends(bounds: Bounds | None) -> None:
    found = drawn("rpc-errors", bounds)
    for _ in range(40):
        less = halve_page_data(found)
        for table in ("rpcs", "waits", "frames"):
            assert len(getattr(less, table).stream) <= max(len(getattr(found, table).stream) // 2, 0), table
        assert len(less.packets.packet) < len(found.packets.packet) or not len(found.packets.packet)
        found = less
    assert not len(found.rpcs.stream) + len(found.packets.packet) + len(found.frames.stream)


def test_windows_without_their_scale_are_not_known() -> None:
    file = synthetic("begun_late").file
    found = collect_page_data([file], analyze([file]))
    assert (found.packets.window == -1).all()
    assert (drawn("rtt205-go-16000").packets.window >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_distributions_hold_every_complete_rpc(name: str) -> None:
    analysis, found = analyze([recorded(f"{name}.pcap")]), drawn(name)
    complete = sum(int(row) for row in found.rpcs.complete)
    assert sum(sum(method.counts) for method in found.methods) == complete
    for facts in analysis.methods:
        method = next(m for m in found.methods if (m.name, m.label) == (facts.method, facts.label))
        if facts.latency_ns:
            low, high = (
                place / _core.CLASSES_PER_DECADE
                for place in (method.first_class, method.first_class + len(method.counts))
            )
            assert low - 1e-6 <= np.log10(facts.latency_ns.min) and np.log10(facts.latency_ns.max) <= high + 1e-6


@given(st.lists(st.integers(-1, 9), max_size=30), st.integers(0, 33))
def test_the_longest_are_the_first_of_equals(durations: list[int], most: int) -> None:
    kept = page_data._longest(np.array(durations, dtype=np.int64), most)
    order = sorted(range(len(durations)), key=lambda row: (-durations[row], row))
    assert np.flatnonzero(kept).tolist() == sorted(order[:most])
