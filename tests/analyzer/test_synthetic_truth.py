"""Synthetic captures against what their bytes hold, read by hyperframe and hpack.

A null in the truth says nothing: the decoder may know more or less. For RPCs with `exact: false` some bytes are
missing: what the truth counts holds, what a decoder finds of it may be less.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SYNTHETICS, Synthetic, rows, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.tables import COMPLETE, DIRECTIONS, NOT_SEEN, PROTOCOLS, Frames, Messages, Tables
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import begin_late
from grpcdiag.fixtures.synthetic.scenes_turns import in_step
from grpcdiag.fixtures.synthetic.wire import Link

CAPTURES = [pytest.param(s, id=s.name) for s in SYNTHETICS]
WHOLE = [s for s in SYNTHETICS if all(r["exact"] for r in s.truth["rpcs"])]
EXACT = [pytest.param(s, id=s.name) for s in WHOLE]
COUNTS = ("request_messages", "response_messages", "request_bytes", "response_bytes")
TIMES = ("start_time_ns", "duration_ns")
FRAME_COLUMNS = ("connection", "direction", "stream", "type", "flags", "length")
MESSAGE_COLUMNS = ("connection", "stream", "direction", "index", "length", "compressed")
ENDS = ("first_packet", "first_time_ns", "last_packet", "last_time_ns")

# In these files bytes arrive before the bytes in front of them. The truth places every byte in the packet that carries
# it; a reader of TCP has a frame, and an RPC its end, when the bytes in front are there as well, which is later.
OUT_OF_ORDER = {"out_of_order_file", "reordering", "retransmission", "capture_hole"}
OUT_OF_ORDER |= {"loss-fires-response", "loss-quiet-reordered"}
# In these files the client never acknowledges the last response, so it had not received it.
UNRECEIVED = {"mtu-black-hole-quiet-full-before", "mtu-black-hole-server", "mtu-black-hole-server-twice"}
ENDING = {"status", "complete", "duration_ns"}


def rpc_rows(tables: Tables) -> dict[tuple[int, int], dict[str, Any]]:
    found, r = {}, tables.rpcs
    for row, key in enumerate(zip(r.connection.tolist(), r.stream.tolist(), strict=True)):
        deadline = int(tables.deadlines[row]) if row < len(tables.deadlines) else -1
        found[key] = {
            "method": tables.method_name(int(r.method[row])),
            "status": None if r.status[row] == NOT_SEEN else _core.STATUSES[r.status[row]],
            "complete": bool(r.flags[row] & COMPLETE),
            "deadline_ns": None if deadline < 0 else deadline,
            **{name: int(getattr(r, name)[row]) for name in (*COUNTS, *TIMES)},
        }
    assert len(found) == len(r.stream), "two RPCs on one stream"
    return found


@pytest.mark.parametrize("capture", EXACT)
def test_rpcs(capture: Synthetic) -> None:
    found = rpc_rows(decode([capture.file]))
    expected = {(r["connection"], r["stream"]): r for r in capture.truth["rpcs"]}
    assert found.keys() == expected.keys()
    for key, rpc in expected.items():
        unreceived = capture.name in UNRECEIVED and found[key]["status"] is None
        told = [name for name in found[key] if rpc[name] is not None and not (unreceived and name in ENDING)]
        if capture.name in OUT_OF_ORDER:
            told.remove("duration_ns")
            assert found[key]["duration_ns"] >= rpc["duration_ns"], key
        assert {name: found[key][name] for name in told} == {name: rpc[name] for name in told}, key


def test_a_connection_that_began_before_the_capture() -> None:
    """The truth is conservative about names that HPACK may have learnt before; sizes and times are known."""
    capture = synthetic("begun_late")
    tables = decode([capture.file])
    assert tables.connections.complete.tolist() == [0]
    assert any(rpc["method"] is None for rpc in capture.truth["rpcs"])
    assert any(rpc["method"] is not None for rpc in capture.truth["rpcs"])


@pytest.mark.parametrize("name", ["capture_hole", "snaplen_96"])
def test_missing_bytes_never_invent(name: str) -> None:
    capture = synthetic(name)
    tables = decode([capture.file])
    found = rpc_rows(tables)
    expected = {(r["connection"], r["stream"]): r for r in capture.truth["rpcs"]}
    assert found.keys() <= expected.keys()
    assert len(found) >= sum(rpc["exact"] for rpc in capture.truth["rpcs"])
    for key, rpc in found.items():
        # null says nothing: the cut packet still holds the path of the first request
        assert expected[key]["method"] is None or rpc["method"] in (expected[key]["method"], None)
        assert rpc["status"] in (expected[key]["status"], None)
        # where a cut hides the rest, a surviving frame header and prefix tell more bytes than the truth asks for
        sent = {"request_bytes": tables.connections.bytes_client, "response_bytes": tables.connections.bytes_server}
        most = {c: expected[key][c] for c in COUNTS}
        if not expected[key]["exact"]:
            most |= {c: max(most[c], int(bytes_.sum())) for c, bytes_ in sent.items()}
        assert all(rpc[count] <= most[count] for count in COUNTS)
        assert rpc["start_time_ns"] == expected[key]["start_time_ns"]
        if expected[key]["exact"]:
            assert {c: rpc[c] for c in COUNTS} == {c: expected[key][c] for c in COUNTS}
    missing = capture.truth.get("missing_bytes", capture.truth.get("truncated_bytes"))
    assert tables.connections.missing_bytes.sum() == missing
    assert tables.capture["truncated_packets"] == capture.truth.get("truncated_packets", 0)


@pytest.mark.parametrize("capture", CAPTURES)
def test_totals(capture: Synthetic) -> None:
    tables = decode([capture.file])
    assert int((tables.connections.protocol == PROTOCOLS.index("http2")).sum()) == capture.truth["connections"]
    expected = dict(capture.truth["frames"])
    if all(rpc["exact"] for rpc in capture.truth["rpcs"]):
        assert dict(sorted(tables.frame_counts.items())) == expected
        assert tables.message_count == capture.truth["messages"]
    else:
        assert all(n <= expected[name] for name, n in tables.frame_counts.items())
        assert tables.message_count <= capture.truth["messages"]
    if "dropped_packets" in capture.truth:
        assert tables.capture["dropped_packets"] == capture.truth["dropped_packets"]


def test_packets_are_numbered_as_in_the_file() -> None:
    for capture in SYNTHETICS:
        if capture.name != "fragments":  # whose truth counts datagrams' packets, as the file does
            assert decode([capture.file]).capture["packets"] == capture.truth["packets"], capture.name


def test_not_grpc_is_told() -> None:
    capture = synthetic("not_grpc")
    assert capture.truth["rpcs"] == []
    with pytest.raises(NoGrpcError, match="HTTP/2 without gRPC"):
        analyze([capture.file])


def in_direction(records: list[dict[str, Any]], names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Rows by connection and direction, which is the order of the truth."""
    ordered = sorted(records, key=lambda r: (r["connection"], DIRECTIONS.index(r["direction"])))
    return [tuple(record[name] for name in names) for record in ordered]


