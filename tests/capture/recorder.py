"""Running `grpcdiag capture` in tests: where it may record, what it left, what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PATIENCE_S, require_tool, rows
from support import free_port as free_port
from support import gone as gone
from support import processes as processes

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.tables import Packets
from grpcdiag.capture import tcpdump
from grpcdiag.capture.errors import RecordingError

BENCHMARK = str(Path(__file__).with_name("benchmark.py"))
FIN, SYN, RST = 1, 2, 4


def may_record() -> None:
    """Skip the test where tcpdump may not record on the loopback device: a right is no tool that could be installed."""
    path = require_tool("tcpdump")
    line = tcpdump.arguments(path, interface="lo", expression="less 1", output="-", buffer_kib=1024)
    running = tcpdump.Tcpdump(line)
    try:
        running.listen()
    except RecordingError as error:
        pytest.skip(f"tcpdump may not record here: {error}")
    finally:
        running.stop()


AS_NOBODY = {"SUDO_USER": "nobody", "SUDO_UID": "65534"}
"""What root's environment has when `nobody` has called sudo."""
NOBODY = 65534


def arguments(*words: str) -> list[str]:
    """The command, which records threads only if `words` say so: whether it may depends on the machine."""
    off = () if "--processes" in words else ("--processes", "off")
    return [sys.executable, "-m", "grpcdiag", "capture", *off, *words]


def benchmark(port: int, connections: int = 3, calls: int = 20, size: int = 2000, how: str = "0") -> list[str]:
    return [sys.executable, BENCHMARK, *map(str, (port, connections, calls, size)), how]


def capture(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    done = subprocess.run(arguments(*words), capture_output=True, text=True, timeout=PATIENCE_S, **options)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def check_whole(path: Path, counted: dict[str, int]) -> None:
    """Every RPC that the client counted is in the file, with each connection from its first SYN to its last FIN."""
    tables = decode([str(path)])
    assert tables.rpc_count == counted["rpcs"]
    assert int(tables.connections.missing_bytes.sum()) == 0
    assert int(np.sum(tables.connections.complete)) == len(tables.connections.rpcs) == counted["connections"]
    packets = rows(Packets, [str(path)])
    for connection in range(counted["connections"]):
        own = packets.connection == connection
        flags, directions = packets.flags[own], packets.direction[own]
        assert flags[0] & SYN and directions[0] == 0
        ended = {int(d) for d in directions[(flags & FIN) != 0]}
        assert ended == {0, 1} or (flags & RST).any(), f"connection {connection} has no FIN of {({0, 1}) - ended}"


def sidecar(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.with_name(path.name + ".grpcdiag.json").read_text())
    return document
