"""Captures that begin in the middle of connections: what lies whole in them is the same, the rest is not made up."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hpack
import numpy as np
import pytest
from support import RECORDED, as_polars, recording, rows

from grpcdiag.analyzer.analysis import analyze, of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import (
    BEGUN_BEFORE,
    COMPLETE,
    METHOD_UNKNOWN,
    NOT_SEEN,
    TOUCHES_GAP,
    WINDOW_NOT_KNOWN,
    Messages,
    Tables,
)
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.packet import ACK, PSH, Endpoint, Segment, captured
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, S
from grpcdiag.reports.tables import rows as reported

CUTS = 50
IMPLEMENTATIONS = [f"impl-{name}" for name in ("go", "cpp", "java", "js", "py", "tonic")]
SIZES = ("request_messages", "response_messages", "request_bytes", "response_bytes")
Rpc = dict[str, Any]


def records(pcap: bytes) -> list[int]:
    """Where the packets of a classic pcap begin, and where the last one ends."""
    order = "<" if pcap[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    starts = [24]
    while starts[-1] + 16 <= len(pcap):
        (length,) = struct.unpack_from(order + "I", pcap, starts[-1] + 8)
        starts.append(starts[-1] + 16 + length)
    return starts


def late_cuts(name: str, folder: Path, count: int) -> Iterator[tuple[int, str]]:
    """The recording without its first N packets, for `count` values of N of a fixed seed."""
    (file,) = recording(name).files
    pcap = Path(file).read_bytes()
    starts = records(pcap)
    for n in sorted(random.Random(4).sample(range(1, len(starts) - 1), min(count, len(starts) - 2))):
        cut = folder / "cut.pcap"
        cut.write_bytes(pcap[:24] + pcap[starts[n] :])
        yield n, str(cut)


def rpcs_of(tables: Tables, packets_before: int = 0) -> dict[tuple[str, str, int], Rpc]:
    """RPCs by connection and stream; packets are numbered as in the whole capture."""
    r, found = tables.rpcs, {}
    for row in range(len(r.stream)):
        connection = int(r.connection[row])
        found[tables.client(connection), tables.server(connection), int(r.stream[row])] = {
            "method": tables.method_name(int(r.method[row])),
            "status": int(r.status[row]),
            "flags": int(r.flags[row]),
            "first_packet": int(r.first_packet[row]) + packets_before,
            "known": (
                int(r.start_time_ns[row]),
                int(r.duration_ns[row]),
                int(r.first_packet[row]) + packets_before,
                int(r.last_packet[row]) + packets_before * bool(r.last_packet[row]),
                *(int(getattr(r, name)[row]) for name in SIZES),
                int(r.flags[row]) & (COMPLETE | BEGUN_BEFORE | TOUCHES_GAP),
            ),
        }
    return found


def check_cut(whole: dict[tuple[str, str, int], Rpc], n: int, cut: Tables) -> int:
    """RPCs that begin behind packet N are all there and the same; nothing else is but the rest of earlier ones."""
    found = rpcs_of(cut, n)
    inside = {key: rpc for key, rpc in whole.items() if rpc["first_packet"] > n}
    assert {key for key, rpc in found.items() if not rpc["flags"] & BEGUN_BEFORE} == set(inside), n
    assert set(found) <= set(whole), n
    for key, rpc in found.items():
        assert rpc["method"] in (None, whole[key]["method"]), (n, key)
        assert (rpc["method"] is None) == bool(rpc["flags"] & METHOD_UNKNOWN), (n, key)
        assert rpc["status"] in (NOT_SEEN, whole[key]["status"]), (n, key)
        if key in inside:
            assert rpc["known"] == whole[key]["known"], (n, key)
    return len(inside)


@pytest.mark.parametrize("name", ["mid-connection-go", *IMPLEMENTATIONS])
def test_what_lies_whole_in_the_rest_is_the_same(name: str, tmp_path: Path) -> None:
    whole = rpcs_of(decode(recording(name).files, rpc_rows=True))
    checked = [check_cut(whole, n, decode([cut], rpc_rows=True)) for n, cut in late_cuts(name, tmp_path, CUTS)]
    assert len(checked) == CUTS
    assert sum(checked) > 150


def test_mid_connection_is_the_end_of_what_the_client_did() -> None:
    """The client made 3,000 calls on streams 1, 3, ... of one connection; the capture holds the last ones."""
    capture = recording("mid-connection-go")
    tables = decode(capture.files)
    streams = tables.rpcs.stream.astype(np.int64)
    assert int(streams[-1]) == 2 * capture.report["rpcs"]["Do"] - 1
    assert (np.diff(streams) == 2).all()
    analysis = of_tables(tables)
    assert analysis.totals.rpcs == (int(streams[-1]) - int(streams[0])) // 2 + 1
    assert analysis.totals.rpcs_begun_before == 0
    assert [(m.method, m.label) for m in analysis.methods] == [(None, "method #1")]


@pytest.mark.parametrize("name", ["ydb-unary-single-inflight1", "rpc-errors", "any", "ipv6", "max-concurrent-streams"])
def test_late_findings_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    """A late begin may hide a finding; it makes none, but for the one about the capture."""
    analysis = analyze(recording(name).files)
    whole, packets = {finding.id for finding in analysis.findings}, analysis.capture.packets
    for n, cut in late_cuts(name, tmp_path, 6):
        if n > packets * 0.9:
            continue  # a few packets tell little
        found = {finding.id for finding in analyze([cut]).findings}
        assert found - {"capture-quality"} <= whole, n


# Streams that were opened before the capture


def test_long_streams_from_before_are_followed(tmp_path: Path) -> None:
    """Four streams for the whole time: their later messages are all counted, their begin and duration are not known."""
    capture = recording("roguedb-channels-4")
    messages = rows(Messages, capture.files)
    for n, cut in late_cuts("roguedb-channels-4", tmp_path, 5):
        left = int((messages.first_packet > n).sum())
        if left < 200:
            continue
        tables = decode([cut], rpc_rows=True)
        analysis = of_tables(tables)
        assert (analysis.totals.rpcs, analysis.totals.rpcs_begun_before) == (4, 4), n
        assert left - 8 <= tables.message_count <= left, n
        assert (tables.rpcs.flags & BEGUN_BEFORE).all()
        frame = as_polars([reported.rpcs(tables)])
        for column in ("method", "start_time_ns", "duration_ns"):
            assert frame[column].is_null().all(), column
        assert not frame["complete"].any()
        assert frame["begun_before"].all()
        assert [method.latency_ns for method in analysis.methods] == [None]
        assert sum(analysis.budget.values()) == tables.connection_budgets.sum() > 0


@pytest.mark.parametrize("name", ["ydb-stream-single-inflight8", "roguedb-threads-4"])
def test_streams_from_before_still_tell_of_the_client(name: str, tmp_path: Path) -> None:
    """Several callers share one connection: the findings on who held the ball do not need the opening."""
    whole = {finding.id for finding in analyze(recording(name).files).findings}
    assert {"client-idle-gap", "shared-connection"} <= whole
    compared = 0
    for n, cut in late_cuts(name, tmp_path, 4):
        if n < 7_000:
            assert {finding.id for finding in analyze([cut]).findings} - {"capture-quality"} == whole, n
            compared += 1
    assert compared


# HPACK without its past, against the `hpack` package


CLIENT, SERVER = Endpoint("02:00:00:00:00:01", "10.0.0.1", 40000), Endpoint("02:00:00:00:00:02", "10.0.0.2", 50051)
PATHS = [f"/lab.v1.Lab/Method{number}" for number in range(9)]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def request(encoder: hpack.Encoder, path: str, stream: int, random_: random.Random) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "lab")]
    fields += [("content-type", "application/grpc"), ("te", "trailers"), ("x-id", str(random_.randrange(40)))]
    return frame(1, 4, stream, encoder.encode(fields)) + frame(0, 1, stream, b"\0\0\0\0\x03abc")


def entries_of_paths(blocks: Sequence[bytes], table: int) -> list[tuple[str, int]]:
    """By block: its path, and the number of the block that inserted the table entry it comes from."""
    decoder, inserted, result = hpack.Decoder(), {}, []
    decoder.max_allowed_table_size = table
    for number, block in enumerate(blocks):
        before = [value for name, value in decoder.header_table.dynamic_entries if name == b":path"]
        path = dict(decoder.decode(block))[":path"]
        if path.encode() not in before:
            inserted[path] = number
        result.append((path, inserted[path]))
    return result


def conversation(blocks: Sequence[bytes]) -> bytes:
    """The client's requests from the first one on, a packet each, with a PING before so that the boundary is plain."""
    segments, seq = [], 1_000
    for number, payload in enumerate([frame(6, 0, 0, bytes(8)) * 2, *blocks]):
        segment = Segment(0, "client", CLIENT, SERVER, seq, 1, ACK | PSH, payload=payload)
        segments.append(captured(1_700_000_000_000_000_000 + number * 1_000_000, segment))
        seq += len(payload)
    return write_pcap(segments)


