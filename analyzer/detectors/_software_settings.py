"""Settings of HTTP/2 windows and stream limits, by software: one line each, with its source and version."""

from msgspec import Struct

from ..model.finding import Remedy
from ._software import C_CORE, find_none, recognise

STREAM_WINDOW, CONNECTION_WINDOW, STREAM_LIMIT = "stream window", "connection window", "stream limit"
"""What a setting sets."""
CLIENT, SERVER, BOTH = (0,), (1,), (0, 1)
"""At which ends, by direction."""


class Setting(Struct, frozen=True):
    """A setting of one software."""

    software: str
    sets: str
    ends: tuple[int, ...]
    knob: str
    note: str
    source: str
    """Where it is described, with the version: for who checks this table, not shown."""


_GO = "64 KiB or more switches the BDP estimator off; when unset, windows grow to 16 MiB automatically"
_JAVA = "flowControlWindow(n) fixes the window at n (1 MiB by default); initialFlowControlWindow(n) lets it grow"
_OKHTTP = "65,535 bytes by default, which do not grow"
_CORE = "the BDP estimator (on by default) enlarges windows; keep it on"
_TONIC = "1 MiB on servers, 2 MiB (5 MiB per connection) on clients by default; http2_adaptive_window enlarges them"
_MEMORY = "each open stream or connection may hold that much memory"
_PROXY = "a proxy has separate windows for each side"
_MORE = "more RPCs at a time, which need more memory"

_ENVOY = "http2_protocol_options."
_PROTO = "core/v3/protocol.proto, Envoy 1.31"
_NET = "golang.org/x/net/http2, v0.30"
_ALL = (STREAM_WINDOW, CONNECTION_WINDOW)

