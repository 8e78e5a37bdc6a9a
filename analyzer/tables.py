"""The tables that decoding ends in: one struct per table, one sentence and a unit per column.

Columns are numpy arrays of equal length; a reference to another table is a row number. Instants are int64 nanoseconds
since the epoch, durations int64 nanoseconds, sizes bytes. -1 stands for "not known" unless a column says otherwise.
Directions are 0 for `client` (client to server) and 1 for `server`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from . import _core
from .result import Interval

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
BEGUN_BEFORE = 4
"""Bit of `Rpcs.flags`: the RPC began before the capture; its start and duration are of the part that was seen."""
TOUCHES_GAP = 8
"""Bit of `Rpcs.flags`: bytes of the RPC are missing from the capture."""
HEADERS_UNKNOWN = 16
"""Bit of `Rpcs.flags`: fields of the request's headers are not known: its deadline may be among them."""


class Connections(Struct, frozen=True, eq=False):
    """One row per TCP connection, in the order of first packets."""

    client_ip: Annotated[Counts, "client's address, index into `Tables.addresses`"]
    client_port: Annotated[Counts, "client's port"]
    server_ip: Annotated[Counts, "server's address, index into `Tables.addresses`"]
    server_port: Annotated[Counts, "server's port"]
    opened_time_ns: Annotated[Ints, "time of the SYN"]
    closed_time_ns: Annotated[Ints, "time of the FIN or RST that ended it"]
    first_time_ns: Annotated[Ints, "time of its first packet"]
    last_time_ns: Annotated[Ints, "time of its last packet"]
    first_packet: Annotated[Counts, "number of its first packet"]
    last_packet: Annotated[Counts, "number of its last packet"]
    handshake_rtt_ns: Annotated[Ints, "from the SYN to the ACK of the SYN-ACK"]
    min_rtt_ns: Annotated[Ints, "sum of the smallest round trips from the capture point to both ends"]
    near_client_rtt_ns: Annotated[Ints, "smallest round trip from the capture point to the client"]
    near_server_rtt_ns: Annotated[Ints, "smallest round trip from the capture point to the server"]
    vantage: Annotated[Codes, "where the capture was taken, index into `VANTAGES`"]
    roles_from: Annotated[Codes, "what tells the client, index into `ROLES_FROM`"]
    client_side: Annotated[Codes, "0 when the client sent the first packet, else 1"]
    protocol: Annotated[Codes, "index into `PROTOCOLS`"]
    complete: Annotated[Codes, "1 when the opening is in the capture"]
    tls: Annotated[Codes, "1 when it is TLS"]
    tls_version: Annotated[Counts, "0x0303 for TLS 1.2, 0x0304 for TLS 1.3, 0 when not known"]
    tls_handshake_ns: Annotated[Ints, "from the ClientHello to the client's Finished"]
    tls_decrypted: Annotated[Codes, "1 when application data were decrypted"]
    tls_suite: Annotated[Counts, "number of the cipher suite, 0 when not known"]
    tls_alpn: Annotated[Codes, "ALPN: 1 protocols are offered, 2 h2 is, 4 the choice is known, 8 it is h2"]
    tls_resumed: Annotated[Codes, "1 when an earlier session is resumed, 2 when not known"]
    tls_retried: Annotated[Codes, "1 when the server asked for a second ClientHello"]
    tls_exact: Annotated[Codes, "1 when the handshake's end was read, not concluded"]
    tls_hello_packet: Annotated[Counts, "packet of the ClientHello, 0 for none"]
    tls_hello_time_ns: Annotated[Ints, "time of that packet"]
    tls_server_hello_ns: Annotated[Ints, "from the ClientHello to the end of the ServerHello"]
    tls_finished_packet: Annotated[Counts, "packet of the client's Finished, 0 when not known"]
    closed_by: Annotated[Codes, "direction that closed first, 2 when it was not closed"]
    mss_client: Annotated[Counts, "payload bytes of the client's full segments, 0 when not known"]
    mss_server: Annotated[Counts, "payload bytes of the server's full segments, 0 when not known"]
    client_agent: Annotated[Counts, "implementation in `user-agent`, index into `Tables.agents`"]
    client_hint: Annotated[Codes, "client's implementation by its frames, index into `IMPLEMENTATIONS`"]
    server_hint: Annotated[Codes, "server's implementation by its frames, index into `IMPLEMENTATIONS`"]
    rpcs: Annotated[Counts, "RPCs on it"]
    max_concurrent_rpcs: Annotated[Counts, "most RPCs open at once"]
    other_streams: Annotated[Counts, "HTTP/2 streams that are not gRPC"]
    peer_max_concurrent_streams: Annotated[Ints, "the server's SETTINGS_MAX_CONCURRENT_STREAMS"]
    packets_client: Annotated[Counts, "packets of the client"]
    packets_server: Annotated[Counts, "packets of the server"]
    bytes_client: Annotated[Sizes, "TCP payload bytes of the client on the wire"]
    bytes_server: Annotated[Sizes, "TCP payload bytes of the server on the wire"]
    client_sequence: Annotated[Counts, "TCP sequence number of the client's offset 0 in `Packets`"]
    server_sequence: Annotated[Counts, "TCP sequence number of the server's offset 0 in `Packets`"]
    congestion_after_loss_ns: Annotated[Sizes, "RPC time in a congestion window that a loss had reduced"]
    retransmission_timeouts: Annotated[Counts, "retransmissions after a silence as long as a timeout"]
    recovery_ns: Annotated[Ints, "the longest time from a loss, as far as seen, to its repair"]
    recovery_time_ns: Annotated[Ints, "time of that repair"]
    recovery_from_packet: Annotated[Counts, "packet behind the lost one, or the last before it; 0: none"]
    recovery_to_packet: Annotated[Counts, "packet that repeats the lost one, 0: none"]
    retransmitted_packets: Annotated[Counts, "packets with bytes sent before"]
    needless_retransmissions: Annotated[
        Counts, "of them, those of which the receiver said that it had the bytes already (D-SACK, RFC 2883)"
    ]
    duplicate_packets: Annotated[Counts, "packets recorded twice, counted once everywhere else"]
    keep_alives: Annotated[Counts, "TCP keep-alives with a byte"]
    out_of_order_packets: Annotated[Counts, "packets recorded before bytes in front of theirs"]
    urgent_packets: Annotated[Counts, "packets with urgent data, which is read as data"]
    late_packets: Annotated[Counts, "packets after the connection was over"]
    missing_bytes: Annotated[Sizes, "payload bytes that the capture lacks"]
    payload_bytes: Annotated[Sizes, "payload bytes recorded, the sum of the five columns that follow"]
    decoded_bytes: Annotated[Sizes, "read as HTTP/2"]
    retransmitted_bytes: Annotated[Sizes, "recorded before"]
    not_http2_bytes: Annotated[Sizes, "of another protocol"]
    encrypted_bytes: Annotated[Sizes, "of TLS"]
    undecoded_bytes: Annotated[Sizes, "HTTP/2 whose frame boundaries are not known"]
    goaway_client: Annotated[Ints, "error code of the client's GOAWAY"]
    goaway_server: Annotated[Ints, "error code of the server's GOAWAY"]


