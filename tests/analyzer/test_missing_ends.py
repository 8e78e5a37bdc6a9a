"""RPCs whose end the capture lacks: their time ends with what is known, and they are counted apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from guises import Packets
from support import recorded, recording, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.fixtures.synthetic.packet import Captured

HOUR = 3600 * 10**9


def endless(analysis: Analysis) -> int:
    return analysis.totals.rpcs_without_known_end


def moved(packets: list[Captured], by_ns: int) -> list[Captured]:
    return [Captured(p.time_ns + by_ns, p.data, original_length=p.original_length) for p in packets]


def open_at(packets: Packets, path: Path) -> int:
    """A number of packets after which an RPC is open."""
    for count in range(30, len(packets.all)):
        path.write_bytes(packets.written(packets=packets.all[:count]))
        if any(method.complete < method.rpcs for method in decode([str(path)]).methods):
            return count
    raise AssertionError("no RPC is ever open")


@pytest.mark.parametrize("name", ["impl-java", "impl-tonic", "impl-py"])
def test_an_rpc_in_a_cut_file_does_not_last_until_the_end_of_the_series(name: str, tmp_path: Path) -> None:
    """Another connection comes an hour later; what became of the first one is lost with the rest of the cut file."""
    first, later = Packets(recorded(f"{name}.pcap")), Packets(recorded("impl-go.pcap"))
    count = open_at(first, tmp_path / "some.pcap")
    cut, second = tmp_path / "run.pcap00", tmp_path / "run.pcap01"
    cut.write_bytes(first.written(packets=first.all[: count + 1])[:-20])
    by_ns = first.all[0].time_ns - later.all[0].time_ns + HOUR
    second.write_bytes(later.written(packets=moved(later.all, by_ns)))
    analysis = analyze([str(cut), str(second)])
    assert sum(analysis.budget.values()) < HOUR
    assert endless(analysis) == 1
    assert any("1 RPC has no known end" in warning for warning in analysis.quality.warnings)


def test_cut_packets_leave_the_time_of_the_other_rpcs() -> None:
    """The ends of 8 of 8,000 RPCs are not known: they are no part of the time by cause."""
    analysis = analyze(recording("snaplen-128").files)
    assert endless(analysis) == 8
    assert analysis.budget.get("capture_gap", 0) <= 0.01 * sum(analysis.budget.values())
    assert sum(m.rpcs for m in analysis.methods) == 8000


@pytest.mark.parametrize("content", [b"", b"\xd4\xc3\xb2\xa1\x02\x00"], ids=["empty", "header-cut"])
def test_an_empty_piece_of_a_series_is_left_out(content: bytes, tmp_path: Path) -> None:
    whole = recorded("impl-js.pcap")
    piece = tmp_path / "run.pcap01"
    piece.write_bytes(content)
    told = analyze([whole, str(piece)])
    assert told.totals == analyze([whole]).totals
    assert any("run.pcap01" in warning and "left out" in warning for warning in told.quality.warnings)
    done = run_here("analyze", whole, str(piece))
    assert done.code == 0
    assert "left out" in done.text
    assert run_here("analyze", str(piece), str(piece)).code == 3