def frame_records(table: Frames) -> list[dict[str, Any]]:
    names = [*_core.FRAME_TYPES, *["UNKNOWN"] * 256]
    columns: dict[str, list[Any]] = {
        name: getattr(table, name).tolist() for name in ("connection", "stream", "flags", "length", *ENDS)
    }
    columns["direction"] = [DIRECTIONS[d] for d in table.direction.tolist()]
    columns["type"] = [names[kind] for kind in table.kind.tolist()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def message_records(table: Messages) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {
        name: getattr(table, name).tolist() for name in ("connection", "stream", "index", "length", *ENDS)
    }
    columns["direction"] = [DIRECTIONS[d] for d in table.direction.tolist()]
    columns["compressed"] = table.compressed.astype(bool).tolist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


LISTED = [pytest.param(s, id=s.name) for s in WHOLE if s.truth["frame_list"] is not None]


@pytest.mark.parametrize("capture", LISTED)
def test_frames_one_by_one(capture: Synthetic) -> None:
    """Type, flags, length and the packets and times of both ends of every frame; in order files also byte for byte."""
    names = FRAME_COLUMNS if capture.name in OUT_OF_ORDER else (*FRAME_COLUMNS, *ENDS)
    found = frame_records(rows(Frames, [capture.file]))
    assert in_direction(found, names) == in_direction(capture.truth["frame_list"], names)


@pytest.mark.parametrize("capture", [pytest.param(s, id=s.name) for s in WHOLE if s.truth["message_list"] is not None])
def test_messages_one_by_one(capture: Synthetic) -> None:
    names = MESSAGE_COLUMNS if capture.name in OUT_OF_ORDER else (*MESSAGE_COLUMNS, *ENDS)
    found = message_records(rows(Messages, [capture.file]))
    assert Counter(in_direction(found, names)) == Counter(in_direction(capture.truth["message_list"], names))


@pytest.mark.parametrize("capture", [pytest.param(s, id=s.name) for s in WHOLE if s.name in OUT_OF_ORDER])
def test_out_of_order_bytes_complete_later(capture: Synthetic) -> None:
    """A frame begins in the packet with its first byte; it is whole no earlier than the packet with its last byte."""
    if capture.truth["frame_list"] is None:
        pytest.skip("the truth lists no frames of this capture")
    found = in_direction(frame_records(rows(Frames, [capture.file])), ENDS)
    expected = in_direction(capture.truth["frame_list"], ENDS)
    ours, theirs = np.array(found), np.array(expected)
    assert (ours[:, 0] == theirs[:, 0]).all()
    assert (ours[:, 2] >= theirs[:, 2]).all()


def test_streams_that_all_began_before_the_capture_are_followed(tmp_path: Path) -> None:
    packets = Link(rtt_ns=100_000).carry(in_step(4, 300_000))
    late = tmp_path / "late.pcap"
    late.write_bytes(write_pcap(begin_late(packets, len(packets) // 2)[:-12]))
    totals = analyze([str(late)]).totals
    assert (totals.rpcs, totals.rpcs_begun_before) == (4, 4)
    assert totals.messages > 8
