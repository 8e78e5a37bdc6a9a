"""How good the estimated congestion windows are: recordings over emulated links, against the kernel's own windows.

It takes minutes: `GRPCDIAG_WINDOW_RUNS=1 pytest tests/capture/test_windows.py -s` prints a line for each recording.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import require_tool, run_here

from grpcdiag.fixtures.lab import janitor
from grpcdiag.fixtures.lab.link import Link
from grpcdiag.fixtures.lab.namespaces import Namespace, await_line, joined, missing
from grpcdiag.fixtures.lab.programs import GRPCIO

pytestmark = pytest.mark.skipif("GRPCDIAG_WINDOW_RUNS" not in os.environ, reason="records for minutes")

ADDRESS = "10.77.0.2:50051"
NEAR = 0.95
"""Share of the samples that must be within 10 % or two segments of the estimate."""
RUNS = (
    ("rtt 205 ms, 16 kB", Link(delay_ms=102.5), {"size": 16_000, "calls": 12, "every_s": 1.0}),
    ("rtt 205 ms, 100 Mbit/s, 300 kB", Link(delay_ms=102.5, rate_mbit=100), {"size": 300_000, "calls": 14}),
    ("rtt 100 ms, 100 Mbit/s, 2 MB", Link(delay_ms=50, rate_mbit=100), {"size": 2_000_000, "calls": 8}),
    ("rtt 60 ms, 50 Mbit/s, 500 kB", Link(delay_ms=30, rate_mbit=50), {"size": 500_000, "calls": 24}),
    ("rtt 40 ms, 50 Mbit/s, 12 kB", Link(delay_ms=20, rate_mbit=50), {"size": 12_000, "calls": 30, "every_s": 0.3}),
    ("rtt 20 ms, 20 Mbit/s, 2 MB", Link(delay_ms=10, rate_mbit=20), {"size": 2_000_000, "calls": 10}),
    ("rtt 20 ms, 100 Mbit/s, 200 kB", Link(delay_ms=10, rate_mbit=100), {"size": 200_000, "calls": 60, "every_s": 0.2}),
    (
        "rtt 20 ms, 50 Mbit/s, 2 MB, 0.5 % lost",
        Link(delay_ms=10, rate_mbit=50, loss_up=0.005, seed=3),
        {"size": 2_000_000, "calls": 8},
    ),
    (
        "rtt 60 ms, 100 Mbit/s, 500 kB, 1 % lost",
        Link(delay_ms=30, rate_mbit=100, loss_up=0.01, seed=5),
        {"size": 500_000, "calls": 16},
    ),
)


def recorded(side: Namespace, other: Namespace, file: Path, config: dict[str, float]) -> None:
    """`grpcdiag capture` around grpcio's client in the lab's namespaces."""
    serving = other.command(GRPCIO.server(ADDRESS, {}))
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        await_line(server.stdout, "ready", "the server")
        words = [sys.executable, "-m", "grpcdiag", "capture", "-i", "lab0", "-p", "50051", "--samples", "20"]
        client = GRPCIO.client(ADDRESS, "spaced", config)
        done = subprocess.run(
            side.command([*words, "-o", str(file), "--", *client]),
            input="go\n",
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert server.stdin
        server.stdin.close()


def compared(file: Path) -> tuple[int, int]:
    """Samples, and how many of them are near the estimate that the packets alone give."""
    facts = json.loads(run_here("analyze", "--json", str(file)).text)["recording"]
    return facts["window_samples"], facts["window_samples_near_estimate"]


def test_estimates_are_near_the_kernels_windows(tmp_path: Path) -> None:
    for tool in ("tcpdump", "ip", "ss"):
        require_tool(tool)
    pytest.importorskip("grpc")
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    told: dict[str, tuple[int, int]] = {}
    try:
        for number, (name, link, config) in enumerate(RUNS):
            file = tmp_path / f"{number}.pcap"
            with joined(link, {}, {}) as pair:
                recorded(pair.client, pair.server, file, config)
                pair.end_link()
            told[name] = compared(file)
            print(f"{name:<42}{told[name][1]:>6} of {told[name][0]:<6}{told[name][1] / max(1, told[name][0]):.1%}")
    finally:
        janitor.remove(janitor.own())
    shares = {}
    for what, names in (("all", list(told)), ("without loss", [name for name in told if "lost" not in name])):
        samples, near = (sum(told[name][index] for name in names) for index in (0, 1))
        shares[what] = near / samples
        print(f"{what}: {near} of {samples} samples, {shares[what]:.1%}")
    assert min(shares.values()) >= NEAR
