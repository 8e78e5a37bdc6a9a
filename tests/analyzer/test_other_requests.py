"""HTTP/2 requests that are no RPCs are counted by path and HTTP status."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import played
from support import synthetic

from grpcdiag.analyzer.analysis import analyze, of_part, of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis, OtherRequest
from grpcdiag.analyzer.selection.narrow import read
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.summary import other_requests
from grpcdiag.analyzer.tables import NO_METHOD
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS
from grpcdiag.reports import markdown, terminal


def mixed() -> Conversation:
    """Calls, health checks with queries, and a request that is open at the end."""
    conv = opened()
    conv.unary("/demo.Echo/Say", request=10, response=10)
    for number in range(3):
        conv.plain_request(f"/healthz?token=secret{number}")
    conv.advance(20 * MS)
    conv.plain_request("/\x1b[31mred")
    conv.settle()
    return conv


def test_requests_are_counted_by_path_without_query_and_status(tmp_path: Path) -> None:
    tables = played(mixed(), tmp_path)
    rows, analysis = tables.other_requests, of_tables(tables)
    health, red = analysis.other_requests
    assert (health.path, health.http_status, health.requests) == ("/healthz", 200, 3)
    assert health.longest_ns == rows.duration_ns[:3].max() > 0
    assert health.first_packet == rows.first_packet[0] < red.first_packet
    assert (rows.last_packet > rows.first_packet).all()
    assert sum(request.requests for request in analysis.other_requests) == analysis.totals.other_streams == 4


def test_requests_outside_the_selected_time_are_left_out(tmp_path: Path) -> None:
    """Three health checks, then 20 ms until the next request."""
    path = tmp_path / "mixed.pcap"
    path.write_bytes(write_pcap(Link().carry(mixed())))
    for chosen, counts in ((Selection(end=15 * MS), [3]), (Selection(), [3, 1])):
        analysis = of_part([str(path)], read([str(path)], chosen), chosen)
        assert [request.requests for request in analysis.other_requests] == counts
        assert analysis.totals.other_streams == sum(counts)


def test_reports_show_them_with_escaped_paths(tmp_path: Path) -> None:
    analysis = of_tables(played(mixed(), tmp_path))
    text = terminal.render(analysis)
    assert "4 HTTP/2 requests are no RPCs" in text
    assert "/healthz: HTTP status 200, 3 requests, longest" in text
    assert "\\x1b[31mred" in text
    assert "`/healthz`: HTTP status 200, 3 requests, longest" in markdown.render(analysis)
    assert not any("\x1b" in shown or "secret" in shown for shown in (text, markdown.render(analysis)))


def without_rpcs() -> Analysis:
    with pytest.raises(NoGrpcError) as error:
        analyze([synthetic("not_grpc").file])
    assert error.value.analysis is not None
    return error.value.analysis


def test_a_capture_without_rpcs_names_its_requests() -> None:
    analysis = without_rpcs()
    assert [request.path for request in analysis.other_requests] == ["/index.html", "/style.css", "/demo.Echo/Say"]
    assert "3 HTTP/2 requests are no RPCs" in terminal.render(analysis)


def test_what_the_capture_lacks_is_unknown() -> None:
    tables = decode([synthetic("not_grpc").file])
    rows = tables.other_requests
    rows.path[0], rows.http_status[0], rows.duration_ns[0] = NO_METHOD, 0, -1
    listed = other_requests.list_other_requests(tables)
    assert OtherRequest(None, None, 1, None, int(rows.first_packet[0])) in listed


def test_the_list_is_bounded_and_the_most_frequent_come_first(tmp_path: Path) -> None:
    conv = opened()
    conv.unary("/demo.Echo/Say", request=10, response=10)
    for number in range(other_requests.MOST + 5):
        conv.plain_request(f"/{number}")
    conv.plain_request("/often")
    conv.plain_request("/often")
    conv.settle()
    analysis = of_tables(played(conv, tmp_path))
    assert len(analysis.other_requests) == other_requests.MOST
    assert [request.path for request in analysis.other_requests[:3]] == ["/often", "/0", "/1"]
    assert "... and 95 more paths or statuses" in terminal.render(analysis)


def test_a_capture_without_other_requests_has_no_list() -> None:
    analysis = analyze([synthetic("unary").file])
    assert analysis.other_requests == ()
    assert "are no RPCs" not in terminal.render(analysis)
