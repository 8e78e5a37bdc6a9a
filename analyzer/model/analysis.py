"""What an analysis is: facts that reports show and never compute."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..tables.durations import Interval as Interval
from .finding import Finding, Skipped
from .tls import TlsFacts


class Quantiles(Struct, frozen=True):
    """A distribution of durations in nanoseconds; quantiles are values that occurred (nearest rank)."""

    min: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int
    mean: int


class CaptureFacts(Struct, frozen=True):
    """The capture as a whole."""

    packets: int
    bytes: int
    """On the wire."""
    first_time_ns: int | None
    last_time_ns: int | None
    link_types: tuple[str, ...]
    snaplen: int | None
    dropped_packets: int | None
    """Not recorded for want of buffer, when the file says so."""


class Quality(Struct, frozen=True):
    """How far the capture can be trusted."""

    truncated_packets: int
    """Cut by the snaplen."""
    missing_bytes: int
    """Payload bytes that the capture lacks."""
    undecoded_bytes: int
    """Payload bytes of HTTP/2 or TLS that could not be read."""
    warnings: tuple[str, ...]
    """Sentences for a reader, each with packet or offset where there is one."""


class Totals(Struct, frozen=True):
    """Counts over the capture."""

    connections: int
    """HTTP/2 connections."""
    rpcs: int
    rpcs_begun_before: int
    """Of them, those that began before the capture."""
    rpcs_without_known_end: int
    """Of them, those whose end may be among bytes or packets that the capture lacks: their time counts up to the last
    frame seen of them."""
    frames: Mapping[str, int]
    """By type."""
    messages: int
    other_streams: int
    """HTTP/2 streams that are not gRPC."""


class ConnectionFacts(Struct, frozen=True):
    """A connection of the report; the names are those of `docs/json.md`."""

    connection: int
    client: str
    server: str
    protocol: str
    opened_time_ns: int | None
    closed_time_ns: int | None
    handshake_rtt_ns: int | None
    min_rtt_ns: int | None
    vantage: str
    roles_from: str
    mss: int | None
    complete: bool
    tls: bool
    client_implementation: str | None
    client_implementation_inferred: bool
    server_implementation: str | None
    server_implementation_inferred: bool
    rpcs: int
    max_concurrent_rpcs: int
    other_streams: int
    peer_max_concurrent_streams: int | None
    packets_client: int
    packets_server: int
    bytes_client: int
    bytes_server: int
    retransmitted_packets: int
    duplicate_packets: int
    keep_alives: int
    out_of_order_packets: int
    urgent_packets: int
    missing_bytes: int
    budget: Mapping[str, int]


class Traffic(Struct, frozen=True):
    """What one side sent on all HTTP/2 connections together."""

    packets: int
    """All of them, also those that only acknowledge, open or close."""
    payload_packets: int
    """Of them, those with payload, retransmissions left out."""
    control_packets: int
    """Of these, those with PING, WINDOW_UPDATE or SETTINGS alone."""
    ping_packets: int
    """Of the control packets, those with a PING that is no acknowledgement."""
    ping_ack_packets: int
    window_update_packets: int
    settings_packets: int
    payload_bytes: int
    """Of TCP, on the wire."""
    data_frames: int
    header_frames: int
    """HEADERS, CONTINUATION and PUSH_PROMISE."""
    pings: int
    """PING frames, acknowledgements left out."""
    ping_acks: int
    window_updates: int
    settings: int
    messages: int
    message_bytes: int
    """Without prefixes."""
    message_packets: int
    """Packets in which a message ended."""
    busy_intervals_10ms: int
    """Intervals of 10 ms in which a message of the connection ended, of all connections together."""


class MethodFacts(Struct, frozen=True):
    """A method of the report."""

    method: str | None
    """None when it is not in the capture."""
    label: str | None
    """`method #1`, to tell methods apart whose names are not in the capture; None where nothing tells them apart."""
    rpcs: int
    latency_ns: Quantiles | None
    """Of complete RPCs; None when there is none."""
    statuses: Mapping[str, int]
    """By name; `not_seen` for RPCs whose status is not on the wire."""
    messages: int
    messages_per_s: float | None
    """Over the time from the method's first RPC to the end of its last."""
    turnaround_ns: Quantiles | None
    """From a request message's last byte to the next response message's first byte on its stream."""
    latency_intervals_ns: Mapping[str, Interval] | None
    """By quantile, where that quantile of the RPCs' distribution lies, with 95 % confidence."""
    turnaround_intervals_ns: Mapping[str, Interval] | None
    """The same for `turnaround_ns`."""
    first_start_time_ns: int
    """When the first RPC began."""
    last_end_time_ns: int
    """When the last one ended or was last seen."""
    budget: Mapping[str, int]


class Narrowed(Struct, frozen=True):
    """Which RPCs the analysis is about when it is not about all of a capture's."""

    connections: tuple[int, ...] | None
    """The connections asked for."""
    method: str | None
    """The method asked for, as a pattern."""
    from_ns: int | None
    """RPCs begun then or later, after the capture's first packet."""
    to_ns: int | None
    """RPCs begun then or earlier."""
    rpcs: int
    """RPCs judged."""
    of_rpcs: int
    """RPCs of the capture."""
    rpc_time_ns: int
    """Time of those judged."""
    of_rpc_time_ns: int
    """Time of all."""
    connections_in_part: tuple[int, ...]
    """Connections of which only a part of the RPCs is judged."""


