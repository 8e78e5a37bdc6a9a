"""Header blocks that may be larger than their receiver accepts, and the settings of that limit by software."""

import numpy as np

from ..model.finding import Remedy
from ..model.text import count
from ..summary import figures
from ..tables import Tables, error_name
from . import _failures as common
from ._shared import host
from ._software import C_CORE, is_of, recognise_end

_CODES = ("PROTOCOL_ERROR", "INTERNAL_ERROR", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR", "ENHANCE_YOUR_CALM")
"""What libraries send in a GOAWAY for metadata above their limit: nghttp2 COMPRESSION_ERROR, python-hyper's h2
ENHANCE_YOUR_CALM, Netty and Jetty PROTOCOL_ERROR."""

_FRAME = 16_384
"""The least frame that each side must accept (RFC 9113 section 4.2)."""

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


def describe_large(tables: Tables, goaway: int) -> str:
    """Say how large a header block was on which its receiver may act by a GOAWAY; nothing for small ones.

    A header block that does not fit into a frame of 16,384 bytes is large. Some servers allow larger frames.
    """
    goaways, connections, directions = tables.goaways, tables.connections, tables.directions
    connection, receiver = int(goaways.connection[goaway]), int(goaways.direction[goaway])
    code = error_name(int(goaways.code[goaway]))
    if code not in _CODES or not connections.complete[connection]:
        return ""
    row = 2 * connection + 1 - receiver
    frames, octets = int(directions.header_frames[row]), int(directions.header_block_bytes[row])
    requests = max(int(connections.rpcs[connection]) + int(connections.other_streams[connection]), 1)
    # clients send one block for a request, and servers at most two: what exceeds that are CONTINUATION frames
    blocks = requests if receiver else 2 * requests
    fits = frames <= blocks and octets <= _FRAME * blocks
    if fits or _is_any_accepted(tables, connection, receiver):
        return ""
    one, other = host(tables, connection, 1 - receiver), host(tables, connection, receiver)
    metadata = f"{octets:,} bytes of metadata in {count(frames, 'frame')} for {count(requests, 'request')}"
    return f"{one} had sent {metadata}: probably more than {other} accepts."


def _is_any_accepted(tables: Tables, connection: int, receiver: int) -> bool:
    """Check whether a receiver accepted header blocks: the ones with CONTINUATION frames may be among them."""
    rpcs = tables.rpcs
    answered = np.flatnonzero((rpcs.connection == connection) & (rpcs.status_source == common.TRAILERS))
    return len(answered) > 0 if receiver else not np.isin(answered, figures.find_discarded(tables)).all()


def list_remedies(tables: Tables, goaway: int) -> tuple[Remedy, ...]:
    """List the limits of the software that sent a GOAWAY: those of a server by its name."""
    connection, receiver = int(tables.goaways.connection[goaway]), int(tables.goaways.direction[goaway])
    software = recognise_end(tables, connection, receiver)
    if receiver:
        return list_settings(software)
    return _OF_NODE_CLIENT if software in _NODE else (_OF_CLIENT,)


_OF_CLIENT = Remedy("application", "the client's limit on metadata (header list size)", "or less metadata in responses")
_OF_NODE_CLIENT = (
    Remedy("application", "less metadata in one field", "nghttp2 allows 65,536 bytes in it, which no setting changes"),
)
