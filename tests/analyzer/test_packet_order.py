"""Packets out of the order of time in the file are read in that order: the analysis is that of the sorted file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lessened import filed
from shuffled import MS, Records, records_of
from support import RECORDED, grpcdiag, recorded, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode

_OF_THE_FILE = ("files", "sorted_packets", "interfaces")
"""What a result says of the file itself."""

CAPTURES = sorted(
    file for file in RECORDED.rglob("*.pcap*") if file.suffix in (".pcap", ".pcapng", ".gz", ".zst", ".lz4")
)


def _read(content: bytes, **wanted: Any) -> dict[str, Any]:
    with filed(content) as files:
        run = _core.Run(files, **wanted)
        while run.step(100_000):
            pass
        return run.finish()


def _is_of_packets(name: str) -> bool:
    return name == "packet" or name.endswith("_packet")


def _differences(left: Any, right: Any, names: tuple[Any, Any], path: str) -> Iterator[str]:
    """Where two results differ. `names` has the records of both files by packet number."""
    if isinstance(left, dict):
        for key in left.keys() | right.keys():
            if key not in _OF_THE_FILE and key != "order":
                yield from _differences(left[key], right[key], names, f"{path}.{key}")
    elif isinstance(left, np.ndarray):
        if _is_of_packets(path.rpartition(".")[2]):
            left, right = names[0][left], names[1][right]
        if not np.array_equal(left, right):
            yield path
    elif isinstance(left, (list, tuple)):
        if len(left) != len(right):
            yield path
        for at, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from _differences(one, other, names, f"{path}.{at}")
    elif left != right:
        yield path


def _compare(records: Records, order: Sequence[int], **wanted: Any) -> list[str]:
    in_time = records.in_time(order)
    names = (np.array([-1, *order]), np.array([-1, *in_time]))
    late, sorted_ = (_read(records.arranged(one), **wanted) for one in (order, in_time))
    return list(_differences(late, sorted_, names, ""))


ROWS = {"rpc_rows": True, "frames": True, "messages": True, "packets": True, "acts": True}
SMALL = 2_000
"""Packets of captures of which all rows are compared."""


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: str(file.relative_to(RECORDED)))
def test_packets_that_come_late_change_nothing(file: Path) -> None:
    records = records_of(str(file))
    order = records.late(5 * MS)
    assert not _compare(records, order)
    if len(order) < SMALL:
        assert not _compare(records, order, **ROWS)


LATE = records_of(recorded("rpc-errors.pcap"))
ORDER = LATE.late(5 * MS)


def _find_packets(report: Any, names: Sequence[int]) -> Any:
    """The report with the places of packets in the recording instead of their numbers in the file."""
    if isinstance(report, dict):
        return {
            key: names[value] if _is_of_packets(key) and isinstance(value, int) else _find_packets(value, names)
            for key, value in report.items()
            if key != "display_filter"  # numbers again
        }
    if isinstance(report, str):
        return re.sub(r"(?<=Packet )\d+", lambda number: str(names[int(number[0])]), report)
    return [_find_packets(one, names) for one in report] if isinstance(report, list) else report


def _report(content: bytes, names: Sequence[int]) -> Any:
    with filed(content) as files:
        done = grpcdiag("analyze", "--json", *files)
    report = json.loads(done.text)
    report["files"] = None
    report["quality"]["warnings"] = [one for one in report["quality"]["warnings"] if "sorted" not in one]
    return _find_packets(report, names)


@pytest.mark.parametrize("name", ["rpc-errors.pcap", "rtt205-go-16000.pcap", "lab/slow-connect.pcap"])
def test_the_report_is_that_of_the_sorted_file(name: str) -> None:
    records = records_of(recorded(name))
    order = records.late(5 * MS)
    orders = (order, records.in_time(order))
    left, right = (_report(records.arranged(one), [-1, *one]) for one in orders)
    assert left == right


def test_sorted_packets_are_counted_and_keep_their_numbers() -> None:
    result = _read(LATE.arranged(ORDER), packets=True, unlisted_packets=True)
    assert result["capture"]["sorted_packets"] > 100
    assert result["capture"]["time_steps_back"] == 0
    packets = result["packets"]
    assert np.array_equal(packets["time_ns"], np.sort(packets["time_ns"]))
    assert [LATE.times[ORDER[number - 1]] for number in packets["packet"].tolist()] == packets["time_ns"].tolist()


def test_a_pipe_is_sorted_as_a_file_is() -> None:
    content = LATE.arranged(ORDER)
    with filed(content) as files:
        expected = json.loads(grpcdiag("analyze", "--json", *files).text)
    found = json.loads(grpcdiag("analyze", "--json", "-", stdin=content).text)
    assert {**found, "files": None} == {**expected, "files": None}


def test_two_files_are_sorted_together() -> None:
    half = len(ORDER) // 2
    with filed(LATE.arranged(ORDER[:half])) as first, filed(LATE.arranged(ORDER[half:])) as second:
        parts = decode([*first, *second], rpc_rows=False)
    with filed(LATE.arranged(ORDER)) as files:
        whole = decode(files, rpc_rows=False)
    assert parts.connections.first_packet.tolist() == whole.connections.first_packet.tolist()
    assert parts.capture["sorted_packets"] == whole.capture["sorted_packets"]


def test_a_comment_is_written_on_the_packet_that_shows_the_finding(tmp_path: Path) -> None:
    with filed(LATE.arranged(ORDER)) as files:
        report = json.loads(grpcdiag("analyze", "--json", *files).text)
        annotated = tmp_path / "annotated.pcapng"
        assert grpcdiag("annotate", *files, "-o", str(annotated)).code == 0
    commented = records_of(str(annotated))
    assert commented.times == tuple(LATE.times[place] for place in ORDER)
    for evidence in (one for finding in report["findings"] for one in finding["evidence"]):
        record = commented.records[evidence["packet"] - 1]
        assert b"grpcdiag" in record


def test_packets_that_are_later_than_the_window_ask_for_reordercap() -> None:
    with filed(LATE.arranged(LATE.late(500 * MS))) as files:
        analysis = analyze(files)
        shown = grpcdiag("analyze", *files).text
    found = next(finding for finding in analysis.findings if finding.id == "capture-quality")
    assert found.severity == "warning"
    assert found.metrics["unsorted_packets"] > 100
    assert found.remedies[0].knob == "reordercap in.pcap out.pcap"
    assert analysis.verdict.finding == "capture-quality"
    assert "reordercap in.pcap out.pcap" in analysis.verdict.text
    assert "packets out of the order of time" in " ".join(shown.split())
    assert {one.confidence for one in analysis.findings if one.id != "capture-quality"} <= {"medium", "low"}


def test_a_clock_that_is_set_back_sorts_nothing() -> None:
    """The second half of the packets comes first, as where two captures were joined the wrong way round."""
    half = len(LATE.times) // 2
    joined = [*range(half, len(LATE.times)), *range(half)]
    result = _read(LATE.arranged(joined), packets=True, unlisted_packets=True)
    assert result["packets"]["packet"].tolist() == list(range(1, len(joined) + 1))
    assert (result["capture"]["sorted_packets"], result["capture"]["time_steps_back"]) == (0, 1)
    with filed(LATE.arranged(joined)) as files:
        assert analyze(files).verdict.finding != "capture-quality"


def test_where_acknowledgements_disprove_the_times_the_file_has_the_order() -> None:
    tables = decode([synthetic("time_steps_back").file])
    capture = tables.capture
    assert (capture["sorted_packets"], capture["contradicted_times"], capture["time_steps_back"]) == (0, 1, 1)
