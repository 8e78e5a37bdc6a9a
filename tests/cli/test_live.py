"""`tcpdump -U -w - | grpcdiag analyze -`: a capture that is being written, of traffic on the loopback device."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest
from support import PATIENCE_S, require_tool

from grpcdiag.fixtures.synthetic.conversation import Write
from grpcdiag.fixtures.synthetic.scene import two_unary


def play(writes: list[Write], listener: socket.socket) -> None:
    """Two real sockets say what the script says, in its order."""
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    ends = {"client": (client, server), "server": (server, client)}
    for write in sorted(writes, key=lambda w: w.time_ns):
        sender, receiver = ends[write.direction]
        sender.sendall(write.data)
        left = len(write.data)
        while left:
            left -= len(receiver.recv(left))
    client.close()
    server.close()


FLAGS = 14 + 20 + 13
"""Where a packet's TCP flags are: behind the headers of Ethernet and of IPv4, both without options."""


def pieces(capture: IO[bytes]) -> Iterator[bytes]:
    """The file header and the records of a pcap, up to the second FIN."""
    yield capture.read(24)
    ends = 0
    while ends < 2:
        header = capture.read(16)
        packet = capture.read(struct.unpack("<8xI4x", header)[0])
        ends += packet[FLAGS] & 1
        yield header + packet


def test_a_live_capture_is_analysed() -> None:
    tcpdump = require_tool("tcpdump")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        capture = subprocess.Popen(
            [tcpdump, "-i", "lo", "-U", "-w", "-", "-s", "0", "tcp", "port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert capture.stderr is not None
        said = capture.stderr.readline()
        if b"listening on" not in said:
            capture.kill()
            pytest.skip(f"tcpdump may not capture here: {said.decode().strip()}")
        analysis = subprocess.Popen(
            [sys.executable, "-m", "grpcdiag", "analyze", "-", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert capture.stdout is not None and analysis.stdin is not None
        play(two_unary().writes, listener)
        for piece in pieces(capture.stdout):
            analysis.stdin.write(piece)
            analysis.stdin.flush()
        capture.terminate()
        out, err = analysis.communicate(timeout=PATIENCE_S)
        capture.communicate(timeout=PATIENCE_S)
    assert (analysis.returncode, err) == (0, b"")
    document = json.loads(out)
    assert document["totals"]["rpcs"] == 2
    assert document["totals"]["messages"] == 4
    assert [m["method"] for m in document["methods"]] == ["/demo.Echo/Say"]
    assert document["quality"]["missing_bytes"] == 0
    assert document["connections"][0]["server"] == f"127.0.0.1:{port}"
