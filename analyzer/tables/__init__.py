"""The tables that decoding produces: one struct per table, one sentence and a unit per column.

Columns are numpy arrays of equal length; a reference to another table is a row number. Instants are int64 nanoseconds
since the epoch, durations int64 nanoseconds, sizes bytes. -1 stands for "not known" unless a column says otherwise.
Directions are 0 for `client` (client to server) and 1 for `server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from msgspec import Struct

from .. import _core
from .calls import Delays as Delays
from .calls import Failures as Failures
from .calls import Messages as Messages
from .calls import Method as Method
from .calls import Names as Names
from .calls import OpenRpcs as OpenRpcs
from .calls import OtherRequests as OtherRequests
from .calls import Repeats as Repeats
from .calls import Rpcs as Rpcs
from .calls import names_of as names_of
from .columns import BEGUN_BEFORE as BEGUN_BEFORE
from .columns import COMPLETE as COMPLETE
from .columns import DIRECTIONS as DIRECTIONS
from .columns import END_MISSING as END_MISSING
from .columns import ERROR_CODES as ERROR_CODES
from .columns import HEADERS_UNKNOWN as HEADERS_UNKNOWN
from .columns import LAYERS as LAYERS
from .columns import METHOD_UNKNOWN as METHOD_UNKNOWN
from .columns import NO_AGENT as NO_AGENT
from .columns import NO_METHOD as NO_METHOD
from .columns import NOT_SEEN as NOT_SEEN
from .columns import PAUSE_NS as PAUSE_NS
from .columns import PROTOCOLS as PROTOCOLS
from .columns import TOUCHES_GAP as TOUCHES_GAP
from .columns import WINDOW_NOT_KNOWN as WINDOW_NOT_KNOWN
from .columns import Codes as Codes
from .columns import Counts as Counts
from .columns import Ints as Ints
from .columns import Mask as Mask
from .columns import Shorts as Shorts
from .columns import Sizes as Sizes
from .columns import error_name as error_name
from .connections import Closings as Closings
from .connections import ConnectionMethods as ConnectionMethods
from .connections import Connections as Connections
from .connections import Directions as Directions
from .connections import IcmpErrors as IcmpErrors
from .connections import Idles as Idles
from .connections import LookupAddresses as LookupAddresses
from .connections import Lookups as Lookups
from .connections import Records as Records
from .connections import Setups as Setups
from .connections import Stalls as Stalls
from .connections import Turns as Turns
from .connections import Unanswered as Unanswered
from .connections import Undelivered as Undelivered
from .durations import MOST_NS, clip_ns
from .processes import Processes as Processes
from .waits import Measured as Measured
from .waits import Waits as Waits
from .wire import Frames as Frames
from .wire import Goaways as Goaways
from .wire import Packets as Packets
from .wire import Pings as Pings
from .wire import Problems as Problems
from .wire import Queues as Queues

Table = TypeVar("Table", bound=Struct)


def table_of(kind: type[Table], columns: Mapping[str, Any]) -> Table:
    """Build a table from named columns; extra entries are left out. Raises KeyError when a column is missing."""
    return kind(**{name: columns[name] for name in kind.__struct_fields__})


class Before(Struct, frozen=True, eq=False):
    """The tables that a part of the RPCs was taken from: a blocked interval depends on those before it."""

    tables: Tables
    """The tables of all RPCs."""
    waits: Ints
    """The rows of their waits table that the part has, in order."""


class Tables(Struct, frozen=True, eq=False, weakref=True):
    """The result of decoding one capture."""

    capture: Mapping[str, Any]
    """Counts and facts of the capture as a whole."""
    connections: Connections
    connection_budgets: Ints
    """Nanoseconds per connection and cause, shape (connections, causes)."""
    rpcs: Rpcs
    deadlines: Ints
    """Deadline per RPC in nanoseconds, -1 for none."""
    rpc_budgets: Ints
    """Nanoseconds per RPC and cause, shape (RPCs, causes); empty unless asked for."""
    request_budgets: Ints
    """`rpc_budgets` up to the end of the request, zeros where it did not end; empty unless packets are asked for."""
    request_ends: Counts
    """Packet that completed each RPC's request, 0 for none; empty unless packets are asked for."""
    messages: Messages
    """See `Messages`; empty unless asked for."""
    frames: Frames
    """See `Frames`; empty unless asked for."""
    packets: Packets
    """See `Packets`; empty unless asked for."""
    waits: Waits
    record_waits: Waits
    """Blocked intervals inside records of TLS that was not decrypted."""
    records: Records
    directions: Directions
    turns: Turns
    setups: Setups
    lookups: Lookups
    lookup_addresses: LookupAddresses
    lookup_names: tuple[str, ...]
    """Names that DNS servers were asked for."""
    icmp_errors: IcmpErrors
    idles: Idles
    stalls: Stalls
    unanswered: Unanswered
    undelivered: Undelivered
    closings: Closings
    open_rpcs: OpenRpcs
    pings: Pings
    goaways: Goaways
    goaway_reasons: tuple[str, ...]
    """Debug texts of GOAWAY frames, printable and cut to 64 characters; the first one is empty."""
    repeats: Repeats
    delays: Delays
    other_requests: OtherRequests
    paths: tuple[str | None, ...]
    """Paths of requests by number, those of RPCs too; None for one that is not in the capture."""
    queues: Queues
    connection_methods: ConnectionMethods
    failures: Failures
    failure_budgets: Ints
    """Nanoseconds per failure and cause, shape (failures, causes)."""
    problems: Problems
    problem_kinds: tuple[str, ...]
    """Texts of problems."""
    problem_counts: tuple[int, ...]
    """How often each kind occurred, beyond the rows kept."""
    methods: tuple[Method, ...]
    """Methods that RPCs used."""
    addresses: tuple[str, ...]
    """IP addresses."""
    errors: tuple[str, ...]
    """Texts of `grpc-message` as they were sent, percent-encoded; those that
    implementations write themselves, and all when asked for."""
    agents: tuple[str, ...]
    """Implementations named by clients."""
    frame_counts: Mapping[str, int]
    """Frames by type."""
    message_count: int
    """gRPC messages of both directions."""
    begun_before: int
    """RPCs that began before the capture."""
    other_streams: int
    """HTTP/2 streams that are not gRPC."""
    measured: Measured | None = None
    """See `Measured`; None where all windows are estimates."""
    processes: Processes | None = None
    """What the recorded host's scheduler did; None without a process record."""
    before: Before | None = None
    """See `Before`; None for tables of all RPCs."""

    @property
    def rpc_count(self) -> int:
        """Count the RPCs of the capture, with or without rows."""
        return sum(method.rpcs for method in self.methods)

    def method_name(self, number: int) -> str | None:
        """Find the name of a method by its number."""
        return next((method.name for method in self.methods if method.number == number), None)

    def client(self, connection: int) -> str:
        """Format the client of a connection as `address:port`."""
        c = self.connections
        return self.format_end(c.client_ip[connection], c.client_port[connection])

    def server(self, connection: int) -> str:
        """Format the server of a connection as `address:port`."""
        c = self.connections
        return self.format_end(c.server_ip[connection], c.server_port[connection])

    def format_end(self, address: SupportsIndex, port: object) -> str:
        """Format an end of a connection by the number of its address."""
        text = self.addresses[address]
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def _make_method(found: dict[str, Any]) -> Method:
    latency, turnaround = _clip_quantiles(found["latency"]), _clip_quantiles(found["turnaround"])
    budget = found["budget"]
    columns = {
        "label": None if found["label"] is None else f"method #{found['label']}",
        "statuses": tuple(found["statuses"]),
        "distribution": tuple(found["distribution"]),
        "budget": tuple(budget if max(budget) <= MOST_NS else map(clip_ns, budget)),
        "latency_intervals": latency and latency.pop("intervals"),
        "turnaround_intervals": turnaround and turnaround.pop("intervals"),
        "latency": latency,
        "turnaround": turnaround,
    }
    return Method(**found | columns)


