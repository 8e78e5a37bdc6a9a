"""An S3 server on loopback, captures to put into it, and datasets held against each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import duckdb
import pytest
from support import REPOSITORY, invoke, recorded

from grpcdiag.fleet.dataset import catalog, summary
from grpcdiag.fleet.dataset.catalog import TABLES
from grpcdiag.fleet.engines import Work
from grpcdiag.fleet.engines.task import Outcome, Task

BUCKET = "fleet"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A file system and its server, which runs as long; this process and those it starts find it by the environment."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()  # buckets outlive servers
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            monkeypatch.setenv(name, value)
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        system = s3fs.S3FileSystem(use_listings_cache=False)
        system.mkdir(BUCKET)
        yield system, server._server
    finally:
        server.stop()


def captures(folder: Path) -> Path:
    """A few hosts' recordings: rotated, compressed, of both ends, cut, and what is none."""
    for host in ("web-1", "db-1"):
        (folder / host).mkdir(parents=True)
    shutil.copy(recorded("rtt205-go-16000.pcap"), folder / "web-1" / "eth0.pcap")
    shutil.copy(recorded("rtt205-go-16000.server.pcap"), folder / "db-1" / "eth0.pcap")
    content = Path(recorded("impl-go.pcap")).read_bytes()
    split(content, folder, "web-2_eth0.pcap", 4)
    (folder / "web-3_any_20260701-100000.pcap").write_bytes(Path(recorded("impl-java.pcap")).read_bytes()[:200_000])
    (folder / "web-3_any_20260701-101000.pcap").write_bytes(b"no capture at all")
    (folder / "web-4_eth0.pcap").write_bytes(b"neither")
    (folder / "notes.txt").write_text("not looked at")
    return folder


def split(content: bytes, folder: Path, name: str, pieces: int) -> None:
    """A pcap as `tcpdump -C -W` would have rotated it."""
    places, at = [24], 24
    while at < len(content):
        at += 16 + int.from_bytes(content[at + 8 : at + 12], "little")
        places.append(at)
    cuts = [places[len(places) * piece // pieces] for piece in range(pieces)] + [len(content)]
    for piece in range(pieces):
        part = content[:24] + content[cuts[piece] : cuts[piece + 1]]
        (folder / f"{name}{piece:02}").write_bytes(part)


def upload(system: Any, folder: Path, prefix: str) -> str:
    """Put a folder into the store and give its URL."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            system.put_file(str(path), f"{BUCKET}/{prefix}/{path.relative_to(folder)}")
    return f"s3://{BUCKET}/{prefix}"


def download(system: Any, prefix: str, folder: Path) -> Path:
    """A dataset of the store as a folder."""
    system.get(f"{BUCKET}/{prefix}", str(folder), recursive=True)
    return folder


_opened = cache(duckdb.connect)


def database() -> duckdb.DuckDBPyConnection:
    """A connection to one DuckDB database, which takes 15 ms to open, and has nothing but what a connection makes."""
    return _opened().cursor()


def contents(dataset: Path, tables: Iterable[str] = TABLES) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of tables, with the partition it is in; recordings are known by host, for their ids hold URLs."""
    found = {}
    for table in tables:
        files = sorted(str(path) for path in (dataset / table).rglob("*.parquet"))
        if files:
            query = (
                f"SELECT * EXCLUDE recording FROM read_parquet({files!r}, hive_partitioning = true, "
                "hive_types_autocast = false, union_by_name = true)"
            )
            with database() as opened:
                found[table] = sorted(opened.execute(query).fetchall(), key=repr)
    return found


def command(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """`grpcdiag fleet`, running."""
    return subprocess.Popen(
        [sys.executable, "-m", "grpcdiag", "fleet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=REPOSITORY,
    )


class Inline:
    """An engine that works where it is: most tests are not about workers, which take a second to start."""

    workers = 1

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        return map(work, tasks)


def fleet(*arguments: str, code: int = 0, processes: bool = False) -> tuple[str, str]:
    """What `grpcdiag fleet` writes, with the exit code that is expected; in this process unless it is about others."""
    if processes or "--engine" in arguments:
        running = command(*arguments)
        out, err = running.communicate(timeout=3600)
        got = running.returncode
    else:
        with patch("grpcdiag.fleet.engines.engine", lambda *_: Inline()):
            done = invoke(["fleet", *arguments], catch_exceptions=False)
        out, err, got = done.stdout, done.stderr, done.exit_code
    assert got == code, err
    assert "Traceback" not in err
    return out, err


def markers(dataset: Path) -> list[Path]:
    folder = dataset / "_recordings"
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def many(folder: Path, number: int) -> Path:
    folder.mkdir()
    for host in range(number):
        shutil.copy(recorded("impl-go.pcap"), folder / f"host-{host}_eth0.pcap")
    return folder


class _Holding(SimpleHTTPRequestHandler):
    """Gives files and parts of files; parts behind the beginning once the event is set."""

    def __init__(self, *arguments: Any, released: Event, **options: Any) -> None:
        self._released = released
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # its reader has seen enough, or was killed
            if "Range" in self.headers:
                self._give(*map(int, self.headers["Range"].removeprefix("bytes=").split("-")))
            else:
                super().do_GET()

    def _give(self, begin: int, end: int) -> None:
        if begin:
            self._released.wait()
        part = Path(self.translate_path(self.path)).read_bytes()[begin : end + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def held(capture: Path) -> Iterator[tuple[str, Event]]:
    """URL of a capture, and the event that lets its second half come: until then no run over it ends."""
    released = Event()
    handler = partial(_Holding, directory=str(capture.parent), released=released)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/{capture.name}", released
        finally:
            released.set()
            server.shutdown()


def children(pid: int) -> list[int]:
    """Worker processes of a command: those that multiprocessing spawned to run tasks."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
            if status and int(status[1]) == pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def change_sums(dataset: Path, replaced: str) -> None:
    """Write the sums of RPCs anew with columns replaced, and the summary of the dataset."""
    with database() as opened:
        for path in (dataset / "totals").rglob("*.parquet"):
            opened.execute(f"CREATE OR REPLACE TEMP TABLE read AS FROM '{path}'")
            opened.execute(f"COPY (SELECT * REPLACE ({replaced}) FROM read) TO '{path}'")
    shutil.rmtree(dataset / "_summary", ignore_errors=True)
    summary.write(str(dataset), catalog.read_contents(str(dataset)))
