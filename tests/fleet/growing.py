"""Series of files that come one after the other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
from fleets import fleet, split
from msgspec import json
from support import recorded

from grpcdiag.fleet import run
from grpcdiag.fleet.dataset import heads

ROWS = "stream, method, start_time_ns, duration_ns, status, complete, request_bytes, response_bytes, budget"


class Growing:
    """A folder into which the files of a series come one after the other."""

    def __init__(self, folder: Path, name: str, pieces: int, host: str = "web-1") -> None:
        (folder / "kept").mkdir(parents=True)
        split(Path(recorded(name)).read_bytes(), folder / "kept", "eth0.pcap", pieces)
        self.pieces = sorted((folder / "kept").iterdir())
        self.source, self.dataset = folder / "captures", str(folder / "dataset")
        self.host = self.source / host
        self.host.mkdir(parents=True)

    def add(self, number: int, name: str = "") -> Path:
        return Path(shutil.copy(self.pieces[number], self.host / (name or self.pieces[number].name)))

    def planned(self, **how: Any) -> run.Plan:
        return run.plan([str(self.source)], self.dataset, **how)

    def analyze(self, *options: str, code: int = 0) -> str:
        return fleet("analyze", str(self.source), "-o", self.dataset, *options, code=code)[1]

    def analyze_first(self, number: int) -> None:
        """Add the first files, with a run after each."""
        for one in range(number):
            self.add(one)
            self.analyze(code=0 if one else fleet_code(self))

    def rows(self, table: str = "rpcs", columns: str = ROWS) -> list[Any]:
        with duckdb.connect() as database:
            files = f"read_parquet('{self.dataset}/{table}/**/*.parquet', union_by_name = true)"
            return sorted(database.execute(f"SELECT {columns} FROM {files}").fetchall(), key=repr)


def in_parts(folder: Path, pieces: int = 5) -> Growing:
    """A dataset with all but one of the files of a series, in as many parts."""
    growing = Growing(folder, "impl-go.pcap", pieces)
    growing.analyze_first(pieces - 1)
    return growing


def whole(folder: Path, name: str) -> list[Any]:
    """The rows of a capture that is one file."""
    one = Growing(folder, name, 1)
    one.add(0)
    one.analyze()
    return one.rows()


def fleet_code(growing: Growing) -> int:
    """4 if the first file has no gRPC yet."""
    from grpcdiag.analyzer.decode.decode import decode

    return 0 if decode([str(growing.pieces[0])]).rpc_count else 4


def state_of(growing: Growing) -> Path:
    (path,) = (Path(growing.dataset) / "_series").glob("*.json")
    state = json.decode(path.read_bytes(), type=heads.Head).state
    assert state
    return Path(growing.dataset) / state
