"""What an analysis is: facts that reports show and never compute.

These types are the document `grpcdiag.analysis/1` as well (docs/json.md): JSON is written from them and read back into
them, and its published schema is generated from them. A name here is a key there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from .. import _core
from ..tables.durations import Count
from ..tables.durations import Interval as Interval
from .budget import SPLIT
from .client import ClientFacts
from .ends import Ends
from .finding import Evidence, Finding, Remedy, Severity, Skipped
from .quantiles import Quantiles as Quantiles
from .recorded import ProcessFacts, RecordingFacts
from .tls import TlsReport

SCHEMA = "grpcdiag.analysis/1"
"""Name and version of the document's structure."""

Nanoseconds = Annotated[int, Meta(ge=1)]
Budget = Annotated[
    Mapping[str, Nanoseconds], Meta(extra_json_schema={"propertyNames": {"enum": [*_core.CAUSES, *SPLIT]}})
]
"""Nanoseconds by cause; causes without time are left out. With a process record `client` and `server` are split."""


class CaptureFacts(Struct, frozen=True):
    """The capture as a whole."""

    packets: Count
    bytes: Count
    """On the wire."""
    first_time_ns: int | None
    last_time_ns: int | None
    link_types: tuple[str, ...]
    snaplen: Count | None
    dropped_packets: Count | None
    """Not recorded for want of buffer, when the file says so."""


class Quality(Struct, frozen=True):
    """How far the capture can be trusted."""

    truncated_packets: Count
    """Cut by the snaplen."""
    missing_bytes: Count
    """Payload bytes that the capture lacks."""
    undecoded_bytes: Count
    """Payload bytes of HTTP/2 or TLS that could not be read."""
    warnings: tuple[str, ...]
    """Sentences for a reader, each with packet or offset where there is one."""


class Totals(Struct, frozen=True):
    """Counts over the capture."""

    connections: Count
    """HTTP/2 connections, and HTTP/1.1 connections with gRPC-Web or Connect."""
    rpcs: Count
    rpcs_begun_before: Count
    """RPCs that began before the capture."""
    rpcs_without_known_end: Count
    """RPCs whose end may be among bytes or packets that the capture lacks: their time counts up to their last frame
    seen."""
    frames: Mapping[str, Count]
    """By type."""
    messages: Count
    other_streams: Count
    """HTTP/2 streams that are not gRPC."""


class ConnectionFacts(Struct, frozen=True):
    """A connection of the report; the names are those of `docs/json.md`."""

    connection: Count
    client: str
    server: str
    protocol: str
    opened_time_ns: int | None
    closed_time_ns: int | None
    handshake_rtt_ns: Count | None
    min_rtt_ns: Count | None
    vantage: str
    roles_from: str
    mss: Count | None
    complete: bool
    tls: bool
    client_implementation: str | None
    client_implementation_inferred: bool
    server_implementation: str | None
    server_implementation_inferred: bool
    rpcs: Count
    max_concurrent_rpcs: Count
    other_streams: Count
    peer_max_concurrent_streams: Count | None
    packets_client: Count
    packets_server: Count
    bytes_client: Count
    bytes_server: Count
    retransmitted_packets: Count
    duplicate_packets: Count
    keep_alives: Count
    out_of_order_packets: Count
    urgent_packets: Count
    missing_bytes: Count
    budget: Budget


class Traffic(Struct, frozen=True):
    """What one side sent on all connections whose RPCs can be read, together."""

    packets: Count
    """TCP packets, also those that only acknowledge, open or close."""
    payload_packets: Count
    """Packets with payload, without retransmissions."""
    control_packets: Count
    """Packets with payload that carry PING, WINDOW_UPDATE or SETTINGS alone."""
    ping_packets: Count
    """Control packets with a PING that is no acknowledgement."""
    ping_ack_packets: Count
    window_update_packets: Count
    settings_packets: Count
    payload_bytes: Count
    """Bytes of TCP payload on the wire."""
    data_frames: Count
    header_frames: Count
    """HEADERS, CONTINUATION and PUSH_PROMISE."""
    pings: Count
    """PING frames, acknowledgements left out."""
    ping_acks: Count
    window_updates: Count
    settings: Count
    messages: Count
    message_bytes: Count
    """Without prefixes."""
    message_packets: Count
    """Packets in which a message ended."""
    busy_intervals_10ms: Count
    """Intervals of 10 ms in which a message of the connection ended, of all connections together."""


class TrafficOfSides(Struct, frozen=True):
    """What each side sent."""

    client: Traffic
    server: Traffic

    def __iter__(self) -> Iterator[Traffic]:
        """Give the clients' traffic, then the servers'."""
        yield self.client
        yield self.server


class MethodFacts(Struct, frozen=True):
    """A method of the report."""

    method: str | None
    """None when it is not in the capture."""
    label: str | None
    """`method #1`, to tell methods apart whose names are not in the capture; None where nothing tells them apart."""
    rpcs: Count
    latency_ns: Quantiles | None
    """Of complete RPCs; None when there is none."""
    statuses: Mapping[str, Count]
    """By name; `not_seen` for RPCs whose status is not on the wire."""
    messages: Count
    messages_per_s: float | None
    """Over the time from the method's first RPC to the end of its last."""
    turnaround_ns: Quantiles | None
    """From a request message's last byte to the next response message's first byte on its stream. It begins at the
    request's END_STREAM if that comes clearly later: by more than 1 ms, and more than a round trip."""
    latency_intervals_ns: Mapping[str, Interval] | None
    """By quantile, where that quantile of the RPCs' distribution lies, with 95 % confidence."""
    turnaround_intervals_ns: Mapping[str, Interval] | None
    """By quantile, where that quantile of the response times (`turnaround_ns`) lies, with 95 % confidence."""
    first_start_time_ns: int
    """When the first RPC began."""
    last_end_time_ns: int
    """When the last RPC ended or was last seen."""
    budget: Budget