def test_a_stream_that_shows_no_message_boundary_is_no_rpc(tmp_path: Path) -> None:
    """The middle of an upload: nothing tells that it is gRPC, and that is what is said."""
    file = tmp_path / "late.pcap"
    file.write_bytes(conversation([frame(0, 0, 9, b"\xcc" * 1_000)] * 5))
    with pytest.raises(NoGrpcError, match="all their streams began before the capture"):
        analyze([str(file)])


@pytest.mark.parametrize("table", [160, 400, 4096])
@pytest.mark.parametrize("seed", range(6))
def test_methods_by_an_independent_hpack(table: int, seed: int, tmp_path: Path) -> None:
    """A path is known when its table entry was inserted in the capture; unknown ones share labels by entry."""
    chosen, encoder = random.Random(seed), hpack.Encoder()
    encoder.header_table_size = table
    paths = [chosen.choice(PATHS) for _ in range(60)]
    blocks = [request(encoder, path, 2 * number + 1, chosen) for number, path in enumerate(paths)]
    headers = [block[9 : 9 + int.from_bytes(block[:3], "big")] for block in blocks]
    entries = entries_of_paths(headers, table)
    assert [path for path, _ in entries] == paths
    for begin in (1, 7, 23, 40):
        file = tmp_path / "late.pcap"
        file.write_bytes(conversation(blocks[begin:]))
        frame_ = as_polars([reported.rpcs(decode([str(file)], rpc_rows=True))])
        expected = [path if number >= begin else None for path, number in entries[begin:]]
        assert frame_["method"].to_list() == expected, begin
        labels: dict[int, set[str]] = {}
        for (_, number), label in zip(entries[begin:], frame_["method_label"].to_list(), strict=True):
            assert (label is None) == (number >= begin)
            if label is not None:
                labels.setdefault(number, set()).add(label)
        named = [label for group in labels.values() for label in group]
        assert len(named) == len(set(named)), "two methods never share a label"
        if table == 4096:  # nothing is evicted: a method's entry and its authority's stay
            assert all(len(group) == 1 for group in labels.values())
            assert labels or begin == 1


