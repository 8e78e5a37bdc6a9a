"""The same packets give the same answer: whatever file they come in, however they come, and however many threads read.

Byte for byte, but for `files` of the JSON, the first lines of reports, which name the input, and warnings of damage.
"""

from __future__ import annotations

import functools
import json
import os
import struct
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from guises import COMPRESSIONS, FORMATS, Packets, piped, told
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXAMPLES, RECORDINGS, invoke, recorded, recording

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.runner import threads
from grpcdiag.fixtures.bench.kinds import KINDS, Kind
from grpcdiag.fixtures.bench.multiply import multiply
from grpcdiag.fixtures.synthetic.packet import Captured

ROWS = ("rpcs", "waits", "connections", "messages", "frames", "packets")
COMMANDS: dict[str, list[str]] = {
    "analyze --json": ["analyze", "--json"],
    "analyze": ["analyze"],
    "analyze markdown": ["analyze", "--format", "markdown"],
    **{name: [name, "--format", "jsonl"] for name in ROWS},
    "rpcs csv": ["rpcs", "--format", "csv"],
    "timeline": ["timeline", "-c", "0"],
}
SMALL = ("impl-go.pcap", "rtt205-go-16000.pcap", "max-concurrent-streams.pcap", "any.pcap")


def unnamed(command: str, text: bytes) -> bytes:
    """Without what names the input."""
    if "--json" in command:
        document = json.loads(text)
        assert document.pop("files")
        return json.dumps(document).encode()
    if "markdown" in command:
        title, _, rest = text.partition(b"\n")
        assert title.startswith(b"## ")
        return rest
    if command == "analyze":
        head, box, rest = text.partition("\n╭".encode())  # of the verdict
        assert box and len(head) < 1_500
        return rest
    return text


def answer(command: str, *files: str | Path, threads: int | None = None, options: tuple[str, ...] = ()) -> bytes:
    """What a command says of files."""
    return unnamed(command, told([*COMMANDS[command], *map(str, files), *options], threads=threads))


def answer_piped(command: str, content: bytes, threads: int | None = None, options: tuple[str, ...] = ()) -> bytes:
    """What a command says of standard input."""
    return unnamed(command, piped([*COMMANDS[command], "-", *options], content, threads=threads))


@pytest.mark.parametrize("files", [pytest.param(r.files, id=r.id) for r in RECORDINGS])
def test_one_thread_and_two_give_the_same_report(files: tuple[str, ...]) -> None:
    """The crate's tests hold their tables against each other for every capture."""
    one, two = (_report(files, number) for number in (1, 2))
    assert one == two


def _report(files: tuple[str, ...], number: int) -> tuple[int, bytes, bytes]:
    outcome = invoke(["analyze", "--json", *files], GRPCDIAG_THREADS=str(number))
    return outcome.exit_code, outcome.stdout_bytes, outcome.stderr_bytes


def test_the_number_of_threads_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = min(2, len(os.sched_getaffinity(0)))
    monkeypatch.delenv("GRPCDIAG_THREADS", raising=False)
    assert threads() == cores
    for said, number in (("1", 1), ("2", 2), ("64", 2), ("0", cores), ("", cores), ("many", cores), ("-1", cores)):
        monkeypatch.setenv("GRPCDIAG_THREADS", said)
        assert threads() == number, said


# --- many connections: the second thread has work, and segments are read connection by connection ---

LARGE = {
    "many": (Kind("many", "", KINDS["unary-many"].source, together=400, piece=12_000), 3),
    "turns": (Kind("turns", "", KINDS["unary"].source, together=3), 1),
    "streaming": (Kind("streaming", "", KINDS["streaming"].source, together=4), 2),
    "lossy": (Kind("lossy", "", KINDS["lossy"].source, together=5), 2),
    "large-offload": (Kind("large-offload", "", KINDS["large-offload"].source, together=2), 2),
    "tls": (Kind("tls", "", KINDS["tls"].source, together=40, keylog=KINDS["tls"].keylog), 2),
    "errors": (Kind("errors", "", Path(recorded("rpc-errors.pcap")), together=60), 1),
    "pings": (Kind("pings", "", Path(recorded("too-many-pings.pcap")), together=200), 2),
}
"""Kinds of the bench with copies side by side, and how many rounds of those."""