class Rpcs(Struct, frozen=True, eq=False):
    """One row per RPC with `rpc_rows`; else of those that serve as examples: a connection's first ones, those that
    failed, the longest ones of each method. A connection's rows are in no order but that of its first RPCs.
    """

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    method: Annotated[Counts, "number of its method, `NO_METHOD` when not in the capture"]
    start_time_ns: Annotated[Ints, "first byte of the request's HEADERS"]
    duration_ns: Annotated[Ints, "until the last byte of the frame that ended it for the client"]
    status: Annotated[Codes, "gRPC status code, `NOT_SEEN` when not on the wire"]
    flags: Annotated[Codes, "bits `COMPLETE`, `METHOD_UNKNOWN`, `BEGUN_BEFORE`, `TOUCHES_GAP`, `HEADERS_UNKNOWN`"]
    request_messages: Annotated[Counts, "whole request messages; empty unless asked for"]
    response_messages: Annotated[Counts, "whole response messages; empty unless asked for"]
    request_bytes: Annotated[Sizes, "request message bytes without prefixes, as on the wire; empty unless asked for"]
    response_bytes: Annotated[Sizes, "response message bytes without prefixes, as on the wire; empty unless asked for"]
    first_packet: Annotated[Counts, "packet of the first byte"]
    last_packet: Annotated[Counts, "packet of the last byte, 0 when the end was not seen"]


