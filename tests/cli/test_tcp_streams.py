"""`analyze tcp://HOST:PORT`: a capture that another program sends."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from support import PATIENCE_S, recorded, run_here

from grpcdiag.cli.support import stream

CAPTURE = Path(recorded("impl-go.pcap")).read_bytes()


def send(connection: socket.socket) -> None:
    for start in range(0, len(CAPTURE), 50_000):
        connection.sendall(CAPTURE[start : start + 50_000])


def analyze(sends: Callable[[socket.socket], None]) -> subprocess.CompletedProcess[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                sends(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        words = [sys.executable, "-m", "grpcdiag", "analyze", "--json", url]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
        thread.join()
    assert "Traceback" not in done.stderr
    return done


def test_a_whole_capture_is_read_to_the_end_of_the_connection() -> None:
    done = analyze(send)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["totals"]["rpcs"] == 10


def test_nothing_is_sent() -> None:
    done = analyze(lambda connection: None)
    assert done.returncode == 3
    assert "the sender closed the connection and sent nothing" in done.stderr


class Breaks:
    """A connection that is reset after some bytes."""

    def __init__(self) -> None:
        self.pieces = [b"some", b" bytes"]

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        return self.pieces.pop(0)

    def close(self) -> None:
        pass


def test_what_came_before_a_break_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    source, target = os.pipe()
    stream.copy(cast("socket.socket", Breaks()), target, "tcp://a:1")
    assert os.read(source, 100) == b"some bytes"
    os.close(source)
    assert "tcp://a:1: the connection broke after 10 bytes: Connection reset by peer" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("url", "code", "why"),
    [
        *[
            (url, 2, "write tcp://HOST:PORT")
            for url in ("tcp://", "tcp://a", "tcp://a:b", "tcp://a:1/x", "tcp://a:70000")
        ],
        ("tcp://127.0.0.1:1", 3, "cannot connect: Connection refused: start the sender first"),
    ],
)
def test_what_cannot_be_connected(url: str, code: int, why: str) -> None:
    done = run_here("analyze", url)
    assert (done.code, why in done.err) == (code, True), done.err


def test_a_stream_is_given_alone() -> None:
    done = run_here("analyze", "tcp://127.0.0.1:1", recorded("impl-go.pcap"))
    assert (done.code, "give it alone" in done.err) == (2, True)
