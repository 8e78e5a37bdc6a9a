"""The ring of a flight recorder: what it keeps, what it survives, and what is written around a moment."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import recorded, run_here

from grpcdiag.capture import moments as moments_of
from grpcdiag.capture import ring as ring_of
from grpcdiag.capture.errors import RecordingError, UsageError
from grpcdiag.capture.moments import Limits, Moments
from grpcdiag.capture.ring import Keep, Ring, parse_keep
from grpcdiag.files.folder import Folder, find

S = 1_000_000_000
T0 = 1_800_000_000 * S
HEADER = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)


def packet(at_ns: int, size: int = 60) -> bytes:
    return struct.pack("=IIII", at_ns // S, at_ns % S, size, size) + bytes(size)


def feed(ring: Ring, stream: bytes, size: int = 760) -> None:
    """Feed a ring as a pipe does, in pieces: by default ten packets."""
    for at in range(0, len(stream), size):
        ring.add(stream[at : at + size])


def make_stream(seconds: int, per_second: int = 10, size: int = 60) -> bytes:
    steps = range(seconds * per_second)
    return HEADER + b"".join(packet(T0 + step * S // per_second, size) for step in steps)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with find(tmp_path / "any") as place:
        yield place.folder


def read_times(path: Path) -> list[int]:
    """Times of the packets of a pcap, in nanoseconds."""
    data, at, times = path.read_bytes(), ring_of.HEADER, list[int]()
    while at < len(data):
        seconds, nanoseconds, length, _ = struct.unpack_from("=IIII", data, at)
        times.append(seconds * S + nanoseconds)
        at += 16 + length
    assert at == len(data), "the last packet is cut"
    return times


def kept(tmp_path: Path) -> list[int]:
    return [time_ns for path in sorted(tmp_path.glob("ring-*.pcap")) for time_ns in read_times(path)]


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("60s", Keep(60 * S)),
        ("10m", Keep(600 * S)),
        ("500M", Keep(bytes=500_000_000)),
        ("2h, 1G", Keep(7200 * S, 10**9)),
    ],
)
def test_what_to_keep(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep


@pytest.mark.parametrize("text", ["", "60", "0s", "0M", "60x", "60s,60s", "1.5s", "-1s", "60s,", "9" * 20 + "s"])
def test_what_cannot_be_kept(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(text))):
        parse_keep(text)


def test_packets_stay_whole_wherever_the_stream_is_divided(folder: Folder, tmp_path: Path) -> None:
    stream, chance, at = make_stream(20), random.Random(1), 0
    ring = Ring(folder, Keep(60 * S))
    while at < len(stream):
        size = chance.randrange(1, 200)
        ring.add(stream[at : at + size])
        at += size
    assert kept(tmp_path) == [T0 + step * S // 10 for step in range(200)]
    assert 15 <= len(list(tmp_path.glob("ring-*.pcap"))) <= 20
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_old_packets_go_by_age(folder: Folder, tmp_path: Path) -> None:
    ring = Ring(folder, Keep(5 * S))
    feed(ring, make_stream(20))
    ring.expire(T0 + 20 * S)
    assert T0 + 14 * S <= kept(tmp_path)[0] <= T0 + 15 * S
    ring.expire(T0 + 24 * S, held_ns=T0 + 18 * S)  # these are to be written
    assert T0 + 17 * S <= kept(tmp_path)[0] <= T0 + 18 * S
    ring.expire(T0 + 60 * S)
    assert kept(tmp_path) == [] and ring.size == 0
    ring.add(packet(T0 + 60 * S))
    assert kept(tmp_path) == [T0 + 60 * S]


def test_old_packets_go_by_size(folder: Folder, tmp_path: Path) -> None:
    keep = Keep(bytes=1_000_000)
    ring = Ring(folder, keep)
    for second in range(50):
        ring.add((HEADER if not second else b"") + b"".join(packet(T0 + second * S, 1000) for _ in range(100)))
        ring.expire(T0 + second * S)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == ring.size <= keep.bytes
    assert ring.size > keep.bytes * 9 // 10
    assert kept(tmp_path)[-1] == T0 + 49 * S


def test_a_restart_keeps_the_ring(folder: Folder, tmp_path: Path) -> None:
    ring = Ring(folder, Keep(60 * S))
    feed(ring, make_stream(3))
    newest = sorted(tmp_path.iterdir())[-1]
    with newest.open("ab") as file:
        file.write(packet(T0 + 9 * S)[:40])  # it was killed while it wrote
    (tmp_path / "ring-00000000000000000099.pcap").write_bytes(b"")
    (tmp_path / "ring-1.pcap").write_bytes(b"of somebody else")
    ring = Ring(folder, Keep(60 * S))
    ring.add(HEADER + packet(T0 + 10 * S))
    (tmp_path / "ring-1.pcap").unlink()
    assert kept(tmp_path) == [*(T0 + step * S // 10 for step in range(30)), T0 + 10 * S]


def test_a_link_in_the_folder_is_not_followed(folder: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(make_stream(1))
    (tmp_path / "ring-00000000000000000001.pcap").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        Ring(folder, Keep(60 * S))


def test_a_full_disk_costs_the_oldest_packets(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes beyond 20 kB of all files fail, some after a part was written, as on a disk that gets full."""
    write = os.write

    def fill(descriptor: int, data: bytes) -> int:
        room = 20_000 - sum(path.stat().st_size for path in tmp_path.iterdir())
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:room])

    monkeypatch.setattr(os, "write", fill)
    ring = Ring(folder, Keep(60 * S))
    for second in range(100):
        ring.add((HEADER if not second else b"") + b"".join(packet(T0 + second * S + n, 600) for n in range(5)))
    assert kept(tmp_path)[-1] == T0 + 99 * S + 4
    assert (ring.lost_packets, ring.error.errno if ring.error else 0) == (0, errno.ENOSPC)
    ring.add(b"".join(packet(T0 + 100 * S, 60_000) for _ in range(2)))  # more than there is room for at all
    assert ring.lost_packets == 2
    ring.add(packet(T0 + 101 * S))
    assert kept(tmp_path)[-1] == T0 + 101 * S


