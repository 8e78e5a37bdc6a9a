"""Calls through a proxy count once in fleets, where one recording proves it; the service map shows both legs."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

pytest.importorskip("fsspec")
from fleets import change_sums, fleet, split
from legs import CLIENT, NEAR_NS, OUTWARD, PROXY, SERVER, SERVER2, Leg, nothing, pass_on, request_id
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.hops import look
from grpcdiag.fixtures.bench.fleet import rows
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import in_time_order
from grpcdiag.fixtures.synthetic.packet import Captured, Endpoint
from grpcdiag.fixtures.synthetic.wire import Link, Vantage
from grpcdiag.fleet.answers import edges, html
from grpcdiag.fleet.answers.report import Report, report
from grpcdiag.fleet.answers.terminal import render

END: tuple[Endpoint, Endpoint, Vantage] = (CLIENT, PROXY, "server")
"""The leg before the proxy, recorded at the proxy."""
START: tuple[Endpoint, Endpoint, Vantage] = (OUTWARD, SERVER, "client")


Hosts = dict[str, list[tuple[Leg, Endpoint, Endpoint, Vantage]]]


def report_on(folder: Path, hosts: Hosts, names: dict[str, str] | None = None) -> Report:
    """Report on recordings, each the legs of one host."""
    for host, some in hosts.items():
        (folder / "captures" / host).mkdir(parents=True)
        packets = [packet for leg in some for packet in carry(*leg)]
        (folder / "captures" / host / "eth0.pcap").write_bytes(write_pcap(in_time_order(packets)))
    analyze_share(folder)
    return report(str(folder / "dataset"), names=names or {})


def analyze_share(folder: Path) -> None:
    """Analyze as a share of the work that is all of it: the report makes the summary."""
    fleet("analyze", str(folder / "captures"), "-o", str(folder / "dataset"), "--shard", "0/1")


def carry(leg: Leg, client: Endpoint, server: Endpoint, vantage: Vantage) -> list[Captured]:
    """The packets of a connection, with the same sequence numbers in all recordings."""
    isn = client.port * 1000
    link = Link(
        rtt_ns=NEAR_NS, client=client, server=server, vantage=vantage, connection=isn, client_isn=isn, close="none"
    )
    return link.carry(leg.conv)


def passed_on(ids: object = nothing, calls: int = 6) -> tuple[Leg, Leg]:
    front, back = Leg(), Leg()
    pass_on(front, back, ids, calls=calls)
    return front, back


def drawn(found: Report) -> list[tuple[str, str, str | None, int]]:
    return [(edge.client, edge.server, edge.proxy, edge.rpcs) for edge in found.service_map.edges]


@pytest.mark.parametrize("name", ["nginx-bothlegs-any", "nghttpx-bothlegs", "hop-buffering-a"])
def test_calls_through_a_recorded_proxy_count_as_in_analyze(tmp_path: Path, name: str) -> None:
    (tmp_path / "captures" / "proxy").mkdir(parents=True)
    path = recorded(f"wild/{name}.pcap.zst")
    (tmp_path / "captures" / "proxy" / "any.pcap.zst").write_bytes(Path(path).read_bytes())
    analyze_share(tmp_path)
    found, alone = report(str(tmp_path / "dataset")), analyze([path])
    calls = sum(method.rpcs for method in alone.methods)
    assert (found.rpcs, found.duration_ns) == (calls, sum(alone.budget.values()))
    front, back = found.service_map.edges
    assert (front.rpcs, front.proxy, back.proxy) == (calls, None, front.server)
    assert found.service_map.rpcs_behind_proxies == back.rpcs == alone.totals.rpcs
    assert back.rpcs_per_s and back.duration_ns < front.duration_ns and found.service_map.unjoined is None
    text, page = " ".join(render(found).split()), html.render(found)
    assert f"└ {back.client} -> {back.server}" in text and "counts once, as its leg before the proxy" in text
    assert f"behind the proxy <bdi>{back.proxy}</bdi>" in page and "counts once, as its leg before the proxy" in page


def test_a_compacted_dataset_counts_the_same(tmp_path: Path) -> None:
    front, back = passed_on(request_id)
    found = report_on(tmp_path, {"edge-1": [(front, *END), (back, *START)]})
    fleet("compact", str(tmp_path / "dataset"), "--finished")
    assert report(str(tmp_path / "dataset")) == found and found.service_map.rpcs_behind_proxies == 6


def test_recordings_of_too_many_rpcs_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "MOST_RPCS", 11)
    front, back = passed_on(request_id)
    found = report_on(tmp_path, {"edge-1": [(front, *END), (back, *START)]})
    assert found.rpcs == 12 and found.service_map.rpcs_behind_proxies == 0
    assert found.service_map.unjoined and found.service_map.unjoined.rpcs == 6


def test_an_attempt_that_a_proxy_repeats_is_no_failed_call(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    for number in range(6):
        start, ids = 20 + 100 * number, request_id(number)
        call = front.begin(start, ids)
        if number == 2:
            back.end(start + 12, back.begin(start + 6, ids), status=14)
        back.end(start + 32, back.begin(start + 20, ids))
        front.end(start + 40, call)
    found = report_on(tmp_path, {"proxy": [(front, *END), (back, *START)]})
    assert (found.rpcs, found.failed_rpcs, found.answers.fails) == (6, 0, None)
    assert [(edge.rpcs, edge.failed_rpcs) for edge in found.service_map.edges] == [(6, 0), (7, 1)]


@pytest.mark.parametrize(("at_proxy", "at_server"), [("client", "server"), ("middle", "middle")])
def test_a_leg_that_the_server_recorded_too_is_drawn_once(
    tmp_path: Path, at_proxy: Vantage, at_server: Vantage
) -> None:
    """Client and server recorded, and the proxy both of its sides; also where no vantage tells who is nearer."""
    front, back = passed_on(request_id)
    found = report_on(
        tmp_path,
        {
            "app-1": [(front, CLIENT, PROXY, "client")],
            "edge-1": [(front, *END), (back, OUTWARD, SERVER, at_proxy)],
            "db-1": [(back, OUTWARD, SERVER, at_server)],
        },
        {"10.0.0.2": "edge-1", "10.0.0.3": "db-1"},
    )
    assert drawn(found) == [("app-1", "edge-1:8080", None, 6), ("edge-1", "db-1:9000", "edge-1:8080", 6)]
    assert found.rpcs == 6 and found.service_map.unjoined is None


@pytest.mark.parametrize(("blocked_ms", "told"), [(2, False), (4, True)])
def test_what_was_blocked_behind_a_proxy_is_in_the_headline(tmp_path: Path, blocked_ms: int, told: bool) -> None:
    """Calls take 26 ms, of which their legs behind the proxy were blocked for 1 or 2 ms, 20th parts and more."""
    front, back = passed_on(request_id)
    report_on(tmp_path, {"edge-1": [(front, *END), (back, *START)]})
    ns = f"if(proxy IS NULL, 0, rpcs * {blocked_ms} * 500000)"
    budget = f"struct_update(budget, server := (budget.server - {ns})::BIGINT, stream_window := ({ns})::BIGINT)"
    change_sums(tmp_path / "dataset", f"{budget} AS budget")
    who = report(str(tmp_path / "dataset"), 1).answers.who
    said = (
        "Behind the proxy edge-1:8080, RPCs to 10.0.0.3:9000 were blocked for 12.0 ms of their 72.0 ms (stream_window)"
    )
    assert (said in who) == told and ("Behind the proxy" in who) == told


def test_legs_of_two_recordings_are_not_joined_and_this_is_told(tmp_path: Path) -> None:
    front, back = passed_on(request_id)
    found = report_on(
        tmp_path, {"app-1": [(front, CLIENT, PROXY, "client")], "shop-1": [(back, OUTWARD, SERVER, "server")]}
    )
    assert found.rpcs == 12 and found.service_map.rpcs_behind_proxies == 0
    told = "10.0.0.2 serves /demo.Store/Get and calls it, too (6 RPCs). If it passes calls on, they count twice"
    assert told in " ".join(render(found, width=200).split()) and told in html.render(found)


def test_a_server_that_calls_the_same_method_by_itself_passes_nothing_on(tmp_path: Path) -> None:
    """A cache that fetches on a timer: its calls lie inside none of those to it."""
    front, back = Leg(), Leg()
    for number in range(6):
        front.end(40 + 100 * number, front.begin(20 + 100 * number))
        back.end(90 + 100 * number, back.begin(70 + 100 * number))
    found = report_on(tmp_path, {"cache-1": [(front, *END), (back, *START)]})
    assert found.rpcs == 12 and [edge.proxy for edge in found.service_map.edges] == [None, None]
    assert found.service_map.unjoined and found.service_map.unjoined.rpcs == 6


def test_two_services_of_one_host_are_no_proxy(tmp_path: Path) -> None:
    """A host serves one method; another program on it calls another server's other method meanwhile."""
    front, back = Leg(), Leg()
    for number in range(6):
        call = front.begin(20 + 100 * number)
        back.at(26 + 100 * number)
        show = back.conv.start_rpc("/other.Ads/Show")
        show.send_message(20, end_stream=True)
        back.end(40 + 100 * number, show)
        front.end(60 + 100 * number, call)
    found = report_on(tmp_path, {"web-1": [(front, *END), (back, *START)]})
    assert found.rpcs == 12 and found.service_map.unjoined is None
    assert {edge.service for edge in found.service_map.edges} == {"demo.Store", "other.Ads"}