@pytest.fixture(scope="module", params=LARGE)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    kind, rounds = LARGE[request.param]
    path = tmp_path_factory.mktemp("large") / f"{kind.name}.pcap"
    once = kind.build(path, 1)
    assert kind.build(path, rounds * path.stat().st_size) == rounds * once
    return path, tuple(kind.options)


@pytest.mark.parametrize(
    ("large", "command"),
    [
        *((name, "analyze --json") for name in LARGE),
        *((name, command) for command in ("rpcs csv", "export") for name in ("many", "lossy", "tls")),
    ],
    indirect=["large"],
)
def test_many_connections_read_the_same(large: tuple[Path, tuple[str, ...]], command: str) -> None:
    path, options = large
    if command == "export":
        tables = [exported(path, options, number) for number in (1, 2)]
        assert len(tables[0]) == 8
    else:
        tables = [answer(command, path, threads=number, options=options) for number in (1, 2)]
    assert tables[0] == tables[1]


def exported(path: Path, options: tuple[str, ...], number: int) -> dict[str, bytes]:
    """The tables that two threads may fill, as CSV."""
    with TemporaryDirectory() as folder:
        names = ("connections", "waits", "problems", "methods", "findings", "evidence")
        chosen = [argument for name in names for argument in ("--table", name)]
        told(["export", str(path), "-o", folder, "--format", "csv", *chosen, *options], threads=number)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()} | {"": b""}


IN_WINDOWS = ("many", "lossy", "tls", "pings")
"""Kinds with so many connections at once that segments are read connection by connection."""


@pytest.mark.parametrize("large", IN_WINDOWS, indirect=True)
@pytest.mark.parametrize("rpc_rows", [False, True])
def test_rows_have_the_order_of_the_capture(large: tuple[Path, tuple[str, ...]], rpc_rows: bool) -> None:
    """Of many connections, too, whose segments are read connection by connection, but not if `acts` are wanted."""
    path, _ = large
    keylog = KINDS["tls"].keylog
    assert_in_order(path, rpc_rows=rpc_rows, keylog=keylog.read_bytes() if keylog else None)


def assert_in_order(path: Path, **how: Any) -> dict[str, list[int]]:
    """The rows are those of a run that reads every packet when it comes; gives how many were taken at a time."""
    (together, sizes), (in_order, _) = (taken(path, acts=acts, **how) for acts in (False, True))
    assert len(together["packets"]["packet"]) > 10_000
    for table, columns in in_order.items():
        for name, cells in columns.items():
            assert np.array_equal(together[table][name], cells), (table, name)
    return sizes


def taken(path: Path, step: int = 9_001, **how: Any) -> tuple[dict[str, dict[str, Any]], dict[str, list[int]]]:
    """The rows of packets, frames and messages, taken while the capture is read, and those of RPCs at the end."""
    run = _core.Run([str(path)], packets=True, frames=True, messages=True, unlisted_packets=True, **how)
    pieces: dict[str, list[dict[str, Any]]] = {"packets": [], "frames": [], "messages": []}
    while run.step(step):
        for table, found in pieces.items():
            found.append(run.take(table))
    end = run.finish()
    for table, found in pieces.items():
        found.append(end[table])
    rows = {
        table: {name: np.concatenate([piece[name] for piece in found]) for name in found[0]}
        for table, found in pieces.items()
    }
    of_requests = {name: end[name] for name in ("request_budgets", "request_ends", "rpc_budgets", "deadlines")}
    sizes = {table: [len(piece["connection"]) for piece in found] for table, found in pieces.items()}
    return rows | {"rpcs": end["rpcs"], "requests": of_requests}, sizes


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> Packets:
    """The packets of 250 connections that take turns."""
    source, path = Path(recorded("rpc-errors.pcap")), tmp_path_factory.mktemp("beside") / "many.pcap"
    multiply(source, path, 1, together=250)
    return Packets(path)


