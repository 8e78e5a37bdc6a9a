"""Proxies are recognised where both of their sides are in the capture; equal servers of one client are none."""

from __future__ import annotations

import numpy as np
import pytest
from judging import changed
from msgspec.structs import replace
from support import RECORDED, recorded

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.summary import hops
from grpcdiag.analyzer.summary.hops import describe_proxies, find_proxies
from grpcdiag.analyzer.tables import NO_METHOD, Tables

PROXIES = {
    "any-nat": ("10.96.0.10:80", "and 10.78.2.2:7300 get the same packets, so a NAT"),
    "hop-backend-slow-a": ("10.77.238.2:8080", "the 191 RPCs to 10.78.238.2:9001 lie inside its 191 RPCs"),
    "hop-buffering-a": ("10.77.242.2:8080", "the 12 RPCs to 10.78.242.2:9001 lie inside its 12 RPCs"),
    "nghttpx-bothlegs": ("127.0.0.1:9001", "the 100 RPCs to 127.0.0.2:9002 lie inside its 100 RPCs"),
    "nghttpx-bothlegs-cut": ("127.0.0.1:9001", "the 59 RPCs to 127.0.0.2:9002 lie inside its 60 RPCs"),
    "nginx-keepalive-pings": ("127.0.0.1:7101", "the 6 RPCs to 127.0.0.1:7102 lie inside its 6 RPCs"),
    "nginx-bothlegs-any": ("10.91.3.2:8002", "the 200 RPCs to 127.0.0.1:9000 lie inside its 200 RPCs"),
    "hop-proxy-slow-a": ("10.77.70.2:8080", "the 177 RPCs to 10.78.70.2:9001 lie inside its 177 RPCs"),
}


@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in (RECORDED / "wild").glob("*.zst")))
def test_proxies_alone_are_named(name: str) -> None:
    found = list(describe_proxies(decode([recorded(f"wild/{name}.pcap.zst")], rpc_rows=False)))
    if name not in PROXIES:
        assert found == []
        return
    proxy, words = PROXIES[name]
    assert len(found) == 1
    assert found[0].startswith(f"{proxy} {'and' if name == 'any-nat' else 'looks like a proxy:'}")
    assert words in found[0]


@pytest.mark.parametrize(("lacks", "words"), [(0.04, "looks like a proxy or a NAT:"), (0.06, "looks like a proxy:")])
def test_a_nat_of_which_some_packets_are_missing(lacks: float, words: str) -> None:
    tables = decode([recorded("wild/any-nat.pcap.zst")], rpc_rows=False)
    c = tables.connections
    behind = c.server_port == 7300
    fewer = np.where(behind, c.bytes_server * (1 - lacks), c.bytes_server).astype(c.bytes_server.dtype)
    (found,) = describe_proxies(changed(tables, "connections", bytes_server=fewer))
    assert found.startswith(f"10.96.0.10:80 {words}")


def test_one_client_of_both_servers_is_no_proxy() -> None:
    tables = decode([recorded("wild/nginx-bothlegs-any.pcap.zst")], rpc_rows=False)
    one = changed(tables, "connections", client_ip=np.zeros_like(tables.connections.client_ip))
    assert list(describe_proxies(one)) == []


def test_rpcs_that_do_not_lie_inside_others_are_not_passed_on() -> None:
    """The same capture with the backend's RPCs a second later."""
    tables = decode([recorded("wild/nginx-bothlegs-any.pcap.zst")], rpc_rows=False)
    behind = tables.connections.server_port[tables.rpcs.connection] == 9000
    later = tables.rpcs.start_time_ns + np.where(behind, 1_000_000_000, 0)
    assert list(describe_proxies(changed(tables, "rpcs", start_time_ns=later))) == []


def seen_twice() -> tuple[Tables, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The capture of a proxy's both sides, and which RPCs are those to its backend."""
    tables = decode([recorded("wild/nginx-bothlegs-any.pcap.zst")], rpc_rows=False)
    return tables, tables.connections.server_port[tables.rpcs.connection] == 9000


@pytest.mark.parametrize(("inside", "named"), [(9, True), (11, False)])
def test_rpcs_that_lie_inside_each_other_are_not_passed_on(inside: int, named: bool) -> None:
    """So many of 20 RPCs begin and end with those to the backend; the others begin a second earlier."""
    tables, behind = seen_twice()
    earlier = np.zeros(len(behind), dtype=np.int64)
    earlier[~behind] = np.where(np.arange((~behind).sum()) % 20 < inside, 0, 1_000_000_000)
    start = int(tables.rpcs.start_time_ns.min())
    alike = changed(tables, "rpcs", start_time_ns=start - earlier, duration_ns=1_000_000 + earlier)
    assert bool(list(describe_proxies(alike))) == named


@pytest.mark.parametrize(("calls", "named"), [(2, False), (3, True)])
def test_two_rpcs_prove_no_proxy(calls: int, named: bool) -> None:
    tables, behind = seen_twice()
    methods = tables.rpcs.method.copy()
    methods[np.flatnonzero(behind)[calls:]] = NO_METHOD
    assert bool(list(describe_proxies(changed(tables, "rpcs", method=methods)))) == named


def test_rpcs_without_rows_do_not_speak_against_a_proxy() -> None:
    """Of each connection's RPCs only the first 32 have rows in any case: what began later may lie in others."""
    tables, behind = seen_twice()
    methods = tables.rpcs.method.copy()
    for connection in set(tables.rpcs.connection[~behind].tolist()):
        methods[np.flatnonzero(tables.rpcs.connection == connection)[32:]] = NO_METHOD
    assert 0 < int(((methods != NO_METHOD) & ~behind).sum()) < 0.9 * int((~behind).sum())
    (sentence,) = describe_proxies(changed(tables, "rpcs", method=methods))
    assert sentence.startswith("10.91.3.2:8002 looks like a proxy")


@pytest.mark.parametrize("why", ["one client", "other methods"])
def test_rpcs_are_not_looked_at_where_there_can_be_no_proxy(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, _ = seen_twice()
    if why == "one client":
        c, ports = tables.connections, tables.connections.server_port
        servers = {"client_ip": np.zeros_like(c.client_ip), "server_ip": np.where(ports == 9000, 1, 2)}
        tables = replace(changed(tables, "connections", **servers), addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    else:
        used = tables.connection_methods
        tables = changed(tables, "connection_methods", method=np.arange(len(used.method)).astype(used.method.dtype))
    monkeypatch.setattr(hops, "_take_side", None)
    assert list(describe_proxies(tables)) == []


def test_a_capture_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, _ = seen_twice()
    first = find_proxies(tables)
    monkeypatch.setattr(hops, "_look", None)
    assert find_proxies(tables) is first
    assert len(list(describe_proxies(tables))) == 1