class Messages(Struct, frozen=True, eq=False):
    """One row per gRPC message, in the order in which they were whole."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    direction: Annotated[Codes, "sender"]
    index: Annotated[Counts, "position among the messages read of its direction, from 0"]
    length: Annotated[Counts, "bytes without the prefix"]
    compressed: Annotated[Codes, "1 when its compressed flag is set"]
    first_packet: Annotated[Counts, "packet of its prefix's first byte"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "packet at which its last byte was readable in order"]
    last_time_ns: Annotated[Ints, "time of that packet"]


class Frames(Struct, frozen=True, eq=False):
    """One row per HTTP/2 frame, in the order in which they were whole."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    stream: Annotated[Counts, "HTTP/2 stream identifier, 0 for the connection"]
    kind: Annotated[Codes, "frame type (RFC 9113 section 6)"]
    flags: Annotated[Codes, "flags as sent"]
    length: Annotated[Counts, "payload bytes without the nine of the header"]
    first_packet: Annotated[Counts, "packet of its header's first byte"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "packet at which its last byte was readable in order"]
    last_time_ns: Annotated[Ints, "time of that packet"]


class Packets(Struct, frozen=True, eq=False):
    """One row per TCP packet, in the order of the capture."""

    packet: Annotated[Counts, "number in the capture, from 1"]
    time_ns: Annotated[Ints, "capture time"]
    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    flags: Annotated[Counts, "TCP flags (RFC 9293 section 3.1)"]
    seq: Annotated[Sizes, "offset of its first payload byte in its direction, from 0"]
    ack: Annotated[Sizes, "bytes of the other direction it acknowledges"]
    window: Annotated[Sizes, "receive window in bytes, scaled when the scale is known"]
    payload_bytes: Annotated[Counts, "TCP payload bytes on the wire"]
    captured_payload_bytes: Annotated[Counts, "TCP payload bytes recorded"]
    note: Annotated[Codes, "what the analysis says of it, index into `PACKET_NOTES`"]
    identification: Annotated[Counts, "IPv4 identification, 4294967295 without one"]
    timestamp: Annotated[Counts, "value of the TCP timestamp option, 0 without one"]


