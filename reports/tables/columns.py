"""What the columns of the written tables mean, and their units: `grpcdiag export` puts it into the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, get_args, get_type_hints

from ...analyzer.tables import Connections, Frames, Messages, Packets, Problems, Rpcs, Waits


class Column(NamedTuple):
    """A column of a written table."""

    name: str
    unit: str
    """Empty for what is counted, named or numbered."""
    description: str


TABLES: Mapping[str, str] = {
    "connections": "one row per TCP connection, of other protocols too",
    "rpcs": "one row per RPC",
    "messages": "one row per gRPC message",
    "frames": "one row per HTTP/2 frame",
    "packets": "one row per TCP packet",
    "waits": "one row per interval in which a side owed bytes and sent none",
    "methods": "one row per method",
    "findings": "one row per finding, the one that lost the most time first",
    "evidence": "one row per packet that shows a finding",
    "problems": "one row per place of decode trouble, as far as rows are kept",
    "columns": "one row per column of the other tables",
}
"""The written tables, and what a row is."""

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
"""Tables of the core whose columns keep their sentence where they keep their name."""

_DIRECTION = "sender: client or server"
_OWN: Mapping[str, Mapping[str, str]] = {
    "connections": {
        "connection": "number of the connection, from 0 in the order of first packets",
        "client": "address:port of the client",
        "server": "address:port of the server",
        "opened_time_ns": "time of the SYN; null when it is not in the capture",
        "closed_time_ns": "time of the FIN or RST that ended it; null when it is not in the capture",
        "vantage": "where the capture was taken: client, server, middle or unknown",
        "roles_from": "what tells which end is the client",
        "mss": "payload bytes of full segments",
        "complete": "whether the opening is in the capture",
        "tls": "whether it is TLS",
        "client_implementation": "gRPC implementation of the client; null when not told",
        "client_implementation_inferred": "whether frames tell it and not a header",
        "server_implementation": "gRPC implementation of the server; null when not told",
        "server_implementation_inferred": "whether frames tell it and not a header",
        "protocol": "undecided, http2, tls or other",
        "peer_max_concurrent_streams": "the server's SETTINGS_MAX_CONCURRENT_STREAMS; null when not told",
    },
    "rpcs": {
        "connection": "number of its connection",
        "method": "/package.Service/Method; null when it is not in the capture",
        "start_time_ns": "first byte of the request's HEADERS; null when that is before the capture",
        "duration_ns": "until the last byte of the frame that ended it for the client; null when begun before",
        "status": "name of the gRPC status; null when it is not on the wire",
        "request_messages": "whole request messages",
        "response_messages": "whole response messages",
        "request_bytes": "bytes of request messages without prefixes, as on the wire",
        "response_bytes": "bytes of response messages without prefixes, as on the wire",
        "last_packet": "packet of the last byte; null when the end is not in the capture",
        "complete": "whether begin and end are in the capture",
        "begun_before": "whether it began before the capture",
        "method_inferred": "whether the method is a guess; this version makes none",
        "method_label": "tells methods apart whose names are not in the capture",
        "method_unknown": "whether the method is not in the capture",
        "touches_gap": "whether bytes of it are missing from the capture",
        "deadline_ns": "the request's grpc-timeout; null without one",
        "budget": "duration divided among causes; it adds up to duration_ns",
    },
    "messages": {"direction": _DIRECTION, "compressed": "whether its compressed flag is set"},
    "frames": {"direction": _DIRECTION, "type": "name of the frame type (RFC 9113 section 6)"},
    "packets": {
        "connection": "number of its connection; null for one of those without payload that have no row",
        "direction": _DIRECTION,
        "flags": "names of its TCP flags (RFC 9293 section 3.1), - for none",
        "seq": "offset of its first payload byte in its direction, from 0",
        "note": "what the analysis says of it; null when there is nothing to say",
    },
    "waits": {
        "direction": "the side that owed: client or server",
        "cause": "why nothing was sent",
        "in_flight_bytes": "sent and not acknowledged at the stop; null when not known",
        "congestion_window_bytes": "estimate at the stop",
        "receive_window_bytes": "the peer's TCP window at the stop; null when not known",
        "stream_window_bytes": "the HTTP/2 stream's window at the stop; null when not known",
        "connection_window_bytes": "the HTTP/2 connection's window at the stop; null when not known",
        "released_by_packet": "the peer's packet right before the side went on; null for none",
        "idle_before_ns": "from the sender's last data to the flight that stopped",
        "retransmission_timeout_ns": "estimate of the sender's retransmission timeout",
        "flight_first_packet": "first packet of the flight that stopped",
    },
    "methods": {
        "method": "/package.Service/Method; null when it is not in the capture",
        "label": "tells methods apart whose names are not in the capture",
        "rpcs": "RPCs",
        "messages": "whole messages of both directions",
        "first_start_time_ns": "when the first RPC began",
        "last_end_time_ns": "when the last one ended or was last seen",
        "p50_ns": "median duration of complete RPCs (nearest rank)",
        "p90_ns": "duration that 90 % of complete RPCs do not exceed (nearest rank)",
        "p99_ns": "duration that 99 % of complete RPCs do not exceed (nearest rank)",
        "max_ns": "longest duration of complete RPCs",
        "mean_ns": "mean duration of complete RPCs",
        "budget": "RPC time divided among causes",
    },
    "findings": {
        "finding": "number of the finding, from 1",
        "id": "what it is: grpcdiag explain ID",
        "title": "one line",
        "severity": "info, warning or critical",
        "confidence": "what the capture can prove: low, medium or high",
        "lost_ns": "time the RPCs would not have needed; null where it costs packets or risk and not time",
        "share": "lost_ns as a share of all RPC time",
        "part_of": "the finding whose story it belongs to, which counts the time; null when it stands for itself",
        "connections": "connections it is about",
        "methods": "methods it is about",
        "explanation": "what happened, in sentences",
        "verdict": "the finding as one sentence",
    },
    "evidence": {
        "finding": "number of the finding",
        "id": "what the finding is",
        "packet": "number in the capture, from 1",
        "time_ns": "time of that packet",
        "what": "what it shows",
    },
    "columns": {
        "table": "the table",
        "column": "its column",
        "unit": "its unit; empty for what is counted, named or numbered",
        "description": "what it means",
    },
    "problems": {
        "connection": "number of its connection; null for none",
        "layer": "where it was met",
        "kind": "what it is",
    },
}
_OF_FLEETS: Mapping[str, str] = {
    "recording": "the recording, as in _recordings",
    "first_time_ns": "time of the first packet of it",
    "last_time_ns": "time of the last packet of it",
    "first_packet": "number of the first packet that shows it, in the recording",
    "client_sequence": "TCP sequence number of the client's first byte",
    "server_sequence": "TCP sequence number of the server's first byte",
    "marks": "sequence and acknowledgement numbers of some packets, by which another recording's connection is known",
    "remedy": "what to do first: whose setting, and the setting",
}
"""Columns that tables have in the dataset of a fleet only."""
_UNITS: tuple[tuple[str, str], ...] = (
    (r"(.*_)?time_ns", _EPOCH),
    (r".*_ns|budget", _DURATION),
    (r".*_bytes(_client|_server)?|bytes_(client|server)|length|mss|window|seq|ack", _BYTES),
)


def columns(table: str, names: Iterable[str]) -> list[Column]:
    """The columns of a written table, `budget_cause` too. Raises KeyError for one without a sentence."""
    return [Column(name, unit(name), description(table, name)) for name in names]


def unit(name: str) -> str:
    """The unit of a column; by its name, as the tables' contract has it."""
    if name.startswith("budget_"):
        return _DURATION
    return next((unit for pattern, unit in _UNITS if re.fullmatch(pattern, name)), "")


def description(table: str, name: str) -> str:
    """What a column means. Raises KeyError."""
    if name.startswith("budget_"):
        return f"of the duration, the part whose cause is {name.removeprefix('budget_')}"
    own = _OWN[table].get(name)
    if own is None and table in _SAME:
        own = _sentences(_SAME[table]).get(name)
    if own is None:
        own = _OF_FLEETS.get(name)
    if own is None:
        raise KeyError(f"{table}.{name} has no sentence")
    return own


@cache
def _sentences(table: type) -> dict[str, str]:
    return {name: get_args(kind)[1] for name, kind in get_type_hints(table, include_extras=True).items()}
