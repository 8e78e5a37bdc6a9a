"""Compute the facts of a report from tables: capture, connections, methods."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from ..model.analysis import CaptureFacts, ConnectionFacts, MethodFacts, Quality, Totals, Traffic, TrafficOfSides
from ..model.budget import named, total
from ..model.text import count, duration, format_times
from ..tables import (
    DIRECTIONS,
    ERROR_CODES,
    NO_AGENT,
    PROTOCOLS,
    Codes,
    Counts,
    Ints,
    Method,
    Processes,
    Tables,
    error_name,
)
from ..tables.grouping import group_rows
from . import tls
from .hops import describe_proxies
from .processes import split_budget
from .quantiles import make_quantiles
from .roles import mark_guessed_roles

LINK_TYPES: Mapping[int, str] = {
    0: "NULL",
    1: "EN10MB",
    9: "PPP",
    12: "RAW",
    14: "RAW",
    101: "RAW",
    108: "LOOP",
    113: "LINUX_SLL",
    228: "IPV4",
    229: "IPV6",
    276: "LINUX_SLL2",
}
"""Names of link types (tcpdump.org/linktypes.html), as tcpdump prints them."""

_FEW = 10
"""RPCs below which their number per second says nothing (heuristic)."""

UNDECIDED = PROTOCOLS.index("undecided")
"""`Connections.protocol` of connections that did not show what they carry."""
HTTP2 = PROTOCOLS.index("http2")
"""`Connections.protocol` of HTTP/2."""
HTTP1 = PROTOCOLS.index("http1")
"""`Connections.protocol` of HTTP/1.1 with gRPC-Web or Connect."""
TLS = PROTOCOLS.index("tls")
"""`Connections.protocol` of TLS that is not decrypted."""


def may_have_rpcs(protocol: Codes) -> npt.NDArray[np.bool_]:
    """Mark connections, by `Connections.protocol`, on which RPCs can be read."""
    return np.asarray((protocol == HTTP2) | (protocol == HTTP1))


def capture_facts(tables: Tables) -> CaptureFacts:
    """Describe the capture as a whole."""
    capture = tables.capture
    return CaptureFacts(
        packets=capture["packets"],
        bytes=capture["bytes"],
        first_time_ns=capture["first_time_ns"],
        last_time_ns=capture["last_time_ns"],
        link_types=tuple(LINK_TYPES.get(number, f"LINKTYPE {number}") for number in capture["link_types"]),
        snaplen=capture["snaplen"] or None,
        dropped_packets=capture["dropped_packets"],
    )


def quality(tables: Tables, notes: tuple[str, ...] = (), proxies: Iterable[str] | None = None) -> Quality:
    """Describe how far the capture can be trusted; `notes` are added to the warnings, `proxies` where known."""
    connections = tables.connections
    return Quality(
        truncated_packets=tables.capture["truncated_packets"],
        missing_bytes=int(connections.missing_bytes.sum()),
        undecoded_bytes=int(connections.undecoded_bytes.sum() + still_encrypted(tables).sum()),
        warnings=(*_list_warnings(tables), *(describe_proxies(tables) if proxies is None else proxies), *notes),
    )


def still_encrypted(tables: Tables) -> Ints:
    """Count the bytes of TLS per connection that were not decrypted, without the overhead of decrypted records."""
    connections = tables.connections
    return np.where(connections.tls_decrypted == 0, connections.encrypted_bytes, 0).astype(np.int64)


def _list_damage(tables: Tables) -> Iterator[str]:
    for damage in tables.capture["damage"]:
        yield f"{damage['file']}: byte {damage['offset']:,} (after packet {damage['packet']:,}): {damage['reason']}"


def _list_warnings(tables: Tables) -> Iterator[str]:
    capture, connections = tables.capture, tables.connections
    yield from _list_damage(tables)
    yield from (f"{why}; this file is left out" for why in capture["left_out"])
    yield from _list_clock_steps(tables)
    if capture["damage_not_listed"]:
        yield f"{capture['damage_not_listed']:,} further damaged places in the files"
    counts = [
        (capture["dropped_packets"], "{n} {were} dropped while capturing, as the file or its sidecar says"),
        (capture["truncated_packets"], "{n} {were} cut by the snaplen: capture with -s 0"),
        (int(connections.duplicate_packets.sum()), "{n} {were} recorded twice; each is counted once"),
        (int(connections.missing_bytes.sum()), "{n} of TCP payload {are} missing from the capture"),
        (capture["sorted_packets"], "{n} {were} not in the order of time in the file, and {were} sorted"),
        (capture["time_steps_back"], "timestamps go backwards at {n}"),
        (capture["malformed_packets"], "{n} {were} malformed"),
        (capture["unsupported_link_packets"], "{n} {were} of a link type that is not supported"),
        (capture["packets_without_time"], "{n} {were} recorded without a timestamp"),
        (int(connections.urgent_packets.sum()), "{n} {were} sent as TCP urgent data, which is read as ordinary data"),
    ]
    if capture["connections_not_listed"]:
        yield f"{capture['connections_not_listed']:,} connections carried no payload and are only counted"
    for name, what in (("lookups", "DNS questions"), ("icmp_errors", "ICMP errors")):
        if more := capture[f"{name}_not_listed"]:
            yield f"{more:,} {what} are more than are reported"
    for number, text in counts:
        if number:
            n = count(number, "byte" if "payload" in text else "packet")
            yield text.format(n=n, were="was" if number == 1 else "were", are="is" if number == 1 else "are")
    for bit, side in enumerate(DIRECTIONS):
        unheard = int((connections.unheard & (1 << bit) != 0).sum())
        if unheard:
            what = "1 connection" if unheard == 1 else f"{unheard:,} connections"
            yield f"the capture has no data from the {side} on {what}: only one direction was captured"
    late = int(((connections.complete == 0) & (connections.protocol == HTTP2)).sum())
    if late:
        what, its = ("connection", "its") if late == 1 else ("connections", "their")
        yield f"{late:,} HTTP/2 {what} began before the capture: {its} windows, and names sent before it, are unknown"
    if guessed := int(mark_guessed_roles(tables).sum()):
        yield f"who is the client of {count(guessed, 'connection')} is a guess by the ports: it gives no finding"
    endless = sum(method.end_missing for method in tables.methods)
    if endless:
        what = "RPC has" if endless == 1 else "RPCs have"
        yield f"{endless:,} {what} no known end: packets are missing, so time counts up to the last frame seen"
    unread = int((connections.protocol == TLS).sum())
    if unread:
        what = "connection is TLS and was" if unread == 1 else "connections are TLS and were"
        yield f"{unread:,} {what} not decrypted: pass the secrets with --keylog FILE"
    if capture["secrets"] and unread:
        yield "the file has decryption secrets, but not for all of its TLS connections"
    known = "bytes are missing from the capture"
    for kind, times in zip(tables.problem_kinds, tables.problem_counts, strict=True):
        if kind != known:
            yield f"{kind}: {format_times(times)}{_find_first_place(tables, kind)}"


def _list_clock_steps(tables: Tables) -> Iterator[str]:
    for packet, ns in tables.capture["clock_steps"]:
        yield (
            f"the capture's clock stepped forward by {duration(ns)} before packet {packet:,}: TCP timestamps of "
            "both hosts show that no time passed, so the step is removed from later times"
        )
    if more := tables.capture["clock_steps_not_listed"]:
        yield f"{more:,} further steps of the capture's clock"


def _find_first_place(tables: Tables, kind: str) -> str:
    rows = np.flatnonzero(tables.problems.kind == tables.problem_kinds.index(kind))
    return f", first at packet {int(tables.problems.packet[rows[0]]):,}" if len(rows) else ""


def totals(tables: Tables) -> Totals:
    """Count over the capture."""
    return Totals(
        connections=int(may_have_rpcs(tables.connections.protocol).sum()),
        rpcs=tables.rpc_count,
        rpcs_begun_before=tables.begun_before,
        rpcs_without_known_end=sum(method.end_missing for method in tables.methods),
        frames=tables.frame_counts,
        messages=tables.message_count,
        other_streams=tables.other_streams,
    )


_COMPRESSION_ERROR = ERROR_CODES.index("COMPRESSION_ERROR")
_ACTS_NS = 20_000_000
"""A client acts so soon on a header block that it cannot decode (heuristic: libraries take a few milliseconds)."""


def find_discarded(tables: Tables) -> Counts:
    """Find the RPCs whose complete response their client threw away, as it could not decode its header block.

    They are the last ones that ended before its GOAWAY COMPRESSION_ERROR: one on each connection, unless several ended
    in the same packet.
    """
    g, rpcs = tables.goaways, tables.rpcs
    rows = np.flatnonzero((g.direction == 0) & (g.code == _COMPRESSION_ERROR))
    said = {int(g.connection[row]): int(g.time_ns[row]) for row in rows[::-1].tolist()}
    mine = np.flatnonzero(np.isin(rpcs.connection, list(said)) & (rpcs.status == 0)) if said else rows
    found = [np.zeros(0, dtype=np.uint32)]
    for connection, places in group_rows(rpcs.connection[mine]).items() if said else ():
        way = max(int(tables.connections.near_client_rtt_ns[connection]), 0)
        ends = rpcs.start_time_ns[mine[places]] + rpcs.duration_ns[mine[places]]
        before = (ends <= said[connection]) & (ends >= said[connection] - way - _ACTS_NS)
        if before.any():
            found.append(mine[places][before & (ends == ends[before].max())].astype(np.uint32))
    return np.sort(np.concatenate(found))


def summarize_calls(tables: Tables) -> str:
    """Say how many RPCs there were, how many per second, how many failed and were cancelled; nothing without any."""
    methods, rpcs = tables.methods, tables.rpc_count
    if not rpcs:
        return ""
    span = max(method.last_end_ns for method in methods) - min(method.first_start_ns for method in methods)
    cancelled, failed = sum(method.statuses[1] for method in methods), sum(sum(m.statuses[2:-1]) for m in methods)
    unknown, discarded = sum(method.statuses[-1] for method in methods), len(find_discarded(tables))
    rate = rpcs * 1e9 / span if rpcs >= _FEW and span > 0 else 0.0
    parts = [
        count(rpcs, "RPC"),
        f"{rate:,.0f} per second" if rate >= 10 else f"{rate:.1f} per second" if rate >= 0.1 else "",
        f"{failed:,} failed" if failed else "" if unknown or cancelled or discarded else "none failed",
        f"{discarded:,} with a response that the client discarded" if discarded else "",
        f"{cancelled:,} cancelled" if cancelled else "",
        f"{unknown:,} with unknown status" if unknown else "",
    ]
    return f"{', '.join(part for part in parts if part)}."


def traffic(tables: Tables) -> TrafficOfSides:
    """Sum up what both sides sent on connections whose RPCs can be read."""
    c, d = tables.connections, tables.directions
    ours = may_have_rpcs(c.protocol)
    own = ((c.packets_client, c.bytes_client), (c.packets_server, c.bytes_server))

    def side(number: int) -> Traffic:
        counts = {name: int(getattr(d, name)[number::2][ours].sum(dtype=np.int64)) for name in _SENT}
        packets, payload = (int(column[ours].sum(dtype=np.int64)) for column in own[number])
        busy = int(d.busy_intervals[number::2][ours].sum(dtype=np.int64))
        return Traffic(packets=packets, payload_bytes=payload, busy_intervals_10ms=busy, **counts)

    return TrafficOfSides(side(0), side(1))


_SENT = tuple(
    name for name in Traffic.__struct_fields__ if name not in ("packets", "payload_bytes", "busy_intervals_10ms")
)


def method_facts(tables: Tables) -> tuple[MethodFacts, ...]:
    """Describe all methods, the one with the most RPC time first."""
    facts = [_describe_method(method, tables.processes) for method in tables.methods]
    return tuple(sorted(facts, key=lambda m: (-sum(m.budget.values()), -m.rpcs, m.method or "")))


def _describe_method(method: Method, processes: Processes | None) -> MethodFacts:
    names = (*_core.STATUSES, "not_seen")
    span = method.last_end_ns - method.first_start_ns
    return MethodFacts(
        method=method.name,
        label=method.label,
        rpcs=method.rpcs,
        latency_ns=make_quantiles(method.latency),
        statuses={name: count for name, count in zip(names, method.statuses, strict=True) if count},
        messages=method.messages,
        messages_per_s=method.messages / (span / 1e9) if span > 0 else None,
        turnaround_ns=make_quantiles(method.turnaround),
        latency_intervals_ns=method.latency_intervals,
        turnaround_intervals_ns=method.turnaround_intervals,
        first_start_time_ns=method.first_start_ns,
        last_end_time_ns=method.last_end_ns,
        budget=split_budget(named(method.budget), processes, "method", method.number),
    )


def all_budget(tables: Tables) -> Mapping[str, int]:
    """Sum up the RPC time of the capture by cause."""
    return named(total(method.budget for method in tables.methods))


def connection_facts(tables: Tables, *, undecided: bool = False) -> tuple[ConnectionFacts, ...]:
    """Describe HTTP/2, gRPC-Web and TLS connections in the order of their first packets; others cannot carry gRPC.

    With `undecided` also those that ended before they showed what they carry.
    """
    protocol = tables.connections.protocol
    mine = may_have_rpcs(protocol) | (protocol == TLS) | ((protocol == UNDECIDED) & undecided)
    return describe_connections(tables, np.flatnonzero(mine))


_AT_ONCE = 4_096
"""Connections whose cells are lists at once: a list takes five times the memory of its column."""


def describe_connections(tables: Tables, rows: Ints) -> tuple[ConnectionFacts, ...]:
    """Describe connections by their rows; there may be very many."""
    parts = (rows[begin : begin + _AT_ONCE] for begin in range(0, len(rows), _AT_ONCE))
    return tuple(chain.from_iterable(_describe_some(tables, part) for part in parts))


def _describe_some(tables: Tables, rows: Ints) -> Iterator[ConnectionFacts]:
    processes, numbers = tables.processes, rows.tolist()

    def read(column: npt.NDArray[Any]) -> list[Any]:
        return column[rows].tolist()  # type: ignore[no-any-return]

    def read_known(column: Ints) -> list[int | None]:
        return [value if value >= 0 else None for value in read(column)]

    def name_ends(addresses: Counts, ports: Counts) -> list[str]:
        return [tables.format_end(*end) for end in zip(read(addresses), read(ports), strict=True)]

    c = tables.connections
    agents = (_name_client, c.client_agent, c.client_hint), (_name_software, _find_servers(tables), c.server_hint)
    clients, servers = (
        [name(tables, *found) for found in zip(read(agent), read(hint), strict=True)] for name, agent, hint in agents
    )
    budgets = map(named, read(tables.connection_budgets))
    columns: dict[str, Iterable[Any]] = {
        "connection": numbers,
        "client": name_ends(c.client_ip, c.client_port),
        "server": name_ends(c.server_ip, c.server_port),
        "protocol": map(PROTOCOLS.__getitem__, read(c.protocol)),
        "vantage": map(_core.VANTAGES.__getitem__, read(c.vantage)),
        "roles_from": map(_core.ROLES_FROM.__getitem__, read(c.roles_from)),
        "mss": (size or None for size in read(c.mss_client)),
        "complete": map(bool, read(c.complete)),
        "tls": map(bool, read(c.tls)),
        "client_implementation": (name for name, _ in clients),
        "client_implementation_inferred": (inferred for _, inferred in clients),
        "server_implementation": (name for name, _ in servers),
        "server_implementation_inferred": (inferred for _, inferred in servers),
        "budget": (split_budget(one, processes, "connection", row) for one, row in zip(budgets, numbers, strict=True)),
        **{name: read_known(getattr(c, name)) for name in _KNOWN},
        **{name: read(getattr(c, name)) for name in COUNTS},
    }
    return map(ConnectionFacts, *(columns[name] for name in ConnectionFacts.__struct_fields__))


_KNOWN = ("opened_time_ns", "closed_time_ns", "handshake_rtt_ns", "min_rtt_ns", "peer_max_concurrent_streams")
"""Columns of connections with -1 for what is not known."""

COUNTS = (
    "rpcs",
    "max_concurrent_rpcs",
    "other_streams",
    "packets_client",
    "packets_server",
    "bytes_client",
    "bytes_server",
    "retransmitted_packets",
    "duplicate_packets",
    "keep_alives",
    "out_of_order_packets",
    "urgent_packets",
    "missing_bytes",
)
"""Columns of connections with counts that reports show."""


def server_implementation(tables: Tables, row: int) -> tuple[str | None, bool]:
    """Take the server's software from `server` or `via`, or infer it from its frames (then the flag is true)."""
    return _name_software(tables, int(_find_servers(tables)[row]), int(tables.connections.server_hint[row]))