class Waits(Struct, frozen=True, eq=False):
    """One row per interval in which a side owed bytes and sent none."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "stream whose bytes came last before the stop"]
    direction: Annotated[Codes, "the side that owed"]
    start_time_ns: Annotated[Ints, "its last bytes before the stop"]
    duration_ns: Annotated[Ints, "until its next bytes"]
    cause: Annotated[Codes, "index into `CAUSES`"]
    owed_bytes: Annotated[
        Sizes, "bytes of the message or frame still to come at the stop, 0 when only the frame was that ends the stream"
    ]
    in_flight_bytes: Annotated[Ints, "sent and not acknowledged at the stop, as the sender knew it"]
    congestion_window_bytes: Annotated[Ints, "estimate at the stop"]
    receive_window_bytes: Annotated[Ints, "the peer's TCP window at the stop"]
    stream_window_bytes: Annotated[Ints, "the stream's window, `WINDOW_NOT_KNOWN` when not known"]
    connection_window_bytes: Annotated[Ints, "the connection's, `WINDOW_NOT_KNOWN` when not known"]
    stopped_at_packet: Annotated[Counts, "packet of the last bytes before the stop"]
    released_by_packet: Annotated[Counts, "the ACK right before the sender resumed, 0 for none"]
    resumed_at_packet: Annotated[Counts, "packet of the next bytes"]
    released_time_ns: Annotated[Ints, "time of the ACK right before the sender resumed"]
    flight: Annotated[Counts, "which of the sender's flights it interrupted, from 1"]
    flight_first_packet: Annotated[Counts, "the flight's first packet"]
    flight_start_time_ns: Annotated[Ints, "time of that packet"]
    idle_before_ns: Annotated[Ints, "from the sender's last data to the flight"]
    rto_ns: Annotated[Ints, "estimate of the sender's retransmission timeout"]
    window_before_idle_bytes: Annotated[Ints, "estimated congestion window before the idle time"]
    mss: Annotated[Counts, "payload bytes of the sender's full segments"]
    rtt_ns: Annotated[Ints, "smallest round trip so far"]
    streams: Annotated[Counts, "streams whose message it interrupted"]
    retransmissions: Annotated[Counts, "retransmissions of the sender during it"]
    after_loss: Annotated[Codes, "1 when the congestion window that bound had been reduced by a loss"]
    method: Annotated[Counts, "method of the stream's RPC, `NO_METHOD` when not known"]


class Directions(Struct, frozen=True, eq=False):
    """One row per connection and direction: row 2 x connection is the client's, the next one the server's."""

    payload_packets: Annotated[Counts, "packets with payload, retransmissions left out"]
    control_packets: Annotated[Counts, "of these, packets with PING, WINDOW_UPDATE or SETTINGS alone"]
    ping_packets: Annotated[Counts, "control packets with a PING that is no acknowledgement"]
    ping_ack_packets: Annotated[Counts, "control packets with the acknowledgement of a PING"]
    window_update_packets: Annotated[Counts, "control packets with a WINDOW_UPDATE"]
    settings_packets: Annotated[Counts, "control packets with SETTINGS or their acknowledgement"]
    data_frames: Annotated[Counts, "DATA frames"]
    header_frames: Annotated[Counts, "HEADERS, CONTINUATION and PUSH_PROMISE frames"]
    pings: Annotated[Counts, "PING frames, acknowledgements left out"]
    ping_acks: Annotated[Counts, "PING frames that acknowledge"]
    window_updates: Annotated[Counts, "WINDOW_UPDATE frames"]
    settings: Annotated[Counts, "SETTINGS frames and their acknowledgements"]
    resets: Annotated[Counts, "RST_STREAM frames"]
    header_block_bytes: Annotated[Sizes, "payload bytes of the header frames, compressed as sent"]
    messages: Annotated[Counts, "whole gRPC messages"]
    message_bytes: Annotated[Sizes, "their bytes without prefixes"]
    message_packets: Annotated[Counts, "packets in which a message ended"]
    first_message_time_ns: Annotated[Ints, "end of the first message"]
    last_message_time_ns: Annotated[Ints, "end of the last message"]
    busy_intervals: Annotated[Counts, "intervals of 10 ms in which a message ended"]
    bdp_pings: Annotated[Counts, "PINGs whose payload is a bandwidth estimator's"]
    keepalive_pings: Annotated[Counts, "PINGs whose payload is a keepalive's"]
    drain_pings: Annotated[Counts, "PINGs whose payload is a graceful shutdown's"]


class Turns(Struct, frozen=True, eq=False):
    """One row per connection: whose turn it was, and how its limit of concurrent streams bound.

    The client holds the ball while no RPC waits for an answer: nothing is owed to it and nothing is on the way. Such
    intervals count from the moment at which the client can have the last answer. Those of `PAUSE_NS` and more are
    pauses, the application's own; the shorter ones are `idles`.
    """

    idle_ns: Annotated[Ints, "time in which the client held the ball, pauses left out"]
    idles: Annotated[Counts, "how many such intervals there were"]
    pauses: Annotated[Counts, "intervals of `PAUSE_NS` and more"]
    pause_ns: Annotated[Ints, "their time"]
    bursts: Annotated[Counts, "runs of request messages without a response message in between"]
    burst_messages: Annotated[Counts, "request messages in them"]
    at_limit_ns: Annotated[Ints, "time with as many streams open as the server's SETTINGS allow"]
    at_limit_times: Annotated[Counts, "how often the limit was reached"]
    ended_at_limit: Annotated[Counts, "streams that ended while the limit was reached"]
    refills: Annotated[Counts, "of these, those whose place a new stream took at once"]
    refill_ended_packet: Annotated[Counts, "packet that ended a stream at the limit, of one refill"]
    refill_ended_time_ns: Annotated[Ints, "when that stream ended"]
    refill_opened_packet: Annotated[Counts, "packet that opened the stream in its place"]
    refill_time_ns: Annotated[Ints, "time of that packet"]


class Records(Struct, frozen=True, eq=False):
    """Records behind the handshake of TLS that was not decrypted: the client's row and the server's per connection.

    An answer is a side's first record after one of the other side; a pause is a silence of 1 ms or longer between two
    records of one side.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    records: Annotated[Sizes, "records"]
    bytes: Annotated[Sizes, "of them, without their headers"]
    longest: Annotated[Counts, "bytes of the longest"]
    answers: Annotated[Counts, "answers"]
    answer_ns: Annotated[Ints, "from the other side's last byte to the answer's first, all together"]
    longest_answer_ns: Annotated[Ints, "the longest of them"]
    answer_time_ns: Annotated[Ints, "when that began"]
    answer_from_packet: Annotated[Counts, "packet of the byte it began with"]
    answer_to_packet: Annotated[Counts, "packet of the answer"]
    pauses: Annotated[Counts, "pauses"]
    pause_ns: Annotated[Ints, "their time"]
    longest_pause_ns: Annotated[Ints, "the longest of them"]
    pause_time_ns: Annotated[Ints, "when that began"]
    pause_from_packet: Annotated[Counts, "packet of the byte it began with"]
    pause_to_packet: Annotated[Counts, "packet of the next record"]


