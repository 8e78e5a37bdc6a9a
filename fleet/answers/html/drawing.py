"""Draw who calls whom: hosts in columns from callers to servers, and lines as thick as their share of RPC time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..edges import Edge
from ..text import mostly, rate, shorten

MOST_EDGES = 20
"""Most edges that are drawn; with more, a drawing shows less than the table."""
COLUMN, ROW, BOX, HIGH = 300, 54, 200, 42
"""Distances of columns and rows, and the size of a box."""
_THIN, _THICK = 2.0, 16.0
_NAME = 26
"""Most characters in a box."""


def draw(edges: Sequence[Edge]) -> dict[str, Any]:
    """Lay out the boxes of hosts and the lines between them."""
    edges = edges[:MOST_EDGES]
    ends = _name_ends(edges)
    places = _place(ends)
    joined: dict[tuple[str, str], list[Edge]] = {}
    served: dict[str, list[Edge]] = {}
    for end, edge in zip(ends, edges, strict=True):
        joined.setdefault(end, []).append(edge)
        served.setdefault(end[1], []).append(edge)
    whole = max((sum(edge.duration_ns for edge in some) for some in joined.values()), default=0) or 1
    return {
        "boxes": [
            {"name": name, "text": shorten(name, _NAME), "served": _describe(served.get(name, ())), "x": x, "y": y}
            for name, (x, y) in places.items()
        ],
        "lines": [_draw_line(places[a], places[b], some, whole) for (a, b), some in joined.items()],
        "width": max((x for x, _ in places.values()), default=0) + BOX,
        "height": max((y for _, y in places.values()), default=0) + HIGH,
        "box": (BOX, HIGH),
        "most": MOST_EDGES,
    }


def _name_ends(edges: Sequence[Edge]) -> list[tuple[str, str]]:
    """Name the boxes of each edge: hosts, but servers that hosts call on themselves have boxes of their own."""
    own = {edge.server for edge in edges if _cut_port(edge.server) == edge.client}

    def name(server: str) -> str:
        return server if server in own else _cut_port(server)

    return [(name(edge.proxy) if edge.proxy else edge.client, name(edge.server)) for edge in edges]


def _cut_port(server: str) -> str:
    return server.rpartition(":")[0] or server


def _place(ends: Sequence[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Place servers in columns to the right of their clients, but where calls go in a circle."""
    behind: dict[str, list[str]] = {name: [] for pair in ends for name in pair}

    def reaches(name: str, other: str) -> bool:
        return name == other or any(reaches(one, other) for one in behind[name])

    columns = dict.fromkeys(behind, 0)

    def push(name: str) -> None:
        for one in behind[name]:
            if columns[one] <= columns[name]:
                columns[one] = columns[name] + 1
                push(one)

    for client, server in ends:
        if server not in behind[client] and not reaches(server, client):
            behind[client].append(server)
            push(client)
    places: dict[str, tuple[int, int]] = {}
    for column in sorted(set(columns.values())):
        free = 0
        callers = {name: [places[a][1] for a, b in ends if b == name and a in places] for name in columns}
        wanted = {name: sum(callers[name]) // max(len(callers[name]), 1) for name in columns if columns[name] == column}
        for name in sorted(wanted, key=wanted.__getitem__):
            places[name] = (column * COLUMN, max(free, wanted[name]))
            free = places[name][1] + ROW
    return places


def _draw_line(start: tuple[int, int], end: tuple[int, int], edges: Sequence[Edge], whole: int) -> dict[str, Any]:
    """Draw the edges between two boxes as one line, in the colour of their main cause."""
    budget = {cause: sum(edge.budget.get(cause, 0) for edge in edges) for edge in edges for cause in edge.budget}
    x1, y1, x2, y2 = start[0] + BOX, start[1] + HIGH // 2, end[0], end[1] + HIGH // 2
    bend = max(abs(x2 - x1) // 2, 50)
    return {
        "path": f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}",
        "thick": f"{_THIN + (_THICK - _THIN) * sum(edge.duration_ns for edge in edges) / whole:.1f}",
        "cause": mostly(budget)[0],
        "edges": edges,
    }


def _describe(edges: Sequence[Edge]) -> str:
    """Describe the RPCs that a host serves."""
    per_s = [edge.rpcs_per_s for edge in edges if edge.rpcs_per_s is not None]
    failed = sum(edge.failed_rpcs for edge in edges)
    return (f"{rate(sum(per_s))} RPCs/s" if per_s else "") + (f", {failed:,} failed" if failed else "")
