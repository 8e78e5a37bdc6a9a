"""Heads of series: what a run removes by them is inside the dataset, wherever that is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import contents
from growing import Growing, fleet_code, in_parts, whole
from msgspec import json

from grpcdiag.fleet.dataset import heads
from grpcdiag.fleet.recordings import store


def two_parts() -> Growing:
    """A dataset of two of four files, with calls that are open at the end."""
    growing = in_parts(4, 2)
    assert list(Path(growing.dataset).rglob("*.open.parquet"))
    return growing


def finish(growing: Growing) -> None:
    growing.add(2)
    growing.analyze_share()
    growing.add(3)
    growing.analyze()


def test_a_copy_goes_on_without_its_original(tmp_path: Path) -> None:
    growing = two_parts()
    original = Path(growing.dataset)
    before, listed = contents(original), sorted((original / "_series").iterdir())
    growing.dataset = str(tmp_path / "copy")
    shutil.copytree(original, growing.dataset)
    finish(growing)
    assert contents(original) == before
    assert sorted((original / "_series").iterdir()) == listed
    assert growing.rows() == whole()
    assert len(list((Path(growing.dataset) / "_series").iterdir())) == 3  # the head, and the states around its part


def test_a_relative_output_goes_on_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    absolute = Path(growing.dataset)
    (absolute / "inside").mkdir(parents=True)
    for number, (folder, output) in enumerate(
        [(absolute.parent, "dataset"), (absolute, "."), (absolute / "inside", "..")]
    ):
        monkeypatch.chdir(folder)
        growing.dataset = output
        growing.add(number)
        growing.analyze_share(code=0 if number else fleet_code(growing))
    growing.dataset = str(absolute)
    growing.add(3)
    growing.analyze()
    assert growing.rows() == whole()
    assert not list(absolute.rglob("*.open.parquet")) and len(list((absolute / "_series").glob("*.json"))) == 1


def test_a_head_has_no_credentials_of_its_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(store, "put_bytes", lambda content, url, folder: written.append(content))
    base = "https://user:swordfish@host/results"
    head = heads.Head(
        options="",
        part=heads.Part("web-1"),
        marker=f"{base}/_recordings/web-1.0.json",
        state=f"{base}/_series/web-1.0.state",
        before=f"{base}/_series/web-1.1.state",
        files={},
        last=(),
    )
    heads.write(base, head)
    assert b"swordfish" not in written[0] and b"://" not in written[0]


HOSTILE = (
    "../other/_series/{name}",
    "_series/../../other/_series/{name}",
    "_series/./../../other/_series/{name}",
    "{other}/_series/{name}",
    "file://{other}/_series/{name}",
    "_series/x::file://{other}/_series/{name}",
    "_series//{other}/_series/{name}",
    "..\\\\other\\\\_series\\\\{name}",
    "_series/\\u0000/{name}",
    "_series/*/{name}",
    "rpcs/{name}",
    "_series/{name}/web-2.state",
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_head_removes_nothing_else(hostile: str) -> None:
    growing = two_parts()
    (path,) = (Path(growing.dataset) / "_series").glob("*.json")
    other = Path(growing.dataset).parent / "other"
    victim = other / "_series" / f"{path.stem}.0.state"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"state")
    name = json.decode(f'"{hostile}"'.format(name=victim.name, other=other))
    edit(path, state=name)
    assert not heads.read(growing.dataset, [path.stem])  # through which each run reads them
    if hostile in HOSTILE[::4]:
        finish(growing)
    assert victim.read_bytes() == b"state"


@pytest.mark.parametrize("change", [{"marker": "_recordings/web-2.0.json"}, {"state": "_series/web-2.state"}])
def test_a_head_names_files_of_its_series_alone(change: dict[str, str]) -> None:
    growing = two_parts()
    (path,) = (Path(growing.dataset) / "_series").glob("*.json")
    assert heads.read(growing.dataset, [path.stem])
    edit(path, **change)
    assert not heads.read(growing.dataset, [path.stem])


def edit(path: Path, **changes: Any) -> None:
    path.write_bytes(json.encode({**json.decode(path.read_bytes()), **changes}))