class Idles(Struct, frozen=True, eq=False):
    """The intervals in which the client held the ball by length: one row per connection and class that occurs.

    Class n holds lengths from 2^n to 2^(n+1) microseconds; class 0 the shorter ones too.
    """

    connection: Annotated[Counts, "row of its connection"]
    length_class: Annotated[Codes, "binary logarithm of the length in microseconds"]
    count: Annotated[Counts, "intervals of this class"]
    total_ns: Annotated[Ints, "their time"]
    start_time_ns: Annotated[Ints, "beginning of the last one: when the client can have the last answer"]
    duration_ns: Annotated[Ints, "its length"]
    before_packet: Annotated[Counts, "packet that ended what was owed to the client"]
    after_packet: Annotated[Counts, "the client's next request packet"]


class Pings(Struct, frozen=True, eq=False):
    """PING frames: the first of each connection and those before a GOAWAY."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    packet: Annotated[Counts, "packet of its last byte"]
    time_ns: Annotated[Ints, "time of that packet"]
    ack: Annotated[Codes, "1 for an acknowledgement"]
    purpose: Annotated[Codes, "what its payload tells, index into `PING_PURPOSES`"]
    strikes: Annotated[Codes, "strikes of the client after it by gRFC A8's rule"]
    open_rpcs: Annotated[Counts, "RPCs open at that moment"]


class Goaways(Struct, frozen=True, eq=False):
    """GOAWAY frames."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    packet: Annotated[Counts, "packet of its last byte"]
    time_ns: Annotated[Ints, "time of that packet"]
    code: Annotated[Counts, "error code (RFC 9113 section 7)"]
    last_stream: Annotated[Counts, "highest stream that was or may be processed"]
    reason: Annotated[Counts, "its debug text, index into `Tables.goaway_reasons`"]
    open_rpcs: Annotated[Counts, "RPCs open at that moment"]


