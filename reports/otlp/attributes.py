"""Attributes of spans by OpenTelemetry's semantic conventions for RPC, and what grpcdiag adds.

`rpc.system`, `rpc.service` and `rpc.grpc.status_code` are names until version 1.37, which many tools still read.
"""

from collections.abc import Mapping
from typing import Any

from ...analyzer import _core
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.text import safe
from ...analyzer.summary.figures import HTTP1
from ...analyzer.tables import BEGUN_BEFORE, COMPLETE, NOT_SEEN, Tables

Attribute = dict[str, Any]
"""An attribute of OTLP JSON."""

SERVER, CLIENT = 2, 3
"""Values of `SpanKind`."""
_SERVER_ERRORS = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
"""Statuses that the conventions count as errors in a server's span; in a client's, all but OK are errors."""
_SYSTEMS = {"connect": ("connectrpc", "connect_rpc")}
"""Present and former names of systems other than gRPC, by `_core.RPC_PROTOCOLS`."""


def make_attributes(values: Mapping[str, str | int | bool | None]) -> list[Attribute]:
    """Make attributes of values, without those that are None."""
    return [{"key": key, "value": _make_value(value)} for key, value in values.items() if value is not None]


def _make_value(value: str | int | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def find_kind(tables: Tables, connection: int) -> int:
    """Find the kind of an RPC's span: SERVER if the capture was taken at the server, otherwise CLIENT."""
    return SERVER if _core.VANTAGES[tables.connections.vantage[connection]] == "server" else CLIENT


def find_status(row: Mapping[str, int]) -> str | None:
    """Find the name of an RPC's status, None if it is unknown."""
    return None if row["status"] == NOT_SEEN else _core.STATUSES[row["status"]]


def is_error(status: str | None, kind: int) -> bool:
    """Say whether the conventions count a status as an error."""
    return status in _SERVER_ERRORS if kind == SERVER else status not in (None, "OK")


def describe_rpc(
    row: Mapping[str, int], method: str | None, budget: list[int], peers: list[Attribute], kind: int
) -> list[Attribute]:
    """Describe an RPC by its row, its method and its budget."""
    protocol = _core.RPC_PROTOCOLS[row["protocol"]]
    present, former = _SYSTEMS.get(protocol, ("grpc", "grpc"))
    status = find_status(row)
    values: dict[str, str | int | bool | None] = {
        "rpc.system.name": present,
        "rpc.system": former,
        "rpc.method": method,
        "rpc.service": method.rpartition("/")[0] or None if method else None,
        "rpc.response.status_code": status,
        "rpc.grpc.status_code": row["status"] if status and present == "grpc" else None,
        "error.type": status if is_error(status, kind) else None,
        "grpcdiag.stream": row["stream"],
        "grpcdiag.first_packet": row["first_packet"],
        "grpcdiag.last_packet": row["last_packet"] or None,
        "grpcdiag.complete": row["flags"] & (COMPLETE | BEGUN_BEFORE) == COMPLETE,
        "grpcdiag.begun_before": True if row["flags"] & BEGUN_BEFORE else None,
        "grpcdiag.status_source": _core.STATUS_SOURCES[row["status_source"]] if row["status_source"] else None,
    }
    times = {f"grpcdiag.budget.{cause}_ns": ns for cause, ns in zip(CAUSES, budget, strict=True) if ns}
    return make_attributes(values) + peers + make_attributes(times)


def describe_connection(tables: Tables, connection: int) -> list[Attribute]:
    """Describe the connection of an RPC: both ends, the protocol, and where the capture was taken."""
    of = tables.connections
    client, server = (tables.addresses[int(ip[connection])] for ip in (of.client_ip, of.server_ip))
    ports = int(of.client_port[connection]), int(of.server_port[connection])
    at_server = find_kind(tables, connection) == SERVER
    return make_attributes(
        {
            "server.address": server,
            "server.port": ports[1],
            "client.address": client if at_server else None,
            "client.port": ports[0] if at_server else None,
            "network.peer.address": client if at_server else server,
            "network.peer.port": ports[0] if at_server else ports[1],
            "network.local.address": server if at_server else client,
            "network.local.port": ports[1] if at_server else ports[0],
            "network.transport": "tcp",
            "network.type": "ipv6" if ":" in server else "ipv4",
            "network.protocol.name": "http",
            "network.protocol.version": "1.1" if of.protocol[connection] == HTTP1 else "2",
            "grpcdiag.connection": connection,
            "grpcdiag.vantage": _core.VANTAGES[of.vantage[connection]],
        }
    )


def name_method(name: str | None) -> str | None:
    """Write a method without its leading slash, as spans are named; None if the capture lacks it."""
    return safe(name.removeprefix("/")) if name else None
