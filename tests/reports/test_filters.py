"""The display filters of findings: Wireshark accepts them, and shows the packets of the evidence at their times."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import RECORDINGS, recorded, require_tool

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.text import packet_filter
from grpcdiag.reports import terminal

MANY = (
    "rtt205-go-16000",
    "loss-1pct-rtt20",
    "rotated",
    "truncated",
    "too-many-pings",
    "rpc-errors",
    "ydb-stream-single-inflight8",
)
NAMES = [r.id for r in RECORDINGS if r.id in MANY or os.environ.get("GRPCDIAG_ALL_FILTERS") == "1"]
"""Captures of every kind; all of them with GRPCDIAG_ALL_FILTERS=1."""
GAPS = ("the last outstanding response", "the last outstanding message")
"""Evidence whose time is that at which the client can have the packet."""


def one_file(files: Sequence[str], folder: Path) -> str:
    """A capture as one file: pieces of a rotated one are put together as the report says."""
    if len(files) == 1:
        return files[0]
    merged = str(folder / "merged.pcapng")
    subprocess.run([require_tool("mergecap"), "-w", merged, *files], check=True, timeout=240)
    return merged


def shown(file: str, display_filter: str) -> dict[int, int]:
    """Packets that Wireshark shows, with their time since the epoch in nanoseconds.

    TCP is left out: which packets are shown does not depend on what is read in them.
    """
    command = [require_tool("tshark"), "-n", "-r", file, "-Y", display_filter, "--disable-protocol", "tcp"]
    command += ["-T", "fields", "-e", "frame.number", "-e", "frame.time_epoch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 or "cut short" in done.stderr, done.stderr  # as `truncated` is
    found = {}
    for line in done.stdout.splitlines():
        number, time = line.split("\t")
        seconds, _, rest = time.partition(".")
        found[int(number)] = int(seconds) * 10**9 + int(rest.ljust(9, "0"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_wireshark_shows_the_packets_of_every_finding(name: str, tmp_path: Path) -> None:
    files = next(r.files for r in RECORDINGS if r.id == name)
    try:
        analysis = analyze(files)
    except NoGrpcError:
        return
    filters = [finding.display_filter for finding in analysis.findings]
    if not filters:
        return
    file = one_file(files, tmp_path)
    every = shown(file, " || ".join(f"({one})" for one in filters))
    assert set(every) == {e.packet for finding in analysis.findings for e in finding.evidence}
    for finding in analysis.findings:
        for evidence in finding.evidence:
            near = 1_000_000 if evidence.what.startswith(GAPS) else 1_000
            assert abs(every[evidence.packet] - evidence.time_ns) < near, (finding.id, evidence)
    first = analysis.findings[0]
    assert set(shown(file, filters[0])) == {e.packet for e in first.evidence}


@pytest.mark.parametrize(
    ("packets", "display_filter"),
    [
        ([7], "frame.number == 7"),
        ([7, 7], "frame.number == 7"),
        ([2, 1], "frame.number in {1, 2}"),
        ([5, 3, 4, 9], "frame.number in {3..5, 9}"),
    ],
)
def test_ranges(packets: list[int], display_filter: str, tmp_path: Path) -> None:
    assert packet_filter(packets) == display_filter
    assert set(shown(recorded("impl-java.pcap"), display_filter)) == set(packets)


def test_the_terminal_shows_them() -> None:
    analysis = analyze([recorded("rtt205-go-16000.pcap")])
    text = terminal.render(analysis, width=160)
    assert packet_filter(e.packet for e in analysis.findings[0].evidence) in text
