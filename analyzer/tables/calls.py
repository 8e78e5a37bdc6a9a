"""RPCs with their messages, methods, delays and failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Struct

from .columns import Codes, Counts, Ints, Shorts, Sizes
from .durations import Interval


class Rpcs(Struct, frozen=True, eq=False):
    """One row per RPC.

    Without `rpc_rows` only examples have rows: a connection's first RPCs, its first retries and other attempts that are
    open when they begin, failed RPCs, and the longest RPCs of each method and, if wanted, of all. Of a connection's
    rows only its first RPCs are in order.
    """

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier; over HTTP/1.1 requests are 1, 3, 5 and so on"]
    method: Annotated[Counts, "number of its method, `NO_METHOD` when not in the capture"]
    start_time_ns: Annotated[Ints, "first byte of the request's HEADERS"]
    duration_ns: Annotated[Ints, "from then until the last byte of the frame that ended the RPC for the client"]
    status: Annotated[Codes, "gRPC status code, `NOT_SEEN` (status unknown) when not on the wire"]
    status_source: Annotated[Codes, "what the status was concluded from, index into `_core.STATUS_SOURCES`"]
    http_status: Annotated[Shorts, "`:status` of the response, 0 when none was seen"]
    protocol: Annotated[Codes, "index into `_core.RPC_PROTOCOLS`"]
    flags: Annotated[
        Codes, "bits `COMPLETE`, `METHOD_UNKNOWN`, `BEGUN_BEFORE`, `TOUCHES_GAP`, `HEADERS_UNKNOWN`, `END_MISSING`"
    ]
    request_messages: Annotated[Counts, "whole request messages; empty unless asked for"]
    response_messages: Annotated[Counts, "whole response messages; empty unless asked for"]
    request_bytes: Annotated[Sizes, "request message bytes without prefixes, as on the wire; empty unless asked for"]
    response_bytes: Annotated[Sizes, "response message bytes without prefixes, as on the wire; empty unless asked for"]
    first_packet: Annotated[Counts, "packet of the first byte"]
    last_packet: Annotated[Counts, "packet of the last byte, 0 when the end was not seen"]
    grpc_message: Annotated[Counts, "text of its error, index into `Tables.errors`, beyond it for none"]
    previous_attempts: Annotated[Codes, "the request's `grpc-previous-rpc-attempts`, 0 when it is not seen"]
    trace_high: Annotated[Sizes, "first eight octets of the request's trace-id (`traceparent`), 0 when it is not seen"]
    trace_low: Annotated[Sizes, "last eight octets of it"]
    span_id: Annotated[Sizes, "its parent-id, the span of the caller, 0 when it is not seen"]
    request_id: Annotated[Sizes, "a number that requests with the same `x-request-id` share, 0 when it is not seen"]


class Messages(Struct, frozen=True, eq=False):
    """One row per gRPC message, in the order in which the messages were complete."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    direction: Annotated[Codes, "sender"]
    index: Annotated[Counts, "position among the decoded messages of its direction, from 0"]
    length: Annotated[Counts, "bytes without the prefix"]
    compressed: Annotated[Codes, "1 when its compressed flag is set"]
    first_packet: Annotated[Counts, "packet of its prefix's first byte"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "packet at which its last byte was readable in order"]
    last_time_ns: Annotated[Ints, "time of that packet"]


