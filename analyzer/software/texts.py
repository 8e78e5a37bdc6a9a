"""What texts of `grpc-message` and GOAWAY mean that software writes itself: the core keeps these unasked."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from ..model.finding import Remedy
from .recognise import C_CORE


class Meaning(Struct, frozen=True):
    """What some texts of one software say, and the setting that they are about."""

    software: str
    texts: tuple[str, ...]
    """How they begin, or for Envoy's resets how they go on."""
    says: str
    setting: str
    note: str
    source: str
    """Where it is described, with the version: for who checks this table, not shown."""


_RESET = "reset reason: "
_MEMORY = "a message is held in memory whole; smaller messages or a stream of parts need no larger limit"
_LONG = "a message was longer than its receiver accepts"
_LONG_SENT = "a message was longer than its sender may send"
_LOST = "the proxy lost its backend's connection or stream"
_NO_CONNECTION = "the proxy got no connection to its backend"
_ETCD_LEADER = "the cluster had no leader that could commit the request in time"
_COMPRESSED = "the server does not know the compression of the request (grpc-encoding)"
_COMPRESS_LESS = "or let the client send without compression"

MEANINGS = (
    Meaning(
        "envoy",
        ("upstream request timeout",),
        "the timeout of the route, or of the last of its attempts, passed",
        "route.timeout and retry_policy.per_try_timeout",
        "15 s by default, also for streams; VirtualService http.timeout, retries.perTryTimeout in Istio",
        "route_components.proto and router.cc, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        ("stream timeout",),
        "a timer of the stream passed",
        "stream_idle_timeout",
        "300 s by default",
        "http_connection_manager.proto, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        ("downstream duration timeout",),
        "a stream lasted longer than the proxy allows",
        "max_stream_duration",
        "common_http_protocol_options of the connection manager, or the route's: off by default",
        "protocol.proto, Envoy 1.40",
    ),
    Meaning(
        "envoy",
        (f"{_RESET}overflow",),
        "a circuit breaker was open",
        "circuit_breakers.thresholds",
        "max_requests, max_pending_requests and max_connections of the cluster: 1,024 each by default",
        "circuit_breaker.proto, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        tuple(
            f"{_RESET}{one}" for one in ("remote connection failure", "local connection failure", "connection timeout")
        ),
        _NO_CONNECTION,
        "endpoints and port of the cluster",
        "whether the backend listens there; the proxy's log has the address",
        "utility.cc, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        tuple(f"{_RESET}{one}" for one in ("connection termination", "remote reset", "remote refused stream reset")),
        _LOST,
        "the backend's log at the times of the evidence",
        "whether it restarted; retry_on: reset of the route retries such calls",
        "utility.cc, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        ("no healthy upstream",),
        "no backend was healthy",
        "health checks and endpoints of the cluster",
        "whether it has endpoints, and which checks fail",
        "router.cc, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        ("fault filter abort",),
        "a fault was injected on purpose",
        "envoy.filters.http.fault (VirtualService http.fault in Istio)",
        "a test may have left it; it may also delay calls",
        "fault_filter.cc, Envoy 1.39",
    ),
    Meaning(
        "envoy",
        ("local_rate_limited",),
        "a rate limit was reached",
        "local_ratelimit token_bucket",
        "max_tokens per fill_interval; the limit may be meant",
        "local_rate_limit.proto, Envoy 1.39",
    ),
    Meaning(
        C_CORE,
        ("received metadata size exceeds", "received initial metadata size exceeds"),
        "the metadata of a call was larger than the limit",
        "grpc.max_metadata_size, grpc.absolute_max_metadata_size",
        "8 and 16 KiB by default, at the end that received it; send less metadata if you can",
        "channel_arg_names.h, gRPC 1.66",
    ),
    Meaning(
        C_CORE,
        ("max connection age",),
        "the server ended calls that were open longer than it grants after a connection's maximum age",
        "grpc.max_connection_age_grace_ms",
        "without a limit by default; it must be longer than the longest call",
        "legacy_max_age_filter.cc, grpcio 1.85",
    ),
    Meaning(
        "grpcio",
        ("Concurrent RPC limit exceeded!",),
        "as many calls were open as the server allows",
        "grpc.server(..., maximum_concurrent_rpcs=n)",
        "beyond that many open calls the server refuses others at once; off by default",
        "grpcio 1.85",
    ),
    Meaning(
        "grpc for Ruby",
        ("No free threads in thread pool",),
        "all threads of the server's pool were busy",
        "GRPC::RpcServer.new(pool_size: n)",
        "30 by default; it must be as large as the calls open at once",
        "rpc_server.rb, grpc 1.51",
    ),
    *(
        Meaning(software, texts, _LONG, setting, _MEMORY, source)
        for software, texts, setting, source in (
            (
                C_CORE,
                ("SERVER: Received message larger", "CLIENT: Received message larger"),
                "grpc.max_receive_message_length",
                "channel_arg_names.h, gRPC 1.66",
            ),
            (
                "grpc-go",
                ("grpc: received message",),
                "grpc.MaxRecvMsgSize(n), grpc.MaxCallRecvMsgSize(n)",
                "grpc-go 1.70",
            ),
            ("grpc-java", ("gRPC message exceeds maximum size",), "maxInboundMessageSize(n)", "grpc-java 1.68"),
            (
                "grpc-dotnet",
                ("Received message exceeds the maximum configured",),
                "MaxReceiveMessageSize",
                "grpc-dotnet 2.66",
            ),
            (
                "tonic",
                ("Error, decoded message length", "Error, message length"),
                "max_decoding_message_size(n)",
                "tonic 0.12",
            ),
            (
                "connect-es, connect-go",
                ("message size ",),
                "readMaxBytes (connect-es), connect.WithReadMaxBytes(n) (connect-go)",
                "@connectrpc/connect 2.1, connect-go 1.18",
            ),
            (
                "Armeria",
                ("com.linecorp.armeria.common.grpc",),
                "GrpcServiceBuilder.maxRequestMessageLength(n)",
                "Armeria 1.32",
            ),
        )
    ),
    Meaning(
        C_CORE,
        ("SERVER: Sent message larger",),
        _LONG_SENT,
        "grpc.max_send_message_length",
        f"no limit by default; {_MEMORY}",
        "message_size_filter.cc, gRPC 1.85",
    ),
    Meaning(
        "grpc-go",
        ("trying to send message larger",),
        _LONG_SENT,
        "grpc.MaxSendMsgSize(n)",
        f"2 GiB by default; {_MEMORY}",
        "stream.go, grpc-go 1.85",
    ),
    Meaning(
        "tonic",
        ("Error, encoded message length",),
        _LONG_SENT,
        "max_encoding_message_size(n)",
        f"no limit by default; {_MEMORY}",
        "encode.rs, tonic 0.14",
    ),
    Meaning(
        "Dubbo",
        ("Response Entity Too Large",),
        _LONG_SENT,
        "dubbo.protocol.triple.max-response-body-size",
        f"8 MiB by default; {_MEMORY}",
        "LimitedByteBufOutputStream.java, Dubbo 3.3",
    ),
    Meaning(
        "tonic",
        ("Timeout expired",),
        "a timeout of the server passed",
        "Server::timeout(duration)",
        "off by default; a deadline of the client ends calls at both ends",
        "tonic 0.12",
    ),
    Meaning(
        "tonic",
        ("Too many active requests for the connection",),
        "as many calls were open as the server allows on a connection",
        "Server::concurrency_limit_per_connection(n)",
        "with load_shed(true) the server refuses others at once; both are off by default",
        "status.rs, tonic 0.14",
    ),
    *(
        Meaning(software, (text,), _COMPRESSED, setting, _COMPRESS_LESS, source)
        for software, text, setting, source in (
            (
                "tonic",
                "Content is compressed with ",
                "accept_compressed(CompressionEncoding::Gzip) of the generated server",
                "compression.rs, tonic 0.14",
            ),
            (
                "grpc-go",
                "grpc: Decompressor is not installed",
                'import _ "google.golang.org/grpc/encoding/gzip" in the server',
                "server.go, grpc-go 1.83",
            ),
            (
                "grpc-js",
                "Received message compressed with unsupported",
                "gzip or deflate in the client",
                "server-interceptors.js, @grpc/grpc-js 1.14",
            ),
        )
    ),
    Meaning(
        "Armeria",
        ("content too large: transferred",),
        _LONG,
        "ClientBuilder.maxResponseLength(n), ServerBuilder.maxRequestLength(n)",
        f"10 MiB by default; {_MEMORY}",
        "Flags.java, Armeria 1.32",
    ),
    *(
        Meaning("etcd", texts, says, setting, note, "api/v3rpc/rpctypes/error.go, etcd 3.7")
        for texts, says, setting, note in (
            (
                ("etcdserver: mvcc: database space exceeded",),
                "its database has reached the quota, so it refuses writes",
                "--quota-backend-bytes",
                "2 GiB by default: compact and defragment, then etcdctl alarm disarm",
            ),
            (
                ("etcdserver: mvcc: required revision has been compacted",),
                "the revision that was asked for has been compacted",
                "--auto-compaction-retention",
                "read anew from a current revision, or keep revisions for longer, which costs disk space",
            ),
            (
                ("etcdserver: request is too large",),
                "a request was larger than it accepts",
                "--max-request-bytes",
                "1.5 MiB by default; smaller values cost less memory",
            ),
            (
                ("etcdserver: too many requests",),
                "more requests waited to be applied than it allows",
                "the latency of the disk and the number of writes",
                "etcd_disk_wal_fsync_duration_seconds shows the disk's",
            ),
            (
                ("etcdserver: no leader", "etcdserver: leader changed", "etcdserver: request timed out"),
                _ETCD_LEADER,
                "the members' logs, disks and network at the times of the evidence",
                "--election-timeout and --heartbeat-interval must suit the round trip between members",
            ),
        )
    ),
    Meaning(
        "Tomcat",
        ("Connection [",),
        "it counted too many small frames",
        "Http2Protocol.setOverheadDataThreshold(0), setOverheadWindowUpdateThreshold(0)",
        "1,024 bytes by default: smaller DATA frames, as gRPC's often are, count against the connection",
        "configuration of the HTTP/2 upgrade protocol, Tomcat 10.1",
    ),
    Meaning(
        "Netty",
        ("Header size exceeded max",),
        "the header fields of a request were larger than its limit",
        "NettyServerBuilder.maxInboundMetadataSize(n); in Armeria ServerBuilder.http2MaxHeaderListSize(n)",
        "8 KiB by default; send less metadata if you can",
        "grpc-java 1.68, Armeria 1.32",
    ),
    Meaning(
        "Jetty",
        ("invalid_headers_frame",),
        "the header fields of a request were larger than its limit, or wrong",
        "HttpConfiguration.setRequestHeaderSize(n)",
        "8 KiB by default; send less metadata if you can",
        "Jetty 12.0",
    ),
)
"""All meanings known, those of one software together."""


