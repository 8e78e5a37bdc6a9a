"""A capture that is read while it is recorded: pieces, windows, and what is kept."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from exact_pieces import read_until
from support import RECORDED, recorded

from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import CaptureError, EmptyCaptureError, NoGrpcError
from grpcdiag.analyzer.live import LiveCapture, Window
from grpcdiag.analyzer.model.analysis import Analysis

BESIDE = ("rpc-errors.pcap", "tls13-go.pcap", "lab/slow-connect.pcap", "wild/connect-mixed.pcap.zst")


def packets_of(data: bytes) -> Iterator[int]:
    """Where the records of a pcap file begin."""
    at = 24
    while at < len(data):
        yield at
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")


@contextmanager
def piped(data: bytes, step: int = 1 << 16) -> Iterator[int]:
    """Write bytes to a pipe, so many at a time, and give its other end."""
    output, into = os.pipe()

    def write() -> None:
        with os.fdopen(into, "wb", buffering=0) as pipe:
            for begin in range(0, len(data), step):
                pipe.write(data[begin : begin + step])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield output
    writer.join()
    os.close(output)


def read_whole(source: int | str) -> Window:
    """Cut once, at the end."""
    with LiveCapture(source) as live:
        while live.read(60):
            pass
        live.cut()
        return live.window()


def cut_evenly(path: str, pieces: int) -> tuple[LiveCapture, list[Window]]:
    """Cut a file into pieces of the same length, each of which is a window."""
    capture = decode([path], rpc_rows=False).capture
    first, last = capture["first_time_ns"], capture["last_time_ns"]
    live = LiveCapture(path, history=pieces)
    windows = []
    for piece in range(1, pieces):
        read_until(live, first + (last - first) * piece // pieces)
        live.cut()
        windows.append(live.window())
    while live.read(60):
        pass
    live.cut()
    return live, [*windows, live.window()]


def document(analysis: Analysis) -> bytes:
    """Write an analysis as JSON, with one name for all files."""
    return msgspec.json.encode(analysis).replace(msgspec.json.encode(analysis.files[0]), b'"run.pcap"')


@pytest.mark.parametrize("name", BESIDE)
def test_one_piece_is_analyzed_as_the_file_is(name: str) -> None:
    path = recorded(name)
    with piped(Path(path).read_bytes()) as pipe:
        window = read_whole(pipe)
    try:
        whole = of_tables(decode([path], rpc_rows=False))
    except NoGrpcError as error:
        assert error.analysis is not None
        whole = error.analysis
    assert document(window.analyze()) == document(whole)


def test_packets_that_come_by_single_bytes() -> None:
    path = recorded("lab/flow-control-deadlock.pcap.gz")
    with piped(gzip.decompress(Path(path).read_bytes())[:20_000], step=1) as pipe:
        slowly = read_whole(pipe)
    with piped(gzip.decompress(Path(path).read_bytes())[:20_000]) as pipe:
        assert document(slowly.analyze()) == document(read_whole(pipe).analyze())


def test_windows_show_each_call_as_it_ends() -> None:
    path = recorded("rpc-errors.pcap")
    whole = decode([path], rpc_rows=False)
    live, windows = cut_evenly(path, 5)
    ended = sum(method.complete for window in windows for method in window.tables.methods)
    assert ended == sum(method.complete for method in whole.methods)
    assert sum(window.tables.capture["packets"] for window in windows) == whole.capture["packets"]
    assert sum(window.tables.message_count for window in windows) == whole.message_count
    assert [window.first_packet for window in windows] == sorted({window.first_packet for window in windows})
    joined = live.window(5)
    assert (joined.first_packet, joined.end_ns) == (1, windows[-1].end_ns)
    assert [(m.name, m.rpcs, m.statuses, m.latency, m.budget) for m in joined.tables.methods] == [
        (m.name, m.rpcs, m.statuses, m.latency, m.budget) for m in whole.methods
    ]


def test_the_findings_of_all_pieces_are_those_of_the_capture() -> None:
    for name in ("slow-connect.pcap", "hung-rpc.pcap", "ping-storm.pcap.gz"):
        path = recorded(f"lab/{name}")
        live, _ = cut_evenly(path, 7)
        expected = [(one.id, one.lost_ns) for one in of_tables(decode([path], rpc_rows=False)).findings]
        assert [(one.id, one.lost_ns) for one in live.window(7).analyze().findings] == expected


def test_how_a_connection_was_set_up_is_found_once() -> None:
    _, windows = cut_evenly(recorded("wild/connect-syn-retry.pcap.zst"), 5)
    assert [[one.id for one in window.analyze().findings] for window in windows] == [[], ["slow-connect"], [], [], []]


def test_failed_calls_behind_a_silent_connection_are_analyzed() -> None:
    path = recorded("rpc-errors.pcap")
    data = Path(path).read_bytes()
    seconds, fraction, captured, length = struct.unpack_from("<IIII", data, 24)
    packet = bytearray(data[40 : 40 + captured])
    packet[34] ^= 1  # the client's port
    silent = struct.pack("<IIII", seconds - 13, fraction, captured, length) + packet
    with piped(data[:24] + silent + data[24:]) as pipe, LiveCapture(pipe, history=2) as live:
        read_until(live, (seconds - 5) * 10**9)
        live.cut()
        while live.read(60):
            pass
        live.cut()
        last, both = live.window(1), live.window(2)
    assert len(last.tables.connections.first_packet) == 1
    assert len(last.tables.repeats.connection) == len(both.tables.repeats.connection) > 0
    expected = [one.id for one in of_tables(decode([path], rpc_rows=False)).findings]
    assert [one.id for one in last.analyze().findings] == expected


def test_pieces_without_room_are_told() -> None:
    window = msgspec.structs.replace(read_whole(recorded("rpc-errors.pcap")), missing=3)
    assert (
        "the first 3 pieces of the window are left out: the others take all the room"
        in window.analyze().quality.warnings
    )


def test_what_is_no_capture_is_refused() -> None:
    with piped(b"no capture at all, but long enough for a header") as pipe, pytest.raises(CaptureError):
        read_whole(pipe)
    with piped(b"") as pipe, pytest.raises(EmptyCaptureError):
        read_whole(pipe)
    with pytest.raises(CaptureError):
        read_whole(str(RECORDED / "not-there.pcap"))


def test_there_is_no_window_before_the_first_cut() -> None:
    with LiveCapture(recorded("rpc-errors.pcap")) as live:
        read_until(live, 0)
        with pytest.raises(ValueError, match="no piece"):
            live.window()
        live.cut()
        window = live.window()
    assert (window.begin_ns, window.tables.capture["packets"]) == (None, 0)
    assert window.analyze().findings == ()


def test_a_pipe_that_stalls_is_read_as_far_as_it_goes() -> None:
    data = Path(recorded("rpc-errors.pcap")).read_bytes()
    output, into = os.pipe()
    with LiveCapture(output) as live:
        os.write(into, data[:30_000])
        packets = 0
        while live.state().packets < packets + 1 and live.read(0.01):
            pass
        live.cut()
        assert live.window().tables.capture["packets"] > 0
        assert not live.is_over
        os.close(into)
        assert not live.read(60)
    os.close(output)


@pytest.mark.parametrize("name", ["tls13-go", "tls/churn", "tls/slow-start"])
def test_secrets_that_are_written_meanwhile_are_read(tmp_path: Path, name: str) -> None:
    log, path = tmp_path / "run.keys", recorded(f"{name}.pcap")
    with piped(Path(path).read_bytes()) as output, LiveCapture(output, key_file=str(log)) as live:
        shutil.copy(recorded(f"{name}.keys"), log)
        while live.read(60):
            pass
        live.cut()
        window = live.window()
    assert window.tables.rpc_count == decode([path], keylog=log.read_bytes()).rpc_count > 0


@pytest.mark.parametrize("tail", [(296, 297, 298, 299), (296, 297)], ids=["with close_notify", "with FIN alone"])
def test_the_end_of_an_idle_connection_of_tls_is_no_failure_to_connect(tmp_path: Path, tail: tuple[int, ...]) -> None:
    """Its handshake is long past in the window of its end, which has an encrypted alert alone."""
    data = Path(recorded("tls13-go.pcap")).read_bytes()
    records = [data[begin:end] for begin, end in pairwise([*packets_of(data), len(data)])]
    seconds = int.from_bytes(records[0][:4], "little")
    late = [(int.from_bytes(records[one][:4], "little") + 30).to_bytes(4, "little") + records[one][4:] for one in tail]
    file = tmp_path / "run.pcap"
    file.write_bytes(data[:24] + b"".join([*records[:296], *late]))
    live = LiveCapture(str(file), history=60)
    read_until(live, (seconds + 20) * 10**9)
    live.cut()
    while live.read(60):
        pass
    live.cut()
    window = live.window(1)
    assert window.tables.setups.syns.tolist() == [0]
    assert "connect-failure" not in [finding.id for finding in window.analyze().findings]