def test_peers_that_call_each_other_are_not_taken_for_proxies(tmp_path: Path) -> None:
    front, back = Leg(), Leg()
    for number in range(6):
        front.end(40 + 100 * number, front.begin(20 + 100 * number))
        back.end(90 + 100 * number, back.begin(70 + 100 * number))
    found = report_on(tmp_path, {"a": [(front, *END), (back, OUTWARD, CLIENT, "client")]})
    assert found.rpcs == 12 and found.service_map.unjoined is None


def test_parts_of_a_series_count_each_call_once(tmp_path: Path) -> None:
    front, back = passed_on(request_id, 60)
    whole = write_pcap(in_time_order([*carry(front, *END), *carry(back, *START)]))
    (tmp_path / "captures" / "edge-1").mkdir(parents=True)
    (tmp_path / "pieces").mkdir()
    split(whole, tmp_path / "pieces", "eth0.pcap", 3)
    for piece in sorted((tmp_path / "pieces").iterdir()):
        piece.rename(tmp_path / "captures" / "edge-1" / piece.name)
        analyze_share(tmp_path)
    found = report(str(tmp_path / "dataset"))
    assert (found.rpcs, found.service_map.rpcs_behind_proxies) == (60, 60)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("web-17", "web-*"),
        ("web-17:443", "web-*:443"),
        ("db", "db"),
        ("h2-proxy:80", "h2-proxy:80"),
        ("cart-7d9f8b6c5d-x2x4z", "cart-*"),
        ("cart-7d9f8b6c5d-x2x4z:50051", "cart-*:50051"),
        ("cart-service-tools", "cart-service-tools"),
        ("cart-eu1.example", "cart-eu*.example"),
        ("10.0.0.1:443", "10.0.0.1:443"),
        ("[fd00::1]:443", "[fd00::1]:443"),
        ("2001", "2001"),
    ],
)
def test_hosts_that_differ_in_a_number_are_one_group(host: str, group: str) -> None:
    with duckdb.connect() as database:
        assert database.execute(f"SELECT {edges._group('?')}", [host]).fetchone() == (group,)


