"""`connection-churn`: one connection after the other for a call each; pools and long connections are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from detecting import evidence_is_in_the_packets, the_finding
from judging import changed, must, tables_of_scene, told
from msgspec.structs import replace
from support import recorded, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import connection_churn
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scenes_failures import connections
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["lab/connection-churn"]
QUIET_ON = ["impl-go", "ydb-unary-single-inflight1"]


def test_synthetic() -> None:
    """The handshake takes one round trip of 1 ms, SETTINGS another one and a half; the call takes 2 ms."""
    capture = synthetic("failures-churn")
    found = must(connection_churn, decode([capture.file]))
    assert (found.severity, found.lost_ns, found.metrics["connections"]) == ("warning", None, 8)
    assert (found.metrics["open_at_once"], found.metrics["rpcs_per_connection"]) == (1, 1.0)
    assert found.metrics["setup_p50_ns"] == pytest.approx(2.5 * MS, rel=0.01)
    assert found.metrics["setup_round_trips"] == pytest.approx(2.5, rel=0.01)
    assert found.metrics["setup_share"] == pytest.approx(2.5 / 4.5, rel=0.01)


def test_connections_that_the_server_ends_are_not_the_clients_choice() -> None:
    """A client that opens one connection after the other is told so; one that loses each of its connections is not."""
    ended = must(connection_churn, decode([recorded("wild/tomcat-overhead.pcap.zst")]))
    assert (ended.metrics["ended_by_server"], ended.metrics["connections"]) == (20, 20)
    assert "find out why server 10.77.0.2 ends them" in ended.verdict
    assert not any("channel" in remedy.knob for remedy in ended.remedies)
    closed = must(connection_churn, decode([recorded("lab/connection-churn.pcap")]))
    assert closed.metrics["ended_by_server"] == 0
    assert "create one channel" in closed.verdict


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("connect-node-idle", "client 10.77.0.1 ends them about 302 ms after a call"),
        ("envoy-connection-idle", "server 10.77.0.2 ends them about 501 ms after a call"),
        ("grpcio-device-idle", "server 10.77.0.2, or a device on the way, ends them about 621 ms after a call"),
        ("pekko-idle", "server 10.77.0.2 ends them about 670 ms after a call"),
    ],
)
def test_connections_that_an_idle_timeout_ends(name: str, words: str) -> None:
    """The client keeps one transport, and ends it after 300 ms; Envoy after 500, Pekko after 600 and a tick."""
    files = [recorded(f"wild/{name}.pcap.zst")]
    found = must(connection_churn, decode(files))
    assert f"{words}, so raise that idle timeout" in found.verdict
    assert "idle timeout" in found.remedies[0].knob + found.remedies[0].note
    assert "idle timeout" not in must(connection_churn, decode([recorded("lab/connection-churn.pcap")])).verdict


@pytest.fixture
def side_by_side(tmp_path: Path) -> Callable[[int, int], Tables]:
    def made(count: int, apart_ns: int) -> Tables:
        path = tmp_path / "connections.pcap"
        path.write_bytes(connections(count, apart_ns).file())
        return decode([str(path)])

    return made


@pytest.mark.parametrize(("count", "fires"), [(4, False), (5, True)])
def test_five_generations(side_by_side: Callable[[int, int], Tables], count: int, fires: bool) -> None:
    assert (told(connection_churn, side_by_side(count, 100 * MS)) is not None) is fires


@pytest.mark.parametrize(("count", "fires"), [(9, False), (10, True)])
def test_two_at_once_need_twice_as_many(side_by_side: Callable[[int, int], Tables], count: int, fires: bool) -> None:
    """A connection is open for some 49 ms: every second one is opened before the one before it is closed."""
    found = told(connection_churn, side_by_side(count, 30 * MS))
    assert (found is not None) is fires
    if found:
        assert found.metrics["open_at_once"] == 2


def churning() -> Tables:
    return tables_of_scene("failures-churn")


def lasting(tables: Tables, milliseconds: list[int]) -> Tables:
    """The tables with RPC time per connection, all of it the server's."""
    budgets = np.zeros_like(tables.connection_budgets)
    budgets[:, CAUSES.index("server")] = np.array(milliseconds) * MS
    methods = (replace(tables.methods[0], budget=tuple(budgets.sum(axis=0).tolist())),)
    return replace(tables, connection_budgets=budgets, methods=methods)


