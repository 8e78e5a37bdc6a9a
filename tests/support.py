"""Where the captures are, what is known about them, and how the commands are run."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from grpcdiag.analyzer.decode.decode import decode, stream
from grpcdiag.analyzer.tables import Table, Tables
from grpcdiag.cli import of_arguments
from grpcdiag.reports.tables.frame import Frame
from grpcdiag.reports.tables.writing import write_rows

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDED = REPOSITORY / "fixtures" / "recorded"
SYNTHETIC = REPOSITORY / "fixtures" / "synthetic" / "captures"
SNAPSHOTS = REPOSITORY / "tests" / "snapshots"
FINDINGS = REPOSITORY / "docs" / "findings"


def _shared() -> Path | None:
    named = os.environ.get("GRPCDIAG_CAPTURES")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "captures"
    return folder if folder.is_dir() else None


SHARED = _shared()
"""More recorded captures, too large to commit: `GRPCDIAG_CAPTURES`, or `shared/captures` beside the repository."""
NO_SHARED = "the large captures are not here: set GRPCDIAG_CAPTURES to their folder"


@dataclass(frozen=True)
class Recording:
    """A capture with what the client reported: `side` is where it was taken."""

    name: str
    files: tuple[str, ...]
    truth: dict[str, Any]
    side: str = "client"

    @property
    def id(self) -> str:
        """Name in test ids."""
        return self.name if self.side == "client" else f"{self.name}.{self.side}"

    @property
    def report(self) -> dict[str, Any]:
        """The client's own report."""
        report: dict[str, Any] = self.truth["client_report"]
        return report


def _find(folders: Sequence[Path], pattern: str) -> tuple[str, ...]:
    for folder in folders:
        found = sorted(folder.glob(pattern))
        if found:
            return tuple(str(path) for path in found)
    return ()


def _recordings() -> Iterator[Recording]:
    folders = [RECORDED, *([SHARED] if SHARED else [])]
    names = {path.name.removesuffix(".truth.json"): path for f in reversed(folders) for path in f.glob("*.truth.json")}
    for name, path in sorted(names.items()):
        truth = json.loads(path.read_text())
        for pattern in (f"{name}.pcap", f"{name}.pcapng", f"{name}.pcap[0-9]*"):
            if files := _find(folders, pattern):
                yield Recording(name, files, truth)
        if files := _find(folders, f"{name}.server.pcap"):
            yield Recording(name, files, truth, "server")


RECORDINGS: tuple[Recording, ...] = tuple(_recordings())
"""All real captures that are here, committed ones first."""


def recording(name: str, side: str = "client") -> Recording:
    """The capture of that name; skips the test when it is one of the large ones and those are not here."""
    found = next((r for r in RECORDINGS if (r.name, r.side) == (name, side)), None)
    if found is None:
        pytest.skip(f"{name}: {NO_SHARED}")
    return found


def recorded(name: str) -> str:
    """Path of a committed real capture."""
    path = RECORDED / name
    assert path.is_file(), f"{path} is not committed"
    return str(path)


@dataclass(frozen=True)
class Synthetic:
    """A capture of the catalogue as committed, with its exact truth (see grpcdiag.fixtures.synthetic.truth)."""

    name: str
    file: str
    truth: dict[str, Any]


SYNTHETICS: tuple[Synthetic, ...] = tuple(
    Synthetic(truth.name.removesuffix(".truth.json"), str(file), json.loads(truth.read_text()))
    for truth in sorted(SYNTHETIC.glob("*.truth.json"))
    for file in sorted(SYNTHETIC.glob(f"{truth.name.removesuffix('.truth.json')}.pcap*"))
)
"""All synthetic captures."""


def synthetic(name: str) -> Synthetic:
    """The synthetic capture of that name."""
    return next(s for s in SYNTHETICS if s.name == name)


LAB_CAPTURES: tuple[str, ...] = tuple(str(path) for path in sorted((RECORDED / "lab").glob("*.pcap*")))
"""Captures that `grpcdiag lab` has made."""

ALL_CAPTURES: tuple[Any, ...] = tuple(
    [pytest.param(r.files, id=r.id) for r in RECORDINGS]
    + [pytest.param((path,), id=f"lab-{Path(path).name.partition('.')[0]}") for path in LAB_CAPTURES]
    + [pytest.param((s.file,), id=f"s-{s.name}") for s in SYNTHETICS]
)
"""Files of every capture, as pytest parameters."""
COMMITTED = tuple(capture for capture in ALL_CAPTURES if Path(capture.values[0][0]).is_relative_to(REPOSITORY))
"""Those of the repository."""