class Delays(Struct, frozen=True, eq=False):
    """Directions of streams whose first DATA came 1 ms or more after their HEADERS."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    direction: Annotated[Codes, "sender"]
    headers_packet: Annotated[Counts, "packet of the header block's last byte"]
    headers_time_ns: Annotated[Ints, "time of that packet"]
    data_packet: Annotated[Counts, "packet of the first message byte"]
    duration_ns: Annotated[Ints, "from one to the other"]
    method: Annotated[Counts, "method of its RPC, `NO_METHOD` when not known"]


class Failures(Struct, frozen=True, eq=False):
    """RPCs that ended otherwise than with status OK; their budgets are `Tables.failure_budgets`."""

    rpc: Annotated[Counts, "row of the RPC"]
    reset_by: Annotated[Codes, "sender of the RST_STREAM that ended it, 2 for none"]
    reset_code: Annotated[Counts, "its error code (RFC 9113 section 7)"]


class ConnectionMethods(Struct, frozen=True, eq=False):
    """One row per connection and method that its RPCs used."""

    connection: Annotated[Counts, "row of its connection"]
    method: Annotated[Counts, "number of the method, `NO_METHOD` when not in the capture"]


class Problems(Struct, frozen=True, eq=False):
    """Decode trouble as data."""

    time_ns: Annotated[Ints, "when"]
    connection: Annotated[Counts, "row of its connection, 4294967295 for none"]
    packet: Annotated[Counts, "number of the packet"]
    layer: Annotated[Codes, "index into `LAYERS`"]
    kind: Annotated[Counts, "index into `Tables.problem_kinds`"]


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
    Records,
    Pings,
    Goaways,
    Delays,
    Failures,
    ConnectionMethods,
    Problems,
)


def table_of(kind: type[Table], columns: Mapping[str, Any]) -> Table:
    """Build a table from named columns; extra entries are left out. Raises KeyError when a column is missing."""
    return kind(**{name: columns[name] for name in kind.__struct_fields__})


class Method(Struct, frozen=True):
    """What is counted per method while packets pass by."""

    number: int
    """The number RPCs refer to it by."""
    name: str | None
    """`/package.Service/Method`; None when it is not in the capture."""
    label: str | None
    """`method #1`, to tell methods apart whose names are not in the capture; None where nothing tells them apart."""
    rpcs: int
    """RPCs."""
    complete: int
    """Of them, those whose end was seen."""
    touch_gaps: int
    """Of them, those of which bytes are missing from the capture."""
    statuses: tuple[int, ...]
    """RPCs by status code; the last entry counts those whose status is not on the wire."""
    first_start_ns: int
    """When the first one began."""
    last_end_ns: int
    """When the last one ended."""
    latency: Mapping[str, int] | None
    """Exact quantiles of complete RPCs by nearest rank, nanoseconds; None without any."""
    latency_intervals: Mapping[str, Interval] | None
    """By quantile between which two durations it lies with 95 % confidence; None without any."""
    messages: int
    """Whole messages of both directions."""
    budget: tuple[int, ...]
    """Nanoseconds per cause, in the order of `CAUSES`."""
    turnaround: Mapping[str, int] | None
    """Quantiles in nanoseconds, within 0.1 %; None without a sample."""
    turnaround_intervals: Mapping[str, Interval] | None
    """The same of turnarounds."""


Names = dict[int, tuple[str | None, str | None]]
"""Names and labels of methods, see `Method`, by their numbers."""


def names_of(methods: Iterable[Method]) -> Names:
    """The names of methods."""
    return {method.number: (method.name, method.label) for method in methods}


class Measured(Struct, frozen=True, eq=False):
    """Which congestion windows of the waits table the sender's kernel told; the others are estimates."""

    stops: npt.NDArray[np.bool_]
    """Of `congestion_window_bytes`."""
    before_idle: npt.NDArray[np.bool_]
    """Of `window_before_idle_bytes`."""


