"""Header blocks that may be larger than their receiver accepts, and the settings of that limit by software."""

from ..model.finding import Remedy
from ..model.text import count
from ..tables import Tables
from . import _failures as common
from ._shared import host
from ._software import C_CORE, is_of, recognise_end

_CODES = ("PROTOCOL_ERROR", "INTERNAL_ERROR", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR", "ENHANCE_YOUR_CALM")
"""What libraries send in a GOAWAY for metadata above their limit: nghttp2 COMPRESSION_ERROR, python-hyper's h2
ENHANCE_YOUR_CALM, Netty and Jetty PROTOCOL_ERROR."""

_LESS = "send less metadata if you can"
SETTINGS = (
    Remedy("Armeria", "ServerBuilder.http2MaxHeaderListSize(n)", f"8 KiB by default; {_LESS}"),
    Remedy(C_CORE, "grpc.max_metadata_size, grpc.absolute_max_metadata_size", f"8 and 16 KiB by default; {_LESS}"),
    Remedy("caddy", "servers { max_header_size n }", f"1 MiB by default; {_LESS}"),
    Remedy("envoy", "max_request_headers_kb", f"60 KiB by default; {_LESS}"),
    Remedy("Go net/http", "http.Server{MaxHeaderBytes: n}", f"1 MiB by default; {_LESS}"),
    Remedy("grpc-dotnet", "Kestrel Limits.MaxRequestHeadersTotalSize = n", f"32 KiB by default; {_LESS}"),
    Remedy("grpc-go", "grpc.MaxHeaderListSize(n)", f"16 MiB by default; {_LESS}"),
    Remedy("grpc-java", "NettyServerBuilder.maxInboundMetadataSize(n)", f"8 KiB by default; {_LESS}"),
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
tonic 0.14 on hyper 1.12, Node 22, Armeria 1.32, Jetty 12.0, nginx 1.27, Envoy 1.31, Caddy 2.8, .NET 8, Go 1.24."""

_NODE = ("grpc-js", "connect-es")


def list_settings(software: str | None) -> tuple[Remedy, ...]:
    """List the settings of the software seen; of all if it is unknown, none if no setting of it is known."""
    name = "Node" if software in _NODE else software
    own = tuple(remedy for remedy in SETTINGS if is_of(remedy.implementation, name))
    return own if software else (_ANY, *SETTINGS)


_ANY = Remedy("application", "the server's limit on metadata (header list size)", _LESS)


def describe_large(tables: Tables, goaway: int) -> str:
    """Say how large a header block of the client was on which its server may act by a GOAWAY; nothing for small ones.

    A client's header block that does not fit into one frame is large: a frame takes 16,384 bytes or more.
    """
    goaways, connections, directions = tables.goaways, tables.connections, tables.directions
    connection = int(goaways.connection[goaway])
    code = common.error_name(int(goaways.code[goaway]))
    if goaways.direction[goaway] != 1 or code not in _CODES or not connections.complete[connection]:
        return ""
    frames, octets = (
        int(column[2 * connection]) for column in (directions.header_frames, directions.header_block_bytes)
    )
    requests = int(connections.rpcs[connection]) + int(connections.other_streams[connection])
    # clients send no trailers, so what exceeds the number of requests are CONTINUATION frames
    answered = (tables.rpcs.connection == connection) & (tables.rpcs.status_source == common.TRAILERS)
    # an answered request may be the one with the CONTINUATION frames, and then its size was accepted
    if frames <= max(requests, 1) or answered.any():
        return ""
    client, server = host(tables, connection, 0), host(tables, connection, 1)
    blocks = f"{octets:,} bytes of metadata in {frames:,} frames for {count(max(requests, 1), 'request')}"
    return f"{client} had sent {blocks}: probably more than {server} accepts."


def list_remedies(tables: Tables, goaway: int) -> tuple[Remedy, ...]:
    """List the limits of the software at the server's end of a GOAWAY's connection."""
    return list_settings(recognise_end(tables, int(tables.goaways.connection[goaway]), 1))
