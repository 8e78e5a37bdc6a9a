"""A fleet's recordings in an object store: both engines, lost workers, killed runs, a store that fails for a while.

Runs with as many recordings as GRPCDIAG_FLEET says; the runs of every day are in the files beside.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import needs_package, wait_until

pytest.importorskip("fsspec")
from fleets import BUCKET, children, command, contents, download, fleet, s3, upload
from test_dask import cluster

from grpcdiag.fixtures.bench.fleet import captures

__all__ = ["cluster"]

NUMBER = int(os.environ.get("GRPCDIAG_FLEET", "0"))
pytestmark = [
    pytest.mark.skipif(not NUMBER, reason="GRPCDIAG_FLEET is not set: 300 recordings take ten minutes"),
    needs_package("distributed"),
    needs_package("moto"),
]
UNREADABLE = len(range(57, NUMBER, 75))
"""Recordings with a file that is no capture, see the generator."""
CODE = 3 if UNREADABLE else 0


class Store:
    """The server with its file system; `failing` makes it answer every request with 503."""

    def __init__(self, system: Any, server: Any) -> None:
        self.system, self.failing, self.refused = system, False, 0
        self._answer = server.app
        server.app = self._called

    def _called(self, environ: dict[str, Any], start_response: Any) -> Any:
        if not self.failing:
            return self._answer(environ, start_response)
        self.refused += 1
        start_response("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]

    def done(self, dataset: str) -> int:
        """Recordings in a dataset."""
        folder = f"{BUCKET}/{dataset}/_recordings"
        return len(self.system.ls(folder)) if self.system.exists(folder) else 0


@pytest.fixture(scope="module")
def fixed() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def store(fixed: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("captures")
    captures(folder, NUMBER)
    with s3(fixed) as (system, server):
        upload(system, folder, "captures")
        yield Store(system, server)


@pytest.fixture(scope="module")
def undisturbed(store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a run of the local engine that nothing disturbed."""
    took("local, 2 workers", "undisturbed", "--workers", "2")
    rows = contents(download(store.system, "undisturbed", tmp_path_factory.mktemp("a") / "dataset"))
    assert store.done("undisturbed") == NUMBER
    assert len(rows["rpcs"]) >= NUMBER
    return rows


def took(name: str, dataset: str, *options: str) -> None:
    """Run the command to its end and say how long that took, for `pytest -s`."""
    began = time.monotonic()  # noqa: TID251
    arguments = ("analyze", "s3://fleet/captures", "-o", f"s3://fleet/{dataset}", *options)
    _, told = fleet(*arguments, code=CODE, processes=True)
    print(f"{name}: {NUMBER} recordings in {time.monotonic() - began:.1f} s\n{told}")  # noqa: TID251


def test_a_cluster_gives_the_same_rows(
    store: Store, undisturbed: dict[str, Any], cluster: tuple[str, list[int]], tmp_path: Path
) -> None:
    took("dask, 2 workers", "cluster", "--engine", f"dask://{cluster[0]}")
    rows = contents(download(store.system, "cluster", tmp_path / "dataset"))
    assert {table: len(rows[table]) for table in rows} == {table: len(undisturbed[table]) for table in undisturbed}
    assert rows == undisturbed


def test_nothing_is_lost_or_doubled_whatever_fails(store: Store, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    arguments = ("analyze", "s3://fleet/captures", "-o", "s3://fleet/disturbed", "--workers", "2")
    running = command(*arguments)
    wait_until(lambda: store.done("disturbed") >= 1)
    os.kill(children(running.pid)[0], signal.SIGKILL)
    wait_until(lambda: store.done("disturbed") >= max(2, NUMBER // 3))
    running.kill()
    running.communicate()
    done = store.done("disturbed")
    assert done < NUMBER
    running = command(*arguments)
    wait_until(lambda: store.done("disturbed") > done)
    store.failing = True
    threading.Timer(8, setattr, (store, "failing", False)).start()
    _, told = running.communicate(timeout=3600)
    assert running.returncode == CODE, told
    assert store.refused
    assert f"{done} already in the dataset" in told
    assert contents(download(store.system, "disturbed", tmp_path / "dataset")) == undisturbed
