"""What holds for one holds for many: copies with other addresses have the verdict, severity and share of one."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pytest
from support import RECORDED, recorded

from grpcdiag.analyzer.analysis import of_capture
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import SEVERITIES, Finding
from grpcdiag.fixtures.bench.multiply import Source

MOST_BYTES = 120_000
"""Larger captures, compressed or not, are not copied: reading takes long."""
KEPT = 0.85
"""Share of the time lost that is found in the copies."""

# Copies that do not repeat what was recorded: other addresses are not written into payloads, or into IPv6
NO_COPIES = {
    "lab/slow-connect": "DNS answers name the servers of the first copy",
    "wild/connect-dns-nxdomain": "DNS answers name the servers of the first copy",
    "wild/connect-dns-slow": "DNS answers name the servers of the first copy",
    "wild/connect-dns-tcp": "DNS answers name the servers of the first copy",
    "wild/icmp-host-gone": "ICMP errors quote the addresses of the first copy",
    "processes/cpu-quota": "the record of the threads is of the first copy",
    "processes/processor-saturated": "the record of the threads is of the first copy",
}
# Findings that a number of calls allows: with more of them the verdict is about these, and the other one stands
MORE_KNOWN = {
    "wild/etcd-compacted": "rpc-errors",
    "wild/grpcio-retried-all": "retry-storm",
    "wild/grpcwebproxy-deadline": "deadline-exceeded",
    "wild/grpc-go-upload-fast": "server-latency",
}
MANY = [
    "lab/connection-churn.pcap",
    "wild/armeria-client-idle.pcap.zst",
    "wild/grpc-go-narrow-uplink.pcap.zst",
    "wild/grpcio-path-held.pcap.zst",
    "wild/grpcio-stopped-once.pcap.zst",
    "wild/grpcio-stopped-three.pcap.zst",
    "wild/lb-slow-backend.pcap.zst",
    "wild/tonic-stopped.pcap.zst",
    "wild/window-deadlock.pcap.zst",
]


class One(NamedTuple):
    """A recorded capture."""

    analysis: Analysis
    open_rpcs: int
    """Calls that are open at the end: in copies they last until the end of the last copy."""


def unpack(path: Path, folder: Path) -> Source:
    """Read a capture whose packets can be copied. Raises ValueError for others."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".zst":
        content = pyarrow.input_stream(pyarrow.BufferReader(content), compression="zstd").read()
    plain = folder / "one.pcap"
    plain.write_bytes(content)
    return Source(plain)


def look(files: Sequence[str]) -> One:
    tables = decode(list(files), rpc_rows=False)
    try:
        return One(of_capture(list(files), tables), len(tables.open_rpcs.stream))
    except NoGrpcError as error:
        assert error.analysis
        return One(error.analysis, 0)


def look_at_copies(sources: Sequence[Source], folder: Path) -> Analysis:
    """Analyse captures one after the other, each with addresses of its own."""
    assert len({source.header.tobytes()[:4] + source.header.tobytes()[20:] for source in sources}) == 1
    path, begin = folder / "copies.pcap", int(sources[0].seconds.min())
    with path.open("wb") as file:
        file.write(sources[0].header.tobytes())
        for number, source in enumerate(sources):
            file.write(source.copy(number + 1, begin - int(source.seconds.min())).tobytes())
            begin += source.span
    return look([str(path)]).analysis


@cache
def look_at_recorded(name: str) -> One:
    return look([recorded(name)])


def list_small() -> list[str]:
    """List the captures that are read in no time."""
    paths = (path for suffix in ("", ".gz", ".zst") for path in RECORDED.rglob(f"*.pcap{suffix}"))
    return sorted(str(path.relative_to(RECORDED)) for path in paths if path.stat().st_size < MOST_BYTES)


def find(analysis: Analysis, ident: str) -> Finding | None:
    return next((finding for finding in analysis.findings if finding.id == ident), None)