def connection_waits(tables: Tables) -> list[tuple[int, int, int]]:
    """Waits for connection windows: when they began, how long they were, and what the window was."""
    waits = tables.waits
    mine = waits.cause == CAUSES.index("connection_window")
    columns = (waits.start_time_ns[mine], waits.duration_ns[mine], waits.connection_window_bytes[mine])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_window_is_exact_once_its_senders_stops_prove_its_end(tmp_path: Path) -> None:
    """Each upload of 4 MiB waits for 65,535 bytes again and again; from the fifth stop on the window is known."""
    whole = connection_waits(decode(recording("h2-flow-control-go-64k").files))
    for n, cut in late_cuts("h2-flow-control-go-64k", tmp_path, 6):
        late = connection_waits(decode([cut]))
        assert set(late) <= set(whole), n
        if late:
            found = next(f for f in analyze([cut]).findings if f.id == "connection-window-stall")
            assert (found.severity, found.confidence) == ("critical", "medium")
            assert "to the byte" in found.explanation
    (file,) = recording("h2-flow-control-go-64k").files
    pcap = Path(file).read_bytes()
    cut = tmp_path / "second.pcap"
    cut.write_bytes(pcap[:24] + pcap[records(pcap)[500] :])
    assert len(connection_waits(decode([str(cut)]))) == 96, "of the 100 of the call that begins in it"


@pytest.mark.parametrize(
    "name",
    ["loss-1pct-rtt20", "loss-0pct-rtt20", "rtt205-go-32000", "ydb-unary-single-inflight8", "lab/stream-window-stall"],
)
def test_windows_that_bind_nobody_stay_unknown(name: str, tmp_path: Path) -> None:
    """Senders that wait for TCP or for a stream's window do not prove the connection's."""
    path = RECORDED / f"{name}.pcap" if "/" in name else Path(recording(name).files[0])
    pcap = path.read_bytes()
    starts = records(pcap)
    for n in (20, len(starts) // 10, len(starts) // 3, len(starts) // 2):
        cut = tmp_path / "cut.pcap"
        cut.write_bytes(pcap[:24] + pcap[starts[n] :])
        tables = decode([str(cut)])
        assert not connection_waits(tables), n
        assert (tables.waits.connection_window_bytes == WINDOW_NOT_KNOWN).all(), n


@pytest.mark.parametrize(("delayed_ack", "cause"), [(True, "unexplained"), (False, "network")])
def test_a_round_trip_that_only_answers_show(tmp_path: Path, delayed_ack: bool, cause: str) -> None:
    """The capture begins behind the handshake. Whether the server or the path took the time, only a pure ACK tells."""
    conv = opened(rtt_ns=20 * MS)
    conv.advance(S)
    begin = conv.clock_ns
    for _ in range(4):
        conv.unary("/demo.Store/Get")
        conv.advance(MS)
    packets = Link(rtt_ns=20 * MS, close="none", delayed_ack=delayed_ack).carry(conv)
    path = tmp_path / "late.pcap"
    path.write_bytes(write_pcap([packet for packet in packets if packet.time_ns >= begin]))
    budget = analyze([str(path)]).budget
    assert budget[cause] == pytest.approx(80 * MS, rel=0.06), budget
    assert "network" not in budget or cause == "network"
