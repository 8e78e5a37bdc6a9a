"""Recorded captures with bits flipped and bytes deleted, anywhere: what is said still holds, or the file is refused."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from support import recorded, rows, synthetic
from test_properties import hold_the_invariants

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import CaptureError, NoGrpcError
from grpcdiag.analyzer.tables import Packets, Tables
from grpcdiag.reports import analysis_json, terminal

SEEDS = int(os.environ.get("GRPCDIAG_DAMAGES", "60"))
"""Damages of each kind per capture."""

CAPTURES = (
    "deadline-exceeded.pcap",
    "impl-go.pcap",
    "rpc-errors.pcap",
    "rtt205-go-14000.pcap",
    "tls13-go-secrets.pcapng",
    "too-many-pings.pcap",
)
PCAP_HEADER = 24
RECORD_HEADER = 16


def flipped(data: bytes, rng: random.Random) -> tuple[bytes, int]:
    """One bit of a file."""
    place = rng.randrange(len(data))
    changed = bytearray(data)
    changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed), place


def shortened(data: bytes, rng: random.Random) -> tuple[bytes, int]:
    """A few bytes taken out of a file."""
    place, length = rng.randrange(len(data)), rng.choice((1, 1, 2, 3, 4, 7, 16, 60))
    return data[:place] + data[place + length :], place


@pytest.mark.parametrize("damage", (flipped, shortened), ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_damaged_recording_is_read_or_refused(name: str, damage: object, tmp_path: Path) -> None:
    """Budgets stay exact and every byte accounted for, wherever the damage is."""
    data, path = Path(recorded(name)).read_bytes(), tmp_path / name
    whole = len(hold_the_invariants(recorded(name)).rpcs.stream)
    headers = PCAP_HEADER if name.endswith(".pcap") else 200  # a pcapng's section and interface
    found = []
    for seed in range(SEEDS):
        changed, place = damage(data, random.Random(seed))  # type: ignore[operator]
        path.write_bytes(changed)
        try:
            found.append(len(hold_the_invariants(str(path)).rpcs.stream))
        except CaptureError:
            assert place < headers, f"seed {seed}: damage at {place} made the file no capture"
    # many damages cost no RPC at all; one that changes a stream's identifier makes two of one
    assert found.count(whole) > len(found) / 4 and max(found) <= whole + 1, found


@pytest.mark.parametrize("name", CAPTURES)
def test_a_damaged_recording_is_reported_on(name: str, tmp_path: Path) -> None:
    """The analysis and its reports end as documented too."""
    data, path = Path(recorded(name)).read_bytes(), tmp_path / name
    for seed in range(SEEDS // 4):
        rng = random.Random(f"report {seed}")
        for _ in range(5):
            data, _ = rng.choice((flipped, flipped, flipped, shortened))(data, rng)
        path.write_bytes(data)
        try:
            analysis = analyze([str(path)])
        except (CaptureError, NoGrpcError) as error:
            assert str(error)
            continue
        assert terminal.render(analysis, width=100)
        assert analysis_json.render(analysis)


def records(name: str) -> tuple[bytes, list[tuple[int, bytes]]]:
    """A pcap file's header, and its records with their times in the file's units."""
    data, at, found = Path(recorded(name)).read_bytes(), PCAP_HEADER, []
    nanoseconds = struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    while at + RECORD_HEADER <= len(data):
        seconds, fraction, length, _ = struct.unpack_from("<IIII", data, at)
        time = seconds * (10**9 if nanoseconds else 10**6) + fraction
        found.append((time, data[at : at + RECORD_HEADER + length]))
        at += RECORD_HEADER + length
    return data[:PCAP_HEADER], found


def together(first: str, second: str) -> bytes:
    """Two captures of one connection each in one file, interleaved as if they had been recorded at once."""
    (header, one), (other_header, two) = records(first), records(second)
    assert header == other_header, "captures of one link type and unit"
    shift = one[0][0] - two[0][0]
    unit = 10**9 if struct.unpack_from("<I", header)[0] == 0xA1B23C4D else 10**6
    moved = [(t + shift, struct.pack("<II", *divmod(t + shift, unit)) + record[8:]) for t, record in two]
    return header + b"".join(record for _, record in sorted([*one, *moved], key=lambda pair: pair[0]))


def payload_places(path: str, data: bytes, connection: int) -> list[int]:
    """Where in a pcap file the TCP payload of a connection's packets is."""
    table, at, ends = rows(Packets, [path]), PCAP_HEADER, []
    while at + RECORD_HEADER <= len(data):
        at += RECORD_HEADER + struct.unpack_from("<I", data, at + 8)[0]
        ends.append(at)
    places: list[int] = []
    columns = (table.packet, table.connection, table.captured_payload_bytes)
    for packet, of, length in zip(*(column.tolist() for column in columns), strict=True):
        if of == connection:
            places.extend(range(ends[packet - 1] - length, ends[packet - 1]))
    return places


def told(tables: Tables, connection: int) -> list[tuple[object, ...]]:
    """All that is known of a connection's RPCs, budgets included."""
    mine = tables.rpcs.connection == connection
    streams = set(tables.rpcs.stream[mine].tolist())
    names = [
        (tables.method_name(int(method)), budget.tolist())
        for method, budget in zip(tables.rpcs.method[mine], tables.rpc_budgets[mine], strict=True)
    ]
    columns = [
        getattr(tables.rpcs, name)[mine].tolist() for name in ("stream", "start_time_ns", "duration_ns", "status")
    ]
    assert streams
    return list(zip(*columns, names, strict=True))


@pytest.mark.parametrize(
    ("first", "second"),
    [("impl-go.pcap", "impl-java.pcap"), ("deadline-exceeded.pcap", "too-many-pings.pcap")],
)
def test_damage_of_a_connections_bytes_is_its_own(first: str, second: str, tmp_path: Path) -> None:
    """Bits flipped in one connection's payload change nothing of what is said of another."""
    path, data = tmp_path / "two.pcap", together(first, second)
    path.write_bytes(data)
    whole = hold_the_invariants(str(path))
    assert len(whole.connections.payload_bytes) == 2
    for damaged in (0, 1):
        places, other = payload_places(str(path), data, damaged), 1 - damaged
        expected = told(whole, other)
        for seed in range(SEEDS // 2):
            rng = random.Random(seed)
            changed = bytearray(data)
            for place in rng.choices(places, k=rng.choice((1, 1, 1, 8))):
                changed[place] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            assert told(hold_the_invariants(str(path)), other) == expected, f"seed {seed}"
        path.write_bytes(data)


def test_connections_are_told_apart() -> None:
    """What the test above compares does differ between connections."""
    tables = hold_the_invariants(synthetic("two_connections").file)
    assert told(tables, 0) != told(tables, 1)