def changed(packet: Captured, flags: int | None = None, **words: int) -> Captured:
    """A packet of IPv4 and TCP with other ports, numbers or flags."""
    content = bytearray(packet.data)
    tcp = 14 + 20
    for at, kind, name in ((0, ">H", "source"), (2, ">H", "target"), (4, ">I", "seq"), (8, ">I", "ack")):
        if name in words:
            struct.pack_into(kind, content, tcp + at, words[name] & 0xFFFF_FFFF)
    if flags is not None:
        content[tcp + 13] = flags
    return replace(packet, data=bytes(content))


def field(packet: Captured, kind: str, at: int) -> int:
    found: int = struct.unpack_from(kind, packet.data, 14 + 20 + at)[0]
    return found


def test_roles_that_show_late_turn_the_same_rows(side_by_side: Packets, tmp_path: Path) -> None:
    """Without handshakes, and with clients on the lower ports: who is the client shows with the first payload."""
    packets, server = [], 50_051
    for packet in side_by_side.all:
        flags, ends = packet.data[47], struct.unpack_from(">HH", packet.data, 34)
        if not flags & 2:
            others = (61_000 if end == server else 1_000 + end % 1_000 for end in ends)
            content = packet.data[:34] + struct.pack(">HH", *others) + packet.data[38:]
            packets.append(Captured(packet.time_ns, content, original_length=packet.original_length))
    (tmp_path / "late.pcap").write_bytes(side_by_side.written(packets=packets))
    assert_in_order(tmp_path / "late.pcap", step=len(packets) + 1)  # rows that were taken turn no more


def test_a_connection_ends_where_another_takes_its_place(side_by_side: Packets, tmp_path: Path) -> None:
    """The first connection lacks packets and falls silent; its ports are used again, long before payload comes."""
    ends = side_by_side.all[0].data[26:30], side_by_side.all[0].data[30:34]
    mine = [p for p in side_by_side.all if {p.data[26:30], p.data[30:34]} == set(ends)]
    left_out = {id(packet) for packet in mine[19:23] + mine[39:]}
    again = [changed(p, seq=field(p, ">I", 4) + 1_000_000, ack=field(p, ">I", 8) + 1_000_000) for p in mine[:12]]
    again[0] = changed(mine[0], seq=field(mine[0], ">I", 4) + 1_000_000)
    packets = [packet for packet in side_by_side.all if id(packet) not in left_out]
    for at, some in ((24_000, again[3:]), (20_000, again[:3])):
        packets[at:at] = [replace(packet, time_ns=packets[at].time_ns) for packet in some]
    (tmp_path / "again.pcap").write_bytes(side_by_side.written(packets=packets))
    assert_in_order(tmp_path / "again.pcap")