_FOREIGN = _core.BEGINNINGS.index("other")


def _find_servers(tables: Tables) -> Counts:
    """Return the column of servers' software, without the first lines of other protocols."""
    return np.where(tables.setups.server_begins == _FOREIGN, np.uint32(NO_AGENT), tables.connections.server_agent)


_PROXIES = ("nginx", "haproxy", "envoy")
"""Proxies that the core infers from what they send to their backends."""


def client_implementation(tables: Tables, row: int) -> tuple[str | None, bool]:
    """Take the client's implementation from `user-agent`, or infer it from its frames (then the flag is true)."""
    return _name_client(tables, int(tables.connections.client_agent[row]), int(tables.connections.client_hint[row]))


def _name_client(tables: Tables, agent: int, hint: int) -> tuple[str | None, bool]:
    """Name a client as `_name_software` does; a `user-agent` that names no known one says that it is another.

    A proxy passes on the `user-agent` of its own clients.
    """
    if _core.IMPLEMENTATIONS[hint] in _PROXIES:
        return _core.IMPLEMENTATIONS[hint], True
    is_another = agent != NO_AGENT and not tables.agents[agent]
    return (None, False) if is_another else _name_software(tables, agent, hint)


def _name_software(tables: Tables, agent: int, hint: int) -> tuple[str | None, bool]:
    """Name the software that its headers name, or the one that its frames look like; tell which of both."""
    if agent != NO_AGENT and tables.agents[agent]:
        return tables.agents[agent], False
    name = _core.IMPLEMENTATIONS[hint]
    return name or None, bool(name)