class Delays(Struct, frozen=True, eq=False):
    """One row per stream and direction whose first DATA followed the HEADERS after 1 ms or more."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    direction: Annotated[Codes, "sender"]
    headers_packet: Annotated[Counts, "packet of the header block's last byte"]
    headers_time_ns: Annotated[Ints, "time of that packet"]
    data_packet: Annotated[Counts, "packet of the first message byte"]
    duration_ns: Annotated[Ints, "from `headers_time_ns` to the first message byte"]
    method: Annotated[Counts, "method of its RPC, `NO_METHOD` when not known"]


class Failures(Struct, frozen=True, eq=False):
    """RPCs that ended with a status other than OK; their budgets are `Tables.failure_budgets`."""

    rpc: Annotated[Counts, "row of the RPC"]
    reset_by: Annotated[Codes, "sender of the RST_STREAM that ended it, 2 for none"]
    reset_code: Annotated[Counts, "its error code (RFC 9113 section 7)"]
    answered_by: Annotated[
        Counts, "software named by `server` or `via` of the response, index into `Tables.agents`, `NO_AGENT` for none"
    ]
    foreign: Annotated[Codes, "1 when the response has an HTTP status or a media type that the protocol does not have"]
    silence_ns: Annotated[Ints, "longest time without a packet of its stream"]
    silence_from_packet: Annotated[Counts, "last packet before it"]
    silence_to_packet: Annotated[Counts, "packet that ended it"]
    headers_packet: Annotated[Counts, "packet with the end of the last header block of its response, 0 for none"]
    headers_time_ns: Annotated[Ints, "time of that packet"]
    cut_request_bytes: Annotated[Counts, "length by its prefix of a request message that was not whole, 0 for none"]
    cut_request_packet: Annotated[Counts, "packet of that request message's first byte, 0 for none"]
    cut_request_time_ns: Annotated[Ints, "time of that packet, -1 for none"]
    cut_response_bytes: Annotated[Counts, "length by its prefix of a response message that was not whole, 0 for none"]
    cut_response_packet: Annotated[Counts, "packet of that response message's first byte, 0 for none"]
    cut_response_time_ns: Annotated[Ints, "time of that packet, -1 for none"]
    response_messages: Annotated[Counts, "whole messages of its response"]
    since_answer_ns: Annotated[
        Ints,
        "from the last answer to another RPC of its method on its connection to its end, -1 where none came meanwhile",
    ]
    since_bytes_ns: Annotated[Ints, "from the stream's last bytes to its client's RST_STREAM, -1 for none"]
    refused_packet: Annotated[
        Counts, "packet of the RST_STREAM with which its client refused a complete response, 0 for none"
    ]
    refused_time_ns: Annotated[Ints, "time of that packet, -1 for none"]


class Repeats(Struct, frozen=True, eq=False):
    """One row per RPC that failed, or was answered right after such a one: whether its client asked the same again.

    The next request has the same method, number and bytes of messages, is on the same connection, and begins within a
    second. Once a request had the `x-request-id` of a failed one, those with another id count as other calls. RPCs that
    their client gave up, and those with `grpc-previous-rpc-attempts`, are left out.
    """

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    method: Annotated[Counts, "number of its method, `NO_METHOD` when not in the capture"]
    attempt: Annotated[Codes, "1 for the first request, 2 for the one that follows its failure, and so on"]
    status: Annotated[Codes, "its gRPC status code"]
    packet: Annotated[Counts, "packet that ended it"]
    time_ns: Annotated[Ints, "time of that packet"]
    next_stream: Annotated[Counts, "stream of the next equal request, 0 for none"]
    next_packet: Annotated[Counts, "its first packet"]
    next_time_ns: Annotated[Ints, "time of that packet"]
    same_id: Annotated[Codes, "1 when the next request has the same `x-request-id`"]


class OpenRpcs(Struct, frozen=True, eq=False):
    """One row per RPC that was open at the end and had no packet for 100 ms or longer.

    The end is that of the capture, its client's FIN or RST, or its client's RST_STREAM while a window was used up.
    """

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    method: Annotated[Counts, "number of its method, `NO_METHOD` when not in the capture"]
    start_time_ns: Annotated[Ints, "first byte of the request's HEADERS"]
    first_packet: Annotated[Counts, "packet of that byte"]
    since_time_ns: Annotated[Ints, "last byte of either side, or its last retransmission"]
    last_packet: Annotated[Counts, "packet of the last byte"]
    last_time_ns: Annotated[Ints, "time of that packet"]
    end_time_ns: Annotated[
        Ints, "time of the capture's last packet, of the FIN, RST or RST_STREAM, or until when packets show the cause"
    ]
    waits_for: Annotated[Codes, "the side that has to act, by the messages or by a used up window"]
    cause: Annotated[
        Codes, "what the RPC waits for, index into `CAUSES`; `unexplained` when its last bytes were not acknowledged"
    ]
    heard_packet: Annotated[Counts, "last packet of that side on the connection, 0 for none"]
    heard_time_ns: Annotated[Ints, "time of that packet"]
    request_messages: Annotated[Counts, "whole request messages"]
    response_messages: Annotated[Counts, "whole response messages"]
    timeout_ns: Annotated[Ints, "its deadline as `grpc-timeout` has it"]
    closed: Annotated[
        Codes, "what ended it: 0 nothing, 1 its client's FIN or RST, 2 its client's RST_STREAM, 3 its server"
    ]
    headers_unknown: Annotated[Codes, "1 when fields of its request's headers are unknown"]
    stream_window_bytes: Annotated[Ints, "stream window of the sender with a used up window, else `WINDOW_NOT_KNOWN`"]
    connection_window_bytes: Annotated[Ints, "connection window of that sender, else `WINDOW_NOT_KNOWN`"]


class OtherRequests(Struct, frozen=True, eq=False):
    """One row per HTTP/2 request that is no RPC, in the order in which they began: health checks, REST."""

    connection: Annotated[Counts, "row of its connection"]
    stream: Annotated[Counts, "HTTP/2 stream identifier"]
    path: Annotated[Counts, "`:path` without its query, index into `Tables.paths`, `NO_METHOD` when not in the capture"]
    http_status: Annotated[Shorts, "`:status` of the response, 0 when none was seen"]
    start_time_ns: Annotated[Ints, "first byte of the request's HEADERS"]
    duration_ns: Annotated[Ints, "from then until the response or a RST_STREAM ended it, -1 when neither was seen"]
    first_packet: Annotated[Counts, "packet of the first byte"]
    last_packet: Annotated[Counts, "packet of the last byte, 0 when the end was not seen"]


class Method(Struct, frozen=True):
    """What is counted per method."""

    number: int
    """The number by which RPCs refer to it."""
    name: str | None
    """`/package.Service/Method`; None when it is not in the capture."""
    label: str | None
    """`method #1`, to distinguish methods whose names are not in the capture; None when that is not possible."""
    rpcs: int
    """RPCs of the method."""
    complete: int
    """RPCs whose end was seen."""
    touch_gaps: int
    """RPCs with bytes missing from the capture."""
    end_missing: int
    """RPCs whose end may be among packets that the capture lacks: how long they took is unknown."""
    statuses: tuple[int, ...]
    """RPCs by status code; the last entry counts those whose status is not on the wire."""
    first_start_ns: int
    """When the first one began."""
    last_end_ns: int
    """When the last one ended."""
    latency: Mapping[str, int] | None
    """Exact quantiles of complete RPCs by nearest rank, nanoseconds; None without any."""
    latency_intervals: Mapping[str, Interval] | None
    """For each quantile the two durations between which it lies with 95 % confidence; None without any."""
    distribution: tuple[int, ...]
    """Complete RPCs by class of duration, of which `_core.CLASSES_PER_DECADE` lie between powers of ten nanoseconds;
    empty unless asked for."""
    messages: int
    """Whole messages of both directions."""
    budget: tuple[int, ...]
    """Nanoseconds per cause, in the order of `CAUSES`."""
    turnaround: Mapping[str, int] | None
    """Quantiles of the response time in nanoseconds, within 0.1 %; None without a sample."""
    turnaround_intervals: Mapping[str, Interval] | None
    """`latency_intervals` for the response time."""


Names = dict[int, tuple[str | None, str | None]]
"""Names and labels of methods, see `Method`, by their numbers."""


def names_of(methods: Iterable[Method]) -> Names:
    """Map method numbers to names and labels."""
    return {method.number: (method.name, method.label) for method in methods}
