"""`connection-closed-early` about idle connections that a server closed without GOAWAY, and what resembles them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judging import changed, must, told
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import connection_closed_early, idle_connection_cut
from grpcdiag.analyzer.facts.draining import name_grace
from grpcdiag.analyzer.tables import Tables


def read_idle() -> Tables:
    """Pekko's idle timeout was 600 ms; its timer ticks each 75 ms."""
    return decode([recorded("wild/pekko-idle.pcap.zst")])


def test_a_server_with_an_idle_timeout() -> None:
    found = must(connection_closed_early, read_idle())
    assert (found.severity, found.confidence) == ("info", "high")
    assert (found.metrics["connections"], found.metrics["resets"]) == (5, 5)
    assert 600e6 <= float(found.metrics["silence_ns"]) <= 675e6 + 10e6
    assert found.remedies[0].knob == "pekko.http.server.idle-timeout"


def test_a_fin_is_as_good_as_a_rst() -> None:
    found = must(connection_closed_early, changed(read_idle(), "closings", reset=[0] * 5))
    assert "by FIN" in found.verdict


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("direction", [0] * 5),  # a client that resets
        ("acknowledges", [0] * 5),  # an end that does not know the connection
        ("ttl", [59] * 5),  # a device between
        ("lacks", [1] * 5),  # the RST crossed bytes of the client, or these were lost
        ("open_rpcs", [1] * 5),
        ("direction", [1, 1, 0, 0, 0]),  # two connections may be alike by chance
    ],
)
def test_ends_of_another_kind(column: str, values: list[int]) -> None:
    tables = read_idle()
    other = changed(tables, "closings", **{column: values})
    if column == "direction":
        other = changed(other, "connections", closed_by=values)
    assert told(connection_closed_early, other) is None


def test_a_device_may_have_sent_resets_that_do_not_continue_the_servers_packets() -> None:
    """A device at the server's distance reset both ends after 0.6 s; the server itself has no limit."""
    tables = decode([recorded("wild/grpcio-device-idle.pcap.zst")])
    found = must(connection_closed_early, tables)
    assert (found.metrics["connections"], found.confidence) == (5, "medium")
    assert "erver 10.77.0.2, or a device on the way, closed 5 idle connections" in found.verdict
    assert "The IP identification of 5 RSTs does not continue" in found.explanation
    before = tables.closings.identification_before
    for step, foreign in ((1, False), (64, False), (65, True), (0, False)):
        other = must(connection_closed_early, changed(tables, "closings", identification=(before + step) % 65_536))
        assert ("device" in other.verdict) == foreign


def shift_ends(tables: Tables, shift_ns: list[int]) -> Tables:
    return changed(tables, "closings", time_ns=tables.closings.time_ns + np.array(shift_ns))


def test_silences_of_another_length_have_no_timer() -> None:
    assert told(connection_closed_early, shift_ends(read_idle(), [0, 0, 0, 0, 200_000_000])) is None


def test_a_common_moment_is_no_timer() -> None:
    """Silences are alike, and so are the moments at which they end: the server stopped."""
    tables = read_idle()
    c = tables.closings
    own, peer = (column + c.time_ns[0] - c.time_ns for column in (c.own_time_ns, c.peer_time_ns))
    together = changed(tables, "closings", time_ns=[c.time_ns[0]] * 5, own_time_ns=own, peer_time_ns=peer)
    assert told(connection_closed_early, together) is None


def test_connections_of_one_age_may_have_reached_a_limit_on_it() -> None:
    tables = read_idle()
    opened = tables.closings.time_ns - 740_000_000
    order = np.argsort(tables.closings.connection)
    found = must(connection_closed_early, changed(tables, "connections", opened_time_ns=opened[order]))
    assert found.confidence == "medium"
    assert "an idle timeout, or a limit on their age" in found.verdict


@pytest.mark.parametrize(
    ("changes", "crossed"),
    [
        ({}, 1),
        ({"ttl": 59}, 0),  # a device between
        ({"identification": 7}, 0),  # perhaps one at the server's distance
        ({"acknowledges": 0}, 0),  # an end that does not know the connection
        ({"lacks": 0}, 1),
    ],
)
def test_a_rst_that_crosses_a_request(changes: dict[str, Any], crossed: int) -> None:
    """The second one came 47 ms after it, with a round trip of 120 ms; the first one 0.4 ms later than a round trip."""
    tables = decode([recorded("wild/pekko-idle-race.pcap.zst")])
    found = must(idle_connection_cut, changed(tables, "closings", **columns_of(tables, changes)))
    metrics = found.metrics
    assert metrics["crossed_rst_connections"] == crossed
    assert metrics["affected_rpcs"] == 2
    text = found.explanation
    assert ("a RST answered the first packet" in text) == ("lacks" in changes)
    assert ("a RST met the first packet" in text) == ("lacks" not in changes)


def columns_of(tables: Tables, changes: dict[str, int]) -> dict[str, Any]:
    """The changes of the two RSTs of requests."""
    open_rpcs = tables.closings.open_rpcs > 0
    return {name: np.where(open_rpcs, value, getattr(tables.closings, name)) for name, value in changes.items()}


def test_a_setting_is_named_only_for_its_software() -> None:
    assert name_grace("grpc-go") == " (MaxConnectionAgeGrace)"
    assert name_grace("Pekko HTTP") == name_grace(None) == ""
    tables = read_idle()
    unknown = replace(tables, agents=tuple(name if "pekko" not in name else "somebody/1.0" for name in tables.agents))
    knob = must(connection_closed_early, unknown).remedies[0]
    assert knob.implementation == "application"
    assert "pekko.http.server.idle-timeout (Pekko HTTP)" in knob.note