def test_rows_do_not_wait_for_the_end_of_a_flood(side_by_side: Packets, tmp_path: Path) -> None:
    """Behind 30,000 packets of connections that take turns, 200,000 others open, and carry nothing."""
    begun, last = side_by_side.all[:30_000], side_by_side.all[29_999]
    syn = changed(side_by_side.all[0], 2).data
    ends = (struct.pack(">HH", 1_024 + n % 60_000, 9_000 + n // 60_000) for n in range(200_000))
    flood = [Captured(last.time_ns, syn[:34] + ports + syn[38:]) for ports in ends]
    (tmp_path / "flood.pcap").write_bytes(side_by_side.written(packets=begun + flood))
    sizes = assert_in_order(tmp_path / "flood.pcap")
    assert sizes["packets"][-1] < len(flood) // 2


@pytest.mark.parametrize("large", IN_WINDOWS, indirect=True)
def test_many_connections_come_the_same_however(large: tuple[Path, tuple[str, ...]], tmp_path: Path) -> None:
    path, options = large
    expected = answer("analyze --json", path, options=options)
    packets = Packets(path)
    assert answer_piped("analyze --json", path.read_bytes(), options=options) == expected
    files = [tmp_path / f"{number}" for number in range(3)]
    for file, piece, how in zip(files, packets.cuts([7_001, 20_011]), ("gzip", "zstd", "plain"), strict=False):
        file.write_bytes(packets.written("pcap", how, piece))
    assert answer("analyze --json", *[f for f in files if f.exists()], options=options) == expected


# --- one capture in other files ---


READ = [("rpc-errors.pcap", command) for command in COMMANDS] + [(name, "analyze --json") for name in SMALL]
"""Every command of one capture, and one command of every capture: all commands read in the same way."""
PIPED = [("analyze --json", how) for how in COMPRESSIONS]
PIPED += [(command, "plain") for command in ("analyze", "rpcs", "waits", "connections")]


@pytest.mark.parametrize(("name", "command"), READ)
def test_other_files_tell_the_same(name: str, command: str, tmp_path: Path) -> None:
    """Of each command the pieces are read, of `analyze --json` every compression: what decompresses is one for all."""
    packets = Packets(recorded(name))
    expected = answer(command, recorded(name), threads=1)
    for number, how in enumerate(COMPRESSIONS if command == "analyze --json" else ()):
        file = tmp_path / how
        file.write_bytes(packets.written(FORMATS[number % len(FORMATS)], how))
        assert answer(command, file) == expected, how
    pieces = packets.cuts([len(packets.all) // 3, len(packets.all) // 2])
    files = []
    for number, piece in enumerate(pieces):
        files.append(tmp_path / f"piece{number}")
        files[-1].write_bytes(packets.written(FORMATS[number], COMPRESSIONS[number], piece))
    assert answer(command, *files) == answer(command, *reversed(files)) == expected


@pytest.mark.parametrize(("command", "how"), PIPED)
def test_standard_input_tells_the_same(command: str, how: str) -> None:
    name = "rtt205-go-16000.pcap"
    packets = Packets(recorded(name))
    form = FORMATS[COMPRESSIONS.index(how) % len(FORMATS)]
    assert answer_piped(command, packets.written(form, how)) == answer(command, recorded(name))


def test_a_rotated_recording_is_the_whole_one_in_any_order() -> None:
    files = recording("rotated").files
    assert answer("analyze --json", *files, threads=1) == answer("analyze --json", *reversed(files), threads=2)
    assert answer("rpcs", *files) == answer("rpcs", *files[2:], *files[:2])


CUT = ("impl-cpp.pcap", "rpc-errors.pcap", "rtt205-go-32000.pcap", "max-concurrent-streams.pcap", "ipv6.pcap")
"""Captures in the order of time: the files of a rotated one are read by the times of their first packets."""


@st.composite
def pieces(draw: st.DrawFn) -> tuple[str, list[int], list[tuple[str, str]], int]:
    """A capture, where it is cut, how each piece is written, and the threads."""
    points = draw(st.lists(st.integers(1, 100_000), min_size=1, max_size=6))
    written = st.tuples(st.sampled_from(FORMATS), st.sampled_from(COMPRESSIONS))
    forms = draw(st.lists(written, min_size=7, max_size=7))
    return draw(st.sampled_from(CUT)), points, forms, draw(st.sampled_from([1, 2]))


@settings(max_examples=EXAMPLES // 6)
@given(pieces(), st.randoms(use_true_random=False))
def test_cut_anywhere_it_is_the_same(how: tuple[str, list[int], list[tuple[str, str]], int], order: Any) -> None:
    name, points, forms, number = how
    packets = Packets(recorded(name))
    times = [packet.time_ns for packet in packets.all]
    assert times == sorted(times)
    with TemporaryDirectory() as folder:
        files = [Path(folder) / str(n) for n in range(7)]
        cut = packets.cuts([p for p in points if _tells_the_order(times, p % len(times))])
        for file, piece, (form, compression) in zip(files, cut, forms, strict=False):
            file.write_bytes(packets.written(form, compression, piece))
        names = files[: len(cut)]
        order.shuffle(names)
        assert answer("analyze --json", *names, threads=number) == _expected(name)


def _tells_the_order(times: list[int], point: int) -> bool:
    """Whether a file that begins here begins later than the packet before."""
    return point == 0 or times[point] > times[point - 1]


@functools.cache
def _expected(name: str) -> bytes:
    return answer("analyze --json", recorded(name), threads=1)