def _count_http1(tables: Tables) -> int:
    """Count the connections that begin with a request or a response of HTTP/1."""
    client, server = (
        begins == _core.BEGINNINGS.index(name)
        for begins, name in (
            (tables.setups.client_begins, "http1_request"),
            (tables.setups.server_begins, "http1_response"),
        )
    )
    return int((client | server).sum())


def _name_http1(tables: Tables) -> str:
    """Say how many connections are HTTP/1, nothing for none."""
    number = _count_http1(tables)
    return f"; {count(number, 'connection')} {'is' if number == 1 else 'are'} HTTP/1" if number else ""


_LARGE_BLOCK = 8_192
"""Bytes of a header block from which it may exceed a limit (the least default: 8 KiB in C-core, Netty and Jetty)."""


def _describe_refused_headers(tables: Tables) -> str:
    """Say that servers ended connections within header blocks, and by what; nothing if there is none."""
    g, c, frames = tables.goaways, tables.connections, tables.directions.header_frames[::2]
    begun = (c.complete != 0) & (frames > 0)
    said = np.flatnonzero((g.direction == 1) & (g.code != 0) & begun[g.connection])
    ended = np.unique(g.connection[said]) if len(said) else np.flatnonzero(begun & (c.closed_by == 1))
    if not len(ended):
        return ""
    sent = int(tables.directions.header_block_bytes[::2][ended].max())
    code = int(g.code[said[0]]) if len(said) else 0
    name = error_name(code)
    did = f"sent GOAWAY {name}" if len(said) else "closed without GOAWAY"
    likely = "is probably" if name in ("COMPRESSION_ERROR", "ENHANCE_YOUR_CALM") else "may be"
    large = f". The metadata {likely} larger than the server accepts" if sent >= _LARGE_BLOCK else ""
    on = count(len(ended), "connection")
    return f"no header block of a request is whole: on {on} the server {did} after up to {sent:,} bytes of it{large}"