class Verdict(Struct, frozen=True):
    """What to do first."""

    text: str
    """One sentence."""
    finding: str | None
    """The finding it speaks of."""


class RecordingFacts(Struct, frozen=True):
    """The files beside the capture that were used."""

    file: str
    host: str
    """The host that recorded."""
    kernel: str
    samples: int
    """Looks at its sockets."""
    waits_measured: int
    """Waits whose congestion window its kernel told."""
    window_samples: int
    """Samples of cubic's congestion windows during waits, which the estimates can be compared with."""
    window_samples_near_estimate: int
    """Of these, those within a tenth or two segments of the estimate."""


class LostPacket(Struct, frozen=True):
    """A packet that its sender's capture has and the receiver's has not."""

    connection: int
    """Row of the connection in the client's capture."""
    packet: int
    """Number in the capture of the end that sent it."""
    time_ns: int
    """When it was sent, by that capture's clock."""
    payload_bytes: int


class Way(Struct, frozen=True):
    """One way between two capture points."""

    delay_ns: Quantiles
    """Time on the way."""
    packets: int
    """Packets sent that way."""
    lost_packets: int
    """Of these, lost between the capture points."""
    lost: tuple[LostPacket, ...]
    """The first of them."""
    not_recorded_packets: int
    """Packets with data that arrived, for they were acknowledged, and that the receiver's capture lacks."""
    not_seen_sent_packets: int
    """Packets received that the sender's capture lacks."""
    retransmissions: int
    """Packets with bytes sent before."""
    needless_retransmissions: int
    """Of these, those whose bytes had arrived, or still did."""


class EndsConnection(Struct, frozen=True):
    """A connection that both captures have."""

    connection: int
    """Row in the client's capture, which the report shows."""
    server_connection: int
    """Row in the server's capture."""
    client: str
    """The client as the server's capture has it: another address behind address translation."""
    server: str
    """The server as the server's capture has it."""
    up_ns: Quantiles | None
    """Time on the way of the client's packets."""
    down_ns: Quantiles | None
    """Time on the way of the server's packets."""
    lost_up: int
    """Packets of the client that were lost."""
    lost_down: int
    """Packets of the server that were lost."""


class EndsMethod(Struct, frozen=True):
    """RPC time of a method with both ends known."""

    method: str | None
    label: str | None
    """What tells it apart where it has no name, as in `MethodFacts`."""
    rpcs: int
    divided_rpcs: int
    """Of these, those whose network time is divided."""
    budget: Mapping[str, int]


class ClockFacts(Struct, frozen=True):
    """The server's clock against the client's."""

    since_ns: int
    """Time of the client's clock at which the offset is given."""
    offset_ns: int
    """The server's clock less the client's, if the fastest packets take as long on both ways."""
    uncertainty_ns: int
    """By how much more or less it may be whatever the path."""
    drift_ppb: int | None
    """Parts per billion that the server's clock runs faster; None when it cannot be told from none."""
    drift_low_ppb: int
    drift_high_ppb: int
    """What the drift is between."""


class Ends(Struct, frozen=True):
    """What two captures of the same connections say together."""

    client_files: tuple[str, ...]
    """The capture nearer to the client, which the rest of the report is about."""
    server_files: tuple[str, ...]
    """The capture nearer to the server."""
    clock: ClockFacts
    matched_packets: int
    """Packets found in both captures."""
    connections: tuple[EndsConnection, ...]
    only_client_connections: int
    """HTTP/2 and TLS connections that the server's capture lacks."""
    only_server_connections: int
    """HTTP/2 and TLS connections that the client's capture lacks."""
    up: Way
    down: Way
    budget: Mapping[str, int]
    """RPC time by cause; `network_up` and `network_down` divide what `network` is without both ends."""
    methods: tuple[EndsMethod, ...]


class Apart(Struct, frozen=True):
    """Captures of the same connections that could not be put together."""

    reason: str
    """Why."""
    others: tuple[Analysis, ...]
    """The analyses of the other captures."""


class Analysis(Struct, frozen=True):
    """Everything a report may show."""

    files: tuple[str, ...]
    capture: CaptureFacts
    quality: Quality
    totals: Totals
    traffic: tuple[Traffic, Traffic]
    """What the clients sent, then what the servers sent."""
    budget: Mapping[str, int]
    """Nanoseconds of RPC time by cause."""
    verdict: Verdict
    connections: tuple[ConnectionFacts, ...]
    methods: tuple[MethodFacts, ...]
    """The one with the most RPC time first."""
    findings: tuple[Finding, ...]
    """The one that lost the most time first."""
    skipped: tuple[Skipped, ...]
    recording: RecordingFacts | None = None
    """What was recorded beside the capture; None when nothing was, or it is another capture's."""
    ends: Ends | None = None
    """What a second capture of the same connections adds."""
    narrowed: Narrowed | None = None
    """Which RPCs this is about; None when it is about all of them."""
    apart: Apart | None = None
    """A second capture of the same connections that could not be put together with this one."""
    tls: tuple[TlsFacts, ...] = ()
    """TLS connections that were not decrypted."""
