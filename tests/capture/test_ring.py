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
from grpcdiag.capture import savefile
from grpcdiag.capture.errors import RecordingError, UsageError
from grpcdiag.capture.moments import Limits, Moments
from grpcdiag.capture.relay import Relay
from grpcdiag.capture.ring import Excerpt, Keep, Ring, parse_keep
from grpcdiag.files.atomic_file import Part
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
    data, at, times = path.read_bytes(), savefile.HEADER, list[int]()
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
    write = os.pwrite

    def fill(descriptor: int, data: bytes, at: int) -> int:
        room = 20_000 - sum(path.stat().st_size for path in tmp_path.iterdir())
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:room], at)

    monkeypatch.setattr(os, "pwrite", fill)
    ring = Ring(folder, Keep(60 * S))
    for second in range(100):
        ring.add((HEADER if not second else b"") + b"".join(packet(T0 + second * S + n, 600) for n in range(5)))
    assert kept(tmp_path)[-1] == T0 + 99 * S + 4
    assert (ring.lost_packets, ring.error) == (0, None)
    ring.add(b"".join(packet(T0 + 100 * S, 60_000) for _ in range(2)))  # more than there is room for at all
    assert (ring.lost_packets, ring.error.errno if ring.error else 0) == (2, errno.ENOSPC)
    ring.add(packet(T0 + 101 * S))
    assert kept(tmp_path)[-1] == T0 + 101 * S


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.EACCES, errno.EFBIG, errno.EMFILE])
def test_only_a_full_disk_costs_old_packets(
    number: int, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(folder, Keep(60 * S))
    feed(ring, make_stream(10))

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        for second in range(10, 13):
            ring.add(packet(T0 + second * S))
    assert (ring.lost_packets, ring.error.errno if ring.error else 0) == (3, number)
    ring.add(packet(T0 + 13 * S))
    assert ring.error is None
    assert kept(tmp_path) == [*(T0 + step * S // 10 for step in range(100)), T0 + 13 * S]


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_disk_that_takes_nothing_and_gives_nothing_back(
    number: int, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted again to be read only: packets are lost, the stream goes on, nothing is forgotten."""
    ring = Ring(folder, Keep(60 * S))
    feed(ring, make_stream(10))

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    source, target = os.pipe()
    copy, end = os.pipe()
    with monkeypatch.context() as patch:
        for name in ("pwrite", "ftruncate", "unlink"):
            patch.setattr(os, name, fail)
        relay = Relay(source, end, ring.add)
        for second in range(10, 13):
            os.write(target, packet(T0 + second * S))
            assert os.read(copy, 1000) == packet(T0 + second * S)
        with pytest.raises(OSError, match=os.strerror(number)):
            ring.expire(T0 + 100 * S)
        os.close(target)
        assert os.read(copy, 1) == b""
        relay.wait()
    os.close(copy)
    assert relay.error is None and ring.lost_packets == 3
    ring.expire(T0 + 100 * S)
    assert kept(tmp_path) == [] and ring.size == 0


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, unlink = Keep(bytes=1_000_000), os.unlink
    ring = Ring(folder, keep)
    ring.add(HEADER + packet(T0))
    (stays,) = (path.name for path in tmp_path.iterdir())

    def remove(name: str, **how: int) -> None:
        if name == stays:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(name, **how)

    monkeypatch.setattr(os, "unlink", remove)
    for second in range(50):
        ring.add(b"".join(packet(T0 + second * S, 1000) for _ in range(100)))
    assert ring.size <= keep.bytes and ring.lost_packets == 0
    assert kept(tmp_path)[0] == T0 and kept(tmp_path)[-1] == T0 + 49 * S


def test_a_relay_closes_both_ends_whatever_happens() -> None:
    """What reads the copy must see its end, and what writes must not wait for ever."""
    source, target = os.pipe()
    copy, end = os.pipe()

    def fail(piece: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    relay = Relay(source, end, fail)
    os.write(target, b"a piece")
    assert os.read(copy, 1) == b""
    relay.wait()
    assert relay.error and relay.error.errno == errno.EIO
    with pytest.raises(BrokenPipeError):
        os.write(target, b"a piece")
    os.close(target)
    os.close(copy)


def test_packets_that_come_seldom_do_not_share_a_file_for_long(folder: Folder, tmp_path: Path) -> None:
    """Files are written around a moment as a whole: without an age one could have those of days."""
    ring = Ring(folder, Keep(bytes=500_000_000))
    ring.add(HEADER)
    for minute in range(10):
        for second in (0, 20, 50):
            ring.add(packet(T0 + 2 * minute * 60 * S + second * S))
    assert [len(read_times(path)) for path in sorted(tmp_path.glob("ring-*.pcap"))] == [3] * 10


def test_the_number_of_files_is_limited(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_of, "MOST_FILES", 5)
    ring = Ring(folder, Keep())
    ring.add(HEADER)
    for hour in range(12):
        ring.add(packet(T0 + hour * 3600 * S))
    assert kept(tmp_path) == [T0 + hour * 3600 * S for hour in range(7, 12)]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "tick_ns"), [(0xA1B23C4D, 1), (0xA1B2C3D4, 1000)])
def test_streams_of_every_kind_of_pcap(order: str, magic: int, tick_ns: int, folder: Folder, tmp_path: Path) -> None:
    """tcpdump on another machine writes microseconds, and its own byte order."""
    header = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, 1)
    packets = [
        struct.pack(f"{order}IIII", T0 // S + second, 5000 // tick_ns, 60, 60) + bytes(60) for second in range(20)
    ]
    ring = Ring(folder, Keep(5 * S))
    feed(ring, header + b"".join(packets), 76)
    ring.expire(T0 + 19 * S)
    files = sorted(tmp_path.iterdir())
    assert [path.read_bytes() for path in files] == [header + one for one in packets[14:]]
    moments = Moments(ring, folder, tmp_path, Limits(before_ns=2 * S, after_ns=0))
    assert moments.note(T0 + 17 * S + 5000, "a", [(18, "the moment")])
    saved = moments.write_due(T0 + 17 * S, over=True)
    assert saved and saved.packets == 3
    rows = [json.loads(one) for one in run_here("packets", str(saved.path), "--format", "jsonl").text.splitlines()]
    assert rows == []  # no TCP, and the file can be read
    again = Ring(folder, Keep(5 * S))
    assert again.size == ring.size


def test_a_new_stream_begins_new_files(folder: Folder, tmp_path: Path) -> None:
    """The interface went away and came back, perhaps with another link type."""
    ring = Ring(folder, Keep(60 * S))
    ring.add(make_stream(1)[:-10])
    ring.begin_stream()
    ring.add(HEADER[:20] + struct.pack("=I", 276) + packet(T0 + 2 * S))
    links = [struct.unpack_from("=I", path.read_bytes(), 20)[0] for path in sorted(tmp_path.iterdir())]
    assert links == [1, 276]
    assert len(kept(tmp_path)) == 10


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x0a\x0d\x0d\x0a" + bytes(24)])
def test_what_is_no_pcap(data: bytes, folder: Folder) -> None:
    with pytest.raises(UsageError, match="no pcap"):
        Ring(folder, Keep()).add(data)


def test_a_damaged_stream_is_kept_up_to_there(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="damaged: a packet of 4,294,967,295 bytes"):
        Ring(folder, Keep()).add(HEADER + packet(T0) + b"\xff" * 16)
    assert kept(tmp_path) == [T0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """This host's clock, which stands still."""
    now = [0]
    monkeypatch.setattr(moments_of, "monotonic_ns", lambda: now[0])
    return now


@pytest.fixture
def out(tmp_path: Path, clock: list[int]) -> Path:
    """The folder of the ring, where captures go as well."""
    return tmp_path


def make_moments(folder: Folder, out: Path, limits: Limits) -> tuple[Ring, Moments]:
    ring = Ring(folder, Keep(60 * S))
    return ring, Moments(ring, folder, out, limits)


def list_captures(out: Path) -> list[str]:
    """Names of all files but the ring's."""
    return sorted(path.name for path in out.iterdir() if not path.name.startswith("ring-"))


def test_a_moment_is_written_with_its_comments(folder: Folder, out: Path) -> None:
    """The packets are those of the stream, whose analysis is the same."""
    file = Path(recorded("lab/peer-unreachable-control.pcap"))
    stream = file.read_bytes()
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, stream)
    first_ns = read_times(file)[0]
    assert moments.note(first_ns + S, "p99 > 50ms: slow", [(3, "grpcdiag: p99 > 50ms")])
    assert moments.note(
        first_ns + 2 * S,
        "finding:warning",
        [(5, "grpcdiag: a finding"), (5, "grpcdiag: more"), (10**9, "of no packet")],
    )
    assert moments.write_due(first_ns + 5 * S) is None
    saved = moments.write_due(first_ns + 6 * S)
    assert saved and saved.reasons == ("p99 > 50ms: slow", "finding:warning")
    assert list_captures(out) == [saved.path.name]
    documents = [json.loads(run_here("analyze", "--json", str(one)).text) for one in (saved.path, file)]
    assert documents[0]["totals"] == documents[1]["totals"]
    rows = [run_here("packets", str(one), "--format", "csv").text for one in (saved.path, file)]
    assert rows[0] == rows[1]
    content = saved.path.read_bytes()
    assert b"of no packet" not in content
    assert content.index(b"grpcdiag: p99") < content.index(b"grpcdiag: a finding")
    assert moments.write_due(first_ns + 60 * S) is None


def test_only_the_time_around_the_moment_is_written(folder: Folder, out: Path) -> None:
    ring, moments = make_moments(folder, out, Limits(before_ns=5 * S, after_ns=2 * S))
    feed(ring, make_stream(40))
    assert moments.note(T0 + 20 * S, "a", [(201, "the moment")])
    assert moments.held_ns == T0 + 15 * S
    saved = moments.write_due(T0 + 22 * S)
    assert saved and saved.packets == 80  # files of a second each, from 15 s to 22 s
    assert moments.held_ns > T0 + 40 * S


def test_no_more_than_the_limits(folder: Folder, out: Path) -> None:
    limits = Limits(before_ns=S, after_ns=S, per_hour=2, bytes=10**9)
    ring, moments = make_moments(folder, out, limits)
    feed(ring, make_stream(30))
    for at in (5, 10):
        assert moments.note(T0 + at * S, "a", []) and moments.write_due(T0 + (at + 1) * S)
    assert not moments.note(T0 + 15 * S, "a", [])
    assert moments.refused == 1
    later = T0 + 5 * S + moments_of.HOUR_NS
    ring.add(packet(later))
    assert moments.note(later, "a", []) and moments.write_due(later + S)
    assert len(list_captures(out)) == 3


def test_captures_are_never_larger_than_the_limit_together(folder: Folder, out: Path) -> None:
    limits = Limits(before_ns=S, after_ns=S, bytes=8000)
    ring, moments = make_moments(folder, out, limits)
    feed(ring, make_stream(30))
    for at in (5, 10, 15, 20):
        assert moments.note(T0 + at * S, "a", [(at * 10, "a comment" * 20)])
        if at < 15:
            assert moments.write_due(T0 + (at + 1) * S)
            continue
        with pytest.raises(RecordingError, match=r"at most 8,000 bytes together \(a\)"):
            moments.write_due(T0 + (at + 1) * S)
    assert (len(list_captures(out)), moments.refused) == (2, 2)
    assert sum((out / name).stat().st_size for name in list_captures(out)) <= limits.bytes


@pytest.mark.parametrize("where", ["written", "synchronised"])
def test_a_moment_is_written_whole_or_not_at_all(
    where: str, folder: Folder, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + S, "slow calls", [])

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail) if where == "synchronised" else monkeypatch.setattr(
        Excerpt, "list_pieces", fail
    )
    with pytest.raises(RecordingError, match=r"is not written: No space left on device \(slow calls\)"):
        moments.write_due(T0 + 60 * S)
    assert list_captures(out) == []


def test_packets_that_are_gone_give_no_file(folder: Folder, out: Path) -> None:
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(2))
    moments.note(T0 + 600 * S, "late", [])
    with pytest.raises(RecordingError, match="no packets of that time are left"):
        moments.write_due(T0 + 700 * S)
    assert list_captures(out) == []


@pytest.mark.parametrize("where", ["list_pieces", "publish"])
def test_a_moment_whose_writing_is_interrupted_is_written_at_the_end(
    where: str, folder: Folder, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C or SIGTERM, which end the stream then."""
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + S, "slow calls", [])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Excerpt if where == "list_pieces" else Part, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            moments.write_due(T0 + 60 * S)
    assert list_captures(out) == []
    saved = moments.write_due(T0 + 60 * S, over=True)
    assert saved and saved.packets == 50 and list_captures(out) == [saved.path.name]


def test_the_name_of_a_capture_is_on_the_disk_too(folder: Folder, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + S, "slow calls", [])
    synchronised = []

    def note(descriptor: int) -> None:
        synchronised.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), list_captures(out)))

    monkeypatch.setattr(os, "fsync", note)
    assert (saved := moments.write_due(T0 + 60 * S))
    file, names = synchronised
    assert file[0].startswith(f"{out}/.grpcdiag-") and names == (str(out), [saved.path.name])


def test_recording_goes_on_while_a_moment_is_written(
    folder: Folder, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if all that is written goes meanwhile."""
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + S, "slow calls", [])
    pieces = Excerpt.list_pieces

    def list_pieces(excerpt: Excerpt) -> Iterator[bytes]:
        assert ring.lock.acquire(blocking=False)
        ring.add(packet(T0 + 100 * S))
        ring.expire(T0 + 100 * S)
        ring.lock.release()
        yield from pieces(excerpt)

    monkeypatch.setattr(Excerpt, "list_pieces", list_pieces)
    saved = moments.write_due(T0 + 60 * S)
    assert saved and saved.packets == 50
    assert kept(out) == [T0 + 100 * S]
    assert [line.count("\n") for line in [run_here("packets", str(saved.path), "--format", "csv").text]] == [1]


def test_comments_stay_at_their_packets_when_another_stream_begins(folder: Folder, out: Path) -> None:
    """tcpdump was started again while a moment waited for its last packets."""
    file = Path(recorded("lab/peer-unreachable-control.pcap"))
    stream = file.read_bytes()
    times = read_times(file)
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, stream)
    assert moments.note(times[0] + S, "a", [(3, "of the first stream")])
    ring.begin_stream()
    feed(ring, stream)
    assert moments.note(times[0] + S, "b", [(3, "of the second stream")])
    saved = moments.write_due(times[0] + 60 * S)
    assert saved and saved.packets == 2 * len(times)
    content = saved.path.read_bytes()
    length = len(stream) * content.index(b"of the first stream") // len(content)
    assert content.index(b"of the second stream") - content.index(b"of the first stream") > len(stream) * 9 // 10, (
        length
    )


