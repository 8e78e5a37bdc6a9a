"""Series of files that come one after the other."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fleets import database, fleet, split
from msgspec import json
from support import recorded

from grpcdiag.fleet import run
from grpcdiag.fleet.dataset import heads, summary

NAME = "impl-go.pcap"
ROWS = "stream, method, start_time_ns, duration_ns, status, complete, request_bytes, response_bytes, budget"


class Growing:
    """A folder into which the files of a series come one after the other."""

    def __init__(self, folder: Path, name: str, pieces: int, host: str = "web-1") -> None:
        kept = folder / "kept"
        if not kept.exists():
            kept.mkdir(parents=True)
            split(Path(recorded(name)).read_bytes(), kept, "eth0.pcap", pieces)
        self.pieces = sorted(kept.iterdir())
        self.source, self.dataset = folder / "captures", str(folder / "dataset")
        self.host = self.source / host
        self.host.mkdir(parents=True, exist_ok=True)

    def add(self, number: int, name: str = "") -> Path:
        return Path(shutil.copy(self.pieces[number], self.host / (name or self.pieces[number].name)))

    def planned(self, **how: Any) -> run.Plan:
        return run.plan([str(self.source)], self.dataset, **how)

    def analyze(self, *options: str, code: int = 0) -> str:
        return self.run("analyze", str(self.source), "-o", self.dataset, *options, code=code)

    def analyze_share(self, code: int = 0) -> str:
        """Analyze as a share of the work, which leaves the logs of the tables to a later run: it takes a third."""
        return self.analyze("--shard", "0/1", code=code)

    def run(self, *arguments: str, code: int = 0) -> str:
        """What a command says; it writes no summary, which takes half of its time: a report makes its own."""
        with patch.object(summary, "write", lambda *_: 0):
            return fleet(*arguments, code=code)[1]

    def analyze_first(self, number: int) -> None:
        """Add the first files, with a run after each."""
        for one in range(number):
            self.add(one)
            code = 0 if one else fleet_code(self)
            self.analyze(code=code) if one == number - 1 else self.analyze_share(code=code)

    def rows(self, table: str = "rpcs", columns: str = ROWS) -> list[Any]:
        with database() as opened:
            files = f"read_parquet('{self.dataset}/{table}/**/*.parquet', union_by_name = true)"
            return sorted(opened.execute(f"SELECT {columns} FROM {files}").fetchall(), key=repr)


_prepared = TemporaryDirectory(prefix="growing-")


def in_parts(pieces: int = 5, analyzed: int | None = None) -> Growing:
    """A dataset with the first files of a series (all but one), in as many parts; the next call takes it away."""
    number = pieces - 1 if analyzed is None else analyzed
    folder = Path(_prepared.name) / f"{number}-of-{pieces}"
    as_analyzed = folder.with_suffix(".analyzed")
    if as_analyzed.exists():
        shutil.rmtree(folder)
        shutil.copytree(as_analyzed, folder)
        return Growing(folder, NAME, pieces)
    growing = Growing(folder, NAME, pieces)
    growing.analyze_first(number)
    shutil.copytree(folder, as_analyzed)
    return growing


@cache
def whole(name: str = NAME) -> list[Any]:
    """The rows of a capture that is one file."""
    one = Growing(Path(_prepared.name) / name, name, 1)
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
