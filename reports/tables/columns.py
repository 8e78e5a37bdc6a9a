"""Meanings and units of the columns of written tables; `grpcdiag export` puts them into the files."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, get_args, get_type_hints

from ...analyzer.tables import Connections, Frames, Messages, Packets, Problems, Rpcs, Waits


class Column(NamedTuple):
    """A column of a written table."""

    name: str
    unit: str
    """Empty for counts, names and numbers."""
    description: str


TABLES: Mapping[str, str] = {
    "connections": "one row per TCP connection, including other protocols",
    "rpcs": "one row per RPC",
    "messages": "one row per gRPC message",
    "frames": "one row per HTTP/2 frame",
    "packets": "one row per TCP packet",
    "waits": "one row per blocked interval: a side had bytes left to send and sent none",
    "methods": "one row per method",
    "findings": "one row per finding, the verdict's first, then by the time that they lost",
    "evidence": "one row per packet that shows a finding",
    "problems": "one row per decoding problem, up to a limit of rows",
    "columns": "one row per column of the other tables",
}
"""The written tables, and the meaning of a row."""

_EPOCH = "nanoseconds since 1970-01-01T00:00:00Z"
_DURATION = "nanoseconds"
_BYTES = "bytes"

_SAME: Mapping[str, type] = {
    "connections": Connections,
    "rpcs": Rpcs,
    "messages": Messages,
    "frames": Frames,
    "packets": Packets,
    "waits": Waits,
    "problems": Problems,
}
"""Tables of the core; a column with the same name has the same description."""

_DIRECTION = "sender: client or server"
_OWN: Mapping[str, Mapping[str, str]] = {
    "connections": {
        "connection": "number of the connection, from 0 in the order of first packets",
        "client": "address:port of the client",
        "server": "address:port of the server",
        "opened_time_ns": "time of the SYN; null if it is not in the capture",
        "closed_time_ns": "time of the FIN or RST that closed it; null if it is not in the capture",
        "vantage": "where the capture was taken: client, server, middle or unknown",
        "roles_from": "how the client was recognised",
        "mss": "payload bytes of full segments",
        "complete": "whether the TCP handshake is in the capture",
        "tls": "whether it is TLS",
        "client_implementation": "gRPC implementation of the client; null if unknown",
        "client_implementation_inferred": "whether it was inferred from frames, not read from a header",
        "server_implementation": "gRPC implementation of the server; null if unknown",
        "server_implementation_inferred": "whether it was inferred from frames, not read from a header",
        "protocol": "undecided, http2, tls, other, or http1: gRPC-Web or Connect over HTTP/1.1",
        "peer_max_concurrent_streams": "the server's SETTINGS_MAX_CONCURRENT_STREAMS; null if unknown",
    },
    "rpcs": {
        "connection": "number of its connection",
        "method": "/package.Service/Method; null if it is not in the capture",
        "start_time_ns": "first byte of the request's HEADERS; null if it is before the capture",
        "duration_ns": "until the last byte of the frame that ended it for the client; null if begun_before",
        "status": "name of the gRPC status; null if it is not in the capture",
        "request_messages": "complete request messages",
        "response_messages": "complete response messages",
        "request_bytes": "bytes of request messages without prefixes, as on the wire",
        "response_bytes": "bytes of response messages without prefixes, as on the wire",
        "last_packet": "packet of the last byte; null if the end is not in the capture",
        "complete": "whether start and end are in the capture",
        "begun_before": "whether it started before the capture",
        "method_inferred": "whether the method is a guess; always false in this version",
        "method_label": "distinguishes methods whose names are not in the capture",
        "method_unknown": "whether the method is not in the capture",
        "touches_gap": "whether bytes of it are missing from the capture",
        "deadline_ns": "the request's grpc-timeout; null without one",
        "grpc_message": "text of the error; null without one, and without --show-messages",
        "previous_attempts": "the request's grpc-previous-rpc-attempts; null without one",
        "trace_id": "trace-id of the request's traceparent; null without one",
        "span_id": "parent-id of the request's traceparent, the caller's span; null without one",
        "parent_rpc": "row of the leg before a proxy that this RPC is the next leg of; null for none or when unclear",
        "budget": "duration by cause; the parts add up to duration_ns",
    },
    "messages": {"direction": _DIRECTION, "compressed": "whether its compressed flag is set"},
    "frames": {"direction": _DIRECTION, "type": "name of the frame type (RFC 9113 section 6)"},
    "packets": {
        "connection": "number of its connection; null if the connection carried no payload and has no row",
        "direction": _DIRECTION,
        "flags": "names of its TCP flags (RFC 9293 section 3.1), - for none",
        "seq": "offset of its first payload byte in its direction, from 0",
        "note": "note of the analysis on the packet; null without a note",
    },
    "waits": {
        "direction": "the blocked side: client or server",
        "cause": "why nothing was sent",
        "in_flight_bytes": "bytes sent and not acknowledged at the start; null if unknown",
        "congestion_window_bytes": "estimate at the start",
        "receive_window_bytes": "the peer's TCP receive window at the start; null if unknown",
        "stream_window_bytes": "the HTTP/2 stream window at the start; null if unknown",
        "connection_window_bytes": "the HTTP/2 connection window at the start; null if unknown",
        "released_by_packet": "the peer's last packet before the side resumed; null without one",
        "idle_before_ns": "from the sender's last data to the flight that stopped",
        "retransmission_timeout_ns": "estimate of the sender's retransmission timeout",
        "flight_first_packet": "first packet of the flight that stopped",
    },
    "methods": {
        "method": "/package.Service/Method; null if it is not in the capture",
        "label": "distinguishes methods whose names are not in the capture",
        "rpcs": "RPCs",
        "messages": "complete messages of both directions",
        "first_start_time_ns": "start of the first RPC",
        "last_end_time_ns": "end of the last RPC, or the time it was last seen",
        "p50_ns": "median duration of complete RPCs (nearest rank)",
        "p90_ns": "duration that 90 % of complete RPCs do not exceed (nearest rank)",
        "p99_ns": "duration that 99 % of complete RPCs do not exceed (nearest rank)",
        "max_ns": "longest duration of complete RPCs",
        "mean_ns": "mean duration of complete RPCs",
        "budget": "RPC time by cause",
    },
    "findings": {
        "finding": "number of the finding, from 1",
        "id": "id of the finding, for grpcdiag explain ID",
        "title": "the finding in one line",
        "severity": "info, warning or critical",
        "confidence": "how much the capture can prove: low, medium or high",
        "lost_ns": "time that the RPCs would not have needed; null if no latency cost was measured",
        "share": "lost_ns as a share of all RPC time",
        "part_of": "the finding that this one is a part of, which counts the time; null for an independent finding",
        "connections": "connections of the finding",
        "methods": "methods of the finding",
        "explanation": "what happened, in sentences",
        "verdict": "the finding as one sentence",
    },
    "evidence": {
        "finding": "number of the finding",
        "id": "id of the finding",
        "packet": "number in the capture, from 1",
        "time_ns": "time of the packet",
        "what": "what the packet shows",
    },
    "columns": {
        "table": "name of the table",
        "column": "name of the column",
        "unit": "unit of the column; empty for counts, names and numbers",
        "description": "meaning of the column",
    },
    "problems": {
        "connection": "number of its connection; null without one",
        "layer": "protocol layer of the problem",
        "kind": "kind of problem",
    },
}
_OF_FLEETS: Mapping[str, str] = {
    "recording": "the recording, as in _recordings",
    "host": "the host that recorded it",
    "first_time_ns": "time of its first packet",
    "last_time_ns": "time of its last packet",
    "first_packet": "number of the first packet that shows it, in the recording",
    "client_sequence": "TCP sequence number of the client's first byte",
    "server_sequence": "TCP sequence number of the server's first byte",
    "marks": "sequence and acknowledgement numbers of some packets, to recognise the connection in another recording",
    "proxy": "address:port of the proxy behind which it is, if its call is counted before the proxy; else null",
    "remedy": "what to do first: the implementation or host, and the setting",
}
"""Columns that tables have only in the dataset of a fleet."""
_UNITS: tuple[tuple[str, str], ...] = (
    (r"(.*_)?time_ns", _EPOCH),
    (r".*_ns|budget", _DURATION),
    (r".*_bytes(_client|_server)?|bytes_(client|server)|length|mss|window|seq|ack", _BYTES),
)


def columns(table: str, names: Iterable[str]) -> list[Column]:
    """Describe the columns of a written table, including `budget_cause`. Raises KeyError for an unknown column."""
    return [Column(name, unit(name), description(table, name)) for name in names]


@cache
def unit(name: str) -> str:
    """Give the unit of a column by its name, as `docs/tables.md` defines it."""
    if name.startswith("budget_"):
        return _DURATION
    return next((unit for pattern, unit in _UNITS if re.fullmatch(pattern, name)), "")


def description(table: str, name: str) -> str:
    """Describe a column. Raises KeyError."""
    if name.startswith("budget_"):
        return f"part of the duration with the cause {name.removeprefix('budget_')}"
    own = _OWN[table].get(name)
    if own is None and table in _SAME:
        own = _read_descriptions(_SAME[table]).get(name)
    if own is None:
        own = _OF_FLEETS.get(name)
    if own is None:
        raise KeyError(f"{table}.{name} has no description")
    return own


@cache
def _read_descriptions(table: type) -> dict[str, str]:
    return {name: get_args(kind)[1] for name, kind in get_type_hints(table, include_extras=True).items()}
