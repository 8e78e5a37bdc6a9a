"""Map which hosts call which servers: how often, how fast, and behind which proxy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ...analyzer.model.thresholds import PROXY_RPCS
from ..dataset import sums


class Edge(Struct, frozen=True, kw_only=True):
    """RPCs of one service between two groups of hosts whose names differ in a number only."""

    client: str
    """Host, or a group such as `web-*`."""
    clients: int
    """Number of hosts of the group that call."""
    server: str
    servers: int
    service: str
    proxy: str | None
    """The client is this proxy, and the RPCs continue calls to it; None for RPCs that count as calls."""
    rpcs: int
    rpcs_per_s: float | None
    """While recordings of the RPCs were running; None if these took no time."""
    failed_rpcs: int
    duration_ns: int
    lost_ns: int
    p50_ns: int | None
    """Median, within 10 %."""
    p99_ns: int | None
    budget: dict[str, int]


class Unjoined(Struct, frozen=True, kw_only=True):
    """A host that serves a method and calls it, too, as a proxy does whose legs are not joined."""

    host: str
    method: str
    rpcs: int
    """RPCs of such methods that it made."""
    hosts: int
    """Number of such hosts."""


class ServiceMap(Struct, frozen=True, kw_only=True):
    """Who calls whom."""

    edges: tuple[Edge, ...]
    """Each followed by those that continue its calls behind a proxy."""
    more_edges: int
    """Number of edges that are not listed."""
    more_rpcs: int
    rpcs_behind_proxies: int
    """RPCs that continue calls behind a proxy; other figures of the report do not count them."""
    unjoined: Unjoined | None


_GROUPS = (
    # replica set and pod of a Kubernetes deployment: names of letters and digits that cannot spell a word
    (r"-[bcdf-hj-np-tv-xz2456789]{6,10}-[bcdf-hj-np-tv-xz2456789]{5}(:|$)", r"-*\1"),
    # the number that ends the first label, if letters precede it, as they do in no address
    (r"^([^.:\[]*[^.:\[0-9])\d+([.:]|$)", r"\1*\2"),
)
"""Parts of host names, with or without a port, that hosts of one group differ in, and what is shown instead."""


_KEYS = "client, server, service, proxy"
_SUMS = (
    "sum(rpcs)::BIGINT AS rpcs, sum(failed_rpcs)::BIGINT AS failed_rpcs, total_ns(duration_ns) AS duration_ns, "
    f"total_ns(lost_ns) AS lost_ns, {sums.budget()} AS budget"
)


def read_map(database: Any, most: int | None) -> ServiceMap:
    """Read the map of the tables `all_t` and `all_l`, with at most `most` edges."""
    _create_edges(database)
    edges = list(_read_edges(database, f"ORDER BY place {f'LIMIT {most}' if most else ''}"))
    nested = tuple(_put_behind(edges))
    every, rpcs, behind = database.execute(
        "SELECT count(*), sum(rpcs)::BIGINT, sum(rpcs) FILTER (proxy <> '')::BIGINT FROM edges"
    ).fetchone()
    return ServiceMap(
        edges=nested,
        more_edges=every - len(nested),
        more_rpcs=(rpcs or 0) - sum(edge.rpcs for edge in nested),
        rpcs_behind_proxies=behind or 0,
        unjoined=_find_unjoined(database),
    )


def _create_edges(database: Any) -> None:
    """Create the table `edges`, with the time `ns` for which recordings of each were running."""
    _create_ends(database, "ends_t", f"recording, {_SUMS}", "all_t")
    _create_ends(database, "ends_l", "step, sum(rpcs) AS rpcs", "all_l")
    steps = f"SELECT {_KEYS}, step, sum(rpcs) AS rpcs FROM ends_l GROUP BY ALL"
    database.execute(f"""
        CREATE TEMP TABLE edges AS
        WITH figures AS (
            SELECT {_KEYS}, count(DISTINCT client_host) AS clients, count(DISTINCT server_host) AS servers,
                   if(count(DISTINCT client_host) = 1, min(client_host), client) AS client_name,
                   if(count(DISTINCT server_host) = 1, min(server_name), server) AS server_name,
                   if(count(DISTINCT proxy_name) = 1, min(proxy_name), proxy) AS proxy_name, {_SUMS}
            FROM ends_t GROUP BY {_KEYS}
        ), {sums.quantiles(steps, _KEYS)}, times AS (
            SELECT {_KEYS}, first_time_ns::HUGEINT AS first, last_time_ns::HUGEINT AS last,
                   coalesce(max(last) OVER before, first) AS until
            FROM (SELECT DISTINCT {_KEYS}, recording FROM ends_t) JOIN recordings USING (recording)
            WINDOW before AS (PARTITION BY {_KEYS} ORDER BY first, recording
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ), recorded AS (
            -- the time that several recordings cover counts once
            SELECT {_KEYS}, sum(greatest(last - greatest(first, until), 0)) AS ns FROM times GROUP BY ALL
        )
        SELECT * FROM figures LEFT JOIN quantiles USING ({_KEYS}) LEFT JOIN recorded USING ({_KEYS})""")


def _group(host: str) -> str:
    """Make SQL for the group of a host."""
    for pattern, shown in _GROUPS:
        host = f"regexp_replace({host}, {sums.text(pattern)}, {sums.text(shown)})"
    return host


def _create_ends(database: Any, name: str, figures: str, table: str) -> None:
    """Create a table of figures by host and server, with their groups; `proxy` is empty for none."""
    database.execute(f"""
        CREATE TEMP TABLE {name} AS
        SELECT * EXCLUDE (proxy), {_group("client_host")} AS client, {_group("server_name")} AS server,
               coalesce({_group("proxy")}, '') AS proxy, proxy AS proxy_name
        FROM (SELECT client_host, server_host, server_name, proxy, service, {figures} FROM {table} GROUP BY ALL)""")


def find_blocked(database: Any) -> Edge | None:
    """Find the edge behind a proxy that was blocked longest, of the table `edges`; None if none was."""
    edges = _read_edges(database, "WHERE proxy <> '' AND lost_ns > 0 ORDER BY lost_ns DESC LIMIT 1")
    return next((edge for edge, *_ in edges), None)


def _read_edges(database: Any, selected: str) -> Iterator[tuple[Edge, str, str]]:
    """Read the selected edges by their time, with the groups of server and proxy.

    `place` alternates between most failed RPCs and most time.
    """
    rows = database.execute(f"""
        WITH placed AS (
            SELECT *, least(2 * row_number() OVER (ORDER BY duration_ns DESC, {_KEYS}),
                            2 * row_number() OVER (ORDER BY failed_rpcs DESC, duration_ns DESC, {_KEYS}) - 1) AS place
            FROM edges
        )
        SELECT client_name, clients, server_name, servers, service, nullif(proxy_name, ''), rpcs,
               (rpcs * 1e9 / nullif(ns, 0))::DOUBLE, failed_rpcs, duration_ns, lost_ns, p50, p99, budget, server, proxy
        FROM (FROM placed {selected}) ORDER BY duration_ns DESC, {_KEYS}
        """).fetchall()
    for *figures, p50, p99, budget, server, proxy in rows:
        edge = Edge(
            **dict(zip(Edge.__struct_fields__, figures, strict=False)),
            p50_ns=sums.find_middle(p50),
            p99_ns=sums.find_middle(p99),
            budget={cause: budget[cause] for cause in CAUSES if budget[cause]},
        )
        yield edge, server, proxy


def _put_behind(edges: Sequence[tuple[Edge, str, str]]) -> Iterator[Edge]:
    """Yield edges in their order, but those behind a proxy after the first edge to its group."""
    behind: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (edge, _, proxy) in enumerate(edges):
        behind[proxy, edge.service].append(number)
    left = dict.fromkeys(range(len(edges)))
    servers = {(server, edge.service) for edge, server, _ in edges}
    first = [number for number, (edge, _, proxy) in enumerate(edges) if (proxy, edge.service) not in servers]
    stack = [*first, *left][::-1]  # the others last: they are left if proxies pass calls on in a circle
    while stack:
        number = stack.pop()
        if number in left:
            del left[number]
            edge, server, _ = edges[number]
            yield edge
            stack += behind[server, edge.service][::-1]


def _find_unjoined(database: Any) -> Unjoined | None:
    """Find the host with most calls of methods that it serves, too, to hosts that do not call it back with them."""
    row = database.execute(f"""
        WITH used AS (
            SELECT method, client_host, server_host, sum(rpcs)::BIGINT AS rpcs FROM t
            WHERE method IS NOT NULL AND client_host <> server_host GROUP BY ALL
        ), made AS (
            SELECT * FROM used u
            WHERE EXISTS (FROM used f WHERE f.method = u.method AND f.server_host = u.client_host)
              AND NOT EXISTS (FROM used r WHERE r.method = u.method AND r.client_host = u.server_host
                                            AND r.server_host = u.client_host)
        )
        SELECT client_host, max_by(method, (rpcs, method)), sum(rpcs)::BIGINT AS every, count(*) OVER ()
        FROM made GROUP BY client_host HAVING every >= {PROXY_RPCS}
        ORDER BY every DESC, client_host LIMIT 1""").fetchone()
    return Unjoined(**dict(zip(Unjoined.__struct_fields__, row, strict=True))) if row else None