def rows(kind: type[Table], files: Sequence[str]) -> Table:
    """One of the streamed tables in one piece."""
    pieces = list(stream(kind, list(files)))
    columns = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in kind.__struct_fields__}
    return kind(**columns)


def budgeted(files: Sequence[str]) -> Tables:
    """Decoded, with a budget per RPC."""
    return decode(list(files))


EXAMPLES = int(os.environ.get("GRPCDIAG_EXAMPLES", "40"))
"""How many generated inputs the dearest properties are held against."""

PATIENCE_S = 300
"""Seconds after which a test gives up something that hangs. Nothing is measured by it: machines are busy."""


def wait_until(holds: Callable[[], object]) -> None:
    """Return when that holds; the only place where tests look at the clock."""
    end = time.monotonic() + PATIENCE_S  # noqa: TID251
    while not holds():
        assert time.monotonic() < end, "it did not happen"  # noqa: TID251
        time.sleep(0.02)


def require_tool(name: str) -> str:
    """Path of a tool; without it the test is skipped, or fails where all tools must be (GRPCDIAG_REQUIRE_TOOLS=1)."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("GRPCDIAG_REQUIRE_TOOLS") == "1":
            pytest.fail(f"{name} is not installed, and GRPCDIAG_REQUIRE_TOOLS=1 asks for it")
        pytest.skip(f"{name} is not installed")
    return path


def needs_package(name: str) -> pytest.MarkDecorator:
    """Skip without a package; unlike `pytest.importorskip` it imports nothing, which each worker would do."""
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@dataclass(frozen=True)
class Outcome:
    """What a command left."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()


def grpcdiag(*arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Outcome:
    """Runs the command in a process of its own, with no terminal anywhere."""
    done = subprocess.run(
        [sys.executable, "-m", "grpcdiag", *arguments],
        input=stdin if stdin is not None else b"",
        capture_output=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(env or {})},
    )
    outcome = Outcome(done.returncode, done.stdout, done.stderr.decode())
    assert "Traceback" not in outcome.err, outcome.err
    return outcome


def as_polars(pieces: Iterable[Frame], table: str = "rpcs") -> pl.DataFrame:
    """Rows as a reader of Parquet sees them."""
    out = io.BytesIO()
    write_rows(pieces, "parquet", out, table)
    return pl.read_parquet(io.BytesIO(out.getvalue()))


def invoke(
    words: Sequence[str], *, charset: str = "utf-8", catch_exceptions: bool = True, **environment: Any
) -> Result:
    """Run the command in this process; only that command is built, which takes 2 ms where all of them take 30."""
    runner = CliRunner(charset=charset, env=environment)
    return runner.invoke(of_arguments([*words]), words, prog_name="grpcdiag", catch_exceptions=catch_exceptions)


def run_here(*arguments: str, charset: str = "utf-8", env: dict[str, str] | None = None) -> Outcome:
    """Run the command in this process, which takes a tenth of the time: for what it writes, not for how it ends."""
    done = invoke(arguments, charset=charset, catch_exceptions=False, **(env or {}))
    return Outcome(done.exit_code, done.stdout_bytes, done.stderr)


def first_difference(left: Sequence[object], right: Sequence[object]) -> str:
    """Where two lists part, for messages of assertions that would be too long otherwise."""
    for place, (a, b) in enumerate(itertools.zip_longest(left, right)):
        if a != b:
            return f"row {place}: {a} != {b} (lengths {len(left)}, {len(right)})"
    return "equal"


CODE_NAMES = re.compile(r"(?<!^)(?=[A-Z])")


def canonical_status(name: str) -> str:
    """gRPC's name of a status that a Go client prints, such as `12 Unimplemented` or `DeadlineExceeded`."""
    word = name.split()[-1]
    return word if word.isupper() else CODE_NAMES.sub("_", word).upper()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def processes(mark: str) -> list[str]:
    """Command lines of running processes that contain a text, which only ours have."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found


def gone(mark: str) -> bool:
    """Whether no such process runs any more, in the end."""
    wait_until(lambda: not processes(mark))
    return True