SETTINGS = (
    Setting("grpc-go", STREAM_WINDOW, CLIENT, "grpc.WithInitialWindowSize(n)", _GO, "dialoptions.go, grpc-go 1.70"),
    Setting(
        "grpc-go", CONNECTION_WINDOW, CLIENT, "grpc.WithInitialConnWindowSize(n)", _GO, "dialoptions.go, grpc-go 1.70"
    ),
    Setting("grpc-go", STREAM_WINDOW, SERVER, "grpc.InitialWindowSize(n)", _GO, "server.go, grpc-go 1.70"),
    Setting("grpc-go", CONNECTION_WINDOW, SERVER, "grpc.InitialConnWindowSize(n)", _GO, "server.go, grpc-go 1.70"),
    Setting("grpc-go", STREAM_LIMIT, SERVER, "grpc.MaxConcurrentStreams(n)", _MORE, "server.go, grpc-go 1.70"),
    *(
        Setting("grpc-java", sets, CLIENT, "NettyChannelBuilder.initialFlowControlWindow(n)", _JAVA, "grpc-java 1.68")
        for sets in _ALL
    ),
    *(
        Setting("grpc-java", sets, SERVER, "NettyServerBuilder.initialFlowControlWindow(n)", _JAVA, "grpc-java 1.68")
        for sets in _ALL
    ),
    Setting(
        "grpc-java",
        STREAM_LIMIT,
        SERVER,
        "NettyServerBuilder.maxConcurrentCallsPerConnection(n)",
        _MORE,
        "grpc-java 1.68",
    ),
    *(
        Setting(
            "grpc-java-okhttp", sets, CLIENT, "OkHttpChannelBuilder.flowControlWindow(n)", _OKHTTP, "grpc-java 1.68"
        )
        for sets in _ALL
    ),
    *(
        Setting("grpc-java-okhttp", sets, SERVER, "OkHttpServerBuilder.flowControlWindow(n)", _OKHTTP, "grpc-java 1.68")
        for sets in _ALL
    ),
    *(Setting(C_CORE, sets, BOTH, "grpc.http2.bdp_probe=1", _CORE, "grpc_types.h, gRPC 1.66") for sets in _ALL),
    Setting(
        C_CORE,
        STREAM_LIMIT,
        SERVER,
        "GRPC_ARG_MAX_CONCURRENT_STREAMS (grpc.max_concurrent_streams) = n",
        _MORE,
        "channel_arg_names.h, gRPC 1.66",
    ),
    *(
        Setting(
            "grpc-js", sets, CLIENT, "grpc-node.flow_control_window=n", "65,535 bytes by default", "@grpc/grpc-js 1.14"
        )
        for sets in _ALL
    ),
    Setting("grpc-js", STREAM_LIMIT, SERVER, "'grpc.max_concurrent_streams': n", _MORE, "@grpc/grpc-js 1.12"),
    Setting("tonic", STREAM_WINDOW, CLIENT, "Endpoint::initial_stream_window_size(n)", _TONIC, "tonic 0.12"),
    Setting("tonic", CONNECTION_WINDOW, CLIENT, "Endpoint::initial_connection_window_size(n)", _TONIC, "tonic 0.12"),
    Setting("tonic", STREAM_WINDOW, SERVER, "Server::initial_stream_window_size(n)", _TONIC, "tonic 0.12"),
    Setting("tonic", CONNECTION_WINDOW, SERVER, "Server::initial_connection_window_size(n)", _TONIC, "tonic 0.12"),
    Setting("tonic", STREAM_LIMIT, SERVER, "Server::builder().max_concurrent_streams(n)", _MORE, "tonic 0.12"),
    Setting(
        "grpc-dotnet", STREAM_WINDOW, CLIENT, "SocketsHttpHandler.InitialHttp2StreamWindowSize = n", _MEMORY, ".NET 8"
    ),
    Setting(
        "grpc-dotnet",
        STREAM_WINDOW,
        SERVER,
        "Kestrel Limits.Http2.InitialStreamWindowSize = n",
        _MEMORY,
        "ASP.NET Core 8",
    ),
    Setting(
        "grpc-dotnet",
        CONNECTION_WINDOW,
        SERVER,
        "Kestrel Limits.Http2.InitialConnectionWindowSize = n",
        _MEMORY,
        "ASP.NET Core 8",
    ),
    Setting(
        "grpc-dotnet",
        STREAM_LIMIT,
        SERVER,
        "KestrelServerOptions.Limits.Http2.MaxStreamsPerConnection = n",
        _MORE,
        "ASP.NET Core 8",
    ),
    Setting(
        "grpclib",
        STREAM_WINDOW,
        BOTH,
        "Configuration(http2_stream_window_size=n)",
        "4 MiB by default",
        "grpclib/config.py, grpclib 0.4",
    ),
    Setting(
        "grpclib",
        CONNECTION_WINDOW,
        BOTH,
        "Configuration(http2_connection_window_size=n)",
        "4 MiB by default",
        "grpclib/config.py, grpclib 0.4",
    ),
    *(
        Setting(software, sets, SERVER, f"http2.Server{{{field}: n}}", note, _NET)
        for software in ("connect-go", "Go net/http")
        for sets, field, note in (
            (STREAM_WINDOW, "MaxUploadBufferPerStream", "1 MiB by default"),
            (CONNECTION_WINDOW, "MaxUploadBufferPerConnection", "1 MiB by default"),
            (STREAM_LIMIT, "MaxConcurrentStreams", f"250 by default; {_MORE}"),
        )
    ),
    *(
        Setting(
            "connect-go",
            sets,
            CLIENT,
            f"http.Transport{{HTTP2: &http.HTTP2Config{{{field}: n}}}}",
            note,
            "net/http, Go 1.24",
        )
        for sets, field, note in (
            (STREAM_WINDOW, "MaxReceiveBufferPerStream", "4 MiB by default"),
            (CONNECTION_WINDOW, "MaxReceiveBufferPerConnection", "1 GiB by default"),
        )
    ),
    Setting(
        "connect-es",
        STREAM_WINDOW,
        CLIENT,
        "createGrpcTransport({nodeOptions: {settings: {initialWindowSize: n}}})",
        _MEMORY,
        "@connectrpc/connect-node 2.0",
    ),
    *(
        Setting("Armeria", sets, ends, f"{builder}.{knob}(n)", "1 MiB by default", "Armeria 1.30")
        for ends, builder in ((CLIENT, "ClientFactoryBuilder"), (SERVER, "ServerBuilder"))
        for sets, knob in (
            (STREAM_WINDOW, "http2InitialStreamWindowSize"),
            (CONNECTION_WINDOW, "http2InitialConnectionWindowSize"),
        )
    ),
    Setting("Armeria", STREAM_LIMIT, SERVER, "ServerBuilder.http2MaxStreamsPerConnection(n)", _MORE, "Armeria 1.30"),
    Setting(
        "grpc-swift",
        STREAM_WINDOW,
        CLIENT,
        "GRPCChannelPool.Configuration.http2.targetWindowSize = n",
        _MEMORY,
        "grpc-swift 1.23",
    ),
    Setting(
        "grpc-swift", STREAM_WINDOW, SERVER, "Server.Configuration.httpTargetWindowSize = n", _MEMORY, "grpc-swift 1.23"
    ),
    Setting(
        "grpc-swift",
        STREAM_LIMIT,
        SERVER,
        "Server.Configuration.httpMaxConcurrentStreams = n",
        _MORE,
        "grpc-swift 1.23",
    ),
    Setting(
        "nginx",
        STREAM_WINDOW,
        SERVER,
        "http2_body_preread_size n",
        f"64k by default; {_PROXY}",
        "ngx_http_v2_module, nginx 1.27",
    ),
    Setting(
        "nginx",
        STREAM_LIMIT,
        SERVER,
        "http2_max_concurrent_streams n",
        f"128 by default; {_MORE}",
        "ngx_http_v2_module, nginx 1.27",
    ),
    Setting(
        "haproxy",
        STREAM_WINDOW,
        SERVER,
        "tune.h2.fe.initial-window-size n",
        f"65,536 by default; {_PROXY}",
        "configuration manual, HAProxy 3.0",
    ),
    Setting(
        "haproxy",
        STREAM_WINDOW,
        CLIENT,
        "tune.h2.be.initial-window-size n",
        f"65,536 by default; {_PROXY}",
        "configuration manual, HAProxy 3.0",
    ),
    Setting(
        "haproxy",
        STREAM_LIMIT,
        SERVER,
        "tune.h2.fe.max-concurrent-streams n",
        f"100 by default; {_MORE}",
        "configuration manual, HAProxy 3.0",
    ),
    Setting(
        "nghttpx",
        STREAM_WINDOW,
        SERVER,
        "--frontend-http2-window-size=n",
        f"65,535 by default; {_PROXY}",
        "nghttpx(1), nghttp2 1.62",
    ),
    Setting(
        "nghttpx",
        CONNECTION_WINDOW,
        SERVER,
        "--frontend-http2-connection-window-size=n",
        f"65,535 by default; {_PROXY}",
        "nghttpx(1), nghttp2 1.62",
    ),
    Setting(
        "nghttpx",
        STREAM_LIMIT,
        SERVER,
        "--frontend-http2-max-concurrent-streams=n",
        f"100 by default; {_MORE}",
        "nghttpx(1), nghttp2 1.62",
    ),
    *(
        Setting(
            "Jetty",
            sets,
            SERVER,
            f"HTTP2ServerConnectionFactory.{knob}(n)",
            note,
            "AbstractHTTP2ServerConnectionFactory, Jetty 12.0",
        )
        for sets, knob, note in (
            (STREAM_WINDOW, "setInitialStreamRecvWindow", "512 KiB by default"),
            (CONNECTION_WINDOW, "setInitialSessionRecvWindow", "1 MiB by default"),
            (STREAM_LIMIT, "setMaxConcurrentStreams", f"128 by default; {_MORE}"),
        )
    ),
    Setting("Apache", STREAM_WINDOW, SERVER, "H2WindowSize n", f"65,535 by default; {_PROXY}", "mod_http2, Apache 2.4"),
    Setting(
        "Apache", STREAM_LIMIT, SERVER, "H2MaxSessionStreams n", f"100 by default; {_MORE}", "mod_http2, Apache 2.4"
    ),
    Setting(
        "h2o",
        STREAM_LIMIT,
        SERVER,
        "http2-max-concurrent-requests-per-connection: n",
        f"100 by default; {_MORE}",
        "HTTP/2 directives, h2o 2.2",
    ),
    Setting("envoy", STREAM_WINDOW, BOTH, f"{_ENVOY}initial_stream_window_size", _PROXY, _PROTO),
    Setting("envoy", CONNECTION_WINDOW, BOTH, f"{_ENVOY}initial_connection_window_size", _PROXY, _PROTO),
    Setting("envoy", STREAM_LIMIT, SERVER, f"{_ENVOY}max_concurrent_streams", _MORE, _PROTO),
    Setting(
        "traefik",
        STREAM_LIMIT,
        SERVER,
        "entryPoints.NAME.http2.maxConcurrentStreams: n",
        f"250 by default; {_MORE}",
        "EntryPoints, Traefik 3.1",
    ),
)
"""All settings known, those of one software together."""

COMMON = ("grpc-go", "grpc-java", C_CORE, "grpc-js", "tonic", "grpc-dotnet", "envoy")
"""Software whose settings are listed when none was recognised: the most used."""


def list_software_settings(sets: str, implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    """List the settings of the software seen at one end, then Envoy's; without any, those of the most used."""
    seen = recognise(implementation)
    wanted = (seen, "envoy") if seen else COMMON
    mine = [setting for setting in SETTINGS if setting.sets == sets and direction in setting.ends]
    found = [setting for name in wanted for setting in mine if setting.software == name]
    end = ("client", "server")[direction]
    remedies = tuple(dict.fromkeys(Remedy(s.software, s.knob, f"on the {end}: {s.note}") for s in found))
    known = seen is None or any(setting.software == seen for setting in found)
    return remedies if known or seen is None else (find_none(seen), *remedies)
