"""Shares of the work for schedulers that know nothing of each other, and the summary after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import needs_package

pytest.importorskip("fsspec")
from fleets import BUCKET, contents, download, fleet, many, s3, upload

from grpcdiag.fleet import run
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import catalog, summary

pytestmark = needs_package("moto")


def test_shares_are_the_whole(tmp_path: Path) -> None:
    source, dataset = str(many(tmp_path / "captures", 6)), str(tmp_path / "dataset")
    shares = [run.plan([source], dataset, shard=(share, 3)) for share in range(3)]
    ids = [task.recording.id for share in shares for task in share.tasks]
    assert len(set(ids)) == len(ids) == 6
    for share in range(3):
        fleet("analyze", source, "-o", dataset, "--shard", f"{share}/3")
        assert not (tmp_path / "dataset" / "_summary").exists()
    fleet("summarise", dataset)
    fleet("analyze", source, "-o", str(tmp_path / "at-once"))
    assert contents(tmp_path / "dataset") == contents(tmp_path / "at-once")
    assert report(dataset).slots == report(str(tmp_path / "at-once")).slots
    assert summary.written(dataset, catalog.read_contents(dataset))


def test_a_share_without_new_files_looks_at_its_own_heads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time does not grow with what the dataset has."""
    source, dataset = str(many(tmp_path / "captures", 3)), str(tmp_path / "dataset")
    fleet("analyze", source, "-o", dataset, "--shard", "0/1")
    monkeypatch.setattr(catalog, "committed", lambda dataset: pytest.fail("all recordings were listed"))
    assert not run.plan([source], dataset, shard=(0, 1)).tasks


@pytest.mark.parametrize("share", ["3/3", "1", "a/b", "-1/3", "1/0"])
def test_a_share_that_is_none_is_told(tmp_path: Path, share: str) -> None:
    _, told = fleet("analyze", str(tmp_path), "-o", str(tmp_path / "dataset"), "--shard", share, code=2)
    assert "with I from 0 to N - 1" in told


def test_files_of_killed_runs_are_swept_when_asked(tmp_path: Path) -> None:
    source, dataset = str(many(tmp_path / "captures", 2)), tmp_path / "dataset"
    fleet("analyze", source, "-o", str(dataset), "--shard", "0/1")
    (dataset / "_recordings" / sorted(path.name for path in (dataset / "_recordings").iterdir())[0]).unlink()
    fleet("summarise", str(dataset))
    assert len(list(dataset.glob("rpcs/**/*.parquet"))) == 2
    fleet("summarise", str(dataset), "--sweep")
    assert len(list(dataset.glob("rpcs/**/*.parquet"))) == 1
    assert report(str(dataset)).rpcs == 10


def test_shares_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = many(tmp_path / "captures", 4)
    with s3(monkeypatch) as (system, _):
        url = upload(system, source, "captures")
        for share in range(2):
            fleet("analyze", url, "-o", f"s3://{BUCKET}/dataset", "--shard", f"{share}/2", "--workers", "1")
        fleet("summarise", f"s3://{BUCKET}/dataset")
        rows: dict[str, Any] = contents(download(system, "dataset", tmp_path / "copied"))
    fleet("analyze", str(source), "-o", str(tmp_path / "at-once"))
    assert rows == contents(tmp_path / "at-once")
