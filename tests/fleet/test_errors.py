"""What goes wrong is told in a line, with the exit codes of every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import BUCKET, command, fleet, markers, s3
from support import recorded

from grpcdiag.fleet.dataset import catalog, heads
from grpcdiag.fleet.recordings import store


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    shutil.copy(recorded("impl-go.pcap"), folder / "web-1_eth0.pcap")
    return folder


@pytest.fixture(scope="module")
def made(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("made") / "dataset"
    fleet("analyze", str(captures), "-o", str(target), "--workers", "1")
    return target


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[Any, Any]]:
    with pytest.MonkeyPatch.context() as patch, s3(patch) as (system, server):
        yield system, server


def lines(told: str) -> list[str]:
    return [line for line in told.splitlines() if line]


@pytest.mark.parametrize(
    ("url", "package"), [("gs://bucket/x", "gcsfs"), ("abfs://container/x", "adlfs"), ("oss://bucket/x", "ossfs")]
)
def test_a_store_whose_package_is_not_installed_is_named(
    captures: Path, tmp_path: Path, url: str, package: str
) -> None:
    pytest.importorskip("fsspec")
    if __import__("importlib.util").util.find_spec(package):
        pytest.skip(f"{package} is installed")
    scheme = url.partition("://")[0]
    wanted = (
        f"grpcdiag: {url}: {scheme}:// needs the package {package}, here and where workers run: pip install {package}"
    )
    _, told = fleet("analyze", url, "-o", str(tmp_path / "dataset"), code=2)
    assert lines(told) == [wanted]
    _, told = fleet("analyze", str(captures), "-o", url, code=2)
    assert wanted.removeprefix(f"grpcdiag: {url}") in told
    _, told = fleet("report", url, code=2)
    assert wanted.removeprefix(f"grpcdiag: {url}") in told


def test_a_scheme_that_is_none_is_told(tmp_path: Path) -> None:
    _, told = fleet("analyze", "warehouse://x/y", "-o", str(tmp_path / "dataset"), code=2)
    assert lines(told) == ["grpcdiag: warehouse://x/y: Protocol not known: warehouse"]


def test_a_bucket_that_does_not_exist_is_told(bucket: tuple[Any, Any], captures: Path, tmp_path: Path) -> None:
    _, told = fleet("analyze", "s3://nowhere/x", "-o", str(tmp_path / "dataset"), code=3)
    assert lines(told) == ["grpcdiag: s3://nowhere/x: no such file or folder"]
    _, told = fleet("analyze", "s3://nowhere/*.pcap", "-o", str(tmp_path / "dataset"), code=3)
    assert lines(told) == ["grpcdiag: the sources contain no captures"]
    _, told = fleet("analyze", str(captures), "-o", "s3://nowhere/dataset", code=2)
    assert lines(told)[-1].startswith("grpcdiag: cannot write s3://nowhere/dataset: ")
    assert "bucket does not exist" in told
    _, told = fleet("report", "s3://nowhere/dataset", code=3)
    assert lines(told) == ["grpcdiag: s3://nowhere/dataset: not a dataset of grpcdiag fleet analyze"]


def answering(server: Any, wanted: Callable[[dict[str, Any]], bool], code: str, error: str) -> Callable[[], None]:
    """Have some requests answered with an error, until what is returned is called."""
    before = server.app

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if not wanted(environ):
            return before(environ, start_response)
        start_response(code, [("Content-Type", "application/xml")])
        text = f"<Error><Code>{error}</Code><Message>Access Denied</Message></Error>"
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else text.encode()]

    def end() -> None:
        server.app = before

    server.app = answer
    return end


def test_no_permission_is_told_at_once(bucket: tuple[Any, Any], captures: Path, tmp_path: Path) -> None:
    system, server = bucket
    system.put_file(str(captures / "web-1_eth0.pcap"), f"{BUCKET}/secret/web-1_eth0.pcap")
    end = answering(server, lambda environ: environ["REQUEST_METHOD"] != "PUT", "403 Forbidden", "AccessDenied")
    try:
        _, told = fleet("analyze", f"s3://{BUCKET}/secret", "-o", str(tmp_path / "dataset"), code=3)
        assert len(lines(told)) == 1 and lines(told)[0].startswith(f"grpcdiag: s3://{BUCKET}/secret: ")
        assert "Forbidden" in told or "Access Denied" in told
        _, told = fleet("report", f"s3://{BUCKET}/dataset", code=3)
        assert "Forbidden" in told or "Access Denied" in told
    finally:
        end()
    end = answering(server, lambda environ: environ["REQUEST_METHOD"] == "PUT", "403 Forbidden", "AccessDenied")
    try:
        _, told = fleet("analyze", str(captures), "-o", f"s3://{BUCKET}/dataset", code=2)
        assert f"cannot write s3://{BUCKET}/dataset: Access Denied" in told
        assert "analysed" not in told
    finally:
        end()


def test_no_credentials_are_told(bucket: tuple[Any, Any], tmp_path: Path) -> None:
    nothing = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    away = {"HOME": str(tmp_path), "AWS_CONFIG_FILE": "", "AWS_SHARED_CREDENTIALS_FILE": ""}
    running = command("analyze", f"s3://{BUCKET}/x", "-o", str(tmp_path / "dataset"), env={**nothing, **away})
    _, told = running.communicate(timeout=300)
    assert running.returncode == 3
    assert "nable to locate credentials; the store's client takes credentials from the environment" in told


def test_a_dataset_where_a_file_is_cannot_be_written(captures: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    _, told = fleet("analyze", str(captures), "-o", str(tmp_path / "file"), code=2)
    assert f"cannot write {tmp_path}/file: " in told and "analysed" not in told


def test_an_empty_source_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, told = fleet("analyze", str(tmp_path / "empty"), "-o", str(tmp_path / "dataset"), code=3)
    assert lines(told) == ["grpcdiag: the sources contain no captures"]
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize("arguments", [("report",), ("fetch",)])
def test_a_folder_that_is_no_dataset_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    rest = ("r", "-o", str(tmp_path / "to")) if arguments == ("fetch",) else ()
    for folder in (tmp_path, tmp_path / "missing"):
        _, told = fleet(*arguments, str(folder), *rest, code=3)
        assert lines(told) == [f"grpcdiag: {folder}: not a dataset of grpcdiag fleet analyze"]


def changed(made: Path, target: Path, **fields: Any) -> Path:
    """A copy of a dataset whose marker says something else."""
    shutil.copytree(made, target)
    (path,) = markers(target)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return target


def test_a_dataset_of_a_newer_version_is_not_misread(made: Path, captures: Path, tmp_path: Path) -> None:
    newer = changed(made, tmp_path / "newer", schema="grpcdiag.fleet-recording/4", grpcdiag="9.0.0", rpcs={"many": 1})
    for arguments in (("report", str(newer)), ("analyze", str(captures), "-o", str(newer))):
        _, told = fleet(*arguments, code=3)
        assert "the dataset was written by grpcdiag 9.0.0" in told and "upgrade grpcdiag" in told
    # what a newer version adds does not matter
    more = changed(made, tmp_path / "more", novelty=[1, 2])
    fleet("report", str(more))
    fleet("analyze", str(captures), "-o", str(more))


def test_a_dataset_of_an_older_version_is_to_be_made_anew(made: Path, captures: Path, tmp_path: Path) -> None:
    older = changed(made, tmp_path / "older", schema="grpcdiag.fleet-recording/1", grpcdiag="0.0.9")
    _, told = fleet("report", str(older), code=3)
    assert "the dataset was written by grpcdiag 0.0.9" in told
    assert "it is older, so analyze the captures anew into another dataset" in told and "upgrade" not in told
    (head,) = (older / "_series").glob("*.json")
    head.write_text(head.read_text().replace(heads.SCHEMA, "grpcdiag.fleet-series/1"))
    _, told = fleet("analyze", str(captures), "-o", str(older), code=3)
    assert f"{head.name}: " in told and "it is older" in told and "upgrade" not in told


def test_a_marker_that_is_none_is_told(made: Path, tmp_path: Path) -> None:
    assert catalog.SCHEMA in next(iter(markers(made))).read_text()
    for number, text in enumerate(("", "{}", "[1]", '{"schema": "grpcdiag.recording/1"}', "\x00\xff")):
        target = changed(made, tmp_path / str(number))
        next(iter(markers(target))).write_text(text, encoding="latin-1")
        _, told = fleet("report", str(target), code=3)
        assert "it is no marker of a dataset" in told


def test_rows_that_are_damaged_are_told(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "damaged"
    shutil.copytree(made, target)
    for path in (target / "_summary").iterdir():
        path.write_bytes(b"PAR1")
    _, told = fleet("report", str(target), code=3)
    assert "the dataset cannot be queried: " in told


def test_names_of_a_store_are_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, told = fleet("report", str(tmp_path / "\x1b[31mred"), code=3)
    assert "\x1b" not in told


def test_what_a_store_says_is_kept_short() -> None:
    assert len(store._words(OSError("x" * 10_000))) <= 500