def find_most_frequent(texts: Mapping[str, int]) -> tuple[Meaning, int] | None:
    """Find the meaning that most texts have, and how many have it; None when no text is known."""
    counts = Counter[Meaning]()
    for text, number in texts.items():
        counts.update({meaning: number for meaning in MEANINGS if _has(meaning, text)})
    return counts.most_common(1)[0] if counts else None


def advise(known: tuple[Meaning, int] | None, failed: int) -> str:
    """Say what the text of most failures means, and the setting that it is about; nothing without such a text."""
    if known is None or 2 * known[1] < failed:
        return ""
    meaning, count = known
    whose = "Their text" if count == failed else f"The text of {count:,}"
    software = meaning.software.partition(" (")[0]
    return f"{whose} is {software}'s: {meaning.says}. Look at {meaning.setting}."


def find_meaning(text: str) -> Meaning | None:
    """Find what one text means; None when it is not known."""
    found = find_most_frequent({text: 1})
    return found[0] if found else None


def _has(meaning: Meaning, text: str) -> bool:
    return any(text.startswith(one) or (one.startswith(_RESET) and one in text) for one in meaning.texts)


def make_remedy(meaning: Meaning) -> Remedy:
    """Name the setting that the texts are about."""
    return Remedy(meaning.software, meaning.setting, meaning.note)
