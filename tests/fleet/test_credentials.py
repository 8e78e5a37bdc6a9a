"""Credentials in the URLs of sources, datasets and engines are shown nowhere and stored nowhere."""

from __future__ import annotations

import base64
import pickle
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import fleet, markers
from support import recorded

from grpcdiag.fleet import run
from grpcdiag.fleet.engines import EngineError, engine, task
from grpcdiag.fleet.recordings import store
from grpcdiag.fleet.recordings.credentials import without_credentials
from grpcdiag.fleet.recordings.series import File

PASSWORD, SIGNATURE = "opensesame", "c2lnbmF0dXJl"
SECRETS = (PASSWORD, SIGNATURE)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/captures/*.pcap?", "s3://bucket/captures/*.pcap?"),
        (f"s3://user:{PASSWORD}@bucket/x", "s3://bucket/x"),
        (f"s3://AKIA:{PASSWORD}/with+slash@bucket/x", "s3://bucket/x"),
        (f"https://{PASSWORD}@host:8080/a/b@c.pcap", "https://host:8080/a/b@c.pcap"),
        (f"https://user:{PASSWORD}@more@host/x", "https://host/x"),
        (f"https://user:{PASSWORD}#?@host/x", "https://host/x"),
        ("http://host:9000/bucket/web@eth0.pcap", "http://host:9000/bucket/web@eth0.pcap"),
        (
            f"https://host/x.pcap?X-Amz-Date=1&X-Amz-Signature={SIGNATURE}",
            "https://host/x.pcap?X-Amz-Date=***&X-Amz-Signature=***",
        ),
        (f"https://host/x.pcap?sv=2&se=3&sig={SIGNATURE}%3D&sp=r", "https://host/x.pcap?sv=2&se=3&sig=***&sp=r"),
        (f"https://host/x?file=a.pcap&access_token={SIGNATURE}", "https://host/x?file=a.pcap&access_token=***"),
        (f"dask://user:{PASSWORD}@host:8786", "dask://host:8786"),
        ("/folder/user:x@host/a?b.pcap", "/folder/user:x@host/a?b.pcap"),
    ],
)
def test_a_url_is_named_without_its_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
    assert without_credentials(f"'{url}': gone, see \"{url}\"") == f"'{shown}': gone, see \"{shown}\""


def test_what_a_library_repeats_of_them_is_removed_too() -> None:
    url = f"s3://user:{PASSWORD}%2F@bucket/x?token={SIGNATURE}"
    told = f"no user:{PASSWORD}/@bucket: {PASSWORD}%2F and {SIGNATURE} are wrong"
    assert without_credentials(told, url) == "no bucket: *** and *** are wrong"


class _Guarded(SimpleHTTPRequestHandler):
    """Files for those who give the password and the signature; it knows no HEAD of files that are gone."""

    def send_head(self) -> Any:
        expected = "Basic " + base64.b64encode(f"user:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != expected or f"X-Amz-Signature={SIGNATURE}" not in self.path:
            self.send_error(403)
            return None
        return super().send_head()

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """It says nothing of clients that have enough."""

    def handle_error(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The host and port of a web server with a capture in its root and what is none."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "web-1_eth0.pcap").write_bytes(Path(recorded("impl-go.pcap")).read_bytes())
    (folder / "web-2_eth0.pcap").write_bytes(b"no capture at all")
    server = _Server(("127.0.0.1", 0), partial(_Guarded, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def signed(host: str, name: str) -> str:
    return f"http://user:{PASSWORD}@{host}/{name}?X-Amz-Signature={SIGNATURE}"


def stored(dataset: Path) -> str:
    """All names and contents of a dataset, of Parquet files the rows and the metadata."""
    import polars as pl

    parts = []
    for path in sorted(dataset.rglob("*")):
        parts.append(str(path.relative_to(dataset)))
        if path.suffix == ".parquet":
            parts += [repr(row) for row in pl.read_parquet(path).rows()] + [repr(pl.read_parquet_metadata(path))]
        elif path.is_file():
            parts.append(path.read_bytes().decode("latin-1"))
    return "\n".join(parts)


def test_a_run_stores_and_shows_none_of_them(served: str, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    sources = [signed(served, "web-1_eth0.pcap"), signed(served, "web-2_eth0.pcap")]
    out, told = fleet("analyze", *sources, "-o", str(dataset), code=3)
    assert len(markers(dataset)) == 2
    assert f"skipped: web-2: http://{served}/web-2_eth0.pcap?X-Amz-Signature=***: " in told
    text = stored(dataset)
    assert f"http://{served}/web-1_eth0.pcap?X-Amz-Signature=***" in text
    reports = [fleet("report", str(dataset), *form) for form in ((), ("--json",), ("--html",), ("--limit", "0"))]
    for shown in (out, told, text, *(part for report in reports for part in report)):
        assert not [secret for secret in SECRETS if secret in shown]


def test_a_run_with_a_new_signature_does_nothing_anew(served: str) -> None:
    """What a recording is called and whether it is done does not depend on how its store was opened."""
    (found,) = store.search(signed(served, "web-1_eth0.pcap"))
    other = File(found.file.url.replace(PASSWORD, "another"), found.file.size, found.file.version)
    assert other.named == found.file.named
    assert (found.name, found.root) == ("web-1_eth0.pcap", f"http://{served}")


def test_engines_see_none_of_them_in_their_logs(served: str, tmp_path: Path) -> None:
    """Dask writes the arguments of a task that failed into its workers' logs, and its key onto its pages."""
    planned = run.plan([signed(served, "web-1_eth0.pcap")], str(tmp_path / "dataset"))
    (one,) = planned.tasks
    shown = repr((one, one.recording, one.recording.files[0], f"{one.recording.id}.{one.version}"))
    assert not [secret for secret in SECRETS if secret in shown]
    assert pickle.loads(pickle.dumps(one)).recording.files[0].url == one.recording.files[0].url


def test_errors_tell_none_of_them_nor_do_their_chains(served: str, tmp_path: Path) -> None:
    calls = (
        lambda: list(store.search(f"http://user:wrong-{PASSWORD}@{served}/x.pcap?token={SIGNATURE}")),
        lambda: list(store.search(f"s3://user:{PASSWORD}@bucket/x?token={SIGNATURE}")),
        lambda: list(store.search(f"nothing://user:{PASSWORD}@bucket/x")),
        lambda: list(store.search(f"gs://user:{PASSWORD}@bucket/x")),
        lambda: store.head(signed(served, "gone.pcap"), 10),
        lambda: store.get(signed(served, "gone.pcap"), tmp_path / "got"),
        lambda: list(store.heads([File(signed(served, "gone.pcap"), 100, "")], 10)),
        lambda: engine(f"dask://user:{PASSWORD}@127.0.0.1:no", None).__enter__(),
        lambda: engine(f"ray://user:{PASSWORD}@127.0.0.1", None),
    )
    for call in calls:
        with pytest.raises((store.StoreError, EngineError)) as raised:
            call()
        chain = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        assert not [secret for secret in SECRETS if secret in chain], chain


def test_what_fails_in_a_worker_is_told_without_them(served: str, tmp_path: Path, monkeypatch: Any) -> None:
    (one,) = run.plan([signed(served, "web-1_eth0.pcap")], str(tmp_path / "dataset")).tasks
    files = one.recording.files
    with monkeypatch.context() as patch:
        patch.setattr(task, "_analyse", lambda *_: (_ for _ in ()).throw(RuntimeError(f"{files[0].url} {PASSWORD}")))
        outcome = task.analyse(one)
    assert outcome.reason == f"internal error: RuntimeError: {files[0].named} ***"


def test_a_store_that_takes_no_credentials_from_a_url_says_so(tmp_path: Path) -> None:
    _, told = fleet("analyze", f"s3://user:{PASSWORD}@bucket/x", "-o", str(tmp_path / "dataset"), code=2)
    assert told.startswith("grpcdiag: s3://bucket/x: this store takes no credentials from a URL; ")
    _, told = fleet("analyze", str(tmp_path), "-o", f"s3://user:{PASSWORD}@bucket/x", code=2)
    _, told = fleet("report", f"s3://user:{PASSWORD}@bucket/x", code=2)
    assert PASSWORD not in told
