"""Old recordings leave the dataset, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("fsspec")
from fleets import contents, fleet, markers
from growing import in_parts
from test_compact import is_new, kill_anywhere, published, read_rows, rows_of

from grpcdiag.fleet import run
from grpcdiag.fleet.answers.report import report
from grpcdiag.fleet.dataset import catalog, compaction, pruning

LATER_NS = 4_000_000_000 * 10**9


def listed(dataset: str) -> set[str]:
    return {str(path) for path in Path(dataset).rglob("*") if path.is_file()}


@pytest.mark.parametrize("compacted", [False, True])
def test_old_parts_go_and_their_files_are_not_read_again(compacted: bool) -> None:
    growing = in_parts()
    if compacted:
        growing.run("compact", growing.dataset)
    foreign = [Path(growing.dataset) / name for name in ("rpcs/hour=2020-01-01T00/mine.parquet", "rpcs/notes.txt")]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not grpcdiag's")
    before = listed(growing.dataset)
    captures = sorted(growing.source.rglob("*"))
    told = growing.run("prune", growing.dataset, "--older", "1h", "--dry-run")
    assert "3 recordings before" in told and "would be removed" in told
    assert listed(growing.dataset) == before
    assert "3 recordings before" in growing.run("prune", growing.dataset, "--older", "1h")
    assert all(path.exists() for path in foreign) and sorted(growing.source.rglob("*")) == captures
    for path in foreign:
        path.unlink()
    assert [one.recording.rpartition(".")[2] for one in catalog.read_contents(growing.dataset).present.values()] == [
        "0-3"
    ]
    assert len(markers(Path(growing.dataset))) == 1
    assert not growing.planned().tasks
    growing.add(4)
    assert growing.planned().size == growing.pieces[4].stat().st_size
    growing.analyze()
    (head,) = compaction.find_heads(growing.dataset, catalog.read_contents(growing.dataset).present).values()
    assert head.part.number == 4
    assert report(growing.dataset).rpcs == len(growing.rows())


def test_what_is_younger_stays() -> None:
    growing = in_parts()
    before = contents(Path(growing.dataset))
    assert "0 recordings" in growing.run("prune", growing.dataset, "--older", "9999w")
    first = min(
        one.first_time_ns or 0 for one in catalog.markers(catalog.read_contents(growing.dataset).present.values())
    )
    assert pruning.prune(growing.dataset, first, finished=True).recordings == 0
    assert contents(Path(growing.dataset)) == before


def test_a_series_that_is_finished_goes_as_a_whole() -> None:
    growing = in_parts()
    told = growing.run("prune", growing.dataset, "--older", "1d", "--finished", "--dry-run")
    assert "4 recordings" in told and list(Path(growing.dataset).rglob("*.state"))
    growing.run("prune", growing.dataset, "--older", "1d", "--finished")
    assert not rows_of(growing.dataset) and not markers(Path(growing.dataset))
    assert not growing.planned().tasks
    growing.add(4)
    assert growing.planned().size == growing.pieces[4].stat().st_size


def test_a_recording_without_a_head_is_not_read_again() -> None:
    growing = in_parts(pieces=2)
    (head,) = (Path(growing.dataset) / "_series").glob("*.json")
    head.unlink()
    assert pruning.prune(growing.dataset, LATER_NS).recordings == 1
    assert not rows_of(growing.dataset) and not growing.planned().tasks
    growing.add(1)
    assert growing.planned().tasks


def test_a_dataset_without_recordings_is_still_one() -> None:
    growing = in_parts()
    run.summarise(growing.dataset)
    fleet("prune", growing.dataset, "--older", "1d", "--finished")
    assert not list((Path(growing.dataset) / "_summary").iterdir()) and not published(growing.dataset)
    assert "all of it was pruned" in fleet("report", growing.dataset, code=3)[1]
    assert "0 recordings before" in growing.run("prune", growing.dataset, "--older", "1d")
    assert "0 recordings compacted" in growing.run("compact", growing.dataset)


def test_old_parts_go_although_another_command_began_meanwhile() -> None:
    growing = in_parts()
    real, others = catalog.markers, []

    def late(*given: Any) -> Any:
        with patch.object(catalog, "markers", real):
            if not others:
                others.append(compaction.compact(growing.dataset, LATER_NS))
        return real(*given)

    with patch.object(catalog, "markers", late):
        assert pruning.prune(growing.dataset, LATER_NS).recordings == others[0].recordings == 3
    assert len(published(growing.dataset)) == len(contents(Path(growing.dataset))["rpcs"])
    assert len(markers(Path(growing.dataset))) == 1


def test_a_command_that_is_killed_anywhere_prunes_each_recording_or_not(tmp_path: Path) -> None:
    growing = in_parts(pieces=4)
    compaction.compact(growing.dataset, LATER_NS)
    growing.add(3)
    growing.analyze()
    sizes, told = [len(published(growing.dataset))], set[Any]()
    killed = kill_anywhere(growing.dataset, lambda dataset: pruning.prune(dataset, LATER_NS), tmp_path)
    for dataset in killed.values():
        sizes.append(len(read_rows(dataset)["rpcs"]))
        assert not is_new(dataset, told) or report(dataset).rpcs == sizes[-1]
        published(dataset)  # all its files are there
        compaction.compact(dataset, LATER_NS)
        assert len(published(dataset)) == len(contents(Path(dataset), ["rpcs"])["rpcs"]) == sizes[-1]
    assert report(dataset).rpcs == sizes[-1]
    assert max(killed) >= 10 and sorted(sizes, reverse=True) == sizes and len(set(sizes)) == len(told) == 3


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1m", "1e3d", "٣d", "9999999w"])
def test_an_age_that_is_none_is_told(tmp_path: Path, age: str) -> None:
    assert "such as 36h" in fleet("prune", str(tmp_path), "--older", age, code=2)[1]
    assert "not a dataset" in fleet("prune", str(tmp_path), "--older", "1d", code=3)[1]
