"""Connections that began before both recordings, behind address translation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fsspec")
from fleets import fleet
from support import recorded

from grpcdiag.analyzer.tables import Tables
from grpcdiag.fleet.dataset import packet_marks

CLIENT = bytes([10, 77, 0, 1])


def later(name: str, packets: int, path: Path, client: bytes = CLIENT, shift: int = 0) -> Path:
    """A capture without its first packets, its client's address another one, sequence numbers moved."""
    content, at = Path(recorded(name)).read_bytes(), 24
    out = [content[:24]]
    for number in range(10**6):
        if at >= len(content):
            break
        end = at + 16 + int.from_bytes(content[at + 8 : at + 12], "little")
        if number >= packets:
            out.append(_moved(content[at:end], shift).replace(CLIENT, client))
        at = end
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(out))
    return path


def _moved(packet: bytes, shift: int) -> bytes:
    """A packet of raw IP with other sequence numbers, as of another connection with the same traffic."""
    if packet[16] >> 4 != 4 or packet[16 + 9] != 6:
        return packet
    tcp = 16 + (packet[16] & 15) * 4
    numbers = b"".join(
        ((int.from_bytes(packet[at : at + 4], "big") + shift) % 2**32).to_bytes(4, "big") for at in (tcp + 4, tcp + 8)
    )
    return packet[: tcp + 4] + numbers + packet[tcp + 12 :]


@pytest.mark.parametrize(("without", "shift", "joined"), [(30, 0, 4), (0, 0, 4), (30, 1_000, 0)])
def test_packets_of_the_same_numbers_join(tmp_path: Path, without: int, shift: int, joined: int) -> None:
    """The server's recording began later than its connection; the client's did, or has all of it."""
    later("rtt205-go-16000.pcap", without, tmp_path / "captures" / "web-1" / "eth0.pcap")
    other = tmp_path / "captures" / "db-1" / "eth0.pcap"
    later("rtt205-go-16000.server.pcap", 20, other, bytes([192, 0, 2, 9]), shift)
    _, told = fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), "--workers", "1")
    assert ("4 RPCs recorded at both ends" in told) == (joined == 4)
    report = json.loads(fleet("report", str(tmp_path / "dataset"), "--json")[0])
    assert report["rpcs"] == (8 if without else 9) - joined
    assert [(way["client_host"], way["server_host"], way["rpcs"]) for way in report["ways"]] == (
        [("web-1", "db-1", 4)] if joined else []
    )


def marks_of(path: str) -> tuple[Tables, list[packet_marks.Marks]]:
    from grpcdiag.fleet.engines.task import _decoded
    from grpcdiag.fleet.recordings.feeding import Feed

    tables, found, *_ = _decoded(Feed([path], {}), {})
    return tables, list(found)


def test_short_connections_that_began_here_have_none() -> None:
    _, found = marks_of(recorded("impl-go.pcap"))
    assert [len(some) for some in found] == [0]


def test_marks_are_the_ends_of_pushed_packets(tmp_path: Path) -> None:
    path = str(later("rtt205-go-16000.pcap", 30, tmp_path / "x" / "eth0.pcap"))
    tables, (found,) = marks_of(path)
    base = int(tables.connections.client_sequence[0]), int(tables.connections.server_sequence[0])
    assert 4 <= len(found) == len(set(found.tolist())) <= packet_marks.MOST
    for mark in found.tolist():
        numbers = mark >> 32, mark & 0xFFFFFFFF
        near = [min((n - b) % 2**32, (b - n) % 2**32) for n in numbers for b in base]
        assert min(near) < 200_000


def test_the_smallest_are_kept_whatever_the_order() -> None:
    values = np.arange(1, 10_001, dtype=np.uint64) * np.uint64(2**33 + 7)
    whole = packet_marks._Smallest(2, 64)
    whole.add(np.arange(10_000, dtype=np.int64) % 2, values)
    pieces = packet_marks._Smallest(2, 64)
    order = np.random.default_rng(1).permutation(10_000)
    for some in np.array_split(order, 7):
        pieces.add((some % 2).astype(np.int64), values[some])
        pieces.add((some % 2).astype(np.int64), values[some])
    for one, other in zip(whole.of_each(), pieces.of_each(), strict=True):
        assert one.tolist() == other.tolist() and len(one) == 64