def check_copies(name: str, number: int, folder: Path) -> None:
    one, source = look_at_recorded(name), unpack(Path(recorded(name)), folder)
    ident, stem = one.analysis.verdict.finding, name.partition(".")[0]
    if ident is None or stem in NO_COPIES:
        return
    many = look_at_copies([source] * number, folder)
    if many.verdict.finding == "hung-rpc" != ident:
        return
    before, after = find(one.analysis, ident), find(many, ident)
    assert before and after, f"{ident} is lost: {many.verdict.text}"
    if before.lost_ns:
        lost = sum(finding.lost_ns or 0 for finding in many.findings if finding.id == ident)
        assert lost >= KEPT * number * before.lost_ns, after.title
    if one.open_rpcs:
        return
    assert many.verdict.finding == MORE_KNOWN.get(stem, ident), many.verdict.text
    assert SEVERITIES.index(after.severity) >= SEVERITIES.index(before.severity), after.title
    assert (after.share or 0.0) >= KEPT * (before.share or 0.0), after.title


@pytest.mark.parametrize("name", list_small())
def test_four_copies_have_the_verdict_of_one(name: str, tmp_path: Path) -> None:
    try:
        unpack(Path(recorded(name)), tmp_path)
    except ValueError:
        pytest.skip("no capture of IPv4 over Ethernet in a pcap file")
    check_copies(name, 4, tmp_path)


@pytest.mark.parametrize("name", MANY)
def test_forty_copies_have_the_verdict_of_one(name: str, tmp_path: Path) -> None:
    check_copies(name, 40, tmp_path)


def test_a_finding_about_many_names_them_and_shows_three(tmp_path: Path) -> None:
    source = unpack(Path(recorded("wild/tonic-stopped.pcap.zst")), tmp_path)
    many = look_at_copies([source] * 5, tmp_path)
    finding = many.findings[0]
    assert many.verdict.text.startswith("5 of 5 servers sent nothing 4 times each for 361 ms (median)")
    assert finding.id == many.verdict.finding == "synchronised-stall"
    assert finding.metrics["stalls"] == 20
    shown = re.findall(r"the last bytes of server (\S+) before", " ".join(item.what for item in finding.evidence))
    assert shown == ["10.0.1.2", "10.0.2.2", "10.0.3.2"]
    assert len(finding.scope.connections) == 5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wild/plateau.pcap.zst", "3 of 3 servers seem to work on 4 calls of /rw.v1.Svc/Do at once"),
        ("wild/lb-slow-backend.pcap.zst", "3 of 9 servers (10.0.1.3 and others) take up to 167 ms per RPC"),
        ("wild/window-deadlock.pcap.zst", "in vain for a WINDOW_UPDATE of 3 of 3 servers: check whether their"),
        ("wild/grpc-go-narrow-uplink.pcap.zst", "in a network queue of up to 68.9 ms from 3 of 3 clients"),
        ("wild/haproxy-idle.pcap.zst", "3 of 3 servers end them about 502 ms after a call"),
        ("lab/stream-window-stall.pcap", "3 of 3 servers were blocked by the HTTP/2 stream window"),
        ("lab/delayed-ack-nagle.pcap", "set TCP_NODELAY on the sockets of 3 of 3 clients"),
    ],
)
def test_a_verdict_about_many_names_them(name: str, says: str, tmp_path: Path) -> None:
    many = look_at_copies([unpack(Path(recorded(name)), tmp_path)] * 3, tmp_path)
    assert says in many.verdict.text


def test_one_beside_healthy_ones_is_named_with_their_number(tmp_path: Path) -> None:
    troubled, healthy = (
        unpack(Path(recorded(f"wild/{name}.pcap.zst")), tmp_path) for name in ("tonic-stopped", "nginx-keepalive-back")
    )
    many = look_at_copies([troubled, *[healthy] * 20], tmp_path)
    finding = find(many, "synchronised-stall")
    assert finding
    assert finding.title.startswith("server 10.0.1.2 sent nothing 4 times")
    assert finding.explanation.endswith("It concerns 1 of 21 servers (10.0.1.2) and 1 of 21 clients (10.0.1.1).")
    assert many.verdict.finding == finding.id


def test_two_troubled_ones_keep_both_findings_the_larger_first(tmp_path: Path) -> None:
    names = ("wild/tonic-stopped.pcap.zst", "wild/grpcio-path-held.pcap.zst")
    alone = [look_at_recorded(name).analysis.findings[0] for name in names]
    both = look_at_copies([unpack(Path(recorded(name)), tmp_path) for name in names], tmp_path)
    kept = [find(both, finding.id) for finding in alone]
    assert [finding and finding.lost_ns for finding in kept] == [finding.lost_ns for finding in alone]
    larger = max(alone, key=lambda finding: finding.lost_ns or 0)
    assert both.findings[0].id == both.verdict.finding == larger.id
