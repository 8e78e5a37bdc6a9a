"""How far reading has come: a bar on a terminal for what takes long, and nothing anywhere else."""

from __future__ import annotations

import gzip
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support import PATIENCE_S, grpcdiag, recorded, wait_until

from grpcdiag.cli.support import common

CAPTURE = recorded("ydb-unary-single-inflight1.pcap")


class Terminal:
    """What a command writes to standard error when that is a terminal, as it comes."""

    def __init__(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> None:
        self.leader, follower = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpcdiag", *arguments],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=follower,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(follower)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.leader, 65_536)
            except OSError:  # nobody has it open any more
                return
            self.shown += piece.decode(errors="replace")

    def waits_for(self, pattern: str) -> str:
        wait_until(lambda: re.search(pattern, self.lines()) or not self._reader.is_alive())
        found = re.search(pattern, self.lines())
        assert found, self.shown
        return found[0]

    def lines(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        os.close(self.leader)
        return code


@contextmanager
def feeding() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)


def written(pipe: int, content: bytes) -> None:
    while content:
        content = content[os.write(pipe, content) :]


@pytest.mark.parametrize(
    "arguments",
    [("analyze", "-", "--json"), ("rpcs", "-", "--format", "csv"), ("frames", "-", "--format", "csv")],
    ids=lambda a: a[0],
)
def test_a_pipe_shows_bytes_and_rate_and_is_wiped_at_the_end(arguments: tuple[str, ...]) -> None:
    whole = Path(CAPTURE).read_bytes()
    with feeding() as (reading, writing):
        terminal = Terminal(*arguments, stdin=reading)
        # steps are of 100,000 packets; copies are further packets of the same connection
        written(writing, whole)

        def shows() -> bool:
            written(writing, whole[24:])
            return "reading" in terminal.lines()

        wait_until(shows)
        shown = terminal.waits_for(r"reading .*?/\? \w+")
        assert "%" not in shown and "left" not in shown  # nobody knows how much is to come
        os.close(writing)
        assert terminal.end() == 0
    assert terminal.shown.rstrip().endswith("\x1b[2K")  # the line is cleared


def test_a_file_shows_its_share_and_the_time_left(tmp_path: Path) -> None:
    """By the bytes on disk: nobody knows how long a compressed file is."""
    content = Path(CAPTURE).read_bytes()
    path = tmp_path / "long.pcap.gz"
    path.write_bytes(gzip.compress(content, 1) + gzip.compress(content[24:], 1) * 500)
    terminal = Terminal("rpcs", str(path), "--format", "csv")
    shown = terminal.waits_for(r"reading \S+ +(?!0%)\d+% [^\n\r]* left")
    assert re.search(r"\d+% [\d.]+/[\d.]+ MB", shown), shown
    assert terminal.end() == 0


def test_quiet_shows_nothing(tmp_path: Path) -> None:
    content = Path(CAPTURE).read_bytes()
    path = tmp_path / "long.pcap"
    path.write_bytes(content + content[24:] * 60)
    terminal = Terminal("rpcs", str(path), "--format", "csv", "--quiet")
    assert (terminal.end(), terminal.shown) == (0, "")


def test_what_is_read_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(common, "monotonic", lambda: clock[0])
    drawn: list[tuple[int, int | None]] = []
    with ExitStack() as shown:
        bar = common._Bar(shown)
        monkeypatch.setattr(bar, "_start_drawing", lambda *_: lambda read, total: drawn.append((read, total)))
        for clock[0], read in ((100.0, 1), (100.3, 2), (100.5, 3), (100.6, 4)):
            bar(read, 10)
    assert drawn == [(3, 10), (4, 10)]


def test_without_a_terminal_nothing_is_shown() -> None:
    whole = Path(CAPTURE).read_bytes()
    assert grpcdiag("rpcs", "-", "--format", "csv", stdin=whole + whole[24:] * 20).err == ""
