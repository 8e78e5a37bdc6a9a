"""A worker's memory is that of one recording, however many it does and however many files that has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fsspec")
from fleets import fleet, markers, split

from grpcdiag.fixtures.bench.fleet import loads

NOISE = 20_000_000
"""Bytes that allocators keep; a recording below is of 5 MB, and its 18,000 RPCs take 5 MB."""


def peaks(dataset: Path) -> list[int]:
    """A worker's largest memory after each recording, in their order."""
    found = [json.loads(path.read_text()) for path in markers(dataset)]
    assert all(marker["rpcs"] > 15_000 for marker in found)
    return sorted(marker["peak_bytes"] for marker in found)


def test_more_recordings_take_no_more_memory(tmp_path: Path) -> None:
    loads(tmp_path / "captures", 10, 5)
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), "--workers", "1", processes=True)
    found = peaks(tmp_path / "dataset")
    assert len(found) == 10
    assert found[-1] - found[2] < NOISE


def test_more_files_take_no_more_memory(tmp_path: Path) -> None:
    loads(tmp_path / "one", 1, 5)
    (capture,) = (tmp_path / "one").rglob("*.pcap")
    (tmp_path / "many" / "host-0000").mkdir(parents=True)
    split(capture.read_bytes(), tmp_path / "many" / "host-0000", "eth0.pcap", 50)
    (tmp_path / "dataset").mkdir()
    found = []
    for source in ("one", "many"):
        target = tmp_path / "dataset" / source
        fleet("analyze", str(tmp_path / source), "-o", str(target), "--workers", "1", processes=True)
        found += peaks(target)
    assert abs(found[1] - found[0]) < NOISE
