"""Limits on the size of metadata, by software."""

from ..model.finding import Remedy
from .recognise import C_CORE, is_of

_LESS = "send less metadata if you can"
SETTINGS = (
    Remedy("Armeria", "ServerBuilder.http2MaxHeaderListSize(n)", f"8 KiB by default; {_LESS}"),
    Remedy(C_CORE, "grpc.max_metadata_size, grpc.absolute_max_metadata_size", f"8 and 16 KiB by default; {_LESS}"),
    Remedy("caddy", "servers { max_header_size n }", f"1 MiB by default; {_LESS}"),
    Remedy("envoy", "max_request_headers_kb", f"60 KiB by default; {_LESS}"),
    Remedy("Go net/http", "http.Server{MaxHeaderBytes: n}", f"1 MiB by default; {_LESS}"),
    Remedy(
        "grpc-dotnet",
        "Kestrel Limits.MaxRequestHeadersTotalSize, Limits.Http2.MaxRequestHeaderFieldSize",
        f"32 KiB by default, in all and for one field; {_LESS}",
    ),
    Remedy("grpc-go", "grpc.MaxHeaderListSize(n)", f"16 MiB by default; {_LESS}"),
    Remedy("grpc-java", "NettyServerBuilder.maxInboundMetadataSize(n)", f"8 KiB by default; {_LESS}"),
    Remedy("haproxy", "tune.bufsize n", f"16,384 bytes by default, less tune.maxrewrite; {_LESS}"),
    Remedy("Jetty", "HttpConfiguration.setRequestHeaderSize(n)", f"8 KiB by default; {_LESS}"),
    Remedy("nginx", "large_client_header_buffers", "4 x 8 kB by default; before 1.19.7 http2_max_header_size"),
    Remedy(
        "Node (grpc-js, connect-es)",
        "settings.maxHeaderListSize and maxHeaderListPairs of http2.createServer",
        "65,535 bytes and 128 fields by default; nghttp2 allows 65,536 bytes in one field, which no setting changes",
    ),
    Remedy("tonic", "Server::builder().http2_max_header_list_size(n)", f"16 KiB by default in hyper 1; {_LESS}"),
)
"""Limits on the header fields of a request, by name: grpc-go 1.85, gRPC 1.66 (channel_arg_names.h), grpc-java 1.68,
tonic 0.14 on hyper 1.12, Node 22, Armeria 1.32, Jetty 12.0, nginx 1.27, Envoy 1.31, Caddy 2.8, .NET 10, Go 1.24,
HAProxy 2.6."""

_NODE = ("grpc-js", "connect-es")


def list_settings(software: str | None) -> tuple[Remedy, ...]:
    """List the settings of the software seen; of all if it is unknown, none if no setting of it is known."""
    name = "Node" if software in _NODE else software
    own = tuple(remedy for remedy in SETTINGS if is_of(remedy.implementation, name))
    return own if software else (_ANY, *SETTINGS)


_ANY = Remedy("application", "the server's limit on metadata (header list size)", _LESS)


def list_client_settings(software: str | None) -> tuple[Remedy, ...]:
    """List the limits of a client by its software."""
    return _OF_NODE_CLIENT if software in _NODE else (_OF_CLIENT,)


_OF_CLIENT = Remedy("application", "the client's limit on metadata (header list size)", "or less metadata in responses")
_OF_NODE_CLIENT = (
    Remedy("application", "less metadata in one field", "nghttp2 allows 65,536 bytes in it, which no setting changes"),
)
