"""The same packets give the same answer: whatever file they come in, however they come, and however many threads read.

Byte for byte, but for `files` of the JSON, the first lines of reports, which name the input, and warnings of damage.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from guises import COMPRESSIONS, FORMATS, Packets, piped, told
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXAMPLES, RECORDINGS, recorded, recording
from typer.testing import CliRunner

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.runner import threads
from grpcdiag.cli import app
from grpcdiag.fixtures.bench.kinds import KINDS, Kind

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
    outcome = CliRunner().invoke(app, ["analyze", "--json", *files], env={"GRPCDIAG_THREADS": str(number)})
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


@pytest.mark.parametrize("large", ["many", "lossy", "tls", "pings"], indirect=True)
def test_rows_have_the_order_of_the_capture(large: tuple[Path, tuple[str, ...]]) -> None:
    """Of many connections, too, whose segments are read connection by connection, but not if `acts` are wanted."""
    path, _ = large
    keylog = KINDS["tls"].keylog
    secrets = keylog.read_bytes() if keylog else None
    together, in_order = (taken(path, keylog=secrets, acts=acts) for acts in (False, True))
    assert len(together["packets"]["packet"]) > 10_000
    for table, columns in in_order.items():
        for name, cells in columns.items():
            assert np.array_equal(together[table][name], cells), (table, name)


def taken(path: Path, **how: Any) -> dict[str, dict[str, Any]]:
    """The rows of packets, frames and messages, taken while the capture is read."""
    run = _core.Run([str(path)], packets=True, frames=True, messages=True, unlisted_packets=True, **how)
    pieces: dict[str, list[dict[str, Any]]] = {"packets": [], "frames": [], "messages": []}
    while run.step(9_001):
        for table, found in pieces.items():
            found.append(run.take(table))
    end = run.finish()
    for table, found in pieces.items():
        found.append(end[table])
    return {
        table: {name: np.concatenate([piece[name] for piece in found]) for name in found[0]}
        for table, found in pieces.items()
    }


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
    packets = Packets(recorded(name))
    expected = answer(command, recorded(name), threads=1)
    for number, how in enumerate(COMPRESSIONS):
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
