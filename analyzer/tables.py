"""The tables that decoding ends in: one dataclass per table, one sentence and a unit per column.

Columns are numpy arrays of equal length; a reference to another table is a row number. Instants are int64 nanoseconds
since the epoch, durations int64 nanoseconds, sizes bytes. -1 stands for "not known" unless a column says otherwise.
Directions are 0 for `client` (client to server) and 1 for `server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _core

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Sizes = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint8]

DIRECTIONS = ("client", "server")
"""Names of directions by number."""
NOT_SEEN = 255
"""Status of an RPC whose status is not on the wire."""
NO_METHOD = 0xFFFF_FFFF
"""Method number of RPCs whose method is not in the capture."""
WINDOW_NOT_KNOWN = np.iinfo(np.int64).min
"""HTTP/2 window that is not known; real windows may be negative (RFC 9113 section 6.9.2)."""

COMPLETE = 1
"""Bit of `Rpcs.flags`: the end of the RPC was seen."""
METHOD_UNKNOWN = 2
"""Bit of `Rpcs.flags`: the method was not on the wire in this capture."""
TOUCHES_GAP = 8
"""Bit of `Rpcs.flags`: bytes of the RPC are missing from the capture."""
HEADERS_UNKNOWN = 16
"""Bit of `Rpcs.flags`: fields of the request's headers are not known: its deadline may be among them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Connections:
    """One row per TCP connection, in the order of first packets."""

    client_ip: Counts = field(metadata={"doc": "client's address, index into `Tables.addresses`"})
    client_port: Counts = field(metadata={"doc": "client's port"})
    server_ip: Counts = field(metadata={"doc": "server's address, index into `Tables.addresses`"})
    server_port: Counts = field(metadata={"doc": "server's port"})
    opened_time_ns: Ints = field(metadata={"doc": "time of the SYN"})
    closed_time_ns: Ints = field(metadata={"doc": "time of the FIN or RST that ended it"})
    first_time_ns: Ints = field(metadata={"doc": "time of its first packet"})
    last_time_ns: Ints = field(metadata={"doc": "time of its last packet"})
    first_packet: Counts = field(metadata={"doc": "number of its first packet"})
    last_packet: Counts = field(metadata={"doc": "number of its last packet"})
    handshake_rtt_ns: Ints = field(metadata={"doc": "from the SYN to the ACK of the SYN-ACK"})
    min_rtt_ns: Ints = field(metadata={"doc": "sum of the smallest round trips from the capture point to both ends"})
    near_client_rtt_ns: Ints = field(metadata={"doc": "smallest round trip from the capture point to the client"})
    near_server_rtt_ns: Ints = field(metadata={"doc": "smallest round trip from the capture point to the server"})
    vantage: Codes = field(metadata={"doc": "where the capture was taken, index into `VANTAGES`"})
    roles_from: Codes = field(metadata={"doc": "what tells the client, index into `ROLES_FROM`"})
    client_side: Codes = field(metadata={"doc": "0 when the client sent the first packet, else 1"})
    protocol: Codes = field(metadata={"doc": "index into `PROTOCOLS`"})
    complete: Codes = field(metadata={"doc": "1 when the opening is in the capture"})
    tls: Codes = field(metadata={"doc": "1 when it is TLS"})
    tls_version: Counts = field(metadata={"doc": "0x0303 for TLS 1.2, 0x0304 for TLS 1.3, 0 when not known"})
    tls_handshake_ns: Ints = field(metadata={"doc": "from the ClientHello to the client's Finished"})
    tls_decrypted: Codes = field(metadata={"doc": "1 when application data were decrypted"})
    closed_by: Codes = field(metadata={"doc": "direction that closed first, 2 when it was not closed"})
    mss_client: Counts = field(metadata={"doc": "payload bytes of the client's full segments, 0 when not known"})
    mss_server: Counts = field(metadata={"doc": "payload bytes of the server's full segments, 0 when not known"})
    client_agent: Counts = field(metadata={"doc": "implementation in `user-agent`, index into `Tables.agents`"})
    client_hint: Codes = field(metadata={"doc": "client's implementation by its frames, index into `IMPLEMENTATIONS`"})
    server_hint: Codes = field(metadata={"doc": "server's implementation by its frames, index into `IMPLEMENTATIONS`"})
    rpcs: Counts = field(metadata={"doc": "RPCs on it"})
    max_concurrent_rpcs: Counts = field(metadata={"doc": "most RPCs open at once"})
    other_streams: Counts = field(metadata={"doc": "HTTP/2 streams that are not gRPC"})
    peer_max_concurrent_streams: Ints = field(metadata={"doc": "the server's SETTINGS_MAX_CONCURRENT_STREAMS"})
    packets_client: Counts = field(metadata={"doc": "packets of the client"})
    packets_server: Counts = field(metadata={"doc": "packets of the server"})
    bytes_client: Sizes = field(metadata={"doc": "TCP payload bytes of the client on the wire"})
    bytes_server: Sizes = field(metadata={"doc": "TCP payload bytes of the server on the wire"})
    congestion_after_loss_ns: Sizes = field(metadata={"doc": "RPC time in a congestion window that a loss had reduced"})
    retransmission_timeouts: Counts = field(metadata={"doc": "retransmissions after a silence as long as a timeout"})
    recovery_ns: Ints = field(metadata={"doc": "the longest time from a loss, as far as seen, to its repair"})
    recovery_time_ns: Ints = field(metadata={"doc": "time of that repair"})
    recovery_from_packet: Counts = field(metadata={"doc": "packet behind the lost one, or the last before it; 0: none"})
    recovery_to_packet: Counts = field(metadata={"doc": "packet that repeats the lost one, 0: none"})
    retransmitted_packets: Counts = field(metadata={"doc": "packets with bytes sent before"})
    duplicate_packets: Counts = field(metadata={"doc": "packets recorded twice, counted once everywhere else"})
    keep_alives: Counts = field(metadata={"doc": "TCP keep-alives with a byte"})
    out_of_order_packets: Counts = field(metadata={"doc": "packets recorded before bytes in front of theirs"})
    urgent_packets: Counts = field(metadata={"doc": "packets with urgent data, which is read as data"})
    late_packets: Counts = field(metadata={"doc": "packets after the connection was over"})
    missing_bytes: Sizes = field(metadata={"doc": "payload bytes that the capture lacks"})
    payload_bytes: Sizes = field(metadata={"doc": "payload bytes recorded, the sum of the five columns that follow"})
    decoded_bytes: Sizes = field(metadata={"doc": "read as HTTP/2"})
    retransmitted_bytes: Sizes = field(metadata={"doc": "recorded before"})
    not_http2_bytes: Sizes = field(metadata={"doc": "of another protocol"})
    encrypted_bytes: Sizes = field(metadata={"doc": "of TLS"})
    undecoded_bytes: Sizes = field(metadata={"doc": "HTTP/2 whose frame boundaries are not known"})
    goaway_client: Ints = field(metadata={"doc": "error code of the client's GOAWAY"})
    goaway_server: Ints = field(metadata={"doc": "error code of the server's GOAWAY"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rpcs:
    """One row per RPC, in the order in which they started."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    stream: Counts = field(metadata={"doc": "HTTP/2 stream identifier"})
    method: Counts = field(metadata={"doc": "number of its method, `NO_METHOD` when not in the capture"})
    start_time_ns: Ints = field(metadata={"doc": "first byte of the request's HEADERS"})
    duration_ns: Ints = field(metadata={"doc": "until the last byte of the frame that ended it for the client"})
    status: Codes = field(metadata={"doc": "gRPC status code, `NOT_SEEN` when not on the wire"})
    flags: Codes = field(metadata={"doc": "bits `COMPLETE`, `METHOD_UNKNOWN`, `TOUCHES_GAP`, `HEADERS_UNKNOWN`"})
    request_messages: Counts = field(metadata={"doc": "whole request messages; empty unless asked for"})
    response_messages: Counts = field(metadata={"doc": "whole response messages; empty unless asked for"})
    request_bytes: Sizes = field(
        metadata={"doc": "request message bytes without prefixes, as on the wire; empty unless asked for"}
    )
    response_bytes: Sizes = field(
        metadata={"doc": "response message bytes without prefixes, as on the wire; empty unless asked for"}
    )
    first_packet: Counts = field(metadata={"doc": "packet of the first byte"})
    last_packet: Counts = field(metadata={"doc": "packet of the last byte, 0 when the end was not seen"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Messages:
    """One row per gRPC message, in the order in which they were whole."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    stream: Counts = field(metadata={"doc": "HTTP/2 stream identifier"})
    direction: Codes = field(metadata={"doc": "sender"})
    index: Counts = field(metadata={"doc": "position among the messages of its direction, from 0"})
    length: Counts = field(metadata={"doc": "bytes without the prefix"})
    compressed: Codes = field(metadata={"doc": "1 when its compressed flag is set"})
    first_packet: Counts = field(metadata={"doc": "packet of its prefix's first byte"})
    first_time_ns: Ints = field(metadata={"doc": "time of that packet"})
    last_packet: Counts = field(metadata={"doc": "packet at which its last byte was readable in order"})
    last_time_ns: Ints = field(metadata={"doc": "time of that packet"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frames:
    """One row per HTTP/2 frame, in the order in which they were whole."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    direction: Codes = field(metadata={"doc": "sender"})
    stream: Counts = field(metadata={"doc": "HTTP/2 stream identifier, 0 for the connection"})
    kind: Codes = field(metadata={"doc": "frame type (RFC 9113 section 6)"})
    flags: Codes = field(metadata={"doc": "flags as sent"})
    length: Counts = field(metadata={"doc": "payload bytes without the nine of the header"})
    first_packet: Counts = field(metadata={"doc": "packet of its header's first byte"})
    first_time_ns: Ints = field(metadata={"doc": "time of that packet"})
    last_packet: Counts = field(metadata={"doc": "packet at which its last byte was readable in order"})
    last_time_ns: Ints = field(metadata={"doc": "time of that packet"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packets:
    """One row per TCP packet, in the order of the capture."""

    packet: Counts = field(metadata={"doc": "number in the capture, from 1"})
    time_ns: Ints = field(metadata={"doc": "capture time"})
    connection: Counts = field(metadata={"doc": "row of its connection"})
    direction: Codes = field(metadata={"doc": "sender"})
    flags: Counts = field(metadata={"doc": "TCP flags (RFC 9293 section 3.1)"})
    seq: Sizes = field(metadata={"doc": "offset of its first payload byte in its direction, from 0"})
    ack: Sizes = field(metadata={"doc": "bytes of the other direction it acknowledges"})
    window: Sizes = field(metadata={"doc": "receive window in bytes, scaled when the scale is known"})
    payload_bytes: Counts = field(metadata={"doc": "TCP payload bytes on the wire"})
    captured_payload_bytes: Counts = field(metadata={"doc": "TCP payload bytes recorded"})
    note: Codes = field(metadata={"doc": "what the analysis says of it, index into `PACKET_NOTES`"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Waits:
    """One row per interval in which a side owed bytes and sent none."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    stream: Counts = field(metadata={"doc": "stream whose bytes came last before the stop"})
    direction: Codes = field(metadata={"doc": "the side that owed"})
    start_time_ns: Ints = field(metadata={"doc": "its last bytes before the stop"})
    duration_ns: Ints = field(metadata={"doc": "until its next bytes"})
    cause: Codes = field(metadata={"doc": "index into `CAUSES`"})
    owed_bytes: Sizes = field(metadata={"doc": "bytes of the message or frame still to come at the stop"})
    in_flight_bytes: Ints = field(metadata={"doc": "sent and not acknowledged at the stop, as the sender knew it"})
    congestion_window_bytes: Ints = field(metadata={"doc": "estimate at the stop"})
    receive_window_bytes: Ints = field(metadata={"doc": "the peer's TCP window at the stop"})
    stream_window_bytes: Ints = field(metadata={"doc": "the stream's window, `WINDOW_NOT_KNOWN` when not known"})
    connection_window_bytes: Ints = field(metadata={"doc": "the connection's, `WINDOW_NOT_KNOWN` when not known"})
    stopped_at_packet: Counts = field(metadata={"doc": "packet of the last bytes before the stop"})
    released_by_packet: Counts = field(metadata={"doc": "the ACK right before the sender resumed, 0 for none"})
    resumed_at_packet: Counts = field(metadata={"doc": "packet of the next bytes"})
    released_time_ns: Ints = field(metadata={"doc": "time of the ACK right before the sender resumed"})
    flight: Counts = field(metadata={"doc": "which of the sender's flights it interrupted, from 1"})
    flight_first_packet: Counts = field(metadata={"doc": "the flight's first packet"})
    flight_start_time_ns: Ints = field(metadata={"doc": "time of that packet"})
    idle_before_ns: Ints = field(metadata={"doc": "from the sender's last data to the flight"})
    rto_ns: Ints = field(metadata={"doc": "estimate of the sender's retransmission timeout"})
    window_before_idle_bytes: Ints = field(metadata={"doc": "estimated congestion window before the idle time"})
    mss: Counts = field(metadata={"doc": "payload bytes of the sender's full segments"})
    rtt_ns: Ints = field(metadata={"doc": "smallest round trip so far"})
    streams: Counts = field(metadata={"doc": "streams whose message it interrupted"})
    retransmissions: Counts = field(metadata={"doc": "retransmissions of the sender during it"})
    after_loss: Codes = field(metadata={"doc": "1 when the congestion window that bound had been reduced by a loss"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Directions:
    """One row per connection and direction: row 2 x connection is the client's, the next one the server's."""

    payload_packets: Counts = field(metadata={"doc": "packets with payload, retransmissions left out"})
    control_packets: Counts = field(metadata={"doc": "of these, packets with PING, WINDOW_UPDATE or SETTINGS alone"})
    ping_packets: Counts = field(metadata={"doc": "control packets with a PING that is no acknowledgement"})
    ping_ack_packets: Counts = field(metadata={"doc": "control packets with the acknowledgement of a PING"})
    window_update_packets: Counts = field(metadata={"doc": "control packets with a WINDOW_UPDATE"})
    settings_packets: Counts = field(metadata={"doc": "control packets with SETTINGS or their acknowledgement"})
    data_frames: Counts = field(metadata={"doc": "DATA frames"})
    header_frames: Counts = field(metadata={"doc": "HEADERS, CONTINUATION and PUSH_PROMISE frames"})
    pings: Counts = field(metadata={"doc": "PING frames, acknowledgements left out"})
    ping_acks: Counts = field(metadata={"doc": "PING frames that acknowledge"})
    window_updates: Counts = field(metadata={"doc": "WINDOW_UPDATE frames"})
    settings: Counts = field(metadata={"doc": "SETTINGS frames and their acknowledgements"})
    resets: Counts = field(metadata={"doc": "RST_STREAM frames"})
    header_block_bytes: Sizes = field(metadata={"doc": "payload bytes of the header frames, compressed as sent"})
    messages: Counts = field(metadata={"doc": "whole gRPC messages"})
    message_bytes: Sizes = field(metadata={"doc": "their bytes without prefixes"})
    message_packets: Counts = field(metadata={"doc": "packets in which a message ended"})
    first_message_time_ns: Ints = field(metadata={"doc": "end of the first message"})
    last_message_time_ns: Ints = field(metadata={"doc": "end of the last message"})
    busy_intervals: Counts = field(metadata={"doc": "intervals of 10 ms in which a message ended"})
    bdp_pings: Counts = field(metadata={"doc": "PINGs whose payload is a bandwidth estimator's"})
    keepalive_pings: Counts = field(metadata={"doc": "PINGs whose payload is a keepalive's"})
    drain_pings: Counts = field(metadata={"doc": "PINGs whose payload is a graceful shutdown's"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Turns:
    """One row per connection: whose turn it was, and how its limit of concurrent streams bound.

    The client holds the ball while no RPC waits for an answer: nothing is owed to it and nothing is on the way. Such
    intervals count from the moment at which the client can have the last answer. Those of `PAUSE_NS` and more are
    pauses, the application's own; the shorter ones are `idles`.
    """

    idle_ns: Ints = field(metadata={"doc": "time in which the client held the ball, pauses left out"})
    idles: Counts = field(metadata={"doc": "how many such intervals there were"})
    pauses: Counts = field(metadata={"doc": "intervals of `PAUSE_NS` and more"})
    pause_ns: Ints = field(metadata={"doc": "their time"})
    bursts: Counts = field(metadata={"doc": "runs of request messages without a response message in between"})
    burst_messages: Counts = field(metadata={"doc": "request messages in them"})
    at_limit_ns: Ints = field(metadata={"doc": "time with as many streams open as the server's SETTINGS allow"})
    at_limit_times: Counts = field(metadata={"doc": "how often the limit was reached"})
    ended_at_limit: Counts = field(metadata={"doc": "streams that ended while the limit was reached"})
    refills: Counts = field(metadata={"doc": "of these, those whose place a new stream took at once"})
    refill_ended_packet: Counts = field(metadata={"doc": "packet that ended a stream at the limit, of one refill"})
    refill_opened_packet: Counts = field(metadata={"doc": "packet that opened the stream in its place"})
    refill_time_ns: Ints = field(metadata={"doc": "time of that packet"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Idles:
    """The intervals in which the client held the ball by length: one row per connection and class that occurs.

    Class n holds lengths from 2^n to 2^(n+1) microseconds; class 0 the shorter ones too.
    """

    connection: Counts = field(metadata={"doc": "row of its connection"})
    length_class: Codes = field(metadata={"doc": "binary logarithm of the length in microseconds"})
    count: Counts = field(metadata={"doc": "intervals of this class"})
    total_ns: Ints = field(metadata={"doc": "their time"})
    start_time_ns: Ints = field(metadata={"doc": "beginning of the last one: when the client can have the last answer"})
    duration_ns: Ints = field(metadata={"doc": "its length"})
    before_packet: Counts = field(metadata={"doc": "packet that ended what was owed to the client"})
    after_packet: Counts = field(metadata={"doc": "the client's next request packet"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pings:
    """PING frames: the first of each connection and those before a GOAWAY."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    direction: Codes = field(metadata={"doc": "sender"})
    packet: Counts = field(metadata={"doc": "packet of its last byte"})
    time_ns: Ints = field(metadata={"doc": "time of that packet"})
    ack: Codes = field(metadata={"doc": "1 for an acknowledgement"})
    purpose: Codes = field(metadata={"doc": "what its payload tells, index into `PING_PURPOSES`"})
    strikes: Codes = field(metadata={"doc": "strikes of the client after it by gRFC A8's rule"})
    open_rpcs: Counts = field(metadata={"doc": "RPCs open at that moment"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Goaways:
    """GOAWAY frames."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    direction: Codes = field(metadata={"doc": "sender"})
    packet: Counts = field(metadata={"doc": "packet of its last byte"})
    time_ns: Ints = field(metadata={"doc": "time of that packet"})
    code: Counts = field(metadata={"doc": "error code (RFC 9113 section 7)"})
    last_stream: Counts = field(metadata={"doc": "highest stream that was or may be processed"})
    reason: Counts = field(metadata={"doc": "its debug text, index into `Tables.goaway_reasons`"})
    open_rpcs: Counts = field(metadata={"doc": "RPCs open at that moment"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Delays:
    """Directions of streams whose first DATA came 1 ms or more after their HEADERS."""

    connection: Counts = field(metadata={"doc": "row of its connection"})
    stream: Counts = field(metadata={"doc": "HTTP/2 stream identifier"})
    direction: Codes = field(metadata={"doc": "sender"})
    headers_packet: Counts = field(metadata={"doc": "packet of the header block's last byte"})
    headers_time_ns: Ints = field(metadata={"doc": "time of that packet"})
    data_packet: Counts = field(metadata={"doc": "packet of the first message byte"})
    duration_ns: Ints = field(metadata={"doc": "from one to the other"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Failures:
    """RPCs that ended otherwise than with status OK; their budgets are `Tables.failure_budgets`."""

    rpc: Counts = field(metadata={"doc": "row of the RPC"})
    reset_by: Codes = field(metadata={"doc": "sender of the RST_STREAM that ended it, 2 for none"})
    reset_code: Counts = field(metadata={"doc": "its error code (RFC 9113 section 7)"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Problems:
    """Decode trouble as data."""

    time_ns: Ints = field(metadata={"doc": "when"})
    connection: Counts = field(metadata={"doc": "row of its connection, 4294967295 for none"})
    packet: Counts = field(metadata={"doc": "number of the packet"})
    layer: Codes = field(metadata={"doc": "index into `LAYERS`"})
    kind: Counts = field(metadata={"doc": "index into `Tables.problem_kinds`"})


PROTOCOLS = ("undecided", "http2", "tls", "other")
"""Names of `Connections.protocol`."""
LAYERS = ("packet", "tcp", "http2", "grpc", "tls")
"""Names of `Problems.layer`."""

PAUSE_NS = 10_000_000
"""From this length on an interval in which the client holds the ball is its application's own pause, nanoseconds."""

Table = TypeVar(
    "Table",
    Connections,
    Rpcs,
    Messages,
    Frames,
    Packets,
    Waits,
    Directions,
    Turns,
    Idles,
    Pings,
    Goaways,
    Delays,
    Failures,
    Problems,
)


def table_of(kind: type[Table], columns: Mapping[str, Any]) -> Table:
    """Build a table from named columns; extra entries are left out. Raises KeyError when a column is missing."""
    return kind(**{column.name: columns[column.name] for column in fields(kind)})


@dataclass(frozen=True, slots=True)
class Method:
    """What is counted per method while packets pass by."""

    number: int
    """The number RPCs refer to it by."""
    name: str | None
    """`/package.Service/Method`; None when it is not in the capture."""
    messages: int
    """Whole messages of both directions."""
    budget: tuple[int, ...]
    """Nanoseconds per cause, in the order of `CAUSES`."""
    turnaround: Mapping[str, int] | None
    """Quantiles in nanoseconds; None without a sample."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that decoding one capture gives."""

    capture: Mapping[str, Any]
    """Counts and facts of the capture as a whole."""
    connections: Connections
    """See `Connections`."""
    connection_budgets: Ints
    """Nanoseconds per connection and cause, shape (connections, causes)."""
    rpcs: Rpcs
    """See `Rpcs`."""
    deadlines: Ints
    """Deadline per RPC in nanoseconds, -1 without; shorter than `rpcs` when the last ones have none."""
    rpc_budgets: Ints
    """Nanoseconds per RPC and cause, shape (RPCs, causes); empty unless asked for."""
    messages: Messages
    """See `Messages`; empty unless asked for."""
    frames: Frames
    """See `Frames`; empty unless asked for."""
    packets: Packets
    """See `Packets`; empty unless asked for."""
    waits: Waits
    """See `Waits`."""
    directions: Directions
    """See `Directions`."""
    turns: Turns
    """See `Turns`."""
    idles: Idles
    """See `Idles`."""
    pings: Pings
    """See `Pings`."""
    goaways: Goaways
    """See `Goaways`."""
    goaway_reasons: tuple[str, ...]
    """Debug texts of GOAWAY frames, printable and cut to 64 characters; the first one is empty."""
    delays: Delays
    """See `Delays`."""
    failures: Failures
    """See `Failures`."""
    failure_budgets: Ints
    """Nanoseconds per failure and cause, shape (failures, causes)."""
    problems: Problems
    """See `Problems`."""
    problem_kinds: tuple[str, ...]
    """Texts of problems."""
    problem_counts: tuple[int, ...]
    """How often each kind occurred, beyond the rows kept."""
    methods: tuple[Method, ...]
    """Methods that RPCs used."""
    addresses: tuple[str, ...]
    """IP addresses."""
    agents: tuple[str, ...]
    """Implementations named by clients."""
    frame_counts: Mapping[str, int]
    """Frames by type."""
    message_count: int
    """gRPC messages of both directions."""
    other_streams: int
    """HTTP/2 streams that are not gRPC."""

    def method_name(self, number: int) -> str | None:
        """The name of a method by its number."""
        return next((method.name for method in self.methods if method.number == number), None)

    def client(self, connection: int) -> str:
        """`address:port` of a connection's client."""
        return self._end(self.connections.client_ip, self.connections.client_port, connection)

    def server(self, connection: int) -> str:
        """`address:port` of a connection's server."""
        return self._end(self.connections.server_ip, self.connections.server_port, connection)

    def _end(self, addresses: Counts, ports: Counts, connection: int) -> str:
        address = self.addresses[int(addresses[connection])]
        return f"[{address}]:{ports[connection]}" if ":" in address else f"{address}:{ports[connection]}"


def tables_of(result: Mapping[str, Any]) -> Tables:
    """Build the tables from what the core's run gives at its end."""
    frame_names = [*_core.FRAME_TYPES, "UNKNOWN"]
    problems = result["problems"]
    return Tables(
        capture=result["capture"],
        connections=table_of(Connections, result["connections"]),
        connection_budgets=result["connection_budgets"],
        rpcs=table_of(Rpcs, result["rpcs"]),
        deadlines=result["deadlines"],
        rpc_budgets=result["rpc_budgets"],
        messages=table_of(Messages, result["messages"]),
        frames=table_of(Frames, result["frames"]),
        packets=table_of(Packets, result["packets"]),
        waits=table_of(Waits, result["waits"]),
        directions=table_of(Directions, result["directions"]),
        turns=table_of(Turns, result["turns"]),
        idles=table_of(Idles, result["idles"]),
        pings=table_of(Pings, result["pings"]),
        goaways=table_of(Goaways, result["goaways"]),
        goaway_reasons=tuple(result["goaway_reasons"]),
        delays=table_of(Delays, result["delays"]),
        failures=table_of(Failures, result["failures"]),
        failure_budgets=result["failure_budgets"],
        problems=table_of(Problems, problems),
        problem_kinds=tuple(problems["kinds"]),
        problem_counts=tuple(problems["counts"]),
        methods=tuple(
            Method(m["number"], m["name"], m["messages"], tuple(m["budget"]), m["turnaround"])
            for m in result["methods"]
        ),
        addresses=tuple(result["addresses"]),
        agents=tuple(result["agents"]),
        frame_counts={name: n for name, n in zip(frame_names, result["frame_counts"], strict=True) if n},
        message_count=result["message_count"],
        other_streams=result["other_streams"],
    )
