"""Settings of HTTP/2 windows and stream limits, by software: one line each, with its source and version."""

from ..model.finding import Remedy
from .recognise import C_CORE, find_none, recognise

STREAM_WINDOW, CONNECTION_WINDOW, STREAM_LIMIT = "stream window", "connection window", "stream limit"
"""What a setting sets."""
CLIENT, SERVER, BOTH = (0,), (1,), (0, 1)
"""At which ends, by direction."""


_GO = "64 KiB or more switches the BDP estimator off; when unset, windows grow to 16 MiB automatically"
_JAVA = "flowControlWindow(n) fixes the window at n (1 MiB by default); initialFlowControlWindow(n) lets it grow"
_OKHTTP = "65,535 bytes by default, which do not grow"
_CORE = "the BDP estimator (on by default) enlarges windows; keep it on"
_TONIC = "1 MiB on servers, 2 MiB (5 MiB per connection) on clients by default; http2_adaptive_window enlarges them"
_MEMORY = "each open stream or connection may hold that much memory"
_PROXY = "a proxy has separate windows for each side"
_MORE = "more RPCs at a time, which need more memory"
_PEKKO = "pekko.http.server.http2"
_HTTP2 = "http.Transport{HTTP2: &http.HTTP2Config{"

SETTINGS: dict[tuple[str, str], tuple[tuple[str, tuple[int, ...], str, str], ...]] = {
    ("grpc-go", "dialoptions.go, grpc-go 1.70"): (
        (STREAM_WINDOW, CLIENT, "grpc.WithInitialWindowSize(n)", _GO),
        (CONNECTION_WINDOW, CLIENT, "grpc.WithInitialConnWindowSize(n)", _GO),
    ),
    ("grpc-go", "server.go, grpc-go 1.70"): (
        (STREAM_WINDOW, SERVER, "grpc.InitialWindowSize(n)", _GO),
        (CONNECTION_WINDOW, SERVER, "grpc.InitialConnWindowSize(n)", _GO),
        (STREAM_LIMIT, SERVER, "grpc.MaxConcurrentStreams(n)", _MORE),
    ),
    ("grpc-java", "grpc-java 1.68"): (
        (STREAM_WINDOW, CLIENT, "NettyChannelBuilder.initialFlowControlWindow(n)", _JAVA),
        (CONNECTION_WINDOW, CLIENT, "NettyChannelBuilder.initialFlowControlWindow(n)", _JAVA),
        (STREAM_WINDOW, SERVER, "NettyServerBuilder.initialFlowControlWindow(n)", _JAVA),
        (CONNECTION_WINDOW, SERVER, "NettyServerBuilder.initialFlowControlWindow(n)", _JAVA),
        (STREAM_LIMIT, SERVER, "NettyServerBuilder.maxConcurrentCallsPerConnection(n)", _MORE),
    ),
    ("grpc-java-okhttp", "grpc-java 1.68"): (
        (STREAM_WINDOW, CLIENT, "OkHttpChannelBuilder.flowControlWindow(n)", _OKHTTP),
        (CONNECTION_WINDOW, CLIENT, "OkHttpChannelBuilder.flowControlWindow(n)", _OKHTTP),
        (STREAM_WINDOW, SERVER, "OkHttpServerBuilder.flowControlWindow(n)", _OKHTTP),
        (CONNECTION_WINDOW, SERVER, "OkHttpServerBuilder.flowControlWindow(n)", _OKHTTP),
    ),
    (C_CORE, "grpc_types.h, gRPC 1.66"): (
        (STREAM_WINDOW, BOTH, "grpc.http2.bdp_probe=1", _CORE),
        (CONNECTION_WINDOW, BOTH, "grpc.http2.bdp_probe=1", _CORE),
    ),
    (C_CORE, "channel_arg_names.h, gRPC 1.66"): (
        (STREAM_LIMIT, SERVER, "GRPC_ARG_MAX_CONCURRENT_STREAMS (grpc.max_concurrent_streams) = n", _MORE),
    ),
    ("grpc-js", "@grpc/grpc-js 1.14"): (
        (STREAM_WINDOW, CLIENT, "grpc-node.flow_control_window=n", "65,535 bytes by default"),
        (CONNECTION_WINDOW, CLIENT, "grpc-node.flow_control_window=n", "65,535 bytes by default"),
    ),
    ("grpc-js", "@grpc/grpc-js 1.12"): ((STREAM_LIMIT, SERVER, "'grpc.max_concurrent_streams': n", _MORE),),
    ("tonic", "tonic 0.12"): (
        (STREAM_WINDOW, CLIENT, "Endpoint::initial_stream_window_size(n)", _TONIC),
        (CONNECTION_WINDOW, CLIENT, "Endpoint::initial_connection_window_size(n)", _TONIC),
        (STREAM_WINDOW, SERVER, "Server::initial_stream_window_size(n)", _TONIC),
        (CONNECTION_WINDOW, SERVER, "Server::initial_connection_window_size(n)", _TONIC),
        (STREAM_LIMIT, SERVER, "Server::builder().max_concurrent_streams(n)", _MORE),
    ),
    ("grpc-dotnet", ".NET 8"): (
        (STREAM_WINDOW, CLIENT, "SocketsHttpHandler.InitialHttp2StreamWindowSize = n", _MEMORY),
    ),
    ("grpc-dotnet", "ASP.NET Core 8"): (
        (STREAM_WINDOW, SERVER, "Kestrel Limits.Http2.InitialStreamWindowSize = n", _MEMORY),
        (CONNECTION_WINDOW, SERVER, "Kestrel Limits.Http2.InitialConnectionWindowSize = n", _MEMORY),
        (STREAM_LIMIT, SERVER, "KestrelServerOptions.Limits.Http2.MaxStreamsPerConnection = n", _MORE),
    ),
    ("grpclib", "grpclib/config.py, grpclib 0.4"): (
        (STREAM_WINDOW, BOTH, "Configuration(http2_stream_window_size=n)", "4 MiB by default"),
        (CONNECTION_WINDOW, BOTH, "Configuration(http2_connection_window_size=n)", "4 MiB by default"),
    ),
    ("connect-go", "golang.org/x/net/http2, v0.30"): (
        (STREAM_WINDOW, SERVER, "http2.Server{MaxUploadBufferPerStream: n}", "1 MiB by default"),
        (CONNECTION_WINDOW, SERVER, "http2.Server{MaxUploadBufferPerConnection: n}", "1 MiB by default"),
        (STREAM_LIMIT, SERVER, "http2.Server{MaxConcurrentStreams: n}", f"250 by default; {_MORE}"),
    ),
    ("Go net/http", "golang.org/x/net/http2, v0.30"): (
        (STREAM_WINDOW, SERVER, "http2.Server{MaxUploadBufferPerStream: n}", "1 MiB by default"),
        (CONNECTION_WINDOW, SERVER, "http2.Server{MaxUploadBufferPerConnection: n}", "1 MiB by default"),
        (STREAM_LIMIT, SERVER, "http2.Server{MaxConcurrentStreams: n}", f"250 by default; {_MORE}"),
    ),
    ("connect-go", "net/http, Go 1.24"): (
        (STREAM_WINDOW, CLIENT, f"{_HTTP2}MaxReceiveBufferPerStream: n}}}}", "4 MiB by default"),
        (CONNECTION_WINDOW, CLIENT, f"{_HTTP2}MaxReceiveBufferPerConnection: n}}}}", "1 GiB by default"),
    ),
    ("connect-es", "@connectrpc/connect-node 2.0"): (
        (STREAM_WINDOW, CLIENT, "createGrpcTransport({nodeOptions: {settings: {initialWindowSize: n}}})", _MEMORY),
    ),
    ("Armeria", "Armeria 1.30"): (
        (STREAM_WINDOW, CLIENT, "ClientFactoryBuilder.http2InitialStreamWindowSize(n)", "1 MiB by default"),
        (CONNECTION_WINDOW, CLIENT, "ClientFactoryBuilder.http2InitialConnectionWindowSize(n)", "1 MiB by default"),
        (STREAM_WINDOW, SERVER, "ServerBuilder.http2InitialStreamWindowSize(n)", "1 MiB by default"),
        (CONNECTION_WINDOW, SERVER, "ServerBuilder.http2InitialConnectionWindowSize(n)", "1 MiB by default"),
        (STREAM_LIMIT, SERVER, "ServerBuilder.http2MaxStreamsPerConnection(n)", _MORE),
    ),
    ("Dubbo", "TripleConfig.java, Dubbo 3.3"): (
        (STREAM_WINDOW, BOTH, "dubbo.protocol.triple.initial-window-size=n", "8 MiB by default"),
        (CONNECTION_WINDOW, BOTH, "dubbo.protocol.triple.connection-initial-window-size=n", "64 KiB by default"),
        (STREAM_LIMIT, SERVER, "dubbo.protocol.triple.max-concurrent-streams=n", _MORE),
    ),
    ("grpc-swift", "grpc-swift 1.23"): (
        (STREAM_WINDOW, CLIENT, "GRPCChannelPool.Configuration.http2.targetWindowSize = n", _MEMORY),
        (STREAM_WINDOW, SERVER, "Server.Configuration.httpTargetWindowSize = n", _MEMORY),
        (STREAM_LIMIT, SERVER, "Server.Configuration.httpMaxConcurrentStreams = n", _MORE),
    ),
    ("nginx", "ngx_http_v2_module, nginx 1.27"): (
        (STREAM_WINDOW, SERVER, "http2_body_preread_size n", f"64k by default; {_PROXY}"),
        (STREAM_LIMIT, SERVER, "http2_max_concurrent_streams n", f"128 by default; {_MORE}"),
    ),
    ("haproxy", "configuration manual, HAProxy 3.0"): (
        (STREAM_WINDOW, SERVER, "tune.h2.fe.initial-window-size n", f"65,536 by default; {_PROXY}"),
        (STREAM_WINDOW, CLIENT, "tune.h2.be.initial-window-size n", f"65,536 by default; {_PROXY}"),
        (STREAM_LIMIT, SERVER, "tune.h2.fe.max-concurrent-streams n", f"100 by default; {_MORE}"),
    ),
    ("nghttpx", "nghttpx(1), nghttp2 1.62"): (
        (STREAM_WINDOW, SERVER, "--frontend-http2-window-size=n", f"65,535 by default; {_PROXY}"),
        (CONNECTION_WINDOW, SERVER, "--frontend-http2-connection-window-size=n", f"65,535 by default; {_PROXY}"),
        (STREAM_LIMIT, SERVER, "--frontend-http2-max-concurrent-streams=n", f"100 by default; {_MORE}"),
    ),
    ("Hypercorn", "config.py, Hypercorn 0.18"): (
        (STREAM_LIMIT, SERVER, "h2_max_concurrent_streams = n", f"100 by default; {_MORE}"),
    ),
    ("Jetty", "AbstractHTTP2ServerConnectionFactory, Jetty 12.0"): (
        (STREAM_WINDOW, SERVER, "HTTP2ServerConnectionFactory.setInitialStreamRecvWindow(n)", "512 KiB by default"),
        (CONNECTION_WINDOW, SERVER, "HTTP2ServerConnectionFactory.setInitialSessionRecvWindow(n)", "1 MiB by default"),
        (STREAM_LIMIT, SERVER, "HTTP2ServerConnectionFactory.setMaxConcurrentStreams(n)", f"128 by default; {_MORE}"),
    ),
    ("Pekko HTTP", "reference.conf, Pekko HTTP 1.1"): (
        (STREAM_WINDOW, SERVER, f"{_PEKKO}.incoming-stream-level-buffer-size = n", "512 kB by default"),
        (CONNECTION_WINDOW, SERVER, f"{_PEKKO}.incoming-connection-level-buffer-size = n", "10 MB by default"),
        (STREAM_LIMIT, SERVER, f"{_PEKKO}.max-concurrent-streams = n", f"256 by default; {_MORE}"),
    ),
    ("Apache", "mod_http2, Apache 2.4"): (
        (STREAM_WINDOW, SERVER, "H2WindowSize n", f"65,535 by default; {_PROXY}"),
        (STREAM_LIMIT, SERVER, "H2MaxSessionStreams n", f"100 by default; {_MORE}"),
    ),
    ("h2o", "HTTP/2 directives, h2o 2.2"): (
        (STREAM_LIMIT, SERVER, "http2-max-concurrent-requests-per-connection: n", f"100 by default; {_MORE}"),
    ),
    ("envoy", "core/v3/protocol.proto, Envoy 1.31"): (
        (STREAM_WINDOW, BOTH, "http2_protocol_options.initial_stream_window_size", _PROXY),
        (CONNECTION_WINDOW, BOTH, "http2_protocol_options.initial_connection_window_size", _PROXY),
        (STREAM_LIMIT, SERVER, "http2_protocol_options.max_concurrent_streams", _MORE),
    ),
    ("traefik", "EntryPoints, Traefik 3.1"): (
        (STREAM_LIMIT, SERVER, "entryPoints.NAME.http2.maxConcurrentStreams: n", f"250 by default; {_MORE}"),
    ),
}
"""What it sets, at which ends, the setting and a note, by software and where they are described (not shown)."""

COMMON = (C_CORE, "envoy", "grpc-dotnet", "grpc-go", "grpc-java", "grpc-js", "tonic")
"""Software whose settings are listed when none was recognised: the most used, by name."""


def list_software_settings(sets: str, implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    """List the settings of the software seen at one end, then Envoy's.

    For unknown software what to look for comes first, and then the settings of the most used.
    """
    seen = recognise(implementation)
    wanted, end = (seen, "envoy") if seen else COMMON, ("client", "server")[direction]
    mine = [
        Remedy(software, knob, f"on the {end}: {note}")
        for (software, _), settings in SETTINGS.items()
        for what, ends, knob, note in settings
        if what == sets and direction in ends
    ]
    remedies = tuple(dict.fromkeys(remedy for name in wanted for remedy in mine if remedy.implementation == name))
    if seen is None:
        look = f"the {sets} in the settings of the {end}'s library"
        return (Remedy("any gRPC implementation", look, "a larger one needs more memory"), *remedies)
    if any(remedy.implementation == seen for remedy in remedies):
        return remedies
    return (find_none(seen), *remedies)