class Before(Struct, frozen=True, eq=False):
    """What tables of a part of the RPCs were taken from: what a wait means depends on those before it."""

    tables: Tables
    """Those of all RPCs."""
    waits: Ints
    """The rows of its waits table that the part has, in their order."""


class Tables(Struct, frozen=True):
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
    request_budgets: Ints
    """The same up to the end of the request, zeros where it did not end; empty without packets too."""
    request_ends: Counts
    """Packet at which each RPC's request was whole, 0 where it was not; empty without packets too."""
    messages: Messages
    """See `Messages`; empty unless asked for."""
    frames: Frames
    """See `Frames`; empty unless asked for."""
    packets: Packets
    """See `Packets`; empty unless asked for."""
    waits: Waits
    """See `Waits`."""
    record_waits: Waits
    """Waits inside records of TLS that was not decrypted."""
    records: Records
    """See `Records`."""
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
    connection_methods: ConnectionMethods
    """See `ConnectionMethods`."""
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
    begun_before: int
    """RPCs that began before the capture."""
    other_streams: int
    """HTTP/2 streams that are not gRPC."""
    measured: Measured | None = None
    """See `Measured`; None where all windows are estimates."""
    before: Before | None = None
    """See `Before`; None for tables of all RPCs."""

    @property
    def rpc_count(self) -> int:
        """RPCs of the capture, whether they have rows or not."""
        return sum(method.rpcs for method in self.methods)

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


def _label(number: int | None) -> str | None:
    return None if number is None else f"method #{number}"


def _method(found: dict[str, Any]) -> Method:
    latency, turnaround = found["latency"], found["turnaround"]
    columns = {
        "label": _label(found["label"]),
        "statuses": tuple(found["statuses"]),
        "budget": tuple(found["budget"]),
        "latency_intervals": latency and latency.pop("intervals"),
        "turnaround_intervals": turnaround and turnaround.pop("intervals"),
    }
    return Method(**found | columns)


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
        request_budgets=result["request_budgets"],
        request_ends=result["request_ends"],
        messages=table_of(Messages, result["messages"]),
        frames=table_of(Frames, result["frames"]),
        packets=table_of(Packets, result["packets"]),
        waits=table_of(Waits, result["waits"]),
        record_waits=table_of(Waits, result["record_waits"]),
        records=table_of(Records, result["records"]),
        directions=table_of(Directions, result["directions"]),
        turns=table_of(Turns, result["turns"]),
        idles=table_of(Idles, result["idles"]),
        pings=table_of(Pings, result["pings"]),
        goaways=table_of(Goaways, result["goaways"]),
        goaway_reasons=tuple(result["goaway_reasons"]),
        delays=table_of(Delays, result["delays"]),
        connection_methods=table_of(ConnectionMethods, result["connection_methods"]),
        failures=table_of(Failures, result["failures"]),
        failure_budgets=result["failure_budgets"],
        problems=table_of(Problems, problems),
        problem_kinds=tuple(problems["kinds"]),
        problem_counts=tuple(problems["counts"]),
        methods=tuple(_method(method) for method in result["methods"]),
        addresses=tuple(result["addresses"]),
        agents=tuple(result["agents"]),
        frame_counts={name: n for name, n in zip(frame_names, result["frame_counts"], strict=True) if n},
        message_count=result["message_count"],
        begun_before=result["begun_before"],
        other_streams=result["other_streams"],
    )
