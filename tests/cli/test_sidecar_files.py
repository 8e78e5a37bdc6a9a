"""`analyze` finds what lies beside a capture, by its name."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from support import recorded, run_here

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.sidecar import names


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    file = tmp_path / "run.pcap"
    shutil.copy(recorded("rtt205-go-16000.pcap"), file)
    facts = decode([str(file)]).capture
    sysctls = {"net.ipv4.tcp_slow_start_after_idle": "1"}
    document = {
        "started_time_ns": facts["first_time_ns"],
        "ended_time_ns": facts["last_time_ns"],
        "host": {"name": "box", "addresses": ["10.77.0.1"], "sysctls": sysctls},
    }
    (tmp_path / "run.pcap.grpcdiag.json").write_bytes(names.encode_description(document))
    return file


def recording(*files: Path) -> object:
    done = run_here("analyze", "--json", *map(str, files))
    assert done.code == 0, done.err
    return json.loads(done.text)["recording"]


def test_it_is_found_beside_the_file(capture: Path) -> None:
    done = run_here("analyze", str(capture))
    assert "tcp_slow_start_after_idle=0 (is 1 here)" in done.text
    assert "sidecar: settings of box" in done.text
    assert recording(capture)


def test_it_is_found_beside_compressed_and_rotated_files(capture: Path) -> None:
    packed = capture.with_name("run.pcap.gz")
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    assert recording(packed)
    part = capture.with_name("run.pcap0.gz")
    part.write_bytes(gzip.compress(capture.read_bytes()))
    assert recording(part)
    part = capture.rename(capture.with_name("run.pcap0"))
    assert recording(part)


def test_nothing_beside_is_nothing(capture: Path, tmp_path: Path) -> None:
    other = capture.rename(tmp_path / "other.pcap")
    assert recording(other) is None


def test_a_broken_one_is_noted(capture: Path) -> None:
    sidecar = capture.with_name("run.pcap.grpcdiag.json")
    sidecar.write_text("{")
    done = run_here("analyze", "--json", str(capture))
    assert done.code == 0
    document = json.loads(done.text)
    assert document["recording"] is None
    assert [
        w
        for w in document["quality"]["warnings"]
        if w.startswith(f"{sidecar} is not used: it does not describe a recording")
    ]
