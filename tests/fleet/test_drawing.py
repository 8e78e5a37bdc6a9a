"""The drawing of who calls whom: where boxes and lines lie."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytest.importorskip("duckdb")

from grpcdiag.fleet.answers.edges import Edge
from grpcdiag.fleet.answers.html.drawing import COLUMN, MOST_EDGES, ROW, draw

CALL = Edge(
    client="app",
    clients=1,
    server="edge:443",
    servers=1,
    service="s.S",
    proxy=None,
    rpcs=100,
    rpcs_per_s=20.0,
    failed_rpcs=0,
    duration_ns=1_000,
    lost_ns=0,
    p50_ns=10,
    p99_ns=20,
    budget={"server": 600, "network": 400},
)
BEHIND = replace(CALL, client="edge", server="shop:9000", proxy="edge:443", duration_ns=500, failed_rpcs=3)


def places(*edges: Edge) -> dict[str, tuple[int, int]]:
    return {box["name"]: (box["x"] // COLUMN, box["y"] // ROW) for box in draw(edges)["boxes"]}


def test_a_proxy_stands_between_its_clients_and_its_servers() -> None:
    assert places(CALL, BEHIND) == {"app": (0, 0), "edge": (1, 0), "shop": (2, 0)}
    drawn = draw([CALL, BEHIND])
    assert [box["served"] for box in drawn["boxes"]] == ["", "20 RPCs/s", "20 RPCs/s, 3 failed"]
    assert [(line["cause"], line["thick"]) for line in drawn["lines"]] == [("server", "16.0"), ("server", "9.0")]


def test_a_proxy_next_to_its_client_has_a_box_of_its_own() -> None:
    """A sidecar has its client's host, and so may its server."""
    sidecar = replace(CALL, server="app:15001")
    behind = replace(BEHIND, client="app", proxy="app:15001")
    assert places(sidecar, behind) == {"app": (0, 0), "app:15001": (1, 0), "shop": (2, 0)}


def test_services_of_one_pair_are_one_line() -> None:
    other = replace(CALL, service="t.T", budget={"stream_window": 3_000}, duration_ns=3_000, rpcs_per_s=None)
    (line,) = draw([CALL, other])["lines"]
    assert (line["cause"], line["edges"]) == ("stream_window", [CALL, other])


def test_calls_in_a_circle_end() -> None:
    circle = [replace(CALL, client=a, server=f"{b}:1") for a, b in ("ab", "bc", "ca", "cb")]
    assert places(*circle) == {"a": (0, 0), "b": (1, 0), "c": (2, 0)}
    assert len(draw(circle)["lines"]) == 4


def test_servers_lie_next_to_their_clients() -> None:
    pairs = [("a", "x"), ("b", "z"), ("a", "y")]
    found = places(*(replace(CALL, client=a, server=f"{b}:1") for a, b in pairs))
    assert found == {"a": (0, 0), "b": (0, 1), "x": (1, 0), "y": (1, 1), "z": (1, 2)}


def test_a_drawing_has_a_measure() -> None:
    many = [replace(CALL, server=f"s{k}.example:1") for k in range(50)]
    assert len(draw(many)["lines"]) == MOST_EDGES
    assert draw([]) == {"boxes": [], "lines": [], "width": 200, "height": 42, "box": (200, 42), "most": MOST_EDGES}