def test_connections_that_are_used_are_no_churn() -> None:
    assert told(connection_churn, changed(churning(), "connections", rpcs=[10] * 8)) is not None
    assert told(connection_churn, changed(churning(), "connections", rpcs=[11] * 8)) is None


def test_long_calls_pay_for_their_connection() -> None:
    """Set-up of 2.5 ms against calls of 100 s is nothing."""
    assert told(connection_churn, lasting(churning(), [100_000] * 8)) is None
    assert must(connection_churn, lasting(churning(), [30] * 8)).severity == "info"


def test_connections_opened_early_are_left_out() -> None:
    table = churning().connections

    def earlier(by_ns: int) -> Tables:
        opened, closed = table.opened_time_ns - by_ns, table.closed_time_ns - by_ns
        return changed(churning(), "connections", opened_time_ns=opened, closed_time_ns=closed)

    assert must(connection_churn, earlier(997 * MS)).metrics["setup_p50_ns"] == pytest.approx(999.5 * MS, rel=0.001)
    assert told(connection_churn, earlier(998 * MS)) is None


def test_other_servers_are_counted_apart() -> None:
    ports = np.array([1, 1, 1, 1, 2, 2, 2, 2])
    assert told(connection_churn, changed(churning(), "connections", server_port=ports)) is None


def test_churn_beside_busy_traffic_is_for_information() -> None:
    """The calls of another server, half of the time of all RPCs and more, on a connection of their own."""
    tables = churning()
    ports = np.array([1, 1, 1, 1, 1, 1, 1, 2])
    for long, severity in ((100, "warning"), (1000, "info")):
        sidecar = lasting(changed(tables, "connections", server_port=ports), [2] * 7 + [long])
        assert must(connection_churn, sidecar).severity == severity


def test_critical_needs_many() -> None:
    assert must(connection_churn, churning(), critical_connections=8).severity == "critical"
    assert must(connection_churn, churning(), critical_connections=9).severity == "warning"
    assert must(connection_churn, churning(), critical_connections=8, critical_share=0.6).severity == "warning"


def test_a_proxy_that_closes_at_each_ping() -> None:
    finding = the_finding(connection_churn, [recorded("wild/nginx-keepalive-pings.pcap.zst")])
    assert "after a PING of server" in finding.explanation
    assert "closes them when server 127.0.0.1:7102 sends a PING" in finding.verdict
    assert "the server's keepalive time" in finding.remedies[0].knob
    evidence_is_in_the_packets(finding, [recorded("wild/nginx-keepalive-pings.pcap.zst")])


@pytest.mark.parametrize(("later_ns", "pinged"), [(0, True), (1_000_000, False)])
def test_a_close_that_comes_later_answers_no_ping(later_ns: int, pinged: bool) -> None:
    tables = decode([recorded("wild/nginx-keepalive-pings.pcap.zst")])
    later = changed(tables, "closings", time_ns=tables.closings.time_ns + later_ns)
    (finding,) = connection_churn.detect(later, connection_churn.Limits())
    assert isinstance(finding, Finding)
    assert ("PING" in finding.verdict) == pinged


def edges(_folder: Path) -> Iterator[Tables]:
    """Connections that are used, and others whose calls are so long that their set-up is nothing."""
    yield changed(churning(), "connections", rpcs=[11] * 8)
    yield lasting(churning(), [300] * 8)
    pinged = decode([recorded("wild/nginx-keepalive-pings.pcap.zst")])
    yield changed(pinged, "closings", time_ns=pinged.closings.time_ns + 1_000_000)