def why_no_grpc(tables: Tables) -> str:
    """Say what a capture without RPCs contains, and what to do next; a damaged file may have had more."""
    return "; ".join((_say_what_is_there(tables), *_list_damage(tables)))


def _say_what_is_there(tables: Tables) -> str:
    capture, protocol = tables.capture, tables.connections.protocol
    if not capture["packets"]:
        return "the capture has no packets: the filter may be too narrow, or the interface wrong"
    if capture["unsupported_link_packets"] == capture["packets"]:
        links = ", ".join(str(number) for number in capture["link_types"])
        return f"link type {links} is not supported: capture on another interface, or with tcpdump -y EN10MB"
    if not capture["tcp_packets"]:
        return f"no TCP was seen in {count(int(capture['packets']), 'packet')}"
    begun = tls.find_facts(tables)
    unread = tuple(one for one in begun if not one.is_wordless)
    if unread:
        return (
            f"{len(unread):,} of {len(protocol):,} TCP connections are TLS without secrets. "
            f"{' '.join(tls.write_sentences(unread, tables))} Record the secrets with the capture and pass them with "
            "--keylog FILE; grpcdiag analyze says how"
        )
    if tables.connections.unheard.any():
        side = DIRECTIONS[int(tables.connections.unheard.max() >= 2)]
        advice = f"capture both directions (`port N`, not `{'src' if side == DIRECTIONS[0] else 'dst'} port N`)"
        return f"the capture has no data from the {side}{_name_http1(tables)}: {advice}"
    if begun:
        return f"{count(len(begun), 'TLS handshake')} began and did not finish: nothing was sent over TLS"
    if not (protocol == HTTP2).any():
        connections = len(protocol) + capture["connections_not_listed"]
        what = count(connections, "TCP connection")
        only = "of HTTP/1.1 only gRPC-Web and Connect are read"
        advice = only if _count_http1(tables) == connections else "use --port N to read port N as HTTP/2"
        return f"no HTTP/2 was seen on {what}{_name_http1(tables)}; {advice}"
    late = (protocol == HTTP2) & (tables.connections.complete == 0)
    if not tables.other_streams and tables.directions.data_frames.reshape(-1, 2)[late].any():
        return (
            "HTTP/2 connections and all their streams began before the capture, so their content is unknown: start the "
            "capture before the client makes its calls"
        )
    if not tables.other_streams:
        if refused := _describe_refused_headers(tables):
            return refused
        sent = (tables.setups.server_begins[protocol == HTTP2] != 0).any()
        return f"HTTP/2 connections without a request{'' if sent else ', on which the server sent nothing'}"
    return f"HTTP/2 without gRPC: {count(tables.other_streams, 'other stream')}"
