"""A Dask cluster as the engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec")
from fleets import Inline, command, contents, fleet, held, many, markers
from support import PATIENCE_S, needs_package, wait_until

pytestmark = needs_package("distributed")


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[int]]]:
    """Address of a scheduler with two workers, each a process of one thread, and the workers' ids."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        pids = [worker.pid for worker in made.workers.values()]
        yield made.scheduler_address.removeprefix("tcp://"), pids


def test_a_cluster_gives_the_same_and_survives_a_lost_worker(cluster: tuple[str, list[int]], tmp_path: Path) -> None:
    address, pids = cluster
    captures = many(tmp_path / "captures", 6)
    (captures / "host-99_eth0.pcap").write_bytes(b"no capture")
    fleet("analyze", str(captures), "-o", str(tmp_path / "local"), code=3)
    *files, last = sorted(captures.iterdir())
    with held(last) as (url, released):
        sources = [*map(str, files), url]
        running = command("analyze", *sources, "-o", str(tmp_path / "dask"), "--engine", f"dask://{address}")
        wait_until(lambda: len(markers(tmp_path / "dask")) >= 2)
        os.kill(pids[0], signal.SIGKILL)
        released.set()
        _, told = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 3, told
    assert "host-99" in told
    assert contents(tmp_path / "dask") == contents(tmp_path / "local")


def test_a_scheduler_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    captures = many(tmp_path / "captures", 1)
    _, told = fleet("analyze", str(captures), "-o", str(tmp_path / "d"), "--engine", "dask://127.0.0.1:1", code=2)
    assert "dask://127.0.0.1:1" in told


def test_a_cluster_without_workers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inline, "workers", 0)
    _, told = fleet("analyze", str(many(tmp_path / "captures", 1)), "-o", str(tmp_path / "dataset"))
    assert "local has no workers now; work begins when workers connect" in told