def test_a_new_stream_begins_new_files(folder: Folder, tmp_path: Path) -> None:
    """The interface went away and came back, perhaps with another link type."""
    ring = Ring(folder, Keep(60 * S))
    ring.add(make_stream(1)[:-10])
    ring.begin_stream()
    ring.add(HEADER[:20] + struct.pack("=I", 276) + packet(T0 + 2 * S))
    links = [struct.unpack_from("=I", path.read_bytes(), 20)[0] for path in sorted(tmp_path.iterdir())]
    assert links == [1, 276]
    assert len(kept(tmp_path)) == 10


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", HEADER + b"\xff" * 16])
def test_what_is_no_stream(data: bytes, folder: Folder) -> None:
    with pytest.raises(RecordingError, match="stream"):
        Ring(folder, Keep()).add(data)


def make_moments(folder: Folder, tmp_path: Path, limits: Limits) -> tuple[Ring, Moments]:
    ring = Ring(folder, Keep(60 * S))
    return ring, Moments(ring, tmp_path / "out", None, limits)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_moment_is_written_with_its_comments(folder: Folder, tmp_path: Path, out: Path) -> None:
    """The packets are those of the stream, whose analysis is the same."""
    file = Path(recorded("lab/peer-unreachable-control.pcap"))
    stream = file.read_bytes()
    ring, moments = make_moments(folder, tmp_path, Limits())
    feed(ring, stream)
    first_ns = ring.first_ns or 0
    assert moments.note(first_ns + S, "p99 > 50ms: slow", [(3, "grpcdiag: p99 > 50ms")])
    assert moments.note(
        first_ns + 2 * S,
        "finding:warning",
        [(5, "grpcdiag: a finding"), (5, "grpcdiag: more"), (10**9, "of no packet")],
    )
    assert moments.write_due(first_ns + 5 * S) is None
    saved = moments.write_due(first_ns + 6 * S)
    assert saved and saved.reasons == ("p99 > 50ms: slow", "finding:warning")
    assert [path.name for path in out.iterdir()] == [saved.path.name]
    documents = [json.loads(run_here("analyze", "--json", str(one)).text) for one in (saved.path, file)]
    assert documents[0]["totals"] == documents[1]["totals"]
    rows = [run_here("packets", str(one), "--format", "csv").text for one in (saved.path, file)]
    assert rows[0] == rows[1]
    content = saved.path.read_bytes()
    assert b"of no packet" not in content
    assert content.index(b"grpcdiag: p99") < content.index(b"grpcdiag: a finding")
    assert moments.write_due(first_ns + 60 * S) is None


def test_only_the_time_around_the_moment_is_written(folder: Folder, tmp_path: Path, out: Path) -> None:
    ring, moments = make_moments(folder, tmp_path, Limits(before_ns=5 * S, after_ns=2 * S))
    feed(ring, make_stream(40))
    assert moments.note(T0 + 20 * S, "a", [(201, "the moment")])
    assert moments.held_ns == T0 + 15 * S
    saved = moments.write_due(T0 + 22 * S)
    assert saved and saved.packets == 80  # files of a second each, from 15 s to 22 s
    assert moments.held_ns > T0 + 40 * S


def test_no_more_than_the_limits(folder: Folder, tmp_path: Path, out: Path) -> None:
    limits = Limits(before_ns=S, after_ns=S, per_hour=2, bytes=10**9)
    ring, moments = make_moments(folder, tmp_path, limits)
    feed(ring, make_stream(30))
    for at in (5, 10):
        assert moments.note(T0 + at * S, "a", []) and moments.write_due(T0 + (at + 1) * S)
    assert not moments.note(T0 + 15 * S, "a", [])
    assert moments.refused == 1
    later = T0 + 5 * S + moments_of.HOUR_NS
    ring.add(packet(later))
    assert moments.note(later, "a", []) and moments.write_due(later + S)
    ring, moments = make_moments(folder, tmp_path, Limits(bytes=1))
    assert moments.note(later, "a", []) and moments.write_due(later, over=True)
    assert not moments.note(later, "a", [])
    assert len({path.name for path in out.iterdir()}) == 4


@pytest.mark.parametrize("where", ["written", "synchronised"])
def test_a_moment_is_written_whole_or_not_at_all(
    where: str, folder: Folder, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, moments = make_moments(folder, tmp_path, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + S, "slow calls", [])

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail) if where == "synchronised" else monkeypatch.setattr(
        ring, "write_between", fail
    )
    with pytest.raises(RecordingError, match=r"is not written: No space left on device \(slow calls\)"):
        moments.write_due(T0 + 60 * S)
    assert list(out.iterdir()) == []


def test_packets_that_are_gone_give_no_file(folder: Folder, tmp_path: Path, out: Path) -> None:
    ring, moments = make_moments(folder, tmp_path, Limits())
    feed(ring, make_stream(2))
    moments.note(T0 + 600 * S, "late", [])
    with pytest.raises(RecordingError, match="no packets of that time are left"):
        moments.write_due(T0 + 700 * S)
    assert list(out.iterdir()) == []
