"""gRPC-Web over HTTP/1.1 is decoded; a capture of it that lacks packets gives no status that was not sent."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from lessened import capture_of, filed
from support import RECORDED, require_tool, run_here

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.tables import NOT_SEEN, PROTOCOLS, Tables

WEB = str(RECORDED / "wild" / "web-http1.pcap")
JSON = str(RECORDED / "wild" / "http1-json.pcap.zst")
SENT = {
    "/demo.Web/Gone": "UNAVAILABLE",
    "/demo.Web/Missing": "NOT_FOUND",
    "/demo.Web/Say": "OK",
    "/demo.Web/Sized": "OK",
    "/demo.Web/Slow": "OK",
    "/demo.Web/Stream": "OK",
    "/demo.Web/TrailersOnly": "UNIMPLEMENTED",
}
"""The status that the server gave each method's calls."""


def list_statuses(tables: Tables) -> list[tuple[str | None, str | None]]:
    """List method and status of each RPC; None for a status that was not seen."""
    return [
        (tables.method_name(method), None if status == NOT_SEEN else _core.STATUSES[status])
        for method, status in zip(tables.rpcs.method.tolist(), tables.rpcs.status.tolist(), strict=True)
    ]


def test_each_request_is_an_rpc() -> None:
    tables = decode([WEB])
    rpcs, connections = tables.rpcs, tables.connections
    assert Counter(list_statuses(tables)) == {
        (method, SENT[method]): count
        for method, count in (
            ("/demo.Web/Say", 25),
            ("/demo.Web/Sized", 5),
            ("/demo.Web/Stream", 5),
            ("/demo.Web/Slow", 2),
            ("/demo.Web/Missing", 3),
            ("/demo.Web/TrailersOnly", 2),
            ("/demo.Web/Gone", 3),
        )
    }
    assert rpcs.stream.tolist() == list(range(1, 90, 2))
    assert {_core.RPC_PROTOCOLS[number] for number in rpcs.protocol.tolist()} == {"grpc-web"}
    streamed = rpcs.response_messages == 5
    assert {tables.method_name(number) for number in rpcs.method[streamed].tolist()} == {"/demo.Web/Stream"}
    assert (rpcs.response_bytes[streamed] == 1_000).all()
    assert (rpcs.request_messages == 1).all()
    assert (tables.deadlines == 2_000_000_000).all()
    assert PROTOCOLS[connections.protocol[0]] == "http1"
    new_bytes = connections.payload_bytes[0] - connections.retransmitted_bytes[0]
    assert connections.decoded_bytes[0] + connections.not_http2_bytes[0] == new_bytes
    assert 0 < connections.not_http2_bytes[0] < 600, "the preflight and the JSON request"
    assert tables.other_streams == 0


def test_plain_http1_is_another_protocol() -> None:
    with pytest.raises(NoGrpcError, match=r"1 connection is HTTP/1; of HTTP/1\.1 only gRPC-Web and Connect are read"):
        analyze([JSON])
    connections = decode([JSON]).connections
    assert PROTOCOLS[connections.protocol[0]] == "other"
    assert connections.not_http2_bytes[0] == connections.payload_bytes[0] - connections.retransmitted_bytes[0] > 0


def check_statuses(tables: Tables) -> None:
    for method, status in list_statuses(tables):
        assert method is None or status in (None, SENT[method])


def test_missing_packets_give_no_wrong_status() -> None:
    whole = capture_of([WEB])
    seen = 0
    for gone in range(1, len(whole) + 1):
        with filed(whole.without([gone])) as files:
            tables = decode(files)
        check_statuses(tables)
        seen += len(tables.rpcs.stream)
    assert seen > 20 * len(whole), "most RPCs stand before the missing packet"


def test_captures_that_begin_late_or_end_early_give_no_wrong_status() -> None:
    whole = capture_of([WEB])
    late = 0
    for cut in range(1, len(whole), 2):
        with filed(whole.without(range(1, cut + 1))) as files:
            tables = decode(files)
        check_statuses(tables)
        late += bool(len(tables.rpcs.stream))
        with filed(whole.without(range(cut + 1, len(whole) + 1))) as files:
            check_statuses(decode(files))
    assert late > 20, "a capture that begins between two requests is read"


@pytest.mark.parametrize("length", [68, 96, 200, 300])
def test_packets_cut_by_the_snaplen_give_no_wrong_status(length: int) -> None:
    with filed(capture_of([WEB]).snapped(length)) as files:
        check_statuses(decode(files))


def test_one_direction_alone_gives_no_status() -> None:
    whole = capture_of([WEB])
    ports = [int.from_bytes(whole.record(number)[16 + 34 : 16 + 36], "big") for number in range(1, len(whole) + 1)]
    assert len(set(ports)) == 2
    for port in set(ports):
        with filed(whole.without([number for number, source in enumerate(ports, 1) if source == port])) as files:
            assert (decode(files).rpcs.status == NOT_SEEN).all()


def test_a_scrubbed_copy_has_none_of_it(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    outcome = run_here("scrub", WEB, "-o", str(out))
    assert outcome.code == 0, outcome.err
    assert "is not HTTP/2: the payload is zeroed" in outcome.err
    assert not any(name in out.read_bytes() for name in (b"demo.Web", b"rrrr", b"cnJy"))


def test_wireshark_has_nothing_to_say_of_it() -> None:
    require_tool("tshark")
    assert run_here("verify", WEB).code == 0


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("GRPCDIAG_THREADS", threads)
        found.append(decode([WEB], rpc_rows=False).rpcs)
    for name in found[0].__struct_fields__:
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name)), name


def test_connect_by_get_is_an_rpc() -> None:
    """connect-web with `useHttpGet`: its callers saw 18 answers and 12 times not_found."""
    tables = decode([str(RECORDED / "wild" / "connect-web-get.pcap.zst")])
    assert Counter(list_statuses(tables)) == {("/demo.Demo/Get", "OK"): 18, ("/demo.Demo/Get", "NOT_FOUND"): 12}
    assert {_core.RPC_PROTOCOLS[number] for number in tables.rpcs.protocol.tolist()} == {"connect"}
    assert {PROTOCOLS[number] for number in tables.connections.protocol.tolist()} == {"http1"}
