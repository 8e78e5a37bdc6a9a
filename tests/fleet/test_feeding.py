"""Recordings of a store are read as they come: in order, nowhere whole on disk, and never in part unnoticed."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

pytest.importorskip("fsspec")
from fleets import fleet, split
from support import recorded

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fleet.engines import task
from grpcdiag.fleet.recordings import feeding, store
from grpcdiag.fleet.recordings.series import File, Recording

NAME = "impl-go.pcap"


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def put(system: fsspec.AbstractFileSystem, contents: dict[str, bytes]) -> list[File]:
    files = []
    for name, content in contents.items():
        system.pipe_file(f"/captures/{name}", content)
        files.append(File(f"memory://captures/{name}", len(content), "1"))
    return files


def pieces(folder: Path) -> dict[str, bytes]:
    """A capture as tcpdump rotated it, named against the order of time."""
    folder.mkdir()
    split(Path(recorded(NAME)).read_bytes(), folder, "eth0.pcap", 3)
    found = sorted(folder.iterdir())
    return {f"eth0.pcap{9 - number}": path.read_bytes() for number, path in enumerate(found)}


def read(files: list[File], folder: Path) -> tuple[Tables, int]:
    """The tables, and the most bytes that lay in the folder."""
    folder.mkdir()
    with feeding.feed(files, folder) as feed:
        on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        tables = task._decoded(feed, {})[0]
        on_disk = max(on_disk, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        feed.check()
    return tables, on_disk


def same(one: Tables, other: Tables) -> bool:
    columns = ("connection", "stream", "start_time_ns", "duration_ns", "status", "first_packet", "last_packet")
    rows = all(np.array_equal(getattr(one.rpcs, name), getattr(other.rpcs, name)) for name in columns)
    return rows and one.capture["packets"] == other.capture["packets"]


def test_files_are_read_in_order_and_lie_nowhere(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    files = put(memory, pieces(tmp_path / "pieces"))
    assert sum(file.size for file in files) > 3 * feeding.HEAD_BYTES
    tables, on_disk = read(files, tmp_path / "scratch")
    assert same(tables, decode([recorded(NAME)]))
    assert on_disk <= len(files) * feeding.HEAD_BYTES


@pytest.mark.parametrize("chunk", [1_000, 8 << 20])
def test_one_file_of_many_chunks(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(feeding, "CHUNK_BYTES", chunk)
    tables, _ = read(put(memory, {"eth0.pcap": Path(recorded(NAME)).read_bytes()}), tmp_path / "scratch")
    assert same(tables, decode([recorded(NAME)]))


@pytest.mark.parametrize("tool", ["gzip", "zstd", "lz4"])
def test_compressed_files(memory: fsspec.AbstractFileSystem, tmp_path: Path, tool: str) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    packed = {
        f"{name}.{tool}": subprocess.run([tool, "-c"], input=content, capture_output=True, check=True).stdout
        for name, content in pieces(tmp_path / "pieces").items()
    }
    tables, _ = read(put(memory, packed), tmp_path / "scratch")
    assert same(tables, decode([recorded(NAME)]))


def test_a_beginning_that_tells_too_little_is_no_loss(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "HEAD_BYTES", 30)
    contents = pieces(tmp_path / "pieces")
    tables, _ = read(put(memory, contents), tmp_path / "scratch")
    assert same(tables, decode([recorded(NAME)]))
    monkeypatch.setattr(feeding, "HEAD_BYTES", 12)
    packed = {f"{name}.gz": gzip.compress(content) for name, content in contents.items()}
    tables, _ = read(put(memory, packed), tmp_path / "packed")
    assert same(tables, decode([recorded(NAME)]))


def outcome(files: list[File], dataset: Path) -> task.Outcome:
    recording = Recording("web-1", "web-1", "eth0", tuple(files))
    return task.analyse(task.Task(recording, "1", str(dataset)))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_store_that_fails_on_the_way_costs_the_recording(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """What came before is a capture too, but not the recording."""
    files = put(memory, pieces(tmp_path / "pieces"))
    asked = store.part
    calls: list[int] = []

    def failing(url: str, begin: int, end: int) -> bytes:
        calls.append(begin)
        if len(calls) > at:
            raise store.StoreError(f"{url}: gone with the wind")
        return asked(url, begin, end)

    monkeypatch.setattr(store, "part", failing)
    told = outcome(files, tmp_path / "dataset")
    assert not told.done and "gone with the wind" in (told.reason or "")
    assert not (tmp_path / "dataset").exists()


def test_a_file_that_became_shorter_is_told(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    (file,) = put(memory, {"eth0.pcap": Path(recorded(NAME)).read_bytes()})
    told = outcome([File(file.url, file.size + 1, "1")], tmp_path / "dataset")
    assert not told.done and "became shorter" in (told.reason or "")


def test_a_server_that_gives_no_parts_is_no_loss(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = type(memory).cat_file
    monkeypatch.setattr(type(memory), "cat_file", lambda self, path, *_, **__: whole(self, path))
    monkeypatch.setattr(feeding, "CHUNK_BYTES", 50_000)
    tables, _ = read(put(memory, pieces(tmp_path / "pieces")), tmp_path / "scratch")
    assert same(tables, decode([recorded(NAME)]))


def test_what_is_no_capture_is_left_out(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    junk = b"nothing of the kind" * 10_000
    files = put(memory, {**pieces(tmp_path / "pieces"), "eth0.pcap0": junk, "eth0.pcap1": b"", "x" * 300: junk})
    told = outcome(files, tmp_path / "dataset")
    assert told.done and told.rpcs == 10
    assert {left.file.rpartition("/")[2] for left in told.left_out} == {"eth0.pcap0", "eth0.pcap1", "x" * 300}
    assert not any(str(tmp_path) in left.reason or "grpcdiag-" in left.reason for left in told.left_out)
    with feeding.feed(files, tmp_path) as feed:
        assert sum(path.stat().st_size for path in tmp_path.glob("0*")) <= len(files) * feeding.HEAD_BYTES
        assert len(feed.paths) == 3


def test_nobody_waits_for_a_reader_that_never_came(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    files = put(memory, pieces(tmp_path / "pieces"))
    (tmp_path / "scratch").mkdir()
    with feeding.feed(files, tmp_path / "scratch") as feed:
        assert len(feed.paths) == 3
    (tmp_path / "again").mkdir()
    with feeding.feed(files, tmp_path / "again") as feed:
        pipe = os.open(feed.paths[0], os.O_RDONLY)
        assert os.read(pipe, 4) == bytes.fromhex("d4c3b2a1")
    os.close(pipe)


def test_a_web_server_s_folder_is_a_source(tmp_path: Path) -> None:
    """Python's server tells no sizes in listings, and gives no parts of files."""
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    (tmp_path / "www").mkdir()
    shutil.copy(recorded(NAME), tmp_path / "www" / "web-1_eth0.pcap")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www"))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        _, told = fleet("analyze", url, "-o", str(tmp_path / "dataset"))
        server.shutdown()
    assert "1 recording analyzed, 10 RPCs" in told
