"""Records of clients with the truth of their captures, see fixtures/recorded/client/README.md."""

from __future__ import annotations

import csv
import gzip
import json
from io import StringIO
from pathlib import Path
from typing import Any

from support import RECORDED

FOLDER = RECORDED / "client"


def find_record(name: str) -> Path:
    """Path of a record."""
    path = FOLDER / name
    assert path.is_file(), f"{path} is not committed"
    return path


def read_data(name: str) -> bytes:
    """The bytes of a record as its tool wrote them."""
    data = find_record(name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def find_capture(name: str) -> str:
    """Path of the capture that belongs to a record."""
    return str(find_record(f"{name}.pcap.zst"))


def read_truth(name: str) -> dict[str, Any]:
    """What is known from other sources."""
    truth: dict[str, Any] = json.loads(find_record(f"{name}.truth.json").read_text())
    return truth


def read_join(name: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Begin and duration of the call that each stream is of, by the client's port and the stream."""
    rows = csv.DictReader(StringIO(read_data(f"{name}.join.csv.gz").decode()))
    return {
        (int(row["conn_port"]), int(row["stream"])): (int(row["client_start_ns"]), int(row["latency_ns"]))
        for row in rows
    }