class Hop(Struct, frozen=True):
    """A proxy both of whose sides are in the capture: both legs of its calls are joined, and each call counts once."""

    proxy: str
    """Its `address:port` towards its clients."""
    server: str
    """`address:port` of the server behind it."""
    front: tuple[int, ...]
    """Connections of the legs before it."""
    back: tuple[int, ...]
    """Connections of the legs behind it."""
    calls: Count
    exact: Count
    """Calls joined by `traceparent` or `x-request-id`."""
    by_order: Count
    """Calls joined by method, message sizes and times, which leave one way only."""
    ambiguous: Count
    """Calls joined in one of several ways: their times are in `held_ns`, and in no quantile."""
    duration_ns: Quantiles | None
    """Of the legs before it; None when all calls are ambiguous, here and below."""
    behind_ns: Quantiles | None
    """From the begin of the first leg behind it to the end of the last one."""
    held_ns: Count
    """The time of all calls that it held."""
    held_up_ns: Quantiles | None
    """From the first whole request message at the proxy, or from HEADERS without any, until the leg behind begins."""
    held_down_ns: Quantiles | None
    """From the end of the leg behind, or from its first message where the proxy waits for the whole response, until the
    end of the leg before, less the transport there."""
    whole_requests: Count
    """Calls whose first message waited at the proxy until the client had ended the request, 10 ms or longer."""
    whole_responses: Count
    """The same for responses: their first message was passed on after the server had sent the last one."""
    calls_per_second: float | None
    """The rate at which it passes calls on, when it holds them and the time between them hardly varies."""
    retried: Count
    """Calls with more than one leg behind it."""
    failed_attempts: Count
    """Legs behind it that failed before it retried their call."""
    resets_not_passed_on: Count
    """Calls that the client reset while the server behind went on for longer than a round trip."""
    answers_lost: Count
    """Calls that failed although the server behind answered OK."""
    failed_behind: Count
    """Calls that failed with the status that the server behind gave."""
    statuses_changed: Count
    """Calls that failed with another status than the leg behind."""
    text: str
    """What it did, in sentences."""
    verdict: str
    """The same in one sentence."""
    evidence: tuple[Evidence, ...]
    """One call on both legs, and calls whose legs ended differently."""
    remedies: tuple[Remedy, ...]


class OtherRequest(Struct, frozen=True):
    """HTTP/2 requests that are no RPCs, of one path and HTTP status."""

    path: str | None
    """Without its query; None when it is not in the capture."""
    http_status: Count | None
    """None when no response was seen."""
    requests: Count
    longest_ns: Count | None
    """From a request's first byte to the end of its response; None when no end was seen."""
    first_packet: Count
    """Where the first of them begins."""


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
    trace_id: str | None
    """The trace asked for."""
    rpcs: Count
    """RPCs judged."""
    of_rpcs: Count
    """RPCs of the capture."""
    rpc_time_ns: int
    """Time of those judged."""
    of_rpc_time_ns: int
    """Time of all."""
    connections_in_part: tuple[int, ...]
    """Connections of which only a part of the RPCs is judged."""


class Verdict(Struct, frozen=True, omit_defaults=True):
    """What to do first."""

    text: str
    """One sentence."""
    finding: str | None
    """The finding it speaks of."""
    severity: Severity | None = None
    """How severe the problem is, where it is no finding's: of a proxy that holds calls."""


class Apart(Struct, frozen=True):
    """Captures of the same connections that could not be put together."""

    reason: str
    """Why."""
    analyses: tuple[Analysis, ...]
    """The analyses of the other captures."""


class Analysis(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag=SCHEMA):
    """Everything a report may show."""

    version: str
    """Version of grpcdiag that made it."""
    files: Annotated[tuple[str, ...], Meta(min_length=1)]
    capture: CaptureFacts
    quality: Quality
    totals: Totals
    traffic: TrafficOfSides
    budget: Budget
    """RPC time by cause."""
    setup_ns: Count = 0
    """Time of connection set-up before the first RPCs, which no cause counts; RPCs begin with their first packets."""
    verdict: Verdict
    connections: tuple[ConnectionFacts, ...]
    methods: tuple[MethodFacts, ...]
    """The one with the most RPC time first."""
    findings: tuple[Finding, ...]
    """The verdict's first, then by the time that they lost, those of severity `info` last."""
    skipped: tuple[Skipped, ...]
    recording: RecordingFacts | None
    """What was recorded beside the capture; None when nothing was, or it is another capture's."""
    processes: tuple[ProcessFacts, ...] = ()
    """What the recorded command's processes did, as the scheduler recorded it; the longest first."""
    other_requests: tuple[OtherRequest, ...] = ()
    """HTTP/2 requests that are no RPCs, by path and HTTP status, the most frequent first."""
    hops: tuple[Hop, ...] = ()
    """Proxies both of whose sides are in the capture."""
    tls: TlsReport | None = None
    """TLS connections that were not decrypted."""
    narrowed: Narrowed | None = None
    """Which RPCs this is about; None when it is about all of them."""
    ends: Ends | None = None
    """What a second capture of the same connections adds."""
    apart: Apart | None = None
    """A second capture of the same connections that could not be put together with this one."""
    client: ClientFacts | None = None
    """What the client measured, beside the RPCs of this capture."""
