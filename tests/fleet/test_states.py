"""States that cannot be used cost what was open, and nothing else."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import BUCKET, download, fleet, markers, s3
from growing import Growing, fleet_code, in_parts, state_of
from msgspec import json

from grpcdiag.fleet.dataset import heads
from grpcdiag.fleet.engines import task


@pytest.mark.parametrize("content", [b"", b"\x01\x02\x03", zlib.compress(b"\x01\x050.0.1" + bytes(100))])
def test_a_state_that_cannot_be_used_is_told(content: bytes) -> None:
    """Rows stay, and later files continue what was read without it."""
    growing = in_parts(4, 2)
    state_of(growing).write_bytes(content)
    check_new_epoch(growing)


def check_new_epoch(growing: Growing) -> None:
    """Add the third and the fourth file: the first rows stay, and one begins an epoch that the other continues."""
    before = growing.rows()
    growing.add(2)
    growing.analyze()
    rows = growing.rows()
    assert [row for row in before if row in rows] == before
    assert warned(growing) == 1
    growing.add(3)
    assert growing.planned().size == growing.pieces[3].stat().st_size
    growing.analyze_share()
    assert warned(growing) == 1
    assert len(list((Path(growing.dataset) / "_series").glob("*.state"))) <= 2


def warned(growing: Growing) -> int:
    texts = [json.decode(path.read_bytes())["warnings"] for path in markers(Path(growing.dataset))]
    return sum("read without what was open before them" in text for some in texts for text in some)


def test_a_state_that_is_gone_is_told() -> None:
    growing = in_parts(4, 2)
    state_of(growing).unlink()
    check_new_epoch(growing)


def test_a_state_on_which_the_core_panics_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = in_parts(4, 2)
    decoded, bad = task._decoded, zlib.decompress(state_of(growing).read_bytes())

    class PanicException(BaseException):
        """As pyo3's, which has no name in Python."""

    def panicking(feed: Any, how: Any, state: bytes | None = None, **more: Any) -> Any:
        found = decoded(feed, how, state, **more)
        if state == bad:
            raise PanicException("index out of bounds")
        return found

    monkeypatch.setattr(task, "_decoded", panicking)
    check_new_epoch(growing)


def test_a_panic_without_a_state_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panicking(*_: Any, **__: Any) -> Any:
        raise PanicException("index out of bounds")

    growing = Growing(tmp_path / "parts", "impl-go.pcap", 1)
    growing.add(0)
    monkeypatch.setattr(task, "_decoded", panicking)
    assert "internal error: PanicException: index out of bounds" in growing.analyze(code=3)


def test_a_state_in_a_store_that_cannot_be_used_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a store come through pipes, which the core can read once."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 3)
    with s3(monkeypatch) as (system, _):
        for number, piece in enumerate(growing.pieces):
            system.put_file(str(piece), f"{BUCKET}/captures/web-1/{piece.name}")
            code = 0 if number else fleet_code(growing)
            fleet("analyze", f"s3://{BUCKET}/captures", "-o", f"s3://{BUCKET}/dataset", "--workers", "1", code=code)
            for state in system.glob(f"{BUCKET}/dataset/_series/*.state") if number == 0 else ():
                system.pipe_file(state, zlib.compress(bytes(100)))
        growing.dataset = str(download(system, "dataset", tmp_path / "dataset"))
    assert warned(growing) == 1 and len(growing.rows()) > 0


def test_a_state_that_is_too_large_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 3)
    monkeypatch.setattr(heads, "MOST_STATE_BYTES", 1_000)
    growing.analyze_first(2)
    assert not list((Path(growing.dataset) / "_series").glob("*.state"))
    texts = [json.decode(path.read_bytes())["warnings"] for path in markers(Path(growing.dataset))]
    assert all("the state is too large" in " ".join(some) for some in texts)


def test_a_state_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.state"
    for content in (zlib.compress(bytes(10 << 20)), zlib.compress(os.urandom(2_000)), zlib.compress(b"a") + b"b"):
        path.write_bytes(content)
        with pytest.raises(heads.StateError):
            heads.read_state(str(path))
        monkeypatch.setattr(heads, "MOST_STATE_BYTES", 1_000)


def test_only_their_owner_reads_states() -> None:
    growing = in_parts(2, 1)
    assert state_of(growing).stat().st_mode & 0o777 == 0o600
    (marker,) = markers(Path(growing.dataset))
    assert marker.stat().st_mode & 0o444 == (0o666 & ~current_umask()) & 0o444


def current_umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def test_states_have_no_values_of_header_fields_and_do_not_add_up(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 6)
    for number in range(6):
        growing.add(number)
        growing.analyze_share(code=0 if number else fleet_code(growing))
        assert len(list((Path(growing.dataset) / "_series").glob("*.state"))) <= 2
    state = zlib.decompress(state_of(growing).read_bytes())
    assert b"user-agent" in state and b"127.0.0.1:" not in state and b"application/grpc" not in state


def test_states_that_no_head_names_are_removed() -> None:
    """Killed runs leave them."""
    growing = in_parts(3, 2)
    folder = Path(growing.dataset) / "_series"
    (head,) = folder.glob("*.json")
    left = {name: folder / f"{name}.0-1.0123456789.state" for name in (head.stem, "other-eth0-0123456789")}
    used = set(folder.glob("*.state"))
    for path in left.values():
        path.write_bytes(b"of a killed run")
    growing.analyze()
    assert set(folder.glob("*.state")) == used | set(left.values())  # nothing was to be done
    growing.add(2)
    growing.analyze()
    assert not left[head.stem].exists() and left["other-eth0-0123456789"].exists()
    fleet("summarise", growing.dataset, "--sweep")
    assert not left["other-eth0-0123456789"].exists()
    assert {path.name for path in folder.glob("*.state")} == {
        Path(url).name for one in heads.read(growing.dataset, [head.stem]).values() for url in one.states
    }
