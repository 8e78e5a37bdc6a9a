"""TLS secrets, and what `grpcdiag capture` wrote beside captures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import BUCKET, fleet, markers, s3, upload
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.sidecar import names
from grpcdiag.fleet.recordings import store

SLOW = "rtt205-go-16000.pcap"


def described(folder: Path, host: str, **settings: str) -> Path:
    """A capture of a slow connection in a host's folder, with a description of that host."""
    (folder / host).mkdir(parents=True)
    path = folder / host / "eth0.pcap"
    shutil.copy(recorded(SLOW), path)
    facts = decode([str(path)]).capture
    document = {
        "started_time_ns": facts["first_time_ns"],
        "ended_time_ns": facts["last_time_ns"],
        "host": {"name": host, "addresses": ["10.77.0.1"], "sysctls": settings},
    }
    path.with_name("eth0.pcap.grpcdiag.json").write_bytes(names.encode_description(document))
    return path


def findings(dataset: Path) -> set[str]:
    import duckdb

    with duckdb.connect() as database:
        rows = database.execute(f"SELECT DISTINCT id FROM '{dataset}/findings/**/*.parquet'").fetchall()
    return {row[0] for row in rows}


def marker(dataset: Path) -> Any:
    (path,) = markers(dataset)
    return json.loads(path.read_text())


def test_settings_beside_a_capture_are_used_as_analyze_does(tmp_path: Path) -> None:
    described(tmp_path / "captures", "web-1", **{"net.ipv4.tcp_slow_start_after_idle": "0"})
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), "--workers", "1")
    assert "slow-start-after-idle" not in findings(tmp_path / "dataset")  # the host has it switched off
    assert [url.rpartition("/")[2] for url in marker(tmp_path / "dataset")["sidecar"]] == ["eth0.pcap.grpcdiag.json"]
    assert "slow-start-after-idle" in {f.id for f in analyze([recorded(SLOW)]).findings}


def test_another_description_is_another_version(tmp_path: Path) -> None:
    path = described(tmp_path / "captures", "web-1", **{"net.ipv4.tcp_slow_start_after_idle": "0"})
    arguments = ("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), "--workers", "1")
    fleet(*arguments)
    path.with_name("eth0.pcap.grpcdiag.json").write_text("{")
    _, told = fleet(*arguments)
    assert "1 to analyze" in told
    assert "slow-start-after-idle" in findings(tmp_path / "dataset")
    assert any(
        "is not used: it does not describe a recording" in one for one in marker(tmp_path / "dataset")["warnings"]
    )


def test_what_lies_beside_is_found_in_a_store_and_by_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = described(tmp_path / "captures", "web-1")
    (tmp_path / "captures" / "web-1" / "eth0.pcap.grpcdiag-ss.jsonl").write_text('{"from_ns": 1, "to_ns": 2}\n')
    path.rename(path.with_name("eth0.pcap00"))
    with s3(monkeypatch) as (system, _):
        url = upload(system, tmp_path / "captures", "captures")
        everywhere = (url, f"{url}/*", f"{url}/web-1/*.pcap*", f"{url}/web-1/eth0.pcap00", f"{url}/**/*.pcap00")
        for source in (*everywhere, str(tmp_path / "captures"), str(tmp_path / "captures" / "*" / "eth0.pcap0*")):
            from grpcdiag.fleet.recordings.series import recordings

            (found,) = recordings(store.search(source))
            assert [file.url.rpartition("/")[2] for file in found.files] == ["eth0.pcap00"], source
            sidecar = [file.url.rpartition("/")[2] for file in found.sidecar]
            assert sidecar == ["eth0.pcap.grpcdiag.json", "eth0.pcap.grpcdiag-ss.jsonl"], source
        fleet("analyze", url, "-o", f"s3://{BUCKET}/dataset", "--workers", "1")
        (name,) = system.ls(f"{BUCKET}/dataset/_recordings")
        told = json.loads(system.cat(name))
        assert len(told["sidecar"]) == 2 and told["warnings"] == []


def test_a_key_log_decrypts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    shutil.copy(recorded("tls13-go.pcap"), captures / "web-1_eth0.pcap")
    keys = Path(recorded("tls13-go.keys"))
    _, told = fleet("analyze", str(captures), "-o", str(tmp_path / "dataset"), "--workers", "1", code=4)
    arguments = ("analyze", str(captures), "-o", str(tmp_path / "dataset"), "--workers", "1", "--keylog")
    _, told = fleet(*arguments, str(keys))
    assert "1 to analyze" in told  # other secrets, another reading
    expected = decode([recorded("tls13-go.pcap")], keylog=keys.read_bytes())
    assert marker(tmp_path / "dataset")["rpcs"] == expected.rpc_count > 0
    _, told = fleet(*arguments, str(keys))
    assert "0 to analyze" in told
    with s3(monkeypatch) as (system, _):
        system.put_file(str(keys), f"{BUCKET}/keys.log")
        fleet(
            "analyze",
            str(captures),
            "-o",
            str(tmp_path / "s3"),
            "--workers",
            "1",
            "--keylog",
            f"s3://{BUCKET}/keys.log",
        )
        assert marker(tmp_path / "s3")["rpcs"] == expected.rpc_count
    secret = keys.read_text().split()[-1]
    for path in (tmp_path / "dataset").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


def test_a_key_log_that_is_not_there_is_told(tmp_path: Path) -> None:
    shutil.copy(recorded("tls13-go.pcap"), tmp_path / "web-1_eth0.pcap")
    missing = str(tmp_path / "keys.log")
    _, told = fleet("analyze", str(tmp_path), "-o", str(tmp_path / "d"), "--keylog", missing, code=3)
    assert "keys.log: no such file" in told
