"""Files that are analyzed again, or in an unusual order: each call counts once, whoever was killed before."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fleets import markers
from growing import Growing, fleet_code, in_parts, state_of
from support import recorded
from test_parts import shift

from grpcdiag.fleet.dataset import catalog
from grpcdiag.fleet.recordings import store


def calls_of(growing: Growing) -> list[Any]:
    return growing.rows(columns="start_time_ns, stream")


def head_of(growing: Growing) -> Path:
    (path,) = (Path(growing.dataset) / "_series").glob("*.json")
    return path


def test_a_run_that_was_killed_while_it_replaced_parts_loses_nothing() -> None:
    growing = in_parts()
    before = growing.rows()
    markers(Path(growing.dataset))[0].unlink()  # the first that it removes
    growing.analyze("--port", "50051")
    assert growing.rows() == before


def test_a_worker_that_goes_on_with_replacing_parts_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = in_parts()
    before, commit = growing.rows(), catalog.commit

    def lose(dataset: str, marker: catalog.Marker, older: tuple[str, ...], *rest: object) -> str:
        store.remove(older[:1])
        return commit(dataset, marker, older, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(catalog, "commit", lose)
    growing.analyze("--port", "50051")
    assert growing.rows() == before


@pytest.mark.parametrize("grown", [False, True], ids=["a killed run's part", "a file that grew"])
def test_a_state_that_cannot_be_used_does_not_double_the_last_part(grown: bool) -> None:
    """The part that takes its place is another one, of a new epoch."""
    growing = in_parts(3)
    head, before = head_of(growing).read_bytes(), calls_of(growing)
    if grown:
        last = growing.host / growing.pieces[1].name
        last.write_bytes(last.read_bytes() + growing.pieces[2].read_bytes()[24:])
    else:
        growing.add(2)
        growing.analyze_share()
        head_of(growing).write_bytes(head)
    for state in (Path(growing.dataset) / "_series").glob("*.state"):
        state.write_bytes(b"of another build")
    growing.analyze()
    after = calls_of(growing)
    assert len(after) == len(set(after)) > len(before)


@pytest.mark.parametrize("gone", [False, True])
def test_the_newest_file_of_a_ring_grew_and_an_older_one_has_new_packets(tmp_path: Path, gone: bool) -> None:
    """What both held stays; what the newest file has gained cannot be told from what was read."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    for number in range(2):
        growing.add(number, f"eth0.pcap{number}")
    growing.analyze()
    before = calls_of(growing)
    newest = growing.host / "eth0.pcap1"
    newest.write_bytes(newest.read_bytes() + growing.pieces[2].read_bytes()[24:])
    (growing.host / "eth0.pcap0").unlink()
    if not gone:
        growing.add(3, "eth0.pcap0")
    told = growing.analyze(code=3)
    assert "it grew after it was analyzed together with files that are gone" in told
    after = calls_of(growing)
    assert set(before) <= set(after)
    assert len(after) == len(set(after))
    assert growing.planned().size == 0


def test_parts_of_killed_runs_have_their_place_taken(tmp_path: Path) -> None:
    """Two late files, and between them a run that was killed before it wrote the head."""
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 5)
    for number in (2, 3, 4):
        growing.add(number)
        growing.analyze_share(code=0 if number > 2 else fleet_code(growing))
    head = head_of(growing).read_bytes()
    growing.add(1)
    growing.analyze_share()
    head_of(growing).write_bytes(head)
    growing.add(0)
    growing.analyze()
    present = catalog.committed(growing.dataset)
    assert len(present) == len(markers(Path(growing.dataset)))
    late = catalog.markers([one for name, one in present.items() if name.endswith(".1-0")])
    assert len(late[0].files) == 2


def test_a_file_that_was_complete_late_is_told_no_longer() -> None:
    growing = in_parts(4, 2)
    (growing.host / growing.pieces[2].name).write_bytes(b"cut")
    growing.analyze(code=3)
    growing.add(3)
    growing.analyze(code=3)
    growing.add(2)
    growing.analyze()
    assert "0 to analyze" in growing.analyze()


def two_hosts(folder: Path) -> Growing:
    """A dataset whose rows of two hosts are all in batches."""
    growing = Growing(folder, "impl-go.pcap", 2)
    shutil.copytree(growing.host, growing.source / "web-2")
    for host in ("web-1", "web-2"):
        growing.host = growing.source / host
        growing.add(0)
        growing.add(1)
    growing.analyze()
    growing.run("compact", growing.dataset, "--finished")
    return growing


@pytest.mark.parametrize("lost", [1, 2])
def test_series_in_batches_whose_heads_are_gone_are_not_analyzed_again(tmp_path: Path, lost: int) -> None:
    growing = two_hosts(tmp_path)
    before = growing.rows()
    for head in sorted((Path(growing.dataset) / "_series").glob("*.json"))[:lost]:
        head.unlink()
    told = growing.analyze(code=3)
    assert told.count("its head in _series is gone") == lost
    assert ("1 already in the dataset" in told) == (lost == 1)
    assert growing.rows() == before