def test_a_stream_that_stops_is_written_by_this_hosts_clock(folder: Folder, out: Path, clock: list[int]) -> None:
    """The server hangs, so no later packet says that the time after the moment has passed."""
    ring, moments = make_moments(folder, out, Limits())
    feed(ring, make_stream(5))
    moments.note(T0 + 4 * S, "slow calls", [])
    clock[0] += 4 * S
    assert moments.write_due(T0 + 5 * S) is None
    clock[0] += S
    assert moments.write_due(T0 + 5 * S)


RING = "ring-00000000000000000001.pcap"


def test_what_is_not_surely_the_rings_stays_as_it_is(folder: Folder, tmp_path: Path) -> None:
    """Another name of somebody's file, and what only has such a name."""
    other = tmp_path / "other"
    other.write_bytes(make_stream(1) + b"more")
    (tmp_path / RING).hardlink_to(other)
    (tmp_path / RING.replace("1.", "2.")).write_bytes(b"of somebody else, and longer than the header of a pcap")
    os.mkfifo(tmp_path / RING.replace("1.", "3."))
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    ring = Ring(folder, Keep(60 * S))
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before
    assert ring.size == 0
    ring.add(HEADER + packet(T0))
    ring.expire(T0 + 100 * S)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before


def test_the_rest_of_an_unfinished_packet_goes(folder: Folder, tmp_path: Path) -> None:
    """Also of the first one: then the file goes."""
    (tmp_path / RING).write_bytes(make_stream(1) + packet(T0)[:-1])
    (tmp_path / RING.replace("1.", "2.")).write_bytes(HEADER + packet(T0)[:-1])
    assert Ring(folder, Keep(60 * S)).size == len(make_stream(1))
    assert [path.name for path in tmp_path.iterdir()] == [RING] and len(kept(tmp_path)) == 10