def _clip_quantiles(quantiles: dict[str, Any] | None) -> dict[str, Any] | None:
    """Limit durations, which the core counts in unsigned 64 bits."""
    if quantiles is None or quantiles["max"] <= MOST_NS:
        return quantiles
    intervals = quantiles["intervals"]
    found = {name: min(value, MOST_NS) for name, value in quantiles.items() if name != "intervals"}
    known = {name: tuple(end if end is None else min(end, MOST_NS) for end in ends) for name, ends in intervals.items()}
    return found | {"intervals": known}


_TABLES: dict[str, type[Struct]] = {
    name: globals()[kind]
    for name, kind in Tables.__annotations__.items()  # texts: evaluating all of them takes milliseconds
    if isinstance(globals().get(kind), type)
}
"""The fields of `Tables` that are tables."""


def tables_of(result: Mapping[str, Any]) -> Tables:
    """Build the tables from the result of the core's run."""
    frame_names = [*_core.FRAME_TYPES, "UNKNOWN"]
    found = {name: result[name] for name in Tables.__struct_fields__ if name in result}
    found |= {name: table_of(kind, result[name]) for name, kind in _TABLES.items()}
    found |= {name: tuple(result[name]) for name in _TEXTS}
    found["deadlines"] = pad_deadlines(result["deadlines"], len(result["rpcs"]["connection"]))
    found["problem_kinds"], found["problem_counts"] = (tuple(result["problems"][name]) for name in ("kinds", "counts"))
    found["methods"] = tuple(_make_method(method) for method in result["methods"])
    found["frame_counts"] = {name: n for name, n in zip(frame_names, result["frame_counts"], strict=True) if n}
    return Tables(**found)


def pad_deadlines(deadlines: Ints, rpcs: int) -> Ints:
    """Add -1 for the last RPCs: the core gives deadlines up to the last RPC that has one."""
    left_out = max(rpcs - len(deadlines), 0)
    return np.append(deadlines, np.full(left_out, -1)) if left_out else deadlines


_TEXTS = ("lookup_names", "goaway_reasons", "paths", "addresses", "errors", "agents")