def test_each_batch_is_read_once_for_all_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, read = two_hosts(tmp_path), []
    real = catalog.markers_in
    monkeypatch.setattr(catalog, "markers_in", lambda *given: read.append(given) or real(*given))
    assert len(growing.planned(ports=[50051]).left_out) == 2
    assert len(read) == 1
    assert not growing.planned().left_out
    assert len(read) == 1


def test_a_file_that_became_whole_after_its_rows_were_compacted_keeps_them(tmp_path: Path) -> None:
    growing = Growing(tmp_path, "impl-go.pcap", 3)
    content = growing.pieces[0].read_bytes()
    (growing.host / growing.pieces[0].name).write_bytes(content[: len(content) * 2 // 3])
    growing.analyze_share(code=fleet_code(growing))
    for number in (1, 2):
        growing.add(number)
        growing.analyze_share()
    growing.run("compact", growing.dataset)
    before = growing.rows()
    growing.add(0)
    assert "it changed after files behind it were analyzed" in growing.analyze(code=3)
    assert growing.rows() == before


FINISHED = (("compact", "--finished"), ("prune", "--finished", "--older", "1h"))


@pytest.mark.parametrize("command", FINISHED)
def test_a_file_that_grew_after_its_series_was_finished_is_refused(command: tuple[str, ...]) -> None:
    """After `prune` it is not known whether the file is the same."""
    growing = in_parts(3, 2)
    growing.run(command[0], growing.dataset, *command[1:])
    before = growing.rows() if command[0] == "compact" else None
    last = growing.host / growing.pieces[1].name
    last.write_bytes(last.read_bytes() + growing.pieces[2].read_bytes()[24:])
    told = growing.analyze(code=3)
    assert "it changed after its recording was finished" in told and "already in the dataset" not in told
    assert before is None or growing.rows() == before


@pytest.mark.parametrize("command", FINISHED)
def test_new_files_after_the_series_was_finished_are_read_with_a_key_log(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Those behind are read together, because keys are not in a state."""
    growing = Growing(tmp_path, "impl-go.pcap", 1)
    keys = ("--keylog", recorded("tls13-go.keys"))
    growing.add(0)
    growing.analyze(*keys)
    growing.run(command[0], growing.dataset, *command[1:])
    after = calls_of(growing) if command[0] == "compact" else []
    for number, name in enumerate(("impl-java.pcap", "impl-cpp.pcap"), start=1):
        before = after
        shutil.copy(recorded(name), growing.host / f"eth0.pcap0{number}")
        growing.analyze(*keys)
        after = calls_of(growing)
        assert len(set(after)) == len(after) > len(before) and set(before) < set(after)
        assert "0 to analyze" in growing.analyze(*keys)
    (part,) = catalog.read_contents(growing.dataset).present.values()
    assert part.recording.endswith(".1-0") and len(catalog.markers([part])[0].files) == 2


def test_other_options_do_not_replace_what_is_in_batches() -> None:
    growing = in_parts()
    growing.run("compact", growing.dataset)
    before = growing.rows()
    assert "use another dataset" in growing.analyze("--port", "50051", code=3)
    assert growing.rows() == before


def test_a_pruned_recording_without_a_head_stops_no_run() -> None:
    growing = in_parts()
    shutil.rmtree(Path(growing.dataset) / "_series")
    growing.run("prune", growing.dataset, "--older", "1h")
    growing.analyze()
    calls = growing.rows(columns="connection, stream")
    assert calls and len(calls) == len(set(calls))


def test_a_reused_name_after_a_step_of_the_clock_is_read_when_its_part_is_in_a_batch(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "parts", "impl-go.pcap", 4)
    for number in range(2):
        growing.add(number, f"eth0.pcap{number}")
        growing.analyze_share(code=0 if number else fleet_code(growing))
    growing.run("compact", growing.dataset)
    before = len(growing.rows())
    (growing.host / "eth0.pcap0").write_bytes(shift(growing.pieces[2].read_bytes(), -7200))
    growing.analyze()
    assert len(growing.rows()) > before


def test_secrets_in_a_file_leave_no_state(tmp_path: Path) -> None:
    growing = Growing(tmp_path, "tls13-go-secrets.pcapng", 1)
    growing.add(0)
    growing.analyze()
    assert not list((Path(growing.dataset) / "_series").glob("*"))


def test_a_state_of_a_usable_head_is_not_touched() -> None:
    growing = in_parts()
    path = state_of(growing)
    before = path.read_bytes(), path.stat().st_mtime_ns
    growing.analyze()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