def test_the_map_lists_what_takes_most_time_or_fails_and_counts_the_rest(tmp_path: Path) -> None:
    rows(tmp_path / "dataset", 10_000, 10)
    every = report(str(tmp_path / "dataset"), None).service_map
    few = report(str(tmp_path / "dataset"), 3).service_map
    assert every.more_edges == 0 and sum(edge.rpcs for edge in every.edges) == 10_000
    assert len(few.edges) == 3 and few.more_edges == len(every.edges) - 3
    assert few.more_rpcs == 10_000 - sum(edge.rpcs for edge in few.edges)
    assert max(every.edges, key=lambda edge: edge.duration_ns) in few.edges
    assert max(every.edges, key=lambda edge: (edge.failed_rpcs, edge.duration_ns)) in few.edges
    first = every.edges[0]
    assert (first.client, first.clients, first.service) == ("host-*", 10, "shop.v1.Pay")
    assert first.rpcs_per_s == pytest.approx(first.rpcs / 3600)
    assert f"{few.more_edges} more pairs with {few.more_rpcs:,} RPCs" in render(report(str(tmp_path / "dataset"), 3))


def test_a_pair_of_few_hosts_names_them(tmp_path: Path) -> None:
    """Two proxies are a group; behind it, each calls a server of its own."""
    near, far = (Endpoint("02:00:00:00:00:0a", f"10.0.1.{k}", 41000 + k) for k in (1, 2))
    proxy = Endpoint("02:00:00:00:00:0b", "10.0.1.9", 8080)
    (front, back), (front2, back2) = passed_on(request_id), passed_on(request_id)
    found = report_on(
        tmp_path,
        {
            "edge-1": [(front, *END), (back, *START)],
            "edge-2": [(front2, near, proxy, "server"), (back2, far, SERVER2, "client")],
        },
        {"10.0.0.1": "app", "10.0.1.1": "app", "10.0.1.9": "edge-2", "10.0.1.2": "edge-2"},
    )
    assert [(one.client, one.clients, one.server, one.servers, one.proxy) for one in found.service_map.edges] == [
        ("app", 1, "edge-*:8080", 2, None),
        ("edge-1", 1, "10.0.0.3:9000", 1, "edge-1:8080"),
        ("edge-2", 1, "10.0.0.4:9001", 1, "edge-2:8080"),
    ]


def test_addresses_of_one_name_are_one_end(tmp_path: Path) -> None:
    front, back = passed_on(request_id)
    legs: Hosts = {"edge-1": [(front, *END), (back, *START)]}
    found = report_on(tmp_path, legs, {"10.0.0.1": "app", "edge-1": "gateway", "10.0.0.3": "shop"})
    assert drawn(found) == [("app", "gateway:8080", None, 6), ("gateway", "shop:9000", "gateway:8080", 6)]


def test_proxies_in_a_circle_are_drawn_once_each() -> None:
    edge = edges.Edge(
        client="a",
        clients=1,
        server="b:1",
        servers=1,
        service="s",
        proxy="c:1",
        rpcs=1,
        rpcs_per_s=None,
        failed_rpcs=0,
        duration_ns=1,
        lost_ns=0,
        p50_ns=None,
        p99_ns=None,
        budget={},
    )
    other = replace(edge, client="b", server="c:1", proxy="b:1")
    call = replace(edge, proxy=None, server="d:1")
    listed = [(edge, "b:1", "c:1"), (call, "d:1", ""), (other, "c:1", "b:1")]
    assert list(edges._put_behind(listed)) == [call, edge, other]
